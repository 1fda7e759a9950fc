"""Tuples that readers of a log ask for: what the log holds of them is `spark.sql` over the same tuples, each once."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from test_window_ingest import TUMBLING, Ingest, definitions, folder, parquet, readings

from penstock.errors import InputError, PenstockError, TypeMismatchError
from penstock.operators.routing.routers import Dimension, Grid, GridRouter, HashRouter
from penstock.spark.ingest import answering
from penstock.spark.log.run_files import RunFiles
from penstock.spark.log.stream_log import LogReader
from penstock.spark.publication.manifests import read_published
from penstock.spark.storage.bindings import ViewDefinition
from penstock.spark.storage.demands import TupleDemand

pytestmark = pytest.mark.spark
__all__ = ["folder"]

GRID = Grid((Dimension("amount", ("int64",), 2), Dimension("place", ("string",), 3)))
#: plain columns, read in the scan, of the tuples that satisfy a condition
LARGE = TupleDemand(
    "amount > 50 AND origin <> 'LGA'",
    (("origin", "k"), ("ts", "ts"), ("amount", "amount")),
    ("k",),
    "ts",
    HashRouter(("k",), 3).document(),
)
#: every tuple, a key in the type of the other side, a column that may raise, dealt out along one of two dimensions
EVERY = TupleDemand(
    None,
    (("CAST(amount AS BIGINT)", "k"), ("TS", "at"), ("level", "level"), ("amount / (amount - 5)", "ratio")),
    ("k",),
    "at",
    GridRouter(GRID, (("k",), ())).document(),
)
#: as EVERY, but what raises costs no tuple
FORGIVING = TupleDemand(
    "amount < 60",
    (("ts", "moment"), ("amount", "amount"), ("amount / (amount - 5)", "ratio")),
    (),
    "moment",
    HashRouter((), 1).document(),
    ("ratio",),
)
#: what is centuries ahead of the clock is in no log
BELIEVED = "(ts IS NULL OR ts < TIMESTAMP '2100-01-01 00:00:00')"
ORACLE = {
    LARGE.time: "SELECT origin, ts, amount FROM readings WHERE amount > 50 AND origin <> 'LGA' AND "
    + BELIEVED,
    EVERY.time: "SELECT CAST(amount AS BIGINT), ts, level, amount / (amount - 5) FROM readings WHERE NOT amount <=> 5 AND "
    + BELIEVED,
    FORGIVING.time: "SELECT ts, amount, try_divide(amount, amount - 5) FROM readings WHERE amount < 60 AND "
    + BELIEVED,
}

Bag = Counter[tuple[Any, ...]]


def bag(table: pa.Table) -> Bag:
    """The rows, times as whole numbers; NaN equals itself."""
    columns = [
        (column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column).to_pylist()
        for column in table.columns
    ]
    return Counter(
        tuple("NaN" if isinstance(value, float) and math.isnan(value) else value for value in row)
        for row in zip(*columns, strict=True)
    )


def held(ingest: Ingest, demand: int) -> Bag:
    """What the log holds of a demand."""
    log = LogReader(ingest.layout.log("readings"))
    newest = log.newest()
    assert newest is not None
    found: Bag = Counter()
    for each in RunFiles(log, demand).find(-1, newest.number).open():
        for number in each.run.parts:
            part = each.run.part(number)
            assert part is not None
            rows = part.rows_of(each.after, each.until)
            own = part.tuples if rows is None else part.tuples.filter(pa.array(rows))
            found.update(bag(pa.Table.from_batches([own])))
    return found


def oracle(spark: SparkSession, demand: TupleDemand, tables: list[pa.Table]) -> Bag:
    spark.createDataFrame(pa.concat_tables(tables)).createOrReplaceTempView("readings")
    return bag(spark.sql(ORACLE[demand.time]).toArrow())


VIEWS: Mapping[str, Any] = {
    "some": ViewDefinition("some", "some:1", "SELECT * FROM readings WHERE amount > 90", "amount > 90", None),
    **definitions({"tumbling": TUMBLING}),
}


@pytest.mark.parametrize(
    ("demands", "views"),
    [
        pytest.param((LARGE,), {}, id="in scan"),
        pytest.param((EVERY,), {}, id="computed", marks=pytest.mark.long),
        pytest.param((LARGE, FORGIVING, EVERY), VIEWS, id="with views"),
    ],
)
def test_the_log_holds_what_was_asked_for(
    spark: SparkSession,
    folder: Path,
    demands: tuple[TupleDemand, ...],
    views: Mapping[str, Any],
) -> None:
    ingest = Ingest(spark, folder, parquet(spark, folder), views)
    ids = [ingest.query.plans.demand(demand) for demand in demands]
    assert ids == list(range(len(demands)))
    assert ingest.query.plans.demand(demands[0]) == 0
    ingest.run()
    tables = [readings(number) for number in range(3)]
    for id_, demand in zip(ids, demands, strict=True):
        assert held(ingest, id_) == oracle(spark, demand, tables)
    assert len(ingest.entries) == 3
    figures = read_published(ingest.layout, "readings").batches
    raised = sum(table.column("amount").to_pylist().count(5) for table in tables)
    for id_, demand in zip(ids, demands, strict=True):
        counted = sum(each["demand_errors"].get(str(id_), 0) for each in figures)
        assert counted == (0 if demand == LARGE else raised)
    assert raised > 0


@pytest.mark.parametrize(
    "place",
    ["staged", pytest.param("manifest_written", marks=pytest.mark.long)],
)
def test_a_batch_that_is_repeated_brings_its_tuples_once(
    spark: SparkSession, folder: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    def fail(name: str, batch: int) -> None:
        if (name, batch) == (place, 1):
            raise PenstockError(place)

    ingest = Ingest(spark, folder, parquet(spark, folder), {})
    ids = [ingest.query.plans.demand(demand) for demand in (LARGE, EVERY)]
    with monkeypatch.context() as patch:
        patch.setattr(answering, "failpoint", fail)
        with pytest.raises(PenstockError):
            ingest.run()
    # the demands are durable: nobody asks again
    again = Ingest(spark, folder, parquet(spark, folder), {})
    again.run()
    tables = [readings(number) for number in range(3)]
    for id_, demand in zip(ids, (LARGE, EVERY), strict=True):
        assert held(again, id_) == oracle(spark, demand, tables)
        assert again.query.plans.demand(demand) == id_
    assert [entry.batch for entry in again.entries] == [0, 1, 2]


def test_demands_come_and_go(spark: SparkSession, folder: Path) -> None:
    first = Ingest(spark, folder, parquet(spark, folder), {})
    large = first.query.plans.demand(LARGE)
    first.run()
    pq.write_table(readings(3), folder / "in/3.parquet")
    second = Ingest(spark, folder, parquet(spark, folder), {})
    second.query.plans.withdraw(large)
    every = second.query.plans.demand(EVERY)
    assert every != large
    assert second.query.log.demands(second.entries[-1].plan) is None, (
        "the next batch is bound to another plan"
    )
    second.run()
    assert second.query.log.demands(second.entries[-1].plan) == {every}
    assert second.query.log.demands(first.entries[0].plan - 1) is None
    pq.write_table(readings(4), folder / "in/4.parquet")
    third = Ingest(spark, folder, parquet(spark, folder), definitions({"tumbling": TUMBLING}))
    assert third.query.plans.demand(LARGE) == 2
    third.run()
    tables = [readings(number) for number in range(5)]
    assert held(third, large) == oracle(spark, LARGE, tables[:3])
    assert held(third, every) == oracle(spark, EVERY, tables[3:])
    assert held(third, 2) == oracle(spark, LARGE, tables[4:])


def test_what_cannot_be_met_is_refused(spark: SparkSession, folder: Path) -> None:
    plans = Ingest(spark, folder, parquet(spark, folder), {}).query.plans
    columns = (("origin", "k"), ("ts", "ts"))
    router = HashRouter((), 1).document()
    for demand, message in [
        (TupleDemand(None, (("origin", "k"), ("ts", "k")), (), "k", router), "two columns of one name: k, k"),
        (TupleDemand(None, columns, ("x",), "ts", router), "no column x; it has k, ts"),
        (TupleDemand(None, columns, (), "k", router), "the event time k .* must be a TIMESTAMP"),
        (TupleDemand(None, columns, (), "ts", HashRouter(("y",), 3).document()), "needs a column .*y"),
        (TupleDemand(None, (("nowhere", "k"), ("ts", "ts")), (), "ts", router), "nowhere"),
        (TupleDemand("amount >", columns, (), "ts", router), "amount"),
    ]:
        with pytest.raises(InputError, match=message):
            plans.demand(demand)
    other = GridRouter(GRID, (("k",), ())).document()
    with pytest.raises(TypeMismatchError, match=r"columns k are string, .* by int64"):
        plans.demand(TupleDemand(None, columns, ("k",), "ts", other))
