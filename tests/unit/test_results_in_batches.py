"""All rows of a view are printed in the memory of a few batches."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql.types import LongType, StringType, StructType

from penstock.cli.results import Asked, Format, _print_batches, _print_plain, results
from penstock.spark.results.read_plain import plain_rows
from penstock.spark.storage.formats import CATALOG, MANIFEST
from penstock.spark.storage.layout import Layout
from publishing import listed

FILES, ROWS = 12, 40_000


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A results folder with one view of plain columns, some 60 MB in memory."""
    output = tmp_path_factory.mktemp("batches") / "out"
    layout = Layout(output, output / "_penstock" / "checkpoint")
    layout.open()
    pair = StructType().add("x", LongType())
    stream = StructType().add("id", LongType()).add("note", StringType()).add("pair", pair)
    CATALOG.replace(
        layout.catalog,
        {
            "streams": {"s": json.loads(stream.json())},
            "views": {
                "v": {"stream": "s", "projection": None},
                "chosen": {"stream": "s", "projection": [["ID", "number"], ["pair", "pair"]]},
                "none": {"stream": "s", "projection": [["note", "note"]]},
                "computed": {"stream": "s", "projection": [["id + 1", "next"]]},
            },
        },
    )
    matches = layout.matches("s")
    matches.mkdir(parents=True)
    queries = pa.ListArray.from_arrays(np.arange(ROWS + 1, dtype=np.int32), pa.array(["v"] * ROWS))
    chosen = pa.array([["chosen"] if row < 3 else [] for row in range(ROWS)])
    for number in range(FILES):
        rows = {"id": np.arange(ROWS) + number * ROWS, "note": ["n" * 100] * ROWS, "queries": queries}
        if number == FILES - 2:
            rows |= {"pair": [{"x": row} for row in range(ROWS)], "queries": chosen}
        pq.write_table(pa.table(rows), matches / f"{number}.parquet")
        file = listed("matches", matches / f"{number}.parquet", ROWS)
        MANIFEST.replace(
            layout.manifests("s")[number],
            {"first": number, "last": number, "files": [file], "batches": []},
        )
    return layout.output


@pytest.mark.parametrize("form", [Format.CSV, Format.JSON])
def test_rows_are_printed_batch_by_batch(
    folder: Path, capfdbinary: pytest.CaptureFixture[bytes], form: Format
) -> None:
    before = pa.default_memory_pool()
    pool = pa.proxy_memory_pool(before)
    pa.set_memory_pool(pool)
    try:
        results(folder, "v", limit=0, output_format=form)
    finally:
        pa.set_memory_pool(before)
    lines = capfdbinary.readouterr().out.splitlines()
    assert len(lines) == (FILES - 1) * ROWS + (form is Format.CSV)
    assert str(FILES * ROWS - 1).encode() in lines[-1]
    assert pool.max_memory() < 40 << 20


@pytest.mark.parametrize("form", [Format.CSV, Format.JSON])
@pytest.mark.parametrize(("view", "rows"), [("chosen", 3), ("none", 0)])
def test_rows_are_printed_as_at_once(
    folder: Path, capfdbinary: pytest.CaptureFixture[bytes], view: str, rows: int, form: Format
) -> None:
    layout = Layout(folder, folder)
    assert _print_batches(layout, Asked(view.upper()), form) == rows
    printed = capfdbinary.readouterr().out
    found = plain_rows(layout, view, 0)
    assert found is not None
    assert found.count == rows
    assert _print_plain(layout, Asked(view), form) == rows
    assert printed == capfdbinary.readouterr().out
    assert len(printed.splitlines()) == rows + (form is Format.CSV)
    assert _print_batches(layout, Asked("computed"), form) is None
