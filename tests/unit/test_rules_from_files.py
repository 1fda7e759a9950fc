"""CREATE VIEWS: what the statement says, what its files have, and how views follow them."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.errors import ConnectionFailedError, InputError, SqlError, UnknownNameError
from penstock.spark.declaring import rule_sets
from penstock.spark.declaring.declared import Declared, RuleSet
from penstock.spark.declaring.rule_sets import RuleChanges, follow_rules, keep_last_definitions
from penstock.spark.engine import Engine as SparkEngine
from penstock.spark.rule_following import FollowedFiles
from penstock.spark.sources.rule_files import RuleFiles
from penstock.sql.script.rules import RefusedRule, Rule
from penstock.sql.script.script import parse_script
from penstock.sql.script.statements import CreateView, CreateViews, sources_of

TABLE = "CREATE TABLE cups USING rate; "


def statement(text: str) -> CreateViews:
    """The CREATE VIEWS statement behind a table `cups`."""
    return parse_script(TABLE + text).rules[0]


def test_the_statement_names_files_stream_format_and_columns() -> None:
    found = statement("CREATE VIEWS FROM 'rules/*.sql' ON cups")
    assert (found.path, found.stream, found.format) == ("rules/*.sql", "cups", "sql")
    found = statement(
        "create views from 'rules.txt' on CUPS using csv options (name 'id', condition = 'where')"
    )
    assert (found.format, found.name_column, found.condition_column) == ("csv", "id", "where")
    assert statement("CREATE VIEWS FROM 'a.jsonl'").format == "json"
    assert statement("CREATE VIEWS FROM 'a.sql'").stream is None


@pytest.mark.parametrize(
    ("text", "marked", "message"),
    [
        ("CREATE VIEWS 'a.sql'", "'a.sql'", "Expected FROM"),
        ("CREATE VIEWS FROM a", "a", "in quotes"),
        ("CREATE VIEWS FROM 'rules' ON cups", "'rules'", "Add USING sql, csv, json or parquet"),
        ("CREATE VIEWS FROM 'a.sql' ON mugs", "mugs", "mugs does not exist"),
        ("CREATE VIEWS FROM 'a' USING orc", "orc", "sql, csv, json or parquet"),
        ("CREATE VIEWS FROM 'a.csv' ON cups OPTIONS (names 'x')", "names", "Allowed: name, condition."),
        ("CREATE VIEWS FROM 'a.sql' ON cups OPTIONS (name 'x')", "name", "none, for files of SQL"),
        ("CREATE VIEWS FROM 'a.sql' ON cups WHERE", "WHERE", "the end of the statement"),
    ],
)
def test_mistakes_in_the_statement_are_underlined(text: str, marked: str, message: str) -> None:
    with pytest.raises(SqlError) as caught:
        statement(text)
    assert message in caught.value.message
    assert caught.value.text[caught.value.start : caught.value.end] == marked


@pytest.mark.parametrize(
    "before", ["CREATE VIEW a AS SELECT * FROM cups WHERE value = 1", "CREATE VIEWS FROM 'a.sql' ON cups"]
)
def test_a_missing_semicolon_before_the_statement_is_found(before: str) -> None:
    script = f"{TABLE}{before}\nCREATE VIEWS FROM 'b.sql' ON cups;"
    with pytest.raises(SqlError, match="The ; before this statement is missing") as caught:
        parse_script(script)
    assert caught.value.start == script.rindex("CREATE")


def test_names_that_rules_may_declare_are_known_behind_the_statement_alone() -> None:
    rules, view = "CREATE VIEWS FROM 'a.sql' ON cups;", "CREATE VIEW v AS SELECT * FROM rule;"
    assert [each.name for each in parse_script(f"{TABLE}{rules}{view}").views] == ["v"]
    for script in (f"{TABLE}{view}{rules}", f"{TABLE}{view}"):
        with pytest.raises(UnknownNameError, match="Table or view rule does not exist"):
            parse_script(script)


def files(path: str, stream: str | None = "cups", form: str = "", **options: str) -> RuleFiles:
    """The files of a statement over the stream `cups`."""
    text = (
        f"CREATE VIEWS FROM '{path}'"
        + (f" ON {stream}" if stream else "")
        + (f" USING {form}" if form else "")
    )
    if options:
        text += f" OPTIONS ({', '.join(f'''{key} '{value}' ''' for key, value in options.items())})"
    return RuleFiles(statement(text), ())


def queries(found: RuleFiles) -> dict[str, str]:
    """The query of each rule, without blanks."""
    rules, _ = found.rules()
    return {name: " ".join(rule.view.text.split()) for name, rule in rules.items()}


def refusals(found: RuleFiles) -> list[str]:
    """What is refused, a line each."""
    return [str(each) for each in found.rules()[1]]


def test_a_file_is_a_condition_a_query_or_statements(tmp_path: Path) -> None:
    (tmp_path / "hot-cup.sql").write_text("-- too hot\nvalue > 90 -- degrees\n;")
    (tmp_path / "full.sql").write_text("SELECT value FROM cups WHERE value = 1;")
    (tmp_path / "many.sql").write_text(
        "-- by Kim\nCREATE VIEW a AS SELECT * FROM cups WHERE value = 2;\nCREATE VIEW `b c` AS SELECT * FROM a;"
    )
    (tmp_path / ".hidden.sql").write_text("broken")
    (tmp_path / "notes.txt").write_text("broken")
    found = files(f"{tmp_path}/*.sql")
    assert refusals(found) == []
    assert queries(found) == {
        "full": "SELECT value FROM cups WHERE value = 1",
        "hot-cup": "SELECT * FROM `cups` WHERE -- too hot value > 90",
        "a": "SELECT * FROM cups WHERE value = 2",
        "b c": "SELECT * FROM a",
    }
    assert queries(files(str(tmp_path), form="sql")) == queries(found)


def test_mistakes_have_a_file_a_line_and_a_reason_of_one_line(tmp_path: Path) -> None:
    texts = {
        "a.sql": "value IN (SELECT 1)",
        "b.sql": "\n\n'open",
        "c.sql": "",
        "d.sql": "value = 1; value = 2",
        "e.sql": "CREATE VIEW x AS SELECT * FROM cups;\nCREATE VIEW y AS\n  SELECT FROM;\nCREATE TABLE z USING rate;",
        "f.sql": "\nSELECT * FROM cups WHERE (SELECT 1)",
    }
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "g.sql").write_bytes(b"value = '\xff'")
    found = files(f"{tmp_path}/*.sql")
    assert list(queries(found)) == ["x"]
    told = [each.removeprefix(f"{tmp_path}/") for each in refusals(found)]
    begins = [
        "a.sql:1: a: ",
        "b.sql:3: ",
        "c.sql: c: The rule is empty",
        "d.sql: d: This is more than one rule",
    ]
    begins += ["e.sql:3: y: ", "e.sql:4: A file of rules has CREATE VIEW statements only", "f.sql:2: f: "]
    begins += ["g.sql: the file cannot be read: it is not UTF-8 text"]
    assert len(told) == len(begins)
    assert all(each.startswith(begin) for each, begin in zip(told, begins, strict=True)), told
    assert not any("\n" in each for each in told)
    (tmp_path / "a.sql").write_text("value > 1")
    assert "Name its stream" in refusals(files(f"{tmp_path}/a.sql", stream=None))[0]


@pytest.mark.parametrize("form", ["csv", "json", "parquet"])
def test_rows_of_a_table_are_rules(tmp_path: Path, form: str) -> None:
    path = tmp_path / f"rules.{form}"
    rows = [
        {"id": "a", "where": "value = 1\nOR value = 2", "by": "Kim"},
        {"id": "b", "where": "value IN (SELECT 1)", "by": "Pat"},
        {"id": "A", "where": "value = 3", "by": "Pat"},
        {"id": "c", "where": None, "by": "Pat"},
    ]
    if form == "csv":
        path.write_text(
            'id,where,by\na,"value = 1\nOR value = 2",Kim\nb,value IN (SELECT 1),Pat\nA,value = 3,Pat\nc\n'
        )
    elif form == "json":
        path.write_text("\n".join(map(json.dumps, rows)) + "\n\n")
    else:
        pq.write_table(pa.Table.from_pylist(rows), path)
    found = files(str(path), name="id", condition="where")
    assert queries(found) == {"a": "SELECT * FROM `cups` WHERE value = 1 OR value = 2"}
    mark, numbers = {
        "csv": (":", (3, 4, 5, 6)),
        "json": (":", (1, 2, 3, 4)),
        "parquet": (" row ", (1, 2, 3, 4)),
    }[form]
    first, second, third, fourth = (f"{path}{mark}{number}" for number in numbers)
    told = refusals(found)
    assert told[0].startswith(f"{second}: b: ")
    assert f"{third}: A: {first} declares a already. Rename one of them." in told
    assert f"{fourth}: c: the row has no text in column where" in told
    assert "it has no column name" in refusals(files(str(path)))[0] or form == "json"


def test_paths_that_do_not_exist_are_refused(tmp_path: Path) -> None:
    for path in (f"{tmp_path}/none.sql", f"{tmp_path}/none/*.sql", "s3a://bucket/*.sql"):
        with pytest.raises(ConnectionFailedError):
            files(path)
    assert queries(files(f"{tmp_path}/*.sql")) == {}


def put(declared: Declared, name: str, view: CreateView) -> None:
    """Adds a view that is not bound."""
    definition = SimpleNamespace(sql=view.text)
    stand_in: Any = SimpleNamespace(query=view.query, text=view.text, definition=definition, is_inner=False)
    declared.put(name, stand_in)


class Engine:
    """Declares views without Spark: conditions with `wrong` in them are mistakes."""

    def __init__(self, path: str) -> None:
        found = files(path)
        self.declared = Declared(rules={found.statement.path: RuleSet(found)})
        self.declared.streams["cups"] = None  # type: ignore[assignment]
        self.path = path
        self.files = found
        #: numbers of views that were declared in one step
        self.steps: list[int] = []

    def declare(self, staged: Declared, views: Mapping[str, CreateView]) -> None:
        """Adds views, or none of them."""
        self.steps.append(len(views))
        for name, view in views.items():
            for source, _ in sources_of(view.query):
                if source.upper() not in staged.spelled and source not in staged.streams:
                    raise UnknownNameError(f"Stream or view {source} does not exist.", view.text, 0, 1)
            put(staged, name, view)
            if "wrong" in view.text:
                raise SqlError("Column wrong does not exist.", view.text, view.text.index("wrong"), view.end)

    def follow(self) -> RuleChanges:
        """What the files have by now."""
        return follow_rules(self.declared, self.path, self.declare)

    def keep(self, catalog: Mapping[str, Any]) -> None:
        """A start beside this catalog."""
        keep_last_definitions(self.declared, catalog, self.declare, ())

    def look(self) -> RuleChanges:
        """What two looks at the files find."""
        assert not self.files.look()
        assert self.files.look()
        return self.follow()

    @property
    def conditions(self) -> dict[str, str]:
        """The condition of each view."""
        views: Mapping[str, Any] = self.declared.views
        return {name: view.text.rpartition("\n")[2] for name, view in views.items()}


def test_views_follow_their_files(tmp_path: Path) -> None:
    for name in "abc":
        (tmp_path / f"{name}.sql").write_text(f"value = '{name}'")
    engine = Engine(f"{tmp_path}/*.sql")
    assert engine.follow().added == ["a", "b", "c"]
    assert not engine.files.look()
    (tmp_path / "a.sql").write_text("value = 'other'")
    (tmp_path / "b.sql").unlink()
    (tmp_path / "d.sql").write_text("value = 'd'")
    (tmp_path / "c.sql").write_text("value = 'c")
    changes = engine.look()
    assert (changes.added, changes.redefined, changes.dropped) == (["d"], ["a"], ["b"])
    assert [each.name for each in changes.refused] == ["c"]
    assert engine.conditions == {"a": "value = 'other'", "c": "value = 'c'", "d": "value = 'd'"}
    (tmp_path / "c.sql").write_text("value = wrong")
    changes = engine.look()
    assert changes.refused == [
        RefusedRule("c", f"{tmp_path}/c.sql", f"{tmp_path}/c.sql:1", "Column wrong does not exist.")
    ]
    assert engine.conditions["c"] == "value = 'c'"
    (tmp_path / "c.sql").write_text("value = 'mended'")
    changes = engine.look()
    assert (changes.redefined, changes.refused) == (["c"], [])
    assert engine.declared.rules[engine.path].refused == ()


def test_a_file_that_changes_at_each_look_is_waited_for(tmp_path: Path) -> None:
    (tmp_path / "a.sql").write_text("value = 1")
    engine = Engine(f"{tmp_path}/*.sql")
    engine.follow()
    for number in range(5):
        (tmp_path / "a.sql").write_text("value = 1" + "1" * (number + 1))
        assert not engine.files.look()
    assert engine.files.look()
    assert engine.follow().redefined == ["a"]


def test_mistakes_are_found_by_halves_and_all_others_are_declared(tmp_path: Path) -> None:
    wrong = {17, 18, 199}
    (tmp_path / "all.sql").write_text(
        "".join(
            f"CREATE VIEW v{number} AS SELECT * FROM cups\nWHERE {'wrong' if number in wrong else 'value'} = {number};\n"
            for number in range(200)
        )
    )
    engine = Engine(f"{tmp_path}/all.sql")
    changes = engine.follow()
    assert len(changes.added) == 197
    assert [(each.name, each.place) for each in changes.refused] == [
        (f"v{number}", f"{tmp_path}/all.sql:{2 * number + 1}") for number in sorted(wrong)
    ]
    assert sum(engine.steps) < 200 * (len(wrong) + 2)


def test_a_file_that_does_not_say_what_it_declares_takes_no_view_away(tmp_path: Path) -> None:
    path = tmp_path / "all.sql"
    good = "CREATE VIEW a AS SELECT * FROM cups; CREATE VIEW b AS SELECT * FROM cups;"
    path.write_text(good)
    engine = Engine(str(path))
    engine.follow()
    path.write_text("CREATE VIEW a AS SELECT * FROM cups WHERE 'open")
    assert engine.look().dropped == []
    path.write_text(good.partition(" CREATE VIEW b")[0])
    assert engine.look().dropped == ["b"]


def test_a_folder_that_is_gone_takes_no_view_away(tmp_path: Path) -> None:
    folder = tmp_path / "rules"
    folder.mkdir()
    (folder / "a.sql").write_text("value = 1")
    engine = Engine(f"{folder}/*.sql")
    engine.follow()
    folder.rename(tmp_path / "away")
    assert [engine.files.look() for _ in range(3)] == [False, False, False]
    assert engine.files.is_away
    (tmp_path / "away").rename(folder)
    (folder / "a.sql").unlink()
    assert engine.look().dropped == ["a"]


def test_a_reason_is_cut(tmp_path: Path) -> None:
    (tmp_path / "a.sql").write_text("value = 1")
    rule = files(f"{tmp_path}/a.sql").rules()[0]["a"]
    reason = rule.refused(
        InputError(f"Column x does not exist. Existing columns: {', '.join(map(str, range(999)))}")
    ).reason
    assert len(reason) <= 300
    assert reason.endswith(" ...")


def test_names_of_others_are_not_taken(tmp_path: Path) -> None:
    (tmp_path / "a.sql").write_text("value = 1")
    engine = Engine(f"{tmp_path}/*.sql")
    put(engine.declared, "A", parse_script(TABLE + "CREATE VIEW A AS SELECT * FROM cups").views[0])
    changes = engine.follow()
    assert [str(each) for each in changes.refused] == [
        f"{tmp_path}/a.sql: a: A exists already. Choose another name."
    ]
    assert list(engine.declared.views) == ["A"]


def test_a_name_in_another_case_is_the_same_view(tmp_path: Path) -> None:
    (tmp_path / "a.sql").write_text("value = 1")
    engine = Engine(f"{tmp_path}/*.sql")
    engine.follow()
    (tmp_path / "a.sql").rename(tmp_path / "A.sql")
    (tmp_path / "A.sql").write_text("value = 2")
    changes = engine.look()
    assert (changes.added, changes.redefined, changes.dropped) == ([], ["a"], [])
    assert engine.conditions == {"a": "value = 2"}


def test_a_view_that_another_selects_from_is_not_dropped(tmp_path: Path) -> None:
    (tmp_path / "a.sql").write_text("value = 1")
    (tmp_path / "b.sql").write_text("SELECT * FROM a")
    engine = Engine(f"{tmp_path}/*.sql")
    engine.follow()
    (tmp_path / "a.sql").unlink()
    changes = engine.look()
    told = ["View b selects from a. Drop b too."]
    assert (changes.dropped, [each.reason for each in changes.refused]) == ([], told)
    assert isinstance(engine.declared.rules[engine.path].views["a"], Rule)
    (tmp_path / "b.sql").unlink()
    changes = engine.look()
    assert (changes.dropped, len(changes.mended)) == (["a", "b"], 1)
    assert list(engine.declared.views) == []


def test_views_over_one_another_are_dropped_together_but_for_those_that_others_need(tmp_path: Path) -> None:
    texts = {"a_base": "value = 1", "b_alert": "SELECT * FROM a_base", "c": "value = 2"}
    texts |= {"d": "SELECT * FROM c", "e": "SELECT * FROM d"}
    for name, text in texts.items():
        (tmp_path / f"{name}.sql").write_text(text)
    engine = Engine(f"{tmp_path}/*.sql")
    engine.follow()
    for name in ("a_base", "b_alert", "c", "d"):
        (tmp_path / f"{name}.sql").unlink()
    changes = engine.look()
    assert changes.dropped == ["a_base", "b_alert"]
    assert [(each.name, each.reason) for each in changes.refused] == [
        ("d", "View e selects from d. Drop e too."),
        ("c", "View d selects from c. Drop d too."),
    ]
    (tmp_path / "e.sql").write_text("value = 3")
    changes = engine.look()
    assert (changes.redefined, changes.dropped) == (["e"], ["c", "d"])
    assert engine.declared.rules[engine.path].refused == ()


def test_a_rule_may_select_from_the_view_of_a_later_file(tmp_path: Path) -> None:
    texts = {"a": "SELECT * FROM b", "b": "SELECT * FROM c", "c": "value = 1", "d": "SELECT * FROM none"}
    for name, text in texts.items():
        (tmp_path / f"{name}.sql").write_text(text)
    engine = Engine(f"{tmp_path}/*.sql")
    changes = engine.follow()
    assert sorted(changes.added) == ["a", "b", "c"]
    assert [each.name for each in changes.refused] == ["d"]
    (tmp_path / "none.sql").write_text("value = 2")
    changes = engine.look()
    assert (changes.added, changes.refused, len(changes.mended)) == (["d", "none"], [], 1)


def test_views_of_a_script_are_parted_by_whether_they_need_rules() -> None:
    declared = Declared()
    declared.streams["cups"] = None  # type: ignore[assignment]
    views = parse_script(
        f"{TABLE}CREATE VIEWS FROM 'a.sql' ON cups; CREATE VIEW a AS SELECT * FROM CUPS; CREATE VIEW b AS SELECT * FROM rule;"
        "CREATE VIEW c AS SELECT * FROM a; CREATE VIEW d AS SELECT * FROM B;"
    ).views
    first, over = rule_sets.before_rules(declared, views)
    assert (list(first), list(over)) == (["a", "c"], ["b", "d"])
    with pytest.raises(UnknownNameError, match="rule does not exist, in the script or in a file"):
        rule_sets.refuse_unknown(declared, over)
    declared.spelled["RULE"] = "rule"
    rule_sets.refuse_unknown(declared, over)


def test_what_needs_views_of_rules_with_mistakes_waits(tmp_path: Path) -> None:
    for name, text in {"good": "value = 1", "bad": "wrong = 1"}.items():
        (tmp_path / f"{name}.sql").write_text(text)
    script = parse_script(
        f"{TABLE}CREATE VIEWS FROM 'a.sql' ON cups; CREATE VIEW a AS SELECT * FROM good; CREATE VIEW b AS SELECT * FROM BAD;"
        "CREATE VIEW c AS SELECT * FROM B; CREATE VIEW d AS SELECT * FROM a; CREATE VIEW e AS SELECT * FROM nowhere;"
        "CREATE TABLE shown USING console; INSERT INTO shown SELECT * FROM c; INSERT INTO shown SELECT * FROM good;"
    )

    def waiting() -> list[str]:
        engine = Engine(f"{tmp_path}/*.sql")
        engine.follow()
        engine.declared.waiting = rule_sets.after_refused(engine.declared, script.views)[1]
        engine.declared.waiting += rule_sets.after_refused(engine.declared, script.inserts)[1]
        return [each.name if isinstance(each, CreateView) else each.text for each in engine.declared.waiting]

    assert waiting() == ["b", "c", "SELECT * FROM c"]
    # a file that does not say what it declares may declare what is missing
    (tmp_path / "bad.sql").write_bytes(b"value = '\xff'")
    assert waiting() == ["b", "c", "e", "SELECT * FROM c"]
    (tmp_path / "bad.sql").unlink()
    assert waiting() == []


def stored(**views: str) -> dict[str, Any]:
    """A catalog of these views: name -> SQL."""
    return {"views": {name: {"sql": sql, "projection": None} for name, sql in views.items()}}


def told(engine: Engine) -> list[str]:
    """What is refused, a line each, without the folder."""
    refused = engine.declared.rules[engine.path].refused
    return [str(each).removeprefix(f"{Path(engine.path).parent}/") for each in refused]


def test_a_start_keeps_the_last_good_definition_of_a_rule_with_a_mistake(tmp_path: Path) -> None:
    texts = {"a": "wrong = 1", "b": "SELECT * FROM a", "new": "wrong = 2", "good": "value = 1"}
    for name, text in texts.items():
        (tmp_path / f"{name}.sql").write_text(text)
    engine = Engine(f"{tmp_path}/*.sql")
    engine.follow()
    assert list(engine.declared.views) == ["good"]
    catalog = stored(A="SELECT * FROM cups WHERE\nvalue = 'a'", b="SELECT * FROM a")
    catalog["views"]["new"] = {**stored(new="SELECT * FROM cups")["views"]["new"], "dropped": "now"}
    catalog["views"]["other"] = catalog["views"]["b"]
    engine.keep(catalog)
    assert engine.conditions == {"good": "value = 1", "A": "value = 'a'", "b": "SELECT * FROM a"}
    assert told(engine) == [
        "a.sql:1: a: Column wrong does not exist. (its last good definition runs)",
        "new.sql:1: new: Column wrong does not exist.",
    ]
    (tmp_path / "a.sql").write_text("value = 'a'")
    (tmp_path / "new.sql").unlink()
    changes = engine.look()
    assert (changes.added, len(changes.mended), told(engine)) == ([], 2, [])
    (tmp_path / "a.sql").unlink()
    (tmp_path / "b.sql").unlink()
    assert sorted(engine.look().dropped) == ["A", "b"]


def test_a_start_keeps_the_views_of_a_file_that_does_not_say_which_it_declares(tmp_path: Path) -> None:
    path = tmp_path / "all.sql"
    path.write_bytes(b"value = '\xff'")
    catalog = stored(a="SELECT * FROM cups", b="SELECT * FROM cups", left="SELECT * FROM cups")
    engine = Engine(f"{tmp_path}/*.sql")
    engine.follow()
    engine.keep({**catalog, "rules": {str(path): ["a", "b"]}})
    assert list(engine.declared.views) == ["a", "b"]
    assert engine.declared.files_of_rules == {str(path): ["a", "b"]}
    assert told(engine) == [
        "all.sql: the file cannot be read: it is not UTF-8 text (the last good definitions of its views run)"
    ]
    # a catalog that does not say which views a file had: it may have had any of them
    engine = Engine(f"{tmp_path}/*.sql")
    engine.follow()
    engine.keep(catalog)
    assert list(engine.declared.views) == ["a", "b", "left"]


def test_a_start_keeps_the_views_of_a_file_that_was_renamed_and_does_not_say_which_it_declares(
    tmp_path: Path,
) -> None:
    (tmp_path / "renamed.sql").write_text("CREATE VIEW a AS SELECT * FROM cups WHERE value = 'open")
    (tmp_path / "other.sql").write_text("value = 1")
    (tmp_path / "one").mkdir()
    (tmp_path / "one" / "read.sql").write_text("value = 2")
    engine = Engine(f"{tmp_path}/*.sql")
    beside = files(f"{tmp_path}/one/*.sql")
    engine.declared.rules[beside.statement.path] = RuleSet(beside)
    engine.follow()
    catalog = stored(**dict.fromkeys(("a", "removed", "moved", "script_s"), "SELECT * FROM cups"))
    had = {"was.sql": ["a"], f"{tmp_path}/other.sql": ["removed"], f"{tmp_path}/one/read.sql": ["moved"]}
    engine.keep({**catalog, "rules": had})
    assert list(engine.declared.views) == ["other", "a"]
    assert engine.declared.files_of_rules[f"{tmp_path}/renamed.sql"] == ["a"]
    assert told(engine)[0].endswith("(the last good definitions of its views run)")
    (tmp_path / "renamed.sql").write_text("CREATE VIEW a AS SELECT * FROM cups WHERE value = 'shut'")
    assert engine.look().redefined == ["a"]


def test_a_definition_that_passes_no_more_is_kept_from_no_selection_and_refuses_a_window(
    tmp_path: Path,
) -> None:
    (tmp_path / "heat.sql").write_text("wrong = 1")
    engine = Engine(f"{tmp_path}/*.sql")
    engine.follow()
    catalog = stored(heat="SELECT * FROM cups WHERE wrong = 2")
    engine.keep(catalog)
    assert list(engine.declared.views) == []
    assert told(engine) == ["heat.sql:1: heat: Column wrong does not exist."]
    del catalog["views"]["heat"]["projection"]
    message = (
        f"{tmp_path}/heat.sql:1: heat: Column wrong does not exist. The last good definition of view heat has a mistake too: Column "
        "wrong does not exist. A start would drop the view and the state of its windows or join."
    )
    with pytest.raises(InputError, match=re.escape(message)):
        engine.keep(catalog)


def test_known_mistakes_are_not_judged_again(tmp_path: Path) -> None:
    for number in range(20):
        (tmp_path / f"{number}.sql").write_text(f"wrong = {number}")
    engine = Engine(f"{tmp_path}/*.sql")
    engine.follow()
    engine.steps.clear()
    (tmp_path / "good.sql").write_text("value = 1")
    changes = engine.look()
    assert (engine.steps, changes.added, changes.refused, len(changes.standing)) == ([1], ["good"], [], 20)
    engine.steps.clear()
    engine.declared.doubt_mistakes()
    assert engine.follow().is_empty
    assert sum(engine.steps) > 20


def test_a_file_that_cannot_be_read_is_a_change_once(tmp_path: Path) -> None:
    path = tmp_path / "a.sql"
    path.write_text("value = 1")
    engine = Engine(f"{tmp_path}/*.sql")
    engine.follow()
    read = Path.read_text

    def refuse(file: Path, **options: str) -> str:
        if file == path:
            raise PermissionError(13, "Permission denied")
        return read(file, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Path, "read_text", refuse)
        path.write_text("value = 22")
        assert [engine.files.look() for _ in range(6)] == [False, True, False, False, False, False]
        assert [each.reason for each in engine.follow().refused] == [
            "the file cannot be read: Permission denied"
        ]
    assert [engine.files.look() for _ in range(3)].count(True) == 1
    changes = engine.follow()
    assert (changes.redefined, len(changes.mended)) == (["a"], 1)


def test_a_file_that_nests_too_deeply_is_refused_alone(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text("[" * 100_000)
    (tmp_path / "b.json").write_text('{"name": "b", "condition": "value = 1"}')
    found = files(f"{tmp_path}/*.json", form="json")
    assert list(queries(found)) == ["b"]
    assert refusals(found) == [f"{tmp_path}/a.json: the file cannot be read: it nests too deeply"]


class Following:
    """Follows the files of `Engine` objects without a run; `failures` are raised by the next changes."""

    def __init__(self, *engines: Engine) -> None:
        self.engines = {engine.path: engine for engine in engines}
        self.failures: list[Exception] = []
        self.events = self
        self.told: list[str] = []
        rules = {engine.path: engine.declared.rules[engine.path] for engine in engines}
        self.followed = FollowedFiles(self, lambda: rules, self.apply)  # type: ignore[arg-type]

    def record(self, kind: str, *, rules: str, told: str) -> None:
        """Takes an event."""
        self.told.append(f"{kind} {Path(rules).parent.name}: {told}")

    def apply(self, path: str) -> RuleChanges:
        """Declares what the files have, or fails."""
        if self.failures:
            raise self.failures.pop()
        return self.engines[path].follow()

    def look(self, times: int = 1) -> list[RuleChanges]:
        """What looks find."""
        return [each for _ in range(times) for each in self.followed.look()]


def two_folders(tmp_path: Path) -> tuple[Following, Path, Path]:
    """Files in folders `a` and `b`, followed."""
    for name in "ab":
        (tmp_path / name).mkdir()
    engines = [Engine(f"{tmp_path}/{name}/*.sql") for name in "ab"]
    return Following(*engines), tmp_path / "a" / "x.sql", tmp_path / "b" / "y.sql"


def test_files_that_cannot_be_listed_do_not_end_following(tmp_path: Path) -> None:
    following, first, second = two_folders(tmp_path)
    first.write_text("value = 1")
    second.write_text("value = 1")

    def fail(_: RuleFiles) -> Mapping[str, Any]:
        raise PermissionError(13, "Permission denied")

    with pytest.MonkeyPatch.context() as patch:
        broken = following.engines[f"{first.parent}/*.sql"].files
        stamps = RuleFiles._stamps
        patch.setattr(RuleFiles, "_stamps", lambda files: (fail if files is broken else stamps)(files))
        (changes,) = following.look(3)
        assert changes.added == ["y"]
        assert len(following.told) == 1
        assert following.told[0].startswith("rules_unread a: ")
    (changes,) = following.look(2)
    assert changes.added == ["x"]


def test_a_change_that_fails_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    following, first, second = two_folders(tmp_path)
    following.failures = [RuntimeError("no luck")]
    first.write_text("value = 1")
    second.write_text("value = 1")
    (changes,) = following.look(2)
    assert changes.added == ["y"]
    assert [each.partition(":")[0] for each in following.told] == ["rules_unread a"]
    assert following.look(3) == []
    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now + 61)
    (changes,) = following.look()
    assert changes.added == ["x"]
    assert following.look(3) == []


def test_what_a_run_has_not_taken_is_not_declared() -> None:
    class Run:
        """A run that fails once."""

        active = True
        layout = None
        taken: ClassVar[list[object]] = []

        def set_sinks(self, sinks: object) -> None:
            """Fails at the first call."""
            self.taken.append(sinks)
            if len(self.taken) == 1:
                raise RuntimeError("no luck")

        def set_retention(self, retained: object) -> None:
            """Takes how long rows are kept."""

        def set_rules(self, files: object) -> None:
            """Takes the files."""

    engine = SparkEngine.__new__(SparkEngine)
    before, staged = Declared(), Declared()
    engine._declared, engine._execution = before, Run()  # type: ignore[assignment]
    with pytest.raises(RuntimeError):
        engine._install(staged)
    assert engine._declared is before
    assert len(Run.taken) == 2
    engine._install(staged)
    assert engine._declared is staged
