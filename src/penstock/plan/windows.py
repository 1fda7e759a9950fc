"""Window views as the operators see them: windows over event time, keys, aggregates, the error bound."""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.plan.slack import SlackChoice


@dataclass(frozen=True, slots=True)
class Windows:
    """Tumbling or sliding windows over event time, as Spark's `window` function lays them, or cumulating ones.

    A window is [start, start + size), its start a multiple of `slide` from `start`. All in microseconds;
    `start` counts from the epoch and lies in [0, slide). Cumulating windows have the ends of sliding ones, and each begins at the
    newest multiple of `size` before its end.

    Attributes:
        size: length of a window, > 0; of cumulating ones the largest one.
        slide: distance between the ends of two windows, 0 < slide <= size.
        start: offset of the windows' starts.
        is_cumulating: whether those between two multiples of `size` begin together; `size` is a multiple of `slide`.
    """

    size: int
    slide: int
    start: int = 0
    is_cumulating: bool = False

    @property
    def pane(self) -> int:
        """Length of panes that are all as long: every window is a whole number of them."""
        return gcd(self.size, self.slide)

    def panes_of(self, moments: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Starts of the panes that hold some moments, if panes are as long as they can be: from one edge of any window to the next."""
        first = (moments - self.start) // self.slide * self.slide + self.start
        # starts of windows lie there, and ends so far behind
        ends = first + self.size % self.slide
        return np.where(moments < ends, first, ends)

    def ends(self, moment: int) -> range:
        """Ends of the windows that hold a moment, ascending."""
        if self.is_cumulating:
            first = (moment - self.start) // self.slide * self.slide + self.start + self.slide
            return range(first, self.last_end(moment) + 1, self.slide)
        last = (moment - self.start) // self.slide * self.slide + self.start + self.size
        return range(last - (last - moment - 1) // self.slide * self.slide, last + 1, self.slide)

    def begin(self, end: int) -> int:
        """Where the window begins that ends then."""
        if self.is_cumulating:
            return (end - 1 - self.start) // self.size * self.size + self.start
        return end - self.size

    def last_end(self, moment: int) -> int:
        """The latest end that a window may have which begins by a moment."""
        if self.is_cumulating:
            return (moment - self.start) // self.size * self.size + self.start + self.size
        return moment + self.size

    @property
    def spans(self) -> Windows:
        """The same for all windows that begin at the same time if they end at the same time."""
        return self if self.is_cumulating else Windows(self.size, self.size)


#: in the place of a function, of a view that allows approximate answers: by how much another aggregate of it may be off
ERROR_BOUND = "error_bound"
#: aggregates of two columns: the value of one where the other is largest or least
PICKING = frozenset({"max_by", "min_by"})
#: aggregates of the tuples in which two columns are both there
PAIRED = frozenset(
    {"covar_pop", "covar_samp", "corr", "regr_slope", "regr_intercept", "regr_r2"}
    | {"regr_sxx", "regr_syy", "regr_sxy"}
)
#: in the place of windows: one that holds every tuple, whatever its event time
ALL_TIME = Windows(1 << 62, 1 << 62)


@dataclass(frozen=True, slots=True)
class Aggregate:
    """One aggregate of a window view.

    Attributes:
        function: canonical name in lower case, such as "count", "avg", "stddev_samp" (see
            `penstock.operators.windows.aggregates`).
        argument: the column of the batches it is computed from; None for COUNT(*).
        type: the type of its result, as Spark gives it.
        parameter: the fraction of a percentile, else None.
        accuracy: of a sketch: the relative standard deviation of a distinct count, the inverse of the rank error of
            a percentile; else None.
        by: of an aggregate of `PICKING` the column that decides, of one of `PAIRED` the second one, else None.
    """

    function: str
    argument: str | None
    type: pa.DataType
    parameter: float | None = None
    accuracy: float | None = None
    by: str | None = None

    @property
    def arguments(self) -> tuple[str, ...]:
        """The columns of the batches it is computed from."""
        return tuple(each for each in (self.argument, self.by) if each is not None)


@dataclass(frozen=True, slots=True)
class GroupingSet:
    """One of the ways in which a view with GROUPING SETS, ROLLUP or CUBE groups its tuples.

    Attributes:
        keys: numbers of the keys by which it groups, ascending; the others are NULL in its rows.
        id: its grouping ID, as Spark's `grouping_id()` gives it; no other set of the view has it.
    """

    keys: tuple[int, ...]
    id: int


#: the type of a grouping ID, as Spark gives it
GROUPING_ID_TYPE = pa.int64()


@dataclass(frozen=True, slots=True)
class ErrorBound:
    """P(error of an early result >= epsilon) <= delta.

    Attributes:
        epsilon: bound of the relative error, in (0, 1); if `absolute`, in units of the value, > 0.
        delta: probability, in (0, 1).
        absolute: whether epsilon is absolute.
    """

    epsilon: float
    delta: float
    absolute: bool = False


@dataclass(frozen=True, slots=True)
class WindowPlan:
    """A window view over the columns of a batch, or a running view: an aggregation without a window.

    Attributes:
        name: the view's name.
        time: the event time column, timestamp in microseconds; "" of a running view whose rows are groups.
        windows: which windows; `ALL_TIME` of a running view.
        keys: (column, type) of each grouping key but the window, in order; with grouping sets the last one is the grouping ID, which is
            no column of a batch.
        aggregates: what is computed a window and group.
        bound: the error its early answers may have.
        selection: number of its condition among those of its operator, None where all tuples of the operator are its own.
        slack: which policy chooses how long its windows wait for late tuples; None: the default one.
        gap: of a running view whose rows are sessions: how long after its newest tuple one ends, microseconds.
        sets: the grouping sets; none: all keys together are the one way to group.
    """

    name: str
    time: str
    windows: Windows
    keys: tuple[tuple[str, pa.DataType], ...]
    aggregates: tuple[Aggregate, ...]
    bound: ErrorBound
    selection: int | None = None
    slack: SlackChoice | None = None
    gap: int | None = None
    sets: tuple[GroupingSet, ...] = ()

    @property
    def is_running(self) -> bool:
        """Whether it is a running view."""
        return self.windows == ALL_TIME

    @property
    def grouping(self) -> tuple[tuple[str, pa.DataType], ...]:
        """(column, type) of the keys by which tuples are grouped."""
        return self.keys

    @property
    def computed(self) -> tuple[tuple[str, pa.DataType], ...]:
        """(column, type) of those that are columns of a batch."""
        return self.grouping[:-1] if self.sets else self.grouping

    @property
    def slack_policy(self) -> SlackChoice:
        """The policy that chooses the slack."""
        return self.slack or SlackChoice()
