"""Random schemas, rows and WHERE texts of every predicate class, from a seed.

The conditions never raise in Spark, so that `spark.sql` can answer them: no division, no cast of a
text that is no number.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from random import Random
from typing import Any

import pyarrow as pa

#: column types of random schemas
TYPES: tuple[pa.DataType, ...] = (
    pa.int8(),
    pa.int16(),
    pa.int32(),
    pa.int64(),
    pa.float32(),
    pa.float64(),
    pa.decimal128(9, 2),
    pa.decimal128(30, 5),
    pa.string(),
    pa.bool_(),
    pa.date32(),
    pa.timestamp("us", "UTC"),
    pa.timestamp("us"),
)

_REALS = [0.0, -0.0, 0.1, 1.5, -2.5, 3.0, 16777217.0, 1e10, 1e300, math.inf, -math.inf, math.nan]
_FLOATS = [0.0, -0.0, 0.10000000149011612, 1.5, -2.5, 3.0, 16777216.0, 1e10, math.inf, -math.inf, math.nan]
_TEXTS = [
    "",
    "a",
    "A",
    "ab",
    "abc",
    "abd",
    "b",
    "it's",
    "a%b",
    "a_b",
    "\\",
    "é",
    "日本",
    "\U0001f600",
    " a",
    "\n",
]
_DECIMALS = ["0", "0.01", "-0.01", "2.5", "3", "-3", "9999999.99", "-9999999.99"]
_WIDE_DECIMALS = [
    *_DECIMALS,
    "0.00001",
    "12345678901234567890.12345",
    "9999999999999999999999999.99999",
    "-9999999999999999999999999.99999",
    "1000000000000000.00001",
]
_DATES = [date(1, 1, 1), date(1582, 10, 4), date(1969, 12, 31), date(2013, 1, 1), date(2013, 3, 31)]
_MOMENTS = [
    datetime(1, 1, 1),
    datetime(1969, 12, 31, 23, 59, 59, 999999),
    datetime(2013, 1, 1),
    datetime(2013, 3, 31, 2, 30),
    datetime(2013, 10, 27, 2, 30, 0, 1),
    datetime(9999, 12, 31, 23, 59, 59, 999999),
]
_REGEXES = ["a+b?", "^a", "b$", "[a-c]{2}", "^$", "(a|é)b?"]
_COMPARISONS = ["=", "==", "<>", "!=", "<", "<=", ">", ">=", "<=>"]


@dataclass(frozen=True, slots=True)
class Case:
    """A schema, rows, and named conditions over them."""

    table: pa.Table
    conditions: dict[str, str]


class QueryGenerator:
    """Generates schemas, rows and conditions; the same seed gives the same ones.

    Args:
        seed: of the random numbers.
        needs_spark: whether conditions may hold expressions that only Spark computes.
    """

    def __init__(self, seed: int, *, needs_spark: bool = False) -> None:
        self.random = Random(seed)
        self.needs_spark = needs_spark

    def case(self, rows: int, conditions: int) -> Case:
        """A random schema with rows and conditions over it."""
        schema = self.schema()
        return Case(self.table(schema, rows), self.conditions(schema, conditions))

    def schema(self) -> pa.Schema:
        """Three to nine columns of random types, some with names that need quotes."""
        kinds = self.random.choices(TYPES, k=self.random.randint(3, 9))
        names = [self.random.choice(["c{}", "Col{}", "c {}", "ключ{}", "c`{}"]) for _ in kinds]
        named = [name.format(number) for number, name in enumerate(names)]
        return pa.schema(list(zip(named, kinds, strict=True)))

    def table(self, schema: pa.Schema, rows: int) -> pa.Table:
        """Rows of NULLs, extreme values, values that conditions name, and others."""
        return pa.table(
            [
                pa.array(
                    [None if self.random.random() < 0.15 else self.value(kind) for _ in range(rows)], kind
                )
                for kind in schema.types
            ],
            schema=schema,
        )

    def conditions(self, schema: pa.Schema, count: int) -> dict[str, str]:
        """WHERE texts by name."""
        return {f"q{number}": self.condition(schema, self.random.randint(0, 3)) for number in range(count)}

    def value(self, kind: pa.DataType) -> Any:
        """A value of a type, often one of a few that conditions name as well."""
        choice = self.random.choice
        if pa.types.is_signed_integer(kind):
            high = 2 ** (kind.bit_width - 1)
            pool = [0, 1, -1, 2, 3, 5, 100, high - 1, -high, high - 2]
            return choice(pool) if self.random.random() < 0.8 else self.random.randrange(-high, high)
        if pa.types.is_floating(kind):
            return choice(_FLOATS if kind == pa.float32() else _REALS)
        if pa.types.is_decimal(kind):
            pool = _DECIMALS if kind.precision == 9 else _WIDE_DECIMALS
            return Decimal(choice(pool))
        if pa.types.is_string(kind):
            return choice(_TEXTS)
        if pa.types.is_boolean(kind):
            return choice([True, False])
        if pa.types.is_date(kind):
            return choice(_DATES)
        moment = choice(_MOMENTS)
        return moment.replace(tzinfo=UTC) if kind.tz else moment

    def condition(self, schema: pa.Schema, depth: int) -> str:
        """A condition of nested AND, OR, NOT and IS over predicates."""
        if depth == 0 or self.random.random() < 0.2:
            return self.predicate(schema)
        form = self.random.randrange(6)
        if form == 0:
            return f"NOT ({self.condition(schema, depth - 1)})"
        if form == 1:
            word = self.random.choice(["TRUE", "FALSE", "UNKNOWN", "NULL"])
            return f"({self.condition(schema, depth - 1)}) IS {self._maybe('NOT ')}{word}"
        operator = self.random.choice([" AND ", " OR "])
        parts = [self.condition(schema, depth - 1) for _ in range(self.random.randint(2, 3))]
        if form == 2:
            return operator.join(self._bare(part) for part in parts)
        return operator.join(f"({part})" for part in parts)

    def predicate(self, schema: pa.Schema) -> str:
        """One predicate on a random column."""
        position = self.random.randrange(len(schema))
        kind = schema.types[position]
        column = _quoted(schema.names[position])
        forms: list[Callable[[str, pa.DataType], str]] = [
            self._comparison,
            self._comparison,
            self._comparison,
            self._between,
            self._member,
            self._is_null,
            self._distinct,
        ]
        if pa.types.is_string(kind):
            forms += [self._like, self._like]
        if pa.types.is_boolean(kind):
            forms += [self._truth, self._truth]
        if self.needs_spark and self.random.random() < 0.4:
            return self._computed(schema, column, kind)
        return self.random.choice(forms)(column, kind)

    def literal(self, kind: pa.DataType) -> str:
        """A literal that Spark compares with a column of a type, not always of that type."""
        if self.random.random() < 0.05:
            return "NULL"
        choice = self.random.choice
        if pa.types.is_signed_integer(kind):
            return self._number(self.value(kind), integral=True)
        if pa.types.is_floating(kind):
            value = float(self.value(kind))
            if not math.isfinite(value):
                return choice(["1e300", "-1e300", "0", "3.4028235e38"])
            return self._number(value, integral=False)
        if pa.types.is_decimal(kind):
            value = self.value(kind)
            return choice([str(value), f"{value}BD", f"{float(value)!r}D", str(int(value)), f"'{value}'"])
        if pa.types.is_string(kind):
            return _text(self.value(kind), choice("'\""))
        if pa.types.is_boolean(kind):
            return choice(["TRUE", "false", "'true'", "'no'"])
        if pa.types.is_date(kind):
            return choice(["'{}'", "DATE '{}'", "DATE'{}'"]).format(self.value(kind).isoformat())
        moment = self.value(kind).replace(tzinfo=None)
        spelled = moment.isoformat(" ")
        forms = ["'{}'", "'{}Z'"] if kind.tz else ["'{}'", "TIMESTAMP_NTZ '{}'"]
        if kind.tz:
            forms += [
                "TIMESTAMP '{}'",
                "TIMESTAMP '{}+02:00'" if 1 < moment.year < 9999 else "TIMESTAMP '{}'",
            ]
        if self.random.random() < 0.2:
            return f"DATE '{moment.date().isoformat()}'"
        return choice(forms).format(spelled)

    def _number(self, value: float, *, integral: bool) -> str:
        choice = self.random.choice
        if integral:
            whole = int(value)
            forms = [
                str(whole),
                str(whole),
                f"{whole}L",
                f"{whole}.0",
                f"{whole}.5",
                f"{whole}BD",
                f"{float(whole)!r}D",
                f"{whole}e0",
                f"'{whole}'",
                "99999999999999999999",
                "-99999999999999999999.5",
                "9223372036854775807.5",
                "2.5F",
                ".5",
                "-7.",
            ]
            return choice(forms)
        spelled = repr(value)
        forms = [f"{spelled}D", "5", "-3", "2.5", "16777217", "0.1", "0.1F", "1.5F", f"'{spelled}'", "-2.5BD"]
        if "e" not in spelled and len(spelled) < 30:
            forms += [spelled, spelled]
        return choice(forms)

    def _comparison(self, column: str, kind: pa.DataType) -> str:
        operator, literal = self.random.choice(_COMPARISONS), self.literal(kind)
        return (
            f"{literal} {operator} {column}"
            if self.random.random() < 0.2
            else f"{column} {operator} {literal}"
        )

    def _between(self, column: str, kind: pa.DataType) -> str:
        return f"{column} {self._maybe('NOT ')}BETWEEN {self.literal(kind)} AND {self.literal(kind)}"

    def _member(self, column: str, kind: pa.DataType) -> str:
        family = [self.literal(kind) for _ in range(self.random.choice([1, 2, 4, 12]))]
        if any(item[0] in "'\"" for item in family):
            family = [item for item in family if item[0] in "'\"" or item == "NULL"]
        return f"{column} {self._maybe('NOT ')}IN ({', '.join(family)})"

    def _is_null(self, column: str, kind: pa.DataType) -> str:  # noqa: ARG002 - any type has NULLs
        return f"{column} IS {self._maybe('NOT ')}NULL"

    def _distinct(self, column: str, kind: pa.DataType) -> str:
        return f"{column} IS {self._maybe('NOT ')}DISTINCT FROM {self.literal(kind)}"

    def _like(self, column: str, kind: pa.DataType) -> str:
        choice = self.random.choice
        negated = self._maybe("NOT ")
        if self.random.random() < 0.1:
            return f"{column} {negated}RLIKE {_text(choice(_REGEXES), chr(39))}"
        word = choice(["LIKE", "LIKE", "ILIKE"])
        if self.random.random() < 0.15:
            patterns = ", ".join(
                _text(self._pattern(kind), chr(39)) for _ in range(self.random.randint(1, 3))
            )
            return f"{column} {negated}{word} {choice(['ANY', 'ALL'])} ({patterns})"
        return f"{column} {negated}{word} {_text(self._pattern(kind), chr(39))}"

    def _pattern(self, kind: pa.DataType) -> str:
        value, other = _escaped(self.value(kind)), _escaped(self.value(kind))
        forms = ["{}", "{}%", "{}%%", "%{}", "%{}%", "{}_%", "_{}", "%{}%{}%", "{}%{}"]
        return self.random.choice(forms).format(value, other)

    def _truth(self, column: str, kind: pa.DataType) -> str:  # noqa: ARG002 - boolean columns only
        word = self.random.choice(["TRUE", "FALSE", "UNKNOWN"])
        return self.random.choice(
            [column, f"NOT {column}", f"! {column}", f"{column} IS {self._maybe('NOT ')}{word}"]
        )

    def _computed(self, schema: pa.Schema, column: str, kind: pa.DataType) -> str:
        """A predicate on an expression, or one that compares nothing with a constant."""
        operator = self.random.choice(_COMPARISONS)
        peers = [_quoted(field.name) for field in schema if field.type == kind]
        forms = [
            f"{column} {operator} {self.random.choice(peers)}",
            f"coalesce({column}, {self.random.choice(peers)}) {operator} {self.literal(kind)}",
            f"CASE WHEN {column} IS NULL THEN 1 WHEN {column} = {self.literal(kind)} THEN 2 END {operator} 2",
            f"if({column} <=> {self.literal(kind)}, 'x', NULL) = 'x'",
            f"({column} IS NULL) = ({self._comparison(column, kind)})",
            f"length(CAST({column} AS STRING)) {operator} {self.random.randrange(8)}",
            f"length(CAST({column} AS STRING)) BETWEEN 1 + 1 AND {self.random.randrange(8)}",
        ]
        if pa.types.is_string(kind):
            forms += [
                f"{column} LIKE '%{_escaped(self.value(kind)).replace(chr(39), '')}%'",
                f"{column} LIKE 'a_%'",
                f"{column} RLIKE 'a+b?'",
                f"upper({column}) {operator} 'AB'",
                f"upper({column}) NOT IN ('A', NULL)",
                f"{column} > concat('a', 'b')",
            ]
        if pa.types.is_date(kind):
            forms += [
                f"year({column}) {operator} 2013",
                f"{column} {operator} date_add(DATE '2012-12-31', 1)",
                f"{column} {operator} '2013-1-1'",
                f"{column} {operator} TIMESTAMP '2013-01-01 00:00:00'",
            ]
        if pa.types.is_timestamp(kind):
            forms += [f"year({column}) {operator} 2013", f"{column} {operator} '2013'"]
        if pa.types.is_floating(kind):
            forms += [
                f"{column} {operator} double('NaN')",
                f"{column} IN (double('Infinity'), 1.5, double('NaN'))",
            ]
        return self.random.choice(forms)

    def _bare(self, text: str) -> str:
        """Without parentheses where precedence does not ask for them."""
        return f"({text})" if " OR " in text or " AND " in text or " IS " in text else text

    def _maybe(self, text: str) -> str:
        return text if self.random.random() < 0.35 else ""


def _quoted(name: str) -> str:
    return name if name.isascii() and name.isalnum() else "`" + name.replace("`", "``") + "`"


def _text(value: str, quote: str) -> str:
    escaped = value.replace("\\", "\\\\").replace("\n", "\\n")
    return quote + (escaped.replace("'", "''") if quote == "'" else escaped) + quote


def _escaped(value: str) -> str:
    """A LIKE pattern that means the value itself."""
    return value.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
