// All views, 100,000 too: the server searches, sorts and pages.
import { ask, named } from "../api.js";
import { h } from "../dom.js";
import { length, number, rate } from "../format.js";
import { badge } from "../components/badge.js";
import { choice, search } from "../components/fields.js";
import { flush, heading } from "../components/section.js";
import { empty } from "../components/states.js";
import { pager, table } from "../components/table.js";

const LIMIT = 50;
const KINDS = [["", "every kind"], ["selection", "selections"], ["windows", "window views"], ["running", "running views"], ["join", "joins"], ["deadline", "deadline views"], ["refreshed", "refreshed views"], ["union", "UNION ALL views"]];
const ONLY = [["", "all"], ["never", "never matched"], ["failing", "failing"], ["errors", "with errors"]];
const SORTS = [["rows", "rows"], ["rate", "rate"], ["errors", "errors"], ["lag", "lag"], ["name", "name"]];

export const section = "queries";
export const title = () => "Queries";

export const load = ({ query: { search: text, sort, order, kind, only, offset } }) =>
  ask("/api/views", { search: text, sort: sort ?? "rows", order: order ?? (sort === "name" ? "asc" : "desc"), kind, only, offset, limit: LIMIT });

export const view = ({ views, total, found }, { query, choose }) => [
  heading("Queries", h("p", { class: "muted" }, found === total ? `All ${total.toLocaleString("en-US")} views of the run.` : `${found.toLocaleString("en-US")} of ${total.toLocaleString("en-US")} views.`)),
  h("div", { class: "tools", role: "search" },
    search("Search names and texts", query.search, (text) => choose({ search: text, offset: "" })),
    choice("Kind", KINDS, query.kind, (kind) => choose({ kind, offset: "" })),
    choice("Show", ONLY, query.only, (only) => choose({ only, offset: "" })),
    choice("Sort by", SORTS, query.sort ?? "rows", (sort) => choose({ sort, order: "", offset: "" })),
    choice("Order", [["desc", "largest first"], ["asc", "smallest first"]], query.order ?? (query.sort === "name" ? "asc" : "desc"), (order) => choose({ order, offset: "" }))),
  views.length ? flush(table("Queries", COLUMNS, views, (each) => each.name)) : flush(nothing(total)),
  pager({ offset: Number(query.offset ?? 0), limit: LIMIT, found, noun: "views", choose }),
];

const nothing = (total) =>
  total
    ? empty("No view matches", "Change the search or the filters above.")
    : empty("No views yet", "Each CREATE VIEW of the script is a view. Penstock lists it when the run has declared it.");

const COLUMNS = [
  { label: "name", cell: (each) => h("a", { class: "clip", href: named("/queries", each.name), title: each.name }, each.name) },
  { label: "state", cell: (each) => badge(each.state) },
  { label: "kind", cell: (each) => each.kind },
  { label: "rows", kind: "number", cell: (each) => number(each.rows) },
  { label: "rate", kind: "number", cell: (each) => number(each.rate, rate), isVoid: (each) => each.rate === null },
  { label: "lag", kind: "number", cell: (each) => number(each.lag, length), isVoid: (each) => each.lag === null },
  { label: "promise", cell: (each) => promise(each.promise), isVoid: (each) => !promise(each.promise) },
  { label: "errors", kind: "number", cell: (each) => h("span", { class: each.errors ? "tone-bad" : null }, number(each.errors)) },
  { label: "text", kind: "text", cell: (each) => h("span", { class: "clip" }, each.text) },
];

const promise = (text) => (text && text !== "-" ? text : null);
