"""A table that is declared with more columns goes on with the same output folder; one that lost any does not."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from pyarrow import csv
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from engine_cases import put_file
from forms import thinned
from penstock.errors import CheckpointError
from penstock.spark.engine import Engine
from penstock.spark.publication import publish
from penstock.spark.publication.manifests import published_paths
from penstock.spark.results.read_plain import plain_rows
from penstock.spark.run import Run
from penstock.spark.storage.layout import Layout
from penstock.trigger import Trigger
from penstock_lab.servers.kafka import KafkaBroker
from whole_runs import run_to_end

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("own_commits")]

NARROW = "id BIGINT, amount INT, name STRING, seen TIMESTAMP"
WIDE = f"{NARROW}, weight DOUBLE, note STRING"
ROWS = 200
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
SELECTIONS = {
    "large": "SELECT * FROM orders WHERE amount > 500",
    "named": "SELECT id, upper(name) AS shouted FROM orders WHERE name LIKE 'n%'",
}
WINDOWS = {
    "minutes": "SELECT name, window(seen, '1 minute') AS w, count(*) AS n, sum(amount) AS s FROM orders GROUP BY name, w"
}
#: what only the wider table has
LATER_SELECTIONS = {"heavy": "SELECT id, weight, note FROM orders WHERE weight > 10 AND note IS NOT NULL"}
LATER_WINDOWS = {
    "weights": "SELECT window(seen, '2 minutes') AS w, count(*) AS n, sum(weight) AS s FROM orders GROUP BY w"
}


def tuples(number: int, *, wide: bool) -> pa.Table:
    """The tuples of one file."""
    ids = [number * ROWS + row for row in range(ROWS)]
    columns: dict[str, Any] = {
        "id": pa.array(ids, pa.int64()),
        "amount": pa.array([None if i % 13 == 0 else i * 37 % 1000 for i in ids], pa.int32()),
        "name": pa.array([("north", "south", "norfolk")[i % 3] for i in ids]),
        "seen": pa.array([NOON + timedelta(seconds=i - i * 7 % 40) for i in ids], pa.timestamp("us", "UTC")),
    }
    if wide:
        columns["weight"] = pa.array([None if i % 5 == 0 else i % 40 / 2 for i in ids], pa.float64())
        columns["note"] = pa.array([None if i % 4 == 0 else f"n{i % 7}" for i in ids])
    return pa.table(columns)


def write(folder: Path, kind: str, numbers: range, *, wide: bool) -> Path:
    folder.mkdir(exist_ok=True)
    for number in numbers:
        table = tuples(number, wide=wide)
        write_as = {
            "parquet": partial(pq.write_table, table),
            "csv": partial(csv.write_csv, table),
            "json": partial(Path.write_text, data="\n".join(records(table))),
        }
        put_file(folder / f"{number:03d}.{kind}", write_as[kind])
    return folder


def records(table: pa.Table) -> list[str]:
    return [json.dumps(row, default=lambda moment: moment.isoformat()) for row in table.to_pylist()]


def script(columns: str, source: str, views: dict[str, str]) -> str:
    declared = f"CREATE TABLE orders ({columns}) USING {source};"
    return "\n".join([declared, *(f"CREATE VIEW {name} AS {text};" for name, text in views.items())])


def answer(spark: SparkSession, text: str, out: Path, **tune: Any) -> Run:
    run = Engine(spark, **tune).execute(text).start(out, trigger=Trigger.available_now())
    try:
        assert run.await_termination(300)
    finally:
        run.stop()
    return run


def every_tuple(spark: SparkSession, narrow: int, until: int) -> DataFrame:
    """The tuples of all files: what a column was not declared for is NULL."""
    known = [tuples(number, wide=number >= narrow) for number in range(until)]
    return spark.createDataFrame(pa.concat_tables(known, promote_options="default"))


def bag(frame: DataFrame) -> Counter[tuple[Any, ...]]:
    return Counter(tuple(row) for row in frame.collect())


def events(out: Path, kind: str) -> list[dict[str, Any]]:
    every = [json.loads(line) for line in (out / "events.jsonl").read_text().splitlines()]
    return [event for event in every if event["kind"] == kind]


def assert_whole(spark: SparkSession, run: Run, texts: dict[str, str], begun: pa.Table | None = None) -> None:
    """Compares views with `spark.sql`; windows that were over with the tuples of `begun` are no later view's."""
    for name, text in texts.items():
        expected = spark.sql(text)
        if begun is not None and name in LATER_WINDOWS:
            expected = expected.where(F.col("w.end") > F.lit(pc.max(begun["seen"]).as_py()))
        found = run.results(name)
        assert found.columns == expected.columns
        wanted = bag(expected)
        assert wanted, name
        assert bag(found) == wanted, name


@pytest.mark.parametrize(
    "kind", ["parquet", *(pytest.param(kind, marks=pytest.mark.long) for kind in ("json", "csv"))]
)
def test_a_wider_table_goes_on(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    # a batch waits for merged files however long they take
    monkeypatch.setattr(publish, "PATIENCE_SECONDS", None)
    data, out = write(tmp_path / "data", kind, range(3), wide=False), tmp_path / "out"
    source = f"{kind} OPTIONS (path '{data}', event_time 'seen', max_files_per_trigger '1', header 'true')"
    answer(spark, script(NARROW, source, SELECTIONS | WINDOWS), out)
    write(data, kind, range(3, 6), wide=True)
    # what was read cannot be read again with columns that a CSV record must have
    later = LATER_SELECTIONS if kind == "csv" else LATER_SELECTIONS | LATER_WINDOWS
    run = answer(spark, script(WIDE, source, SELECTIONS | WINDOWS | later), out, compact_every_batches=2)
    every_tuple(spark, 3, 6).createOrReplaceTempView("orders")
    assert_whole(spark, run, SELECTIONS | WINDOWS | later, begun=tuples(2, wide=False))
    assert run.status().streams["orders"].quarantined == {}
    (told,) = events(out, "columns_added")
    assert (told["stream"], told["columns"]) == ("orders", ["weight", "note"])
    expected = spark.sql(f"{SELECTIONS['large']} ORDER BY id").toArrow()
    assert expected["note"].null_count > expected.num_rows / 2
    plain = plain_rows(Layout(out, out), "large", 0)
    assert plain is not None
    assert plain.rows.sort_by("id").to_pylist() == expected.to_pylist()
    assert list((out / "matches" / "orders").glob("*-to-*.parquet")), "old and new files were merged"
    paths = [str(path) for path in published_paths(Layout(out, out), "orders")]
    files = f"read_parquet({paths}, union_by_name = true)"
    wanted = f"SELECT id, weight, note FROM {files} WHERE list_contains(queries, 'large') ORDER BY id"
    assert duckdb.sql(wanted).fetchall() == [
        tuple(row.values()) for row in expected.select(["id", "weight", "note"]).to_pylist()
    ]


@pytest.mark.parametrize("is_published", thinned([False, True], 2), ids=["bound", "published"])
def test_the_last_batch_of_before_is_repeated_with_the_wider_table(
    spark: SparkSession, tmp_path: Path, is_published: bool
) -> None:
    data, out = write(tmp_path / "data", "parquet", range(3), wide=False), tmp_path / "out"
    source = f"parquet OPTIONS (path '{data}', event_time 'seen', max_files_per_trigger '1')"
    answer(spark, script(NARROW, source, SELECTIONS), out)
    layout = Layout.of(out, None)
    for name in ("2", ".2.crc"):
        (layout.spark("orders") / "commits" / name).unlink()
    if not is_published:
        # it was about to be published
        layout.manifests("orders")[2].remove()
        layout.status.unlink()
    taken: list[tuple[int, tuple[Any, ...]]] = []

    def take(frame: DataFrame, batch: int) -> None:
        taken.extend(
            (batch, tuple(row))
            for row in frame.drop("penstock_batch", "penstock_ordinal", "penstock_definition").collect()
        )

    write(data, "parquet", range(3, 4), wide=True)
    engine = Engine(spark).execute(script(WIDE, source, SELECTIONS)).sink("large", take)
    run = run_to_end(engine, out)
    every_tuple(spark, 3, 4).createOrReplaceTempView("orders")
    assert_whole(spark, run, SELECTIONS)
    # a sink begins with the first published row
    assert Counter(row for _, row in taken) == bag(spark.sql(SELECTIONS["large"]))
    assert {batch for batch, _ in taken} == {0, 1, 2, 3}


@pytest.mark.long
@pytest.mark.kafka
@pytest.mark.parametrize("decode_in_worker", [True, False], ids=["worker", "spark"])
def test_fields_of_a_topic_are_declared_later(
    spark: SparkSession, kafka: KafkaBroker, tmp_path: Path, decode_in_worker: bool
) -> None:
    topic = f"widened-{decode_in_worker}"
    kafka.create_topic(topic, partitions=1)
    kafka.produce(topic, records(tuples(0, wide=False)), partition=0)
    source = (
        f"kafka OPTIONS (kafka.bootstrap.servers '{kafka.address}', subscribe '{topic}', "
        "startingOffsets 'earliest', event_time 'seen')"
    )
    out = tmp_path / "out"
    answer(spark, script(NARROW, source, SELECTIONS | WINDOWS), out, decode_in_worker=decode_in_worker)
    kafka.produce(topic, records(tuples(1, wide=True)), partition=0)
    views = SELECTIONS | WINDOWS | LATER_SELECTIONS | LATER_WINDOWS
    run = answer(spark, script(WIDE, source, views), out, decode_in_worker=decode_in_worker)
    every_tuple(spark, 1, 2).createOrReplaceTempView("orders")
    assert_whole(spark, run, views, begun=tuples(0, wide=False))


def test_columns_that_go_or_change_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    data, out = write(tmp_path / "data", "parquet", range(1), wide=True), tmp_path / "out"
    source = f"parquet OPTIONS (path '{data}', event_time 'seen')"
    view = {"large": "SELECT * FROM orders WHERE id > 5"}
    answer(spark, script(WIDE, source, view), out)
    catalog = Layout.of(out, None).catalog.get()
    for columns, said in (
        (NARROW, r"column weight was double and is gone; column note was string and is gone"),
        (WIDE.replace("amount INT", "amount BIGINT"), r"column amount was int and is bigint"),
        (WIDE.replace("note", "remark"), r"column note was string and is gone"),
        (WIDE.replace("note", "Note"), r"column note was string and is gone"),
    ):
        with pytest.raises(
            CheckpointError, match=f"stream orders: {said}.*columns may be added, not dropped"
        ):
            Engine(spark).execute(script(columns, source, view)).start(out, trigger=Trigger.available_now())
    assert Layout.of(out, None).catalog.get() == catalog
    # in another order they are the same columns
    turned = ", ".join(reversed(WIDE.split(", ")))
    assert answer(spark, script(turned, source, view), out).results("large").columns[0] == "note"


def test_a_replay_plays_the_columns_it_was_made_with(spark: SparkSession, tmp_path: Path) -> None:
    data, out = write(tmp_path / "data", "parquet", range(1), wide=True), tmp_path / "out"
    source = f"replay OPTIONS (path '{data}', event_time 'seen', speed 'max')"
    views = {"large": "SELECT * FROM orders WHERE amount > 500"}
    answer(spark, script(NARROW, source, views), out)
    with pytest.raises(CheckpointError, match=r"made without weight, note\. Restore the columns"):
        Engine(spark).execute(script(WIDE, source, views)).start(out, trigger=Trigger.available_now())
    shutil.rmtree(out)
    run = answer(spark, script(WIDE, source, views), out)
    every_tuple(spark, 0, 1).createOrReplaceTempView("orders")
    assert_whole(spark, run, views)
