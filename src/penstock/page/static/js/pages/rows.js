// The rows of one view: paged, searched, and as a file.
import { address, ask, named } from "../api.js";
import { h } from "../dom.js";
import { choice, search } from "../components/fields.js";
import { crumbs, flush, heading } from "../components/section.js";
import { empty } from "../components/states.js";
import { grid, pager } from "../components/table.js";

const LIMIT = 100;
const FORMATS = ["csv", "json", "parquet"];

export const section = "rows";
export const title = (name) => `Rows of ${name.slice(0, 80)}`;
export const load = ({ name, query: { search: text, order, offset } }) =>
  ask(named("/api/rows", name), { search: text, order: order ?? "newest", offset, limit: LIMIT });

export const view = ({ columns, rows, count, looked, is_whole: isWhole }, { name, query, choose }) => [
  h("div", { class: "top" }, crumbs("rows", "Rows"), heading(name, h("a", { class: "button", href: named("/queries", name) }, "Its text and rate"))),
  h("div", { class: "tools", role: "search" },
    search("Search all columns", query.search, (text) => choose({ search: text, offset: "" })),
    choice("Order", [["newest", "newest first"], ["oldest", "oldest first"]], query.order ?? "newest", (order) => choose({ order, offset: "" })),
    h("div", { class: "downloads", role: "group", "aria-label": "Download" }, FORMATS.map((format) =>
      h("a", { class: "button", download: "", href: address(`${named("/api/rows", name)}/download`, { format, search: query.search }), "aria-label": `Download as ${format}` }, format.toUpperCase())))),
  isWhole ? null : h("p", { class: "note" }, `The page looked at ${looked.toLocaleString("en-US")} rows in this order. The view has more.`),
  flush(rows.length
    ? grid(`Rows of ${name.slice(0, 80)}`, columns, rows)
    : empty("No rows", query.search ? "No row contains this text." : isWhole ? "Rows appear here when the view has published some." : "These rows are beyond those that the page looks at. Choose the other order.")),
  pager({ offset: Number(query.offset ?? 0), limit: LIMIT, found: count, noun: "rows", choose }),
];
