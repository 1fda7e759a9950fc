"""The status of a run at one moment, as frozen values: see `Run.status`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

from penstock.deprecation import warn_deprecated
from penstock.monitor.slacks import slack_reason

#: `waiting`: no batch yet; `retrying`: after a failure that can pass; `refused`: the run could not start
State = Literal[
    "starting",
    "waiting",
    "running",
    "retrying",
    "source unreachable",
    "ended",
    "stopped",
    "failed",
    "refused",
    "unknown",
]
#: what a view is: over the tuples of one stream, over their windows, over several streams, or over windows with a deadline
ViewKind = Literal["selection", "window", "running", "join", "deadline", "refreshed", "union"]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Lag:
    """How far a stream is behind its source.

    Attributes:
        backlog: what the source has and no batch has answered; None where the source cannot tell.
        unit: of `backlog`, such as 'records' or 'files'.
    """

    backlog: int | None
    unit: str


@dataclass(frozen=True, slots=True)
class Outage:
    """A source that cannot be reached.

    Attributes:
        source: the source, such as 'topic orders at 127.0.0.1:9092'.
        since: when this was noticed.
        reason: why.
    """

    source: str
    since: datetime | None
    reason: str


@dataclass(frozen=True, slots=True)
class Trouble:
    """Why a lane fails.

    Attributes:
        state: 'retrying' or 'failed'.
        since: when the failure began.
        views: the views that wait for it.
        reason: what failed.
    """

    state: str
    since: datetime | None
    views: tuple[str, ...]
    reason: str


@dataclass(frozen=True, slots=True)
class WindowCounts:
    """Windows that a view has published, by kind of answer; one counts once in each batch that answers it.

    Attributes:
        early: answers before the window was final.
        corrected: revisions of early answers.
        final: final answers.
    """

    early: int
    corrected: int
    final: int


@dataclass(frozen=True, slots=True)
class DeadlineCounts:
    """Windows of a view with a deadline, by outcome.

    Attributes:
        created: windows that became due.
        released: answered before their deadline.
        missed: answered too late, or not at all.
        shed: given up before they were computed.
        failed: lost to a function that failed.
        approximated: answered from a sample before their deadline, with error bounds.
    """

    created: int
    released: int
    missed: int
    shed: int
    failed: int
    approximated: int = 0


@dataclass(frozen=True, slots=True)
class SlackStatus:
    """How long the windows of a view wait for late tuples.

    Attributes:
        policy: the slack policy that runs.
        seconds: the slack K.
        reason: why K is what it is, in words.
    """

    policy: str
    seconds: float
    reason: str


@dataclass(frozen=True, slots=True)
class ViewStatus:
    """One view. Counts are since the first batch of the results folder.

    Attributes:
        name: the view's name.
        kind: what the view is.
        stream: the stream it reads, of a join the first one.
        rows: rows published, every revision counted.
        errors: tuples, or joined rows, that the view lost because an expression raised.
        windows: windows published; None of views without windows.
        deadline: windows by outcome; None of views without a deadline.
        slack: how long windows wait for late tuples; None of views that do not wait, and before the first answer.
        trouble: why it is not answered; None where it is.
    """

    name: str
    kind: ViewKind
    stream: str
    rows: int
    errors: int = 0
    windows: WindowCounts | None = None
    deadline: DeadlineCounts | None = None
    slack: SlackStatus | None = None
    trouble: Trouble | None = None


@dataclass(frozen=True, slots=True)
class LaneStatus:
    """A lane: a worker of the run that answers views from the log of a stream.

    Attributes:
        name: the lane's name.
        views: the views it answers.
        active: whether it runs.
        cut: the newest cut it has published; None before the first.
        trouble: why it fails; None where it works.
    """

    name: str
    views: tuple[str, ...]
    active: bool
    cut: int | None = None
    trouble: Trouble | None = None


@dataclass(frozen=True, slots=True)
class SinkStatus:
    """A sink: where the rows of one view are delivered.

    Attributes:
        name: the sink's name: its table or function, a dot, and the view.
        view: the view.
        kind: the word after USING; 'function' of a function.
        active: whether it delivers in this run.
        deliveries: deliveries made since the sink began.
        backlog: published batches that are not delivered as a whole.
        behind_seconds: age of the oldest of them; None where there is none, or its age is not known.
        rejected: rows that the counterpart refused for good.
        missed: stored rows that left by retention before the sink had them, in this run.
        trouble: why it fails; None where it works.
    """

    name: str
    view: str
    kind: str
    active: bool
    deliveries: int
    backlog: int
    behind_seconds: float | None = None
    rejected: int = 0
    trouble: Trouble | None = None
    missed: int = 0


@dataclass(frozen=True, slots=True)
class StreamStatus:
    """One stream. Counts are since the start of the run.

    Attributes:
        name: the stream's name.
        state: what the stream is doing.
        active: whether its query runs.
        batches: batches published.
        tuples: tuples read.
        matched: tuples that satisfy a selection at least.
        tuples_per_second: of the newest batches.
        quarantined: malformed records, by reason.
        errors: tuples lost because an expression raised, by view.
        retries: how often the stream was retried after a failure.
        lag: how far it is behind its source; None before the first look.
        newest_event_time: the largest event time read; None where the stream has none.
        outage: why its source cannot be reached; None where it can.
    """

    name: str
    state: State
    active: bool
    batches: int
    tuples: int
    matched: int
    tuples_per_second: float
    quarantined: Mapping[str, int]
    errors: Mapping[str, int]
    retries: int
    lag: Lag | None
    newest_event_time: datetime | None
    outage: Outage | None
    _document: Mapping[str, Any] = field(repr=False, compare=False)

    @classmethod
    def of(cls, name: str, document: Mapping[str, Any]) -> StreamStatus:
        """Read what a run's status document has of a stream."""
        newest = document.get("newest_event_time_us")
        return cls(
            name=name,
            state=document["state"],
            active=document["active"],
            batches=document["batches"],
            tuples=document["tuples"],
            matched=document["matched"],
            tuples_per_second=document["tuples_per_second"],
            quarantined=dict(document["quarantined"]),
            errors=dict(document["errors"]),
            retries=document.get("retries") or 0,
            lag=_lag(document.get("lag")),
            newest_event_time=None if newest is None else _moment(newest),
            outage=_outage(document.get("outage")),
            _document=document,
        )

    def to_dict(self) -> dict[str, Any]:
        """Return everything known of the stream, more than the fields, as plain values."""
        return dict(self._document)


@dataclass(frozen=True, slots=True)
class RunStatus(Mapping[str, dict[str, Any]]):
    """A run at one moment. `status["orders"]`, as of a dictionary by stream, is deprecated.

    Attributes:
        state: what the run is doing.
        output: the results folder.
        streams: its streams, by name.
        views: its views, by name.
        lanes: its lanes, by name.
        sinks: its sinks, by name.
    """

    state: State
    output: str
    streams: Mapping[str, StreamStatus]
    views: Mapping[str, ViewStatus]
    lanes: Mapping[str, LaneStatus]
    sinks: Mapping[str, SinkStatus] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Return `state`, `output` and, by name, everything known of `streams`, as plain values."""
        streams = {name: stream.to_dict() for name, stream in self.streams.items()}
        return {"state": self.state, "output": self.output, "streams": streams}

    def __getitem__(self, stream: str) -> dict[str, Any]:
        warn_deprecated(f"Run.status()[{stream!r}]", f"Run.status().streams[{stream!r}]")
        return self.streams[stream].to_dict()

    def __iter__(self) -> Iterator[str]:
        return iter(self.streams)

    def __len__(self) -> int:
        return len(self.streams)


def view_status(
    name: str,
    kind: ViewKind,
    stream: str,
    counts: Mapping[str, Any],
    errors: int = 0,
    trouble: Mapping[str, Any] | None = None,
) -> ViewStatus:
    """Read what the book of a run counts of a view.

    Args:
        name: the view's name.
        kind: what the view is.
        stream: the stream it reads.
        counts: `rows`; of a join view `raised`; of a window view the fields of `WindowCounts`; of a view with a deadline those of
            `DeadlineCounts`. A missing count is 0. `standing`: see `penstock.monitor.slacks`.
        errors: tuples that the view lost because an expression raised.
        trouble: why it is not answered, as `trouble_of` reads it.
    """

    def count(what: str) -> int:
        return int(counts.get(what, 0))

    windows = deadline = None
    if kind == "window":
        windows = WindowCounts(count("early"), count("corrected"), count("final"))
    elif kind == "deadline":
        names = ("created", "released", "missed", "shed", "failed", "approximated")
        outcomes = (count(each) for each in names)
        deadline = DeadlineCounts(*outcomes)
    standing, slack = counts.get("standing") or {}, None
    if "slack_policy" in standing:
        slack = SlackStatus(standing["slack_policy"], standing["slack"] / 1e6, slack_reason(standing))
    lost = errors + count("raised")
    return ViewStatus(name, kind, stream, count("rows"), lost, windows, deadline, slack, trouble_of(trouble))


def trouble_of(document: Mapping[str, Any] | None) -> Trouble | None:
    """Read why a lane fails; None where it works."""
    if document is None:
        return None
    views = tuple(document.get("views") or ())
    return Trouble(document["state"], _time(document.get("since")), views, document.get("told") or "")


def _lag(document: Mapping[str, Any] | None) -> Lag | None:
    return None if document is None else Lag(document.get("backlog"), document.get("unit") or "")


def _outage(document: Mapping[str, Any] | None) -> Outage | None:
    if document is None:
        return None
    return Outage(document.get("source") or "", _time(document.get("since")), document.get("told") or "")


def _time(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)


def _moment(microseconds: int) -> datetime | None:
    try:
        return _EPOCH + timedelta(microseconds=microseconds)
    except OverflowError:
        # event times reach beyond the years that datetime has
        return None
