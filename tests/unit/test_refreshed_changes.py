"""What is told of a refreshed view: multisets, compared."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc
from hypothesis import given
from hypothesis import strategies as st

from penstock.operators.joins.changes import DELETE, INSERT
from penstock.spark.lanes.refreshed.changes import changed, named_schema, standing

OWN = pa.schema(
    [
        ("k", pa.string()),
        ("x", pa.float64()),
        ("pair", pa.struct([("a", pa.int64()), ("b", pa.list_(pa.string()))])),
    ]
)
ROW = st.fixed_dictionaries(
    {
        "k": st.sampled_from(["a", "b", None]),
        "x": st.sampled_from([0.5, float("nan"), None]),
        "pair": st.sampled_from([None, {"a": 1, "b": ["x"]}, {"a": None, "b": None}]),
    }
)


def bag(table: pa.Table) -> Counter[str]:
    """The rows, counted."""
    return Counter(map(repr, table.select(OWN.names).to_pylist()))


def newest_first(tables: list[pa.Table]) -> Iterator[pa.RecordBatch]:
    """The rows of files."""
    return (batch for table in reversed(tables) for batch in reversed(table.to_batches()))


@given(st.lists(st.lists(ROW, max_size=8), min_size=1, max_size=4))
def test_what_is_told_comes_to_the_newest_answer(answers: list[list[dict[str, object]]]) -> None:
    now = named_schema(OWN).empty_table()
    told = []
    for cut, rows in enumerate(answers):
        before, answer = bag(now), pa.Table.from_pylist(rows, OWN)
        change = changed(now, answer, cut)
        ops = Counter(change.rows.column("op").to_pylist())
        assert (ops[INSERT], ops[DELETE]) == (change.inserted, change.deleted)
        assert change.inserted == (bag(answer) - before).total()
        assert change.deleted == (before - bag(answer)).total()
        assert bag(change.now) == bag(answer)
        told.append(change.rows)
        now = change.now
        every = pa.concat_tables(told)
        assert bag(standing(newest_first(told), OWN, answer.num_rows)) == bag(answer)
        assert bag(standing(newest_first([every]), OWN, answer.num_rows)) == bag(answer), "of a merged file"
        inserted = every.filter(pc.equal(every.column("op"), INSERT)).column("_row").to_pylist()
        assert len(set(inserted)) == len(inserted), "each row has a name of its own"


def test_columns_that_are_called_like_marks() -> None:
    own = pa.schema([("op", pa.string())])
    change = changed(named_schema(own).empty_table(), pa.table({"op": ["x", "x"]}), 3)
    assert change.rows.num_rows == 2
    assert standing(newest_first([change.rows]), own, 2).column("op").to_pylist() == ["x", "x"]


def test_no_row_is_read_that_is_older_than_the_answer() -> None:
    own = pa.schema([("x", pa.int64())])
    told, now = [], named_schema(own).empty_table()
    for cut in range(50):
        change = changed(now, pa.table({"x": [cut, cut]}), cut)
        told.append(change.rows)
        now = change.now
    read = []
    batches = (read.append(1) or batch for batch in newest_first(told))
    assert standing(batches, own, 2).column("x").to_pylist() == [49, 49]
    assert len(read) <= 2
