// What a view promises of its early answers, and whether it keeps that.
import { badge } from "../components/badge.js";
import { percent } from "../format.js";

/** The bound in words; null without one. */
export const asked = (bound) => bound && `error under ${percent(bound.error)} in ${percent(bound.probability)} of the windows`;

export const kept = ({ promised }) => (promised === null ? null : badge(promised ? "kept" : "broken"));
