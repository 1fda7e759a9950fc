"""Users' functions within expressions that Spark computes: a row at which one raises costs itself alone; what Spark computes before stops the stream."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from joined_inputs import multiset
from penstock.errors import StreamFailedError
from penstock.spark.engine import Engine
from penstock.trigger import Trigger
from whole_runs import run_to_end

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

#: by view how many of the tuples are lost
LOST = {"compared": 2, "replaced": 2, "of_a_call": 3, "named": 2, "keyed": 2, "sound": 0}
VIEWS = {
    "compared": "SELECT id, x FROM orders WHERE touchy(x) + 1 > 5",
    "replaced": "SELECT id FROM orders WHERE coalesce(touchy(x), 0) + 0 < 9",
    "of_a_call": "SELECT id FROM orders WHERE touchy(touchy(x)) + 1 > 5",
    "named": "SELECT id FROM orders WHERE concat(`TOUCHY`(x), 'a touchy(x)') > '2' OR touchy(x) = y",
    "keyed": "SELECT window(at, '1 hour') AS w, touchy(x) AS k, count(*) AS n FROM orders GROUP BY w, touchy(x)",
    "sound": "SELECT id FROM orders WHERE id > 6",
}


def _engine(spark: SparkSession, tmp_path: Path) -> Engine:
    (tmp_path / "orders").mkdir()
    begun = datetime(2024, 1, 1, tzinfo=UTC)
    for file in range(2):
        ids = range(file * 20, file * 20 + 20)
        columns = {
            "id": list(ids),
            "x": [None if number == 5 else number for number in ids],
            "y": [float(number * 2) for number in ids],
            "at": [begun + timedelta(minutes=5 * number) for number in ids],
        }
        pq.write_table(pa.table(columns), tmp_path / "orders" / f"{file}.parquet")

    def touchy(numbers: pa.Array) -> pa.Array:
        """Twice the number; 3 and 28 are too much for it."""
        bad = [each for each in numbers.to_pylist() if each in (3, 28)]
        if bad:
            raise ValueError(f"{bad[0]} is too much for me")
        return pc.multiply(numbers, 2)

    def each(pieces: Iterator[pa.Array]) -> Iterator[pa.Array]:
        for piece in pieces:
            yield touchy(piece)

    each.__annotations__ = {"pieces": Iterator[pa.Array], "return": Iterator[pa.Array]}
    engine = Engine(spark).function("touchy", touchy, "BIGINT").function("each_piece", each, "BIGINT")
    return engine.execute(
        f"CREATE TABLE orders USING parquet OPTIONS (path '{tmp_path / 'orders'}', event_time 'at', max_files_per_trigger '1')"
    )


def test_a_row_at_which_a_function_raises_costs_itself_alone(spark: SparkSession, tmp_path: Path) -> None:
    run = run_to_end(_engine(spark, tmp_path).add_views(VIEWS), tmp_path / "out", ended=True)
    assert "computed by Spark" in run.explain()
    errors: Counter[str] = Counter()
    for event in run.events("batch"):
        errors.update(event["errors"])
    assert errors == {name: lost for name, lost in LOST.items() if lost}
    for name, text in VIEWS.items():
        columns = ["w", "k", "n"] if name == "keyed" else run.results(name).columns
        bad = {2: "3, 28", 3: "3, 28, 14", 0: "-1"}[LOST[name]]
        spark.read.parquet(str(tmp_path / "orders")).where(
            f"x IS NULL OR x NOT IN ({bad})"
        ).createOrReplaceTempView("orders")
        wanted = multiset(spark.sql(text))
        assert wanted
        assert multiset(run.results(name).select(columns)) == wanted, name


@pytest.mark.parametrize("condition", ["each_piece(x) > 5", "touchy(touchy(x) + 1) + 1 > 5"])
@pytest.mark.parametrize("is_endless", [False, True])
def test_what_spark_computes_before_stops_the_stream_and_says_so(
    spark: SparkSession, tmp_path: Path, condition: str, is_endless: bool
) -> None:
    """The run ends; it does not wait for what will not come."""
    engine = _engine(spark, tmp_path).view("v", f"SELECT id FROM orders WHERE {condition}")
    run = engine.start(tmp_path / "out", trigger=Trigger() if is_endless else Trigger.available_now())
    with pytest.raises(StreamFailedError, match=r"^stream orders stopped: function .* is too much for me"):
        run.await_termination(600)
    run.stop()
    (failed,) = run.events("run_failed")
    assert failed["cause"] == "function_failed"
