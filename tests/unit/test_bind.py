"""Binding without Spark: which value sets a condition becomes."""

from __future__ import annotations

from datetime import datetime
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from penstock.errors import SqlError, TypeMismatchError, UnknownNameError, UnsupportedError
from penstock.plan.expressions import Derived, Raised
from penstock.plan.selection import Attribute, Query, SelectionSet
from penstock.plan.value_sets import Interval, ValueSet
from penstock.sql.conditions.bind import BoundSelections, bind_selections
from penstock.sql.conditions.dropped_escapes import pattern_warnings
from penstock.sql.conditions.implicit_casts import refuse_raising
from penstock.sql.conditions.parsing import parse_condition
from penstock.sql.conditions.shapes import ConditionParser
from penstock.sql.conditions.verdicts import NEVER, NEVER_NULL, refuse_zero_division
from penstock.sql.text.clauses import Clause
from penstock.sql.text.literals import Kind, Literal, microseconds, time_zone

SCHEMA = pa.schema(
    {
        "i": pa.int32(),
        "L": pa.int64(),
        "t": pa.int8(),
        "f": pa.float32(),
        "d": pa.float64(),
        "m": pa.decimal128(9, 2),
        "s": pa.string(),
        "b": pa.bool_(),
        "day": pa.date32(),
        "ts": pa.timestamp("us", "UTC"),
        "ntz": pa.timestamp("us"),
        "my col": pa.int32(),
    }
)
ALL = Interval(None, None)


def bind(condition: str, timezone: str = "UTC") -> tuple[Query, list[str]]:
    bound = bind_selections({"q": condition}, SCHEMA, None, timezone)
    return bound.selections.queries[0], [attribute.name for attribute in bound.selections.attributes]


def only(condition: str, timezone: str = "UTC") -> ValueSet:
    """The value set of a condition that is one predicate."""
    query, attributes = bind(condition, timezone)
    assert len(query.terms) == len(attributes) == 1
    ((_, values),) = query.terms[0].predicates
    return values


def interval(low: object, high: object, *, low_closed: bool = True, high_closed: bool = True) -> ValueSet:
    return ValueSet((Interval(low, high, low_closed, high_closed),))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("i > 2.5", interval(3, None)),
        ("2.5 > i", interval(None, 2)),
        ("i >= -2.5", interval(-2, None)),
        ("i = 3.0", interval(3, 3)),
        ("i < 5000000000", ValueSet((ALL,))),
        ("t <= 1e2", interval(None, 100)),
        ("l > 9007199254740993D", interval(9007199254740994, None)),
        ("f = 0.1", interval(0.1, 0.1)),
        ("f = 0.1F", interval(0.10000000149011612, 0.10000000149011612)),
        ("d > -0.0D", interval(0.0, None, low_closed=False)),
        ("m < 1.005", interval(None, 100)),
        ("m >= '2.5'", interval(250, None)),
        ("s > 'é'", interval("é".encode(), None, low_closed=False)),
        ("s LIKE 'ab%'", interval(b"ab", b"ac", high_closed=False)),
        (r"s LIKE 'a\\%b'", interval(b"a%b", b"a%b")),
        ("s LIKE 'a/_%' ESCAPE '/'", interval(b"a_", b"a`", high_closed=False)),
        ("s LIKE '%'", ValueSet((ALL,))),
        ("b", interval(1, None)),
        ("b IS NOT TRUE", ValueSet((Interval(None, 1, high_closed=False),), True)),
        ("b IS UNKNOWN", ValueSet((), True)),
        ("day = '1970-01-02'", interval(1, 1)),
        ("day >= DATE '1969-12-31'", interval(-1, None)),
        ("ts < TIMESTAMP '1970-01-01 00:00:01'", interval(None, 1_000_000, high_closed=False)),
        ("ntz = '1970-01-01 00:00:00.000001'", interval(1, 1)),
        ("i IN (3, 1, NULL, 2)", ValueSet((Interval(1, 1), Interval(2, 2), Interval(3, 3)))),
        ("i <=> NULL", ValueSet((), True)),
        ("i IS DISTINCT FROM 1", ValueSet((Interval(None, 1, True, False), Interval(1, None, False)), True)),
        ("NOT i = 1", ValueSet((Interval(None, 1, True, False), Interval(1, None, False)))),
        ("i > 1 AND I < 5", interval(2, 4)),
        ("i BETWEEN 1 AND 5 AND i BETWEEN 4 AND 9", interval(4, 5)),
        ("i = 1 OR i IS NULL OR i = 2", ValueSet((Interval(1, 1), Interval(2, 2)), True)),
        ("`my col` = 7", interval(7, 7)),
    ],
)
def test_value_set_of_a_condition(condition: str, expected: ValueSet) -> None:
    assert only(condition) == expected


@pytest.mark.parametrize(
    "condition", ["i = NULL", "i NOT IN (1, NULL)", "i = 2.5", "t = 300", "i > 1 AND i < 1"]
)
def test_conditions_that_never_hold(condition: str) -> None:
    assert bind(condition)[0].terms == ()


@pytest.mark.parametrize(
    "condition", ["TRUE", "i < 9223372036854775808", "(i > 1) IS UNKNOWN OR i > 1 OR NOT i > 1"]
)
def test_conditions_that_always_hold(condition: str) -> None:
    (term,) = bind(condition)[0].terms
    assert term.predicates == ()


@pytest.mark.parametrize(
    ("condition", "message", "marked"),
    [
        ("i = NULL", NEVER_NULL, "i = NULL"),
        ("NULL <> s", NEVER_NULL, "NULL <> s"),
        ("i > 1 OR s IN (NULL)", NEVER_NULL, "s IN (NULL)"),
        ("NOT (i < NULL)", NEVER_NULL, "i < NULL"),
        ("i > 5 AND i < 3", NEVER, "i > 5 AND i < 3"),
        ("i NOT IN (1, NULL)", NEVER, "i NOT IN (1, NULL)"),
        ("i BETWEEN 1 AND NULL", NEVER, "i BETWEEN 1 AND NULL"),
    ],
)
def test_what_is_never_true_is_warned_of_when_it_is_declared(
    condition: str, message: str, marked: str
) -> None:
    ((name, told),) = bind_selections({"q": condition}, SCHEMA, None, declaring=True).warnings
    assert name == "q"
    head, line, marks = told.splitlines()
    assert head == message
    assert line[marks.index("^") : marks.rindex("^") + 1] == marked
    assert bind_selections({"q": condition}, SCHEMA, None).warnings == (), "what runs already is not"


@pytest.mark.parametrize(
    ("condition", "read", "lost", "kept"),
    [
        (r"s LIKE 'C:\Win%'", "C:Win%", r"\W is W", r"'C:\\\\Win%'"),
        (r"s ILIKE 'C:\Win%'", "C:Win%", r"\W is W", r"'C:\\\\Win%'"),
        (r"i > 1 OR NOT s LIKE ('%\a\b\a%')", "%a<backspace>a%", r"\a is a and \b is a backspace", r"('%\\\\a\\\\b\\\\a%')"),
        (r"s LIKE 'C:\temp\new%'", "C:<tab>emp<line break>ew%", r"\t is a tab and \n is a line break", r"'C:\\\\temp\\\\new%'"),
        (r"s LIKE 'C:\Users\%'", r"C:Users\%", r"\U is U", r"'C:\\\\Users\\\\%'"),
        (r"s LIKE 'C:\\\\Win\x%'", r"C:\\Winx%", r"\x is x", r"'C:\\\\Win\\\\x%'"),
        (r"s LIKE 'C:\Win!%%' ESCAPE '!'", "C:Win!%%", r"\W is W", r"'C:\\Win!%%'"),
        (r"s RLIKE '^\d+\.\t\bx'", "^d+.<tab><backspace>x", r"\d is d and \. is . and \b is a backspace", r"'^\\d+\\.\\t\\bx'"),
    ],
)  # fmt: skip
def test_a_pattern_whose_string_drops_a_backslash_is_warned_of(
    condition: str, read: str, lost: str, kept: str
) -> None:
    ((name, told),) = bind_selections({"q": condition}, SCHEMA, None, declaring=True).warnings
    assert name == "q"
    head, line, marks = told.splitlines()
    written = line[marks.index("^") : marks.rindex("^") + 1]
    assert head == (
        f"Spark reads the pattern {written} as {read}: in a string, {lost}. To keep the backslash, write {kept}."
    )
    right = condition.replace(written, kept)
    assert list(pattern_warnings(Clause.alone(right), parse_condition(right))) == []


@pytest.mark.parametrize(
    "condition",
    [
        r"s LIKE '50\%'",
        r"s ILIKE 'a\_b%'",
        r"s LIKE 'C:\\\\Win%'",
        r"s LIKE r'C:\\Win%'",
        r"s LIKE 'it\'s%'",
        r"s LIKE '%\n%'",
        r"s LIKE '\u0041%'",
        r"s RLIKE '^\\d+\n'",
        r"s RLIKE r'\d'",
        r"s LIKE '50!%' ESCAPE '!'",
    ],
)
def test_backslashes_that_reach_the_pattern_are_not_warned_of(condition: str) -> None:
    assert bind_selections({"q": condition}, SCHEMA, None, declaring=True).warnings == ()


@pytest.mark.parametrize("condition", ["i <=> NULL", "i IS NULL", "i > 1", "i IN (1, NULL)", "i <> 3"])
def test_what_may_be_true_is_not_warned_of(condition: str) -> None:
    assert bind_selections({"q": condition}, SCHEMA, None, declaring=True).warnings == ()


@pytest.mark.parametrize(
    ("condition", "marked"),
    [
        ("i / 0 > 1", "i / 0"),
        ("s = 'x' AND 1 < (i + 1) % (0.0)", "(i + 1) % (0.0)"),
        ("i DIV 0 IN (1, 2)", "i DIV 0"),
        ("i/0e0 IS NULL", "i/0e0"),
    ],
)
def test_a_division_by_zero_is_refused(condition: str, marked: str) -> None:
    with pytest.raises(UnsupportedError, match="This divides by zero and fails for every row") as told:
        refuse_zero_division(Clause.alone(condition), ConditionParser().parse(condition))
    assert condition[told.value.start : told.value.end] == marked


@pytest.mark.parametrize(
    "condition",
    [
        "i / 0.5 > 1",
        "CASE WHEN i > 0 THEN i / 0 END > 1",
        "if(i > 1, i / 0, 1) > 1",
        "s = 'a / 0'",
        "i / 10 > 0",
        "i / (0 + i) > 1",
        "i % ((0) + 7) = 1",
    ],
)
def test_other_divisions_are_left_to_spark(condition: str) -> None:
    refuse_zero_division(Clause.alone(condition), ConditionParser().parse(condition))


def test_time_zone_of_the_session_applies_to_texts_without_one() -> None:
    assert only("ts = '1970-01-01 01:00:00'", "Europe/Berlin") == interval(0, 0)
    assert only("ts = '1970-01-01 01:00:00+01:00'") == interval(0, 0)
    assert only("ntz = '1970-01-01 00:00:00'", "Europe/Berlin") == interval(0, 0)


def test_junctions_become_disjunctions_of_conjunctions() -> None:
    query, attributes = bind("(i = 1 OR s = 'x') AND (b OR d > 1)")
    assert attributes == ["i", "s", "b", "d"]
    assert [tuple(index for index, _ in term.predicates) for term in query.terms] == [
        (0, 2),
        (0, 3),
        (1, 2),
        (1, 3),
    ]


def test_conditions_of_one_shape_differ_in_their_numbers_alone() -> None:
    texts = [
        "i = 5 AND (l > 10 OR NOT m BETWEEN 1.5 AND 20)",
        "i = 12345 AND (l > 1 OR NOT m BETWEEN 3 AND 4.25)",
    ]
    together = bind_selections(dict(enumerate(texts)), SCHEMA, None).selections.queries  # type: ignore[arg-type]
    alone = [bind(text)[0] for text in texts]
    assert [query.terms for query in together] == [query.terms for query in alone]


def test_place_of_a_mistake_in_a_condition_of_a_known_shape() -> None:
    with pytest.raises(TypeMismatchError) as raised:
        bind_selections({"a": "i = 5 AND b", "c": "i = 12345 AND b = 1234"}, SCHEMA, None)
    assert str(raised.value).endswith("line 1: i = 12345 AND b = 1234\n" + " " * 28 + "^^^^")


@pytest.mark.parametrize(
    ("condition", "kind", "marked"),
    [
        ("i = 1 AND nope > 2", UnknownNameError, "nope"),
        ("i = TRUE", TypeMismatchError, "TRUE"),
        ("b > 5", TypeMismatchError, "5"),
        ("day IN (1, 2)", TypeMismatchError, "1"),
        ("i", TypeMismatchError, "i"),
        ("ascii(s) > 5", UnsupportedError, "ascii(s)"),
        ("i < l", UnsupportedError, "i < l"),
        ("s LIKE concat('%', s)", UnsupportedError, "concat('%', s)"),
        ("i = 1 OR s RLIKE s", UnsupportedError, "s RLIKE s"),
        ("i IN (SELECT 1)", UnsupportedError, "SELECT"),
    ],
)
def test_mistakes_are_underlined(condition: str, kind: type[Exception], marked: str) -> None:
    with pytest.raises(kind) as raised:
        bind(condition)
    error = raised.value
    assert condition[error.start : error.end] == marked  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("zone", "seconds"),
    [
        ("+08:00", 1370016000),
        ("GMT+8", 1370016000),
        ("UT+08:00", 1370016000),
        ("+8:5", 1370015700),
        ("-08:30:15", 1370075415),
        ("+080000", 1370016000),
        ("GMT+08:3", 1370015820),
        ("+18:00", 1369980000),
        ("Etc/GMT+8", 1370073600),
        ("CST", 1370062800),
        ("EST", 1370062800),
        ("Europe/Berlin", 1370037600),
        ("Z", 1370044800),
    ],
)
def test_time_zones_are_those_that_spark_knows(zone: str, seconds: int) -> None:
    assert microseconds(datetime(2013, 6, 1), zone) == seconds * 10**6


@pytest.mark.parametrize("zone", ["gmt+8", "+18:01", "GMT+25", "+830", "nowhere", "", "../UTC"])
def test_a_time_zone_that_is_none_is_refused(zone: str) -> None:
    with pytest.raises(ValueError, match="not a time zone"):
        time_zone(zone)


def test_columns_that_differ_in_case_only_are_ambiguous() -> None:
    schema = pa.schema({"a": pa.int32(), "A": pa.int32(), "b": pa.int32()})
    assert bind_selections({"q": "b > 1"}, schema, None).selections.queries
    for text in ("a > 1", "b > 1 AND `A` > 1"):
        with pytest.raises(UnknownNameError, match="ambiguous: it can mean a, A"):
            bind_selections({"q": text}, schema, None)


def test_spark_is_asked_once_of_the_strings_of_a_list() -> None:
    asked: list[list[str]] = []

    def constants(texts: list[str]) -> list[object]:
        asked.append(texts)
        return [Raised("no number") if "'x'" in text else 1 for text in texts]

    host: Any = SimpleNamespace(constants=constants)
    clause: Any = SimpleNamespace(error=lambda kind, message, *place: kind(f"{message} at {place}"))
    column: Any = SimpleNamespace(type=pa.float64(), expression="a")
    items: list[Any] = [
        (SimpleNamespace(text=f"'{value}'", start=place, end=place + 1), Literal(Kind.STRING, value))
        for place, value in enumerate(["1", "2", "3"])
    ]
    refuse_raising(host, clause, column, [*items, (items[0][0], Literal(Kind.INTEGER, 1))])
    assert asked == [[f"CAST('{value}' AS DOUBLE)" for value in (1, 2, 3)]]
    wrong: Any = SimpleNamespace(text="'x'", start=9, end=10)
    with pytest.raises(TypeMismatchError, match=r"'x' cannot be cast to DOUBLE.* at \(9, 10\)"):
        refuse_raising(host, clause, column, [*items, (wrong, Literal(Kind.STRING, "x"))])


@pytest.mark.parametrize(
    ("condition", "underlined", "message"),
    [
        ("s RLIKE ANY ('x', 'y')", "ANY", "ANY with a list of patterns is allowed after LIKE and ILIKE only"),
        ("s NOT RLIKE ALL ('x')", "ALL", "ALL with a list of patterns is allowed after LIKE and ILIKE only"),
        ("s RLIKE 'x' ESCAPE '!'", "ESCAPE", "ESCAPE is allowed after LIKE and ILIKE only"),
    ],
)
def test_rlike_takes_one_pattern_and_no_escape(condition: str, underlined: str, message: str) -> None:
    with pytest.raises(SqlError, match=message) as refused:
        bind(condition)
    assert condition[refused.value.start : refused.value.end] == underlined


@pytest.mark.parametrize("escape", ["'\N{GRINNING FACE}'", "('/')", "'ab'"])
def test_an_escape_that_spark_refuses_is_left_to_spark(escape: str) -> None:
    with pytest.raises(UnsupportedError):
        bind(f"s LIKE 'x' ESCAPE {escape}")


def test_a_reader_sees_texts_for_columns_that_penstock_added() -> None:
    attributes = [
        Attribute("weight", pa.int64(), "`weight`"),
        Attribute("__d0", pa.float64(), "a / b"),
        Attribute("__d0_error", pa.bool_(), "`__d0_error`"),
    ]
    bound = BoundSelections(
        SelectionSet(tuple(attributes), ()), (Derived("__d0", "a / b", pa.float64(), "__d0_error"),), ()
    )
    assert bound.shown == ("weight", "a / b", "error in a / b")
