"""Random mixes of views of every kind, killed at random places: in the end each answer is that of `spark.sql` over all tuples."""

from __future__ import annotations

import random
import signal
from collections import Counter
from datetime import datetime
from pathlib import Path

import pyarrow as pa
import pytest
import victim
from pyspark.sql import SparkSession

from engine_cases import put_rides
from forms import INTERPRETED
from killing import forked
from penstock.spark.results.read_plain import plain_rows
from penstock.spark.storage.layout import Layout

pytestmark = [pytest.mark.spark, pytest.mark.chaos, pytest.mark.long, pytest.mark.timeout(1_800)]

MIXES = 30
#: where a run kills itself: its ingest, its lanes, the rows that other views read, and views with a deadline
PLACES = (
    "staged",
    "before_commit",
    "cut_put",
    "cut_answered",
    "cut_published",
    "rows_logged",
    "order_judged",
)
ROWS, SECONDS, FILES_A_START = 150, 40, 2


def views_of(choice: random.Random) -> dict[str, str]:
    """A mix: at least one view of each kind, by name."""
    views: dict[str, str] = {}
    for number in range(choice.randint(1, 3)):
        limit, key = choice.randint(-40, 40), choice.choice("ab")
        condition = choice.choice(
            [
                f"x > {limit}",
                f"x BETWEEN {limit - 20} AND {limit}",
                f"k = '{key}' AND x < {limit}",
                f"x > {limit} OR k IS NULL",
            ]
        )
        views[f"selection_{number}"] = f"SELECT * FROM rides WHERE {condition}"
    for number in range(choice.randint(1, 3)):
        views[f"windows_{number}"] = f"SELECT {windows_of(choice)}"
    size = choice.choice([5, 10])
    views["base"] = (
        f"SELECT k, window(ts, '{size} seconds') AS w, count(*) AS n, sum(x) AS s FROM rides GROUP BY k, w"
    )
    views["derived"] = (
        f"SELECT window(w, '{size * choice.randint(2, 4)} seconds') AS v, max(n) AS most, count(*) AS groups FROM base "
        "GROUP BY v"
    )
    low = choice.randint(0, 2)
    views["pairs"] = (
        "SELECT a.k, a.ts AS first, b.ts AS later, b.x FROM rides a JOIN rides b ON a.k = b.k AND b.ts BETWEEN a.ts + "
        f"INTERVAL {low} SECONDS AND a.ts + INTERVAL {low + 1} SECONDS"
    )
    views["timely"] = f"SELECT /*+ DEADLINE('1 hour') */ {windows_of(choice)}"
    return views


def windows_of(choice: random.Random) -> str:
    """Windows over the stream, by their keys or without."""
    slide = choice.choice([2, 5, 10])
    size = slide * choice.randint(1, 3)
    aggregate = choice.choice(["sum(x)", "count(x)", "min(x)", "max(x)", "sum(x), count(DISTINCT x)"])
    values = ", ".join(f"{each} AS a{place}" for place, each in enumerate(aggregate.split(", ")))
    key = choice.choice(["k, ", ""])
    condition = choice.choice(["", "WHERE x > -20 "])
    return f"{key}window(ts, '{size} seconds', '{slide} seconds') AS w, {values} FROM rides {condition}GROUP BY {key}w"


@pytest.mark.parametrize("seed", range(MIXES))
def test_a_mix_that_is_killed_answers_what_spark_does(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    choice = random.Random(seed)
    views = views_of(choice)
    places = [choice.choice(PLACES) for _ in range(2)]
    script, log, output = tmp_path / "script.sql", tmp_path / "victim.log", tmp_path / "out"
    (tmp_path / "rides").mkdir()
    options = f"path '{tmp_path / 'rides'}', event_time 'ts', max_files_per_trigger '1'"
    declared = "\n".join(f"CREATE VIEW {name} AS {text};" for name, text in views.items())
    script.write_text(f"CREATE TABLE rides USING parquet OPTIONS ({options});\n{declared}")
    conf = [
        f"{key}={value}"
        for key, value in {"spark.python.daemon.module": "pyspark.daemon", **INTERPRETED}.items()
    ]
    tables: list[pa.Table] = []
    for place in (*places, ""):
        for _ in range(FILES_A_START):
            begin = 1_700_000_000 + len(tables) * SECONDS
            tables.append(put_rides(tmp_path, len(tables), ROWS, begin, SECONDS))
        # over what is available a run answers all windows at the end, and a view with a deadline answers each once
        ended = ["--open"] if place else ["--ended"]
        code = forked(victim.main_with, {}, str(script), str(output), *conf, *ended, log=log, failpoint=place)
        assert code == (-signal.SIGKILL if place else 0), f"{place}: {code}; {log.read_text()[-3000:]}"
    spark.read.parquet(str(tmp_path / "rides")).createOrReplaceTempView("rides")
    layout = Layout.of(output, None)
    for name, text in views.items():
        wanted = spark.sql(text)
        wanted.createOrReplaceTempView(name)
        found = plain_rows(layout, name, 0, False)
        assert found is not None, name
        assert bag(found.rows) == bag(wanted.toArrow()), (name, text, places)
        assert found.rows.num_rows or name.startswith("selection"), f"{name} has no rows"


def bag(rows: pa.Table) -> Counter[str]:
    """The rows, a window by its beginning."""
    return Counter(
        repr(sorted((name, _plain(value)) for name, value in row.items())) for row in rows.to_pylist()
    )


def _plain(value: object) -> str:
    moment = value["start"] if isinstance(value, dict) else value
    return repr(moment.timestamp() if isinstance(moment, datetime) else moment)
