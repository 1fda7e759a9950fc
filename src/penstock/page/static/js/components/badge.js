// A state as words on a coloured ground: the colour never stands alone.
import { h } from "../dom.js";

const TONES = {
  running: "good", final: "good", kept: "good", released: "good", yes: "good",
  starting: "warn", waiting: "calm", retrying: "warn", late: "warn", approximated: "warn", missed: "bad", corrected: "warn",
  "source unreachable": "bad", failed: "bad", dead: "bad", refused: "bad", broken: "bad", no: "bad",
};

export const tone = (state) => TONES[state] ?? "calm";
export const badge = (state, told = tone(state)) => h("span", { class: `badge ${told}` }, state ?? "unknown");
