"""Scripts: statements, hints, views on views, and mistakes with their places."""

from __future__ import annotations

import pytest
from sqlglot import exp

from penstock.errors import DuplicateNameError, SqlError, UnknownNameError, UnsupportedError
from penstock.plan.deadlines import LossConstraint
from penstock.plan.slack import SlackChoice
from penstock.plan.windows import ErrorBound
from penstock.sql.script.known_names import KnownNames
from penstock.sql.script.queries import parse_query
from penstock.sql.script.script import parse_script
from penstock.sql.script.statements import Column
from penstock.sql.script.views import flatten
from penstock.sql.text import lexing
from penstock.sql.text.hints import Hints, Loss, parse_hints
from penstock.sql.text.lexing import tokenize
from penstock.sql.text.query import SelectQuery
from penstock.sql.windows.query import WindowQuery
from refusals import refuse

SCRIPT = """-- flights; as they come
CREATE TABLE flights (sched_dep TIMESTAMP, fare DECIMAL(9, 2), tags ARRAY<STRUCT<x: INT>>, `dep delay` DOUBLE)
USING parquet OPTIONS (path 'data/it''s', event_time = 'sched_dep', 'Kafka.Servers' "a:1", rows_per_trigger 5);
/* ; */ CREATE VIEW late AS SELECT * FROM flights f WHERE f.fare > 20 AND `dep delay` >= 60;
CREATE VIEW dear AS SELECT fare * 2 AS double_fare, `dep delay` FROM LATE WHERE fare < 1e6;
CREATE VIEW dearest AS SELECT double_fare + 1 more FROM dear WHERE dear.double_fare > 7 OR `dep delay` = 9;
CREATE TABLE alerts USING kafka OPTIONS (topic 'x'); INSERT INTO alerts SELECT * FROM late WHERE fare > 30
"""


def test_statements_know_their_text() -> None:
    script = parse_script(SCRIPT)
    assert [type(statement).__name__ for statement in script.statements] == [
        "CreateTable",
        "CreateView",
        "CreateView",
        "CreateView",
        "CreateTable",
        "InsertInto",
    ]
    late = script.views[0]
    assert SCRIPT[late.start : late.end].startswith("CREATE VIEW late")
    assert SCRIPT[late.start : late.end].endswith(late.text)
    assert script.inserts[0].table == "alerts"
    assert script.inserts[0].query.where == "fare > 30"


def test_table_columns_and_options() -> None:
    table = parse_script(SCRIPT).tables[0]
    assert table.columns == (
        Column("sched_dep", "TIMESTAMP"),
        Column("fare", "DECIMAL(9, 2)"),
        Column("tags", "ARRAY<STRUCT<x: INT>>"),
        Column("dep delay", "DOUBLE"),
    )
    assert table.source == "parquet"
    assert table.options == {
        "path": "data/it's",
        "event_time": "sched_dep",
        "kafka.servers": "a:1",
        "rows_per_trigger": "5",
    }


def test_qualifiers_are_blanked_and_places_kept() -> None:
    (clause,) = parse_script(SCRIPT).views[0].query.conditions
    assert clause.text == "  fare > 20 AND `dep delay` >= 60"
    assert SCRIPT[clause.start :].startswith("f.fare > 20")


def test_views_on_views_become_one_selection() -> None:
    views: dict[str, SelectQuery | WindowQuery] = {}
    for view in parse_script(SCRIPT).views:
        views[view.name.upper()] = flatten(view.query, views)
    flat = views["DEAREST"]
    assert flat.source == "flights"
    assert [" ".join(clause.text.split()) for clause in flat.conditions] == [
        "fare > 20 AND `dep delay` >= 60",
        "fare < 1e6",
        "(fare * 2) > 7 OR `dep delay` = 9",
    ]
    assert flat.projection is not None
    assert [(output.expression, output.name) for output in flat.projection] == [("(fare * 2) + 1", "more")]


def test_a_view_sees_what_the_view_below_puts_out() -> None:
    below = parse_query("SELECT fare AS price FROM flights")
    above = parse_query("SELECT * FROM below WHERE fare > 3")
    with pytest.raises(UnknownNameError, match="Existing columns: price"):
        flatten(above, {"BELOW": below})


def test_hints_are_read() -> None:
    text = "/*+ MAX_ERROR(0.5, 0.05, 'absolute'), BROADCAST(t), deadline('1 minute 500 ms'), LOSS(0, 4) */"
    text = text.replace("500 ms", "30 seconds")
    hints = parse_hints("SELECT " + text, tokenize("SELECT " + text)[1])
    loss = Loss(LossConstraint(0, 4))
    assert hints == Hints(ErrorBound(0.5, 0.05, absolute=True), 90.0, loss, 7, 7 + len(text))
    placed = {name: ("SELECT " + text)[start:end] for name, (start, end) in hints.places.items()}
    assert placed["LOSS"] == "LOSS(0, 4)"
    assert placed["DEADLINE"] == "deadline('1 minute 30 seconds')"


@pytest.mark.parametrize(
    ("hints", "seconds", "loss"),
    [
        ("DEADLINE('3 seconds')", 3.0, None),
        ('deadline("interval 1 minute 500 milliseconds"), loss(4, 4)', 60.5, Loss(LossConstraint(4, 4))),
        ("LOSS(1, 4, 'LATE') DEADLINE('1.5 seconds')", 1.5, Loss(LossConstraint(1, 4), is_late=True)),
    ],
)
def test_deadlines_and_losses_are_read(hints: str, seconds: float, loss: Loss | None) -> None:
    query = parse_query(f"SELECT /*+ {hints} */ count(*) FROM t GROUP BY window(ts, '1 hour')")
    assert (query.hints.deadline_seconds, query.hints.loss) == (seconds, loss)


@pytest.mark.parametrize(
    ("hint", "message"),
    [
        ("MAX_ERROR(0.05)", "expected (epsilon, delta[, 'absolute'][, 'slack policy'])"),
        ("MAX_ERROR(0, 0.5)", "epsilon must be above 0 and below 1"),
        ("MAX_ERROR(0.1, 1)", "delta must be above 0 and below 1"),
        ("MAX_ERROR(0, 0.1, 'absolute')", "above 0"),
        (
            "MAX_ERROR(0.1, 0.1, 'late')",
            "slack policy 'late' does not exist. (allowed: 'absolute', required, pd, aq-k-slack, mp-k-slack, k-slack, "
            "fixed with a length)",
        ),
        (
            "MAX_ERROR(0.1, 0.1, 'k-slak')",
            "slack policy 'k-slak' does not exist; did you mean k-slack? (allowed",
        ),
        ("MAX_ERROR(0.1, 0.1, 'fixed')", "fixed needs a length, such as 'fixed 30 seconds'; got 'fixed'"),
        ("MAX_ERROR(0.1, 0.1, 'fixed 1 month')", "fixed needs a length"),
        ("MAX_ERROR(0.1, 0.1, 'fixed -1 second')", "fixed needs a length"),
        ("MAX_ERROR(0.1, 0.1, 'pd 3 seconds')", "slack policy pd has no length"),
        (
            "MAX_ERROR(0.1, 0.1, 'pd', 'fixed 3 seconds')",
            "expected one slack policy; got 'pd', 'fixed 3 seconds'",
        ),
        ("MAX_ERROR(0.1, 0.1, 7)", "slack policy 7 does not exist"),
        ("DEADLINE('soon')", "expected a length of time"),
        ("DEADLINE('1 month')", "expected a length of time"),
        ("DEADLINE(3)", "expected a length of time"),
        ("DEADLINE", "got nothing"),
        ("DEADLINE('0 seconds')", "above 0; got '0 seconds'"),
        ("DEADLINE('-3 seconds')", "above 0; got '-3 seconds'"),
        ("LOSS(5, 4)", "at most m; got (5, 4)"),
        ("LOSS(0, 0)", "m, the number of consecutive windows, must be at least 1"),
        ("LOSS(-1, 4)", "k, the number of windows that may miss, must be at least 0"),
        ("LOSS(1)", "expected (k, m), (k, m, 'late') or (k, m, 'approximate')"),
        ("LOSS(0.5, 4)", "expected (k, m), (k, m, 'late') or (k, m, 'approximate')"),
        ("LOSS(1, 4, 'late', 2)", "expected (k, m), (k, m, 'late') or (k, m, 'approximate')"),
        ("LOSS(1, 4, 'exact')", "the third argument must be 'late' or 'approximate', or absent; got 'exact'"),
        ("LOSS(1, 4), LOSS(1, 4)", "given twice"),
        ("DEADLINE('1 second'), deadline('2 seconds')", "given twice"),
        (
            "MAXERROR(0.1, 0.1)",
            "Hint MAXERROR does not exist; did you mean MAX_ERROR? Allowed: MAX_ERROR, DEADLINE, LOSS",
        ),
    ],
)
def test_hints_are_validated(hint: str, message: str) -> None:
    with pytest.raises(SqlError) as raised:
        parse_query(f"SELECT /*+ {hint} */ * FROM t")
    assert message in raised.value.message
    assert not isinstance(raised.value, UnsupportedError)


@pytest.mark.parametrize(
    ("query", "marked"),
    [
        ("SELECT a FROM t ORDER BY a", "ORDER BY"),
        ("SELECT a FROM t WHERE a > 1 LIMIT 3", "LIMIT"),
        ("SELECT a FROM t NATURAL JOIN u", "NATURAL"),
        ("SELECT a FROM t, u", ","),
        ("SELECT a FROM t UNION SELECT b FROM t", "UNION"),
        ("SELECT a FROM (VALUES (1))", "("),
        ("SELECT a FROM t WHERE a IN (SELECT 1)", "SELECT"),
        ("SELECT window(ts, '1 hour') FROM t", "window(ts, '1 hour')"),
        ("SELECT row_number() OVER (ORDER BY a) FROM t", "row_number() OVER (ORDER BY a)"),
        ("SELECT explode(a) FROM t", "explode(a)"),
    ],
)
def test_what_is_not_supported_yet_is_refused(query: str, marked: str) -> None:
    with pytest.raises(UnsupportedError, match="Allowed in a") as raised:
        refuse(query)
    assert raised.value.text[raised.value.start : raised.value.end] == marked


def test_plain_hints_are_sparks() -> None:
    assert not parse_query("SELECT /*+ REPARTITION(3) */ * FROM t").hints


@pytest.mark.parametrize(
    ("statement", "kind", "marked"),
    [
        ("CREATE VIEW v AS SELECT * FROM nope", UnknownNameError, "nope"),
        ("INSERT INTO nope SELECT * FROM t", UnknownNameError, "nope"),
        ("CREATE VIEW T AS SELECT * FROM t", DuplicateNameError, "T"),
        ("CREATE TABLE u (a INT, A INT) USING csv", DuplicateNameError, "A"),
        ("CREATE TABLE u USING csv OPTIONS (p '1', P '2')", DuplicateNameError, "P"),
        ("CREATE TABLE u (a INT)", SqlError, ")"),
        ("CREATE TABLE u USING csv OPTIONS (p x)", SqlError, "x"),
        ("CREATE TABLE a.b USING csv", UnsupportedError, "."),
        ("DROP TABLE t", UnsupportedError, "DROP"),
        ("CREATE VIEW v AS SELECT a, FROM t", SqlError, "FROM"),
        ("CREATE VIEW v AS SELECT * FROM t WHERE", SqlError, "WHERE"),
        ("CREATE VIEW v AS SELECT * FROM t WHERE a = 'x", SqlError, "'x"),
        ("CREATE VIEW v AS SELECT * FROM t x y", SqlError, "y"),
    ],
)
def test_mistakes_are_underlined(statement: str, kind: type[SqlError], marked: str) -> None:
    text = f"CREATE TABLE t USING parquet OPTIONS (path 'x');\n{statement}"
    with pytest.raises(kind) as raised:
        parse_script(text)
    assert text[raised.value.start : raised.value.end] == marked
    assert "line 2" in str(raised.value)


def test_known_names_may_be_used_and_not_be_taken() -> None:
    assert (
        parse_script("CREATE VIEW v AS SELECT * FROM Live", known=KnownNames({"stream": {"LIVE": "live"}}))
        .views[0]
        .query.source
        == "Live"
    )
    with pytest.raises(DuplicateNameError):
        parse_script("CREATE VIEW live AS SELECT * FROM live", known=KnownNames({"stream": {"LIVE": "LIVE"}}))


def test_a_backfill_is_a_hint_of_window_views() -> None:
    sql = "SELECT /*+ BACKFILL, MAX_ERROR(0.1, 0.1) */ count(*) FROM t GROUP BY window(ts, '1 hour')"
    assert parse_query(sql).hints.backfill
    assert not parse_query(sql.replace("BACKFILL, ", "")).hints.backfill
    with pytest.raises(SqlError, match="no arguments"):
        parse_query(sql.replace("BACKFILL", "BACKFILL('1 day')"))


@pytest.mark.parametrize(("kind", "name"), [("view", "big"), ("stream", "live")])
def test_insert_into_what_is_no_table_is_refused_with_its_place(kind: str, name: str) -> None:
    text = "CREATE TABLE o USING csv OPTIONS (path 'o'); CREATE VIEW big AS SELECT * FROM o; "
    text += f"INSERT INTO {name} SELECT * FROM o"
    with pytest.raises(UnsupportedError, match=f"{name} is a {kind}. INSERT INTO needs a table") as refused:
        parse_script(text, known=KnownNames({"stream": {"LIVE": "live"}}))
    assert refused.value.text[refused.value.start : refused.value.end] == name


def test_insert_into_a_view_declared_before_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="Big is a view"):
        parse_script(
            "INSERT INTO Big SELECT * FROM o", known=KnownNames({"table": {"O": "o"}, "view": {"BIG": "big"}})
        )


@pytest.mark.parametrize(
    "query",
    [
        "SELECT semi.id FROM semi WHERE semi.semi > 3 AND anti = 5",
        "SELECT anti FROM a WHERE anti > 5 OR id IN (1, semi)",
        "SELECT id AS semi, id anti FROM a",
        "SELECT anti.id FROM anti JOIN semi ON anti.id = semi.semi JOIN a ON a.anti = semi.id",
        "SELECT x.id FROM a x JOIN semi ON x.id = semi.id WHERE semi = 3",
        "SELECT semi, count(*) AS n FROM semi GROUP BY window(at, '1 minute'), semi",
    ],
)
def test_semi_and_anti_are_names_too(query: str) -> None:
    parse_script(f"{NAMESAKES} CREATE VIEW v AS {query};")


@pytest.mark.parametrize(
    ("query", "told"),
    [
        (
            "SELECT a.id FROM a LEFT ANTI JOIN anti ON a.id = anti.id SEMI JOIN semi ON true",
            "A LEFT SEMI JOIN and a LEFT ANTI JOIN in one view is not supported yet",
        ),
        # Spark gives a table no such alias
        ("SELECT id FROM a AS semi WHERE semi.id > 3", "Expected WHERE, or the end of the query here"),
    ],
)
def test_semi_and_anti_joins_that_cannot_be_are_refused(query: str, told: str) -> None:
    with pytest.raises(SqlError, match=told):
        parse_script(f"{NAMESAKES} CREATE VIEW v AS {query};")


def test_a_name_with_a_hyphen_is_asked_for_in_quotes() -> None:
    table = "CREATE TABLE lake USING iceberg OPTIONS ({} 'u', number -1);"
    with pytest.raises(SqlError, match="with a hyphen needs quotes"):
        parse_script(table.format("catalog.s3.access-key-id"))
    parse_script(table.format("'catalog.s3.access-key-id'"))


NAMESAKES = "".join(
    f"CREATE TABLE {name} (id INT, semi INT, anti INT, at TIMESTAMP) USING csv OPTIONS (path 'in');"
    for name in ("semi", "anti", "a")
)


@pytest.mark.parametrize(
    ("query", "misspelt", "meant"),
    [
        ("SELECT id FROM a WEHRE id > 3", "WEHRE", "WHERE"),
        ("SELECT count(*) FROM a GRUOP BY id", "GRUOP", "GROUP"),
        ("SELECT a.id FROM a JION semi ON a.id = semi.id", "JION", "JOIN"),
        ("SELECT a.id FROM a JOIN semi USING (id) WEHRE a.id > 3", "WEHRE", "WHERE"),
    ],
)
def test_a_misspelt_keyword_is_underlined(query: str, misspelt: str, meant: str) -> None:
    with pytest.raises(SqlError, match=rf"did you mean {meant}\?") as refused:
        parse_script(f"{NAMESAKES} CREATE VIEW v AS {query};")
    assert refused.value.text[refused.value.start : refused.value.end] == misspelt


@pytest.mark.parametrize("name", ["inner_t", "grp"])
def test_a_good_name_of_an_input_is_no_misspelt_keyword(name: str) -> None:
    with pytest.raises(SqlError, match=r"Expected WHERE, or the end of the query here\.") as refused:
        parse_script(f"{NAMESAKES} CREATE VIEW v AS SELECT id FROM a {name} id > 3;")
    assert refused.value.text[refused.value.start : refused.value.end] == "id"


def test_parsers_are_sqlglots_own() -> None:
    """No class inherits from a compiled one: with `sqlglot[c]` beside, a parser of our own could not be made."""
    for dialect in (lexing._SPARK, lexing._SPARK_WITH_PATHS):
        assert dialect.parser_class.__module__.startswith("sqlglot.")
    assert lexing.parse_expression("v:a.b > 1").find(exp.Column) == exp.column("v")
    assert isinstance(lexing.parse_expression("curdate"), exp.Column)
    both = lexing.parse_expression("curdate > v:a.b AND s = 'curdate'")
    assert sorted(each.name for each in both.find_all(exp.Column)) == ["curdate", "s", "v"]


@pytest.mark.parametrize(
    ("hint", "slack"),
    [
        ("MAX_ERROR(0.1, 0.1)", None),
        ("MAX_ERROR(0.1, 0.1, 'pd')", SlackChoice("pd")),
        ("MAX_ERROR(2, 0.1, 'absolute', 'AQ-K-slack')", SlackChoice("aq-k-slack")),
        ("MAX_ERROR(0.1, 0.1, 'fixed 1 minute  30 seconds')", SlackChoice("fixed", 90_000_000)),
        ("MAX_ERROR(0.1, 0.1, 'fixed 0 seconds')", SlackChoice("fixed", 0)),
    ],
)
def test_a_hint_names_the_slack_policy(hint: str, slack: SlackChoice | None) -> None:
    query = parse_query(f"SELECT /*+ {hint} */ count(*) FROM t GROUP BY window(ts, '1 hour')")
    assert query.hints.slack == slack
    assert query.hints.max_error is not None
    assert query.hints.max_error.absolute == ("absolute" in hint)


def test_a_view_says_how_long_its_rows_are_kept() -> None:
    table = "CREATE TABLE t USING parquet OPTIONS (path 'x');"
    query = "SELECT window(at, '1 minute') AS w, count(*) AS n FROM t GROUP BY w"
    (view,) = parse_script(f"{table} CREATE VIEW v TBLPROPERTIES ('retain' = '30 days') AS {query}").views
    assert view.retain is not None
    assert (view.retain.seconds, view.text) == (30 * 86_400, query)
    (plain,) = parse_script(f"{table} CREATE VIEW v AS {query}").views
    assert plain.retain is None
    for property_, told in (
        (
            "retain 'ever'",
            "retain needs a length of time above 0 in weeks to microseconds, such as '30 days'; got 'ever'.",
        ),
        ("retain '-1 day'", "got '-1 day'."),
        ("keep '1 day'", "Views have no property keep. Allowed: retain '30 days'."),
    ):
        with pytest.raises(SqlError) as error:
            parse_script(f"{table} CREATE VIEW v TBLPROPERTIES ({property_}) AS {query}")
        assert told in error.value.message
        assert error.value.text[error.value.start : error.value.end].startswith(property_.partition(" ")[0])
