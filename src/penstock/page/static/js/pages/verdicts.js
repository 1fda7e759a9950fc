// The answers of Spark: the verdicts on a tuple, and what a text matches in the stored tuples.
import { h } from "../dom.js";
import { counted, percent, short } from "../format.js";
import { badge } from "../components/badge.js";
import { grid } from "../components/table.js";

const TONES = { true: "good", false: "bad", NULL: "warn", error: "bad" };
const MATCHES = { selection: "The tuple matches.", join: "The tuple takes part in the join." };
//: lines of a list, and characters of a value, that are shown
const MOST = 24, LONGEST = 300;

/** What Spark makes of one tuple; see `Why` of penstock.provenance. */
export const verdicts = (why) => [
  h("p", null, why.set_aside ? badge("set aside", "warn") : badge(why.verdict, TONES[why.verdict]), " ", headline(why)),
  line("The tuple", Object.keys(why.values).length ? values(why.values) : null),
  line("Not given, so NULL", why.missing.join(", ")),
  line(`Not a column of ${why.relation}, ignored`, cut(why.unknown.join(", "))),
  why.conjuncts.length ? h("ol", { class: "parts" }, why.conjuncts.map(({ view, judged: each }) => judged(each, view === why.view ? null : view))) : null,
  why.windows.length ? h("ul", { class: "parts" }, why.windows.map(fate)) : null,
  why.partners.map(({ input, count, read, rows, reason }) => [
    line(`Partners from ${input}`, count === null ? reason : `${short(count)} of ${counted(read, "tuple")}`),
    rows.map((row) => h("p", { class: "muted small" }, values(row)))]),
  why.joined === null ? null : line("Joined rows in the files of the tables", short(why.joined)),
  why.notes.map((note) => h("p", { class: "muted" }, note)),
];

/** What a text matches in the stored tuples; see `Backtest` of penstock.provenance. */
export const backtest = (found) => [
  h("p", null, h("strong", null, found.by === "window" ? counted(found.matches, "row") : matches(found.matches)), " in ", read(found)),
  found.errors ? h("p", { class: "tone-bad" }, `${counted(found.errors, "tuple")} no match: the condition raises an error.`) : null,
  found.set_aside ? h("p", { class: "muted" }, `${counted(found.set_aside, "record")} set aside: they do not fit the columns.`) : null,
  found.notes.map((note) => h("p", { class: "muted" }, note)),
  found.parts.length > 1 ? parts(found) : null,
  counts(found),
  found.rows.length ? grid("Rows of the draft", Object.keys(found.rows[0]).map((name) => ({ name, type: "" })), found.rows.map((row) => Object.values(row).map(text))) : null,
];

/** How many tuples each part of a clause lets through by itself. */
export const parts = (found) => {
  const all = Object.values(found.tuples).reduce((total, count) => total + count, 0);
  return [
    h("p", { class: "muted" }, "Tuples that each part lets through by itself, of ", read(found), ":"),
    h("dl", { class: "shares" }, found.parts.map(({ text: condition, tuples }) => share(h("code", null, condition), tuples, all))),
  ];
};

const share = (label, count, all) =>
  h("div", null, h("dt", null, label), h("dd", null, h("span", { class: "bar", "aria-hidden": "true", style: { "--share": all ? count / all : 0 } }), `${short(count)} (${percent(all ? count / all : null)})`));

function counts({ counts: all, by, matches: total }) {
  const found = all.filter((each) => each.matches);
  if (!found.length) return null;
  const last = found.slice(-MOST);
  return [
    h("p", { class: "muted" }, `By ${by}${found.length > MOST ? `, the newest ${MOST} of ${found.length.toLocaleString("en-US")}` : ""}:`),
    h("dl", { class: "shares hours" }, last.map((each) => share(each.of || "unknown", each.matches, total))),
  ];
}

const matches = (count) => (count === 1 ? "1 match" : `${count.toLocaleString("en-US")} matches`);

const read = ({ tuples, over }) => Object.entries(tuples).map(([name, count]) => `${counted(count, "tuple")} of ${name}${over[name] ? ` (${over[name]})` : ""}`).join(", ");

function headline({ set_aside: reason, verdict, kind }) {
  if (reason) return `Penstock sets the record aside: ${reason}`;
  return verdict === "true" ? (MATCHES[kind] ?? "The tuple is in the windows below.") : "The tuple does not match.";
}

const judged = ({ verdict, text: condition, values: compared, error, parts: inner }, owner) =>
  h("li", null, h("p", null, badge(verdict, TONES[verdict]), " ", h("code", null, condition), owner ? h("span", { class: "muted" }, ` of view ${owner}`) : null),
    compared.length ? h("p", { class: "muted small" }, compared.map((each) => `${each.text}${each.error === null ? ` = ${text(each.value)}` : `: ${each.error}`}`).join(", ")) : null,
    error && compared.every((each) => each.error !== error) ? h("p", { class: "tone-bad small" }, error) : null,
    inner.length ? h("ul", { class: "parts inner" }, inner.map((each) => judged(each, null))) : null);

const fate = ({ start, end, keys, fate: became, reason, revisions }) =>
  h("li", null, h("p", null, `Window ${start} to ${end}${Object.keys(keys).length ? `, ${values(keys)}` : ""} `, became === "unknown" ? null : badge(became), reason ? ` ${reason}` : null),
    revisions.map((each) => h("p", { class: "muted small" }, `revision ${each.revision}, ${each.is_final ? "final" : "not final"}${each.coverage === null ? "" : `, coverage ${percent(each.coverage)}`}, ${each.op}: ${values(each.row)}`)));

const line = (label, told) => (told ? h("p", null, h("span", { class: "muted" }, `${label}: `), told) : null);
const values = (all) => Object.entries(all).map(([name, value]) => `${name} = ${text(value)}`).join(", ");
const text = (value) => cut(value === null ? "NULL" : typeof value === "object" ? JSON.stringify(value) : String(value));
const cut = (told) => (told.length > LONGEST ? `${told.slice(0, LONGEST - 1)}…` : told);
