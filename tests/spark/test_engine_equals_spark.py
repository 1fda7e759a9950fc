"""The engine, run over files, selects what `spark.sql` selects: random schemas, data and query sets.

Ten query sets share one run a seed. The long form runs 32 seeds: 320 sets.
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from forms import ALL
from penstock import Matcher
from penstock.errors import UnsupportedError
from penstock.spark.engine import Engine
from penstock.spark.recovery.messages import quoted
from penstock.sql.conditions.bind import bind_selections
from penstock_lab.generators.queries import QueryGenerator
from whole_runs import run_to_end

pytestmark = pytest.mark.spark

SEEDS = 32 if ALL else 1
ROWS, SETS, CONDITIONS = 400, 10, 8


@pytest.mark.parametrize("seed", range(7_000, 7_000 + SEEDS))
def test_engine_selects_what_spark_selects(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    needs_spark = seed % 2 == 1
    generator = QueryGenerator(seed, needs_spark=needs_spark)
    schema = generator.schema()
    table = generator.table(schema, ROWS).append_column("__row", pa.array(range(ROWS), pa.int64()))
    table = table.rename_columns([*schema.names, "row_number"])
    (tmp_path / "in").mkdir()
    for part in range(4):
        piece = table.slice(part * ROWS // 4, ROWS // 4)
        pq.write_table(piece, tmp_path / "in" / f"{part}.parquet", row_group_size=40)
    sets = [generator.conditions(schema, CONDITIONS) for _ in range(SETS)]
    conditions = {
        f"s{number}_{name}": text for number, each in enumerate(sets) for name, text in each.items()
    }
    if not needs_spark:
        conditions = {name: text for name, text in conditions.items() if _needs_no_spark(text, schema)}
    stored = spark.read.parquet(str(tmp_path / "in"))
    stored.createOrReplaceTempView("tuples")
    columns = ", ".join(f"{quoted(field.name)} {field.dataType.simpleString()}" for field in stored.schema)
    engine = Engine(spark).execute(
        f"CREATE TABLE tuples ({columns}) USING parquet OPTIONS (path '{tmp_path / 'in'}')"
    )
    engine.add_views({name: f"SELECT * FROM tuples WHERE {text}" for name, text in conditions.items()})
    assert ("fast path" in engine.explain()) is not needs_spark
    run = run_to_end(engine, tmp_path / "out", seconds=None)

    found: dict[str, set[int]] = defaultdict(set)
    for row in run.matches("tuples").select("row_number", "queries").collect():
        assert len(set(row.queries)) == len(row.queries)
        for name in row.queries:
            found[name].add(row.row_number)
    wanted = stored.selectExpr(
        "row_number", *(f"({text}\n) IS TRUE AS `{name}`" for name, text in conditions.items())
    )
    answers = wanted.toArrow()
    rows = answers["row_number"].to_pylist()
    for name, text in conditions.items():
        expected = {row for row, holds in zip(rows, answers[name].to_pylist(), strict=True) if holds}
        assert found[name] == expected, text
    assert any(found.values())
    assert run.status().streams["tuples"].errors == {}
    if not needs_spark:
        matches = Matcher(conditions, schema).match(table.select(schema.names))
        mine: dict[str, set[int]] = defaultdict(set)
        for row in range(ROWS):
            for query in matches.queries[matches.offsets[row] : matches.offsets[row + 1]]:
                mine[matches.names[query]].add(row)
        assert mine == {name: numbers for name, numbers in found.items() if numbers}


def _needs_no_spark(text: str, schema: pa.Schema) -> bool:
    try:
        bind_selections({"q": text}, schema, None)
    except UnsupportedError:
        return False
    return True
