// The one sentence that says what a run does, whether it keeps up, and whether it lost anything.
import { counted, length, rate, short } from "../format.js";

const BEGINNINGS = {
  running: "Answering", starting: "Starting to answer", ended: "Answered", stopped: "Stopped after answering", failed: "Failed while answering",
  dead: "Died while answering", refused: "Refused to answer", "never started": "Never started to answer",
};
//: a lag beyond this is that of a replay of old data, seconds
const REPLAY = 30 * 86400;
const KEEPS_UP = 60;

export function sentence(overview) {
  const { run, totals, streams, lanes, problems } = overview;
  if (isBeginning(overview)) return beginning(overview);
  const opening = `${BEGINNINGS[run.state] ?? "Answering"} ${subject(totals, streams, lanes)} over ${object(totals, streams)}`;
  if (run.state === "running") return `${opening}: ${pace(streams, lanes)}, ${losses(totals, problems, lanes)}.`;
  return totals.tuples ? `${opening}: ${losses(totals, problems, lanes)}.` : `${opening}.`;
}

/** Whether a run is at work and has read no tuple yet: nothing can be said of its pace. */
export const isBeginning = ({ run, streams }) => run.state === "starting" || (run.state === "running" && !streams.some((stream) => stream.is_read));

function beginning({ totals, streams, lanes }) {
  const isIdle = streams.length && streams.every((stream) => stream.state === "running" && stream.backlog?.startsWith("0 "));
  const views = totals.views || streams.length ? subject(totals, streams, lanes) : "Penstock prepares the streams";
  return `${isIdle ? "Waiting for tuples" : "Starting"}: ${views}, no tuple read ${totals.tuples ? "since this start" : "yet"}.`;
}

function subject(totals, streams, lanes) {
  const rules = sum(streams, "selections");
  const windows = sum(streams, "windows");
  const running = viewsOf(lanes, "running");
  const joins = viewsOf(lanes, "join");
  const deadlines = viewsOf(lanes, "deadlines");
  const refreshed = viewsOf(lanes, "refreshed");
  const unions = viewsOf(lanes, "union");
  const kinds = [[rules, "rule", "rules"], [windows, "window view", "window views"], [running, "running view", "running views"], [joins, "join", "joins"], [deadlines, "view with a deadline", "views with a deadline"], [refreshed, "refreshed view", "refreshed views"], [unions, "UNION ALL view", "UNION ALL views"]];
  const named = kinds.filter(([count]) => count).map(([count, one, many]) => counted(count, one, many));
  return list(named.length ? named : [counted(totals.views, "view")]);
}

const viewsOf = (lanes, kind) => new Set(lanes.filter((lane) => lane.kind === kind).flatMap((lane) => lane.views)).size;
const sum = (all, what) => all.reduce((total, each) => total + (each[what] ?? 0), 0);
const list = (all) => (all.length > 1 ? `${all.slice(0, -1).join(", ")} and ${all.at(-1)}` : all[0]);

const object = (totals, streams) =>
  `${counted(totals.tuples, "tuple")} of ${streams.length === 1 ? streams[0].name.slice(0, 60) : counted(streams.length, "stream")}`;

/** Whether the run keeps up, and by which figures. */
function pace(streams, lanes) {
  const lags = [...streams.map((stream) => stream.lag), ...lanes.map((lane) => lane.behind)].filter((lag) => lag !== null && lag < REPLAY);
  const behind = lags.length ? Math.max(...lags) : null;
  const [answers, arrives] = [total(streams, "rate"), total(streams, "arrives")];
  const waits = streams.find((stream) => stream.backlog && !stream.backlog.startsWith("0 "));
  const figures = [
    answers === null ? null : `answers ${rate(answers)}`,
    arrives === null ? null : `arrives ${rate(arrives)}`,
    waits ? `${waits.backlog} wait` : null,
    behind === null ? null : `${length(behind)} behind`,
  ].filter(Boolean).join(", ");
  if ((behind ?? 0) >= KEEPS_UP || (arrives !== null && answers !== null && arrives > answers && waits)) return `falls behind: ${figures}`;
  if (arrives !== null) return `keeps up: ${figures}`;
  // a source that counts nothing gives tuples when it is asked
  const answered = total(streams, "answered");
  return waits || answered === null ? figures : `answers ${rate(answered)}, as fast as the source gives them${behind === null ? "" : `, ${length(behind)} behind`}`;
}

/** The sum of a figure of the streams that have read a tuple; null where one is not known. */
function total(streams, what) {
  const figures = streams.filter((stream) => stream.is_read).map((stream) => stream[what]);
  return figures.length && figures.every((figure) => figure !== null) ? figures.reduce((all, figure) => all + figure, 0) : null;
}

/** What was lost; a view with a deadline may give up windows, so that only tuples are spoken of beside one. */
function losses(totals, problems, lanes) {
  const lost = [];
  if (totals.quarantined) lost.push(`${counted(totals.quarantined, "record")} in quarantine`);
  if (totals.errors) lost.push(`${short(totals.errors)} ${totals.errors === 1 ? "condition" : "conditions"} could not be computed`);
  if (!lost.length && problems.length) return problems.length === 1 ? "1 problem" : `${problems.length} problems`;
  if (lost.length) return list(lost);
  return viewsOf(lanes, "deadlines") ? "no tuple lost" : "nothing lost";
}
