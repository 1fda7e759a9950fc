"""Join views as they are read: inputs and conditions, and what no join view may have."""

from __future__ import annotations

import pytest

from penstock.errors import SqlError, UnsupportedError
from penstock.sql.joins.parsing import is_join
from penstock.sql.joins.query import JoinQuery, JoinWord
from penstock.sql.script.queries import parse_query
from penstock.sql.script.script import parse_script
from penstock.sql.script.statements import sources_of
from penstock.sql.script.views import flatten
from penstock.sql.text.lexing import tokenize
from refusals import refuse


def joined(text: str) -> JoinQuery:
    query = parse_query(text)
    assert isinstance(query, JoinQuery)
    return query


def test_inputs_and_conditions_keep_their_places() -> None:
    text = (
        "SELECT /*+ BROADCAST(a) */ f.x, left(a.y, 2) AS z FROM flights AS f -- first\n"
        "JOIN weather h ON f.k = h.k AND (f.a OR left(h.b, 1) = 'x')\n"
        "INNER JOIN `air ports` USING (k, `code`) WHERE CASE WHEN h.left THEN f.x END > 3"
    )
    query = joined(text)
    assert [(each.source, each.alias) for each in query.sources] == [
        ("flights", "f"),
        ("weather", "h"),
        ("air ports", "air ports"),
    ]
    on, where = query.sources[1].on, query.where
    assert on is not None
    assert where is not None
    assert on.text == "f.k = h.k AND (f.a OR left(h.b, 1) = 'x')"
    assert text[on.start :].startswith(on.text)
    assert [name.text for name in query.sources[2].using] == ["k", "`code`"]
    assert where.text == "CASE WHEN h.left THEN f.x END > 3"
    assert [(item.clause.text, item.alias) for item in query.items] == [
        ("f.x", None),
        ("left(a.y, 2) AS z", "z"),
    ]


@pytest.mark.parametrize(
    ("words", "word", "numbered"),
    [
        ("INNER JOIN", JoinWord.INNER, "ab"),
        ("LEFT JOIN", JoinWord.LEFT, "ab"),
        ("LEFT OUTER JOIN", JoinWord.LEFT, "ab"),
        ("RIGHT JOIN", JoinWord.RIGHT, "ba"),
        ("right outer join", JoinWord.RIGHT, "ba"),
        ("FULL JOIN", JoinWord.FULL, "ab"),
        ("FULL OUTER JOIN", JoinWord.FULL, "ab"),
        ("SEMI JOIN", JoinWord.SEMI, "ab"),
        ("LEFT SEMI JOIN", JoinWord.SEMI, "ab"),
        ("ANTI JOIN", JoinWord.ANTI, "ab"),
        ("LEFT ANTI JOIN", JoinWord.ANTI, "ab"),
    ],
)
def test_two_inputs_may_be_joined_in_each_way(words: str, word: JoinWord, numbered: str) -> None:
    query = joined(f"SELECT * FROM a {words} b ON a.x = b.x")
    assert [source.word for source in query.sources] == [JoinWord.INNER, word]
    assert "".join(source.alias for source in query.numbered) == numbered


@pytest.mark.parametrize(
    ("text", "word", "alias", "match", "moment"),
    [
        ("ASOF JOIN b MATCH_CONDITION (a.t >= b.t) ON a.x = b.x", JoinWord.AS_OF, "b", "a.t >= b.t", None),
        (
            "inner asof join b r match_condition (abs(1) > (2)) USING (x)",
            JoinWord.AS_OF,
            "r",
            "abs(1) > (2)",
            None,
        ),
        (
            "LEFT ASOF JOIN b AS r MATCH_CONDITION(r.t < a.t) ON a.x = r.x",
            JoinWord.LEFT_AS_OF,
            "r",
            "r.t < a.t",
            None,
        ),
        ("JOIN b FOR SYSTEM_TIME AS OF a.t AS r ON a.x = r.x", JoinWord.AS_OF, "r", None, "a.t"),
        (
            "LEFT OUTER JOIN b FOR SYSTEM_TIME AS OF `a b`.t r ON a.x = r.x",
            JoinWord.LEFT_AS_OF,
            "r",
            None,
            "`a b`.t",
        ),
        ("JOIN b r for system_time as of t USING (x)", JoinWord.AS_OF, "r", None, "t"),
        ("JOIN b FOR SYSTEM_TIME AS OF t ON a.x = b.x", JoinWord.AS_OF, "b", None, "t"),
    ],
)
def test_a_join_with_the_newest_row_says_which_it_is(
    text: str, word: JoinWord, alias: str, match: str | None, moment: str | None
) -> None:
    source = joined(f"SELECT a.x FROM a {text}").sources[1]
    assert (source.source, source.alias, source.word) == ("b", alias, word)
    assert (source.match and source.match.text, source.moment and source.moment.text) == (match, moment)
    assert source.on is not None or source.using


@pytest.mark.parametrize(
    ("text", "place", "message"),
    [
        ("ASOF JOIN b ON a.x = b.x", "ON", "Expected MATCH_CONDITION (a.time >= b.time) here."),
        ("ASOF JOIN b MATCH_CONDITION a.t >= b.t ON a.x = b.x", "a", "Expected MATCH_CONDITION"),
        (
            "ASOF JOIN b AS r MATCH_CONDITION a.t >= r.t ON a.x = r.x",
            "a",
            "Expected a condition in parentheses",
        ),
        ("ASOF JOIN b MATCH_CONDITION () ON a.x = b.x", ")", "Expected a condition"),
        ("ASOF JOIN b MATCH_CONDITION (a.t >= b.t ON a.x = b.x", "(", "This parenthesis is not closed"),
        ("ASOF JOIN b MATCH_CONDITION (a.t >= b.t)", "b", "An ASOF JOIN needs ON with an equality"),
        (
            "RIGHT JOIN b FOR SYSTEM_TIME AS OF a.t ON a.x = b.x",
            "FOR",
            "FOR SYSTEM_TIME AS OF behind a RIGHT JOIN is not supported yet; write JOIN or LEFT JOIN",
        ),
        ("JOIN b FOR VERSION AS OF a.t ON a.x = b.x", "VERSION", "Expected SYSTEM_TIME"),
        ("JOIN b FOR SYSTEM_TIME AS OF 3 ON a.x = b.x", "3", "Expected the event time of an input before"),
        ("ASOF b MATCH_CONDITION (a.t >= b.t) ON a.x = b.x", "b", "Expected JOIN"),
        (
            "ASOF JOIN b MATCH_CONDITION (a.t >= b.t) ON a.x = b.x ANTI JOIN c ON a.x = c.x",
            "ANTI JOIN",
            "A LEFT ANTI JOIN and an ASOF JOIN in one view",
        ),
    ],
)
def test_a_join_with_the_newest_row_that_is_none(text: str, place: str, message: str) -> None:
    whole = f"SELECT a.x FROM a {text}"
    with pytest.raises(SqlError) as caught:
        refuse(whole)
    assert message in str(caught.value)
    assert whole[caught.value.start : caught.value.end] == place


@pytest.mark.parametrize(
    ("where", "word", "on", "left"),
    [
        (
            "EXISTS (SELECT 1 FROM b WHERE b.k = a.k AND b.x > 1)",
            JoinWord.SEMI,
            "b.k = a.k AND b.x > 1",
            "TRUE",
        ),
        (
            "a.x > 1 AND NOT EXISTS (SELECT * FROM b WHERE b.k = a.k) AND a.y < 2",
            JoinWord.ANTI,
            "b.k = a.k",
            "a.x > 1 AND TRUE AND a.y < 2",
        ),
        ("not exists (select b.k from b where (b.k = a.k))", JoinWord.ANTI, "(b.k = a.k)", "TRUE"),
    ],
)
def test_exists_is_a_semi_or_anti_join(where: str, word: JoinWord, on: str, left: str) -> None:
    query = joined(f"SELECT a.k FROM a WHERE {where}")
    assert [(each.alias, each.word) for each in query.sources] == [("a", JoinWord.INNER), ("b", word)]
    condition = query.sources[1].on
    assert condition is not None
    assert condition.text == on
    assert query.where is not None
    assert " ".join(query.where.text.split()) == left


@pytest.mark.parametrize(
    "where",
    ["exists(tags, t -> t > 1)", "a > 1 AND exists(tags, t -> t > 1)", "NOT exists(tags, t -> t = 2)"],
)
def test_the_function_exists_is_no_subquery(where: str) -> None:
    text = f"SELECT a FROM s WHERE {where}"
    assert not is_join(tokenize(text, 0, text))


@pytest.mark.parametrize("more", ["= FALSE", "IS NULL", "IN (FALSE)", "<=> NULL", "|| 'a'", "IS NOT TRUE"])
def test_an_exists_that_is_compared_is_no_condition_of_its_own(more: str) -> None:
    exists = "EXISTS (SELECT 1 FROM b WHERE b.k = a.k)"
    for text in (
        f"SELECT k FROM a WHERE {exists} {more}",
        f"SELECT k FROM a WHERE NOT {exists} {more} AND k > 1",
    ):
        assert not is_join(tokenize(text, 0, text))
        with pytest.raises(UnsupportedError, match="subquery"):
            refuse(text)


@pytest.mark.parametrize(
    ("where", "word", "member", "on", "left"),
    [
        ("a.k IN (SELECT j FROM b)", JoinWord.SEMI, ("a.k", "j"), None, "TRUE"),
        (
            "a.m BETWEEN 1 AND 2 AND NOT lower(a.k) IN (SELECT DISTINCT b.j AS i FROM b WHERE b.m = 1 OR b.n = 2) AND a.n > 1",
            JoinWord.ANTI,
            ("lower(a.k)", "b.j"),
            "b.m = 1 OR b.n = 2",
            "a.m BETWEEN 1 AND 2 AND TRUE AND a.n > 1",
        ),
        ("k not in (select `j j` from b)", JoinWord.ANTI, ("k", "`j j`"), None, "TRUE"),
        ("NOT k NOT IN (SELECT j FROM b)", JoinWord.SEMI, ("k", "j"), None, "TRUE"),
        ("NOT NOT k IN (SELECT j FROM b)", JoinWord.SEMI, ("k", "j"), None, "TRUE"),
        ("NOT NOT k NOT IN (SELECT j FROM b)", JoinWord.ANTI, ("k", "j"), None, "TRUE"),
        (
            "a.between > 1 AND k IN (SELECT j FROM b)",
            JoinWord.SEMI,
            ("k", "j"),
            None,
            "a.between > 1 AND TRUE",
        ),
    ],
)
def test_in_with_a_query_is_a_semi_or_anti_join(
    where: str, word: JoinWord, member: tuple[str, str], on: str | None, left: str
) -> None:
    query = joined(f"SELECT extract(HOUR FROM a.ts) AS h FROM a WHERE {where}")
    assert [(each.alias, each.word) for each in query.sources] == [("a", JoinWord.INNER), ("b", word)]
    source = query.sources[1]
    assert source.member is not None
    assert (source.member.operand.text, source.member.column.text) == member
    assert (source.on and source.on.text) == on
    assert query.where is not None
    assert " ".join(query.where.text.split()) == left


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("SELECT k FROM a WHERE k IN (SELECT j FROM b) OR k > 3", "A subquery is not supported"),
        ("SELECT k FROM a WHERE (k IN (SELECT j FROM b))", "A subquery is not supported"),
        ("SELECT k FROM a WHERE k IN (SELECT j FROM b) IS NULL", "A subquery is not supported"),
        (
            "SELECT k FROM a WHERE k IN (SELECT j FROM b) AND k IN (SELECT j FROM c)",
            "A subquery is not supported",
        ),
        ("SELECT k FROM a WHERE IN (SELECT j FROM b)", "A subquery is not supported"),
        ("SELECT k FROM a WHERE k IN (SELECT j FROM", "This parenthesis is not closed"),
        ("SELECT k FROM a WHERE k IN (SELECT max(j) FROM b)", "An aggregate function in a join view"),
        ("SELECT k FROM a WHERE (k, m) IN (SELECT j, n FROM b)", "The query in IN selects one column"),
        ("SELECT k FROM a WHERE k IN (SELECT * FROM b)", "The query in IN selects one column"),
        (
            "SELECT k FROM a WHERE k IN (SELECT j FROM b GROUP BY j)",
            "The query in IN reads one input and has WHERE",
        ),
        (
            "SELECT k FROM a WHERE k IN (SELECT j FROM b WHERE m > 1 LIMIT 3)",
            "The query in IN reads one input and has WHERE",
        ),
        (
            f"SELECT a.k FROM a {' '.join(f'JOIN t{n} USING (k)' for n in range(5))} WHERE a.k IN (SELECT j FROM b)",
            "more than 6 inputs",
        ),
        ("SELECT k FROM a WHERE k IN (SELECT k FROM a)", "Two inputs have the name a"),
        (
            "SELECT a.k FROM a RIGHT JOIN c USING (k) WHERE a.k IN (SELECT j FROM b)",
            "A LEFT SEMI JOIN and a RIGHT JOIN",
        ),
        (
            "SELECT k, count(*) FROM a WHERE k IN (SELECT j FROM b) GROUP BY k",
            "An aggregation in a join view",
        ),
    ],
)
def test_other_tests_with_in_are_refused(text: str, told: str) -> None:
    with pytest.raises(SqlError) as raised:
        refuse(text)
    assert told in raised.value.message


def test_the_input_that_may_lack_partners_is_the_last_of_the_plan() -> None:
    query = joined("SELECT * FROM a LEFT JOIN b USING (k) JOIN c USING (k)")
    assert "".join(source.alias for source in query.numbered) == "acb"
    query = joined("SELECT * FROM a RIGHT JOIN b USING (k) JOIN c USING (k)")
    assert "".join(source.alias for source in query.numbered) == "bca"


def test_selections_among_the_inputs_are_brought_down_to_tables() -> None:
    views = {
        "LATE": parse_query("SELECT * FROM flights WHERE delay > 60"),
        "LATER": parse_query("SELECT k, delay * 2 AS d FROM late WHERE delay > 90"),
    }
    query = flatten(joined("SELECT * FROM later l JOIN weather w ON l.k = w.k"), views)
    assert [source.relation for source in query.sources] == ["flights", "weather"]
    below = query.sources[0].below
    assert below is not None
    assert [clause.text for clause in below.conditions] == ["delay > 60", "delay > 90"]
    assert query.sources[1].below is None


def test_a_selection_over_a_join_is_the_join_with_one_more_condition() -> None:
    views = {
        "PAIRS": joined("SELECT a.k FROM flights a JOIN weather b ON a.k = b.k"),
        "SEEN": parse_query("SELECT k AS n FROM pairs WHERE k > 3"),
    }
    above = flatten(parse_query("SELECT n + 1 AS m FROM seen s WHERE s.n < 9"), views)
    assert isinstance(above, JoinQuery)
    assert [source.relation for source in above.sources] == ["flights", "weather"]
    assert [each.where for each in above.selected] == ["k > 3", "  n < 9"]
    for name in ("pairs", "seen"):
        with pytest.raises(SqlError, match=f"{name} is a join view; a join view cannot read it yet"):
            flatten(joined(f"SELECT * FROM flights f JOIN {name} p ON p.k = f.k"), views)


def test_scripts_know_the_inputs_of_joins() -> None:
    script = "CREATE TABLE a USING x; CREATE TABLE b USING x;\nCREATE VIEW v AS SELECT * FROM a JOIN b USING (k) JOIN c USING (k)"
    with pytest.raises(SqlError, match="c does not exist") as raised:
        parse_script(script)
    assert script[raised.value.start - 5 : raised.value.end] == "JOIN c"
    view = parse_script(script.replace("JOIN c", "JOIN a AS c")).views[0]
    assert [name for name, _ in sources_of(view.query)] == ["a", "b", "a"]


@pytest.mark.parametrize(
    ("query", "marked", "message"),
    [
        (
            "SELECT * FROM a NATURAL JOIN b",
            "NATURAL",
            "NATURAL JOIN is not supported yet; write JOIN ... USING (columns)",
        ),
        (
            "SELECT * FROM a CROSS JOIN b",
            "CROSS",
            "CROSS JOIN is not supported yet; write JOIN ... ON with a condition on columns of both inputs",
        ),
        ("SELECT * FROM a JOIN b", "b", "No condition joins b"),
        ("SELECT * FROM a, b WHERE a.x = b.x", ",", "write JOIN ... ON"),
        ("SELECT * FROM a JOIN a ON a.x = a.y", "a", "Two inputs have the name a"),
        ("SELECT * FROM a JOIN b x ON a.x = x.y JOIN c X ON 1 = 1", "c", "Two inputs have the name X"),
        (
            "SELECT * FROM a JOIN b USING (k) JOIN c USING (k) JOIN d USING (k) JOIN e USING (k) JOIN f USING (k) "
            "JOIN g USING (k)",
            "g",
            "more than 6 inputs",
        ),
        (
            "SELECT * FROM a LEFT JOIN b USING (k) RIGHT JOIN c USING (k)",
            "RIGHT JOIN",
            "A RIGHT JOIN of more than two inputs is not supported yet",
        ),
        (
            "SELECT * FROM a JOIN b USING (k) FULL OUTER JOIN c ON a.k = c.k",
            "FULL OUTER JOIN",
            "A FULL JOIN of more than two inputs is not supported yet",
        ),
        (
            "SELECT * FROM a JOIN b USING (k) RIGHT JOIN c ON a.k = c.k",
            "RIGHT JOIN",
            "A RIGHT JOIN of more than two inputs is not supported yet",
        ),
        (
            "SELECT * FROM a FULL JOIN b ON a.k = b.k JOIN c ON a.k = c.k",
            "JOIN",
            "A JOIN after a FULL JOIN is not supported yet",
        ),
        (
            "SELECT * FROM a LEFT JOIN c ON a.k = c.k ASOF JOIN b MATCH_CONDITION (a.t >= b.t) ON a.x = b.x SEMI JOIN d ON a.k = d.k",
            "SEMI JOIN",
            "A LEFT SEMI JOIN and an ASOF JOIN in one view is not supported yet",
        ),
        ("SELECT k FROM a WHERE EXISTS (SELECT count(*) FROM b WHERE b.k = a.k)", "(", "write SELECT 1"),
        (
            "SELECT k FROM a WHERE EXISTS (SELECT 1 FROM b WHERE b.k = a.k) AND EXISTS (SELECT 1 FROM c WHERE c.k = a.k)",
            "SELECT",
            "A subquery is not supported yet",
        ),
        ("SELECT * FROM a FULL JOIN b USING (k)", "USING", "write ON, and coalesce(a.column, b.column)"),
        ("SELECT count(*) AS n FROM a JOIN b USING (k)", "count(*) AS n", "a window view over it"),
        ("SELECT k FROM a JOIN b USING (k) GROUP BY k", "GROUP BY", "a window view over it"),
        ("SELECT window(t, '1 hour') FROM a JOIN b USING (k)", "window(t, '1 hour')", "a window view over"),
        ("SELECT k FROM a JOIN b USING (k) ORDER BY k", "ORDER BY", "ORDER BY is not supported yet"),
        ("SELECT k FROM a JOIN b ON a.k = b.k LIMIT 3", "LIMIT", "LIMIT is not supported yet"),
        ("SELECT DISTINCT k FROM a JOIN b USING (k)", "DISTINCT", "DISTINCT is not supported yet"),
        ("SELECT k FROM a JOIN (VALUES (1)) b USING (k)", "(", "A subquery is not supported yet"),
        ("SELECT k FROM a JOIN b ON a.k IN (SELECT 1)", "SELECT", "A subquery is not supported yet"),
        ("SELECT sum(k) OVER () FROM a JOIN b USING (k)", "sum(k) OVER ()", "supported"),
        ("SELECT k FROM a JOIN b ON max(a.k) > b.k", "max(a.k) > b.k", "An aggregate function"),
        (
            "SELECT k FROM a JOIN b USING (k) UNION SELECT 1",
            "UNION",
            "UNION without ALL is not supported yet",
        ),
        ("SELECT k FROM a JOIN LATERAL b", "LATERAL", "LATERAL"),
    ],
)
def test_what_is_not_supported_is_refused(query: str, marked: str, message: str) -> None:
    with pytest.raises(SqlError) as raised:
        refuse(query)
    assert raised.value.text[raised.value.start : raised.value.end] == marked
    assert message in raised.value.message
    assert isinstance(raised.value, UnsupportedError) or "have the name" in message


@pytest.mark.parametrize(
    ("query", "marked", "message"),
    [
        ("SELECT * FROM a JOIN b ON", "ON", "Expected a condition here"),
        ("SELECT * FROM a JOIN b ON WHERE a.x", "WHERE", "Expected a condition here"),
        ("SELECT * FROM a JOIN b USING k", "k", "a list of columns in parentheses"),
        ("SELECT * FROM a JOIN b USING ()", ")", "the name of a column"),
        ("SELECT * FROM a JOIN b USING (k j)", "j", "a comma or a closing parenthesis"),
        ("SELECT * FROM a INNER b", "b", "Expected JOIN here"),
        ("SELECT * FROM a JOIN b ON a.x = b.x WHERE a.y > 1 JOIN c", "JOIN", "the end of the query"),
        (
            "SELECT /*+ MAX_ERROR(0.1, 0.1) */ * FROM a JOIN b USING (k)",
            "MAX_ERROR(0.1, 0.1)",
            "a join view has none",
        ),
        ("SELECT /*+ BACKFILL */ * FROM a JOIN b USING (k)", "BACKFILL", "a join view has none"),
        ("SELECT a.x + FROM a JOIN b USING (k)", "+", "This is not an expression"),
        ("SELECT (a.x + ) AS y FROM a JOIN b USING (k)", ")", "This is not an expression"),
    ],
)
def test_mistakes_are_underlined(query: str, marked: str, message: str) -> None:
    with pytest.raises(SqlError) as raised:
        refuse(query)
    assert raised.value.text[raised.value.start : raised.value.end] == marked
    assert message in raised.value.message
