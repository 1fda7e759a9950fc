// A table that becomes a list of cards on narrow screens.
import { h } from "../dom.js";
import { span } from "../format.js";
import { term } from "./section.js";

const decimals = new Intl.NumberFormat("en-US", { maximumFractionDigits: 6, useGrouping: false });

/**
 * Make a table.
 * all: columns, {label, about: what the label means, cell: (row) => node or text, kind: "number" | "text" | "wide" | undefined, isVoid: (row) => boolean};
 * the first column names the row; a column that is void in all rows is left out. key: (row) => text, which rows keep their element by.
 */
export function table(caption, all, rows, key) {
  const columns = all.filter(({ isVoid }) => !isVoid || !rows.every(isVoid));
  const head = columns.map(({ label, about, kind }) => h("th", { scope: "col", role: "columnheader", class: kind }, term(label, about)));
  return h("table", { class: "table cards", role: "table" },
    h("caption", { class: "hidden-text" }, caption),
    h("thead", { role: "rowgroup" }, h("tr", { role: "row" }, head)),
    h("tbody", { role: "rowgroup" }, rows.map((row) => h("tr", { role: "row", "data-key": key?.(row) }, columns.map((column, at) => cell(column, row, at))))));
}

function cell({ label, kind, cell: content, isVoid }, row, at) {
  if (at === 0) return h("th", { scope: "row", role: "rowheader" }, content(row));
  return h("td", { role: "cell", class: [kind, isVoid?.(row) ? "void" : ""].filter(Boolean).join(" "), "data-label": label }, content(row));
}

/** Make a table of rows of a view, which scrolls in its own box. columns: {name, type}; rows: lists of cells. */
export const grid = (caption, columns, rows) =>
  h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption },
    h("table", { class: "table" },
      h("caption", { class: "hidden-text" }, caption),
      h("thead", null, h("tr", null, columns.map(({ name, type }) => h("th", { scope: "col", class: numeric(type), title: type }, name)))),
      h("tbody", null, rows.map((row) => h("tr", null, row.map((value, at) => h("td", { class: numeric(columns[at].type), title: value ?? "null" }, shown(value, columns[at].type))))))));

const numeric = (type) => (/^u?int|^float|^double|^decimal/.test(type) ? "number" : null);

/** A cell: numbers with at most six digits behind the point, windows as two instants. */
function shown(value, type) {
  if (value === null) return h("span", { class: "muted" }, "null");
  if (typeof value === "number" && !Number.isInteger(value)) return decimals.format(value);
  if (!type.startsWith("struct<start: timestamp") || typeof value !== "string") return String(value);
  const { start, end } = JSON.parse(value);
  return span(Date.parse(start) / 1000, Date.parse(end) / 1000);
}

/** Make the line below a paged table. */
export function pager({ offset, limit, found, noun, choose }) {
  const move = (to) => () => choose({ offset: to > 0 ? to : "" });
  const last = Math.min(found, offset + limit);
  return h("div", { class: "pager" },
    h("p", { class: "muted", role: "status" }, found ? `${(offset + 1).toLocaleString("en-US")} to ${last.toLocaleString("en-US")} of ${found.toLocaleString("en-US")} ${noun}` : `No ${noun}`),
    h("div", null,
      h("button", { class: "button", type: "button", disabled: offset <= 0, on: { click: move(offset - limit) } }, "Previous"),
      h("button", { class: "button", type: "button", disabled: last >= found, on: { click: move(offset + limit) } }, "Next")));
}
