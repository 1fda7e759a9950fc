"""A task takes a batch of more matches than it may hold at once in pieces: each match once, in order."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from penstock.operators.ingest import map_stage
from penstock.operators.ingest.outcomes import Outcomes
from penstock.operators.ingest.stream_program import StreamProgram
from penstock.operators.selection.selector import compile_selections
from penstock.settings import Settings
from penstock.spark.publication.staged import BatchFiles
from penstock.spark.storage.layout import Layout
from penstock.spark.tasks.worker import Task, TaskContextData
from penstock.sql.conditions.bind import bind_selections

pytestmark = pytest.mark.spark

SCHEMA = pa.schema({"a": pa.int32(), "note": pa.string()})


def test_a_batch_of_too_many_matches_is_staged_in_pieces(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    conditions = {f"q{number}": f"a >= {number}" for number in range(20)}
    bound = bind_selections(conditions, SCHEMA, None)
    program = StreamProgram(
        "s",
        1,
        compile_selections(bound.selections),
        Outcomes.numbered(20),
        ("a", "note"),
        None,
        None,
        Settings(),
    )
    values = np.random.default_rng(1).integers(-5, 25, 300)
    batch = pa.record_batch({"a": values, "note": [f"n{row}" for row in range(300)]}, SCHEMA)
    broadcast = spark.sparkContext.broadcast(pickle.dumps(program))
    monkeypatch.setattr(map_stage, "MOST_PAIRS", 100)
    layout = Layout.of(tmp_path / "out", None)
    store = BatchFiles.of(layout, "s", None, 0)
    task = Task(TaskContextData(("pieces", 1), broadcast, None, store, 0, 2**62, -(2**62), 0, -(2**62)), 0)
    task.process(batch, lambda mask, columns: batch.select(list(columns)).filter(pa.array(mask)))
    report = task.report()
    broadcast.destroy()
    (file,) = report.files
    staged = pq.read_table(layout.matches("s") / file.name)
    expected = [
        {"a": int(value), "note": f"n{row}", "queries": [f"q{n}" for n in range(min(20, int(value) + 1))]}
        for row, value in enumerate(values)
        if value >= 0
    ]
    assert staged.to_pylist() == expected
    counts = report.counts
    assert (counts.tuples, counts.matched) == (300, len(expected))
    assert counts.pairs == file.pairs == sum(len(row["queries"]) for row in expected)
