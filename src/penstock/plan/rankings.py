"""Rankings: running views that keep the first tuples of each partition."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from penstock.plan.windows import WindowPlan

ROW_NUMBER, RANK, DENSE_RANK = "row_number", "rank", "dense_rank"
#: functions that rank
RANKINGS = (ROW_NUMBER, RANK, DENSE_RANK)
#: in the place of an aggregate's function: its argument is a column of the kept tuples
KEPT = "kept"
#: the type of a place, as Spark gives it
PLACE_TYPE = pa.int32()


@dataclass(frozen=True, slots=True)
class OrderKey:
    """A column that tuples of a partition are ordered by.

    Attributes:
        argument: the column.
        is_descending: whether the largest value is the first.
        nulls_first: whether NULL is.
    """

    argument: str
    is_descending: bool
    nulls_first: bool


@dataclass(frozen=True, slots=True)
class Ranking:
    """Which tuples of a partition are kept.

    Attributes:
        function: one of `RANKINGS`.
        order: what they are ordered by.
        limit: the largest place that is kept, at least 1.
    """

    function: str
    order: tuple[OrderKey, ...]
    limit: int

    @property
    def is_one_row(self) -> bool:
        """Whether at most one tuple of a partition is kept: the partition alone tells rows apart."""
        return self.function == ROW_NUMBER and self.limit == 1


@dataclass(frozen=True, slots=True, kw_only=True)
class RankedPlan(WindowPlan):
    """A ranking over the columns of a batch.

    Its `keys` are those of the partition and, unless one row is kept, the row number. Its aggregates are columns of the kept tuples (`KEPT`), and
    the place by the name of the function.

    Attributes:
        ranking: which tuples are kept.
    """

    ranking: Ranking

    @property
    def grouping(self) -> tuple[tuple[str, pa.DataType], ...]:
        """Likewise, without the row number."""
        return self.keys if self.ranking.is_one_row else self.keys[:-1]
