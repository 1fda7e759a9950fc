// Windows with a deadline as marks: each outcome has a colour and a shape of its own.
import { h, svg } from "../dom.js";
import { clock, length } from "../format.js";

export const OUTCOMES = {
  released: { tone: "--good", path: "M0-4a4 4 0 1 0 0 8a4 4 0 1 0 0-8z", isUsual: true },
  late: { tone: "--warn", path: "M0-5 5 4H-5z" },
  shed: { tone: "--calm", path: "M-4-4H4V4H-4z" },
  missed: { tone: "--bad", path: "M-4-2.2-2.2-4 0-1.8 2.2-4 4-2.2 1.8 0 4 2.2 2.2 4 0 1.8-2.2 4-4 2.2-1.8 0z" },
  failed: { tone: "--bad", path: "M0-5.5 5.5 0 0 5.5-5.5 0z" },
  approximated: { tone: "--warn", path: "M-4-1.5H4V1.5H-4z" },
};
const WIDTH = 960;
const SIDE = 144;
const ROW = 40;
const FOOT = 28;
const TICKS = 5;
const PLOT = { width: 376, height: 280 };

/** A mark beside text. */
export const mark = (outcome) => svg("svg", { class: "mark", viewBox: "-7 -7 14 14", "aria-hidden": "true" }, shape(outcome, 0, 0));

export const legend = () => h("p", { class: "outcomes" }, Object.keys(OUTCOMES).map((outcome) => h("span", { class: "outcome" }, mark(outcome), outcome)));

function shape(outcome, x, y, title) {
  const { tone, path, isUsual } = OUTCOMES[outcome];
  return svg("path", { class: isUsual ? "usual" : null, d: path, transform: `translate(${x.toFixed(1)} ${y.toFixed(1)})`, style: { fill: `var(${tone})` } }, title ? svg("title", null, title) : null);
}

const words = (window) =>
  `${window.view}: ${window.outcome}, due ${window.arrived === null ? "at an unknown time" : clock(window.arrived)}, predicted ${length(window.predicted)}, took ${length(window.real)}${window.reason ? `. ${window.reason}` : ""}`;

/** Windows by view and by the moment at which they became due. */
export function timeline(windows) {
  const known = unusualLast(windows.filter((window) => window.arrived !== null && OUTCOMES[window.outcome]));
  const views = [...new Set(known.map((window) => window.view))].sort();
  const [low, high] = range(known.map((window) => window.arrived));
  const x = (at) => SIDE + 12 + ((at - low) / (high - low)) * (WIDTH - SIDE - 24);
  const height = views.length * ROW + FOOT;
  return h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Timeline of windows" },
    svg("svg", { class: "timeline", viewBox: `0 0 ${WIDTH} ${height}`, role: "img", "aria-label": tally(known, views) },
      views.map((name, row) => [
        svg("path", { class: "rule", d: `M${SIDE} ${row * ROW + ROW / 2}H${WIDTH}` }),
        svg("text", { x: 0, y: row * ROW + ROW / 2 + 4, class: "name" }, svg("title", null, name), name.length > 20 ? `${name.slice(0, 19)}…` : name)]),
      Array.from({ length: TICKS }, (_, tick) => low + ((high - low) * tick) / (TICKS - 1)).map((at, tick) =>
        svg("text", { x: x(at), y: height - 6, "text-anchor": tick === 0 ? "start" : tick === TICKS - 1 ? "end" : "middle", class: "tick" }, clock(at))),
      known.map((window) => shape(window.outcome, x(window.arrived), views.indexOf(window.view) * ROW + ROW / 2, words(window)))));
}

const unusualLast = (windows) => windows.toSorted((a, b) => Boolean(OUTCOMES[b.outcome].isUsual) - Boolean(OUTCOMES[a.outcome].isUsual));

const tally = (windows, views) =>
  views.map((name) => {
    const own = windows.filter((window) => window.view === name);
    return `${name}: ${Object.keys(OUTCOMES).map((outcome) => [own.filter((window) => window.outcome === outcome).length, outcome]).filter(([count]) => count).map(([count, outcome]) => `${count} ${outcome}`).join(", ")}`;
  }).join(". ");

/** Predicted against real seconds of each window that was computed. */
export function costs(windows) {
  const known = unusualLast(windows.filter((window) => window.predicted !== null && window.real !== null && OUTCOMES[window.outcome]));
  if (!known.length) return h("p", { class: "muted" }, "No window has both a predicted and a real cost yet.");
  const most = Math.max(...known.flatMap((window) => [window.predicted, window.real])) || 1;
  const [left, foot] = [64, 40];
  const x = (seconds) => left + (seconds / most) * (PLOT.width - 8);
  const y = (seconds) => PLOT.height - foot - (seconds / most) * (PLOT.height - foot - 32);
  const over = known.filter((window) => window.real > window.predicted).length;
  return svg("svg", { class: "costs", viewBox: `0 0 ${left + PLOT.width} ${PLOT.height}`, role: "img", "aria-label": `${known.length} windows: ${over} took longer than predicted, at most ${length(Math.max(...known.map((window) => window.real)))}` },
    [0, 0.5, 1].map((part) => [
      svg("path", { class: "rule", d: `M${left} ${y(most * part)}H${x(most)}` }),
      svg("text", { x: left - 8, y: y(most * part) + 4, "text-anchor": "end", class: "tick" }, length(most * part)),
      svg("text", { x: x(most * part), y: PLOT.height - foot + 18, "text-anchor": part === 1 ? "end" : "middle", class: "tick" }, length(most * part))]),
    svg("path", { class: "diagonal", d: `M${x(0)} ${y(0)}L${x(most)} ${y(most)}` }),
    svg("text", { x: x(most), y: PLOT.height - 4, "text-anchor": "end", class: "tick" }, "predicted"),
    svg("text", { x: 0, y: 12, class: "tick" }, "real"),
    known.map((window) => shape(window.outcome, x(window.predicted), y(window.real), words(window))));
}

function range(values) {
  const [low, high] = values.reduce(([least, most], value) => [Math.min(least, value), Math.max(most, value)], [Infinity, -Infinity]);
  return low < high ? [low, high] : [low - 1, low + 1];
}
