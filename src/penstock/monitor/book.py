"""What is known of a results folder's streams and views: a fold over the events of its runs and its manifests.

The book is the one structure behind `Run.status`, the screen of `penstock run` and `penstock status`. Counts are since
the folder's first batch; a batch is counted once, whether its event or its manifest tells of it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from copy import deepcopy
from typing import Any

from penstock.monitor.deadlines import repeats
from penstock.monitor.durations import add_duration
from penstock.monitor.lanes import LANE_HANDLERS
from penstock.monitor.networks import network_reached
from penstock.monitor.troubles import SETTLED_SECONDS, SINK_HANDLERS, seconds_of

#: version of the document
VERSION = 1
#: events of late that the document holds
_KEPT = 40
#: batches whose rate is told
_RATED = 5
#: kinds that are measurements: they change counts and are no news
MEASURED = frozenset(
    {
        "batch",
        "windows",
        "sequence_sampled",
        "compacted",
        "plan_compiled",
        "lag",
        "cut",
        "prediction_adjusted",
        "network_reached",
    }
)
#: counts of a `batch` event or a manifest that add up
_SUMS = ("tuples", "matched", "pairs", "null_event_times", "future_event_times", "rows_set_aside")
#: counts of a stream in a `windows` event that add up
_LATE = ("late_tuples", "late_beyond")
#: counts of a view in a `windows` event that add up; of everything else the newest holds
_WINDOW_SUMS = (
    *("early", "corrected", "final", "final_corrected", "final_corrected_rows"),
    *("rows", "revised_rows", "promised", "overflowed"),
)

Document = dict[str, Any]


class StatusBook:
    """Takes events in and says what they come to; any thread may call any method.

    Args:
        document: what an earlier run left.
    """

    def __init__(self, document: Mapping[str, Any] | None = None) -> None:
        kept = deepcopy(dict(document)) if document and document.get("version") == VERSION else {}
        self._document: Document = {
            **{"version": VERSION, "state": "unknown", "streams": {}, "views": {}, "news": []},
            **kept,
        }
        self._lock = threading.Lock()
        self._changes = 0

    @property
    def changes(self) -> int:
        """Grows with everything that is taken in."""
        return self._changes

    def document(self) -> Document:
        """A copy of all that is known; plain JSON values."""
        with self._lock:
            return deepcopy(self._document)

    def stream(self, name: str) -> Document:
        """A copy of what is known of a stream."""
        with self._lock:
            return deepcopy(self._document["streams"].get(name, {}))

    @property
    def state(self) -> str:
        """The state of the run."""
        return str(self._document["state"])

    def update(self, **fields: Any) -> None:
        """Sets fields of the document itself."""
        with self._lock:
            self._changes += 1
            self._document.update(fields)

    def note(self, event: Mapping[str, Any]) -> None:
        """Takes in an event as `events.jsonl` has it; kinds and fields that are not known do no harm."""
        with self._lock:
            self._changes += 1
            same = event.get("time") == self._document.get("time")
            # several events may share a millisecond: readers pass over as many of them as are taken in here
            self._document["at_time"] = 1 + (self._document.get("at_time", 0) if same else 0)
            self._document["time"] = event.get("time")
            take_in = _HANDLERS.get(str(event.get("kind")))
            if take_in is not None:
                take_in(self._document, event)
            if event.get("kind") not in MEASURED:
                earlier = [each for each in self._document["news"] if not repeats(each, event)]
                self._document["news"] = [*earlier, dict(event)][-_KEPT:]

    def take_standing(self, lane: str, standing: Mapping[str, Any]) -> None:
        """Takes in how the running order of a join's lane stands; no event tells of it."""
        with self._lock:
            self._changes += 1
            self._document.setdefault("lanes", {}).setdefault(lane, {})["standing"] = dict(standing)

    def take_sink(self, sink: str, figures: Mapping[str, Any]) -> None:
        """Takes in how far a sink has come; no event tells of each delivery."""
        with self._lock:
            known = self._document.setdefault("sinks", {}).setdefault(sink, {})
            if any(known.get(name) != value for name, value in figures.items()):
                self._changes += 1
                known.update(figures)

    def catch_up(self, stream: str, totals: Mapping[str, Any], batches: Iterable[Mapping[str, Any]]) -> None:
        """Takes in the figures of a stream's batches that no event told of, from its manifests.

        Args:
            stream: its name.
            totals: sums over the batches before the newest ones; {} where there are none.
            batches: the figures of the newest ones, in order.
        """
        with self._lock:
            self._changes += 1
            _restate(self._document, stream, totals)
            for figures in batches:
                _add_batch(self._document, stream, figures)

    def catch_up_windows(
        self, stream: str, totals: Mapping[str, Any], batches: Iterable[Mapping[str, Any]]
    ) -> None:
        """Likewise of the batches of its windows."""
        with self._lock:
            self._changes += 1
            _restate_windows(self._document, stream, totals)
            for figures in batches:
                _add_windows(self._document, stream, figures)

    def catch_up_lane(
        self, lane: str, totals: Mapping[str, Any], batches: Iterable[Mapping[str, Any]]
    ) -> None:
        """Likewise of the cuts of a lane."""
        with self._lock:
            self._changes += 1
            _restate_cuts(self._document, lane, totals)
            for figures in batches:
                _add_cut(self._document, lane, figures)


def _stream(document: Document, name: str) -> Document:
    empty = {
        "batches": 0,
        **dict.fromkeys(_SUMS, 0),
        "quarantined": {},
        "errors": {},
        "retries": 0,
        "files_changed": 0,
        "files_passed_over": 0,
        "topics_recreated": 0,
        "batch": -1,
    }
    found: Document = document["streams"].setdefault(name, {})
    for key, value in empty.items():
        found.setdefault(key, value if not isinstance(value, dict) else {})
    return found


def _run_started(document: Document, event: Mapping[str, Any]) -> None:
    document.update(state="running", started=event.get("time"), reason=None)
    if str(event.get("time")) >= (document.get("starting") or {}).get("time", ""):
        document.pop("starting", None)
    # sinks of an earlier run may be declared no more
    for known in ("rules", "script", "sinks"):
        document.pop(known, None)
    for stream in document["streams"].values():
        stream.update(state="waiting", retries=0, outage=None, recent=[], held_by={})
    for lane in document.get("lanes", {}).values():
        for told in ("standing", "trouble", "sick"):
            lane.pop(told, None)
        for table in lane.get("tables", {}).values():
            # what is lost still is told anew
            table.pop("lost", None)


def _run_ended(document: Document, _: Mapping[str, Any]) -> None:
    document["state"] = "ended"


def _run_stopped(document: Document, _: Mapping[str, Any]) -> None:
    if document["state"] not in ("ended", "failed", "refused"):
        document["state"] = "stopped"


def _run_refused(document: Document, event: Mapping[str, Any]) -> None:
    document.update(state="refused", reason=event.get("told"))


def _run_failed(document: Document, event: Mapping[str, Any]) -> None:
    document["state"] = "failed"
    document["reason"] = event.get("told")
    if event.get("part") not in (None, "ingest", "log"):
        # views or sinks lack rows: all else is complete
        for stream in document["streams"].values():
            stream["state"] = "ended"
    elif event.get("stream"):
        _stream(document, event["stream"])["state"] = "failed"


def _stream_started(document: Document, event: Mapping[str, Any]) -> None:
    _stream(document, event["stream"]).update(state="running", queries=event.get("views"))


def _plan_compiled(document: Document, event: Mapping[str, Any]) -> None:
    _stream(document, event["stream"]).update(
        queries=event.get("views"), place=event.get("place"), plan=event.get("plan"), failed_views={}
    )


def _views_failed(document: Document, event: Mapping[str, Any]) -> None:
    _stream(document, event["stream"])["failed_views"] = dict(event["views"])


def _batch(document: Document, event: Mapping[str, Any]) -> None:
    _add_batch(document, event["stream"], event)
    stream = _stream(document, event["stream"])
    spent = _seconds(event, "bind", "run", "publish")
    stream["recent"] = [*stream.get("recent", []), [event.get("tuples") or 0, spent]][-_RATED:]
    stream["durations"] = add_duration(stream.get("durations"), event["batch"], spent)
    seconds = sum(each for _, each in stream["recent"])
    rate = sum(tuples for tuples, _ in stream["recent"]) / seconds if seconds else 0.0
    stream.update(state="running", outage=None, last_batch=event.get("time"), tuples_per_second=rate)
    lag = stream.get("lag")
    if lag and lag.get("unit") == "records" and lag.get("backlog"):
        # what the newest look at the source found before this batch was answered
        answered = (event.get("tuples") or 0) + sum((event.get("quarantined") or {}).values())
        stream["lag"] = {**lag, "backlog": max(0, lag["backlog"] - answered)}
    _matching(stream, event)


def _matching(stream: Document, event: Mapping[str, Any]) -> None:
    """Which way of matching answered most tuples of the batch, and what is known of both."""
    measured = {way: event.get(f"{way}_ns_per_tuple") for way in ("index", "asc")}
    known = {way: ns for way, ns in measured.items() if ns is not None}
    if known:
        by_ascs = 2 * (event.get("asc_tuples") or 0) > (event.get("tuples") or 0)
        stream["matching"] = {**stream.get("matching", {}), **known, "by": "asc" if by_ascs else "index"}


def _seconds(event: Mapping[str, Any], *parts: str) -> float:
    """The time that the parts of an event took together."""
    return sum(event.get(f"{part}_seconds") or 0.0 for part in parts)


def _add_batch(document: Document, name: str, figures: Mapping[str, Any]) -> None:
    stream = _stream(document, name)
    if figures["batch"] <= stream["batch"]:
        return
    stream["batch"] = figures["batch"]
    stream["batches"] += 1
    for count in _SUMS:
        stream[count] += figures.get(count) or 0
    for kind in ("quarantined", "errors"):
        for what, count in (figures.get(kind) or {}).items():
            stream[kind][what] = stream[kind].get(what, 0) + count
    newest = figures.get("newest_event_time_us")
    if newest is not None:
        stream["newest_event_time_us"] = max(newest, stream.get("newest_event_time_us") or newest)


def _restate(document: Document, name: str, totals: Mapping[str, Any]) -> None:
    """Where batches have not been counted whose figures are kept as sums only, the sums take the place of the counts."""
    stream = _stream(document, name)
    if totals.get("batch", -1) <= stream["batch"]:
        return
    stream.update({count: totals.get(count) or 0 for count in ("batch", "batches", *_SUMS)})
    stream.update({kind: dict(totals.get(kind) or {}) for kind in ("quarantined", "errors")})
    if totals.get("newest_event_time_us") is not None:
        stream["newest_event_time_us"] = totals["newest_event_time_us"]


def _restate_windows(document: Document, name: str, totals: Mapping[str, Any]) -> None:
    stream = _stream(document, name)
    if totals.get("batch", -1) <= stream.get("windows_batch", -1):
        return
    for view in [view for view, known in document["views"].items() if known.get("stream") == name]:
        for count in _WINDOW_SUMS:
            document["views"][view].pop(count, None)
    for count in (*_LATE, "windows_batch"):
        stream.pop(count, None)
    _add_windows(document, name, totals)


def _windows(document: Document, event: Mapping[str, Any]) -> None:
    _add_windows(document, event["stream"], event)
    _stream(document, event["stream"])["windows_seconds"] = _seconds(event, "run", "make", "publish")


def _add_windows(document: Document, name: str, figures: Mapping[str, Any]) -> None:
    stream = _stream(document, name)
    if figures["batch"] <= stream.get("windows_batch", -1):
        return
    stream["windows_batch"] = figures["batch"]
    if figures.get("answered") is not None:
        # the last batch of the stream that the windows have taken in
        stream["windows_answered"] = figures["answered"]
    for count in _LATE:
        stream[count] = stream.get(count, 0) + (figures.get(count) or 0)
    for view, standing in (figures.get("standing") or {}).items():
        known = document["views"].setdefault(view, {})
        known.update(stream=name, standing=dict(standing), slack_us=standing.get("slack"))
    for view, said in (figures.get("views") or {}).items():
        known = document["views"].setdefault(view, {})
        known["stream"] = name
        if said.get("early") and "standing" not in known:
            known["slack_us"] = said["slack"] / said["early"]
        for what, value in said.items():
            if what in _WINDOW_SUMS:
                known[what] = known.get(what, 0) + value
            elif what != "slack":
                known[what] = value


def _cut(document: Document, event: Mapping[str, Any]) -> None:
    lane = document.setdefault("lanes", {}).setdefault(event["lane"], {})
    lane.update({name: event.get(name) for name in ("cut", "streams", "time")})
    lane["behind_seconds"] = _seconds(event, "wake", "put", "answer", "publish")
    for view, standing in (event.get("figures") or {}).get("standing", {}).items():
        lane.setdefault("views", {}).setdefault(view, {})["standing"] = standing
    _add_cut(document, event["lane"], {"batch": event["cut"], **(event.get("figures") or {})})


def _history_held(document: Document, event: Mapping[str, Any]) -> None:
    held = {name: event.get(name) for name in ("entry", "seconds", "bytes", "is_known", "time")}
    _stream(document, event["stream"]).setdefault("held_by", {})[event["reader"]] = held


def _history_released(document: Document, event: Mapping[str, Any]) -> None:
    _stream(document, event["stream"]).get("held_by", {}).pop(event["reader"], None)


def _add_cut(document: Document, name: str, figures: Mapping[str, Any]) -> None:
    """Counts what a cut of a lane says of its views, once."""
    lane = document.setdefault("lanes", {}).setdefault(name, {})
    if figures["batch"] <= lane.get("counted", -1):
        return
    lane["counted"] = figures["batch"]
    if "answer" in figures:
        lane["answer"] = figures["answer"]
    for view, said in (figures.get("views") or {}).items():
        known = lane.setdefault("views", {}).setdefault(view, {})
        known.update({what: known.get(what, 0) + count for what, count in said.items()})


def _restate_cuts(document: Document, name: str, totals: Mapping[str, Any]) -> None:
    lane = document.setdefault("lanes", {}).setdefault(name, {})
    if totals.get("batch", -1) > lane.get("counted", -1):
        lane.update(counted=-1, views={})
        _add_cut(document, name, totals)


def _decision(document: Document, event: Mapping[str, Any]) -> None:
    stream = _stream(document, event["stream"])
    stream["decision"] = event.get("reason")
    if event.get("action") == "SwapSequence":
        stream["switched"] = stream.get("switched", 0) + 1


def _sampled(document: Document, event: Mapping[str, Any]) -> None:
    _stream(document, event["stream"])["evaluations_per_tuple"] = event.get("evaluations_per_tuple")


def _unreachable(document: Document, event: Mapping[str, Any]) -> None:
    outage = {"since": event.get("time"), "source": event.get("source"), "told": event.get("told")}
    _stream(document, event["stream"]).update(state="source unreachable", outage=outage)


def _reachable(document: Document, event: Mapping[str, Any]) -> None:
    _stream(document, event["stream"]).update(state="running", outage=None)


def _rules_changed(document: Document, event: Mapping[str, Any]) -> None:
    named = event.get("refused") or []
    document.setdefault("rules", {})[event["rules"]] = {
        "refused": event.get("refused_count", len(named)),
        "kept": event.get("kept_count", 0),
        "named": named,
    }


def _script_refused(document: Document, event: Mapping[str, Any]) -> None:
    document["script"] = {what: event.get(what) for what in ("script", "told", "time")}


def _script_followed(document: Document, _: Mapping[str, Any]) -> None:
    document.pop("script", None)


def _retried(document: Document, event: Mapping[str, Any]) -> None:
    stream = _stream(document, event["stream"])
    stream["retries"] += 1
    # that of the run begins anew with each one
    stream["retried"] = stream.get("retried", 0) + 1
    until = seconds_of(event.get("time")) + (event.get("wait_seconds") or 0.0) + SETTLED_SECONDS
    stream.update(state="retrying", retry=event.get("told"), tried_until=until)


def stream_state(
    stream: Mapping[str, Any], now: Callable[[], float] = time.time, run: str = "running"
) -> str:
    """A stream's state: its run's once that is over, but for a stream that failed, or ended before another part did.

    While the run goes on, a stream that was tried again and has held since then runs, though nothing came.

    Args:
        stream: what is known of it.
        now: the clock.
        run: the state of its run.
    """
    if run not in ("running", "starting") and stream.get("state") != "failed":
        return "ended" if run == "failed" and stream.get("state") == "ended" else run
    state: str = stream.get("state") or "running"
    return "running" if state == "retrying" and now() > stream.get("tried_until", 0.0) else state


def _files_changed(document: Document, event: Mapping[str, Any]) -> None:
    _stream(document, event["stream"])["files_changed"] += event.get("count") or 0


def _files_passed_over(document: Document, event: Mapping[str, Any]) -> None:
    _stream(document, event["stream"])["files_passed_over"] += event.get("count") or 0


def _topic_recreated(document: Document, event: Mapping[str, Any]) -> None:
    _stream(document, event["stream"])["topics_recreated"] += 1


def _raised(document: Document, event: Mapping[str, Any]) -> None:
    _stream(document, event["stream"]).setdefault("raising", {}).update(event.get("expressions") or {})


def _set_aside(document: Document, event: Mapping[str, Any]) -> None:
    _stream(document, event["stream"])["aside"] = event.get("told")


def _lag(document: Document, event: Mapping[str, Any]) -> None:
    lag = {name: event.get(name) for name in ("backlog", "unit", "time", "newest_event_time_us")}
    _stream(document, event["stream"])["lag"] = lag


_HANDLERS: dict[str, Callable[[Document, Mapping[str, Any]], None]] = {
    "run_started": _run_started,
    "run_ended": _run_ended,
    "run_stopped": _run_stopped,
    "run_refused": _run_refused,
    "run_failed": _run_failed,
    "stream_started": _stream_started,
    "plan_compiled": _plan_compiled,
    "views_failed": _views_failed,
    "batch": _batch,
    "windows": _windows,
    "cut": _cut,
    "history_held": _history_held,
    "history_released": _history_released,
    "decision": _decision,
    "sequence_sampled": _sampled,
    "source_unreachable": _unreachable,
    "source_reachable": _reachable,
    "rules_changed": _rules_changed,
    "script_refused": _script_refused,
    "script_followed": _script_followed,
    "stream_retried": _retried,
    "lag": _lag,
    "rows_set_aside": _set_aside,
    "expression_raised": _raised,
    "files_changed": _files_changed,
    "files_passed_over": _files_passed_over,
    "topic_recreated": _topic_recreated,
    "network_reached": network_reached,
    **LANE_HANDLERS,
    **SINK_HANDLERS,
}
