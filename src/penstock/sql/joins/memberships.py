"""`x [NOT] IN (SELECT y ...)` as a condition of a LEFT SEMI or LEFT ANTI JOIN, with NULL as Spark reads it."""

from __future__ import annotations

import re
from collections.abc import Sequence

import pyarrow as pa

from penstock.errors import TypeMismatchError, UnsupportedError
from penstock.plan.expressions import ExpressionHost
from penstock.plan.spark_types import spark_name
from penstock.sql.joins.conjuncts import Conjunct, equality
from penstock.sql.joins.inputs import Input, row_text
from penstock.sql.joins.query import JoinQuery
from penstock.sql.joins.scope import Expression, Scope

_IS_NOT_NULL = re.compile(r"\s+IS\s+NOT\s+NULL\s*", re.IGNORECASE)


def comparison(query: JoinQuery, inputs: Sequence[Input]) -> Conjunct | None:
    """Return the comparison of the IN of a join, which is true of the rows that make IN true; None: it has no IN.

    Raises:
        UnknownNameError: a name that no column has, or several columns: of the inputs before on one side, of the input after FROM
            on the other.
    """
    if not any(source.member for source in query.sources):
        return None
    named = {each.source.alias: each.columns for each in inputs}
    before = Scope((), (), ())
    for source in query.sources:
        columns = named[source.alias]
        if source.member is not None:
            own = Scope([source.alias], [columns], columns)
            return equality(
                source.member.clause,
                before.expression(source.member.operand),
                own.expression(source.member.column),
            )
        before = before.joined(source.alias, columns, source.using)
    return None


def tested_condition(query: JoinQuery, inputs: Sequence[Input]) -> Expression | None:
    """Return the condition after WHERE of the query of a join's EXISTS or IN; None: it has none.

    Raises:
        UnknownNameError: a name in it that no column has, or several columns.
    """
    if not any(source.is_tested for source in query.sources):
        return None
    named = {each.source.alias: each.columns for each in inputs}
    scope = Scope((), (), ())
    for source in query.sources:
        scope = scope.joined(source.alias, named[source.alias], source.using)
        if source.is_tested and source.on is not None:
            return scope.within().expression(source.on)
    return None


def refuse_unknown(compared: Conjunct, within: Sequence[Conjunct], around: Sequence[Conjunct]) -> None:
    """Make sure that no NULL makes NOT IN unknown, so that it is true where no row has an equal value.

    Args:
        compared: the comparison of NOT IN.
        within: the conditions of its query.
        around: the conditions beside it.

    Raises:
        UnsupportedError: the conditions on one side do not leave NULL out.
    """
    operand, column = compared.operands
    if _leave_out_null(around, operand) and _leave_out_null(within, column):
        return
    tested, selected = operand.clause.text.strip(), column.clause.text.strip()
    message = (
        "NOT IN is unknown beside a NULL, which a join view does not judge yet. Leave NULL out on both sides: "
        f"{tested} IS NOT NULL AND {tested} NOT IN (SELECT {selected} ... WHERE {selected} IS NOT NULL). NOT EXISTS keeps tuples beside a NULL."
    )
    raise compared.clause.error(UnsupportedError, message)


def refuse_mixed_types(compared: Conjunct, host: ExpressionHost) -> None:
    """Make sure that IN compares two columns of one type: for others its rules differ from those of `=`.

    Raises:
        TypeMismatchError: the types differ, and are not both whole numbers.
    """
    one, other = host.types([each.text(row_text) for each in compared.operands])
    if one.equals(other) or (pa.types.is_integer(one) and pa.types.is_integer(other)):
        return
    clause = compared.clause
    message = f"IN compares {spark_name(one)} with {spark_name(other)}. Write CAST on one side, so that both have the same type."
    raise clause.error(TypeMismatchError, message)


def _leave_out_null(conditions: Sequence[Conjunct], expression: Expression) -> bool:
    """Whether a condition is true of no row of which an expression is NULL: a comparison of it, or IS NOT NULL."""
    text = expression.text(row_text)
    for each in conditions:
        operands = [operand.text(row_text) for operand in each.operands]
        if each.operator is not None and text in operands:
            return True
        if operands[0].startswith(text) and _IS_NOT_NULL.fullmatch(operands[0], len(text)):
            return True
    return False
