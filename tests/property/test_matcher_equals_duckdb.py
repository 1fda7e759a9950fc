"""A second oracle: conditions of which Spark and DuckDB make the same selection the same rows.

Left out is what the two define differently: literals of mixed types, doubled operators and escapes
of Spark's own, and floating-point columns, whose literals DuckDB takes for decimals.
"""

from __future__ import annotations

from random import Random

import duckdb
import pyarrow as pa
import pytest

from penstock import Matcher
from penstock_lab.generators.queries import QueryGenerator

SCHEMA = pa.schema(
    {
        "tiny": pa.int8(),
        "whole": pa.int64(),
        "price": pa.decimal128(9, 2),
        "name": pa.string(),
        "flag": pa.bool_(),
        "day": pa.date32(),
        "moment": pa.timestamp("us"),
    }
)
ROWS = 150


class _CommonDialect:
    """Random conditions that mean the same in both."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.values = QueryGenerator(seed)

    def condition(self, depth: int) -> str:
        if depth == 0:
            return self.predicate()
        parts = [f"({self.condition(depth - 1)})" for _ in range(self.random.randint(1, 3))]
        joined = self.random.choice([" AND ", " OR "]).join(parts)
        return f"NOT ({joined})" if self.random.random() < 0.3 else joined

    def predicate(self) -> str:
        field = self.random.choice(list(SCHEMA))
        negated = "NOT " if self.random.random() < 0.3 else ""
        literals = [self.literal(field.type) for _ in range(3)]
        forms = [
            f"{field.name} {self.random.choice(['=', '<>', '<', '<=', '>', '>='])} {literals[0]}",
            f"{literals[0]} {self.random.choice(['=', '<', '>='])} {field.name}",
            f"{field.name} {negated}BETWEEN {literals[0]} AND {literals[1]}",
            f"{field.name} {negated}IN ({', '.join(literals)})",
            f"{field.name} IS {negated}NULL",
            f"{field.name} IS {negated}DISTINCT FROM {literals[0]}",
        ]
        if field.name == "flag":
            forms += [f"{negated}flag", f"flag IS {negated}TRUE", f"flag IS {negated}FALSE"]
        if field.name == "name":
            forms += [f"name {negated}LIKE '{prefix}%'" for prefix in ("a", "ab", "é", "")]
        return self.random.choice(forms)

    def literal(self, kind: pa.DataType) -> str:
        if self.random.random() < 0.1:
            return "NULL"
        value = self.values.value(kind)
        if pa.types.is_boolean(kind):
            return str(value).upper()
        if pa.types.is_string(kind):
            return "'" + str(value).replace("\\", "").replace("\n", "").replace("'", "") + "'"
        if pa.types.is_date(kind):
            return f"DATE '{value.isoformat()}'"
        if pa.types.is_timestamp(kind):
            return f"'{value.isoformat(' ')}'"
        return str(value)


@pytest.mark.parametrize("seed", range(20))
def test_matcher_selects_what_duckdb_selects(seed: int) -> None:
    dialect = _CommonDialect(seed)
    table = dialect.values.table(SCHEMA, ROWS)
    conditions = {f"q{number}": dialect.condition(number % 4) for number in range(40)}
    matches = Matcher(conditions, SCHEMA).match(table)
    columns = ", ".join(f"({text}) AS {name}" for name, text in conditions.items())
    with duckdb.connect() as connection:
        connection.register("t", table)
        expected = connection.sql(f"SELECT {columns} FROM t").fetchall()
    for row, answers in enumerate(expected):
        found = {
            matches.names[query] for query in matches.queries[matches.offsets[row] : matches.offsets[row + 1]]
        }
        wanted = {name for name, answer in zip(conditions, answers, strict=True) if answer}
        assert {name: conditions[name] for name in found ^ wanted} == {}, table.slice(row, 1).to_pylist()
