"""Rules in files on Spark: declared beside mistakes, followed while a stream runs, read again at a restart, checked by command."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from penstock.cli.main import main
from penstock.errors import InputError, SqlError, UnknownNameError
from penstock.monitor.folder import folder_status
from penstock.monitor.problems import problem_lines
from penstock.spark.engine import Engine
from penstock.trigger import Trigger

pytestmark = pytest.mark.spark

_ANSWERED_SECONDS = 300.0


def _script(folder: Path) -> str:
    return (
        f"CREATE TABLE orders (id INT, city STRING) USING csv OPTIONS (path '{folder}/in'); "
        f"CREATE VIEWS FROM '{folder}/rules/*.sql' ON orders; "
        f"CREATE VIEW every AS SELECT id FROM orders;"
    )


def _await(is_so: Callable[[], bool]) -> None:
    end = time.monotonic() + _ANSWERED_SECONDS
    while not is_so():
        assert time.monotonic() < end, "nothing happened"
        time.sleep(0.2)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two rules and a file of orders."""
    for name in ("in", "rules"):
        (tmp_path / name).mkdir()
    (tmp_path / "rules" / "swiss.sql").write_text("city IN ('Bern', 'Basel')")
    (tmp_path / "rules" / "north.sql").write_text("city ILIKE 'oslo%'")
    (tmp_path / "rules" / "broken.sql").write_text("-- by Kim\ntown = 'Bern'")
    (tmp_path / "in" / "0.csv").write_text("1,Bern\n2,Oslo\n3,Rome\n")
    return tmp_path


def test_a_stream_follows_its_rules_and_a_restart_reads_them_again(spark: SparkSession, folder: Path) -> None:
    engine = Engine(spark).execute(_script(folder))
    assert list(engine.views) == ["every", "north", "swiss"]
    (refused,) = engine.refused_rules
    assert refused.startswith(f"{folder}/rules/broken.sql:2: broken: Column town does not exist")
    with engine.start(folder / "out") as run:
        rows = lambda view: [row.id for row in run.results(view).orderBy("id").collect()]  # noqa: E731
        _await(lambda: run.status().streams["orders"].tuples == 3)
        assert (rows("swiss"), rows("north")) == ([1], [2])
        (folder / "rules" / "broken.sql").write_text("city = 'Rome'")
        (folder / "rules" / "swiss.sql").write_text("city = 'Basel'")
        (folder / "rules" / "north.sql").unlink()
        _await(lambda: len(run.events("rules_changed")) > 1)
        _await(lambda: list(engine.views) == ["every", "swiss", "broken"])
        assert engine.refused_rules == []
        (folder / "rules" / "swiss.sql").write_text("city = Basel")
        _await(lambda: len(run.events("rule_refused")) > 0)
        (event,) = run.events("rule_refused")
        assert event["view"] == "swiss"
        assert "swiss.sql:1: Column Basel does not exist" in event["told"]
        assert event["told"].endswith("(its last good definition runs)")
        (folder / "in" / "1.csv").write_text("4,Rome\n5,Basel\n6,Oslo\n")
        _await(lambda: run.status().streams["orders"].tuples == 6)
        assert (rows("swiss"), rows("broken")) == ([5], [4])
    again = Engine(spark).execute(_script(folder))
    assert list(again.views) == ["every", "broken"]
    (folder / "in" / "2.csv").write_text("7,Basel\n8,Bern\n")
    with again.start(folder / "out", trigger=Trigger.available_now()) as run:
        run.await_termination()
        assert rows("swiss") == [5, 7]
    assert list(again.views) == ["every", "broken", "swiss"]
    (refused,) = again.refused_rules
    assert refused.endswith("(its last good definition runs)")
    (problem, rule) = [each for each in problem_lines(folder_status(folder / "out")) if "rule" in each]
    assert problem.endswith("rules/*.sql: 1 rule with mistakes: the last good definition of it runs")
    assert rule == f"rule {refused}"


def test_a_watched_script_keeps_its_rules(spark: SparkSession, folder: Path) -> None:
    engine = Engine(spark).execute(_script(folder))
    changes = engine.reconcile(_script(folder).replace("every AS SELECT id", "every AS SELECT city"))
    assert (changes.redefined, changes.dropped) == (["every"], [])
    changes = engine.reconcile(_script(folder).replace("*.sql", "north.sql"))
    assert sorted(changes.dropped) == ["swiss"]
    assert sorted(engine.views) == ["every", "north"]


def test_functions_take_the_rows_of_views_over_other_rules(spark: SparkSession, folder: Path) -> None:
    over = (
        "CREATE VIEW high AS SELECT id FROM swiss WHERE id < 10; CREATE VIEW higher AS SELECT id FROM high; "
        "CREATE TABLE shown USING console; INSERT INTO shown SELECT id FROM higher;"
    )
    engine = Engine(spark).execute(_script(folder) + over)
    for view in ("swiss", "high", "higher"):
        engine.sink(view, lambda rows, batch: None)  # noqa: ARG005 - a sink takes both
    before = engine._declared.sinks
    engine.reconcile(_script(folder).replace("*.sql", "[ns]*.sql") + over)
    after = engine._declared.sinks
    told = [sorted((sink.view, sink.text) for sink in sinks) for sinks in (before, after)]
    assert told[0] == told[1]


def test_a_script_has_views_and_inserts_over_those_of_its_rules(spark: SparkSession, folder: Path) -> None:
    (folder / "rules" / "few.sql").write_text("SELECT id FROM every WHERE id < 3")
    over = (
        "CREATE VIEW high AS SELECT id FROM swiss WHERE id < 10; CREATE VIEW higher AS SELECT id FROM HIGH; "
        "CREATE TABLE shown USING console; INSERT INTO shown SELECT id FROM north WHERE id > 1;"
    )
    script = _script(folder) + over
    engine = Engine(spark).execute(script)
    views = [*engine.views]
    insert = next(name for name in views if name.startswith("insert_into_shown"))
    assert views == ["every", "few", "north", "swiss", "high", "higher", insert]
    with engine.start(folder / "out", trigger=Trigger.available_now()) as run:
        run.await_termination()
        for view, ids in {"higher": [1], insert: [2], "few": [1, 2]}.items():
            assert [row.id for row in run.results(view).orderBy("id").collect()] == ids
    changes = engine.reconcile(script.replace("rules/*.sql", "rules/[ns]*.sql"))
    assert (changes.redefined, changes.dropped) == ([], ["few"])
    assert sorted(engine.views) == sorted({*views} - {"few"})
    assert len(engine._declared.sinks) == 1
    (folder / "rules" / "High.sql").write_text("id = 3")
    with pytest.raises(InputError, match="high exists already: a file of CREATE VIEWS declares it"):
        Engine(spark).execute(script)
    with pytest.raises(
        SqlError, match=r"View broken is not declared, because its rule has a mistake: .*:2: "
    ) as told:
        Engine(spark).execute(_script(folder) + "CREATE VIEW x AS SELECT id FROM broken").start(
            folder / "new"
        )
    assert told.value.text[told.value.start : told.value.end] == "broken"
    insertion = "CREATE TABLE shown USING console; INSERT INTO shown SELECT * FROM nowhere"
    for text in ("CREATE VIEW x AS SELECT id FROM nowhere", insertion):
        with pytest.raises(
            UnknownNameError, match=r"nowhere does not exist, in the script or in a file of CREATE VIEWS"
        ):
            Engine(spark).execute(f"{_script(folder)} {text}")


def test_a_restart_keeps_what_selects_from_rules_with_mistakes(spark: SparkSession, folder: Path) -> None:
    script = _script(folder) + (
        "CREATE VIEW high AS SELECT id FROM swiss WHERE id < 10; CREATE VIEW higher AS SELECT id FROM HIGH; "
        "CREATE TABLE shown USING console; INSERT INTO shown SELECT id FROM north WHERE id > 1;"
    )
    engine = Engine(spark).execute(script)
    with engine.start(folder / "out", trigger=Trigger.available_now()) as run:
        run.await_termination()
    (folder / "rules" / "swiss.sql").write_text("town = 'Bern'")
    (folder / "rules" / "north.sql").write_bytes(b"city = '\xff'")
    (folder / "in" / "1.csv").write_text("7,Bern\n8,Oslo\n")
    again = Engine(spark).execute(script)
    assert (list(again.views), len(again.refused_rules)) == (["every"], 3)
    with again.start(folder / "out", trigger=Trigger.available_now()) as run:
        run.await_termination()
        insert = next(name for name in again.views if name.startswith("insert_into_shown"))
        for view, ids in {"higher": [1, 7], insert: [2, 8]}.items():
            assert [row.id for row in run.results(view).orderBy("id").collect()] == ids
    assert sorted(again.views) == sorted(engine.views)
    assert len(again._declared.sinks) == 1


def test_check_prints_a_line_for_each_rule_with_a_mistake(
    spark: SparkSession,  # noqa: ARG001 - the command uses it
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (folder / "rules" / "cut.sql").write_text("city =")
    (folder / "script.sql").write_text(_script(folder))
    monkeypatch.setattr(sys, "argv", ["penstock", "check", str(folder / "script.sql")])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    first, *lines = [line for line in capsys.readouterr().err.splitlines() if ".sql" in line]
    assert first.endswith("script.sql: 2 rules with mistakes")
    assert [line.partition(": ")[0] for line in lines] == [
        f"{folder}/rules/broken.sql:2",
        f"{folder}/rules/cut.sql:1",
    ]
