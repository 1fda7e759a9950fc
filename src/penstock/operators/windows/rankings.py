"""Rankings as partials: the first tuples of each partition, merged by sorting.

Order is Spark's: NULL first or last as asked for, NaN above all numbers, -0.0 equal to 0.0, text by its bytes. Of tuples that are equal in all of it, the
one comes first whose other kept columns are smaller, in their order, NULL first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.operators.windows.aggregates import extreme_of
from penstock.operators.windows.flattening import flattened
from penstock.operators.windows.grouping import Longs, first_rows, group_codes, shared_codes
from penstock.operators.windows.rows import OVERFLOWED
from penstock.operators.windows.sorting import nulls_first, sortable
from penstock.plan.rankings import DENSE_RANK, KEPT, PLACE_TYPE, RANK, ROW_NUMBER, RankedPlan, Ranking

_LEAST = np.iinfo(np.int64).min
_LARGEST = np.iinfo(np.int64).max


@dataclass(frozen=True, slots=True, eq=False)
class Places:
    """The rows of a table in the order of a ranking.

    Attributes:
        order: int64[rows], the rows, those of a partition together.
        row_number, rank, dense_rank: int64[rows], of each of these.
    """

    order: Longs
    row_number: Longs
    rank: Longs
    dense_rank: Longs

    def of(self, function: str) -> Longs:
        """What a function of SQL gives."""
        return {ROW_NUMBER: self.row_number, RANK: self.rank, DENSE_RANK: self.dense_rank}[function]


@dataclass(frozen=True, slots=True)
class RankedParts:
    """What a ranking keeps of a group: in the place of `Parts`.

    Attributes:
        ranking: which tuples.
        columns: their columns, those of the order among them.
        time: the one whose largest value is when a group was touched last; None: nobody asks.
    """

    ranking: Ranking
    columns: tuple[str, ...]
    time: str | None = None

    @property
    def values(self) -> tuple[str, ...]:
        """Arguments whose single values are kept: none."""
        return ()

    def lift(self, tuples: pa.Table, keys: Sequence[str]) -> pa.Table:
        """The first tuples of each group.

        Args:
            tuples: the keys and columns.
            keys: columns that make a group; NULL is a key of its own.
        """
        rows = tuples.select([*keys, *self.columns])
        if self.time is not None:
            rows = rows.append_column(extreme_of("max", self.time), tuples.column(self.time))
        return self.merge(rows, keys)

    def merge(self, partials: pa.Table, keys: Sequence[str]) -> pa.Table:
        """The first tuples of each group, of any number of partials of it, in order."""
        return self._first(partials, keys)[0]

    def merge_new(
        self, old: pa.Table | None, new: pa.Table, keys: Sequence[str]
    ) -> tuple[pa.Table, pa.Table]:
        """The first tuples of each group, and what of them is to be stored beside what was known.

        Args:
            old: what was known of the groups, and maybe of others; None: nothing.
            new: what came.
            keys: columns that make a group.
        """
        known = 0 if old is None else old.num_rows
        merged, rows = self._first(new if old is None else pa.concat_tables([old, new]), keys)
        if self.time is None:
            return merged, merged.filter(pa.array(rows >= known))
        # that a group was touched is stored too, and one row of it is kept
        own, others = shared_codes([merged, new], keys)
        return merged, merged.filter(pa.array(np.isin(own, others)))

    def _first(self, partials: pa.Table, keys: Sequence[str]) -> tuple[pa.Table, Longs]:
        """The first tuples of each group, in order, and which rows they were."""
        touched = None if self.time is None else extreme_of("max", self.time)
        names = [*keys, *self.columns, *([] if touched is None else [touched])]
        partials = partials.select(names).combine_chunks()
        codes = group_codes(partials, keys)
        found = placed(partials, codes, self.ranking, self.columns)
        kept = found.order[found.of(self.ranking.function) <= self.ranking.limit]
        merged = partials.take(pa.array(kept))
        if touched is not None:
            newest = _newest(partials.column(touched), codes)[codes[kept]]
            times = pa.array(newest, mask=newest == _LEAST).cast(merged.column(touched).type)
            merged = merged.set_column(merged.num_columns - 1, touched, times)
        return merged, kept


def placed(table: pa.Table, codes: Longs, ranking: Ranking, columns: Sequence[str]) -> Places:
    """The order of the rows of a table.

    Args:
        table: with the columns.
        codes: int64[rows], the group of each.
        ranking: by what.
        columns: those that order rows that are equal in it.
    """
    keys: list[Longs] = [codes]
    for each in ranking.order:
        column = table.column(each.argument)
        if column.null_count:
            missing = column.is_null().to_numpy()
            keys.append((missing != each.nulls_first).astype(np.int64))
        numbers = sortable(column)
        keys.append(~numbers if each.is_descending else numbers)
    first, *rest = _packed(keys)
    order: Longs = np.argsort(first)
    ties = _steps(first[order])
    if rest and not ties.all():
        rows = _tied(ties)
        _refine(order, ties, rows, [each[order[rows]] for each in rest])
    if not ties.all():
        rows = _tied(ties)
        others = [name for name in columns if name not in {each.argument for each in ranking.order}]
        tied = flattened(table.select(others).take(pa.array(order[rows])))
        _refine(order, ties.copy(), rows, [key for column in tied.columns for key in nulls_first(column)])
    begins = _steps(codes[order])
    place = np.arange(len(order))
    start = np.maximum.accumulate(np.where(begins, place, 0)) if len(order) else place
    tie = np.maximum.accumulate(np.where(ties, place, 0)) if len(order) else place
    distinct: Longs = np.cumsum(ties)
    dense: Longs = distinct - distinct[start] + 1
    return Places(order, place - start + 1, tie - start + 1, dense)


def ranked_rows(plan: RankedPlan, kept: pa.Table) -> pa.Table:
    """The results of a ranking: keys, `_a0`, `_a1`, ..., OVERFLOWED.

    Args:
        plan: the view.
        kept: tuples as `RankedParts.merge` gives them.
    """
    grouping = [name for name, _ in plan.grouping]
    own = [name for name in kept.column_names if name not in grouping]
    found = placed(kept, group_codes(kept, grouping), plan.ranking, own)
    rows = kept.take(pa.array(found.order))
    made = {name: rows.column(name) for name in grouping}
    made |= {name: pa.array(found.row_number).cast(kind) for name, kind in plan.keys[len(grouping) :]}
    for number, each in enumerate(plan.aggregates):
        is_kept = each.function == KEPT and each.argument is not None
        made[f"_a{number}"] = (
            rows.column(each.argument) if is_kept else pa.array(found.of(each.function)).cast(PLACE_TYPE)
        )
    return pa.table({**made, OVERFLOWED: np.zeros(rows.num_rows, np.bool_)})


def without_a_row(told: pa.Table, now: pa.Table, plan: RankedPlan) -> tuple[pa.Table, pa.Table]:
    """Places that have no row any more: as rows without values, which no condition keeps, and what was said of them.

    Args:
        told, now: `ranked_rows` of the same groups, before and now.
        plan: the view.
    """
    keys = [name for name, _ in plan.keys]
    old, new = shared_codes([told, now], keys)
    gone = told.filter(pa.array(~np.isin(old, new)))
    values = {name: pa.nulls(gone.num_rows, gone.schema.field(name).type) for name in gone.column_names}
    values |= {name: gone.column(name) for name in (*keys, OVERFLOWED)}
    return pa.table(values), gone


def _packed(keys: Sequence[Longs]) -> list[Longs]:
    """Fewer numbers that order rows as some keys do, one after the other."""
    found: list[Longs] = []
    room = 0
    for key in keys:
        least, largest = (int(key.min()), int(key.max())) if len(key) else (0, 0)
        values = largest - least + 1
        if found and values <= room:
            found[-1] = found[-1] * values + (key - least)
            room //= values
        elif values <= _LARGEST:
            found.append(key - least)
            room = _LARGEST // values
        else:
            found.append(key)
            room = 0
    return found


def _steps(ordered: Longs) -> npt.NDArray[np.bool_]:
    """bool[rows]: where a row differs from the one before it."""
    return np.append(True, ordered[1:] != ordered[:-1])[: len(ordered)]


def _tied(ties: npt.NDArray[np.bool_]) -> Longs:
    """The places of rows that are equal to one beside them, given where a row differs from the one before it."""
    return np.flatnonzero(~ties | np.append(~ties[1:], False)[: len(ties)])


def _refine(order: Longs, ties: npt.NDArray[np.bool_], rows: Longs, keys: Sequence[Longs]) -> None:
    """Orders rows that are equal so far by further keys, in place.

    Args:
        order: the rows.
        ties: where a row differs from the one before it.
        rows: the places of rows that are equal to one beside them.
        keys: of these rows.
    """
    inner = np.lexsort([*keys[::-1], np.cumsum(ties)[rows]])
    order[rows] = order[rows][inner]
    for key in keys:
        ties[rows] |= _steps(key[inner])


def _newest(times: pa.ChunkedArray, codes: Longs) -> Longs:
    """int64[groups], the largest time of each, `_LEAST` where it has none."""
    found = np.full(len(first_rows(codes)), _LEAST)
    np.maximum.at(found, codes, pc.fill_null(times.cast(pa.int64()), _LEAST).to_numpy())
    return found
