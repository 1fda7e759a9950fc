// The views that have rows, to choose one.
import { ask, named } from "../api.js";
import { h } from "../dom.js";
import { number, rate } from "../format.js";
import { search } from "../components/fields.js";
import { flush, heading } from "../components/section.js";
import { empty } from "../components/states.js";
import { pager, table } from "../components/table.js";

const LIMIT = 50;

export const section = "rows";
export const title = () => "Rows";
export const load = ({ query: { search: text, offset } }) => ask("/api/views", { search: text, sort: "rows", order: "desc", offset, limit: LIMIT });

export const view = ({ views, found }, { query, choose }) => [
  heading("Rows", h("p", { class: "muted" }, "The published results. Choose a view to read, search and download its rows.")),
  h("div", { class: "tools", role: "search" }, search("Search names and texts", query.search, (text) => choose({ search: text, offset: "" }))),
  flush(views.length ? table("Views with their rows", COLUMNS, views, (each) => each.name) : empty("No views", "A view appears here when the run has declared it.")),
  pager({ offset: Number(query.offset ?? 0), limit: LIMIT, found, noun: "views", choose }),
];

const COLUMNS = [
  { label: "view", cell: (each) => h("a", { class: "clip", href: named("/rows", each.name), title: each.name }, each.name) },
  { label: "rows", kind: "number", cell: (each) => number(each.rows) },
  { label: "rate", kind: "number", cell: (each) => number(each.rate, rate), isVoid: (each) => each.rate === null },
  { label: "kind", cell: (each) => each.kind },
  { label: "text", kind: "text", cell: (each) => h("span", { class: "clip" }, each.text) },
];
