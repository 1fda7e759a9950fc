"""Messages about frequent mistakes: what happened to which thing, why, and what to do."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.errors import CheckpointError, MistakesError, SqlError, UnknownNameError, UnsupportedError
from penstock.spark.analysis.functions import refusal
from penstock.spark.analysis.planning import refused
from penstock.spark.recovery.causes import cause_of
from penstock.spark.recovery.messages import first_line
from penstock.spark.results.read_plain import _ordered
from penstock.spark.sources.event_formats import wrong_letter
from penstock.spark.sources.table_checks import table_warnings
from penstock.spark.storage.layout import Layout
from penstock.sql.script.script import parse_script
from penstock.sql.script.statements import CreateTable

TABLE = "CREATE TABLE o USING csv OPTIONS (path 'x');\n"
SINK = "CREATE TABLE alerts USING kafka OPTIONS (topic 'x');\n"


@pytest.mark.parametrize(
    ("text", "kind", "told", "marked"),
    [
        ("CREATE OR REPLACE TABLE t USING csv", UnsupportedError, "Edit the script; `penstock run --watch`", "CREATE"),
        ("CREATE VIEW IF NOT EXISTS v AS SELECT * FROM o", UnsupportedError, "Write CREATE VIEW, or CREATE OR REPLACE VIEW", "IF NOT EXISTS"),
        ("CREATE TABLE IF NOT EXISTS t USING csv OPTIONS (path 'y')", UnsupportedError, "Leave it out: a script declares each table once", "IF NOT EXISTS"),
        ("CREATE TEMPORARY VIEW v AS SELECT * FROM o", UnsupportedError, "Leave TEMPORARY out: write CREATE VIEW name AS", "CREATE"),
        ("CREATE GLOBAL TEMP VIEW v AS SELECT * FROM o", UnsupportedError, "Leave GLOBAL TEMP out: write CREATE VIEW name AS", "CREATE"),
        ("CREATE OR REPLACE TEMPORARY VIEW v AS SELECT * FROM o", UnsupportedError, "Leave TEMPORARY out: write CREATE OR REPLACE VIEW name AS", "CREATE"),
        ("CREATE OR REPLACE TEMPORARY TABLE t USING csv", UnsupportedError, "Only views can be replaced", "CREATE"),
        ("CREATE TEMPORARY TABLE t USING csv", UnsupportedError, "Leave TEMPORARY out: write CREATE TABLE name .columns. USING", "CREATE"),
        ("CREATE TEMPORARY TABLE t AS SELECT * FROM o", UnsupportedError, r"supported\. Write CREATE VIEW name AS", "CREATE"),
        ("CREATE TEMPORARY FUNCTION f AS 'x'", UnsupportedError, "`--functions FILE` or `Engine.function`", "CREATE"),
        ("CREATE TABLE s USING kafka OPTIONS (topic 'x'); INSERT INTO s (a, b) SELECT a, b FROM o", UnsupportedError, "takes no list of columns. Write INSERT INTO s SELECT ..., and select the columns in the order", "(a, b)"),
        ("DROP TABLE o", UnsupportedError, "Remove the statement from the script", "DROP"),
        ("SHOW TABLES", UnsupportedError, "SHOW VIEWS lists the views, `penstock check SCRIPT` the streams", "SHOW"),
        ("SET spark.x = 1; RESET 'spark.x'", UnsupportedError, "supported. Remove RESET, and the SET that it takes back", "RESET"),
        ("CREATE FUNCTION f AS 'x'", UnsupportedError, "`--functions FILE` or `Engine.function`", "CREATE"),
        ("CREATE VIEW v AS SELECT * EXCEPT (a) FROM o", UnsupportedError, r"`\* EXCEPT` is not supported; name the columns", "* EXCEPT (a)"),
        ("CREATE VIEW v AS SELECT * FROM o WHERE count(*) > 3", UnsupportedError, "WHERE cannot use an aggregate such as count; use GROUP BY window", "count"),
        ("CREATE VIEW v AS SELECT a FROM o ORDER BY PROCTIME() LIMIT 3", UnknownNameError, "PROCTIME is not Spark's. Write the option arrival", "PROCTIME() LIMIT"),
        ("CREATE VIEW v AS SELECT a, row_number() OVER (PARTITION BY a ORDER BY proctime ( ) DESC) AS r FROM o QUALIFY r < 3", UnknownNameError, "proctime is not Spark's. Write the option arrival", "proctime ( )"),
        ("CREATE VIEW v AS SELECT a, listagg( ) AS l FROM o GROUP BY a", SqlError, "LISTAGG needs arguments", "listagg( ) AS"),
        ("CREATE VIEW v AS SELECT a, max(upper(b) || corr(b)) AS l FROM o GROUP BY a", SqlError, r"CORR takes another number of arguments\.", "corr(b)"),
        ("CREATE VIEW v AS SELECT * FROM o WHERE a IN (SELECT 1)", UnsupportedError, "make it a view, or JOIN the static table", "SELECT"),
    ],
)  # fmt: skip
def test_statements_and_queries_that_are_not_supported_name_the_way(
    text: str, kind: type[SqlError], told: str, marked: str
) -> None:
    with pytest.raises(kind, match=told) as failed:
        parse_script(TABLE + text)
    assert (TABLE + text)[failed.value.start :].startswith(marked)


def test_insert_into_what_does_not_exist_lists_sinks() -> None:
    text = f"{TABLE}{SINK}CREATE VIEW v AS SELECT * FROM o; INSERT INTO nowhere SELECT * FROM v"
    told = "Table nowhere does not exist. INSERT INTO needs a table USING console, delta, http, iceberg, jdbc, kafka, parquet or postgres; existing ones: alerts"
    with pytest.raises(UnknownNameError, match=told) as failed:
        parse_script(text)
    assert text[failed.value.start : failed.value.end] == "nowhere"


def test_insert_into_what_does_not_exist_offers_no_table_that_the_script_reads() -> None:
    inputs = (
        "CREATE TABLE o USING parquet OPTIONS (path 'x');CREATE TABLE c USING kafka OPTIONS (topic 'c');\n"
    )
    text = f"{inputs}{SINK}INSERT INTO alrts SELECT * FROM o;INSERT INTO x SELECT * FROM c"
    with pytest.raises(MistakesError) as failed:
        parse_script(text)
    first, second = (str(each) for each in failed.value.mistakes)
    assert "Table alrts does not exist; did you mean alerts? INSERT INTO needs" in first
    assert "existing ones: alerts.\n" in first
    assert "existing ones: alerts.\n" in second


def test_insert_into_the_source_is_refused_where_it_is_written() -> None:
    text = f"{TABLE}CREATE VIEW v AS SELECT * FROM o;\nINSERT INTO o SELECT * FROM v"
    with pytest.raises(UnsupportedError, match="cannot write to o, because the script reads it") as failed:
        parse_script(text)
    assert text[: failed.value.start].endswith("INSERT INTO ")


@pytest.mark.parametrize(
    ("written", "numbers", "told"),
    [
        ("millis", [1_767_225_600_000], None),
        ("seconds", [1_767_225_600_000], "in the year 57971: at has numbers such as 1767225600000. Set event_time_format 'millis'"),
        ("millis", [1_767_225_600], "in the year 1970: at has numbers such as 1767225600. Set event_time_format 'seconds'"),
        ("micros", [5, 60], None),
        ("seconds", [10**17, 1], "Set event_time_format 'millis'|Check event_time_format|'micros'"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("kind", ["csv", "json", "parquet"])
def test_event_times_in_another_unit_are_warned_of(
    tmp_path: Path, kind: str, written: str, numbers: list[int], told: str | None
) -> None:
    if kind == "csv":
        (tmp_path / "1.csv").write_text("".join(f"a,{number}\n" for number in numbers))
    elif kind == "json":
        (tmp_path / "1.json").write_text("".join(f'{{"k":"a","at":{number}}}\n' for number in numbers))
    else:
        pq.write_table(pa.table({"k": ["a"] * len(numbers), "at": numbers}), tmp_path / "1.parquet")
    warnings = table_warnings(
        _table(kind, tmp_path, "k STRING, at BIGINT", f"event_time 'at', event_time_format '{written}'")
    )
    if told is None:
        assert warnings == []
    else:
        (warning,) = warnings
        assert f"event_time_format '{written}' puts the events of {tmp_path}/1.{kind} in the year" in warning
        assert any(each in warning for each in told.split("|"))


@pytest.mark.parametrize("kind", ["csv", "json", "parquet"])
@pytest.mark.parametrize(
    ("written", "fits"), [("dd.MM.yyyy", False), ("yyyy-MM-dd", True), ("millis", False)]
)
def test_a_format_that_fits_no_event_time_is_warned_of(
    tmp_path: Path, kind: str, written: str, fits: bool
) -> None:
    values = ["2024-05-01", "2024-05-02", None]
    if kind == "csv":
        (tmp_path / "1.csv").write_text("".join(f"a,{value or ''}\n" for value in values))
    elif kind == "json":
        records = "".join(f"{json.dumps({'k': 'a', 'at': value})}\n" for value in values)
        (tmp_path / "1.json").write_text(records)
    else:
        pq.write_table(pa.table({"k": ["a"] * 3, "at": values}), tmp_path / "1.parquet")
    table = _table(kind, tmp_path, "k STRING, at STRING", f"event_time 'at', event_time_format '{written}'")
    asked: list[tuple[str, list[str]]] = []

    def reads(pattern: str, texts: Sequence[str]) -> bool:
        asked.append((pattern, list(texts)))
        return fits

    warnings = table_warnings(table, reads)
    assert asked == ([] if written == "millis" else [(written, values[:2])])
    told = (
        f"event_time_format '{written}' fits none of the first 2 values of at in {tmp_path}/1.{kind}, for example '2024-05-01'. "
        "Windows and joins leave out tuples without an event time. Set the format of these values"
    )
    assert warnings == ([] if fits else [told])


@pytest.mark.parametrize(
    ("pattern", "told"),
    [
        ("yyyy-MM-dd'T'HH:mm:ss.SSSXXX", None),
        ("bbb", "has the letter b at position 1; "),
        ("yyyy-MM-ddTHH", "has the letter T at position 11; "),
        ("EEE dd MMM yyyy", "has the letter E at position 1; "),
    ],
)
def test_a_letter_by_which_spark_reads_no_moment_is_named(pattern: str, told: str | None) -> None:
    wrong = wrong_letter(pattern)
    assert wrong is None if told is None else (wrong or "").startswith(told)


def test_decimal_commas_are_warned_of_with_the_file(tmp_path: Path) -> None:
    (tmp_path / "prices.csv").write_text("id;price\n1;3,50\n2;4,25\n")
    (warning,) = table_warnings(_table("csv", tmp_path, "id INT, price DOUBLE", "sep ';', header 'true'"))
    assert warning.startswith(f"column price of {tmp_path}/prices.csv has decimal commas, such as 3,50")
    assert "try_cast(replace(price, ',', '.') AS DOUBLE)" in warning


def test_javas_words_and_stack_are_left_out_of_a_bad_pattern() -> None:
    message = (
        "An error occurred while calling o1.x.\n: java.util.regex.PatternSyntaxException: Unclosed group near index 4\n"
        "(abc\n\tat java.base/java.util.regex.Pattern.error(Pattern.java:1)\n"
    )
    error = refused("name RLIKE '(abc'", message)
    assert error.message == (
        "Spark fails here before it reads a row: invalid regular expression: Unclosed group near index 4"
    )


def test_a_colon_in_a_files_name_is_explained() -> None:
    text = "java.net.URISyntaxException: Relative path in absolute URI: 12:30.csv"
    cause = cause_of(RuntimeError(f"An error occurred\n: java.lang.IllegalArgumentException: {text}"))
    told = "Spark cannot read a file whose name has a colon; rename the file: 12:30.csv"
    assert cause.told == first_line(RuntimeError(f"\n{text}")) == told
    assert not cause.is_transient


def test_refused_expressions_name_the_way() -> None:
    assert refusal("The current time, date or user") == (
        "The current time, date or user cannot be used here. Use a window, or the table option `arrival`."
    )
    assert refusal("Code of the Java machine") == "Code of the Java machine cannot be used here."


def _table(kind: str, folder: Path, columns: str, options: str) -> CreateTable:
    text = f"CREATE TABLE t ({columns}) USING {kind} OPTIONS (path '{folder}', {options})"
    (table,) = parse_script(text).tables
    return table


def test_a_missing_checkpoint_is_named_as_missing(tmp_path: Path) -> None:
    layout = Layout.of(tmp_path / "out", tmp_path / "checkpoint")
    layout.open()
    shutil.rmtree(layout.checkpoint)
    with pytest.raises(CheckpointError, match=r"has results, but its checkpoint .* does not exist\. Restore"):
        layout.check()


def test_rows_of_windows_are_ordered_by_window_and_keys() -> None:
    windows = [{"start": 20, "end": 30}, {"start": 10, "end": 20}, {"start": 10, "end": 20}]
    rows = pa.table({"n": [1, 2, 3], "w": windows, "key": ["b", "b", "a"], "list": [[1], [2], [3]]})
    ordered = _ordered(rows)
    assert ordered.column("w").to_pylist() == [windows[1], windows[1], windows[0]]
    assert ordered.column("n").to_pylist() == [3, 2, 1]
    assert _ordered(rows.select(["n"])).column("n").to_pylist() == [1, 2, 3]
