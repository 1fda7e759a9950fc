// What a view promises of its early answers, and whether it keeps that.
import { badge, tone as toneOf } from "../components/badge.js";
import { counted, percent, short } from "../format.js";

/** The bound in words; null without one. `probability` is that of a miss. */
export const asked = (bound) => bound && `off by less than ${size(bound)} in ${percent(1 - bound.probability)} of the windows`;

/** By what a promise is judged, in words. */
export const found = ({ first, first_off, early, off }) =>
  `${off.toLocaleString("en-US")} of ${counted(early, "early answer")} were off; ${first_off.toLocaleString("en-US")} of all ${counted(first, "first answer")} to rows that are final`;

export const size = ({ error, absolute }) => (absolute ? short(error) : percent(error));

/** How far a value may be from `value`. */
export const margin = ({ error, absolute }, value) => (absolute ? error : error * Math.abs(value));

/** Whether the promise is kept, in the words of `penstock status`. */
export const kept = (view) => (view.kept === null ? null : badge(view.kept_words, toneOf(view.kept)));

/** How views with a deadline stand: their load, and what they promised to lose at most. */
export const standing = ({ overloaded, broken }) =>
  [overloaded ? `${counted(overloaded, "view")} overloaded: most windows miss their deadline.` : "No view is overloaded.",
    broken ? `LOSS promise broken ${counted(broken, "time")}.` : "No LOSS promise is broken."].join(" ");

export const tone = ({ overloaded, broken }) => (broken ? "note bad" : overloaded ? "note warn" : "note fine");
