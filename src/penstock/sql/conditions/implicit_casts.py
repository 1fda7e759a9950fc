"""Casts that Spark puts into comparisons by itself: strings become what they are compared with, or raise."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from penstock.errors import SqlError, TypeMismatchError
from penstock.plan.expressions import ExpressionHost, Raised
from penstock.plan.spark_types import spark_name
from penstock.sql.conditions.nodes import Operand
from penstock.sql.conditions.operands import Compared
from penstock.sql.text.clauses import Clause
from penstock.sql.text.literals import Kind, Literal

_TARGETS = {
    Kind.INTEGER: "BIGINT",
    Kind.DECIMAL: "DOUBLE",
    Kind.FLOAT: "DOUBLE",
    Kind.DOUBLE: "DOUBLE",
    Kind.BOOLEAN: "BOOLEAN",
    Kind.DATE: "DATE",
    Kind.TIMESTAMP: "TIMESTAMP",
    Kind.TIMESTAMP_NTZ: "TIMESTAMP_NTZ",
}


def refuse_raising(
    host: ExpressionHost, clause: Clause, column: Compared, compared: Sequence[tuple[Operand, Literal]]
) -> None:
    """Makes sure that strings can be cast to the type of the column they are compared with; asks Spark once.

    Raises:
        TypeMismatchError: one cannot, so the comparison raises whatever the row.
    """
    target = _target_of_column(column.type)
    strings = [operand for operand, literal in compared if literal.kind is Kind.STRING]
    if not strings or target is None:
        return
    values = host.constants([f"CAST({operand.text} AS {target})" for operand in strings])
    for operand in (each for each, value in zip(strings, values, strict=True) if isinstance(value, Raised)):
        raise clause.error(
            TypeMismatchError,
            f"{column.expression} is of type {spark_name(column.type)}; {operand.text} cannot be cast to {target}, "
            "so this comparison fails for every row.",
            operand.start,
            operand.end,
        )


def warning_of_cast(clause: Clause, column: Compared, operand: Operand, literal: Literal) -> str | None:
    """What to say of a string column that is cast for every row, and raises where it spells no such value."""
    target = _TARGETS.get(literal.kind)
    if target is None or not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)):
        return None
    text = column.expression
    return clause.error(
        SqlError,
        f"{text} is STRING, {operand.text} is not: Spark casts {text} to {target}, which fails for a row whose text is "
        f"not a {target}. Penstock counts such a row as an error, not as a match. Compare with a string, or use "
        f"try_cast({text} AS {target}).",
        operand.start,
        operand.end,
    ).render()


def _target_of_column(kind: pa.DataType) -> str | None:
    if pa.types.is_signed_integer(kind):
        return "BIGINT"
    if pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return "DOUBLE"
    temporal = pa.types.is_boolean(kind) or pa.types.is_date(kind) or pa.types.is_timestamp(kind)
    return spark_name(kind) if temporal else None
