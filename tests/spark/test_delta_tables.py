"""Delta tables as streams of the rows that are appended, and as static tables."""

from __future__ import annotations

import datetime as dt
import shutil
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import deltalake
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from forms import thinned
from penstock.errors import ConnectionFailedError, PenstockError, SqlError, UnknownNameError, UnsupportedError
from penstock.spark.engine import Engine
from penstock.spark.run import Run
from penstock.trigger import Trigger
from whole_runs import run_to_end

pytestmark = pytest.mark.spark

SCHEMA = pa.schema(
    {
        "id": pa.int64(),
        "city": pa.string(),
        "day": pa.date32(),
        "at": pa.timestamp("us", "UTC"),
        "amount": pa.decimal128(9, 2),
        "ok": pa.bool_(),
    }
)
NOON = dt.datetime(2024, 5, 1, 12, tzinfo=dt.UTC)
STREAM = "CREATE TABLE orders USING delta OPTIONS (path '{path}'{more});"
VIEW = "CREATE VIEW seen AS SELECT id, city, day, amount FROM orders WHERE id >= 0;"


def rows_of(first: int, number: int) -> pa.Table:
    made = [
        {
            "id": each,
            "city": ["a b", "Zürich", None][each % 3],
            "day": dt.date(2024, 5, 1 + each % 5),
            "at": NOON + dt.timedelta(seconds=each),
            "amount": each,
            "ok": each % 2 == 0,
        }
        for each in range(first, first + number)
    ]
    return pa.Table.from_pylist(made, schema=SCHEMA)


def append(path: Path, first: int, number: int, partitions: Sequence[str] = ("city", "day")) -> None:
    deltalake.write_deltalake(path, rows_of(first, number), mode="append", partition_by=list(partitions))


def ended(engine: Engine, out: Path) -> Run:
    return run_to_end(engine, out, seconds=600)


def rows(frame: DataFrame) -> Counter[tuple[object, ...]]:
    return Counter(tuple(row) for row in frame.collect())


def expected(first: int, number: int) -> Counter[tuple[object, ...]]:
    return Counter(
        (row["id"], row["city"], row["day"], row["amount"]) for row in rows_of(first, number).to_pylist()
    )


@pytest.mark.parametrize(
    ("partitions", "place"),
    thinned(
        [((), "fast path"), (("city", "day"), "slower path: only Spark adds the partition columns")], 2, 2
    ),
)
def test_a_stream_has_the_rows_and_what_is_appended_once(
    spark: SparkSession, tmp_path: Path, partitions: Sequence[str], place: str
) -> None:
    path, out = tmp_path / "orders of a day", tmp_path / "out"
    append(path, 0, 40, partitions)
    append(path, 40, 10, partitions)
    script = STREAM.format(path=path, more=", event_time 'at'") + VIEW
    script += "CREATE VIEW busy AS SELECT window(at, '1 minute') AS w, ok, count(*) AS n FROM orders GROUP BY w, ok;"
    engine = Engine(spark, shards=2).execute(script)
    assert place in engine.explain()
    assert rows(ended(engine, out).results("seen")) == expected(0, 50)
    append(path, 50, 7, partitions)
    deltalake.DeltaTable(path).optimize.compact()
    append(path, 57, 3, partitions)
    run = ended(Engine(spark, shards=2).execute(script), out)
    assert rows(run.results("seen")) == expected(0, 60)
    assert run.status().streams["orders"].tuples == 10


@pytest.mark.parametrize("partitions", thinned([["city", "day"], []], 2))
def test_columns_are_those_that_are_declared_or_added(
    spark: SparkSession, tmp_path: Path, partitions: list[str]
) -> None:
    path = tmp_path / "orders"
    append(path, 0, 5, partitions)
    wide = rows_of(5, 5).append_column("note", pa.array(["n"] * 5))
    deltalake.write_deltalake(path, wide, mode="append", schema_mode="merge", partition_by=partitions)
    engine = Engine(spark).execute(
        f"CREATE TABLE orders (note STRING, id BIGINT, day DATE) USING delta OPTIONS (path '{path}');"
        "CREATE VIEW seen AS SELECT id, note, day FROM orders WHERE id > 3;"
    )
    found = {row.id: row.note for row in ended(engine, tmp_path / "out").results("seen").collect()}
    assert found == {4: None, **dict.fromkeys(range(5, 10), "n")}


@pytest.mark.parametrize(
    ("starting", "first"), thinned([("1", 10), ("0", 0), ("latest", 20), ("2", 20)], 4, 2)
)
def test_a_stream_may_begin_with_a_version(
    spark: SparkSession, tmp_path: Path, starting: str, first: int
) -> None:
    path = tmp_path / "orders"
    append(path, 0, 10)
    append(path, 10, 10)
    script = STREAM.format(path=path, more=f", starting_version '{starting}'") + VIEW
    engine = Engine(spark).execute(script)
    append(path, 20, 10)
    assert rows(ended(engine, tmp_path / "out").results("seen")) == expected(first, 30 - first)


def test_deleted_rows_stop_a_stream_unless_it_passes_over_them(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "orders"
    append(path, 0, 10)
    script = STREAM.format(path=path, more="{more}") + VIEW
    ended(Engine(spark).execute(script.format(more="")), tmp_path / "out")
    deltalake.DeltaTable(path).delete("id = 3")
    append(path, 10, 5)
    engine = Engine(spark, retry_attempts=0).execute(script.format(more=""))
    run = engine.start(tmp_path / "out", trigger=Trigger.available_now())
    with pytest.raises(
        PenstockError, match=r"version 1 deletes or rewrites rows.*skip_change_commits 'true'"
    ):
        run.await_termination(600)
    run.stop()
    engine = Engine(spark).execute(script.format(more=", skip_change_commits 'true'"))
    assert rows(ended(engine, tmp_path / "out").results("seen")) == expected(0, 15)


@pytest.mark.long
def test_a_table_made_anew_stops_its_stream(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "orders"
    append(path, 0, 10)
    append(path, 10, 1)
    script = STREAM.format(path=path, more="") + VIEW
    ended(Engine(spark).execute(script), tmp_path / "out")
    shutil.rmtree(path)
    append(path, 0, 10)
    run = (
        Engine(spark, retry_attempts=0)
        .execute(script)
        .start(tmp_path / "out", trigger=Trigger.available_now())
    )
    with pytest.raises(PenstockError, match="the table was created again"):
        run.await_termination(600)
    run.stop()


def test_a_static_table_is_joined_in_its_newest_version(spark: SparkSession, tmp_path: Path) -> None:
    cities, orders = tmp_path / "cities", tmp_path / "orders"
    deltalake.write_deltalake(cities, pa.table({"city": ["a b"], "country": ["CH"]}))
    append(orders, 0, 6)
    script = (
        f"CREATE TABLE cities USING delta OPTIONS (path '{cities}', static 'true');"
        + STREAM.format(path=orders, more=", event_time 'at'")
        + "CREATE VIEW abroad AS SELECT o.id, c.country FROM orders o JOIN cities c ON o.city = c.city;"
    )
    out = tmp_path / "out"
    assert rows(ended(Engine(spark).execute(script), out).results("abroad")) == Counter(
        [(0, "CH"), (3, "CH")]
    )
    deltalake.write_deltalake(cities, pa.table({"city": ["a b"], "country": ["DE"]}), mode="overwrite")
    append(orders, 6, 3)
    found = rows(ended(Engine(spark).execute(script), out).results("abroad"))
    assert found == Counter([(0, "CH"), (3, "CH"), (6, "DE")])


@pytest.mark.parametrize(
    ("statement", "kind", "told"),
    [
        ("USING delta OPTIONS (path '{}/none')", ConnectionFailedError, "none is not a Delta table"),
        ("USING delta OPTIONS (path '{}')", ConnectionFailedError, "is not a Delta table"),
        ("USING delta OPTIONS (path '{}/orders', speed 3)", UnknownNameError, "source delta has no option speed. Options: path"),
        ("USING delta OPTIONS (path '{}/orders', starting_version '7')", SqlError, "from 0 to 1"),
        ("USING delta OPTIONS (path '{}/orders', skip_change_commits 'no')", SqlError, "Write 'true' or 'false'"),
        ("(id INT) USING delta OPTIONS (path '{}/orders')", SqlError, "column id is bigint in the Delta table, not int. Declare it BIGINT"),
        ("(idd BIGINT) USING delta OPTIONS (path '{}/orders')", UnknownNameError, "has no column idd"),
        ("(id BIGINT PATH '$.x') USING delta OPTIONS (path '{}/orders')", UnsupportedError, "and delta is read by columns"),
        ("USING delta OPTIONS (path 's3://bucket/x')", UnsupportedError, "local and mounted folders"),
        ("USING delta OPTIONS (path '{}/orders', static 'true', starting_version '1')", SqlError, "an option of streams"),
        ("USING delta", SqlError, "set the option path"),
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_refused(
    spark: SparkSession, tmp_path: Path, statement: str, kind: type[Exception], told: str
) -> None:
    append(tmp_path / "orders", 0, 3)
    with pytest.raises(kind, match=told):
        Engine(spark).execute(f"CREATE TABLE orders {statement.format(tmp_path)};")
