"""How many rows were set aside with files: as many as their footers say, or an unknown number, and never 0."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.orc as orc
import pyarrow.parquet as pq
import pytest

from penstock.monitor.news import event_line
from penstock.spark.ingest.batch_events import BatchEvents
from penstock.spark.sources.offenders import rows_in_footer
from penstock.spark.storage.events import EventLog
from penstock.spark.tasks.worker import SetAside


@pytest.mark.parametrize(
    ("rows", "told"),
    [
        ((None,), "1 file or row group unreadable, number of rows unknown"),
        ((1_500,), "1 file or row group unreadable, 1,500 rows skipped"),
        ((1_500, 1), "2 files or row groups unreadable, 1,501 rows skipped"),
        (
            (None, 20),
            "2 files or row groups unreadable, 20 rows skipped in 1 of them, number unknown in the others",
        ),
    ],
)
def test_the_event_says_what_is_known(tmp_path: Path, rows: tuple[int | None, ...], told: str) -> None:
    log = EventLog(tmp_path / "events.jsonl")
    found = [SetAside(f"file:/data/{number}.csv", None, own, "torn") for number, own in enumerate(rows)]
    BatchEvents("s", log).set_aside(3, found)
    (event,) = [json.loads(line) for line in (tmp_path / "events.jsonl").read_text().splitlines()]
    assert event["told"].startswith(f"{told}; first file:/data/0.csv")
    assert event["rows"] == (sum(own or 0 for own in rows) or None)
    assert "rows 0" not in event_line(event)


def test_a_footer_knows_its_rows(tmp_path: Path) -> None:
    table = pa.table({"id": list(range(30))})
    pq.write_table(table, tmp_path / "1.parquet")
    with (tmp_path / "1.orc").open("wb") as file:
        orc.write_table(table, file)
    (tmp_path / "torn.orc").write_bytes((tmp_path / "1.orc").read_bytes()[:40])
    (tmp_path / "torn.parquet").write_bytes((tmp_path / "1.parquet").read_bytes()[:40])
    for name, kind, rows in (
        ("1.parquet", "Parquet", 30),
        ("1.orc", "ORC", 30),
        ("torn.parquet", "Parquet", None),
        ("torn.orc", "ORC", None),
        ("1.orc", "csv", None),
        ("gone.orc", "ORC", None),
    ):
        assert rows_in_footer(f"file:{tmp_path}/{name}", kind) == rows
