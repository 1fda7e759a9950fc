// What a view promises of its early answers, and whether it keeps that.
import { badge, tone } from "../components/badge.js";
import { percent, short } from "../format.js";

/** The bound in words; null without one. `probability` is that of a miss. */
export const asked = (bound) => bound && `off by less than ${size(bound)} in ${percent(1 - bound.probability)} of the windows`;

export const size = ({ error, absolute }) => (absolute ? short(error) : percent(error));

/** How far a value may be from `value`. */
export const margin = ({ error, absolute }, value) => (absolute ? error : error * Math.abs(value));

/** Whether the promise is kept, in the words of `penstock status`. */
export const kept = (view) => (view.kept === null ? null : badge(view.kept_words, tone(view.kept)));
