// The rows of one view: paged, searched, and as a file.
import { address, ask, named } from "../api.js";
import { h } from "../dom.js";
import { choice, search } from "../components/fields.js";
import { crumbs, flush, heading } from "../components/section.js";
import { empty } from "../components/states.js";
import { grid } from "../components/table.js";

const LIMIT = 100;
const FORMATS = ["csv", "json", "parquet"];

export const section = "rows";
export const title = (name) => `Rows of ${name.slice(0, 80)}`;
export const load = ({ name, query: { search: text, order, at, back } }) =>
  ask(named("/api/rows", name), { search: text, order: order ?? "newest", at, back, limit: LIMIT });

export const view = (found, { name, query, choose }) => [
  h("div", { class: "top" }, crumbs("rows", "Rows"), heading(name, h("a", { class: "button", href: named("/queries", name) }, "Its text and rate"))),
  h("div", { class: "tools", role: "search" },
    search("Search all columns", query.search, (text) => choose({ search: text, ...START })),
    choice("Order", [["newest", "newest first"], ["oldest", "oldest first"]], query.order ?? "newest", (order) => choose({ order, ...START })),
    h("div", { class: "downloads", role: "group", "aria-label": "Download" }, FORMATS.map((format) =>
      h("a", { class: "button", download: "", href: address(`${named("/api/rows", name)}/download`, { format, search: query.search }), "aria-label": `Download as ${format}` }, format.toUpperCase())))),
  found.is_whole ? null : h("p", { class: "note" }, "The page looks at the newest 1,000,000 revisions of windows. The view has older ones."),
  partial(found, query, choose),
  flush(found.rows.length
    ? grid(`Rows of ${name.slice(0, 80)}`, found.columns, found.rows)
    : empty("No rows", query.search ? "No row here contains this text." : found.stored ? "No row here is one of this view." : "Rows appear here when the view has published some.")),
  pager(found, query, choose),
];

const START = { at: "", back: "" };
const shown = (number) => number.toLocaleString("en-US");

/** How many stored rows come before a place in the order of the page. */
const rank = (place, { stored }, { order }) => (order === "oldest" ? place : stored - place);

/** Whether rows may follow. */
const goesOn = (found, query) => rank(found.end, found, query) < found.stored;

/** Say how far the page looked, where it found less than a page. */
function partial(found, query, choose) {
  if (found.rows.length >= LIMIT || !goesOn(found, query)) return null;
  const looked = Math.abs(found.end - found.begin);
  return h("div", { class: "note", role: "status" },
    `The page looked at ${shown(looked)} of ${shown(found.stored)} stored rows and found ${shown(found.rows.length)}. `,
    h("button", { class: "button", type: "button", on: { click: () => choose({ at: found.end, back: "" }) } }, "Look further"));
}

function pager(found, query, choose) {
  const [first, last] = [rank(found.begin, found, query), rank(found.end, found, query)];
  const part = last - first === found.rows.length ? "" : `${shown(found.rows.length)} rows among `;
  const place = last > first ? `${part}${shown(first + 1)} to ${shown(last)} of ${shown(found.stored)} ${part ? "stored rows" : "rows"}` : "No rows";
  return h("div", { class: "pager" },
    h("p", { class: "muted", role: "status" }, place),
    h("div", null,
      h("button", { class: "button", type: "button", disabled: first <= 0, on: { click: () => choose(START) } }, "First"),
      h("button", { class: "button", type: "button", disabled: first <= 0, on: { click: () => choose({ at: found.begin, back: "1" }) } }, "Previous"),
      h("button", { class: "button", type: "button", disabled: !goesOn(found, query), on: { click: () => choose({ at: found.end, back: "" }) } }, "Next"),
      h("button", { class: "button", type: "button", disabled: !goesOn(found, query), on: { click: () => choose({ at: query.order === "oldest" ? found.stored : 0, back: "1" }) } }, "Last")));
}
