// Views with deadlines: which windows were answered in time, what they were predicted to cost and did cost.
import { ask, named } from "../api.js";
import { h } from "../dom.js";
import { counted, length, number, percent, since, span } from "../format.js";
import { badge } from "../components/badge.js";
import { choice } from "../components/fields.js";
import { block, card, flush, heading } from "../components/section.js";
import { empty } from "../components/states.js";
import { table } from "../components/table.js";
import { TERMS } from "../glossary.js";
import { standing, tone } from "./promises.js";
import { OUTCOMES, costs, legend, mark, timeline } from "./timeline.js";

const MOST = 50;

export const section = "deadlines";
export const title = () => "Deadlines";
export const load = () => ask("/api/deadlines");

export const view = ({ views, windows }, { query, now, choose }) => {
  if (!views.length)
    return [heading("Deadlines"), flush(empty("No view with a deadline", "A view with the hint DEADLINE('2 seconds') is answered in time or given up. `penstock demo deadlines` shows three of them under twice the load that the processors bear."))];
  const shown = windows.filter((window) => (!query.outcome || window.outcome === query.outcome) && (!query.view || window.view === query.view));
  return [
    heading("Deadlines", h("p", { class: "muted" }, `Windows that must be answered in time. The newest ${windows.length} are shown.`)),
    burden(views),
    flush(table("Views with a deadline", VIEWS, views, (each) => each.name)),
    windows.length ? [
      block("Timeline", "Each mark is a window, by the moment at which it became due.", card(legend(), timeline(windows))),
      block("Predicted and real cost", "A mark above the line took longer than Penstock predicted.", h("div", { class: "card fitted" }, costs(windows))),
      block("Windows", null,
        h("div", { class: "tools" },
          choice("View", [["", "every view"], ...views.map((each) => [each.name, each.name])], query.view, (name) => choose({ view: name })),
          choice("Outcome", [["", "every outcome"], ...Object.keys(OUTCOMES).map((each) => [each, each])], query.outcome, (outcome) => choose({ outcome }))),
        flush(shown.length ? table("Windows with a deadline", WINDOWS(now), shown.slice(0, MOST)) : empty("No such window", "Choose another view or outcome.")))]
      : flush(empty("No windows yet", "A window appears here when it becomes due.")),
  ];
};

function burden(views) {
  const asks = views.reduce((total, each) => total + (each.asks ?? 0), 0);
  const overloaded = views.filter((each) => each.overloaded).length;
  const broken = views.reduce((total, each) => total + each.broken, 0);
  if (!asks && !overloaded && !broken) return null;
  return h("p", { class: tone({ overloaded, broken }) }, standing({ overloaded, broken }),
    asks ? ` All windows in time would take ${counted(asks, "processor")}.` : null);
}

const VIEWS = [
  { label: "view", cell: (each) => h("a", { class: "clip", href: named("/queries", each.name), title: each.name }, each.name) },
  { label: "load", cell: (each) => (each.overloaded ? badge("overloaded", "bad") : badge("bearable", "good")), isVoid: (each) => !each.overloaded },
  { label: "LOSS promise", cell: (each) => (each.broken ? badge("broken", "bad") : badge("kept", "good")), isVoid: (each) => !each.loss },
  { label: "deadline", kind: "number", cell: (each) => length(each.deadline) },
  { label: "loss allowed", cell: (each) => (each.loss ? `${each.loss[0]} of ${each.loss[1]} in a row` : "–") },
  { label: "in time", kind: "number", cell: (each) => percent(each.in_time) },
  { label: "outcomes", kind: "wide", cell: (each) => shares(each) },
  { label: "rho", about: TERMS.rho, kind: "number", cell: (each) => number(each.rho), isVoid: (each) => each.rho === null },
  { label: "may still lose", about: TERMS.allowance, kind: "number", cell: (each) => number(each.allowance), isVoid: (each) => each.allowance === null },
  { label: "asks of a processor", kind: "number", cell: (each) => percent(each.asks), isVoid: (each) => each.asks === null },
];

function shares(each) {
  const found = Object.entries(OUTCOMES).map(([name, { tone }]) => ({ name, tone, count: each[name] ?? 0 })).filter(({ count }) => count);
  return h("span", { class: "stack" },
    h("span", { class: "pile", "aria-hidden": "true" }, found.map(({ count, tone }) => h("span", { style: { "flex-grow": String(count), background: `var(${tone})` } }))),
    h("span", { class: "small" }, found.map(({ name, count }) => `${count.toLocaleString("en-US")} ${name}`).join(", ") || "none yet"));
}

const WINDOWS = (now) => [
  { label: "window, UTC", cell: (window) => span(window.start, window.end) },
  { label: "view", cell: (window) => h("span", { class: "clip", title: window.view }, window.view) },
  { label: "outcome", cell: (window) => h("span", { class: "outcome" }, mark(window.outcome), window.outcome) },
  { label: "due", cell: (window) => since(window.arrived, now) },
  { label: "predicted", kind: "number", cell: (window) => number(window.predicted, length) },
  { label: "real", kind: "number", cell: (window) => number(window.real, length) },
  { label: "reason", kind: "wide", cell: (window) => window.reason ?? "–", isVoid: (window) => !window.reason },
];
