"""Aggregates of the user's in Spark's own SQL, and what is refused where they are declared or used."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.errors import PythonException
from pyspark.sql import SparkSession

from commands import called
from engine_cases import script, write_orders
from penstock.errors import DuplicateNameError, InputError, UnsupportedError
from penstock.operators.deadlines.time_limit import TimeIsOver, within
from penstock.spark.engine import Engine

pytestmark = pytest.mark.spark

ROWS = """VALUES (1, 'a', 2.5D, TIMESTAMP '2024-01-01 00:10:00'), (1, NULL, 1.0D, TIMESTAMP '2024-01-01 00:50:00'),
  (2, 'b', NULL, TIMESTAMP '2024-01-01 00:20:00'), (NULL, 'c', 4.0D, TIMESTAMP '2024-01-01 01:10:00')
  AS rows(k, name, x, seen)"""


def _given() -> dict[str, Any]:
    """Local ones, which Spark sends to its workers whole."""

    def total(values: pa.Array) -> float | None:
        return pc.sum(values).as_py()  # type: ignore[no-any-return]

    def weighted(values: pa.Array, weights: pa.Array) -> object:
        return pc.sum(pc.multiply(values, weights))

    def longest(names: pa.Array) -> str | None:
        return max((each for each in names.to_pylist() if each is not None), key=len, default=None)

    def raises(values: pa.Array) -> float:
        raise ValueError(f"no score of {len(values)}")

    class Names:
        """The names and how many there are."""

        def __init__(self) -> None:
            self.names: Counter[str] = Counter()

        def add(self, names: pa.Array, numbers: pa.Array) -> None:
            assert len(names) == len(numbers)
            self.names.update(each for each in names.to_pylist() if each is not None)

        def remove(self, names: pa.Array, numbers: pa.Array) -> None:
            assert len(names) == len(numbers)
            self.names.subtract(each for each in names.to_pylist() if each is not None)

        def result(self) -> object:
            names = sorted(self.names.elements())
            return {"names": names, "n": len(names)} if names else None

    return {
        "total_of": (total, "DOUBLE"),
        "weighted": (weighted, "DOUBLE"),
        "longest": (longest, "STRING"),
        "raising": (raises, "DOUBLE"),
        "texts": (longest, "INT"),
        "names_of": (Names, "STRUCT<names: ARRAY<STRING>, n: INT NOT NULL>"),
    }


@pytest.fixture
def engine(spark: SparkSession) -> Engine:
    engine = Engine(spark)
    for name, (given, returns) in _given().items():
        engine.aggregate(name, given, returns)
    return engine


def _rows(spark: SparkSession, query: str) -> list[tuple[Any, ...]]:
    return sorted((tuple(row) for row in spark.sql(query).collect()), key=repr)


@pytest.mark.usefixtures("engine")
def test_spark_answers_functions_and_classes_over_a_static_table(spark: SparkSession) -> None:
    assert _rows(
        spark, f"SELECT k, total_of(x), weighted(x, x) + 1, longest(name) FROM {ROWS} GROUP BY k"
    ) == [
        (1, 3.5, 8.25, "a"),
        (2, None, None, "b"),
        (None, 4.0, 17.0, "c"),
    ]
    assert _rows(spark, f"SELECT k, names_of(name, x) FROM {ROWS} GROUP BY k HAVING total_of(x) > 3.6") == [
        (None, (["c"], 1))
    ]
    assert _rows(spark, f"SELECT k, names_of(name, x) FROM {ROWS} WHERE name IS NULL GROUP BY k") == [
        (1, None)
    ]
    assert _rows(spark, f"SELECT longest(name) FROM {ROWS} WHERE k > 5 GROUP BY k") == []
    windows = "window(seen, '1 hour', '30 minutes')"
    query = f"SELECT /*+ DEADLINE('3 seconds') */ hour({windows}.end) AS h, total_of(x) FROM {ROWS} GROUP BY {windows}"
    assert _rows(spark, query) == [(0, 2.5), (1, 3.5), (1, 5.0), (2, 4.0)]


def test_work_is_abandoned_in_a_worker_that_goes_on_with_the_next(spark: SparkSession) -> None:
    def attempts(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            told = []
            for seconds in (0.2, 60):
                try:
                    told.append(within(seconds, lambda: time.sleep(1) or "done"))
                except TimeIsOver:
                    told.append("abandoned")
            yield pa.record_batch({"told": pa.array([" ".join(told)] * len(batch))})

    found = spark.range(1).mapInArrow(attempts, "told STRING").collect()
    assert [row.told for row in found] == ["abandoned done"]


@pytest.mark.parametrize(
    ("query", "told"),
    [
        (
            "SELECT raising(x) FROM",
            r"aggregate raising raised at test_aggregates_by_spark.py line \d+: ValueError: no score of 4",
        ),
        (
            "SELECT texts(name) FROM",
            "aggregate texts returned str, which does not fit its declared type INT: Could not convert 'a'",
        ),
        (
            "SELECT names_of(name) FROM",
            "aggregate names_of raised in add: TypeError: ",
        ),
    ],
)
@pytest.mark.usefixtures("engine")
def test_what_fails_in_spark_names_the_aggregate(spark: SparkSession, query: str, told: str) -> None:
    with pytest.raises(PythonException, match=told):
        spark.sql(f"{query} {ROWS}").collect()


def test_mistakes_are_told_as_an_aggregate_is_registered(engine: Engine) -> None:
    def add(values: pa.Array) -> pa.Array:
        return pc.add(values, 1)

    for returns in ("NUMBER", "", 5):
        with pytest.raises(
            InputError,
            match=f"^aggregate score: {returns!r} is not a Spark SQL type. Write one such as ",
        ):
            engine.aggregate("score", len, returns)  # type: ignore[arg-type]
    with pytest.raises(DuplicateNameError, match=r"^aggregate Sum: Spark has a function of that name"):
        engine.aggregate("Sum", len, "BIGINT")
    engine.function("plus_one", add, "BIGINT")
    with pytest.raises(DuplicateNameError, match=r"^aggregate PLUS_ONE: a function has that name already"):
        engine.aggregate("PLUS_ONE", len, "BIGINT")
    with pytest.raises(DuplicateNameError, match=r"^function Longest: an aggregate has that name already"):
        engine.function("Longest", add, "BIGINT")
    with pytest.raises(DuplicateNameError, match=r"^function Upper: Spark has a function of that name"):
        engine.function("Upper", add, "BIGINT")
    with pytest.raises(
        InputError, match=r"^Function none takes no arguments; it must take at least one pyarrow.Array"
    ):
        engine.function("none", lambda: pa.array([1]), "BIGINT")
    with pytest.raises(InputError, match=r"^aggregate score: an instance of int is not callable"):
        engine.aggregate("score", 5, "BIGINT")  # type: ignore[arg-type]


def test_an_aggregate_may_be_registered_anew(spark: SparkSession, engine: Engine) -> None:
    engine.aggregate("LONGEST", len, "BIGINT")
    assert _rows(spark, f"SELECT longest(name) FROM {ROWS}") == [(4,)]


@pytest.mark.parametrize(
    "query",
    [
        "SELECT name, longest(name) AS l FROM orders GROUP BY name, window(seen, '1 minute')",
        "SELECT * FROM orders WHERE Longest(name) > 'a'",
        "SELECT a.name FROM orders a JOIN orders b ON a.name = b.name WHERE `longest`(a.name) > 'a'",
    ],
)
def test_a_view_with_an_aggregate_is_refused_with_its_hint(
    engine: Engine, tmp_path: Path, query: str
) -> None:
    write_orders(tmp_path / "in", 1, 10)
    engine.execute(script(tmp_path / "in", {}))
    with pytest.raises(
        UnsupportedError, match=r"(Your aggregate|WHERE cannot use an aggregate).*DEADLINE\('3 seconds'\)"
    ):
        engine.execute(f"CREATE VIEW v AS {query}")
    with pytest.raises(UnsupportedError, match=r"Your aggregate|aggregate such as"):
        engine.view("v", query)


@pytest.mark.usefixtures("spark")
def test_aggregates_of_a_module_are_registered_by_the_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    write_orders(tmp_path / "in", 1, 10)
    (tmp_path / "mine.py").write_text("class Mean:\n    pass\nAGGREGATES = {'mean_of': (Mean, 'DOUBLE')}\n")
    (tmp_path / "s.sql").write_text(script(tmp_path / "in", {"v": "SELECT * FROM orders WHERE amount > 3"}))

    def checked() -> tuple[int, str, str]:
        code = called("check", "s.sql", "--functions", "mine.py")
        return code, *capsys.readouterr()

    code, _, told = checked()
    assert code == 2
    assert told.startswith("penstock: aggregate mean_of: class Mean has no add and no remove and no result; ")
    (tmp_path / "mine.py").write_text("AGGREGATES = {'size_of': (len, 'BIGINT')}\n")
    assert checked()[0] == 0
    view = (
        "SELECT /*+ DEADLINE('3 seconds') */ size_of(name) AS n FROM orders GROUP BY window(seen, '1 minute')"
    )
    (tmp_path / "s.sql").write_text(script(tmp_path / "in", {"v": view}))
    code, out, told = checked()
    assert code == 0, told
    assert "stream orders: 1 view\n" in out
    assert "warning" not in out
