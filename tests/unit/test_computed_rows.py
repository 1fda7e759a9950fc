"""What workers compute of joined rows: which are matches, also of rows that are withdrawn, and the columns."""

from __future__ import annotations

import pyarrow as pa
import pytest

from penstock.operators.joins.changes import DELETE, INSERT, OP
from penstock.operators.joins.computed_rows import ComputedRows
from penstock.plan.joins import JoinOutput
from penstock.plan.scalar_trees import ColumnValue, Computation, Constant

A, B = ColumnValue("a", pa.int64()), ColumnValue("b", pa.int64())
#: a div b > 1, and a > 0
DIVIDED = Computation(
    "greater", (Computation("integral_divide", (A, B), pa.int64()), Constant(1, pa.int64())), pa.bool_()
)
POSITIVE = Computation("greater", (A, Constant(0, pa.int64())), pa.bool_())


def joined(ops: list[str]) -> pa.RecordBatch:
    return pa.record_batch(
        {
            "a": pa.array([4, 4, -4, 1, 4, None], pa.int64()),
            "b": pa.array([2, 0, -1, 1, None, 1], pa.int64()),
            OP: pa.array(ops),
        }
    )


@pytest.mark.parametrize(
    ("lasting", "kept", "lost"),
    [(None, [0, 1, 2, 3, 4, 5], 0), (POSITIVE, [0, 1, 3, 4], 0), (DIVIDED, [0, 2], 1)],
)
def test_withdrawn_rows_are_judged_by_what_lasts(
    lasting: Computation | None, kept: list[int], lost: int
) -> None:
    rows = joined([DELETE] * 6)
    found, raised = ComputedRows(DIVIDED, lasting, ()).matches(rows, has_changed=True)
    assert (found.to_pylist(), raised) == (rows.take(pa.array(kept)).to_pylist(), lost)


def test_rows_that_come_are_judged_by_the_whole_condition() -> None:
    rows = joined([INSERT, INSERT, DELETE, INSERT, DELETE, INSERT])
    computed = ComputedRows(DIVIDED, None, ())
    found, raised = computed.matches(rows, has_changed=True)
    assert (found.to_pylist(), raised) == (rows.take(pa.array([0, 2, 4])).to_pylist(), 1)
    found, raised = computed.matches(rows, has_changed=False)
    assert (found.to_pylist(), raised) == (rows.take(pa.array([0, 2])).to_pylist(), 1)


def test_columns_are_null_where_they_raise() -> None:
    divided = Computation("integral_divide", (A, B), pa.int64())
    outputs = [JoinOutput("a", "a", pa.int32(), "a"), JoinOutput("d", "a div b", pa.int64(), None)]
    columns = ComputedRows(None, None, (None, divided)).columns(joined([INSERT] * 6), outputs)
    assert columns[0] == pa.array([4, 4, -4, 1, 4, None], pa.int32())
    assert columns[1] == pa.array([2, None, 4, 1, None, None], pa.int64())
