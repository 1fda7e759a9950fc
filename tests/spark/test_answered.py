"""What is answered, and how: the engine declares each example the way that the page says, and its answer is Spark's."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession

from answered_page import (
    ANSWERED,
    CORRECTED,
    OVER,
    REFUSED,
    STATE,
    WAY,
    declared_tables,
    queries,
    queries_of,
    statements,
)
from answered_ways import NOTHING, REFRESH, answered
from commands import called
from penstock.errors import InputError, UnknownNameError
from penstock.spark.engine import Engine
from penstock.spark.run import Run
from penstock.trigger import Trigger
from penstock_lab.generators.nexmark_views import refreshed

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

QUERIES = queries()
EXAMPLES = statements(ANSWERED)
REFUSALS = statements(REFUSED)
#: `first` of Spark, and what a clock decides
OPEN = ("firsts", "in_time")
#: what Spark is asked in place of texts that mean something else to it
SPARK_TEXTS = {
    "so_far": """
        SELECT named_struct('start', begun, 'end', until) AS w, count(*) AS n FROM (
          SELECT timestamp_seconds(unix_seconds(at) DIV 300 * 300) AS begun,
                 explode(sequence(timestamp_seconds((unix_seconds(at) DIV 60 + 1) * 60), timestamp_seconds((unix_seconds(at) DIV 300 + 1) * 300),
                                  INTERVAL 1 MINUTE)) AS until
          FROM orders)
        GROUP BY begun, until""",
    "priced_as_of": queries_of(EXAMPLES)["priced"],
}
ASOF = "spark.sql.join.asofJoin.enabled"
ORDERS = 200
BEGIN = np.datetime64("2026-01-05T12:00:00", "us")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the tuples and tables."""
    folder = tmp_path_factory.mktemp("answered")
    chance = np.random.default_rng(1)
    ids = np.arange(ORDERS)
    paid, back = np.arange(0, ORDERS + 20, 2), np.arange(0, ORDERS, 6)

    def some(values: Any, n: int) -> pa.Array:
        found = chance.choice(values, n)
        return pa.array(found.astype(np.int32) if found.dtype.kind == "i" else found)

    def at(seconds: np.ndarray) -> pa.Array:
        return pa.array(BEGIN + seconds.astype("timedelta64[s]")).cast(pa.timestamp("us", "UTC"))

    contents: dict[str, dict[str, Any]] = {
        "orders": {
            "id": ids,
            "shop": some(range(1, 5), ORDERS),
            "customer": some(range(12), ORDERS),
            "currency": some(["EUR", "EUR", "CHF", "USD"], ORDERS),
            "price": some(range(1, 100), ORDERS),
            "tags": [["a", "b"][: number % 3] for number in range(ORDERS)],
            "at": at(3 * ids),
        },
        "payments": {"id": paid, "amount": some(range(1, 100), len(paid)), "at": at(3 * paid + 7)},
        "refunds": {"id": back, "amount": some(range(1, 100), len(back)), "at": at(3 * back + 12)},
        "rates": {
            "currency": ["EUR", "CHF", "USD"] * 10,
            "rate": some(range(1, 9), 30),
            "at": at(20 * np.arange(30) - 5),
        },
        "shops": {"shop": pa.array([1, 2, 3], pa.int32()), "city": ["Bern", "Rome", "Bern"]},
        "customers": {
            "customer": pa.array(range(8), pa.int32()),
            "name": [f"c{number}" for number in range(8)],
        },
    }
    for name, columns in contents.items():
        (folder / name).mkdir()
        pq.write_table(pa.table(columns), folder / name / "0.parquet")
    return folder


@pytest.fixture(scope="module")
def engine(_session: SparkSession, folder: Path) -> Engine:
    """An engine with the tables, the answered views, and with their hint those that need it."""
    engine = Engine(_session, shards=1).execute(placed(declared_tables(), folder))
    return engine.add_views(queries_of(EXAMPLES) | hinted())


def placed(script: str, folder: Path) -> str:
    """A script whose tables lie in a folder."""
    return script.replace("(path '", f"(path '{folder}/")


def each(statements_: Mapping[str, Mapping[str, str]]) -> Iterator[tuple[str, str, str]]:
    """Query, view and text of each statement."""
    return ((query, name, text) for query, views in statements_.items() for name, text in views.items())


def hinted() -> dict[str, str]:
    """The views that the hint REFRESH is said to answer, with the hint."""
    return {name: refreshed(text) for query, name, text in each(REFUSALS) if QUERIES[query][WAY] == REFRESH}


def test_each_query_is_answered_the_way_that_is_documented(engine: Engine) -> None:
    for query, name, _ in each(EXAMPLES):
        row, found = QUERIES[query], answered(engine, name)
        assert (row[WAY], set(row[OVER].split(" and "))) == (found.way, found.over), name
        assert row[STATE].startswith("every ") is not found.is_bounded, name


def test_what_is_refused_is_refreshed_where_that_is_documented(engine: Engine) -> None:
    for query, name, text in each(REFUSALS):
        refused(engine, f"without_{name}", text)
        if QUERIES[query][WAY] == REFRESH:
            assert answered(engine, name).way == REFRESH, name
            continue
        assert QUERIES[query][WAY] == NOTHING
        refused(engine, name, refreshed(text))


def refused(engine: Engine, name: str, text: str) -> None:
    """Makes sure that a view is refused for what it asks, and not for a name that is misspelt."""
    with pytest.raises(InputError) as told:
        engine.view(name, text)
    assert not isinstance(told.value, UnknownNameError), told.value


@pytest.mark.usefixtures("spark")
def test_the_mistakes_of_both_scripts_are_those_of_the_refused_one(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script = folder / "both.sql"
    script.write_text(placed(ANSWERED.read_text() + REFUSED.read_text(), folder))
    assert called("check", script) == 2
    told = capsys.readouterr()
    assert re.search(rf"\b{len(queries_of(REFUSALS))} mistakes", told.err + told.out)


def test_each_answer_is_that_of_spark(
    spark: SparkSession, engine: Engine, folder: Path, tmp_path: Path
) -> None:
    with engine.start(tmp_path, trigger=Trigger.available_now(ended=True)) as run:
        assert run.await_termination(300)
    for table in ("orders", "payments", "refunds", "rates", "shops", "customers"):
        spark.read.parquet(str(folder / table)).createOrReplaceTempView(table)
    spark.conf.set(ASOF, "true")
    try:
        for name, text in (queries_of(EXAMPLES) | hinted()).items():
            frame = spark.sql(SPARK_TEXTS.get(name, text)).cache()
            frame.createOrReplaceTempView(name)
            found, expected = multiset(run.results(name)), multiset(frame)
            assert expected, name
            assert found == expected or name in OPEN, name
    finally:
        spark.conf.unset(ASOF)
    for query, name, _ in each(EXAMPLES):
        assert QUERIES[query][CORRECTED] == ("yes" if has_revisions(run, name) else "no"), name


def has_revisions(run: Run, view: str) -> bool:
    """Whether rows of a view can be corrected or withdrawn."""
    try:
        run.changes(view)
    except UnknownNameError:
        return False
    return True


def multiset(rows: DataFrame) -> Counter[str]:
    """Rows, counted."""
    return Counter(repr([plain(value) for value in row]) for row in rows.collect())


def plain(value: object) -> object:
    """A value, of a sum of fractions its first ten digits: the order of its terms decides the others."""
    return f"{value:.10g}" if isinstance(value, float | Decimal) else value
