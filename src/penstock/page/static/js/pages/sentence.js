// The one sentence that says what a run does, whether it keeps up, and whether it lost anything.
import { counted, length, short } from "../format.js";

const BEGINNINGS = {
  running: "Answering", starting: "Starting to answer", ended: "Answered", stopped: "Stopped after answering", failed: "Failed while answering",
  dead: "Died while answering", refused: "Refused to answer", "never started": "Never started to answer",
};
//: a lag beyond this is that of a replay of old data, seconds
const REPLAY = 30 * 86400;
const KEEPS_UP = 60;

export function sentence({ run, totals, streams, lanes, problems }) {
  if (run.state === "starting" && !streams.length) return "Starting: Penstock prepares the streams.";
  const beginning = `${BEGINNINGS[run.state] ?? "Answering"} ${subject(totals, streams, lanes)} over ${object(totals, streams)}`;
  if (run.state === "running") return `${beginning}: ${pace(streams, lanes)}, ${losses(totals, problems, lanes)}.`;
  return totals.tuples ? `${beginning}: ${losses(totals, problems, lanes)}.` : `${beginning}.`;
}

function subject(totals, streams, lanes) {
  const rules = sum(streams, "selections");
  const windows = sum(streams, "windows");
  const joins = viewsOf(lanes, "join");
  const deadlines = viewsOf(lanes, "deadlines");
  const kinds = [[rules, "rule", "rules"], [windows, "window view", "window views"], [joins, "join", "joins"], [deadlines, "view with a deadline", "views with a deadline"]];
  const named = kinds.filter(([count]) => count).map(([count, one, many]) => counted(count, one, many));
  return list(named.length ? named : [counted(totals.views, "view")]);
}

const viewsOf = (lanes, kind) => new Set(lanes.filter((lane) => lane.kind === kind).flatMap((lane) => lane.views)).size;
const sum = (all, what) => all.reduce((total, each) => total + (each[what] ?? 0), 0);
const list = (all) => (all.length > 1 ? `${all.slice(0, -1).join(", ")} and ${all.at(-1)}` : all[0]);

const object = (totals, streams) =>
  `${counted(totals.tuples, "tuple")} of ${streams.length === 1 ? streams[0].name.slice(0, 60) : counted(streams.length, "stream")}`;

function pace(streams, lanes) {
  const lags = [...streams.map((stream) => stream.lag), ...lanes.map((lane) => lane.behind)].filter((lag) => lag !== null && lag < REPLAY);
  const behind = lags.length ? Math.max(...lags) : null;
  const waits = streams.filter((stream) => stream.backlog);
  if (behind === null) return waits.length ? `${waits[0].backlog} wait` : "keeping up";
  return behind < KEEPS_UP ? `keeping up, ${length(behind)} behind` : `falling behind, by ${length(behind)}`;
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
