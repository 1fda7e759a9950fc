"""What Flink writes and Spark's grammar has not: the message has what to write instead, at the place of the words."""

from __future__ import annotations

import pytest

from penstock.errors import MistakesError, SqlError
from penstock.sql.script.queries import parse_query
from penstock.sql.script.script import parse_script

TABLE = "CREATE TABLE t USING parquet OPTIONS (path 'x');\n"
OPTIONS = "Hint OPTIONS does not exist. Write options where the table is declared: CREATE TABLE name USING"
STATEMENTS = "Write the INSERT INTO statements one after the other: one run answers the whole script."


@pytest.mark.parametrize(
    ("expression", "place", "instead"),
    [
        ("x SIMILAR TO 'a|b'", "SIMILAR TO", "x RLIKE '^(pattern)$', with .* for % and . for _"),
        ("f(x) NOT SIMILAR TO 'a'", "SIMILAR TO", "x RLIKE '^(pattern)$', with .* for % and . for _"),
        ("payload IS JSON", "IS JSON", "get_json_object(payload, '$') IS NOT NULL"),
        ("payload IS NOT JSON OBJECT", "IS NOT JSON", "get_json_object(payload, '$') IS NULL"),
        ("JSON_OBJECT(KEY 'a' VALUE b)", "JSON_OBJECT", "to_json(named_struct('a', b))"),
        ("json_object('a' VALUE upper(b))", "json_object", "to_json(named_struct('a', b))"),
        (
            "JSON_OBJECTAGG(KEY a VALUE b)",
            "JSON_OBJECTAGG",
            "to_json(map_from_entries(collect_list(struct(a, b)))), with the hint REFRESH('1 minute')",
        ),
        ("ARRAY['a', x]", "ARRAY[", "array('a', x), in parentheses"),
        ("upper(MAP['a', x]['a'])", "MAP[", "map('a', x), in parentheses"),
        ("FLOOR(at TO HOUR)", "FLOOR(at TO HOUR)", "date_trunc('HOUR', at)"),
        (
            "CEIL(CAST(at AS DATE) TO DAY)",
            "CEIL(CAST(at AS DATE) TO DAY)",
            "date_trunc('DAY', t - INTERVAL 1 MICROSECOND) + INTERVAL 1 DAY",
        ),
        ("TRUNCATE(x, 1)", "TRUNCATE", "sign(x) * floor(abs(x), 1), with the number of decimals"),
        ("CAST(at AS TIMESTAMP(3))", "TIMESTAMP(3)", "TIMESTAMP"),
        ("TRY_CAST(CAST(at AS STRING) AS TIMESTAMP_LTZ(3))", "TIMESTAMP_LTZ(3)", "TIMESTAMP_LTZ"),
        ("at::timestamp(0)", "timestamp(0)", "TIMESTAMP"),
        ("CAST(x AS VARCHAR)", "VARCHAR", "STRING"),
        ("CAST(x AS ARRAY<CHAR>)", "CHAR", "STRING"),
        ("CAST(x AS ROW<a INT>)", "ROW", "STRUCT<a: INT>"),
        ("CAST(x AS BYTES)", "BYTES", "BINARY"),
    ],
)
@pytest.mark.parametrize("hint", ["", "/*+ REFRESH('1 minute') */ "])
def test_an_expression_of_flink_is_told_with_what_to_write(
    hint: str, expression: str, place: str, instead: str
) -> None:
    text = f"{TABLE}CREATE VIEW v AS SELECT {hint}{expression} AS q FROM t"
    with pytest.raises(SqlError) as refused:
        parse_script(text)
    assert refused.value.message == f"{place} is not Spark's SQL. Write {instead}."
    assert text[refused.value.start : refused.value.end] == place


@pytest.mark.parametrize(
    "expression",
    [
        *("array[1]", "map['a']", "array('a', x)", "floor(x)", "ceil(x, 1)", "row", "x IS NOT NULL"),
        *("CAST(x AS VARCHAR(3))", "CAST(at AS TIMESTAMP(9))", "at::timestamp", "timestamp(3)", "`TRUNCATE`"),
        *("CAST(x AS STRUCT<bytes: INT, row: INT, char: INT, varchar: STRING>)", "json_object(a, b)"),
        *("x = 'SIMILAR TO'", "json.is", "CAST(CAST(x AS STRING) AS INT)"),
    ],
)
def test_what_spark_reads_is_left_to_it(expression: str) -> None:
    parse_script(f"{TABLE}CREATE VIEW v AS SELECT {expression} AS q FROM t")


@pytest.mark.parametrize(
    ("columns", "place", "told"),
    [
        ("a INT, b ROW<c INT>", "ROW", "ROW is not Spark's SQL. Write STRUCT<a: INT>."),
        ("a ARRAY<ROW(c INT)>", "ROW", "ROW is not Spark's SQL. Write STRUCT<a: INT>."),
        ("a MAP<STRING, BYTES>", "BYTES", "BYTES is not Spark's SQL. Write BINARY."),
        (
            "a TIMESTAMP METADATA FROM 'timestamp'",
            "METADATA FROM 'timestamp'",
            "METADATA is not supported. Leave the column out. A kafka table without declared columns has the columns key, value,",
        ),
        ("a BIGINT METADATA VIRTUAL", "METADATA VIRTUAL", "METADATA is not supported."),
        (
            "a INT, pt AS PROCTIME()",
            "AS",
            "A table has no computed columns. Leave pt out, and write OPTIONS (arrival 'pt') behind the columns: Penstock adds",
        ),
        ("a INT, b AS a + 1", "AS", "A table has no computed columns. Compute b in a view."),
    ],
)
def test_a_column_of_flink_is_told_with_what_to_write(columns: str, place: str, told: str) -> None:
    text = f"CREATE TABLE t ({columns}) USING parquet OPTIONS (path 'x')"
    with pytest.raises(SqlError) as refused:
        parse_script(text)
    assert refused.value.message.startswith(told)
    assert text[refused.value.start : refused.value.end] == place


def test_fields_with_the_names_of_such_types_are_left_alone() -> None:
    parse_script(
        "CREATE TABLE t (metadata STRUCT<row: INT, metadata: INT, bytes INT>) USING parquet OPTIONS (path 'x')"
    )


@pytest.mark.parametrize("statement", ["BEGIN STATEMENT SET;", "EXECUTE STATEMENT SET BEGIN;"])
def test_a_set_of_statements_is_told_as_one_run(statement: str) -> None:
    with pytest.raises(SqlError) as refused:
        parse_script(f"{TABLE}{statement}")
    assert refused.value.message == f"This statement is not supported. {STATEMENTS}"


@pytest.mark.parametrize(
    ("query", "told", "place"),
    [
        ("SELECT a FROM t /*+ OPTIONS('a'='b') */ WHERE a > 3", OPTIONS, "OPTIONS('a'='b')"),
        ("SELECT a FROM t /*+ OPTIONS('a'='b') */;", OPTIONS, "OPTIONS('a'='b')"),
        ("SELECT /*+ OPTIONS('a'='b') */ a FROM t", OPTIONS, "OPTIONS('a'='b')"),
        (
            "SELECT /*+ REFRESH('1 minute') */ a FROM t -- x\n /*+ OPTIONS('a'='b') */",
            OPTIONS,
            "OPTIONS('a'='b')",
        ),
        (
            "SELECT a FROM t /* y */ /*+ BROADCAST(t), DEADLINE('1 second') */ GROUP BY a",
            "Hint DEADLINE is not behind SELECT. Write SELECT /*+ DEADLINE('1 second') */ ...",
            "DEADLINE('1 second')",
        ),
        ("SELECT a FROM t /*+ LOOKPU(t) */", "Hint LOOKPU does not exist. Allowed: MAX_ERROR", "LOOKPU(t)"),
    ],
)
def test_a_hint_that_nothing_reads_is_told(query: str, told: str, place: str) -> None:
    text = f"{TABLE}CREATE VIEW v AS {query}"
    with pytest.raises(SqlError) as refused:
        parse_script(text)
    assert refused.value.message.startswith(told)
    assert text[refused.value.start : refused.value.end] == place
    with pytest.raises(SqlError, match="Hint"):
        parse_query(query)


def test_a_hint_behind_the_name_of_a_sink_is_told_beside_other_mistakes() -> None:
    text = (
        f"{TABLE}CREATE TABLE s USING console;\nINSERT INTO s /*+ OPTIONS('a'='b') */ SELECT a FROM t; BEGIN;"
    )
    with pytest.raises(MistakesError) as refused:
        parse_script(text)
    assert [each.message[:12] for each in refused.value.mistakes if isinstance(each, SqlError)] == [
        "Hint OPTIONS",
        "This stateme",
    ]


@pytest.mark.parametrize(
    "query",
    [
        *("SELECT a FROM t /*+ BROADCAST(t) */ WHERE a > 3", "SELECT a FROM t -- /*+ OPTIONS(x) */"),
        *("SELECT a /* + OPTIONS(x) */ FROM t", "SELECT '/*+ OPTIONS(x) */' AS a FROM t"),
    ],
)
def test_spark_s_hints_and_remarks_are_left_alone(query: str) -> None:
    parse_script(
        f"{TABLE}CREATE VIEW v AS {query}\n;CREATE VIEW w AS SELECT /*+ REFRESH('1 minute') */ a FROM t"
    )
