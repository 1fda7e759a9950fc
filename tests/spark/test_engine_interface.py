"""The interface of an engine and its run: what they show, `with` blocks, decorators, old names, reserved columns of sinks."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession

from penstock import DuplicateNameError, Engine, InputError, Trigger

pytestmark = pytest.mark.spark

LARGE = "SELECT id FROM orders WHERE amount > 2"


@pytest.fixture
def orders(spark: SparkSession, tmp_path: Path) -> Engine:
    folder = tmp_path / "in"
    folder.mkdir()
    pq.write_table(pa.table({"id": range(6), "amount": [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]}), folder / "1.parquet")
    table = f"CREATE TABLE orders (id BIGINT, amount DOUBLE) USING parquet OPTIONS (path '{folder}')"
    return Engine(spark, shards=1).execute(table)


def take(_: DataFrame, __: int) -> None:
    """A sink."""


def test_an_engine_and_its_run_show_what_they_are_and_end_with_their_blocks(
    orders: Engine, spark: SparkSession, tmp_path: Path
) -> None:
    assert repr(orders) == "<Engine: stream orders; 0 views; not started>"
    orders.add_views({"large": LARGE, **{f"v{n}": LARGE for n in range(5)}}).drop("v4")
    assert list(orders.views) == ["large", "v0", "v1", "v2", "v3"]
    assert orders.views["large"] == LARGE
    orders.view("again", LARGE)
    assert repr(orders) == "<Engine: stream orders; 6 views: large, v0, v1, v2, v3 and 1 more; not started>"
    out = tmp_path / "out"
    with orders as engine, engine.start(out, trigger=Trigger.available_now()) as run:
        assert run.await_termination(120)
        assert repr(run) == f"<Run ended: streams orders; 6 views, 18 rows in {out}>"
        status = run.status()
        assert (status.state, status.streams["orders"].tuples) == ("ended", 6)
        assert (status.views["large"].kind, status.views["large"].rows) == ("selection", 3)
    assert (run.state, run.active) == ("ended", False)
    assert repr(orders).endswith("; run ended>")
    with orders:
        again = orders.start(out)
        assert again.active
    assert (again.state, again.active) == ("stopped", False)
    assert spark.range(1).count() == 1, "the session is its owner's"


def test_the_status_of_each_kind_of_view(spark: SparkSession, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    moments = pa.array([0, 30_000_000, 90_000_000], pa.timestamp("us", "UTC"))
    pq.write_table(pa.table({"at": moments, "x": [1, 2, 3]}), folder / "1.parquet")
    engine = Engine(spark, shards=1).execute(f"""
        CREATE TABLE s (at TIMESTAMP, x BIGINT) USING parquet OPTIONS (path '{folder}', event_time 'at');
        CREATE VIEW all_of_it AS SELECT * FROM s WHERE x > 0;
        CREATE VIEW minutes AS SELECT window(at, '1 minute') AS w, sum(x) AS x FROM s GROUP BY w;
        """)
    with engine.start(tmp_path / "out", trigger=Trigger.available_now(ended=True)) as run:
        assert run.await_termination(240)
    status = run.status()
    assert {name: view.kind for name, view in status.views.items()} == {
        "all_of_it": "selection",
        "minutes": "window",
    }
    minutes = status.views["minutes"]
    assert minutes.stream == "s"
    assert minutes.windows is not None
    assert minutes.windows.final == 2
    assert minutes.rows == run.changes("minutes").count()
    assert set(status.lanes) == {"s.backfill", "s.results"}
    lane = status.lanes["s.results"]
    assert (lane.views, lane.active, lane.trouble) == (("minutes",), False, None)


def test_functions_and_aggregates_are_declared_by_decorators(spark: SparkSession) -> None:
    engine = Engine(spark)

    @engine.function
    def one_more(values: pa.Array) -> pa.Int64Array:
        return pc.add(values, 1)

    @engine.function("twice_it", returns="BIGINT")
    def twice(values: pa.Array) -> pa.Array:
        return pc.multiply(values, 2)

    @engine.aggregate(returns="BIGINT")
    def widest(values: pa.Array) -> Any:
        return pc.max(values)

    @engine.aggregate
    class Total:
        def __init__(self) -> None:
            self.total = 0.0

        def add(self, values: pa.Array) -> None:
            self.total += pc.sum(values).as_py() or 0.0

        def remove(self, values: pa.Array) -> None:
            self.total -= pc.sum(values).as_py() or 0.0

        def result(self) -> float:
            return self.total

    assert one_more(pa.array([1])).to_pylist() == [2], "it is still the function"
    assert twice(pa.array([1])).to_pylist() == [2]
    assert Total().result() == 0.0
    row = spark.sql(
        "SELECT one_more(1), twice_it(4), widest(x), total(x) FROM VALUES (3L), (8L) AS t(x) GROUP BY 1, 2"
    ).first()
    assert row is not None
    assert tuple(row) == (2, 8, 8, 11.0)
    assert engine.function("plain", twice, "BIGINT") is engine
    with pytest.raises(DuplicateNameError, match=r"^function upper: Spark has a function of that name"):

        @engine.function(returns="BIGINT")
        def upper(values: pa.Array) -> pa.Array:
            return values


def test_old_names_work_and_warn(orders: Engine, tmp_path: Path) -> None:
    with pytest.warns(DeprecationWarning, match=r"use Engine\.add_views") as told:
        orders.views({"large": LARGE})
    with pytest.warns(DeprecationWarning, match=r"use trigger=Trigger\.available_now") as told_too:
        run = orders.start(tmp_path / "out", available_now=True, ended=True)
    assert {each.filename for each in (*told, *told_too)} == {__file__}
    assert run.await_termination(120)
    run.stop()
    with pytest.warns(DeprecationWarning, match=r"use trigger=Trigger\.every\('1 second'\)"):
        again = orders.start(tmp_path / "out", None, "1 second")
    again.stop()
    with (
        warnings.catch_warnings(action="ignore", category=DeprecationWarning),
        pytest.raises(InputError, match=r"^ended=True requires available_now=True"),
    ):
        orders.start(tmp_path / "out", ended=True)


@pytest.mark.parametrize("alias", ["penstock_batch", "Penstock_Ordinal", "penstock_definition"])
def test_a_view_with_a_sink_gives_no_column_a_reserved_name(orders: Engine, alias: str) -> None:
    text = f"SELECT id AS {alias} FROM orders WHERE amount > 1"
    refused = f"^view v: sink {{}} receives a column {alias.lower()} from Penstock; .* {alias} another alias"
    orders.view("v", text).view("over", "SELECT * FROM v")
    for name in ("v", "over"):
        with pytest.raises(InputError, match=refused.format("take").replace("view v:", f"view {name}:")):
            orders.sink(name, take)
    console = "CREATE TABLE shown USING console;"
    with pytest.raises(InputError, match=refused.format("shown")):
        orders.execute(f"{console} INSERT INTO shown SELECT * FROM v")
    with pytest.raises(InputError, match=f"sink shown receives a column {alias.lower()}"):
        orders.execute(f"{console} INSERT INTO shown SELECT id AS {alias} FROM orders")
    orders.drop("over").view("v", LARGE).sink("v", take)
    with pytest.raises(InputError, match=refused.format("take")):
        orders.view("v", text)
    assert orders.views["v"] == LARGE, "nothing of it is declared"
