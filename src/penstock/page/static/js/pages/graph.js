// The order of a join as a graph: for new tuples of each input, the inputs they meet one after the other.
import { h, svg } from "../dom.js";
import { length, rate, short } from "../format.js";

const NODE = { width: 128, height: 40 };
const EDGE = 216;
const ROW = 104;
const MARGIN = 8;

export function graph({ view, steps }) {
  const chains = chained(steps);
  const longest = Math.max(...chains.map((chain) => chain.length));
  const width = NODE.width + longest * (EDGE + NODE.width) + 2 * MARGIN;
  const height = chains.length * ROW;
  return h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": `Order of ${view}` },
    svg("svg", { class: "graph", width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": told(view, chains) },
      svg("defs", null, svg("marker", { id: "tip", viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 7, markerHeight: 7, orient: "auto" }, svg("path", { d: "M0 0 8 4 0 8z", class: "tip" }))),
      chains.map((chain, row) => drawn(chain, row * ROW + ROW / 2))));
}

/** Steps in chains: a step goes on where the chain ended, or is the next one of the chain's first input. */
function chained(steps) {
  const chains = [];
  for (const step of steps) {
    const chain = chains.at(-1);
    if (chain && (chain[0].of === step.of || chain.at(-1).to === step.of)) chain.push(step);
    else chains.push([step]);
  }
  return chains;
}

function drawn(chain, y) {
  const start = (place) => MARGIN + place * (EDGE + NODE.width);
  return [node(chain[0].of, start(0), y, "first"), chain.map((step, place) => [edge(step, start(place) + NODE.width, y), node(step.to, start(place + 1), y)])];
}

const node = (name, x, y, kind = "") =>
  svg("g", { class: `node ${kind}` },
    svg("title", null, name),
    svg("rect", { x, y: y - NODE.height / 2, width: NODE.width, height: NODE.height, rx: 8 }),
    svg("text", { x: x + NODE.width / 2, y: y + 5, "text-anchor": "middle" }, cut(name, 15)));

function edge(step, x, y) {
  const middle = x + EDGE / 2;
  return svg("g", { class: "edge" },
    svg("path", { d: `M${x + 4} ${y}H${x + EDGE - 4}`, "marker-end": "url(#tip)" }),
    svg("text", { x: middle, y: y - 10, "text-anchor": "middle", class: "method" }, cut(how(step), 32)),
    figures(step).map((text, line) => svg("text", { x: middle, y: y + 20 + line * 16, "text-anchor": "middle" }, text)));
}

const how = ({ method, key }) => (key ? `${method} on ${key}` : method);
const cut = (text, most) => (text.length > most ? `${text.slice(0, most - 1)}…` : text);

const figures = ({ rate: measured, selectivity, cost }) =>
  [
    [measured === null ? null : rate(measured), selectivity === null ? null : `selectivity ${short(selectivity)}`].filter(Boolean).join(" · "),
    cost === null ? null : `cost ${length(cost)} a second`,
  ].filter(Boolean);

const told = (view, chains) =>
  `Order of ${view}. ${chains.map((chain) => `New tuples of ${chain[0].of} meet ${chain.map((step) => `${step.to} by ${how(step)} (${figures(step).join(", ") || "not measured"})`).join(", then ")}`).join(". ")}.`;
