// What the run does now: one sentence, what is wrong, then its streams, its lanes, its sinks and what happened.
import { ask, named } from "../api.js";
import { h } from "../dom.js";
import { event, length, number, rate, since } from "../format.js";
import { badge } from "../components/badge.js";
import { spark } from "../components/chart.js";
import { block, card, facts, flush, heading } from "../components/section.js";
import { empty } from "../components/states.js";
import { table } from "../components/table.js";
import { TERMS } from "../glossary.js";
import { standing, tone } from "./promises.js";
import { isBeginning, sentence } from "./sentence.js";

//: streams and lanes on one screen
const MOST = 40;

export const section = "";
export const title = () => "Overview";
export const load = ({ overview }) => overview ?? ask("/api/overview");

export const view = (overview, { now }) => [
  heading(sentence(overview), runLine(overview.run, now)),
  problems(overview),
  overview.deadlines.views ? h("p", { class: tone(overview.deadlines) }, h("a", { href: "/deadlines" }, "Deadlines"), `: ${standing(overview.deadlines)}`) : null,
  card(facts(totals(overview), "large")),
  block("Streams", "What arrives, and how fast Penstock answers it.", flush(streams(overview.streams))),
  block("Lanes", `${TERMS.lane}. A cut: ${TERMS.cut.toLowerCase()}.`, flush(lanes(overview))),
  overview.sinks.length ? block("Sinks", `${TERMS.sink}.`, flush([table("Sinks", SINKS, overview.sinks.slice(0, MOST), (sink) => sink.name), more(overview.sinks.length, "sinks")])) : null,
  block("What happened", null, flush(news(overview.news, now))),
];

const runLine = (run, now) =>
  h("p", { class: "run" }, badge(run.state),
    run.started ? h("span", null, "started ", since(run.started, now)) : null,
    h("span", { class: "clip", title: run.output }, run.output.split("/").slice(-2).join("/")),
    run.pid && run.state === "running" ? h("span", null, `process ${run.pid}`) : null);

function problems({ problems: found, run }) {
  const reasons = run.reason && !found.includes(run.reason) ? [run.reason, ...found] : found;
  if (!reasons.length) return h("p", { class: "note fine" }, "Nothing is wrong.");
  return block(reasons.length === 1 ? "1 problem" : `${reasons.length} problems`, null,
    h("ul", { class: "problems" }, reasons.map((reason) => h("li", { class: "note bad" }, reason))));
}

const totals = ({ totals: all, streams: found, lanes: others }) => [
  ["tuples read", number(all.tuples)],
  ...(found.some((stream) => stream.selections)
    ? [["tuples matched", number(all.matched)], ["matches", number(all.pairs)]]
    : [["rows published", number(others.reduce((total, lane) => total + (lane.rows ?? 0), 0))]]),
  ["views", number(all.views)],
  ["in quarantine", h("a", { href: "/quarantine", class: all.quarantined ? "tone-warn" : "plain" }, number(all.quarantined))],
  ["errors", h("a", { href: "/queries?only=errors", class: all.errors ? "tone-bad" : "plain" }, number(all.errors))],
];

function streams(found) {
  if (!found.length) return empty("No stream yet", "Each CREATE TABLE ... USING of the script is a stream. Penstock lists it when the run has started it.");
  return [table("Streams", STREAMS, found.slice(0, MOST), (stream) => stream.name), more(found.length, "streams")];
}

const STREAMS = [
  { label: "stream", cell: (stream) => [h("span", { class: "clip", title: stream.name }, stream.name), stream.place ? h("span", { class: "under clip", title: stream.place }, stream.place) : null] },
  { label: "state", cell: (stream) => badge(stream.state) },
  { label: "arrives", kind: "number", about: "Tuples that arrive in a second: those of the last minute, and what the backlog grew by. Unknown where the source does not count tuples.", cell: (stream) => number(stream.arrives, rate), isVoid: (stream) => stream.arrives === null },
  { label: "answers", about: "Tuples that Penstock answers in a second of work. Above the rate of arrival, Penstock keeps up.", cell: (stream) => h("span", { class: "trend" }, spark("Rate", stream.history.at, stream.history.rate, rate), h("span", null, number(stream.rate, rate))) },
  { label: "answered", kind: "number", about: "Tuples answered in a second of the run's last minute, pauses between batches included.", cell: (stream) => number(stream.answered, rate), isVoid: (stream) => stream.answered === null || stream.arrives !== null },
  { label: "backlog", kind: "number", about: TERMS.backlog, cell: (stream) => stream.backlog ?? "–", isVoid: (stream) => stream.backlog === null },
  { label: "lag", kind: "number", about: "How long the oldest unanswered tuple waits, or what the newest batch took.", cell: (stream) => number(stream.lag, length), isVoid: (stream) => stream.lag === null },
  { label: "quarantine", kind: "number", about: TERMS.quarantine, cell: (stream) => (stream.quarantined ? h("a", { href: named("/quarantine", stream.name) }, number(stream.quarantined)) : "0") },
  { label: "errors", kind: "number", cell: (stream) => h("span", { class: stream.errors ? "tone-bad" : null }, number(stream.errors)) },
  { label: "tuples", kind: "number", about: TERMS.tuple, cell: (stream) => number(stream.tuples) },
  { label: "a batch takes", kind: "number", about: TERMS.batch, cell: (stream) => number(latest(stream.history.seconds), length) },
  { label: "newest event, UTC", kind: "number", cell: (stream) => event(stream.newest_event) },
];

function lanes(overview) {
  const found = overview.lanes;
  if (!found.length && isBeginning(overview)) return empty("No lanes yet", "The run is starting. Penstock lists the lanes of windows, joins and deadlines when it has started them.");
  if (!found.length) return empty("No lanes", "A view with windows, a join or a deadline runs in a lane of its own. This run has rules alone.");
  return [table("Lanes", LANES, found.slice(0, MOST), (lane) => lane.name), more(found.length, "lanes")];
}

const LANES = [
  { label: "lane", about: TERMS.lane, cell: (lane) => [h("span", { class: "clip", title: lane.name }, lane.name), lane.trouble ? h("span", { class: "under tone-bad" }, lane.trouble) : h("span", { class: "under" }, lane.kind)] },
  { label: "state", cell: (lane) => badge(lane.state) },
  { label: "seconds a cut", about: TERMS.cut, cell: (lane) => h("span", { class: "trend" }, spark("Seconds of a cut", lane.history.at, lane.history.seconds, length), h("span", null, number(latest(lane.history.seconds), length))) },
  { label: "behind", kind: "number", cell: (lane) => number(lane.behind, length), isVoid: (lane) => lane.behind === null },
  { label: "rows", kind: "number", cell: (lane) => number(lane.rows) },
  { label: "views", kind: "wide", cell: (lane) => h("span", { class: "names" }, lane.views.slice(0, 4).map((name) => h("a", { class: "clip", href: named("/queries", name), title: name }, name)), lane.views.length > 4 ? h("span", { class: "muted" }, `and ${lane.views.length - 4} more`) : null) },
];

const SINKS = [
  { label: "sink", about: TERMS.sink, cell: (sink) => [h("span", { class: "clip", title: sink.name }, sink.name), h("span", { class: `under${sink.error ? " tone-bad" : ""}` }, sink.error ?? [sink.kind, sink.promise].filter(Boolean).join(", "))] },
  { label: "state", cell: (sink) => badge(sink.state) },
  { label: "view", kind: "wide", cell: (sink) => h("a", { class: "clip", href: named("/queries", sink.view), title: sink.view }, sink.view) },
  { label: "batches behind", kind: "number", about: "Published batches that the sink has not delivered.", cell: (sink) => number(sink.backlog) },
  { label: "behind", kind: "number", about: "How long ago the oldest of these batches was published.", cell: (sink) => number(sink.behind, length), isVoid: (sink) => sink.behind === null },
  { label: "rows", kind: "number", about: "Rows that this run has delivered. Unknown where Spark delivers them.", cell: (sink) => number(sink.rows), isVoid: (sink) => sink.rows === null },
  { label: "deliveries", kind: "number", about: "Deliveries since the sink began.", cell: (sink) => number(sink.deliveries) },
  { label: "refused", kind: "number", about: "Rows that the server refused permanently.", cell: (sink) => h("span", { class: sink.rejected ? "tone-bad" : null }, number(sink.rejected)), isVoid: (sink) => !sink.rejected },
  { label: "missed", kind: "number", about: "Rows that left the results folder before the sink had them.", cell: (sink) => h("span", { class: "tone-warn" }, number(sink.missed)), isVoid: (sink) => !sink.missed },
];

const more = (count, noun) => (count > MOST ? h("p", { class: "tail muted" }, `and ${count - MOST} more ${noun}`) : null);
const latest = (values) => values.at(-1) ?? null;

const news = (found, now) =>
  found.length
    ? h("ol", { class: "news" }, found.map((each) => h("li", null, h("span", { class: "when" }, since(each.at, now)), h("span", null, each.text, each.count > 1 ? h("strong", null, ` ${each.count.toLocaleString("en-US")} times, this one last`) : null))))
    : empty("Nothing happened yet", "Starts, changed plans, refused views and failures appear here.");
