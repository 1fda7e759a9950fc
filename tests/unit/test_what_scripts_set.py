"""SET, SHOW VIEWS and DESCRIBE in scripts: what they are read as, and settings of a script beside those of the command."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from penstock.cli.given import Given
from penstock.cli.watch import Watcher
from penstock.errors import InputError, MistakesError, SqlError
from penstock.redaction import secret_places
from penstock.spark.declaring.statements import Reconciled
from penstock.sql.script.mistakes import Mistakes
from penstock.sql.script.script import parse_script
from penstock.sql.script.settings import wrong_settings
from penstock.sql.script.statements import Describe, ShowViews

TABLE = "CREATE TABLE o USING csv OPTIONS (path 'x')"


@pytest.mark.parametrize(
    ("text", "name", "value"),
    [
        ("SET penstock.batch_rows = 16384", "penstock.batch_rows", "16384"),
        ("set penstock.batch_rows=16384;", "penstock.batch_rows", "16384"),
        ("SET 'penstock.strategy' = 'asc';", "penstock.strategy", "asc"),
        ('SET "penstock.strategy" = "asc";', "penstock.strategy", "asc"),
        ("SET `penstock.strategy` = `asc`;", "penstock.strategy", "asc"),
        ("SET penstock.idle_seconds TO -1.5", "penstock.idle_seconds", "-1.5"),
        ("SET spark.to.x = 1e3", "spark.to.x", "1e3"),
        ("SET spark.sql.session.timeZone = Europe/Berlin -- a zone", "spark.sql.session.timeZone", "Europe/Berlin"),
        ("SET spark.driver.memory=2g", "spark.driver.memory", "2g"),
        ("SET spark.master = local[2]", "spark.master", "local[2]"),
        ("SET spark.jars.packages=org.apache.spark:spark-avro_2.13:4.0.0", "spark.jars.packages", "org.apache.spark:spark-avro_2.13:4.0.0"),
        ("SET spark.x = 'it''s; a = b'", "spark.x", "it's; a = b"),
        ("SET spark.x = ''", "spark.x", ""),
    ],
)  # fmt: skip
def test_a_setting_is_read_in_every_way_it_is_written(text: str, name: str, value: str) -> None:
    script = parse_script(text)
    (setting,) = script.settings
    assert (setting.name, setting.value) == (name, value)
    places = {part: text[begin:end] for part, (begin, end) in setting.places.items()}
    assert name in places[""]
    assert places["value"].strip("'\"`").replace("''", "'") == value
    assert script.statements == script.asked == ()


def test_settings_leave_the_text_and_nothing_else_moves() -> None:
    text = f"{TABLE};\nSET penstock.shards\n = 2; SET spark.x = 'a;\nb';CREATE VIEW v AS SELECT a FROM o;\nDESCRIBE v"
    script = parse_script(text)
    assert script.without_settings == (
        f"{TABLE};\n{' ' * 19}\n    ;{' ' * 18}\n  ;CREATE VIEW v AS SELECT a FROM o;\nDESCRIBE v"
    )
    bare = parse_script(script.without_settings)
    assert (bare.settings, bare.asked) == ((), script.asked)
    places = [[(each.start, each.end) for each in found.statements] for found in (bare, script)]
    assert places[0] == places[1]


def test_what_a_script_asks_is_kept_in_order_and_declares_nothing() -> None:
    text = (
        f"DESCRIBE v; {TABLE}; show views -- all of them\n; SHOW VIEWS /* and */ ;CREATE VIEW v AS SELECT a FROM o;"
        "DESC o; DESCRIBE TABLE o; DESC VIEW `v`; DESCRIBE table; DESCRIBE extended;"
    )
    asked = parse_script(text).asked
    assert [each.name if isinstance(each, Describe) else each for each in asked] == [
        *("v", ShowViews(), ShowViews(), "o", "o", "v", "table", "extended")
    ]
    described = [each for each in asked if isinstance(each, Describe)]
    assert [text[each.start : each.end].strip("`") for each in described] == [each.name for each in described]
    assert parse_script("SHOW VIEWS").is_empty


def test_a_statement_with_a_mistake_hides_no_other_mistake() -> None:
    mistakes = Mistakes()
    parse_script(
        "DESCRIBE EXTENDED v; CREATE VIEW w AS SELECT * FROM v; SET x; SHOW VIEWS w", mistakes=mistakes
    )
    assert [str(each).partition("\n")[0] for each in mistakes.found] == [
        "Leave EXTENDED out: DESCRIBE shows columns and their types.",
        "Table or view v does not exist. Existing ones: none",
        "Expected = and a value here. Write SET penstock.name = value or SET spark.name = value.",
        "SHOW VIEWS takes no other words. End it with ;",
    ]


def test_the_semicolon_before_a_declaration_is_missed_behind_a_setting() -> None:
    text = f"SET penstock.shards = 2\n{TABLE}"
    with pytest.raises(SqlError, match="The ; before this statement is missing") as failed:
        parse_script(text)
    assert text[failed.value.start :].startswith("CREATE TABLE")


def test_settings_of_a_command_win_over_those_of_its_script() -> None:
    script = parse_script(
        "SET penstock.shards = 2; SET penstock.batch_rows = 2048; SET spark.a = 'x'; SET spark.b = 'y'"
    )
    given = Given.of(["shards=3"], ["spark.b=z", "spark.c=w"]).with_script(script, Mistakes())
    assert given.settings.shards == 3
    assert given.settings.batch_rows == 2048
    assert given.spark == {"spark.a": "x", "spark.b": "z", "spark.c": "w"}


def test_what_one_setting_requires_of_another_is_judged_over_both() -> None:
    fixed = parse_script("SET penstock.slack_policy = fixed; SET penstock.slack_seconds = 30")
    given = Given.of(["slack_seconds=60"], None)
    assert given.with_script(fixed, Mistakes()).settings.slack_seconds == 60
    with pytest.raises(
        InputError, match="Setting slack_seconds: only slack_policy fixed has a length"
    ) as failed:
        given.with_script(parse_script(""), Mistakes())
    assert not isinstance(failed.value, SqlError)
    with pytest.raises(SqlError, match="slack_seconds: slack_policy fixed needs it") as placed:
        Given.of(None, None).with_script(parse_script("SET penstock.slack_policy = fixed"), Mistakes())
    assert placed.value.text[placed.value.start : placed.value.end] == "fixed"


def test_wrong_options_are_told_before_the_script_is_read() -> None:
    with pytest.raises(InputError, match="batch_rows: Input should be greater than or equal to 1024"):
        Given.of(["batch_rows=1"], None)
    with pytest.raises(InputError, match="batch_rowz does not exist; did you mean batch_rows"):
        Given.of(["batch_rowz=1"], None)


@pytest.mark.parametrize(
    ("name", "wrong", "allowed"),
    [
        ("batch_rows", ["1", "1000000"], "greater than or equal to 1024 and less than or equal to 65536"),
        ("plan_threshold", ["-1", "1"], "greater than or equal to 0 and less than 1"),
        ("shards", ["0", "1025"], "greater than or equal to 1 and less than or equal to 1024"),
        ("retry_seconds", ["0"], "greater than 0"),
    ],
)
def test_a_value_out_of_its_range_is_told_with_both_ends(name: str, wrong: list[str], allowed: str) -> None:
    for value in wrong:
        with pytest.raises(InputError, match=f"settings: {name}: Input should be {allowed};"):
            Given.of([f"{name}={value}"], None)


def test_wrong_settings_are_told_with_the_other_mistakes_of_the_script() -> None:
    text = "SET penstock.batch_rows = 1; SELECT 1; SET penstock.stratgy = asc"
    mistakes = Mistakes()
    script = parse_script(text, mistakes=mistakes)
    with pytest.raises(MistakesError) as failed:
        Given.of(None, None).with_script(script, mistakes)
    assert [str(each).partition("\n")[0] for each in failed.value.mistakes] == [
        "Setting batch_rows: Input should be greater than or equal to 1024 and less than or equal to 65536.",
        "This statement is not supported. Write CREATE VIEW name AS SELECT ...",
        "Setting stratgy does not exist; did you mean strategy?",
    ]


def test_a_wrong_value_is_a_mistake_though_the_command_line_wins() -> None:
    text = "SET penstock.strategy = asc;\nSET penstock.shards = many"
    (wrong,) = wrong_settings(parse_script(text).settings, {"shards": "2"})
    assert isinstance(wrong, SqlError)
    assert (
        wrong.message
        == "Setting shards: Input should be a valid integer, unable to parse string as an integer."
    )
    assert (wrong.text, wrong.text[wrong.start : wrong.end]) == (text, "many")


@pytest.mark.parametrize(
    ("text", "secrets"),
    [
        ("SET spark.hadoop.fs.s3a.secret.key = abcd;", ["abcd"]),
        ("SET 'spark.hadoop.fs.s3a.secret.key' = 'ab cd';SET spark.x = y", ["ab cd"]),
        ("SET spark.ssl.password TO ab cd\n;", ["ab cd"]),
        ("SET spark.url = 'jdbc:x://u:word@h'", ["u:word"]),
        ("SET spark.ssl.password =", []),
        ("SET spark.x = 'password'; SELECT * FROM offset WHERE token = 'x'", []),
    ],
)
def test_secrets_of_settings_are_found(text: str, secrets: list[str]) -> None:
    assert [text[begin:end] for begin, end in secret_places(text)] == secrets


class _Engine:
    """An engine that takes whatever it is given."""

    def __init__(self) -> None:
        self.warnings: list[str] = []
        self.given: list[str] = []
        self.waiting: list[list[str]] = []

    def reconcile(self, text: str, show: Any) -> Reconciled:
        self.given.append(text)
        show("view v")
        return Reconciled([], [], [], 1)

    def report_script(self, path: str, refused: str | None) -> None: ...

    def report_settings(self, path: str, names: list[str]) -> None:  # noqa: ARG002 - there is one script
        self.waiting.append(names)


def test_settings_of_a_changed_script_are_reported_once_and_wait(tmp_path: Path) -> None:
    path, out, now = tmp_path / "script.sql", io.StringIO(), [0.0]
    engine: Any = _Engine()
    console = Console(file=out, width=300, soft_wrap=True)
    begun = "SET penstock.shards = 2; SET penstock.batch_rows = 2048;"
    options = Given.of(["batch_rows=4096"], None)
    watcher = Watcher(path, begun, engine, console, lambda: now[0], options)

    def look(text: str) -> list[list[str]]:
        """What is reported of the script that was saved."""
        engine.waiting.clear()
        path.write_text(text)
        for _ in range(8):
            now[0] += 1
            watcher.look()
        return list(engine.waiting)

    other = begun.replace("shards = 2", "shards = 4").replace("2048", "8192") + " SET spark.x = 'y';"
    assert look(other) == [["penstock.shards", "spark.x"]], "the command line gives the third"
    assert engine.given[-1].strip(" ;") == "", "the engine gets no setting"
    assert look(other + " ") == [], "they are reported already"
    assert look(begun + "  ") == [], "these are the settings of the run"
    assert look(other) == [["penstock.shards", "spark.x"]]
    assert look("SHOW VIEWS;") == [["penstock.shards"]]
    assert "view v" in out.getvalue()
    assert look("SET penstock.shards = 0;") == []
    assert (
        "not applied, the run continues unchanged: Setting shards: Input should be greater" in out.getvalue()
    )
