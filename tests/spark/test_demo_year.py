"""`penstock demo` on a few thousand flights: what it prints rests on rows that were compared."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from rich.console import Console

from penstock.cli import demo_year
from penstock.cli.demo_data import prepare
from penstock.cli.demo_plain import PlainRules, answer_rules
from penstock.spark.engine import Engine
from penstock.sql.script.script import parse_script

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]


@pytest.mark.parametrize("lost", [0, pytest.param(1, marks=pytest.mark.long)])
def test_the_screen_says_whether_the_rows_are_the_same(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lost: int
) -> None:
    flights, *_ = prepare(tmp_path / "data")
    (path,) = flights.iterdir()
    pq.write_table(pq.read_table(path).slice(0, 20_000), path)

    def lossy(*arguments: Any) -> PlainRules:
        plain = answer_rules(*arguments)
        found = plain.rows.filter(pc.not_equal(plain.rows["rules"], ""))
        return replace(plain, rows=found.slice(lost))

    monkeypatch.setattr("penstock.cli.common.build_engine", lambda *_: Engine(spark))
    monkeypatch.setattr(demo_year, "answer_rules", lossy)
    console = Console(file=io.StringIO(), width=100)
    demo_year.replay_year(
        console, flights, tmp_path / "out", 60, demo_year.Sample((200, 300), (5_000, 5_000))
    )
    written = parse_script(demo_year.written_script(tmp_path / "data").read_text())
    assert "departures_by_origin" in {view.name for view in written.views}
    assert len(written.views) > 60
    assert isinstance(console.file, io.StringIO)
    lines = console.file.getvalue().splitlines()
    rules, windows, exact = (line for line in lines if "same rows" in line or "by DuckDB" in line)
    assert ("NO: " if lost else "yes, all ") in rules
    assert "yes, all " in windows
    assert "yes, all " in exact
    # the test's folder has a longer name than a user's
    assert max(len(line.replace(str(tmp_path), "")) for line in lines) <= 100
    assert len(lines) <= 40
