// Questions that start Spark: why a tuple is no row, what a draft would match; and the commands that ask the same.
import { ask, named } from "../api.js";
import { h, render } from "../dom.js";
import { backtest, parts, verdicts } from "./verdicts.js";

const SPARK = { "penstock-ask": "1" };
//: types whose values a record has as the page shows them
const PLAIN = /^(u?int|double|float|string|bool)/;
const WAITING = "Spark starts and answers, which takes 10 s or more.";

/** A part of the page with a state of its own, which remains when the page is rendered anew. content: (view, state, draw) => nodes. */
const own = (kind, view, content) =>
  h("div", { class: "asking", widget: { kind: `${kind} ${view.name}`, data: view, create(node, first) {
    let known = first;
    const state = {};
    const draw = () => render(node, content(known, state, draw));
    draw();
    return { update(next) { known = next; draw(); }, close() {} };
  } } });

/** A tuple to begin with: the columns of the stream, with values of the view's newest row where it has them. */
function example({ tuple }, { columns = [], rows = [] }) {
  const known = Object.fromEntries(columns.map(({ name: column, type }, at) => [column, PLAIN.test(type) ? rows[0]?.[at] ?? null : null]));
  return JSON.stringify(Object.fromEntries(tuple.map((column) => [column, known[column] ?? null])));
}

/** Why a tuple is no row of a view. rows: its newest rows. */
export const why = (view, rows) => own("why", view, (found, state, draw) => {
  state.row ??= example(found, rows);
  const record = { ...(state.record ? { quarantined: state.record } : { row: state.row }), input: state.input };
  return [
    h("label", { class: "field" }, h("span", null, "The tuple as a JSON object"),
      h("textarea", { rows: "4", spellcheck: "false", value: state.row, on: { input: (event) => { state.row = event.target.value; draw(); } } })),
    h("label", { class: "field" }, h("span", null, "Or the number of a record in quarantine, 1 the newest"),
      h("input", { type: "number", min: "1", step: "1", on: { input: (event) => { state.record = event.target.value; draw(); } } })),
    found.kind === "join" ? h("label", { class: "field" }, h("span", null, "The input that the tuple is of; empty: the one whose columns fit best"),
      h("input", { type: "text", autocomplete: "off", on: { input: (event) => { state.input = event.target.value; draw(); } } })) : null,
    button("Ask", found, state, () => question(state, draw, "why", found, record)),
    command(["penstock why", script(found), state.record ? `--quarantined ${word(state.record)}` : `--row ${word(state.row)}`, state.input ? `--input ${word(state.input)}` : null, `--output ${word(found.output)}`, name(found)]),
    outcome(state, verdicts),
  ];
});

/** What a draft would have matched. */
export const draft = (view) => own("draft", view, (found, state, draw) => {
  state.sql ??= found.text;
  return [
    h("label", { class: "field" }, h("span", null, "A SELECT from a stream or a view"),
      h("textarea", { rows: "6", spellcheck: "false", value: state.sql, on: { input: (event) => { state.sql = event.target.value; draw(); } } })),
    h("label", { class: "field" }, h("span", null, "Earliest event time, such as 2026-01-31 12:00; empty for all tuples"),
      h("input", { type: "text", autocomplete: "off", on: { input: (event) => { state.since = event.target.value; draw(); } } })),
    button("Try", found, state, () => question(state, draw, "try", found, { sql: state.sql, since: state.since })),
    command(["penstock try", script(found), `--sql ${word(state.sql)}`, state.since ? `--since ${word(state.since)}` : null]),
    outcome(state, backtest),
  ];
});

/** How many tuples each part of a clause lets through. */
export const shares = (view) => own("shares", view, (found, state, draw) => [
  h("p", { class: "muted" }, "Spark can count how many of the stored tuples each part lets through."),
  button("Count", found, state, () => question(state, draw, "try", found, {})),
  command(["penstock try", script(found), name(found)]),
  outcome(state, parts),
]);

async function question(state, draw, kind, view, query) {
  Object.assign(state, { isAsked: true, error: null, answer: null });
  draw();
  try {
    state.answer = await ask(`${named("/api/views", view.name)}/${kind}`, query, SPARK);
  } catch (error) {
    state.error = error.message;
  }
  state.isAsked = false;
  draw();
}

const button = (label, view, state, ask) =>
  view.script === null
    ? h("p", { class: "muted" }, "This page knows no script. Start it with --script SCRIPT to ask here, or type the command.")
    : h("p", { class: "tools" }, h("button", { class: "button", type: "button", disabled: Boolean(state.isAsked), on: { click: ask } }, label), h("span", { class: "muted", role: "status" }, state.isAsked ? WAITING : ""));

const outcome = (state, shown) => {
  if (state.error) return h("pre", { class: "note bad reason", role: "alert", tabindex: "0" }, state.error);
  return state.answer ? h("div", { class: "answer" }, shown(state.answer)) : null;
};

const command = (words) => h("details", null, h("summary", null, "The same on the command line"), h("pre", { class: "sql", tabindex: "0" }, h("code", null, words.filter(Boolean).join(" "))));

const script = (view) => view.script ?? "SCRIPT";
const name = (view) => `${view.name.startsWith("-") ? "-- " : ""}${word(view.name)}`;

/** A word as a shell takes it. */
const word = (text) => (/^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", `'"'"'`)}'`);
