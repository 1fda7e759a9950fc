"""What the operator says of windows: answers, how far views have come, and late tuples counted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from penstock.plan.times import BEFORE_ALL
from penstock.plan.windows import ErrorBound


@dataclass(frozen=True, slots=True, eq=False)
class Answer:
    """Results of one window.

    Attributes:
        view: name of the view.
        start, end: the window.
        revision: 0 for the early answer.
        final: whether all tuples are known.
        slack: the time the stream had come to, or was taken to have come to, less the window's end when this was
            answered; negative where the window was answered before its end.
        coverage: estimated share of the window's tuples that are in it; None where nothing can be promised: too few
            windows are known, this one was answered beforehand, or it may hold tuples of batches before the
            operator's first one.
        promised: whether the view's bound can be promised.
        rows: see `rows.window_rows`; of a correction, those that changed.
        replaced: what the revision before said of the groups in `rows`, if anything.
        withdrawn: whether the rows, as they were published, are rows no more.
    """

    view: str
    start: int
    end: int
    revision: int
    final: bool
    slack: int
    coverage: float | None
    promised: bool
    rows: pa.Table
    replaced: pa.Table
    withdrawn: bool = False


@dataclass(frozen=True, slots=True)
class Standing:
    """How far a view has come in one shard, times in microseconds.

    Attributes:
        slack: K: a window is answered when its end is so far behind `newest`; never longer than the horizon.
        promised: whether the view's bound can be promised.
        has_windows: whether the shard has windows of the view, or has learned from some; of a view with few groups not every shard has.
        horizon: a window is final when its end is so far behind `newest`.
        newest: the newest event time seen, or None.
        reached: the event time that the stream is taken to have come to, or None; beyond `newest` while it is silent.
        open: windows with tuples that are not final.
        oldest: end of the oldest of them, or None.
        final: windows that end by then are final, but for those that lack tuples of the batches before the operator's
            first one.
        coverage: expected share of a window's tuples that an early answer contains; None before that is known.
        final_from: no window is final before `newest` is there, as the stream was observed too briefly; None before any tuple.
        bound: the error that its early answers may have.
        policy: the slack policy that chooses K.
        figures: what K follows from, see `SlackPolicy.figures`.
    """

    slack: int
    promised: bool
    has_windows: bool
    horizon: int
    newest: int | None
    reached: int | None
    open: int
    oldest: int | None
    final: int
    final_from: int | None
    coverage: float | None
    bound: ErrorBound
    policy: str = "required"
    figures: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Progress:
    """How far the windows of a view are answered, for those who read the answers; in microseconds.

    Of a join view: how far rows are told by their latest event time, as if each were a window that ends just behind it.

    Attributes:
        closed: every window that ends by then has been told, but for what late tuples add.
        beforehand: the like for now: tuples that are not late may still add to windows that end by then.
        final: what was told of every window that ends by then is final.
        operator: which one has told it, of a join view the number of its lane; -1: nobody has told anything.
    """

    closed: int = BEFORE_ALL
    beforehand: int = BEFORE_ALL
    final: int = BEFORE_ALL
    operator: int = -1

    @classmethod
    def least(cls, all_: Sequence[Progress]) -> Progress:
        """What holds for all of several parts of a view; of none nothing is known."""
        if not all_:
            return cls()
        return cls(*(min(getattr(each, name) for each in all_) for name in cls.__slots__))


@dataclass(slots=True)
class LateCounts:
    """Late tuples since the last report.

    Attributes:
        registered: (tuple, closed window) pairs registered for correction.
        beyond: those of them whose window was final already.
        before: pairs of windows that were over before the view began: it does not count these tuples.
    """

    registered: int = 0
    beyond: int = 0
    before: int = 0

    def add(self, other: LateCounts) -> None:
        """Adds the counts of another operator or shard."""
        self.registered += other.registered
        self.beyond += other.beyond
        self.before += other.before
