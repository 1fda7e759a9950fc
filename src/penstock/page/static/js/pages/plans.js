// How the run answers: the evaluation sequence of each stream, the order of each join, and why each changed.
import { ask } from "../api.js";
import { h } from "../dom.js";
import { apart, length, number, percent, rate, short, since } from "../format.js";
import { badge } from "../components/badge.js";
import { chart } from "../components/chart.js";
import { block, card, facts, flush, heading, term } from "../components/section.js";
import { empty } from "../components/states.js";
import { table } from "../components/table.js";
import { TERMS } from "../glossary.js";
import { graph } from "./graph.js";

const WAYS = { index: "the index", asc: "the ASCs" };
//: columns of a sequence that are shown at once
const SHOWN = 24;
//: share by which figures differ that need more digits
const NEAR = 0.05;

export const section = "plans";
export const title = () => "Plans";
export const load = () => ask("/api/plans");

export const view = ({ streams, joins, switches }, { now }) => {
  const parts = [
    ...streams.map(stream),
    ...joins.map(join),
    switches.length ? block("Switches", "What changed a plan, newest first, with the figures that caused it.", h("ol", { class: "stories" }, switches.map((each) => story(each, now)))) : null,
  ];
  return [
    heading("Plans", h("p", { class: "muted" }, "How the run answers now, and why.")),
    streams.length + joins.length ? parts : flush(empty("No plan yet", "Penstock makes a plan when it has measured the first batches of a stream.")),
  ];
};

function stream(each) {
  const waits = each.sequence.length === 0;
  return block(`Stream ${each.name}`, each.decision, card(
    facts([
      each.by ? ["matched by", WAYS[each.by]] : null,
      each.index_ns === null ? null : ["the index takes", `${length(each.index_ns / 1e9)} a tuple`],
      each.asc_ns === null ? null : ["the ASCs take", `${length(each.asc_ns / 1e9)} a tuple`],
    ]),
    h("h3", null, term("Order in which columns are compared", `Evaluation sequence: ${TERMS["evaluation sequence"].toLowerCase()}`)),
    waits ? h("p", { class: "muted" }, "This stream has no evaluation sequence: no view compares its columns, or Penstock has measured too few tuples.") : sequence("Order now", each.sequence),
    each.runner_up === null ? null : [h("h3", null, "Order that came second"), sequence("Order that came second", each.runner_up.sequence)],
    bars(each),
    changes(each.history.evaluations) ? chart({ label: `Evaluations a tuple of ${each.name}`, at: each.history.at, height: 160, series: [{ label: "evaluations a tuple", values: each.history.evaluations, tone: "--accent" }] }) : null));
}

const changes = (values) => new Set(values).size > 1;

const sequence = (label, columns) =>
  h("ol", { class: "chain", "aria-label": label }, columns.slice(0, SHOWN).map((column) => h("li", null, h("code", { class: "clip", title: column }, column))),
    columns.length > SHOWN ? h("li", { class: "muted" }, `and ${columns.length - SHOWN} more`) : null);

function bars({ evaluations, found: chosen, before, runner_up: other }) {
  const found = [["now, newest sample", evaluations, "now"], ["when it was found", chosen], ["the order before it", before], ["the order that came second", other?.evaluations]].filter(([, figure]) => figure !== null && figure !== undefined);
  if (!found.length) return null;
  const figures = found.map(([, figure]) => figure);
  const most = Math.max(...figures);
  return h("div", { class: "bars" }, h("h3", null, "Evaluations a tuple"),
    h("p", { class: "muted small" }, "How many columns Penstock compares until it knows all matches of a tuple. The newest figure is of the newest sample, the others of samples by which an order was found."),
    h("dl", null, found.map(([label, figure, kind]) =>
      h("div", { class: kind }, h("dt", null, label), h("dd", null, h("span", { class: "bar", "aria-hidden": "true", style: { "--share": most ? figure / most : 0 } }), number(figure, (value) => apart(value, ...figures)))))));
}

function join(each) {
  return block(`Join ${each.view}`, each.reason, card(
    h("div", { class: "split" },
      facts([
        ["state", badge(each.state)],
        ["joined rows a second, measured", number(each.measured_rate)],
        ["order changed", each.switches === 1 ? "once" : `${each.switches} times`],
        each.order ? ["order", each.order] : null,
      ])),
    each.steps.length ? graph(each) : empty("No order yet", "Penstock draws the order when it has measured the first tuples of each input."),
    each.steps.length ? h("details", null, h("summary", null, "The steps as a table"), table(`Steps of ${each.view}`, STEPS, each.steps)) : null));
}

const STEPS = [
  { label: "new tuples of", cell: (step) => step.of },
  { label: "meet", cell: (step) => step.to },
  { label: "by", cell: (step) => [step.method, step.key].filter(Boolean).join(" on ") },
  { label: "rate", kind: "number", cell: (step) => number(step.rate, rate) },
  { label: "selectivity", kind: "number", cell: (step) => number(step.selectivity) },
  { label: "cost, s of a core a second", kind: "number", cell: (step) => number(step.cost) },
];

const story = (each, now) =>
  h("li", { class: "card" },
    h("header", { class: "split" }, h("h3", null, each.subject), h("p", { class: "muted small" }, badge(each.is_kept ? "order kept" : words(each.kind), "calm"), " ", since(each.at, now))),
    h("p", null, each.text),
    each.order.length && !each.is_kept ? orders(each) : null,
    Object.keys(each.figures).length ? facts(Object.entries(each.figures).map(([name, figure]) => [words(name), figured(each.figures, name, figure)])) : null);

/** The order before a change and the one after it, side by side, with what each costs. */
function orders({ before, order, figures }) {
  const [old, now] = [figures.evaluations_before, figures.evaluations];
  const costs = (value) => (typeof value === "number" && typeof old === "number" && typeof now === "number" ? h("p", { class: "muted small" }, `${apart(value, value === old ? now : old)} checks a tuple`) : null);
  return h("div", { class: "pair" },
    before.length ? h("div", null, h("h4", null, "Order before"), sequence("Order before", before), costs(old)) : null,
    h("div", null, h("h4", null, "Order from then on"), sequence("Order from then on", order), costs(now)));
}

/** A figure beside others, with as many digits as tell it from those that are near. */
function figured(figures, name, figure) {
  if (typeof figure !== "number") return clipped(figure);
  if (name === "gain") return number(figure, percent);
  const near = Object.values(figures).filter((other) => typeof other === "number" && other !== figure && Math.abs(other - figure) < NEAR * Math.abs(figure));
  return number(figure, (value) => (near.length ? apart(value, ...near) : short(value)));
}

const words = (name) => name.replaceAll("_", " ");
const clipped = (text) => h("span", { class: "clip", title: String(text) }, String(text));
