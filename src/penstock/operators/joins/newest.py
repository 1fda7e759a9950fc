"""The newest partner of each joined row in an input with versions: by event time, among equal ones by their values.

Algorithm card. Parts are sorted by key and event time, so the newest partner in a part is the last of a range. Ranges are read from
their ends, one row at first, then twice as many each time, until a row satisfies the other conditions and those before it are older.
Time: a search a part, and twice the rows that are passed over. Space: 100 bytes a row and part.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.kernels.gather import Ids
from penstock.kernels.partners import Ranges, step_back
from penstock.operators.hashing import key_hashes
from penstock.operators.joins.measures import timing
from penstock.operators.joins.steps import Ints, Probe, Rows, Step
from penstock.operators.joins.tuples import CellTuples
from penstock.operators.windows.flattening import flattened
from penstock.plan.joins import JoinPlan

#: the id of a partner where there is none
NOTHING = -1
#: carried along: which row of those that search, and which pair
_PLACE, _PAIR = -1, -2
_OLDEST = -(2**63)


@dataclass(frozen=True, slots=True, eq=False)
class Versions:
    """The newest partners of some rows.

    Attributes:
        ids: int64[rows], NOTHING where a row has none.
        times: int64[rows], their event times, microseconds.
    """

    ids: Ids
    times: Ints


class Identities:
    """Tells versions of one event time apart, and orders them: by a hash of all that is kept of them, as it does not matter which is first.

    Args:
        plan: the join.
    """

    def __init__(self, plan: JoinPlan) -> None:
        #: names of the columns that are looked at
        self.columns = tuple(column.name for column in plan.inputs[-1].columns)

    def of(self, tuples: CellTuples, ids: Ids) -> npt.NDArray[np.uint64]:
        """The hashes of some tuples."""
        return self.of_rows(pa.table({name: tuples.column(name).take(ids) for name in self.columns}))

    def of_rows(self, rows: pa.Table) -> npt.NDArray[np.uint64]:
        """The hashes of the tuples in some rows, which have the columns."""
        flat = flattened(rows.select(self.columns))
        return key_hashes(flat, flat.column_names)


class NewestStep(Step):
    """A step into an input with versions; it is searched by merge."""

    def newest(self, rows: Rows, identities: Identities) -> Versions:
        """The newest partner of each of some joined rows."""
        count = len(next(iter(rows.values())))
        found = Versions(np.full(count, NOTHING), np.full(count, _OLDEST))
        if not count:
            return found
        with timing(self._measure):
            self._measure.tuples += count
            probe = self._probe({**rows, _PLACE: np.arange(count)})
            if len(probe.numbers):
                at, ids, times = self._last_of(probe, identities)
                places = probe.rows[_PLACE][at]
                found.ids[places], found.times[places] = ids, times
        return found

    def _last_of(self, probe: Probe, identities: Identities) -> tuple[Ints, Ids, Ints]:
        """Rows of a probe that have partners, each once with the newest one and its event time."""
        ranges, used = self._ranges(probe)
        best = np.full(len(probe.numbers), _OLDEST)
        pairs: list[tuple[Ints, Ids, Ints]] = []
        most = 1
        while used:
            most = max(1, min(most, self._piece_rows // used))
            which, ids = np.empty(used * most, np.int32), np.empty(used * most, np.int64)
            filled = step_back(ranges, used, most, *self._target.entries, which, ids)
            which, ids = which[:filled], ids[:filled]
            self._measure.looked += filled
            places = ranges.tuples[which]
            times = self._target.times.words(ids)
            assert times is not None, "event times are whole numbers"
            good = self._judged({**self._joined(probe, places, ids), _PAIR: np.arange(filled)})[_PAIR]
            np.maximum.at(best, places[good], times[good])
            pairs.append((places[good].astype(np.int64), ids[good], times[good]))
            # later rows of the range may be as new as the best one
            oldest = np.full(used, np.iinfo(np.int64).max)
            np.minimum.at(oldest, which, times)
            used = _left(ranges, used, oldest >= best[ranges.tuples[:used]])
            most *= 2
        at, ids, times = (
            (np.concatenate([np.zeros(0, np.int64), *own]) for own in zip(*pairs, strict=True))
            if pairs
            else _no_pairs()
        )
        is_best = times == best[at]
        at, ids, times = at[is_best], ids[is_best], times[is_best]
        if len(np.unique(at)) < len(at):
            order = np.lexsort((identities.of(self._target, ids), at))
            is_last = np.append(at[order][1:] != at[order][:-1], True)
            chosen = order[is_last]
            at, ids, times = at[chosen], ids[chosen], times[chosen]
        return at, ids, times


def is_newer(
    new: Versions, old: Versions, tuples: CellTuples, identities: Identities
) -> npt.NDArray[np.bool_]:
    """Of which rows the first of two versions is the newer one, bool[rows].

    Args:
        new, old: of the same rows, both of `tuples`.
        tuples: the tuples of the input.
        identities: order versions of one event time.
    """
    found: npt.NDArray[np.bool_] = (new.ids != NOTHING) & ((old.ids == NOTHING) | (new.times > old.times))
    (same,) = np.nonzero((new.ids != NOTHING) & (old.ids != NOTHING) & (new.times == old.times))
    if len(same):
        found[same] = identities.of(tuples, new.ids[same]) > identities.of(tuples, old.ids[same])
    return found


def _left(ranges: Ranges, used: int, goes_on: Sequence[bool] | npt.NDArray[np.bool_]) -> int:
    """Moves the ranges with rows that are to be looked at to the front; their number."""
    (kept,) = np.nonzero((ranges.counts[:used] > 0) & goes_on)
    for own in ranges:
        own[: len(kept)] = own[kept]
    return len(kept)


def _no_pairs() -> tuple[Ints, Ids, Ints]:
    return np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0, np.int64)
