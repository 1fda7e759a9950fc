"""SET, SHOW VIEWS and DESCRIBE on a session: what decides, what is answered, and what is refused."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from commands import called
from forms import SOON_OVER
from penstock.cli.watch import Watcher
from penstock.errors import InputError, MistakesError, SqlError
from penstock.spark.engine import Engine
from penstock.trigger import Trigger

pytestmark = pytest.mark.spark

COLUMNS = (
    "id BIGINT, k STRING, x DOUBLE, d DECIMAL(12,3), b BOOLEAN, n TINYINT, day DATE, at TIMESTAMP, local TIMESTAMP_NTZ, raw BINARY, "
    "tags ARRAY<STRING>, m MAP<STRING, INT>, place STRUCT<lat: FLOAT, `the name`: STRING>"
)
#: of every kind, in an order in which each finds what it reads
VIEWS = {
    "every": "SELECT * FROM s WHERE x > 1",
    "some": "SELECT id, place.lat AS lat, d + 1 AS more, upper(k), tags[0] AS tag, `day` FROM s WHERE b",
    "of_some": "SELECT lat, more * 2 AS twice FROM some WHERE id > 3",
    "per_minute": "SELECT window(at, '1 minute') AS w, k, count(*) AS n, sum(d) AS total, avg(x) AS mean, max(n) AS most, "
    "collect_list(k) AS every FROM s GROUP BY window(at, '1 minute'), k",
    "busy": "SELECT w.start AS begun, n, total / n AS share FROM per_minute WHERE n > 2",
    "per_hour": "SELECT window(w.start, '1 hour') AS h, sum(n) AS n, max(total) AS most FROM per_minute GROUP BY h",
    "sessions": "SELECT session_window(at, '10 minutes') AS w, k, count(DISTINCT id) AS n FROM s GROUP BY w, k",
    "running": "SELECT k, count(*) AS n, min(day) AS first, stddev(x) AS spread FROM s GROUP BY k HAVING count(*) > 1",
    "sets": "SELECT k, b, grouping_id() AS g, sum(n) AS n FROM s GROUP BY CUBE(k, b)",
    "newest": "SELECT * FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY k ORDER BY at DESC) AS place_of FROM s) WHERE place_of <= 2",
    "joined": "SELECT a.id, c.country, a.d * 2 AS twice FROM s a LEFT JOIN cities c ON a.k = c.city",
    "pairs": "SELECT a.id AS one, t.id AS other, t.at FROM s a JOIN t ON a.id = t.id AND t.at BETWEEN a.at - INTERVAL 1 MINUTE AND a.at",
    "both": "SELECT id, at FROM s UNION ALL SELECT id, at FROM t",
    "asked": "SELECT /*+ REFRESH('1 minute') */ k, lag(x) OVER (PARTITION BY k ORDER BY at) AS before FROM s",
    "in_time": "SELECT /*+ DEADLINE('60 seconds') */ window(at, '10 seconds') AS w, count(*) AS n FROM s GROUP BY w",
    "of_rows": "SELECT a.k, max(a.total) AS total FROM per_minute a JOIN running r ON a.k = r.k GROUP BY a.k",
}


@pytest.fixture
def tables(spark: SparkSession, tmp_path: Path) -> str:
    """Tables of the script, with a file each, and the same names in Spark."""
    texts = []
    for name, columns, option in (
        ("s", COLUMNS, ", event_time 'at'"),
        ("t", "id INT, at TIMESTAMP", ", event_time 'at'"),
        ("cities", "city STRING, country STRING", ", static 'true'"),
    ):
        frame = spark.createDataFrame([], columns)
        frame.write.parquet(str(tmp_path / name))
        frame.createOrReplaceTempView(name)
        texts.append(
            f"CREATE TABLE {name} ({columns}) USING parquet OPTIONS (path '{tmp_path / name}'{option});"
        )
    return "\n".join(texts)


def _answer(title: str, schema: StructType) -> list[list[str]]:
    """What DESCRIBE answers, by the words of its lines; the names have no blanks."""
    return [[title], *([field.name, field.dataType.simpleString()] for field in schema)]


def test_every_kind_is_described_as_spark_describes_it(spark: SparkSession, tables: str) -> None:
    answers: list[str] = []
    declared = "\n".join(f"CREATE VIEW {name} AS {text};" for name, text in VIEWS.items())
    asked = ["s", "t", "cities", *VIEWS]
    # the answers are those of the whole script, wherever it asks
    script = f"DESCRIBE {asked[0]};{tables}\n{declared}\n" + "".join(
        f"DESCRIBE {name};" for name in asked[1:]
    )
    Engine(spark).execute(script, answers.append)
    kinds = {"s": "stream s", "t": "stream t", "cities": "static table cities"}
    for name, answer in zip(asked, answers, strict=True):
        frame = spark.table(name) if name in kinds else spark.sql(VIEWS[name])
        frame.createOrReplaceTempView(name)
        title, *columns = answer.splitlines()
        lines = [[title], *(line.split(maxsplit=1) for line in columns)]
        assert lines == _answer(kinds.get(name, f"view {name}"), frame.schema), name


def test_views_are_listed_without_inner_ones_and_names_without_case(
    spark: SparkSession, tables: str, capsys: pytest.CaptureFixture[str]
) -> None:
    engine = Engine(spark).execute(
        f"""SHOW VIEWS; {tables} CREATE VIEW Large AS SELECT id FROM s WHERE x > 5;
        CREATE VIEW of_both AS SELECT k, max(c) AS c FROM (SELECT k, b, count(*) AS c FROM s GROUP BY k, b) GROUP BY k;
        CREATE VIEW gone AS SELECT id FROM s; DROP VIEW gone; DESCRIBE LARGE;"""
    )
    assert len(engine.views) == 3
    assert capsys.readouterr().out == "views\n  Large\n  of_both\nview Large\n  id  bigint\n"
    engine.execute("SHOW VIEWS", lambda answer: print(f"<{answer}>"))
    assert capsys.readouterr().out == "<views\n  Large\n  of_both>\n"
    Engine(spark).execute("SHOW VIEWS;")
    assert capsys.readouterr().out == "no views\n"


def test_names_that_do_not_exist_are_mistakes_of_the_script(spark: SparkSession, tables: str) -> None:
    engine = Engine(spark)
    answers: list[str] = []
    sink = "CREATE TABLE alerts USING console; INSERT INTO alerts SELECT id FROM s"
    text = (
        f"{tables} CREATE VIEW large AS SELECT id FROM s; {sink}; DESCRIBE large; DESCRIBE lage; DESC alerts"
    )
    with pytest.raises(MistakesError) as failed:
        engine.execute(text, answers.append)
    assert [str(each).partition("\n")[0] for each in failed.value.mistakes] == [
        "Stream, table or view lage does not exist; did you mean large? Existing ones: s, t, cities, large, "
        + next(name for name in Engine(spark).execute(f"{tables} {sink}").views),
        "Table alerts is only written to. DESCRIBE the view behind INSERT INTO alerts: its rows have these columns.",
    ]
    assert [text[each.start : each.end] for each in failed.value.mistakes if isinstance(each, SqlError)] == [
        "lage",
        "alerts",
    ]
    assert answers == []
    assert engine.views == {}
    with pytest.raises(InputError, match="Column y does not exist") as one:
        engine.execute(f"{tables} CREATE VIEW v AS SELECT y FROM s; DESCRIBE v", answers.append)
    assert not isinstance(one.value, MistakesError), "what follows from a mistake is none"


def test_an_engine_accepts_the_settings_that_it_has(spark: SparkSession, tables: str) -> None:
    zone = spark.conf.get("spark.sql.session.timeZone")
    text = f"SET penstock.batch_rows = 16384; SET 'spark.sql.session.timeZone' = '{zone}';{tables}"
    Engine(spark, batch_rows=16384).execute(text)
    Engine(spark).execute("SET penstock.map_in_scan = true; SET penstock.idle_seconds = 30")
    fixed = Engine(spark, slack_policy="fixed", slack_seconds=30.0)
    fixed.execute("SET penstock.slack_seconds = 30")
    with pytest.raises(SqlError) as failed:
        Engine(spark).execute(text)
    assert failed.value.message == (
        "This engine has batch_rows=65536, and the settings of an engine are fixed. Write Engine(spark, batch_rows=16384), or remove "
        "the statement."
    )
    assert text[failed.value.start : failed.value.end] == "16384"
    other = f"{tables} SET spark.sql.session.timeZone = 'Asia/Kathmandu'; SET spark.no.such.key = 'hidden'"
    with pytest.raises(MistakesError) as several:
        Engine(spark).execute(other)
    told = [each.message for each in several.value.mistakes if isinstance(each, SqlError)]
    assert told[0].startswith(
        "This session has another value of spark.sql.session.timeZone, or none, and its settings"
    )
    assert "hidden" not in told[1]
    assert spark.conf.get("spark.sql.session.timeZone") == zone
    with pytest.raises(SqlError, match="Setting batch_rowz does not exist; did you mean batch_rows"):
        Engine(spark).execute("SET penstock.batch_rowz = 1")


def test_a_changed_script_answers_anew_and_its_settings_wait(
    spark: SparkSession, tables: str, tmp_path: Path
) -> None:
    from rich.console import Console

    path, now = tmp_path / "script.sql", [0.0]
    begun = f"{tables} CREATE VIEW v AS SELECT id FROM s; DESCRIBE v;"
    engine = Engine(spark).execute(begun, lambda _: None)
    with engine.start(tmp_path / "out", trigger=Trigger()) as run:
        console = Console(file=(tmp_path / "printed").open("w"), width=300, soft_wrap=True)
        watcher = Watcher(path, begun, engine, console, lambda: now[0])
        path.write_text(f"SET penstock.batch_rows = 2048; {begun.replace('SELECT id', 'SELECT id, x')}")
        for _ in range(5):
            now[0] += 1
            watcher.look()
        console.file.flush()
        assert (tmp_path / "printed").read_text() == (
            f"view v\n  id  bigint\n  x   double\n{path}: applied: 1 view redefined (v)\n"
            "settings that apply from the next start: penstock.batch_rows\n"
        )
        (event,) = run.events("settings_changed")
        assert (event["script"], event["settings"]) == (str(path), ["penstock.batch_rows"])
        run.stop()


CSV = "CREATE TABLE notes (id INT, note STRING) USING csv OPTIONS (path 'in')"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory: two lines of CSV, one of them long."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "notes.csv").write_text(f"1,short\n2,{'long ' * 20}\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def _events(output: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in Path(output, "events.jsonl").read_text().splitlines()]


def _aside(output: str) -> int:
    """How many records a run has set aside."""
    told = (each["counts"] for each in _events(output) if each["kind"] == "records_quarantined")
    return sum(sum(counts.values()) for counts in told)


@pytest.mark.usefixtures("spark")
def test_a_setting_of_the_script_decides_and_the_command_line_wins(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = f"{CSV}; CREATE VIEW every AS SELECT id, note FROM notes WHERE id > 0;DESCRIBE every;SHOW VIEWS;"
    (folder / "plain.sql").write_text(text)
    (folder / "set.sql").write_text(f"{text} SET penstock.max_record_bytes = 50;")
    answers = "view every\n  id    int\n  note  string\nviews\n  every\n"
    for script, output, options, aside in (
        ("plain.sql", "plain", [], 0),
        ("set.sql", "set", [], 1),
        ("set.sql", "won", ["--set", "max_record_bytes=1000"], 0),
    ):
        assert called("run", script, "--output", output, "--available-now", *options) == 0
        assert capsys.readouterr().out.startswith(answers)
        assert _aside(output) == aside, output
    assert called("check", "set.sql") == 0
    told = capsys.readouterr()
    assert told.out.startswith(answers)
    assert told.out.endswith("set.sql: no mistakes found\n")
    assert called("explain", "set.sql") == 0
    assert capsys.readouterr().out.startswith(answers)
    assert called("why", "set.sql", "every", "--row", '{"id": 1}', "--format", "json") == 0
    assert json.loads(capsys.readouterr().out)["verdict"] == "true", "programs read nothing else"


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize(
    ("statement", "told"),
    [
        (
            "SET penstock.max_record_byte = 5",
            "Setting max_record_byte does not exist; did you mean max_record_bytes?\n"
            "  line 2: SET penstock.max_record_byte = 5;\n              ^^^^^^^^^^^^^^^^^^^^^^^^",
        ),
        ("SET penstock.max_record_bytes = 0", "Setting max_record_bytes: Input should be greater than or equal to 1.\n"),
        ("SET max_record_bytes = 5", "did you mean penstock.max_record_bytes? A script sets"),
        ("DESCRIBE evry", "view evry does not exist; did you mean every? Existing ones: notes, every\n  line 2: DESCRIBE evry;\n                   ^^^^"),
    ],
)  # fmt: skip
def test_mistakes_end_the_command_with_their_place(
    folder: Path, capsys: pytest.CaptureFixture[str], statement: str, told: str
) -> None:
    (folder / "script.sql").write_text(f"{CSV};\n{statement};\nCREATE VIEW every AS SELECT id FROM notes;")
    for command in (("run", "script.sql", "--output", "out", "--available-now"), ("check", "script.sql")):
        assert called(*command) == 2
        printed = capsys.readouterr()
        assert told in printed.err
        assert printed.out == ""
    assert not (folder / "out").exists()


def test_a_setting_of_sparks_decides_and_the_command_line_wins(folder: Path) -> None:
    """At noon in London it is a quarter to six in Kathmandu."""
    (folder / "script.sql").write_text(
        f"SET spark.sql.session.timeZone = 'Asia/Kathmandu';\n{CSV};\n"
        "CREATE VIEW evening AS SELECT id FROM notes WHERE hour(TIMESTAMP '2026-01-05 12:00:00Z') = 17;"
    )
    for output, options, matched in (
        ("set", [], 2),
        ("won", ["--conf", "spark.sql.session.timeZone=UTC"], 0),
    ):
        command = [
            sys.executable,
            "-m",
            "penstock",
            "run",
            "script.sql",
            "--available-now",
            "--output",
            output,
        ]
        ended = subprocess.run(
            [*command, *options],
            capture_output=True,
            text=True,
            env={**os.environ, **SOON_OVER},
            timeout=600,
        )
        assert ended.returncode == 0, ended.stderr
        batches = [each for each in _events(output) if each["kind"] == "batch"]
        assert [(each["tuples"], each["matched"]) for each in batches] == [(2, matched)]


def test_a_value_that_spark_refuses_is_a_mistake_of_the_user(tmp_path: Path) -> None:
    path = tmp_path / "script.sql"
    path.write_text("SET spark.sql.session.timeZone = 'Mars/Phobos'; CREATE TABLE s (x INT) USING rate;")
    command = [sys.executable, "-m", "penstock.cli.main", "check", str(path)]
    told = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert told.returncode == 2
    assert "Spark refuses a setting" in told.stderr
    assert "Mars/Phobos" in told.stderr
