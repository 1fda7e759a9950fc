"""The recipes of the documentation: each view equals Spark's answer over the same rows."""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from doc_examples import blocks
from penstock.spark.engine import Engine
from penstock.spark.results.read import results
from penstock.spark.storage.layout import Layout
from penstock.trigger import Trigger

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "recipes.md"
BLOCKS = blocks(PAGE.read_text())
RECIPES = [block.text for block in BLOCKS if block.title == "recipe.sql"]
TABLES = next(block.text for block in BLOCKS if block.title == "tables.sql")
STREAMS = {"orders": 600, "returns": 80, "payments": 350}
START = 1_577_836_800
CITIES, METHODS = ("Bern", "Basel", "Chur", "Genf"), ("card", "cash")


def write(root: Path) -> None:
    """Rows of half an hour, some of them up to 20 seconds out of order."""
    chance = random.Random(4)
    for stream, count in STREAMS.items():
        rows = []
        for number in range(count):
            moment = START + 1_800 * number / count - chance.choice([0, 0, 0, chance.random() * 20])
            ts = datetime.fromtimestamp(moment, UTC).isoformat(timespec="milliseconds")
            if stream == "payments":
                rows.append({"order_id": chance.randrange(600), "ts": ts, "method": chance.choice(METHODS)})
            else:
                customer = f"c{chance.randrange(25)}"
                amount = float(chance.randrange(1, 500))
                rows.append(
                    {
                        "id": number,
                        "ts": ts,
                        "customer": customer,
                        "city": chance.choice(CITIES),
                        "amount": amount,
                    }
                )
        put(root / stream, rows)
    put(root / "customers", [{"name": f"c{number}", "segment": f"s{number % 3}"} for number in range(20)])


def put(folder: Path, rows: list[dict[str, object]]) -> None:
    folder.mkdir()
    (folder / "0.json").write_text("".join(f"{json.dumps(row)}\n" for row in rows))


def multiset(rows: DataFrame) -> Counter[str]:
    return Counter(repr(tuple(row)) for row in rows.collect())


@pytest.mark.long
def test_every_recipe_is_what_spark_answers(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path)
    engine = Engine(spark, max_delay_seconds=3_600).execute(TABLES + "".join(RECIPES))
    with engine.start(tmp_path / "out", trigger=Trigger.available_now(ended=True)) as run:
        assert run.await_termination(600)
    spark.conf.set("spark.sql.join.asofJoin.enabled", "true")
    for table, columns in re.findall(r"CREATE TABLE (\w+) \(([^)]*)\)", TABLES):
        spark.read.schema(columns).json(str(tmp_path / table)).createOrReplaceTempView(table)
    views = [re.fullmatch(r"CREATE VIEW (\w+) AS\s(.*);\n", text, re.DOTALL) for text in RECIPES]
    for view in views:
        assert view is not None
        name, query = view.groups()
        expected = spark.sql(query)
        expected.createOrReplaceTempView(name)
        found = multiset(results(spark, Layout.of(tmp_path / "out", None), name))
        assert found == multiset(expected), name
        assert found, f"{name}: no rows show nothing"
    spark.conf.unset("spark.sql.join.asofJoin.enabled")
