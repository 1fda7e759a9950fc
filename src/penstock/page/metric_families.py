"""The metrics of streams and lanes: what each is called and where the status has it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from penstock.monitor.book import Document
from penstock.monitor.overview import stream_lag
from penstock.monitor.troubles import open_troubles, seconds_of
from penstock.spark.publication.kinds import results_of

#: streams, lanes and views with series of their own, the first of each
MOST = 200
#: name under which the counters of the others are summed
OTHER = "other"
#: states of a stream that does not answer its source
_DOWN = ("failed", "retrying", "source unreachable")

#: of a stream or view: further labels and a value each, None where it is not known
Values = Callable[[Mapping[str, Any]], Iterable[tuple[tuple[str, ...], float | None]]]


@dataclass(frozen=True, slots=True)
class Family:
    """A metric that each stream or view has.

    Attributes:
        name: without `_total`.
        meaning: a sentence.
        values: of one stream or view.
        labels: beside its name.
        is_counter: whether it only grows; otherwise it can go up and down, and views without a series are left out.
        is_of_now: whether it means nothing once the run is over.
    """

    name: str
    meaning: str
    values: Values
    labels: tuple[str, ...] = ()
    is_counter: bool = False
    is_of_now: bool = False

    def told(self, label: str) -> str:
        """The help text: the meaning, and which streams or views have it.

        Args:
            label: stream or view.
        """
        if not self.is_counter:
            return f"{self.meaning} Of the first {MOST} {label}s."
        return f'{self.meaning} {label.capitalize()}s beyond the first {MOST} are summed under {label}="{OTHER}".'


@dataclass(frozen=True, slots=True)
class LaneStands:
    """How a lane stands.

    Attributes:
        works: whether it does not fail.
        behind: seconds from the newest batch of its streams to the visible result, None where they are not known.
    """

    works: bool
    behind: float | None


def plain(value: Callable[[Mapping[str, Any]], float | None]) -> Values:
    """Values without further labels."""
    return lambda item: [((), value(item))]


def counts(*names: str) -> Values:
    """Counts by their name in the status, which is the label too."""
    return lambda item: [((name,), item.get(name) or 0) for name in names]


def counter(name: str, meaning: str, what: str) -> Family:
    """Return a counter that the status has under a name."""
    return Family(name, meaning, plain(lambda item: item.get(what) or 0), is_counter=True)


def seconds(microseconds: float | None) -> float | None:
    """Microseconds as seconds."""
    return None if microseconds is None else microseconds / 1e6


def _backlog(stream: Mapping[str, Any]) -> Iterable[tuple[tuple[str, ...], float | None]]:
    lag = stream.get("lag") or {}
    return [((str(lag.get("unit") or ""),), lag.get("backlog"))]


def _unusable(stream: Mapping[str, Any]) -> Iterable[tuple[tuple[str, ...], float | None]]:
    return [((cause,), stream.get(f"{cause}_event_times") or 0) for cause in ("null", "future")]


def _late(stream: Mapping[str, Any]) -> Iterable[tuple[tuple[str, ...], float | None]]:
    late, beyond = stream.get("late_tuples") or 0, stream.get("late_beyond") or 0
    return [(("no",), late - beyond), (("yes",), beyond)]


#: the metrics of streams
STREAMS = (
    counter("penstock_batches", "Batches of a stream that were published.", "batches"),
    counter("penstock_tuples", "Tuples of a stream that were read.", "tuples"),
    counter("penstock_matched_tuples", "Tuples of a stream that at least one selection matched.", "matched"),
    counter("penstock_matches", "Pairs of a tuple and a selection that it matched.", "pairs"),
    Family(
        "penstock_expression_errors",
        "Pairs of a tuple and a view that were lost to an expression that failed.",
        plain(lambda stream: sum((stream.get("errors") or {}).values())),
        is_counter=True,
    ),
    counter("penstock_unreadable_rows", "Rows of files that could not be read.", "rows_set_aside"),
    Family(
        "penstock_unusable_event_times",
        "Tuples left out of windows and joins, because their event time is NULL or too far ahead of the clock.",
        _unusable,
        ("cause",),
        is_counter=True,
    ),
    Family(
        "penstock_late_tuples",
        "Pairs of a tuple and a window that was answered before the tuple arrived; is_final: whether it was final.",
        _late,
        ("is_final",),
        is_counter=True,
    ),
    counter(
        "penstock_changed_files", "Files of a stream that changed after they had been read.", "files_changed"
    ),
    counter("penstock_stream_retries", "Restarts of a stream after a failure.", "retried"),
    Family(
        "penstock_stream_up",
        "1 while a stream answers its source, 0 while it fails, retries or cannot reach its source.",
        plain(lambda stream: stream.get("state") not in _DOWN),
        is_of_now=True,
    ),
    Family(
        "penstock_stream_lag_seconds",
        "Time that the oldest unanswered tuple waits at least, or that the newest batch took where none waits.",
        plain(stream_lag),
        is_of_now=True,
    ),
    Family(
        "penstock_backlog",
        "What the source has and no batch has read, in records or files.",
        _backlog,
        ("unit",),
        is_of_now=True,
    ),
    Family(
        "penstock_newest_event_timestamp_seconds",
        "The newest event time of a stream.",
        plain(lambda stream: seconds(stream.get("newest_event_time_us"))),
    ),
    Family(
        "penstock_last_batch_timestamp_seconds",
        "When a stream published its newest batch.",
        plain(lambda stream: seconds_of(stream.get("last_batch")) or None),
    ),
    Family(
        "penstock_evaluations_per_tuple",
        "Checks that the running order of a stream's rules makes of a tuple, on a sample.",
        plain(lambda stream: stream.get("evaluations_per_tuple")),
        is_of_now=True,
    ),
    Family(
        "penstock_refused_views",
        "Views of a stream that match nothing, because Spark refuses an expression.",
        plain(lambda stream: len(stream.get("failed_views") or ())),
        is_of_now=True,
    ),
)


def lanes_of(document: Document) -> dict[str, LaneStands]:
    """The lanes of a folder, those of window views over a stream too.

    Args:
        document: see `folder_status`.
    """
    lanes: Mapping[str, Document] = document.get("lanes") or {}
    troubles = dict(open_troubles(lanes))
    behind = {name: lane.get("behind_seconds") for name, lane in lanes.items()}
    for name, stream in document["streams"].items():
        if stream.get("windows_seconds") is not None:
            behind[results_of(name)] = stream["windows_seconds"]
    return {name: LaneStands(name not in troubles, each) for name, each in behind.items()}


def views_of(document: Document) -> dict[str, Document]:
    """The views other than selections, each with its `kind`: windows, join, union, refreshed or deadline.

    Args:
        document: see `folder_status`.
    """
    return {name: {**view, "kind": _kind(view)} for name, view in document["views"].items()}


def _kind(view: Mapping[str, Any]) -> str:
    if "refresh_seconds" in view:
        return "refreshed"
    if "branches" in view:
        return "union"
    if "streams" in view:
        return "join"
    return "deadline" if "released" in view else "windows"
