"""Constants at which Spark raises before it reads a row: one view's mistake, told when it is declared, and never the stream's."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from penstock import Engine
from penstock.errors import InputError, SqlError
from penstock.monitor.folder import folder_status
from penstock.monitor.report import status_lines
from penstock.trigger import Trigger

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: condition -> what is underlined
BAD = {
    r"s LIKE 'C:\\Windows%'": r"'C:\\Windows%'",
    r"s LIKE ANY ('C:\\Windows%', 'a')": r"'C:\\Windows%'",
    "s RLIKE '['": "'['",
    "id = 7 OR s RLIKE '['": "'['",
    "id = CAST('abc' AS INT)": "'abc'",
    "id > 1 / 0": "1 / 0",
    "date_format(at, 'bbb') = 'x'": "'bbb'",
    "to_date(s, 'yyyy-QQQQQQ') IS NULL": "'yyyy-QQQQQQ'",
    "array(1, 2)[5] = id": "array(1, 2)[5]",
    "id > CAST('1e50' AS DECIMAL(10, 2))": "'1e50'",
    "at > CAST('2024-13-01' AS TIMESTAMP)": "'2024-13-01'",
    r"regexp_extract(s, '[^\/]+') = 'a'": r"'[^\/]+'",
    "regexp_extract(s, '(a)(b)', 3) = 'a'": "'(a)(b)'",
    "regexp_extract(s, '(a)', -1) = 'a'": "'(a)'",
    "size(regexp_extract_all(s, 'a')) > 1": "'a'",
    "regexp_extract(s, '(a', 0) = 'a'": "'(a'",
    "regexp_replace(s, 'a', '$1') = 'a'": "'a'",
    "regexp_replace(s, '(?<n>a)', '${m}') = 'a'": "'(?<n>a)'",
    "split(s, '[')[0] = 'a'": "'['",
    "regexp_count(s, '(') > 1": "'('",
}
WINDOW = "window(at, '1 minute')"
#: queries of other kinds with such a constant, and what is underlined
OTHERS = {
    "SELECT id, regexp_extract(s, 'a+') AS x FROM t": "'a+'",
    "SELECT regexp_extract(s, 'a+') AS k, count(*) AS n FROM t GROUP BY regexp_extract(s, 'a+')": "'a+'",
    f"SELECT max(s) AS m FROM t GROUP BY {WINDOW} HAVING regexp_extract(max(s), 'a+') = 'a'": "'a+'",
    "SELECT /*+ REFRESH('1 minute') */ id FROM t WHERE id IN (SELECT id FROM u WHERE regexp_extract(s, 'a+') = 'a')": "'a+'",
    r"SELECT id, s LIKE 'C:\\Windows%' AS w FROM t WHERE id > 0": r"'C:\\Windows%'",
    f"SELECT s RLIKE '[' AS k, count(*) AS n FROM t GROUP BY s RLIKE '[', {WINDOW}": "'['",
    f"SELECT count(*) AS n FROM t WHERE s RLIKE '[' GROUP BY {WINDOW}": "'['",
    f"SELECT sum(CASE WHEN s RLIKE '[' THEN 1 END) AS n FROM t GROUP BY {WINDOW}": None,
    f"SELECT max(s) AS m FROM t GROUP BY {WINDOW} HAVING max(s) RLIKE '['": "'['",
    f"SELECT date_format(max(at), 'bbb') AS m FROM t GROUP BY {WINDOW}": "'bbb'",
    "SELECT a.id FROM t a JOIN u b ON a.id = b.id AND a.at BETWEEN b.at - INTERVAL 1 HOUR AND b.at WHERE a.s RLIKE '['": "'['",
    "SELECT a.id, concat(a.s, b.s) RLIKE '[' AS x FROM t a JOIN u b ON a.id = b.id AND a.at BETWEEN b.at - INTERVAL 1 HOUR AND b.at": "'['",
    "SELECT a.id FROM t a JOIN u b ON a.id = b.id AND a.at BETWEEN b.at - INTERVAL 1 HOUR AND b.at AND concat(a.s, b.s) RLIKE '['": "'['",
}


def tables(folder: Path) -> str:
    for name in "tu":
        (folder / name).mkdir(exist_ok=True)
    (folder / "t" / "1.json").write_text(
        '{"id": 1, "s": "C:\\\\Windows\\\\a", "at": "2024-05-01T10:00:00Z"}\n'
    )
    return "".join(
        f"CREATE TABLE {name} (id INT, s STRING, at TIMESTAMP) USING json OPTIONS (path '{folder}/{name}', event_time 'at');\n"
        for name in "tu"
    )


def underlined(error: SqlError) -> str:
    return error.text[error.start : error.end]


def test_a_constant_at_which_spark_raises_is_refused_with_its_place(
    spark: SparkSession, tmp_path: Path
) -> None:
    engine = Engine(spark).execute(tables(tmp_path))
    engine.view("good", "SELECT id FROM t WHERE id > 0")
    wrong = {}
    for condition, marked in BAD.items():
        try:
            engine.view("bad", f"SELECT id FROM t WHERE {condition}")
            wrong[condition] = "taken"
        except SqlError as error:
            if marked != underlined(error):
                wrong[condition] = str(error)
    for query, marked in OTHERS.items():
        try:
            engine.view("bad", query)
            wrong[query] = "taken"
        except SqlError as error:
            if marked is not None and marked != underlined(error):
                wrong[query] = str(error)
    assert not wrong, "\n".join(f"{query}: {what}" for query, what in wrong.items())
    engine.view("regular", "SELECT id FROM t WHERE s RLIKE '[a-z]+' AND date_format(at, 'yyyy') = '2024'")
    engine.view(
        "regexps",
        r"SELECT regexp_extract(s, '[^\/]+', 0) AS a, regexp_extract(s, '(a|)b\\1') AS b, regexp_replace(s, '(a)', '$1-') AS c, split(s, '.') AS d FROM t",
    )
    engine.view("per_row", "SELECT id FROM t WHERE if(id > 5, 1 / 0, 1) > 0 AND 10 / id > 2")


def test_one_bad_view_among_many_is_found(spark: SparkSession, tmp_path: Path) -> None:
    views = "".join(
        f"CREATE VIEW v{number} AS SELECT id FROM t WHERE upper(s) RLIKE '{'[' if number == 171 else f'x{number}'}';\n"
        for number in range(300)
    )
    began = time.monotonic()
    with pytest.raises(SqlError) as raised:
        Engine(spark).execute(tables(tmp_path) + views)
    assert (
        "CREATE VIEW v171"
        in raised.value.text.splitlines()[raised.value.text.count("\n", 0, raised.value.start)]
    )
    assert underlined(raised.value) == "'['"
    assert time.monotonic() - began < 60


def test_a_view_added_to_a_running_engine_is_refused_without_harm(
    spark: SparkSession, tmp_path: Path
) -> None:
    engine = Engine(spark).execute(f"{tables(tmp_path)}CREATE VIEW good AS SELECT id FROM t WHERE id > 0;")
    run = engine.start(str(tmp_path / "out"))
    try:
        _await(run, 1)
        with pytest.raises(InputError, match="Unclosed character class"):
            engine.view("bad", "SELECT id FROM t WHERE s RLIKE '['")
        (tmp_path / "t" / "2.json").write_text('{"id": 2, "s": "x"}\n')
        _await(run, 2)
        assert run.results("good").count() == 2
    finally:
        run.stop()


def _await(run: object, tuples: int) -> None:
    deadline = time.monotonic() + 120
    while run.status().streams["t"].tuples < tuples:  # type: ignore[attr-defined]
        assert time.monotonic() < deadline
        run.await_termination(0.5)  # type: ignore[attr-defined]


@pytest.mark.long
def test_what_gets_by_is_that_view_s_failure(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = (
        f"{tables(tmp_path)}CREATE VIEW good AS SELECT id FROM t WHERE id > 0 AND upper(s) LIKE '%WIN%';\n"
        "CREATE VIEW bad AS SELECT id FROM t WHERE s RLIKE '[' OR id > 100;\n"
        r"CREATE VIEW like_it AS SELECT id FROM t WHERE NOT upper(s) LIKE 'C:\\Windows%';"
        "\nCREATE VIEW grouped AS SELECT count(*) AS n FROM t WHERE date_format(at, 'bbb') = 'x' GROUP BY window(at, '1 minute');\n"
    )
    # as a version that did not look took them
    monkeypatch.setattr(
        "penstock.spark.analysis.expressions.SparkExpressionHost._refuse_failing", lambda *_: None
    )
    run = Engine(spark).execute(script).start(str(tmp_path / "out"), trigger=Trigger.available_now())
    run.await_termination()
    (tmp_path / "t" / "2.json").write_text('{"id": 200, "s": "windows"}\n')
    run = Engine(spark).execute(script).start(str(tmp_path / "out"), trigger=Trigger.available_now())
    run.await_termination()
    assert sorted(run.results("good").collect()) == [(1,), (200,)]
    assert run.results("bad").collect() == [(200,)]
    assert run.results("like_it").collect() == []
    status = folder_status(tmp_path / "out")
    failed = status["streams"]["t"]["failed_views"]
    assert set(failed) == {"bad", "like_it", "grouped"}
    assert "Unclosed character class" in failed["bad"]
    assert any("view bad matches nothing, Spark refuses it" in line for line in status_lines(status))
