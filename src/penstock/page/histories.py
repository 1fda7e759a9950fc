"""Bounded histories of streams, lanes and views, folded from the events of a run.

A history has at most MOST_POINTS points. A full one is thinned: two neighbouring points become one, and from then on twice as many
events make a point. Points of streams and lanes say what their batches or cuts did; those of views are totals since the first event
that was read.
"""

from __future__ import annotations

import math
import threading
from array import array
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from penstock.page.answers import epoch, seconds
from penstock.page.happenings import Happening, Happenings
from penstock.page.paces import Pace, PaceMeter
from penstock.spark.publication.kinds import results_of

#: points of a history
MOST_POINTS = 600
#: decisions and switches of plans that are kept
_SWITCHES = 100
_SWITCH_KINDS = frozenset({"decision", "join_switched", "predicates_reordered"})
_PARTS = ("bind", "run", "publish")
_CUT_PARTS = ("wake", "put", "answer", "publish")
_WINDOWS_PARTS = ("run", "make", "publish")

Columns = dict[str, list[float | None]]
Event = Mapping[str, Any]


def _last(_: float, second: float) -> float:
    return second


def _sum(first: float, second: float) -> float:
    return _either(first, second) if math.isnan(first) or math.isnan(second) else first + second


def _most(first: float, second: float) -> float:
    return _either(first, second) if math.isnan(first) or math.isnan(second) else max(first, second)


def _either(first: float, second: float) -> float:
    return second if math.isnan(first) else first


class Ring:
    """Points in order of time, at most MOST_POINTS of them.

    Args:
        joins: by column how the values of two neighbouring points become one.
    """

    def __init__(self, **joins: Callable[[float, float], float]) -> None:
        self._joins = {"at": _last, **joins}
        self._columns = {name: array("d") for name in self._joins}
        #: events that make a point, and those that the last point has
        self._width = self._filled = 1

    def add(self, **values: float | None) -> None:
        """Adds an event; a column that is left out, or None, is unknown there.

        Raises:
            TypeError, ValueError, OverflowError: a value is no number; then nothing is added.
        """
        given = {name: values.get(name) for name in self._columns}
        point = {name: math.nan if value is None else float(value) for name, value in given.items()}
        if self._filled < self._width:
            self._filled += 1
            for name, column in self._columns.items():
                column[-1] = self._joins[name](column[-1], point[name])
            return
        for name, column in self._columns.items():
            column.append(point[name])
        self._filled = 1
        if len(self._columns["at"]) >= MOST_POINTS:
            self._columns = self._thinned(self._columns)
            self._width *= 2
            self._filled = self._width

    def columns(self, most: int = MOST_POINTS) -> Columns:
        """Return the columns, all of one length; None is unknown.

        Args:
            most: points at the most; more are thinned.
        """
        found = self._columns
        while len(found["at"]) > most:
            found = self._thinned(found)
        return {
            name: [None if math.isnan(value) else value for value in column] for name, column in found.items()
        }

    def _thinned(self, columns: Mapping[str, array[float]]) -> dict[str, array[float]]:
        found = {}
        for name, column in columns.items():
            join = self._joins[name]
            paired = [join(first, second) for first, second in zip(column[::2], column[1::2], strict=False)]
            found[name] = array("d", [*paired, *column[2 * len(paired) :]])
        return found


@dataclass(frozen=True, slots=True)
class Switch:
    """What changed a plan, or kept it.

    Attributes:
        event: of it.
        before, order: the columns, predicates or inputs in the order before it, and from then on; empty where no event says.
    """

    event: Event
    before: Sequence[str]
    order: Sequence[str]


class Histories:
    """The histories of a folder; any thread may call any method."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._streams: dict[str, Ring] = {}
        self._lanes: dict[str, Ring] = {}
        self._plans: dict[str, Ring] = {}
        self._views: dict[str, Ring] = {}
        self._totals: dict[str, dict[str, float]] = {}
        self._backlogs: dict[str, float | None] = {}
        self._newest: dict[str, float] = {}
        self._happenings = Happenings()
        self._paces: dict[str, PaceMeter] = {}
        self._attributes: dict[str, list[str]] = {}
        self._orders: dict[str, list[int]] = {}
        self._runners_up: dict[str, list[int]] = {}
        self._found: dict[str, Event] = {}
        self._switches: deque[Switch] = deque(maxlen=_SWITCHES)
        self._ordered: dict[tuple[str, str], list[str]] = {}

    def take(self, event: Event) -> None:
        """Takes in an event; kinds and fields that are not known do no harm."""
        kind = str(event.get("kind"))
        with self._lock:
            self._happenings.add(event)
        if kind in _SWITCH_KINDS and event.get("action") != "SampleTuples":
            with self._lock:
                self._switches.append(self._switched(kind, event))
        take_in = _HANDLERS.get(kind)
        at = epoch(event.get("time"))
        if take_in is None or at is None:
            return
        # an event of another version may lack what is asked of it
        with self._lock, suppress(KeyError, TypeError, AttributeError, ValueError, OverflowError):
            take_in(self, at, event)

    def _switched(self, kind: str, event: Event) -> Switch:
        if kind == "decision":
            stream, columns = str(event.get("stream")), self._columns_of
            found = [_order_in(event, what) for what in ("before", "arrangement")]
            return Switch(event, *(columns(stream, order) for order in found))
        told = event.get("order")
        order = [
            str(each) for each in (told if isinstance(told, list) else str(told or "").split("; ")) if each
        ]
        key = kind, str(event.get("view"))
        before, self._ordered[key] = self._ordered.get(key, []), order
        return Switch(event, before, order)

    def news(self, most: int) -> list[Happening]:
        """Return what happened, newest first; see `Happenings.newest`."""
        with self._lock:
            return self._happenings.newest(most)

    def switches(self) -> list[Switch]:
        """Return what changed a plan, newest first."""
        with self._lock:
            return list(reversed(self._switches))

    def stream(self, name: str, most: int = MOST_POINTS) -> Columns:
        """The history of a stream: `at`, `rate`, `seconds`, `newest_event`, `backlog`."""
        found = self._columns(self._streams, name, _stream_ring, most)
        tuples, spent = found.pop("tuples"), found.pop("spent")
        del found["delay"], found["pairs"]
        rate = [
            count / time if count is not None and time else None
            for count, time in zip(tuples, spent, strict=True)
        ]
        return {"at": found.pop("at"), "rate": rate, **found}

    def pace(self, stream: str, now: float) -> Pace:
        """How a stream's arrivals and answers compare; `now` in epoch seconds."""
        with self._lock:
            return self._paces[stream].pace(now) if stream in self._paces else Pace()

    def matches(self, stream: str) -> Columns:
        """The matches of all rules of a stream: `at`, `rows`, how many since the first event that was read."""
        found = self._columns(self._streams, stream, _stream_ring, MOST_POINTS)
        return {"at": found["at"], "rows": list(accumulate(pairs or 0.0 for pairs in found["pairs"]))}

    def delays(self, stream: str) -> Columns:
        """The largest delays of a stream's batches: `at`, `delay`; those too long to matter for slack left out."""
        found = self._columns(self._streams, stream, _stream_ring, MOST_POINTS)
        return {what: found[what] for what in ("at", "delay")}

    def lane(self, name: str, most: int = MOST_POINTS) -> Columns:
        """The history of a lane: `at`, `seconds`, `rows`."""
        return self._columns(self._lanes, name, _lane_ring, most)

    def plan(self, stream: str, most: int = MOST_POINTS) -> Columns:
        """The history of a stream's evaluation sequence: `at`, `evaluations`."""
        return self._columns(self._plans, stream, _plan_ring, most)

    def view(self, name: str, most: int = MOST_POINTS) -> Columns:
        """The history of a window, join or deadline view: `at`, `rows`, `early`, `final`, `slack`."""
        return self._columns(self._views, name, _view_ring, most)

    def sequence(self, stream: str) -> list[str]:
        """The columns of a stream in the order in which its evaluation sequence compares them; [] where no event says."""
        with self._lock:
            return self._columns_of(stream, self._orders.get(stream, []))

    def found(self, stream: str) -> Event:
        """The figures of the newest decision on the running evaluation sequence; {} where no event says."""
        with self._lock:
            return self._found.get(stream, {})

    def runner_up(self, stream: str) -> list[str]:
        """The columns in the order that was nearly found then; [] where no event says."""
        with self._lock:
            return self._columns_of(stream, self._runners_up.get(stream, []))

    def _columns_of(self, stream: str, order: list[int]) -> list[str]:
        attributes = self._attributes.get(stream, [])
        if not attributes or any(not isinstance(each, int) or each < 0 for each in order):
            return []
        # of many columns the event names the first
        return [attributes[each] if each < len(attributes) else f"column {each + 1}" for each in order]

    def _columns(self, rings: Mapping[str, Ring], name: str, empty: Callable[[], Ring], most: int) -> Columns:
        with self._lock:
            return (rings[name] if name in rings else empty()).columns(most)

    def _batch(self, at: float, event: Event) -> None:
        name = event["stream"]
        spent = _spent(event, _PARTS)
        delay, newest = _delay(event, self._newest.get(name)), seconds(event.get("newest_event_time_us"))
        if newest is not None:
            self._newest[name] = max(newest, self._newest.get(name, newest))
        self._streams.setdefault(name, _stream_ring()).add(
            at=at,
            tuples=event.get("tuples"),
            pairs=event.get("pairs"),
            spent=spent,
            seconds=spent,
            newest_event=self._newest.get(name),
            backlog=self._backlogs.get(name),
            delay=delay,
        )
        self._paces.setdefault(name, PaceMeter()).add_batch(at, float(event["tuples"]), spent)

    def _lag(self, at: float, event: Event) -> None:
        name, backlog = event["stream"], event.get("backlog")
        self._backlogs[name] = backlog
        self._paces.setdefault(name, PaceMeter()).add_backlog(at, backlog, event.get("unit"))

    def _begun(self, _: float, __: Event) -> None:
        # what an earlier run answered says nothing of this one
        self._paces.clear()

    def _sampled(self, at: float, event: Event) -> None:
        ring = self._plans.setdefault(event["stream"], _plan_ring())
        ring.add(at=at, evaluations=event.get("evaluations_per_tuple"))

    def _compiled(self, _: float, event: Event) -> None:
        self._attributes[event["stream"]] = [str(each) for each in event["attributes"]]
        for known in (self._orders, self._runners_up, self._found):
            known.pop(event["stream"], None)

    def _decided(self, _: float, event: Event) -> None:
        if event.get("action") == "SampleTuples":
            return
        stream, figures = event["stream"], dict(event["figures"])
        self._orders[stream] = _order_in(event, "arrangement")
        if event.get("action") == "KeepSequence":
            # the order was kept: the one before it is that of the decision which put it in
            figures["evaluations_before"] = self._found.get(stream, {}).get("evaluations_before")
        self._found[stream] = figures
        self._runners_up[stream] = _order_in(event, "runner_up")

    def _windows(self, at: float, event: Event) -> None:
        views = event.get("views") or {}
        lane = self._lanes.setdefault(results_of(event["stream"]), _lane_ring())
        lane.add(
            at=at,
            seconds=_spent(event, _WINDOWS_PARTS),
            rows=sum(said.get("rows") or 0 for said in views.values()),
        )
        self._add_views(at, views, event.get("standing") or {})

    def _cut(self, at: float, event: Event) -> None:
        figures = event.get("figures") or {}
        views = figures.get("views") or {}
        lane = self._lanes.setdefault(event["lane"], _lane_ring())
        lane.add(
            at=at,
            seconds=_spent(event, _CUT_PARTS),
            rows=sum(said.get("rows") or 0 for said in views.values()),
        )
        self._add_views(at, views, figures.get("standing") or {})

    def _add_views(self, at: float, views: Mapping[str, Event], standing: Mapping[str, Event]) -> None:
        for name in dict.fromkeys((*views, *standing)):
            said = views.get(name) or {}
            totals = self._totals.setdefault(name, {"rows": 0, "early": 0, "final": 0})
            for what in totals:
                totals[what] += said.get(what) or 0
            slack = seconds((standing.get(name) or {}).get("slack"))
            self._views.setdefault(name, _view_ring()).add(at=at, slack=slack, **totals)


def _order_in(event: Event, what: str) -> list[int]:
    """The order of an arrangement that an event has; an event of another version has none."""
    arrangement = event.get(what)
    order = arrangement.get("order") if isinstance(arrangement, Mapping) else None
    return order if isinstance(order, list) else []


def _spent(event: Event, parts: tuple[str, ...]) -> float:
    return sum(float(event.get(f"{part}_seconds") or 0.0) for part in parts)


def _delay(event: Event, before: float | None) -> float | None:
    """How far a batch's oldest tuple is behind the newest one that had come before it, seconds; by its arrival steps, if it has any.

    Args:
        event: of the batch.
        before: newest event time before it; None: not known.
    """
    whole = (None, event.get("newest_event_time_us"), event.get("oldest_recent_event_time_us"))
    found: list[float] = []
    for _, newest, oldest in [each[-3:] for each in event.get("arrival_steps") or [whole]]:
        if before is not None and oldest is not None:
            found.append(max(0.0, before - oldest / 1e6))
        if newest is not None:
            before = max(newest / 1e6, newest / 1e6 if before is None else before)
    return max(found, default=None)


def _stream_ring() -> Ring:
    return Ring(
        tuples=_sum, pairs=_sum, spent=_sum, seconds=_most, newest_event=_last, backlog=_last, delay=_most
    )


def _lane_ring() -> Ring:
    return Ring(seconds=_most, rows=_sum)


def _plan_ring() -> Ring:
    return Ring(evaluations=_last)


def _view_ring() -> Ring:
    return Ring(rows=_last, early=_last, final=_last, slack=_last)


_HANDLERS: dict[str, Callable[[Histories, float, Event], None]] = {
    "run_started": Histories._begun,
    "batch": Histories._batch,
    "lag": Histories._lag,
    "sequence_sampled": Histories._sampled,
    "plan_compiled": Histories._compiled,
    "decision": Histories._decided,
    "windows": Histories._windows,
    "cut": Histories._cut,
}
