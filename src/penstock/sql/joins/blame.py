"""Which piece of a join view Spark refuses, where its message does not say."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from penstock.errors import SqlError
from penstock.plan.expressions import ExpressionHost, JoinHost
from penstock.sql.joins.conjuncts import Conjunct
from penstock.sql.joins.inputs import Input, hosted, row_text
from penstock.sql.joins.outputs import Output
from penstock.sql.joins.scope import Expression


def blamed(
    error: SqlError,
    inputs: tuple[Input, ...],
    conditions: Sequence[Conjunct],
    outputs: Sequence[Output],
    host: JoinHost,
) -> SqlError | None:
    """An error that Spark has of a query as a whole, shown at the first piece that it refuses alone; None where it takes each.

    Args:
        error: Spark's.
        inputs: those of the view.
        conditions: what ON, USING and WHERE say.
        outputs: the SELECT list.
        host: Spark's analysis.
    """
    expressions = [expression for expression, _ in _pieces(conditions, outputs)]
    columns = dict.fromkeys(column for expression in expressions for column in expression.columns)
    rows = hosted(inputs, tuple(columns), host)
    for expression, is_condition in _pieces(conditions, outputs):
        if not _is_fit(expression, is_condition, rows):
            return expression.clause.at(error)
    return None


def _pieces(conditions: Sequence[Conjunct], outputs: Sequence[Output]) -> Iterator[tuple[Expression, bool]]:
    yield from ((output.expression, False) for output in outputs)
    for each in conditions:
        yield from ((operand, each.operator is None) for operand in each.operands)


def _is_fit(expression: Expression, is_condition: bool, rows: ExpressionHost) -> bool:
    try:
        (kind,) = rows.types([expression.text(row_text)])
    except SqlError:
        return False
    return not is_condition or str(kind) in ("bool", "null")
