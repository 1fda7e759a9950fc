// The records of one stream that were set aside.
import { ask, named } from "../api.js";
import { h } from "../dom.js";
import { counted } from "../format.js";
import { choice } from "../components/fields.js";
import { crumbs, flush, heading } from "../components/section.js";
import { empty } from "../components/states.js";

const LIMIT = 100;

export const section = "quarantine";
export const title = (name) => `Quarantine of ${name.slice(0, 80)}`;

export async function load({ name, query: { reason } }) {
  const [all, found] = await Promise.all([ask("/api/quarantine"), ask(named("/api/quarantine", name), { reason, limit: LIMIT })]);
  return { reasons: all.streams.find((stream) => stream.name === name)?.reasons ?? [], records: found.records };
}

export const view = ({ reasons, records }, { name, query, choose }) => [
  h("div", { class: "top" }, crumbs("quarantine", "Quarantine"), heading(name)),
  h("div", { class: "tools" },
    choice("Reason", [["", "every reason"], ...reasons.map(({ reason, count }) => [reason, `${reason} (${count.toLocaleString("en-US")})`])], query.reason, (reason) => choose({ reason }))),
  flush(records.length ? h("ol", { class: "records" }, records.map((each, place) => record(each, query.reason ? null : place + 1))) : empty("No record in quarantine", "All records of this stream could be read.")),
  records.length === LIMIT ? h("p", { class: "muted" }, `The newest ${counted(LIMIT, "record")}.`) : null,
];

const record = ({ batch, reason, origin, record: text }, place) =>
  h("li", null, h("p", null, h("strong", null, reason)), h("p", { class: "muted small" }, place ? `record ${place}, ` : null, `batch ${batch}, from ${origin}`), text === null ? null : h("pre", { class: "sql", tabindex: "0" }, text));
