"""JSON files that workers read and decode give the rows and the quarantine that Spark's reader gives."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from json_records import COLUMNS, good_record, records
from penstock.spark.engine import Engine
from whole_runs import run_to_end

pytestmark = pytest.mark.spark

RECORDS, A_FILE = 1_600, 40
#: ends of lines, bytes that stand for others, records on one line, and files without any
ODD_FILES = {
    "crlf": b'{"id":1,"s":"a"}\r\n{"id":2}\r\n\r\n{"id":"x"}\r\n',
    "returns": b'{"id":1,"s":"b"}\r{"id":2}\r{"id":bad}\r{"id":3}',
    "return in a record": b'{"id":1,\r"s":"a"}\n{"id":2}\n',
    "marked": b'\xef\xbb\xbf{"id":1,"s":"marked"}\n{"id":2}\n',
    "blank": b'\n\n   \n{"id":1}\n\t\n\n',
    "unended": b'{"id":1,"s":"c"}\n{"id":2,"s":"d"}',
    "replaced": '{"id":1,"s":"\ufffd"}\n{"id":2,"s":"a"}\n{"id":3,"z":"\\ufffd"}\n{"id":4,"y":"\ufffd"}\n'.encode(),
    "latin": b'{"id":1,"s":"caf\xe9"}\n{"id":2,"s":"a"}\n{"id":3,"y":"\xe9"}\n',
    "arrays": b'[{"id":1,"s":"a"},{"id":2,"s":"b"}]\n{"id":3,"s":"c"}\n[]\n[{"id":4},5]\n',
    "twice": b'{"id":1,"z":"a","z":"b"}\n{"id":1,"s":"a","s":"b"}\n{"id":1,"id":2}\n',
    "kinds": b'{"id":1,"z":1.50}\n{"id":2,"z":{"a": [1, true]}}\n{"id":3,"z":null}\n{"id":4,"z":"text"}\n',
    "empty": b"",
}


def answered(
    spark: SparkSession, folder: Path, out: Path, *, in_worker: bool
) -> tuple[Counter[tuple[object, ...]], Counter[tuple[object, ...]]]:
    """The rows of all views and what is quarantined."""
    engine = Engine(spark, decode_in_worker=in_worker, retry_attempts=0)
    views = ["wide", "narrow", "texts"]
    engine.execute(
        f"CREATE TABLE w ({COLUMNS}, z STRING) USING json OPTIONS (path '{folder}');"
        f"CREATE TABLE n ({COLUMNS}) USING json OPTIONS (path '{folder}');"
        "CREATE VIEW wide AS SELECT * FROM w WHERE id > 0 OR x > 1;"
        "CREATE VIEW narrow AS SELECT * FROM n WHERE id IS NOT NULL;"
        "CREATE VIEW texts AS SELECT s, t FROM n WHERE s ILIKE '%a%' OR s IS NULL;"
    )
    run = run_to_end(engine, out, seconds=600)
    rows = Counter((view, *map(repr, row)) for view in views for row in run.results(view).collect())
    aside = Counter(
        (stream, row["record"], row["origin"], row["reason"])
        for stream in ("w", "n")
        for path in (out / "quarantine" / stream).glob("*.parquet")
        for row in pq.read_table(path).to_pylist()
    )
    return rows, aside


def test_workers_and_spark_agree_on_every_line(spark: SparkSession, tmp_path: Path) -> None:
    folder = tmp_path / "in folder"
    folder.mkdir()
    drawn = random.Random(5)
    made = records(RECORDS)
    for first in range(0, RECORDS, A_FILE):
        # two files in three are good but for one record
        own = made[first : first + A_FILE]
        if first // A_FILE % 3:
            own = [*(good_record(drawn) for _ in own[1:]), own[0]]
        (folder / f"{first}.json").write_bytes(b"\n".join(own))
    for name, text in ODD_FILES.items():
        (folder / f"{name}.json").write_bytes(text)
    rows, aside = answered(spark, folder, tmp_path / "worker", in_worker=True)
    expected_rows, expected_aside = answered(spark, folder, tmp_path / "spark", in_worker=False)
    assert rows - expected_rows == expected_rows - rows == Counter()
    assert aside - expected_aside == expected_aside - aside == Counter()
    assert len(rows) > 1_000
    assert len(aside) > 200


@pytest.mark.parametrize(
    ("columns", "option", "place"),
    [
        ("id BIGINT, s STRING", "", "fast path: Python workers read and decode the JSON files"),
        ("id BIGINT", ", multiLine 'false'", "the option multiline needs its reader"),
        ("id BIGINT, day DATE", "", "only Spark decodes the type of a column"),
    ],
)
def test_explain_names_the_place_and_the_reason(
    spark: SparkSession, tmp_path: Path, columns: str, option: str, place: str
) -> None:
    engine = Engine(spark)
    engine.execute(
        f"CREATE TABLE t ({columns}) USING json OPTIONS (path '{tmp_path}'{option});"
        "CREATE VIEW v AS SELECT * FROM t WHERE id > 0;"
    )
    assert place in engine.explain()


def test_the_frame_of_files_that_workers_read_tests_no_column(spark: SparkSession, tmp_path: Path) -> None:
    engine = Engine(spark).execute(f"CREATE TABLE t ({COLUMNS}) USING json OPTIONS (path '{tmp_path}');")
    frame = engine._declared.streams["t"].source.frame(spark)
    plan = frame._jdf.queryExecution().logical().toString()
    assert "contains" not in plan
    assert "to_json" not in plan
