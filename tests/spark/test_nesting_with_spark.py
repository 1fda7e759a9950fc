"""Expressions that are nested deep or are long, where Spark reads them too."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from penstock import Engine
from penstock.errors import InputError
from whole_runs import run_to_end

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WINDOW = "window(at, '1 minute')"
HOUR = "b.at BETWEEN a.at - INTERVAL 1 HOUR AND a.at + INTERVAL 1 HOUR"


def nested(inner: str, depth: int = 300, before: str = "(") -> str:
    return before * depth + inner + ")" * depth


@pytest.mark.long
def test_views_that_are_nested_300_deep_are_answered(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "1.json").write_text('{"id": 443, "s": "x1", "at": "2024-05-01T10:00:00Z"}\n')
    terms = " OR ".join(f"s LIKE '%y{number}' " for number in range(1_000))
    kernel = " OR ".join(f"id = {number}" for number in range(5_000))
    views = {
        "plain": f"SELECT id FROM t WHERE {nested('id = 443')}",
        "negated": f"SELECT id FROM t WHERE {nested('id = 443', before='NOT (')}",
        "derived": f"SELECT id FROM t WHERE {nested('reverse(s) = ' + chr(39) + '1x' + chr(39))}",
        "selected": f"SELECT {nested('id + 1')} AS n FROM t WHERE {nested('id', 150)} + 1 > 3",
        "long": f"SELECT id FROM t WHERE {kernel}",
        "long_derived": f"SELECT id FROM t WHERE s LIKE '%x1%' OR {terms}",
        "grouped": f"SELECT {nested('count(*)', 150)} AS n FROM t WHERE {nested('id = 443')} GROUP BY {WINDOW} HAVING {nested('count(*) > 0', 150)}",
        "joined": f"SELECT a.id FROM t a JOIN t b ON a.id = b.id AND {HOUR} WHERE {nested('a.id = 443')}",
    }
    script = f"CREATE TABLE t (id INT, s STRING, at TIMESTAMP) USING json OPTIONS (path '{tmp_path}/in', event_time 'at');"
    engine = Engine(spark).execute(script).add_views(views)
    run = run_to_end(engine, str(tmp_path / "out"), ended=True, seconds=None)
    assert {view: run.results(view).count() for view in views} == dict.fromkeys(views, 1)


def test_what_only_spark_finds_too_deep_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    engine = Engine(spark).execute(
        f"CREATE TABLE t (id INT, s STRING) USING json OPTIONS (path '{tmp_path}/in')"
    )
    for before in ("(", "abs(", "NOT ("):
        for depth in (501, 5_000):
            with pytest.raises(InputError, match="nested more than 500 levels deep"):
                engine.view("deep", f"SELECT id FROM t WHERE {nested('id > 1', depth, before)}")
    try:
        engine.view("deep", f"SELECT id FROM t WHERE {nested('id', 499, 'abs(')} > 1")
    except InputError as error:
        assert re.search("nested too deep|too complex to parse", str(error))  # noqa: PT017 - a larger stack takes it
