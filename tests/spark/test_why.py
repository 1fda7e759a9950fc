"""`Engine.why` and `penstock why`: verdicts are Spark's, each level follows from its parts by three-valued logic."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from forms import ALL
from penstock.cli.main import main
from penstock.errors import InputError, UnknownNameError
from penstock.provenance import Judged, Verdict
from penstock.spark.analysis.schemas import spark_schema
from penstock.spark.engine import Engine
from penstock.spark.provenance.verdicts import Answer, answers, holds, judged, texts_of
from penstock.sql.conditions.outline import Outline, outline
from penstock.trigger import Trigger
from penstock_lab.generators.queries import QueryGenerator

pytestmark = pytest.mark.spark

PAIRS = 2_000 if ALL else 100
#: conditions a tuple is judged by
_CONDITIONS = 10

SCRIPT = """
CREATE TABLE payments (id INT, city STRING, amount DOUBLE, at TIMESTAMP)
USING json OPTIONS (path '{folder}/payments', event_time 'at');
CREATE TABLE cities (name STRING, country STRING) USING csv OPTIONS (path '{folder}/cities', header 'true', static 'true');
CREATE VIEW large AS SELECT id, city, amount * 2 AS twice, at FROM payments WHERE amount > 900;
CREATE VIEW large_in_b AS SELECT id FROM large WHERE city LIKE 'B%' AND (twice > 5000 OR NOT id IN (1, 2));
CREATE VIEW share AS SELECT id FROM payments WHERE id > 0 AND 100 / amount > 2;
CREATE VIEW by_city AS SELECT city, count(*) AS n FROM payments WHERE amount > 10 GROUP BY window(at, '1 hour'), city;
CREATE VIEW hours AS SELECT window(at, '1 hour') AS w, count(*) AS n FROM payments GROUP BY w;
CREATE VIEW busy AS SELECT * FROM by_city WHERE n > 1;
CREATE VIEW days AS SELECT sum(n) AS n FROM hours WHERE n > 2 GROUP BY window(w, '1 day');
CREATE VIEW with_country AS SELECT p.id, c.country FROM payments p JOIN cities c ON p.city = c.name WHERE p.amount > 10;
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("payments", "cities"):
        (tmp_path / name).mkdir()
    rows = [
        {"id": 1, "city": "Bern", "amount": 950.0, "at": "2026-01-01T10:05:00Z"},
        {"id": 2, "city": "Rome", "amount": 20.0, "at": "2026-01-01T10:25:00Z"},
        {"id": 3, "city": "Bern", "amount": 30.0, "at": "2026-01-01T11:25:00Z"},
    ]
    lines = [*map(json.dumps, rows), '{"id": "x", "city": "Oslo"}']
    (tmp_path / "payments" / "1.json").write_text("\n".join(lines))
    (tmp_path / "cities" / "1.csv").write_text("name,country\nBern,CH\nRome,IT\nBern,US\n")
    (tmp_path / "script.sql").write_text(SCRIPT.format(folder=tmp_path))
    return tmp_path


@pytest.fixture
def engine(spark: SparkSession, folder: Path) -> Engine:
    return Engine(spark).execute((folder / "script.sql").read_text())


def _by_parts(found: Judged) -> str | None:
    """The verdict that follows from the parts; None where none does."""
    verdicts = [part.verdict for part in found.parts]
    match found.kind:
        case "and":
            return "false" if "false" in verdicts else "NULL" if "NULL" in verdicts else "true"
        case "or":
            return "true" if "true" in verdicts else "NULL" if "NULL" in verdicts else "false"
        case "not":
            return {"true": "false", "false": "true", "NULL": "NULL"}[verdicts[0]]
    return None


def _assert_consistent(found: Judged) -> None:
    assert _by_parts(found) in (None, found.verdict), found
    if found.kind == "is":
        assert found.verdict != "NULL"
    for part in found.parts:
        _assert_consistent(part)


@pytest.mark.parametrize("seed", range(PAIRS // _CONDITIONS // 10))
def test_verdicts_are_those_of_sparks_where(spark: SparkSession, seed: int) -> None:
    generator = QueryGenerator(seed + 100, needs_spark=True)
    case = generator.case(10, _CONDITIONS)
    schema = spark_schema(case.table.schema)
    tuples = case.table.append_column("__n", pa.array(range(10)))
    frame = spark.createDataFrame(tuples, schema.add("__n", "long")).cache()
    frame.createOrReplaceTempView("pairs_of_why")
    columns = case.table.column_names
    outlines = {name: outline(text) for name, text in case.conditions.items()}
    matching = {
        name: {row[0] for row in spark.sql(f"SELECT __n FROM pairs_of_why WHERE {text}").collect()}
        for name, text in case.conditions.items()
    }
    for number in range(10):
        texts = [text for each in outlines.values() for text in texts_of(each, columns)]
        found = answers(frame.where(f"__n = {number}").drop("__n"), texts)
        for name, each in outlines.items():
            verdict = judged(each, columns, found)
            _assert_consistent(verdict)
            assert (verdict.verdict == "true") == (number in matching[name]), (case.conditions[name], verdict)
    frame.unpersist()


def test_each_conjunct_has_its_view_values_and_verdict(engine: Engine) -> None:
    found = engine.why("large_in_b", '{"id": 2, "city": "Basel", "amount": 950.5, "extra": 1}')
    assert [(each.view, each.judged.text, each.judged.verdict) for each in found.conjuncts] == [
        ("large", "amount > 900", "true"),
        ("large_in_b", "city LIKE 'B%'", "true"),
        ("large_in_b", "(amount * 2) > 5000 OR NOT id IN (1, 2)", "false"),
    ]
    assert found.verdict == "false"
    first, second = found.conjuncts[2].judged.parts
    assert [(each.text, each.value) for each in first.values] == [("amount", 950.5), ("(amount * 2)", 1901)]
    assert (second.kind, second.verdict, second.parts[0].text) == ("not", "false", "id IN (1, 2)")
    assert (found.missing, found.unknown) == (("at",), ("extra",))
    assert json.loads(json.dumps(found.to_dict()))["verdict"] == "false"
    assert engine.why("LARGE", {"id": 1, "amount": 901.0}).verdict == "true"
    assert engine.why("large", {"id": 1}).verdict == "NULL"


def test_a_part_that_raises_says_why(engine: Engine) -> None:
    found = engine.why("share", '{"id": 1, "amount": 0}')
    assert found.verdict == "error"
    raised = found.conjuncts[1].judged
    assert raised.verdict == "error"
    assert raised.error is not None
    assert "Division by zero" in raised.error
    assert raised.values[1].error == raised.error
    assert engine.why("share", '{"id": -1, "amount": 0}').verdict == "false"


#: conditions of a tuple with a = 2, b = 0, for which 10 / b raises
_RAISING: dict[str, Verdict] = {
    "NOT (10 / b > 0 AND a = 1)": "true",
    "NOT (10 / b > 0 OR a = 2)": "false",
    "NOT (10 / b > 0 OR a = 1)": "error",
    "NOT (NOT (10 / b > 0 AND a = 1))": "false",
    "(10 / b > 0 AND a = 1) IS FALSE": "true",
    "(10 / b > 0 AND a = 1) IS NOT NULL": "true",
    "(10 / b > 0 AND a = 1) IS NULL": "false",
    "(10 / b > 0 AND a = NULL) IS NOT TRUE": "true",
    "(10 / b > 0 AND a = 2) IS NOT TRUE": "error",
    "(10 / b > 0 OR a = 2) IS TRUE": "true",
    "(10 / b > 0) IS NULL": "error",
}


class _RaisingConditions(QueryGenerator):
    """Conditions over tests of which some raise where `b` is 0."""

    def predicate(self, schema: pa.Schema) -> str:  # noqa: ARG002 - the tests are given
        return self.random.choice(["10 / b > 0", "a = 1", "a > 1", "5 / b = a"])


@pytest.mark.long
def test_what_raises_is_decided_by_other_parts_as_in_the_engine(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    tuples = [(a, b) for a in (1, 2, None) for b in (0, 5, None)]
    (tmp_path / "in" / "0.json").write_text("\n".join(json.dumps({"a": a, "b": b}) for a, b in tuples))
    generator = _RaisingConditions(11)
    conditions = [
        *_RAISING,
        *(generator.condition(pa.schema([]), 3) for _ in range(PAIRS // 2)),
    ]
    views = "".join(
        f"CREATE VIEW v{number} AS SELECT * FROM t WHERE {text};" for number, text in enumerate(conditions)
    )
    engine = Engine(spark).execute(
        f"CREATE TABLE t (a INT, b INT) USING json OPTIONS (path '{tmp_path}/in');{views}"
    )
    with engine.start(tmp_path / "out", trigger=Trigger.available_now(ended=True)) as run:
        run.await_termination()
        names = {f"v{number}": text for number, text in enumerate(conditions)}
        rows = run.matches("t").collect()
        matched = {
            text: {(row.a, row.b) for row in rows if name in row.queries} for name, text in names.items()
        }
    outlines = {text: outline(text) for text in conditions}
    frame = spark.createDataFrame(tuples, "a INT, b INT").coalesce(1)
    columns = [holds(spark, each).alias(f"_{number}") for number, each in enumerate(outlines.values())]
    held = {(row.a, row.b): row[2:] for row in frame.select("a", "b", *columns).collect()}
    for a, b in tuples:
        tests = answers(
            frame.where(F.col("a").eqNullSafe(a) & F.col("b").eqNullSafe(b)),
            {text for each in outlines.values() for text in _tests(each)},
        )
        for (text, each), is_held in zip(outlines.items(), held[a, b], strict=True):
            found = {part: tests.get(part, Answer(error="raised")) for part in texts_of(each, [])}
            verdict = judged(each, [], found).verdict
            is_matched = (a, b) in matched[text]
            assert (verdict == "true", bool(is_held)) == (is_matched, is_matched), (text, a, b, verdict)
    for text, verdict in _RAISING.items():
        found_ = engine.why(f"v{conditions.index(text)}", {"a": 2, "b": 0})
        assert (text, found_.verdict) == (text, verdict)


def _tests(part: Outline) -> list[str]:
    """The tests of a condition, and what they compare."""
    if part.kind == "test":
        return [part.text, *part.operands]
    return [text for each in part.parts for text in _tests(each)]


def test_a_record_that_does_not_fit_is_set_aside_with_the_reason_of_the_ingest(
    engine: Engine, folder: Path
) -> None:
    found = engine.why("large", '{"id": "x", "city": "Oslo"}')
    assert found.set_aside == "malformed JSON: id is no INT"
    assert (found.conjuncts, found.values) == ((), {})
    with engine.start(folder / "out", trigger=Trigger.available_now(ended=True)) as run:
        run.await_termination()
    again = engine.why("large", quarantined=1, output=folder / "out")
    assert again.set_aside.endswith("record: id is no INT")
    with pytest.raises(InputError, match="Quarantined record 2 of payments does not exist"):
        engine.why("large", quarantined=2, output=folder / "out")


def test_a_tuple_is_in_windows_with_their_fate(engine: Engine, folder: Path) -> None:
    row = '{"id": 9, "city": "Bern", "amount": 99, "at": "2026-01-01T10:30:00Z"}'
    (window,) = engine.why("by_city", row).windows
    assert (window.start, window.end) == ("2026-01-01T10:00:00.000000Z", "2026-01-01T11:00:00.000000Z")
    assert (dict(window.keys), window.fate) == ({"city": "Bern"}, "unknown")
    with engine.start(folder / "out", trigger=Trigger.available_now(ended=True)) as run:
        run.await_termination()
    (window,) = engine.why("by_city", row, output=folder / "out").windows
    assert window.fate == "final"
    assert (window.revisions[-1].row, window.revisions[-1].is_final) == ({"city": "Bern", "n": 1}, True)
    later = row.replace("2026-01-01T10", "2027-01-01T10")
    assert engine.why("by_city", later, output=folder / "out").windows[0].fate == "not due"
    other = row.replace("Bern", "Oslo")
    assert engine.why("by_city", other, output=folder / "out").windows[0].fate == "no row"
    assert engine.why("by_city", '{"city": "Bern"}').windows == ()


@pytest.mark.long
def test_views_over_window_views(engine: Engine) -> None:
    row = '{"id": 9, "city": "Bern", "amount": 9, "at": "2026-01-01T10:30:00Z"}'
    found = engine.why("busy", row)
    assert [(each.view, each.judged.verdict) for each in found.conjuncts] == [("by_city", "false")]
    assert found.notes == ("HAVING is a condition on groups: n > 1",)
    assert len(found.windows) == 1
    hour = {"start": "2026-01-01T10:00:00Z", "end": "2026-01-01T11:00:00Z"}
    found = engine.why("days", json.dumps({"w": hour, "n": 2}))
    assert (found.relation, found.verdict, found.notes) == (
        "hours",
        "false",
        ("The row is one of view hours.",),
    )
    assert [window.start for window in found.windows] == ["2026-01-01T00:00:00.000000Z"]
    tried = engine.backtest("days")
    assert (tried.matches, tried.tuples, tried.set_aside) == (0, {"payments": 3}, 1)
    assert engine.backtest("days", sql="SELECT sum(n) AS n FROM hours GROUP BY window(w, '1 day')").rows == (
        {"n": 3},
    )


@pytest.mark.long
def test_partners_of_a_join_are_read_from_the_files_of_its_tables(engine: Engine) -> None:
    found = engine.why(
        "with_country", '{"id": 9, "city": "Bern", "amount": 99, "at": "2026-01-01T10:30:00Z"}'
    )
    (partners,) = found.partners
    assert (found.input, partners.input, partners.relation) == ("p", "c", "cities")
    assert (partners.read, partners.count, found.joined) == (3, 2, 2)
    assert sorted(row["country"] for row in partners.rows) == ["CH", "US"]
    assert [each.judged.text for each in found.conjuncts] == ["(`amount`) > (10)"]
    back = engine.why("with_country", '{"name": "Bern", "country": "DE"}')
    assert (back.input, back.partners[0].relation, back.partners[0].read) == ("c", "payments", 3)
    assert back.joined == 2
    assert engine.why("with_country", '{"name": "Bern"}', input="cities").joined == 2
    with pytest.raises(UnknownNameError, match="no input x"):
        engine.why("with_country", '{"id": 1}', input="x")


def test_mistakes_are_one_error(spark: SparkSession, engine: Engine, folder: Path) -> None:
    with pytest.raises(UnknownNameError, match="View larg does not exist; did you mean large"):
        engine.why("larg", "{}")
    with pytest.raises(InputError, match="The row is not JSON"):
        engine.why("large", "{id: 1}")
    with pytest.raises(InputError, match="not a JSON object"):
        engine.why("large", "[1]")
    with pytest.raises(InputError, match="Column id is INT; the value 'x'"):
        engine.why("large", {"id": "x"})
    pq.write_table(pa.table({"id": pa.array([1], pa.int32())}), folder / "cities" / "1.parquet")
    stored = Engine(spark).execute(
        f"CREATE TABLE numbers (id INT) USING parquet OPTIONS (path '{folder}/cities');"
        "CREATE VIEW some AS SELECT * FROM numbers WHERE id > 1;"
    )
    with pytest.raises(InputError, match="The row does not fit the columns of numbers: id is no INT"):
        stored.why("some", '{"id": "x"}')


def _command(monkeypatch: pytest.MonkeyPatch, *arguments: object) -> int:
    monkeypatch.setattr(sys, "argv", ["penstock", *map(str, arguments)])
    try:
        main()
    except SystemExit as ended:
        return int(ended.code or 0)
    return 0


@pytest.mark.usefixtures("spark")
def test_the_command_prints_the_answer(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "row.json").write_text('{"id": 2, "city": "Rome", "amount": 20}')
    script = folder / "script.sql"
    assert _command(monkeypatch, "why", script, "large_in_b", "--row", f"@{folder}/row.json") == 0
    assert capsys.readouterr().out.splitlines() == [
        "large_in_b: the tuple does not match: amount > 900 is false; city LIKE 'B%' is false; "
        "(amount * 2) > 5000 OR NOT id IN (1, 2) is false",
        "tuple of payments: id = 2, city = 'Rome', amount = 20.0, at = NULL",
        "not given, so NULL: at",
        "conditions of large:",
        "  false  amount > 900   amount = 20.0",
        "conditions of large_in_b:",
        "  false  city LIKE 'B%'   city = 'Rome'",
        "  false  (amount * 2) > 5000 OR NOT id IN (1, 2)",
        "    false  (amount * 2) > 5000   amount = 20.0, (amount * 2) = 40.0",
        "    false  NOT id IN (1, 2)",
        "      true   id IN (1, 2)   id = 2",
    ]
    assert _command(monkeypatch, "why", script, "large", "--row", "{}", "--format", "json") == 0
    assert json.loads(capsys.readouterr().out)["verdict"] == "NULL"
    assert _command(monkeypatch, "why", script, "nothing", "--row", "{}") == 2
    assert "View nothing does not exist." in capsys.readouterr().err
    assert _command(monkeypatch, "why", script, "large", "--row", "{") == 2
    assert _command(monkeypatch, "why", script, "large") == 2
    assert "Give either --row or --quarantined" in capsys.readouterr().err
