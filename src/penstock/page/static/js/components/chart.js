// Lines over time, drawn by uPlot; each chart has a text alternative, a large one its figures as a table too.
import uPlot from "../../vendor/uplot/uPlot.esm.js";
import { h } from "../dom.js";
import { apart, clock, length, short, utc } from "../format.js";

const probe = document.createElement("i");

/** The colour behind a variable of the style sheet, for a canvas. */
function ink(variable, alpha = 1) {
  if (!probe.isConnected) {
    probe.hidden = true;
    document.body.append(probe);
  }
  probe.style.color = `var(${variable})`;
  const colour = getComputedStyle(probe).color;
  return alpha === 1 ? colour : colour.replace(/^rgb\((.*)\)$/, `rgba($1, ${alpha})`);
}

/** Make a small line without axes. values: numbers, null where unknown. */
export function spark(label, at, values, format = short) {
  const told = summary(label, values, format);
  return h("span", { class: "spark", role: "img", "aria-label": told, title: told, widget: {
    kind: "spark", data: thinned(at, values), create: (node, data) => draw(node, sparkOptions(), (now) => [now.at, now.values], data),
  } });
}

//: points of a small line
const POINTS = 48;

/** A history with at most POINTS points: means of neighbours. */
function thinned(at, values) {
  const step = Math.ceil(at.length / POINTS);
  if (step < 2) return { at, values };
  const parts = Array.from({ length: Math.ceil(at.length / step) }, (_, part) => part * step);
  const mean = (known) => (known.length ? known.reduce((total, value) => total + value, 0) / known.length : null);
  return { at: parts.map((part) => at[part]), values: parts.map((part) => mean(values.slice(part, part + step).filter((value) => value !== null))) };
}

const sparkOptions = () => ({
  width: 96, height: 32, padding: [4, 2, 4, 2], legend: { show: false }, cursor: { show: false }, axes: [{ show: false }, { show: false }],
  scales: { x: { time: true }, y: { range: (_, low, high) => (low === high ? [low - 1, high + 1] : [low, high]) } },
  series: [{}, { stroke: () => ink("--accent"), fill: () => ink("--accent", 0.12), width: 1.5, points: { show: false } }],
});

/**
 * Make a chart.
 * series: {label, values, tone, width, points: draws points alone, bandTo: place of the series that ends a band, isQuiet: not in the legend}; `at`: epoch seconds;
 * isEventTime: of the x axis, which is in UTC then.
 */
export function chart({ label, at, series, format = short, isEventTime = false, height = 240 }) {
  const drawn = series.filter(({ values }) => values.some((value) => value !== null));
  const summaries = drawn.map((each) => summary(each.label, each.values, format)).join(". ");
  const time = isEventTime ? utc : clock;
  return h("figure", { class: "chart", "aria-label": label },
    h("div", { class: "plot", role: "img", "aria-label": `${label}. ${summaries}`, widget: {
      kind: `chart ${series.map((each) => each.label).join("|")}`,
      data: { at, series },
      create: (node, data) => draw(node, options(series, format, isEventTime, height), (now) => [now.at, ...now.series.map((each) => each.values)], data),
    } }),
    h("figcaption", { class: "legend" }, series.filter((each) => !each.isQuiet).map((each) => h("span", { class: each.bandTo ? "area" : each.points ? "points" : null, style: { "--tone": `var(${each.tone})` } }, each.label))),
    h("details", null, h("summary", null, "The figures as a table"),
      h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": `${label}: figures` }, figures(label, at, series, time, format))));
}

const figures = (label, at, series, time, format) =>
  h("table", { class: "table" }, h("caption", { class: "hidden-text" }, label),
    h("thead", null, h("tr", null, h("th", { scope: "col" }, "Time"), series.map((each) => h("th", { scope: "col", class: "number" }, each.label)))),
    h("tbody", null, at.map((t, row) => h("tr", null, h("th", { scope: "row" }, time(t)), series.map((each) => h("td", { class: "number" }, format(each.values[row])))))));

function options(series, format, isEventTime, height) {
  const axis = { stroke: () => ink("--muted"), font: "12px system-ui, sans-serif", ticks: { show: false } };
  const bands = series.flatMap((each, index) => (each.bandTo === undefined ? [] : [{ series: [index + 1, each.bandTo + 1], fill: () => ink(each.tone, 0.14) }]));
  return {
    width: 600, height, padding: [8, 8, 0, 0], legend: { show: false }, bands,
    cursor: { points: { size: 6 }, drag: { x: false, y: false } },
    ...(isEventTime ? { tzDate: (at) => uPlot.tzDate(new Date(at * 1000), "Etc/UTC") } : {}),
    axes: [
      { ...axis, grid: { show: false }, space: 96, size: 40, values: TIMES },
      { ...axis, grid: { stroke: () => ink("--line"), width: 1 }, size: widest, values: (_, ticks) => texts(ticks, format), ...(format === length ? { incrs: LENGTHS } : {}) },
    ],
    scales: { y: { range: (_, low, high) => range(low, high) } },
    series: [{}, ...series.map((each) => ({
      label: each.label, stroke: () => ink(each.tone), width: each.points ? 0 : each.width ?? 2, spanGaps: true,
      points: each.points ? { show: true, size: 7, width: 1.5, stroke: () => ink(each.tone), fill: () => ink("--surface") } : { show: each.width !== 0 && each.values.length === 1 },
    }))],
  };
}

/** The ends of an axis: below zero only where a value is. */
export function range(low, high) {
  if (low === null) return [0, 1];
  const [least, most] = low === high ? [Math.min(0, low), Math.max(1, high)] : [low, high];
  const [begin, end] = uPlot.rangeNum(least, most, 0.1, true);
  return [low < 0 ? begin : Math.max(0, begin), end];
}

/** The texts of an axis: numbers that lie close together have more digits. */
function texts(ticks, format) {
  const found = ticks.map((tick) => format(tick));
  return format === short && new Set(found).size < found.length ? ticks.map((tick) => apart(tick, ...ticks)) : found;
}

//: steps of an axis of lengths of time, seconds
const LENGTHS = [...[-9, -8, -7, -6, -5, -4, -3, -2, -1].flatMap((power) => [1, 2, 5].map((step) => step * 10 ** power)), 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 21600, 43200, ...[1, 2, 5, 10, 50, 100].map((days) => days * 86400)];

/** The width of the y axis: that of its longest text. */
const widest = (_, texts) => 16 + 7 * Math.max(3, ...(texts ?? []).map((text) => text.length));

//: of the x axis: the smallest step of seconds, and the text of a tick and of the first tick of a day
const TIMES = [
  [86400, "{YYYY}-{MM}-{DD}", null, null, null, null, null, null, 1],
  [3600, "{HH}:{mm}", "\n{YYYY}-{MM}-{DD}", null, "\n{MM}-{DD}", null, null, null, 1],
  [60, "{HH}:{mm}", "\n{YYYY}-{MM}-{DD}", null, "\n{MM}-{DD}", null, null, null, 1],
  [1, "{HH}:{mm}:{ss}", "\n{YYYY}-{MM}-{DD}", null, "\n{MM}-{DD}", null, null, null, 1],
  [0.001, "{HH}:{mm}:{ss}.{fff}", null, null, null, null, null, null, 1],
];

function draw(node, settings, columns, data) {
  const plot = new uPlot({ ...settings, width: node.clientWidth || settings.width }, columns(data), node);
  const size = new ResizeObserver(() => node.clientWidth && plot.setSize({ width: node.clientWidth, height: settings.height }));
  const redraw = () => plot.redraw(true, true);
  const system = matchMedia("(prefers-color-scheme: dark)");
  size.observe(node);
  window.addEventListener("themechange", redraw);
  system.addEventListener("change", redraw);
  return {
    update: (now) => plot.setData(columns(now)),
    close() {
      size.disconnect();
      window.removeEventListener("themechange", redraw);
      system.removeEventListener("change", redraw);
      plot.destroy();
    },
  };
}

function summary(label, values, format) {
  const known = values.filter((value) => value !== null && value !== undefined);
  if (!known.length) return `${label}: not measured`;
  const [low, high] = known.reduce(([least, most], value) => [Math.min(least, value), Math.max(most, value)], [Infinity, -Infinity]);
  return `${label}: ${format(known.at(-1))} now, between ${format(low)} and ${format(high)}`;
}
