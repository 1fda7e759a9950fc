"""Window views read from text: windows, keys, aggregates, expressions over groups, and what is refused."""

from __future__ import annotations

import re

import pytest

from penstock.errors import SqlError, UngroupedError, UnknownNameError, UnsupportedError
from penstock.plan.windows import ALL_TIME, ErrorBound, Windows
from penstock.spark.ingest.explaining import window_note
from penstock.sql.script.known_names import KnownNames
from penstock.sql.script.queries import parse_query
from penstock.sql.script.script import parse_script
from penstock.sql.script.views import flatten
from penstock.sql.text.intervals import microseconds_of
from penstock.sql.text.query import SelectQuery
from penstock.sql.windows.query import Beneath, WindowQuery
from refusals import refuse

MINUTE = 60_000_000
HOUR = 60 * MINUTE


def read(text: str) -> WindowQuery:
    query = parse_query(text)
    assert isinstance(query, WindowQuery)
    return query


def expressions(query: WindowQuery) -> list[str]:
    return [output.expression for output in query.outputs]


def test_a_window_view_in_parts() -> None:
    text = """SELECT /*+ MAX_ERROR(0.05, 0.1) */ origin, window(sched_dep, '1 hour', '15 minutes') AS w,
        count(*) AS n, round(avg(f.dep_delay), 1) AS mean_delay
    FROM flights AS f WHERE f.distance > 500 GROUP BY origin, w HAVING count(*) > 3 AND w.start > '2013-01-01'"""
    query = read(text)
    assert (query.source, query.where, query.time) == ("flights", "  distance > 500", "sched_dep")
    assert query.windows == Windows(HOUR, 15 * MINUTE)
    assert [(key.expression, key.name) for key in query.keys] == [("origin", "_k0")]
    assert [call.sql for call in query.aggregates] == ["count(*)", "avg(dep_delay)"]
    assert [(output.expression, output.name) for output in query.outputs] == [
        ("_k0", "origin"),
        ("_w", "w"),
        ("_a0", "n"),
        ("round(_a1, 1)", "mean_delay"),
    ]
    (having,) = query.having
    assert having.expression == "_a0 > 3 AND _w.start > '2013-01-01'"
    assert query.hints.max_error == ErrorBound(0.05, 0.1)
    place = query.window_clause
    assert text[place.start : place.start + len(place.text)] == "window(sched_dep, '1 hour', '15 minutes')"
    assert query.selection.where == query.where


def test_a_session_view_in_parts() -> None:
    query = read(
        "SELECT user, session_window.start, session_window(ts, '10 seconds').end AS until, count(*) AS n FROM clicks "
        "GROUP BY user, session_window(ts, '10 seconds') HAVING session_window.end > '2013-01-01' AND n > 1"
    )
    assert query.is_running
    assert (query.time, query.gap, query.windows) == ("ts", 10_000_000, ALL_TIME)
    assert expressions(query) == ["_k0", "_w.start", "_w.end", "_a0"]
    assert query.outputs[1].name == "start"
    assert query.having[0].expression == "_w.end > '2013-01-01' AND _a0 > 1"
    unnamed = read("SELECT session_window(ts, '1 hour'), count(*) FROM t GROUP BY session_window")
    assert (unnamed.outputs[0].name, unnamed.gap) == ("session_window", HOUR)
    alias = read("SELECT session_window(ts, '1 hour') AS w, max(a) FROM t GROUP BY w")
    assert (expressions(alias), alias.keys) == (["_w", "_a0"], ())


@pytest.mark.parametrize("source", ["hourly", "both", "pairs"])
def test_sessions_over_views_with_rows_of_their_own_are_refused(source: str) -> None:
    views = {
        "HOURLY": parse_query("SELECT window(ts, '1 hour') AS w, count(*) AS n FROM t GROUP BY w"),
        "BOTH": parse_query("SELECT ts FROM t UNION ALL SELECT ts FROM u"),
        "PAIRS": parse_query("SELECT t.ts AS ts FROM t JOIN u ON t.a = u.a AND t.ts = u.ts"),
    }
    call = "session_window(ts, '1 hour')"
    with pytest.raises(UnsupportedError, match=f"Sessions over .* {source} are not supported yet") as raised:
        flatten(read(f"SELECT count(*) FROM {source} GROUP BY {call}"), views)
    assert raised.value.text[raised.value.start : raised.value.end] == call


@pytest.mark.parametrize(
    ("literal", "length"),
    [
        ("'1 hour'", HOUR),
        ("'interval 5 minutes'", 5 * MINUTE),
        ('" INTERVAL  90  SECONDS "', 90_000_000),
        ("'1 week 2 days'", 9 * 24 * HOUR),
        ("'1.25 seconds 3 milliseconds'", 1_253_000),
        ("'2 hours -30 minutes'", 90 * MINUTE),
        ("'-1 second'", -1_000_000),
        ("1000000", 1_000_000),
        ("-5L", -5),
        ("'0 seconds'", 0),
        ("'1 month'", None),
        ("'1 year'", None),
        ("'1.5 minutes'", None),
        ("'1hour'", None),
        ("'1 hour, 2 minutes'", None),
        ("'interval'", None),
        ("''", None),
        ("'5'", None),
        ("'9999999999 weeks'", None),
        ("size", None),
        ("INTERVAL 1 HOUR", None),
    ],
)
def test_lengths_of_time(literal: str, length: int | None) -> None:
    assert microseconds_of(literal) == length


@pytest.mark.parametrize(
    ("arguments", "windows"),
    [
        ("'1 hour'", Windows(HOUR, HOUR)),
        ("'1 hour', '7 minutes'", Windows(HOUR, 7 * MINUTE)),
        ("'1 hour', '1 hour', '15 minutes'", Windows(HOUR, HOUR, 15 * MINUTE)),
        ("'1 hour', '20 minutes', '-5 minutes'", Windows(HOUR, 20 * MINUTE, 15 * MINUTE)),
    ],
)
def test_windows(arguments: str, windows: Windows) -> None:
    assert read(f"SELECT count(*) FROM t GROUP BY window(ts, {arguments})").windows == windows


@pytest.mark.parametrize(
    "text",
    [
        "SELECT upper(a) AS k, window(ts, '1 hour') AS w, count(*) FROM t GROUP BY k, w",
        "SELECT upper(a) AS k, window(ts, '1 hour') AS w, count(*) FROM t GROUP BY 1, 2",
        "SELECT upper(a) AS k, window(ts, '1 hour') AS w, count(*) FROM t GROUP BY (UPPER(`A`)), window(ts,'60 minutes')",
        "SELECT upper(t.a) AS k, window(t.ts, '1 hour') AS w, count(1) FROM t GROUP BY upper(t.a), w, window(ts, '1 hour')",
        "SELECT upper(x.a) k, window(ts, '1 hour'), count('x') FROM t x GROUP BY window, k",
        "SELECT upper(a) AS k, window, count(*) FROM t GROUP BY window(TS, '1 hour'), upper(a)",
        "SELECT upper(a) AS k, window(ts, '1 hour'), count(2.5) FROM t GROUP BY window(ts, '1 hour'), upper(a)",
    ],
)
def test_grouping_by_alias_position_or_expression(text: str) -> None:
    query = read(text)
    assert [" ".join(key.expression.split()).upper().replace("`", "") for key in query.keys] in (
        ["UPPER(A)"],
        ["UPPER( A)"],
    )
    assert query.time.lower() == "ts"
    assert expressions(query) == ["_k0", "_w", "_a0"]
    assert query.aggregates[0].sql == "count(*)"


@pytest.mark.parametrize(
    ("call", "sql"),
    [
        ("COUNT(*)", "count(*)"),
        ("count(1)", "count(*)"),
        ("count(TRUE)", "count(*)"),
        ("count(NULL)", "count(NULL)"),
        ("Mean(x)", "avg(x)"),
        ("sum(ALL x + 1)", "sum(x + 1)"),
        ("std(x)", "stddev_samp(x)"),
        ("variance(x)", "var_samp(x)"),
        ("count(DISTINCT x)", "count(DISTINCT x)"),
        ("median(x)", "percentile(x, 0.5D)"),
        ("percentile(x, 1)", "percentile(x, 1.0D)"),
        ("percentile_approx(x, .25)", "approx_percentile(x, 0.25D, 10000)"),
        ("approx_percentile(x, 0.5, 100)", "approx_percentile(x, 0.5D, 100)"),
        ("approx_count_distinct(x)", "approx_count_distinct(x, 0.05D)"),
        ("approx_count_distinct(x, 0.01)", "approx_count_distinct(x, 0.01D)"),
        ("sum(x) FILTER (WHERE y > 1)", "sum(CASE WHEN y > 1 THEN x END)"),
        ("count(*) FILTER (WHERE y IN (1, 2))", "count(CASE WHEN y IN (1, 2) THEN 1 END)"),
        ("count(DISTINCT x) FILTER (WHERE y)", "count(DISTINCT CASE WHEN y THEN x END)"),
        ("MAX_BY(x, y + 1)", "max_by(x, y + 1)"),
        ("min_by(x, y) FILTER (WHERE z)", "min_by(CASE WHEN z THEN x END, CASE WHEN z THEN y END)"),
        ("CORR(x, y) FILTER (WHERE z)", "corr(CASE WHEN z THEN x END, CASE WHEN z THEN y END)"),
        ("regr_count(y, x)", "count(CASE WHEN CAST(x AS DOUBLE) IS NOT NULL THEN y END)"),
        ("regr_avgx(y, x)", "avg(CASE WHEN CAST(y AS DOUBLE) IS NOT NULL THEN x END)"),
        ("regr_avgy(y, x)", "avg(CASE WHEN CAST(x AS DOUBLE) IS NOT NULL THEN y END)"),
        ("bit_or(DISTINCT x)", "bit_or(x)"),
        ("string_agg(ALL x)", "listagg(x)"),
        ("listagg(x, ', ') FILTER (WHERE z)", "listagg(CASE WHEN z THEN x END, ', ')"),
        (
            "LISTAGG(DISTINCT x, NULL) WITHIN GROUP (ORDER BY X DESC)",
            "listagg(DISTINCT x, NULL) WITHIN GROUP (ORDER BY X DESC NULLS LAST)",
        ),
        (
            "listagg(x) WITHIN GROUP (ORDER BY y, f(z, 1) ASC NULLS LAST) FILTER (WHERE z)",
            "listagg(CASE WHEN z THEN x END) WITHIN GROUP (ORDER BY CASE WHEN z THEN y END ASC NULLS FIRST, "
            "CASE WHEN z THEN f(z, 1) END ASC NULLS LAST)",
        ),
        ("max(CASE WHEN a THEN b END)", "max(CASE WHEN a THEN b END)"),
        ("min(coalesce(a, b, 'c)'))", "min(coalesce(a, b, 'c)'))"),
    ],
)
def test_aggregates_have_one_name(call: str, sql: str) -> None:
    query = read(f"SELECT 1 + {call} AS n FROM t GROUP BY window(ts, '1 hour')")
    assert [aggregate.sql for aggregate in query.aggregates] == [sql]
    assert expressions(query) == ["1 + _a0"]


def test_equal_aggregates_are_computed_once() -> None:
    query = read(
        "SELECT avg(X) + MEAN( x ), sum(`x`), median(x), percentile(x, 0.5), count(*) FROM t "
        "GROUP BY window(ts, '1 hour') HAVING Sum(x) > 1 AND count(1) > 2 AND max(y) > 'X'"
    )
    assert [call.sql for call in query.aggregates] == [
        "avg(X)",
        "sum(`x`)",
        "percentile(x, 0.5D)",
        "count(*)",
        "max(y)",
    ]
    assert expressions(query) == ["_a0 + _a0", "_a1", "_a2", "_a2", "_a3"]
    (having,) = query.having
    assert having.expression == "_a1 > 1 AND _a3 > 2 AND _a4 > 'X'"


def test_keys_in_expressions() -> None:
    query = read(
        "SELECT (a + b) * 2 AS c, c - 1, f(A+B, b), s.x.y, `s`.`x`, CASE WHEN a + b > 1 THEN window.end END "
        ", ((A + B) * f((b - 1), a + b)) FROM t GROUP BY a + b, b, s.x, window(ts, '1 hour') HAVING c > a + b"
    )
    assert expressions(query) == [
        "(_k0) * 2",
        "((_k0) * 2) - 1",
        "f(_k0, _k1)",
        "_k2.y",
        "_k2",
        "CASE WHEN _k0 > 1 THEN _w.end END",
        "((_k0) * f((_k1 - 1), _k0))",
    ]
    (having,) = query.having
    assert having.expression == "((_k0) * 2) > _k0"


@pytest.mark.parametrize("item", ["a + b * 2", "b - a + b", "a", "t.a", "f(a)", "w.start", "a.b + 1"])
def test_what_is_neither_grouped_nor_aggregated(item: str) -> None:
    with pytest.raises(SqlError, match="neither grouped nor aggregated") as raised:
        read(f"SELECT {item}, count(*) FROM t GROUP BY a + b, window(ts, '1 hour')")
    assert isinstance(raised.value, UngroupedError)
    assert raised.value.source == "t"


_WINDOW = "window(ts, '1 hour')"


@pytest.mark.parametrize(
    ("query", "marked"),
    [
        ("SELECT DISTINCT a, count(*) FROM t GROUP BY a", "DISTINCT"),
        ("SELECT DISTINCT count(*) FROM t", "DISTINCT"),
        ("SELECT DISTINCT a FROM t JOIN u ON t.a = u.a", "DISTINCT"),
        ("SELECT DISTINCT * FROM t", "*"),
        ("SELECT a, window(ts, '1 hour') FROM t GROUP BY a", "window(ts, '1 hour')"),
        ("SELECT a, hll_sketch_agg(b) FROM t GROUP BY a", "hll_sketch_agg(b)"),
        (f"SELECT count(*), max(a) OVER (ORDER BY b) FROM t GROUP BY {_WINDOW}", "max(a)"),
        (f"SELECT row_number() OVER (ORDER BY b) FROM t GROUP BY {_WINDOW}", "OVER"),
        (f"SELECT stddev(DISTINCT a) FROM t GROUP BY {_WINDOW}", "stddev(DISTINCT a)"),
        (f"SELECT count(a, b) FROM t GROUP BY {_WINDOW}", "count(a, b)"),
        (f"SELECT first(a) FROM t GROUP BY {_WINDOW}", "first(a)"),
        (f"SELECT percentile(a, array(0.5)) FROM t GROUP BY {_WINDOW}", "array(0.5)"),
        (f"SELECT percentile(a) FROM t GROUP BY {_WINDOW}", "percentile(a)"),
        (f"SELECT max_by(a) FROM t GROUP BY {_WINDOW}", "max_by(a)"),
        (f"SELECT min_by(a, b, c) FROM t GROUP BY {_WINDOW}", "min_by(a, b, c)"),
        (f"SELECT max_by(DISTINCT a, b) FROM t GROUP BY {_WINDOW}", "max_by(DISTINCT a, b)"),
        (f"SELECT regr_r2(a) FROM t GROUP BY {_WINDOW}", "regr_r2(a)"),
        (f"SELECT regr_count(DISTINCT a, b) FROM t GROUP BY {_WINDOW}", "regr_count(DISTINCT a, b)"),
        (f"SELECT max_by(*, b) FROM t GROUP BY {_WINDOW}", "max_by(*, b)"),
        (f"SELECT listagg(a, ',', b) FROM t GROUP BY {_WINDOW}", "listagg(a, ',', b)"),
        (
            f"SELECT count(*), listagg(*) WITHIN GROUP (ORDER BY a) FROM t GROUP BY {_WINDOW}",
            "listagg(*) WITHIN GROUP (ORDER BY a)",
        ),
        (f"SELECT explode(array(count(*))) FROM t GROUP BY {_WINDOW}", "explode"),
        (f"SELECT struct(count(*)) FROM t GROUP BY {_WINDOW}", "struct"),
        ("SELECT count(*) FROM t GROUP BY session_window(ts, gap)", "gap"),
        (f"SELECT count(*) FROM t GROUP BY session_window(ts, '1 hour'), {_WINDOW}", _WINDOW),
        (
            "SELECT count(*) AS session_window FROM t GROUP BY session_window(ts, '1 hour')",
            "count(*) AS session_window",
        ),
        ("SELECT count(*) FROM t GROUP BY window(ts, size)", "size"),
        (f"SELECT count(*) FROM t GROUP BY {_WINDOW}, window(ts, '2 hours')", "window(ts, '2 hours')"),
        (f"SELECT window(ts, '2 hours'), count(*) FROM t GROUP BY {_WINDOW}", "window(ts, '2 hours')"),
        (f"SELECT count(*) FROM t GROUP BY {_WINDOW}.start", _WINDOW),
        (f"SELECT count(*) FROM t GROUP BY ROLLUP ({_WINDOW}, a)", f"ROLLUP ({_WINDOW}, a)"),
        (f"SELECT count(*) FROM t GROUP BY {_WINDOW}, a WITH CUBE", f"{_WINDOW}, a WITH CUBE"),
        (
            f"SELECT count(*) FROM t GROUP BY {_WINDOW}, a GROUPING SETS ((a))",
            f"{_WINDOW}, a GROUPING SETS ((a))",
        ),
        ("SELECT count(*) FROM t GROUP BY ALL", "ALL"),
        (f"SELECT count(*) FROM t GROUP BY {_WINDOW}, 'x'", "'x'"),
        (f"SELECT *, count(*) FROM t GROUP BY {_WINDOW}", "*"),
        (f"SELECT count(*) AS window FROM t GROUP BY {_WINDOW}", "count(*) AS window"),
        (f"SELECT count(*) FROM t GROUP BY {_WINDOW} ORDER BY 1", "ORDER BY"),
        (f"SELECT count(*) FROM t GROUP BY {_WINDOW} LIMIT 1", "LIMIT"),
        (f"SELECT count(*) FROM t JOIN u ON t.a = u.a GROUP BY {_WINDOW}", "GROUP BY"),
        (f"SELECT count(*) FROM t GROUP BY {_WINDOW} WINDOW x AS (ORDER BY a)", "WINDOW"),
        (f"SELECT (SELECT 1), count(*) FROM t GROUP BY {_WINDOW}", "(SELECT 1)"),
        (f"SELECT count(*) FROM t GROUP BY {_WINDOW} HAVING count(*) > (SELECT 1)", "SELECT"),
    ],
)
def test_what_is_not_supported_is_refused(query: str, marked: str) -> None:
    with pytest.raises(UnsupportedError) as raised:
        refuse(query)
    assert raised.value.text[raised.value.start : raised.value.end] == marked


@pytest.mark.parametrize(
    ("query", "marked"),
    [
        ("SELECT count(*) FROM t GROUP BY window(ts, '-1 hour')", "'-1 hour'"),
        ("SELECT count(*) FROM t GROUP BY window(ts, '1 month')", "'1 month'"),
        ("SELECT count(*) FROM t GROUP BY window(ts, INTERVAL 1 HOUR)", "INTERVAL 1 HOUR"),
        ("SELECT count(*) FROM t GROUP BY window(ts, '0 hours')", "'0 hours'"),
        ("SELECT count(*) FROM t GROUP BY window(ts, '1 hour', '2 hours')", "'2 hours'"),
        ("SELECT count(*) FROM t GROUP BY window(ts, '2 hours', '1 hour', '60 minutes')", "'60 minutes'"),
        ("SELECT count(*) FROM t GROUP BY window(ts)", "window(ts)"),
        (f"SELECT sum(max(a)) FROM t GROUP BY {_WINDOW}", "max"),
        (f"SELECT count(*) FROM t GROUP BY {_WINDOW}, max(a)", "max(a)"),
        (f"SELECT count(*) AS n FROM t GROUP BY {_WINDOW}, n", "n"),
        (f"SELECT count(*) FROM t GROUP BY {_WINDOW}, 2", "2"),
        (f"SELECT percentile(a, 1.5) FROM t GROUP BY {_WINDOW}", "1.5"),
        (f"SELECT listagg(a, b || ',') FROM t GROUP BY {_WINDOW}", "b || ','"),
        (f"SELECT listagg(a) WITHIN GROUP () FROM t GROUP BY {_WINDOW}", "WITHIN GROUP ("),
        (f"SELECT listagg(a) WITHIN GROUP (ORDER BY DESC) FROM t GROUP BY {_WINDOW}", "DESC"),
        (f"SELECT count(*) FILTER (a > 1) FROM t GROUP BY {_WINDOW}", "FILTER"),
        (f"SELECT count(*) FROM t GROUP BY {_WINDOW},", ","),
        (f"SELECT count(*) FROM t GROUP BY {_WINDOW} HAVING", "HAVING"),
        (f"SELECT count(*) FROM t GROUP BY {_WINDOW} WHERE a > 1", "WHERE"),
        ("SELECT /*+ MAX_ERROR(0.05, 0.05) */ * FROM t", "/*+ MAX_ERROR(0.05, 0.05) */"),
        ("SELECT /*+ LOSS(1, 4) */ * FROM t", "/*+ LOSS(1, 4) */"),
        (
            f"SELECT /*+ MAX_ERROR(0.1, 0.1), LOSS(1, 4) */ count(*) FROM t GROUP BY {_WINDOW}",
            "LOSS(1, 4)",
        ),
        (
            "SELECT /*+ MAX_ERROR(0.1, 0.1) */ a, count(*) FROM t GROUP BY a",
            "MAX_ERROR(0.1, 0.1)",
        ),
        ("SELECT /*+ DEADLINE('3 seconds') */ count(*) FROM t", "DEADLINE('3 seconds')"),
        (f"SELECT /*+ STATE_TTL('1 day') */ count(*) FROM t GROUP BY {_WINDOW}", "STATE_TTL('1 day')"),
        ("SELECT /*+ STATE_TTL('1 day') */ count(*) FROM t", "STATE_TTL('1 day')"),
        ("SELECT /*+ STATE_TTL('soon') */ a FROM t GROUP BY a", "STATE_TTL('soon')"),
        (
            f"SELECT /*+ BACKFILL, DEADLINE('3 seconds') */ count(*) FROM t GROUP BY {_WINDOW}",
            "BACKFILL",
        ),
    ],
)
def test_mistakes_are_underlined(query: str, marked: str) -> None:
    with pytest.raises(SqlError) as raised:
        refuse(query)
    assert type(raised.value) is SqlError
    assert raised.value.text[raised.value.start : raised.value.end] == marked


USERS = ("Score", "rank_of")
TIMELY = "/*+ DEADLINE('3 seconds') */"


def read_timely(items: str, rest: str = "") -> WindowQuery:
    query = parse_query(f"SELECT {TIMELY} {items} FROM t GROUP BY {_WINDOW}{rest}", USERS)
    assert isinstance(query, WindowQuery)
    return query


def test_aggregates_of_the_users_in_a_view_with_a_deadline() -> None:
    query = read_timely(
        "a, 1 + score(x, y * 2) AS s, `SCORE`( X,y*2 ) AS t, Rank_of(ALL z).best",
        ", a HAVING score(x) > 3 OR rank_of(z).best > 1",
    )
    assert expressions(query) == ["_k0", "1 + _a0", "_a0", "_a1.best"]
    assert query.having[0].expression == "_a2 > 3 OR _a1.best > 1"
    assert [call.sql for call in query.aggregates] == ["SCORE(x, y * 2)", "RANK_OF(z)", "SCORE(x)"]
    assert all(call.is_users for call in query.aggregates)
    assert query.aggregates[0].clause.text == "score(x, y * 2)"


def test_a_view_with_a_deadline_may_have_aggregates_of_spark() -> None:
    query = read_timely("count(*), max(a) FILTER (WHERE b > 1)")
    assert [call.sql for call in query.aggregates] == ["count(*)", "max(CASE WHEN b > 1 THEN a END)"]
    assert query.hints.deadline_seconds == 3.0


def test_a_call_of_the_users_on_a_selection_is_one_on_the_table() -> None:
    query = flatten(read_timely("score(x, z)"), {"T": parse_query("SELECT a + 1 AS x, b AS z, ts FROM u")})
    assert isinstance(query, WindowQuery)
    assert query.aggregates[0].arguments == ("(a + 1)", "b")
    assert query.hints.deadline_seconds == 3.0


@pytest.mark.parametrize(
    ("items", "marked", "told"),
    [
        ("score(x) FILTER (WHERE y > 1)", "score(x)", "FILTER is not supported with your aggregate score"),
        ("score(DISTINCT x)", "score(DISTINCT x)", "DISTINCT is not supported with your aggregate score"),
        ("score(*)", "score(*)", r"`\*` is not supported with your aggregate score"),
        ("score(x ORDER BY y)", "score(x ORDER BY y)", "ORDER BY is not supported with your aggregate score"),
        (
            "score(x) WITHIN GROUP (ORDER BY y)",
            "score(x)",
            "ORDER BY is not supported with your aggregate score",
        ),
        ("score(x) OVER (PARTITION BY y)", "score(x)", "OVER is not supported with your aggregate score"),
        ("score()", "score()", "A call without arguments is not supported with your aggregate score"),
        ("score(x), 1 + count(*)", "count(*)", "cannot mix your aggregate score"),
        ("max(y), Score(x)", "max(y)", r"cannot mix your aggregate Score\(x\)"),
        ("score(max(x))", "max", "An aggregate cannot contain another aggregate"),
        ("max(score(x))", "score", "An aggregate cannot contain another aggregate"),
        ("score(rank_of(x))", "rank_of", "An aggregate cannot contain another aggregate"),
        ("a + score(x)", "a", "neither grouped nor aggregated"),
    ],
)
def test_what_no_call_of_the_users_may_be(items: str, marked: str, told: str) -> None:
    with pytest.raises(SqlError, match=told) as raised:
        read_timely(items)
    assert raised.value.text[raised.value.start : raised.value.end] == marked


@pytest.mark.parametrize(
    "query",
    [
        f"SELECT score(x) FROM t GROUP BY {_WINDOW}",
        f"SELECT /*+ MAX_ERROR(0.1, 0.1) */ `Score`(x), count(*) FROM t GROUP BY {_WINDOW}",
        "SELECT score(x) AS s FROM t",
        "SELECT a FROM t JOIN u ON t.a = score(u.x)",
        "SELECT a FROM t WHERE score(x) > 1",
        f"SELECT {TIMELY} rank_of(x) AS r FROM t WHERE a + score(x) > 1 GROUP BY {_WINDOW}",
    ],
)
def test_aggregates_of_the_users_are_for_windows_with_a_deadline(query: str) -> None:
    with pytest.raises(
        UnsupportedError, match=r"(Your aggregate|WHERE cannot use an aggregate) .*: SELECT /\*\+ DEADLINE"
    ) as raised:
        refuse(query, USERS)
    assert raised.value.text[raised.value.start : raised.value.end].strip("`").upper() == "SCORE"


@pytest.mark.parametrize(
    "query",
    [
        f"SELECT /*+ LOSS(1, 4) */ score(x) FROM t GROUP BY {_WINDOW}",
        f"SELECT /*+ LOSS(1, 4) */ count(*) FROM t GROUP BY {_WINDOW}",
    ],
)
def test_losses_need_a_deadline(query: str) -> None:
    with pytest.raises(SqlError, match=r"^LOSS limits .* Add DEADLINE"):
        refuse(query, USERS)


@pytest.mark.parametrize(
    "call", ["nosuch(x)", "nosuch(a, x + 1)", "1 + nosuch((x), 2)", "abs(nosuch(abs(1), x))"]
)
def test_a_function_that_is_no_aggregate_is_named_first(call: str) -> None:
    told = r"^nosuch is not an aggregate function, and x is neither .* Of your own, with DEADLINE: .*score; .*--functions\.$"
    with pytest.raises(SqlError) as raised:
        parse_query(f"SELECT {TIMELY} a, {call} FROM t GROUP BY a, {_WINDOW}", USERS)
    assert re.match(told, raised.value.message)
    assert raised.value.text[raised.value.start : raised.value.end] == "nosuch"


SCRIPT = """CREATE TABLE flights USING parquet OPTIONS (path 'x');
CREATE VIEW late AS SELECT dep + INTERVAL 1 HOUR AS arrival, delay * 60 AS seconds, origin FROM flights WHERE delay > 5;
CREATE VIEW by_origin AS SELECT origin, avg(seconds + 1) AS s, count(*) FILTER (WHERE seconds > 9) AS n, seconds % 2 AS odd
  FROM late WHERE seconds < 99 GROUP BY origin, window(late.arrival, '1 hour'), odd;
CREATE VIEW wrong AS SELECT max(delay) FROM late GROUP BY window(arrival, '1 hour')"""


def test_a_window_view_on_a_selection_is_one_on_the_table() -> None:
    views: dict[str, SelectQuery | WindowQuery] = {
        view.name.upper(): view.query for view in parse_script(SCRIPT).views
    }
    query = views["BY_ORIGIN"]
    assert isinstance(query, WindowQuery)
    flat = flatten(query, views)
    assert flat.source == "flights"
    assert flat.time == "(dep + INTERVAL 1 HOUR)"
    assert [key.expression for key in flat.keys] == ["origin", "(delay * 60) % 2"]
    assert [call.sql for call in flat.aggregates] == [
        "avg((delay * 60) + 1)",
        "count(CASE WHEN (delay * 60) > 9 THEN 1 END)",
    ]
    assert flat.where == "(delay > 5\n) AND ((delay * 60) < 99\n)"
    late = views["LATE"]
    assert isinstance(late, SelectQuery)
    assert flat.below == late.projection
    with pytest.raises(UnknownNameError, match="Existing columns: arrival, seconds, origin") as unknown:
        flatten(views["WRONG"], views)
    assert SCRIPT[unknown.value.start : unknown.value.end] == "delay"


FARES = """CREATE VIEW fares AS SELECT /*+ MAX_ERROR(0.1, 0.2) */ f.origin, window(dep, '1 hour') AS w, count(*) AS n,
  avg(fare) + 1 AS mean, window.start, max(fare) FROM flights f WHERE fare > 0 GROUP BY origin, w HAVING n > 1;
CREATE VIEW "busy" AS SELECT f.origin, n * 2 AS twice, f.w.end, mean FROM fares f WHERE f.n > 3 OR mean > 9;
CREATE VIEW busiest AS SELECT *, `end` AS until, upper(origin) FROM busy WHERE twice > 8 AND start_of(`end`) > mean;
CREATE VIEW every AS SELECT * FROM fares;
CREATE VIEW once AS SELECT origin, count(*) AS n FROM flights GROUP BY origin""".replace('"', "`")


@pytest.mark.parametrize(
    "query",
    [
        "SELECT origin, max(n) FROM fares GROUP BY 1",
        "SELECT count(*) FROM busy",
        "SELECT DISTINCT mean FROM fares",
    ],
)
def test_a_running_view_is_over_a_window_view(query: str) -> None:
    flat = flat_view(f"{FARES}; CREATE VIEW v AS {query}", "V")
    assert isinstance(flat, WindowQuery)
    assert flat.is_running
    assert flat.over == Beneath(Windows(3_600_000_000, 3_600_000_000), "end")


def over(name: str) -> WindowQuery:
    query = flat_view(FARES, name)
    assert isinstance(query, WindowQuery)
    return query


def flat_view(script: str, name: str) -> SelectQuery | WindowQuery:
    views = {
        view.name.upper(): view.query
        for view in parse_script(script, KnownNames({"stream": {"FLIGHTS": "flights"}})).views
    }
    return flatten(views[name], views)


def test_a_selection_on_a_window_view_is_a_window_view() -> None:
    fares, busy, busiest, every = (over(name) for name in ("FARES", "BUSY", "BUSIEST", "EVERY"))
    for view in (busy, busiest, every):
        assert (view.source, view.where, view.windows) == ("flights", "fare > 0", Windows(HOUR, HOUR))
        assert (view.keys, view.aggregates, view.hints) == (fares.keys, fares.aggregates, fares.hints)
    assert [(each.expression, each.name) for each in busy.outputs] == [
        ("_k0", "origin"),
        ("_a0 * 2", "twice"),
        ("_w.end", "end"),
        ("(_a1 + 1)", "mean"),
    ]
    assert [each.expression for each in busy.having] == ["_a0 > 1", "_a0 > 3 OR (_a1 + 1) > 9"]
    assert [(each.expression, each.name) for each in busiest.outputs[4:]] == [
        ("_w.end", "until"),
        ("upper(_k0)", None),
    ]
    assert busiest.outputs[0].expression == "_k0"
    assert [each.expression for each in busiest.having[2:]] == [
        "(_a0 * 2) > 8 AND start_of(_w.end) > ((_a1 + 1))"
    ]
    assert expressions(every) == expressions(fares)
    assert every.having == fares.having


@pytest.mark.parametrize(
    ("time", "moment", "text"),
    [
        ("w", "last", "(w.end - INTERVAL '0 00:00:00.000001' DAY TO SECOND)"),
        ("window_time(fares.w)", "last", "(w.end - INTERVAL '0 00:00:00.000001' DAY TO SECOND)"),
        ("(w.start)", "start", "w.start"),
        ("`start`", "start", "`start`"),
        ("w.end", "end", "w.end"),
    ],
)
def test_a_window_over_the_windows_of_a_view(time: str, moment: str, text: str) -> None:
    query = flat_view(
        f"{FARES}; CREATE VIEW daily AS SELECT window({time}, '1 day') AS d, max(n) AS most FROM fares "
        "WHERE n > 1 GROUP BY d; CREATE VIEW dear AS SELECT d.start AS begun FROM daily WHERE most > 9",
        "DEAR",
    )
    assert isinstance(query, WindowQuery)
    assert query.over == Beneath(Windows(HOUR, HOUR), moment)
    assert (query.source, query.where, query.windows) == ("fares", "n > 1", Windows(24 * HOUR, 24 * HOUR))
    assert query.time.replace("     ", "") == text
    assert [each.expression for each in query.having] == ["_a0 > 9"]


@pytest.mark.parametrize(
    ("time", "is_told"),
    [("w.end", True), ("w", False), ("window_time(w)", False), ("w.start", False), ("`end`", True)],
)
def test_windows_over_the_end_of_windows_are_told_of(time: str, is_told: bool) -> None:
    script = FARES.replace("window.start,", "window.start, window.end,")
    query = flat_view(
        f"{script}; CREATE VIEW daily AS SELECT window({time}, '1 day') AS d, max(n) AS most FROM fares GROUP BY d",
        "DAILY",
    )
    note = window_note(query)
    assert (note is not None) == is_told
    assert note is None or note.startswith(
        f"{time} is the first moment behind a window of fares, so that a row may"
    )
    running = flat_view(
        f"{script}; CREATE VIEW r AS SELECT origin, max(n) AS most FROM fares GROUP BY origin", "R"
    )
    assert window_note(running) is None


def test_a_window_over_a_window_over_a_window_is_refused() -> None:
    script = (
        f"{FARES}; CREATE VIEW daily AS SELECT window(w, '1 day') AS d, max(n) AS most FROM fares GROUP BY d; "
        "CREATE VIEW weekly AS SELECT window(d, '7 days') AS k, max(most) FROM daily GROUP BY k"
    )
    with pytest.raises(
        UnsupportedError, match="daily aggregates a window view; an aggregation over it"
    ) as raised:
        flat_view(script, "WEEKLY")
    assert script[raised.value.start : raised.value.end] == "daily"


@pytest.mark.parametrize(
    ("query", "marked", "told"),
    [
        (
            "SELECT n, price FROM fares",
            "price",
            "Existing columns: origin, w, n, mean, start. max(fare) has no name",
        ),
        ("SELECT n FROM fares WHERE fares.fare > 3", "fare", "Column fare does not exist"),
        ("SELECT twice FROM busy WHERE n > 3", "n", "Existing columns: origin, twice, end, mean"),
        ("SELECT n FROM fares WHERE max(n) > 3", "max", "WHERE cannot use an aggregate such as max"),
        (
            "SELECT n FROM fares WHERE window(start, '1 hour').start > dep",
            "window",
            "Allowed over a window view",
        ),
        ("SELECT struct(n) AS s FROM fares", "struct", "named_struct().* Allowed over a window view"),
        ("SELECT coalesce(*) AS s FROM fares", "*", "Allowed over a window view"),
        ("SELECT n FROM fares WHERE explode(n) > 3", "explode", "Allowed over a window view"),
        ("SELECT count(*) FROM fares GROUP BY window(n, '1 day')", "n", "not the window of fares"),
        (
            "SELECT count(*) FROM fares GROUP BY window(w.start + INTERVAL 1 HOUR, '1 day')",
            "w.start + INTERVAL 1 HOUR",
            "w",
        ),
        (
            "SELECT count(*) FROM fares GROUP BY window(window_time(start), '1 day')",
            "window_time(start)",
            "w.end",
        ),
        ("SELECT count(*) FROM busy GROUP BY window(w, '1 day')", "w", "Column w does not exist"),
        ("SELECT count(*) FROM once GROUP BY window(origin, '1 day')", "once", "rows have no event time"),
        (
            "SELECT /*+ MAX_ERROR(0.1, 0.1) */ count(*) FROM fares GROUP BY window(w, '1 day')",
            "/*+ MAX_ERROR(0.1, 0.1) */",
            "Write the hint in window view fares",
        ),
        (
            "SELECT /*+ STATE_TTL('1 day') */ origin, max(n) FROM fares GROUP BY origin",
            "/*+ STATE_TTL('1 day') */",
            "Write the hint in window view fares",
        ),
        ("SELECT sum(n) OVER () FROM fares", "sum(n) OVER ()", "functions with OVER"),
        ("SELECT n FROM fares WHERE n > (SELECT 3)", "SELECT", "subquery"),
    ],
)
def test_what_is_no_selection_over_a_window_view(query: str, marked: str, told: str) -> None:
    with pytest.raises(SqlError) as raised:
        flat_view(f"{FARES}; CREATE VIEW v AS {query}", "V")
    error = raised.value
    assert re.search(told.replace("(", r"\(").replace(")", r"\)"), error.message), error.message
    assert error.text[error.start : error.end] == marked
    assert error.start > len(FARES)
