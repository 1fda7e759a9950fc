"""Users' functions in conditions: called for tuples that satisfy everything else, with Spark's answers; a row that raises is one row."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from commands import called
from damage_cases import quarantined
from engine_cases import rows, script, write_orders
from forms import thinned
from penstock.errors import InputError
from penstock.spark.engine import Engine
from whole_runs import run_to_end

pytestmark = pytest.mark.spark

#: conditions with calls that the worker computes
CALLED = {
    "scored": "amount < 200 AND score(amount, id) > 300",
    "scored_or_large": "amount > 950 OR score(amount, id) < 20",
    "scored_within": "amount < 50 AND NOT (score(amount, id) BETWEEN 100 AND 2000)",
    "of_constants": "amount < 300 AND score(amount, 5) IN (35, 38, NULL)",
    "of_expressions": "amount < 300 AND score(amount + 1, id) > 700",
    "even": "is_even(id) AND name LIKE '%or%' AND price > 50",
    "even_and_scored": "is_even(id) AND score(amount, id) > 1000 AND amount < 900",
    "odd": "amount < 100 AND is_even(id) IS FALSE",
    "shouted": "amount < 500 AND shout(name) LIKE '%OR%H'",
    "unknown": "shout(name) IS NULL",
    "nested": "amount < 400 AND shout(shout(name)) = 'NORTH'",
    "either": "(amount < 30 OR price > 90) AND (score(amount, id) > 400 OR shout(name) <=> 'EAST')",
    "moments": "amount > 800 AND hour_of(seen) >= 0",
}
#: those that only Spark computes
MIXED = {
    "sum": "amount < 100 AND score(amount, id) + 1 > 300",
    "compared": "amount < 100 AND score(amount, id) > id",
}


def functions(asked: Path) -> dict[str, tuple[Any, str]]:
    """The functions and their types; each notes what it is given."""

    def note(name: str, rows: int) -> None:
        with asked.open("a") as file:
            file.write(f"{name} {rows}\n")

    def score(amount: pa.Array, other: pa.Array) -> pa.Array:
        note("score", len(amount))
        return pc.add(pc.multiply(amount.cast(pa.int64()), 3), other.cast(pa.int64()))

    def is_even(number: pa.Array) -> pa.Array:
        note("is_even", len(number))
        return pc.equal(pc.bit_wise_and(number, 1), 0)

    def shout(text: pa.Array) -> pa.Array:
        note("shout", len(text))
        return pc.utf8_upper(text)

    def hour_of(moment: pa.Array) -> pa.Array:
        note("hour_of", len(moment))
        return pc.hour(moment)

    return {
        "score": (score, "BIGINT"),
        "is_even": (is_even, "BOOLEAN"),
        "shout": (shout, "STRING"),
        "hour_of": (hour_of, "BIGINT"),
    }


def engine(spark: SparkSession, tmp_path: Path, **settings: Any) -> Engine:
    found = Engine(spark, **settings)
    for name, (function, returns) in functions(tmp_path / "asked").items():
        found.function(name, function, returns)
    return found


def asked(tmp_path: Path) -> Counter[str]:
    """Rows that each function was given."""
    found: Counter[str] = Counter()
    for line in (tmp_path / "asked").read_text().splitlines():
        name, count = line.split()
        found[name] += int(count)
    return found


def selections(conditions: dict[str, str]) -> dict[str, str]:
    return {name: f"SELECT * FROM orders WHERE {condition}" for name, condition in conditions.items()}


@pytest.mark.parametrize("in_scan", thinned([True, False], 2))
def test_answers_are_those_of_spark(spark: SparkSession, tmp_path: Path, in_scan: bool) -> None:
    write_orders(tmp_path / "in", 2, 1_500)
    conditions = dict(CALLED) if in_scan else CALLED | MIXED
    if in_scan:
        del conditions["of_expressions"]
    found = engine(spark, tmp_path, map_in_scan=in_scan)
    run = run_to_end(found.execute(script(tmp_path / "in", selections(conditions))), tmp_path / "out")
    counts = asked(tmp_path)
    spark.read.parquet(str(tmp_path / "in")).createOrReplaceTempView("orders")
    for name, condition in conditions.items():
        wanted = rows(spark.sql(f"SELECT * FROM orders WHERE {condition}"))
        assert rows(run.results(name)) == wanted, name
        assert wanted or name == "of_constants", name
    assert not quarantined(tmp_path / "out")
    told = run.explain()
    assert "your functions, in this order, for rows that satisfy everything else of a condition" in told
    assert "shout(shout(name)): called for " in told
    if in_scan:
        assert counts["hour_of"] < 1_000
        assert counts["is_even"] <= 3_000, "three views share a call"
        (batch, *more) = run.events("batch")
        assert sum(each["function_rows"] for each in (batch, *more)) == sum(counts.values())
    else:
        assert "computed by Spark: __d0 = score(amount, id) + 1" in told


def test_streams_with_calls_keep_their_place_in_the_scan(spark: SparkSession, tmp_path: Path) -> None:
    write_orders(tmp_path / "in", 1, 30)
    found = engine(spark, tmp_path).execute(
        script(tmp_path / "in", selections({name: CALLED[name] for name in ("scored", "even_and_scored")}))
    )
    told = found.explain()
    assert "slower path" not in told
    assert "    1. score(amount, id)\n    2. is_even(id)" in told
    assert "(nothing measured yet)" in told


def test_a_row_that_raises_is_quarantined_and_the_stream_goes_on(spark: SparkSession, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    write_orders(folder, 2, 3_000)

    def picky(number: pa.Array) -> pa.Array:
        bad = [each for each in number.to_pylist() if each % 1_000 == 500]
        if bad:
            raise ValueError(f"{bad[0]} is bad")
        return pc.greater(number, 100)

    views = {
        "first": "picky(id) AND amount >= 0",
        "second": "id >= 2000 AND picky(id)",
        "third": "id BETWEEN 490 AND 510 OR (id < 600 AND picky(id))",
        "rest": "id < 10",
    }
    windows = {
        "counted": "SELECT window(seen, '1 day') AS w, count(*) AS n FROM orders WHERE picky(id) GROUP BY w"
    }
    found = Engine(spark).function("picky", picky, "BOOLEAN")
    run = run_to_end(found.execute(script(folder, selections(views) | windows)), tmp_path / "out")
    tuples = pq.read_table(folder).to_pylist()
    good = [each["id"] for each in tuples if each["id"] % 1_000 != 500 and each["id"] > 100]
    got = {name: sorted(row.id for row in run.results(name).collect()) for name in views}
    amounts = {each["id"] for each in tuples if each["amount"] is not None and each["amount"] >= 0}
    assert got["first"] == sorted(each for each in good if each in amounts)
    assert got["second"] == sorted(each for each in good if each >= 2_000)
    assert got["third"] == sorted({each for each in good if each < 600} | set(range(490, 511)))
    assert got["rest"] == list(range(10))
    aside = quarantined(tmp_path / "out")
    bad = sorted(each["id"] for each in tuples if each["id"] % 1_000 == 500)
    assert sorted(json.loads(str(each["record"], "utf-8"))["id"] for each in aside) == bad  # type: ignore[call-overload]
    assert {each["origin"] for each in aside} == {"picky(id)"}
    assert "function picky raised: ValueError: 1500 is bad" in {each["reason"] for each in aside}
    counts: Counter[str] = Counter()
    errors: Counter[str] = Counter()
    for each in run.events("batch"):
        counts.update(each["quarantined"])
        errors.update(each["errors"])
    assert counts == {"function picky raised: ValueError": len(bad)}
    assert errors["second"] == len([each for each in bad if each >= 2_000])
    assert errors["counted"] == len(bad)
    assert "third" not in errors, "it is satisfied without the call"
    assert run.status().streams["orders"].tuples == 6_000
    assert sum(row.n for row in run.results("counted").collect()) == len(
        [each["id"] for each in tuples if each["id"] in set(good) and each["seen"] is not None]
    )


def test_the_order_follows_what_was_measured(spark: SparkSession, tmp_path: Path) -> None:
    write_orders(tmp_path / "in", 4, 2_000)

    def slow(number: pa.Array) -> pa.Array:
        for _ in range(20):
            sorted(number.to_pylist())
        return pc.greater(number, -1)

    def quick(number: pa.Array) -> pa.Array:
        return pc.equal(pc.bit_wise_and(number, 15), 0)

    found = Engine(spark).function("slow", slow, "BOOLEAN").function("quick", quick, "BOOLEAN")
    text = script(tmp_path / "in", selections({"both": "slow(id) AND quick(id) AND amount >= 0"}))
    text = text.replace("OPTIONS (", "OPTIONS (maxFilesPerTrigger '1', ")
    run = run_to_end(found.execute(text), tmp_path / "out")
    (changed, *_) = run.events("functions_reordered")
    assert changed["order"] == ["quick(id)", "slow(id)"]
    assert "is predicted to take" in changed["told"]
    first, *_, last = (each["function_rows"] for each in run.events("batch"))
    assert last < 0.6 * first
    lines = run.explain().splitlines()
    place = next(number for number, line in enumerate(lines) if "your functions" in line)
    assert lines[place + 1].strip().startswith("1. quick(id): called for ")
    assert lines[place + 2].strip().startswith("2. slow(id): called for ")
    told = "\n".join(found.explain(tmp_path / "out").splitlines()[-2:])
    assert told.startswith("    1. quick(id): called for ")
    assert "    2. slow(id): called for " in told
    with pytest.raises(InputError, match="is not a results folder"):
        found.explain(tmp_path / "elsewhere")
    write_orders(tmp_path / "in", 5, 2_000)
    again = Engine(spark).function("slow", slow, "BOOLEAN").function("quick", quick, "BOOLEAN")
    run = run_to_end(again.execute(text), tmp_path / "out")
    assert not run.events("functions_reordered"), "the order outlasts the run"
    assert run.events("batch")[0]["function_rows"] < 0.6 * first
    spark.read.parquet(str(tmp_path / "in")).createOrReplaceTempView("orders")
    wanted = rows(spark.sql("SELECT * FROM orders WHERE slow(id) AND quick(id) AND amount >= 0"))
    assert rows(run.results("both")) == wanted


def test_rows_whose_columns_call_a_function_are_printed_with_its_file(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_orders(tmp_path / "in", 1, 30)
    found = Engine(spark).function("exclaimed", pc.utf8_upper, "STRING")
    view = {"loud": "SELECT id, exclaimed(name) AS name FROM orders WHERE id < 3"}
    run_to_end(found.execute(script(tmp_path / "in", view)), tmp_path / "out")
    spark.sql("DROP TEMPORARY FUNCTION exclaimed")
    capsys.readouterr()
    assert called("results", tmp_path / "out", "loud", "--format", "csv") == 2
    printed, told = capsys.readouterr()
    assert printed == ""
    assert told.splitlines()[-1] == (
        "penstock: The rows of loud are computed when they are read, and the session does not have the function exclaimed. Name the "
        f"Python file of the run: `penstock results {tmp_path / 'out'} loud --functions FILE`. In Python, register it with "
        "`Engine.function` first."
    )
    assert "java" not in told
    assert "SQLQueryContextLogger" not in told
    (tmp_path / "mine.py").write_text(
        "import pyarrow.compute as pc\nFUNCTIONS = {'exclaimed': (pc.utf8_upper, 'STRING')}\n"
    )
    options = ("--format", "json", "--functions", tmp_path / "mine.py")
    assert called("results", tmp_path / "out", "loud", *options) == 0
    spark.read.parquet(str(tmp_path / "in")).createOrReplaceTempView("orders")
    wanted = spark.sql("SELECT id, upper(name) AS name FROM orders WHERE id < 3").collect()
    printed, _ = capsys.readouterr()
    got = [json.loads(line) for line in printed.splitlines()]
    assert got
    assert sorted(got, key=lambda row: row["id"]) == [row.asDict() for row in sorted(wanted)]
    assert called("results", tmp_path / "out", "loud", "--functions", tmp_path / "none.py") == 2
    assert "none.py: this Python file does not exist" in capsys.readouterr().err
