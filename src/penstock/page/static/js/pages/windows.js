// All views with windows: what they promise, whether they keep it, how long they wait.
import { ask, named } from "../api.js";
import { h } from "../dom.js";
import { event, length, number, percent, short } from "../format.js";
import { badge } from "../components/badge.js";
import { choice, search } from "../components/fields.js";
import { flush, heading } from "../components/section.js";
import { empty } from "../components/states.js";
import { pager, table } from "../components/table.js";
import { TERMS } from "../glossary.js";
import { asked, found, kept } from "./promises.js";

const LIMIT = 25;
const ORDERS = { name: (a, b) => a.name.localeCompare(b.name), within: by((each) => each.within, 1), slack: by((each) => each.slack, -1), corrected: by((each) => each.corrected, -1) };
const SORTS = [["name", "name"], ["within", "least within the bound"], ["slack", "longest slack"], ["corrected", "most corrected"]];

export const section = "windows";
export const title = () => "Windows";
export const load = () => ask("/api/windows");

export const view = ({ views }, { query, choose }) => {
  if (!views.length)
    return [heading("Windows"), flush(empty("No view with windows", "A view that groups by window(...) answers early, corrects, and ends with a final value. Add one to the script to see it here."))];
  const found = views.filter((each) => !query.search || each.name.toLowerCase().includes(query.search.toLowerCase())).sort(ORDERS[query.sort] ?? ORDERS.name);
  const offset = Number(query.offset ?? 0);
  return [
    heading("Windows", h("p", { class: "muted" }, "Views that answer early, correct their answers, and end with a final value.")),
    views.length > 5
      ? h("div", { class: "tools", role: "search" }, search("Search names", query.search, (text) => choose({ search: text, offset: "" })), choice("Sort by", SORTS, query.sort ?? "name", (sort) => choose({ sort, offset: "" })))
      : null,
    flush(table("Views with windows", COLUMNS, found.slice(offset, offset + LIMIT), (each) => each.name)),
    found.length > LIMIT ? pager({ offset, limit: LIMIT, found: found.length, noun: "views", choose }) : null,
  ];
};

/** Whether a view has deadlines: it answers each window once. */
const isTimed = (each) => each.kind === "deadline";

const COLUMNS = [
  { label: "view", cell: (each) => [h("a", { class: "clip", href: named("/windows", each.name), title: each.name }, each.name), h("span", { class: "under" }, each.stream)] },
  { label: "state", cell: (each) => badge(each.state) },
  { label: "promise", kind: "wide", about: TERMS.promise, cell: (each) => promise(each), isVoid: (each) => !each.bound },
  { label: "answered up to, UTC", kind: "number", about: "The newest window that has an answer begins at most then.", cell: (each) => event(each.reached), isVoid: (each) => each.reached === null },
  { label: "newest slack", about: TERMS.slack, kind: "number", cell: (each) => number(each.slack, length), isVoid: (each) => each.slack === null },
  { label: "rows", kind: "number", about: "One for each window and key", cell: (each) => number(each.rows) },
  { label: "windows", about: `Early: ${TERMS.early}. Corrected: ${TERMS.corrected}. Final: ${TERMS.final}.`, cell: (each) => counts(each), isVoid: isTimed },
];

/** How many windows were answered early, corrected (before they were final, and after) and final. */
const counts = (each) =>
  [["early", each.early], ["corrected", each.corrected + each.final_corrected], ["final", each.final]].map(([what, count]) =>
    h("span", { class: "under count" }, `${short(count)} ${what}`));

const promise = (each) =>
  each.bound
    ? [each.judged === null ? null : h("span", null, `${percent(each.within)} `), kept(each), each.judged === null ? null : h("span", { class: "under" }, found(each.judged)), h("span", { class: "under" }, "asked for: ", asked(each.bound))]
    : "no bound";

function by(figure, direction) {
  const known = (each) => figure(each) ?? Infinity * direction;
  return (a, b) => direction * (known(a) - known(b)) || a.name.localeCompare(b.name);
}
