"""Matched tuples are stored with the columns that SELECT lists read, and with no others."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession

from penstock.errors import InputError
from penstock.spark.engine import Engine
from penstock.spark.run import Run
from whole_runs import run_to_end

pytestmark = pytest.mark.spark

COLUMNS = "id BIGINT, Price DOUBLE, word STRING, place STRUCT<town: STRING, zip: INT>, `at time` TIMESTAMP, extra STRING, seen TIMESTAMP"
VIEWS = {
    "few": "SELECT id, price * 2 AS twice FROM t WHERE id % 3 = 0",
    "town": "SELECT place.town, `At Time` FROM t WHERE word LIKE '%1%'",
    "whole": "SELECT * FROM t WHERE id = 5",
    "none": "SELECT 1 AS one FROM t WHERE extra IS NULL OR id < 9",
    "over": "SELECT twice + 1 AS more FROM few WHERE twice > 10",
    "hours": "SELECT window(seen, '1 hour') AS w, count(*) AS n FROM t GROUP BY w",
}


def write(folder: Path, number: int, rows: int = 40, kind: str = "parquet") -> None:
    """Writes a file of tuples."""
    folder.mkdir(exist_ok=True)
    first = number * rows
    ids = range(first, first + rows)
    times = [1_700_000_000_000_000 + each * 60_000_000 for each in ids]
    table = pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "Price": [None if each % 7 == 0 else each / 4 for each in ids],
            "word": [f"w{each}" for each in ids],
            "place": [{"town": f"t{each % 5}", "zip": each} for each in ids],
            "at time": pa.array(times, pa.timestamp("us", "UTC")),
            "extra": [None if each % 11 == 0 else "e" * (each % 4) for each in ids],
            "seen": pa.array(times, pa.timestamp("us", "UTC")),
        },
        pa.schema(
            {
                "id": pa.int64(),
                "Price": pa.float64(),
                "word": pa.string(),
                "place": pa.struct({"town": pa.string(), "zip": pa.int32()}),
                "at time": pa.timestamp("us", "UTC"),
                "extra": pa.string(),
                "seen": pa.timestamp("us", "UTC"),
            }
        ),
    )
    if kind == "parquet":
        pq.write_table(table, folder / f"{number}.parquet", row_group_size=16)
        return
    frame = table.to_pandas()
    frame.to_json(folder / f"{number}.json", orient="records", lines=True, date_format="iso")


def engine_over(spark: SparkSession, folder: Path, kind: str = "parquet", **settings: object) -> Engine:
    return Engine(spark, **settings).execute(  # type: ignore[arg-type]
        f"CREATE TABLE t ({COLUMNS}) USING {kind} OPTIONS (path '{folder}', event_time 'seen', max_files_per_trigger '1')"
    )


def counted(frame: DataFrame) -> Counter[str]:
    return Counter(str(row) for row in frame.collect())


def stored(out: Path) -> list[list[str]]:
    """The columns of each file of matches, but for the names of the queries."""
    return [pq.read_schema(path).names[:-1] for path in sorted((out / "matches/t").glob("*.parquet"))]


@pytest.mark.parametrize("kind", ["parquet", "json"])
@pytest.mark.parametrize("left_out", [("whole",), ()])
def test_rows_are_sparks_whatever_is_stored(
    spark: SparkSession, tmp_path: Path, kind: str, left_out: tuple[str, ...]
) -> None:
    for number in range(3):
        write(tmp_path / "in", number, kind=kind)
    engine = engine_over(spark, tmp_path / "in", kind, compact_every_batches=2)
    views = {name: text for name, text in VIEWS.items() if name not in left_out}
    run = run_to_end(engine.add_views(views), tmp_path / "out")
    wanted = (
        ["id", "Price", "place", "at time"]
        if left_out
        else [*["id", "Price", "word", "place"], "at time", "extra", "seen"]
    )
    assert {tuple(each) for each in stored(tmp_path / "out")} == {tuple(wanted)}
    assert run.matches("t").columns == [*wanted, "queries"]
    spark.read.schema(COLUMNS).format(kind).load(str(tmp_path / "in")).createOrReplaceTempView("t")
    for name, text in views.items():
        if name in ("over", "hours"):
            continue
        assert counted(run.results(name)) == counted(spark.sql(text)), name
        assert counted(run.results(name)), name
    spark.sql(views["few"]).createOrReplaceTempView("few")
    assert counted(run.results("over")) == counted(spark.sql(views["over"]))
    assert sum(row.n for row in run.results("hours").collect()) == 120


def test_a_list_without_columns_stores_none(spark: SparkSession, tmp_path: Path) -> None:
    write(tmp_path / "in", 0, 8)
    engine = engine_over(spark, tmp_path / "in").view("rule", "SELECT 1 AS one FROM t WHERE id < 6")
    run = run_to_end(engine, tmp_path / "out")
    assert stored(tmp_path / "out") == [[]]
    assert [row.one for row in run.results("rule").collect()] == [1] * 6
    assert run.matches("t").count() == 6


def test_a_list_that_reads_more_is_another_definition(spark: SparkSession, tmp_path: Path) -> None:
    def rule(text: str, number: int) -> Run:
        write(tmp_path / "in", number, 4)
        return run_to_end(engine_over(spark, tmp_path / "in").view("rule", text), tmp_path / "out")

    first = "SELECT id, word FROM t WHERE id >= 0"
    assert rule(first, 0).results("rule").count() == 4
    run = rule("SELECT upper(word) AS w FROM t WHERE id >= 0", 1)
    assert sorted(row.w for row in run.results("rule").collect()) == [f"W{each}" for each in range(8)]
    run = rule(first, 2)
    assert sorted(row.id for row in run.results("rule").collect()) == list(range(12)), (
        "taken back, nothing lacks"
    )
    run = rule("SELECT * FROM t WHERE id >= 0", 3)
    assert sorted(row.extra or "" for row in run.results("rule").collect()) == ["", "e", "ee", "eee"]
    assert run.results("rule", definition=1).count() == 12
    run = rule("SELECT extra FROM t WHERE id >= 0", 4)
    assert run.results("rule").count() == 8, "all columns of the tuples of before are there"
    every = run.results("rule", all_definitions=True)
    assert Counter(row.definition for row in every.collect()) == {1: 12, 2: 8}
    assert all(row.extra is None for row in every.collect() if row.definition == 1)


def test_a_column_that_is_added_makes_no_definition(spark: SparkSession, tmp_path: Path) -> None:
    """Its name may be a word of a list that reads it not; a list with `*` reads it from then on."""
    views = {
        "rounded": "SELECT round(id) AS r FROM t WHERE id >= 0",
        "all": "SELECT struct(*) AS s FROM t WHERE id >= 0",
    }
    declared = "CREATE TABLE t ({}) USING parquet OPTIONS (path '{}')"
    for number, columns in enumerate(("id BIGINT", "id BIGINT, round STRING, größe INT")):
        table = pa.table({"id": pa.array([number], pa.int64())})
        if number:
            table = table.append_column("round", [["x"]]).append_column("größe", pa.array([3], pa.int32()))
        (tmp_path / "in").mkdir(exist_ok=True)
        pq.write_table(table, tmp_path / "in" / f"{number}.parquet")
        engine = Engine(spark).execute(declared.format(columns, tmp_path / "in")).add_views(views)
        run = run_to_end(engine, tmp_path / "out")
    assert sorted(row.r for row in run.results("rounded").collect()) == [0, 1]
    assert sorted((row.s.id, row.s.round, row.s.größe) for row in run.results("all").collect()) == [
        (0, None, None),
        (1, "x", 3),
    ]


def test_a_tuple_keeps_what_another_view_reads(spark: SparkSession, tmp_path: Path) -> None:
    write(tmp_path / "in", 0, 8)
    first = {"ids": "SELECT id FROM t WHERE id >= 0"}
    run_to_end(engine_over(spark, tmp_path / "in").add_views(first), tmp_path / "out")
    write(tmp_path / "in", 1, 8)
    both = {**first, "words": "SELECT word FROM t WHERE id >= 0"}
    run = run_to_end(engine_over(spark, tmp_path / "in").add_views(both), tmp_path / "out")
    assert stored(tmp_path / "out") == [["id"], ["id", "word"]]
    assert sorted((row.id, row.word) for row in run.matches("t").collect()) == [
        (each, None if each < 8 else f"w{each}") for each in range(16)
    ]
    assert sorted(row.word for row in run.results("words").collect()) == sorted(
        f"w{each}" for each in range(8, 16)
    )
    assert run.results("ids").count() == 16


def test_tuples_that_were_not_stored_whole_are_no_table(spark: SparkSession, tmp_path: Path) -> None:
    write(tmp_path / "in", 0, 8)
    engine = engine_over(spark, tmp_path / "in").add_views({"few": VIEWS["few"], "town": VIEWS["town"]})
    run_to_end(engine, tmp_path / "out")
    message = "Some tuples of t in .*/out have no id, Price, word, place, at time, extra, seen: a results folder has"
    with pytest.raises(InputError, match=message):
        engine.backtest("few", over=tmp_path / "out")


def test_the_quarantine_has_whole_records(spark: SparkSession, tmp_path: Path) -> None:
    def is_fine(ids: pa.Array) -> pa.Array:
        if 5 in ids.to_pylist():
            raise ValueError("five")
        return pa.array([True] * len(ids))

    write(tmp_path / "in", 0, 8)
    engine = engine_over(spark, tmp_path / "in").function("is_fine", is_fine, "BOOLEAN")
    run = run_to_end(engine.view("rule", "SELECT id FROM t WHERE is_fine(id)"), tmp_path / "out")
    assert run.results("rule").count() == 7
    (record,) = pq.read_table(tmp_path / "out/quarantine/t").column("record").to_pylist()
    assert json.loads(record)["word"] == "w5"
    assert stored(tmp_path / "out") == [["id"]]
