"""What is done with the rows of an outer join that may be withdrawn, and the names of those.

Such a row is named by what its partners depend on and by the lane that tells it, so that who reads knows which ones are withdrawn. A row
of an ASOF JOIN is named by its partner too.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.operators.hashing import key_hashes, value_hashes
from penstock.plan.joins import JoinPlan

#: columns behind those of a row: what is done with it, and of one that may be withdrawn which it is; NULL for others
OP, ROW = "op", "_row"
#: values of OP
INSERT, DELETE = "insert", "delete"
#: the type of ROW: the anchor's event time and a hash of the lane and of what the row's partners depend on, 8 bytes each
_NAME = pa.binary(16)
_PARTNER = "_partner"


@dataclass(frozen=True, slots=True)
class Due:
    """Which rows without a partner a cut tells.

    Attributes:
        after: those whose anchor has an event time up to here were told with the cuts before, microseconds.
        until: those up to here are told now, no earlier.
    """

    after: int
    until: int


class RowNames:
    """Names rows that may be withdrawn; rows with the same partners have one name, as they are told and withdrawn alike.

    Args:
        plan: the join of streams with an optional one.
        lane: number of the lane.
        turned: whether the plan is that of a FULL OUTER JOIN turned round, whose rows are others than those of the plan.
    """

    def __init__(self, plan: JoinPlan, lane: int, turned: bool = False) -> None:
        self._lane = -1 - lane if turned else lane
        #: of the inputs before the optional one, on which it depends what a row meets: the anchor's event time first
        self.columns = _matched_by(plan)

    def of(self, rows: pa.RecordBatch, partners: npt.NDArray[np.uint64] | None = None) -> pa.Array:
        """ROW of rows.

        Args:
            rows: they have `columns`.
            partners: hashes by which their partners differ; None: they do not.
        """
        table = pa.table(rows)
        moments = table.column(self.columns[0]).combine_chunks().cast(pa.int64()).fill_null(0)
        names = list(self.columns)
        if partners is not None:
            table = table.append_column(_PARTNER, pa.array(partners.view(np.int64)))
            names.append(_PARTNER)
        hashes = key_hashes(table, names) ^ value_hashes(pa.array([self._lane]))
        words = np.stack([moments.to_numpy().view(np.uint64), hashes], axis=1)
        packed = pa.py_buffer(np.ascontiguousarray(words))
        return pa.FixedSizeBinaryArray.from_buffers(_NAME, len(table), [None, packed]).cast(pa.binary())


def marked(rows: pa.RecordBatch, op: str, names: pa.Array | None = None) -> pa.RecordBatch:
    """Rows with OP and ROW.

    Args:
        rows: the rows.
        op: what is done with them.
        names: of rows that may be withdrawn; None: these are not.
    """
    ops = pa.repeat(pa.scalar(op), rows.num_rows)
    names = pa.nulls(rows.num_rows, pa.binary()) if names is None else names
    return pa.RecordBatch.from_arrays([*rows.columns, ops, names], [*rows.schema.names, OP, ROW])


def _matched_by(plan: JoinPlan) -> tuple[str, ...]:
    right = len(plan.inputs) - 1
    times = [each.time for each in (plan.inputs[plan.anchor], *plan.inputs[:right])]
    keys = [
        name
        for key in plan.keys
        if key.columns[right] is not None
        for name in [column for column in key.columns[:right] if column is not None][:1]
    ]
    own = {column.name for each in plan.inputs[:right] for column in each.columns}
    sides = [{each.left, each.right} for each in plan.comparisons]
    compared = [name for both in sides if not both <= own for name in sorted(both & own)]
    return tuple(dict.fromkeys(name for name in (*times, *keys, *compared) if name is not None))
