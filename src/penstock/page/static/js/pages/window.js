// The windows of one view and one key: early, corrected and final values as a band with the bound; coverage; slack.
import { ask, named } from "../api.js";
import { h } from "../dom.js";
import { event, length, number, percent, short, span } from "../format.js";
import { badge } from "../components/badge.js";
import { chart } from "../components/chart.js";
import { choice } from "../components/fields.js";
import { block, card, crumbs, facts, flush, heading, term } from "../components/section.js";
import { empty } from "../components/states.js";
import { table } from "../components/table.js";
import { TERMS } from "../glossary.js";
import { asked, found, kept, margin, size } from "./promises.js";

//: windows in the table, newest first
const MOST = 60;

export const section = "windows";
export const title = (name) => `Windows of ${name.slice(0, 80)}`;
export const load = ({ name, query: { key, value } }) => ask(named("/api/windows", name), { key, value });

export const view = (found, { name, choose }) => [
  h("div", { class: "top" }, crumbs("windows", "Windows"),
    heading(name, badge(found.view.state), h("a", { class: "button", href: named("/queries", name) }, "Its text and rows"))),
  found.why_open ? h("p", { class: "note" }, h("strong", null, "Why the oldest window is not final yet: "), found.why_open) : null,
  found.is_whole ? null : h("p", { class: "note" }, "The view has many rows: the page shows the newest of them. A first answer that is not among them is left open."),
  card(facts(standing(found.view))),
  h("div", { class: "tools" },
    found.groups.length > 1 || found.keys.length
      ? choice(found.keys.join(", ") || "Group", found.groups.map((group) => [JSON.stringify(group), words(group)]), JSON.stringify(found.key), (key) => choose({ key }))
      : null,
    found.values.length > 1 ? choice("Value", found.values.map((each) => [each, each]), found.value, (value) => choose({ value })) : null),
  found.windows.length ? values(found) : flush(empty("No windows yet", "A window appears here when the view has published its first answer.")),
  slack(found.view),
  found.windows.length ? listed(found) : null,
];

const listed = ({ view: { kind }, windows }) =>
  block("Windows", `The newest ${Math.min(MOST, windows.length)}.`,
    flush(table("Windows", kind === "deadline" ? TIMED : PROMISED, windows.slice(-MOST).reverse(), (each) => String(each.start))));

const words = (group) => Object.values(group).map((part) => (part === null ? "null" : String(part))).join(", ") || "all tuples";

const standing = (view) => (view.kind === "deadline" ? timed(view) : promised(view));

const timed = (view) => [
  ["rows", number(view.rows)],
  ["answered", h("span", null, "once for each window, in time or not at all. ", h("a", { href: "/deadlines" }, "Its deadlines"))],
];

const promised = (view) => [
  [term("promise", TERMS.promise), asked(view.bound) ?? "no bound"],
  view.kept === null ? null : ["within the bound so far", [view.within === null ? null : `${percent(view.within)} `, kept(view), view.judged === null ? null : h("span", { class: "under" }, found(view.judged))]],
  [term("newest slack", TERMS.slack), number(view.slack, length)],
  view.horizon === null ? null : [term("horizon", TERMS.horizon), number(view.horizon, length)],
  view.coverage === null ? null : [term("coverage expected of early answers", TERMS.coverage), percent(view.coverage)],
  [term("windows early", TERMS.early), number(view.early)],
  [term("windows corrected", TERMS.corrected), number(view.corrected + view.final_corrected)],
  [term("windows final", TERMS.final), number(view.final)],
  ["rows, one for each window and key", number(view.rows)],
  view.judged === null ? null : ["of these corrected", number(view.judged.corrected)],
  ["oldest open window, UTC", event(view.oldest_open)],
];

function values({ view, value, windows }) {
  const at = windows.map((window) => window.start);
  const first = windows.map((window) => window.revisions[0]?.value ?? null);
  const final = windows.map((window) => last(window, (revision) => revision.is_final)?.value ?? null);
  const newest = windows.map((window) => last(window, (revision) => !revision.is_final && revision.revision > 0)?.value ?? null);
  const centre = windows.map((window) => last(window, () => true)?.value ?? null);
  const isTimed = view.kind === "deadline";
  const edge = (sign) => centre.map((each) => (each === null ? null : each + sign * margin(view.bound, each)));
  const band = view.bound === null ? [] : [
    { label: `bound: ${size(view.bound)} around the newest value`, values: edge(1), tone: "--accent", width: 0, bandTo: 1 },
    { label: "lower bound", values: edge(-1), tone: "--accent", width: 0, isQuiet: true },
  ];
  return [
    block(value, view.bound === null ? "By start of the window, UTC." : "By start of the window, UTC. A first answer inside the band kept the bound.", card(chart({
      label: `${value}: early, corrected and final values`, at, isEventTime: true, height: 300,
      series: [...band,
        { label: "final", values: isTimed ? centre : final, tone: "--accent" },
        ...(isTimed ? [] : [
          { label: "corrected", values: newest, tone: "--warn", points: true },
          { label: "first, early", values: first, tone: "--calm", points: true }])],
    }))),
    windows.every((window) => window.coverage === null) ? null : block("Coverage", "The share of a window's tuples that its first answer contained, as far as is known.", card(chart({
      label: "Coverage of first and newest answers", at, isEventTime: true, height: 160, format: percent,
      series: [
        { label: "newest answer", values: windows.map((window) => window.coverage), tone: "--accent" },
        { label: "first answer", values: windows.map((window) => window.revisions[0]?.coverage ?? null), tone: "--calm", points: true }],
    }))),
  ];
}

const last = (window, isWanted) => window.revisions.filter(isWanted).at(-1);

function slack({ history, horizon }) {
  if (history.at.length < 2 || history.slack.every((value) => value === null)) return null;
  const words = ["Slack is how long the view waits for late tuples before it answers.", horizon === null ? null : `A window is final after ${length(horizon)}.`,
    "The largest delay of a batch is how late its latest tuple came: a tuple that is later than the slack corrects an answer."];
  return block("Slack and delays", words.filter(Boolean).join(" "),
    card(chart({ label: "Slack and delays over time", at: history.at, format: length, height: 180, series: [
      { label: "slack", values: history.slack, tone: "--accent" },
      { label: "largest delay of a batch", values: history.delay, tone: "--warn", points: true }] })));
}

const PROMISED = [
  { label: "window, UTC", cell: (window) => span(window.start, window.end) },
  { label: "state", cell: (window) => badge(window.state) },
  { label: "first answer", kind: "number", cell: (window) => number(window.revisions[0]?.value) },
  { label: "newest answer", kind: "number", cell: (window) => number(window.revisions.at(-1)?.value) },
  { label: "first was off by", kind: "number", cell: (window) => percent(off(window)) },
  { label: "answers", kind: "number", cell: (window) => short(window.revisions.length) },
  { label: "coverage", kind: "number", cell: (window) => percent(window.coverage), isVoid: (window) => window.coverage === null },
  { label: "slack", kind: "number", cell: (window) => number(window.revisions[0]?.slack, length) },
];

const TIMED = [PROMISED[0], { label: "value", kind: "number", cell: (window) => number(window.revisions[0]?.value) }];

function off({ revisions }) {
  const [first, newest] = [revisions[0]?.value, revisions.at(-1)?.value];
  return revisions.length < 2 || typeof first !== "number" || typeof newest !== "number" || newest === 0 ? null : Math.abs(first - newest) / Math.abs(newest);
}
