"""Unpacking derived columns from words."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from penstock.operators.ingest.derived import DerivedLayout
from penstock.plan.expressions import Derived


def test_every_code_comes_out_of_its_place() -> None:
    rng = np.random.default_rng(7)
    derived = [Derived(f"v{number}", "", pa.bool_(), f"e{number}") for number in range(70)]
    derived.append(Derived("x", "", pa.float64(), "ex"))
    layout = DerivedLayout.of(derived)
    codes = rng.integers(0, 4, (71, 1000)).astype(np.uint64)
    words = [
        sum(
            (codes[start + place] << np.uint64(2 * place) for place in range(min(32, end - start))),
            start=np.zeros(1000, np.uint64),
        ).view(np.int64)
        for start, end in ((0, 70), (32, 70), (64, 70), (70, 71))
    ]
    names = [*layout.boolean_words, *layout.error_words]
    assert layout.columns == 1 + len(words) == 5
    batch = pa.RecordBatch.from_arrays(
        [pa.array(np.arange(1000.0)), *map(pa.array, words)], names=["x", *names]
    )
    for rows in (batch, batch.slice(3, 517)):
        first = int(rows["x"][0].as_py())
        unpacked = layout.unpack(rows)
        expected = codes[:, first : first + len(rows)]
        assert unpacked.num_columns == 1 + 2 * 70 + 1
        for number in range(70):
            value = [{0: False, 1: True}.get(code) for code in expected[number].tolist()]
            assert unpacked[f"v{number}"].to_pylist() == value
            assert unpacked[f"e{number}"].to_pylist() == (expected[number] == 3).tolist()
        assert unpacked["ex"].to_pylist() == (expected[70] == 3).tolist()


def test_nothing_derived_is_nothing_done() -> None:
    batch = pa.RecordBatch.from_pydict({"a": [1, 2]})
    assert DerivedLayout.of([]).unpack(batch).equals(batch)
