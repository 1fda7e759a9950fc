// One view: its text, its rows over time, its newest rows, its errors, and what each part of its clause lets through.
import { ask, named } from "../api.js";
import { h } from "../dom.js";
import { length, number, rate, since } from "../format.js";
import { badge } from "../components/badge.js";
import { chart } from "../components/chart.js";
import { block, card, crumbs, facts, flush, heading } from "../components/section.js";
import { sql } from "../components/sql.js";
import { draft, shares, why } from "./asking.js";
import { empty } from "../components/states.js";
import { grid } from "../components/table.js";
import { pace } from "../rates.js";

const NEWEST = 20;

export const section = "queries";
export const title = (name) => name.slice(0, 80);

export async function load({ name }) {
  const [found, rows] = await Promise.all([
    ask(named("/api/views", name)),
    ask(named("/api/rows", name), { limit: NEWEST, order: "newest" }).catch((error) => ({ error: error.message })),
  ]);
  return { found, rows };
}

export const view = ({ found, rows }, { now }) => [
  h("div", { class: "top" }, crumbs("queries", "Queries"),
    heading(found.name, badge(found.dropped ? "dropped" : found.state), other(found))),
  found.error ? h("p", { class: "note bad" }, found.error) : null,
  card(facts([
    ["rows", number(found.rows)],
    ["rate", number(found.rate, rate)],
    ["lag", number(found.lag, length)],
    ["errors", h("span", { class: found.errors ? "tone-bad" : null }, number(found.errors))],
    found.promise && found.promise !== "-" ? ["promise", found.promise] : null,
    ["kind", found.kind],
    ["reads", found.streams.join(", ")],
    ["definition", `number ${found.definition}`],
    found.declared ? ["declared", since(found.declared, now)] : null,
  ])),
  block("Text", null, sql(found.text)),
  found.clause.length ? block("Parts of the clause", "A tuple matches if all of them are true.", card(clause(found.clause), found.clause.length > 1 && found.kind === "selection" && !found.dropped ? shares(found) : null)) : null,
  over(found.history),
  block("Newest rows", null, flush(newest(found, rows))),
  found.dropped ? null : [
    block("Why does a tuple not match?", "Spark judges each part of the conditions for one tuple.", card(why(found, rows))),
    block("Try a draft", "What a text would have matched in the stored tuples. The run does not change.", card(draft(found))),
  ],
];

const other = (found) =>
  found.kind === "windows" || found.kind === "deadline"
    ? h("a", { class: "button", href: named("/windows", found.name) }, "Its windows")
    : null;

const clause = (parts) => h("ol", { class: "parts" }, parts.map((text) => h("li", null, h("code", null, text))));

const over = (found) =>
  found.of === null || found.at.length < 2
    ? block("Rows over time", null, card(history(found)))
    : block(`Matches of all rules of ${found.of} over time`, "Events count the matches of all rules together. The line of one rule begins when somebody opens the page of a live run.", card(history(found)));

function history({ at, rows }) {
  if (at.length < 2) return empty("No history yet", "The line appears when the view has published rows in two batches.");
  return chart({ label: "Rows a second over time", at: at.slice(1), format: rate, series: [{ label: "rows a second", values: pace(at, rows), tone: "--accent" }] });
}

function newest(found, rows) {
  if (rows.error) return h("p", { class: "note" }, rows.error);
  if (!rows.rows.length) return empty("No rows yet", "Rows appear here when a tuple matches the view and its batch is published.");
  return [grid(`Newest rows of ${found.name.slice(0, 80)}`, rows.columns, rows.rows),
    h("p", { class: "tail" }, h("a", { href: named("/rows", found.name) }, "All rows, search and downloads"))];
}
