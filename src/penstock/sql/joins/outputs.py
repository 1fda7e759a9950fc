"""The SELECT list of a join view."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlglot import exp

from penstock.errors import UnsupportedError
from penstock.sql.joins.conjuncts import Conjunct, conjuncts
from penstock.sql.joins.parsing import ALLOWED_JOIN
from penstock.sql.joins.query import JoinQuery
from penstock.sql.joins.scope import Column, Expression, Reference, Scope
from penstock.sql.text.clauses import Clause
from penstock.sql.text.lexing import quote
from penstock.sql.text.parts import Item
from penstock.sql.text.query import SelectQuery


@dataclass(frozen=True, slots=True)
class Output:
    """A column of the view: what it is, and the item of the SELECT list that says so."""

    expression: Expression
    clause: Clause


def select_list(query: JoinQuery, scope: Scope) -> tuple[Output, ...]:
    """The outputs, stars written out.

    Raises:
        UnknownNameError: a name that no column has, or several columns.
        UnsupportedError: a star of something else than an input.
    """
    found: list[Output] = []
    named: dict[str, Expression] = {}
    for item in query.items:
        star = _star(item, scope)
        if star is not None:
            found += (Output(_whole(column, item.clause), item.clause) for column in star)
            continue
        expression = scope.expression(item.expression, named)
        found.append(Output(expression, item.clause))
        if item.alias is not None:
            named.setdefault(item.alias.upper(), expression)
    return tuple(found)


def selected_outputs(
    selection: SelectQuery, outputs: Sequence[Output], names: Sequence[str]
) -> tuple[tuple[Output, ...], list[Conjunct]]:
    """The outputs of a selection over a join, and what it says of joined rows.

    Args:
        selection: the selection.
        outputs: what the join puts out.
        names: as Spark calls them.

    Raises:
        UnknownNameError: a name that the join does not put out.
        SqlError: no expression.
    """
    scope = Scope.over(
        {
            name: output.expression.column or output.expression
            for name, output in zip(names, outputs, strict=True)
        }
    )
    conditions = [found for clause in selection.conditions for found in conjuncts(clause, scope)]
    if selection.projection is None:
        return tuple(Output(output.expression, selection.source_clause) for output in outputs), conditions
    found: list[Output] = []
    named: dict[str, Expression] = {}
    for item in selection.projection:
        if item.is_star:
            found += (Output(output.expression, item.clause) for output in outputs)
            continue
        expression = scope.expression(item.written, named)
        found.append(Output(expression, item.clause))
        if item.name is not None:
            named.setdefault(item.name.upper(), expression)
    return tuple(found), conditions


def _star(item: Item, scope: Scope) -> list[Column] | None:
    """The columns that a star stands for, None for another item."""
    clause, tree = item.clause, item.tree
    if clause.text.strip() == "*":
        return list(scope.star(clause, None))
    if isinstance(tree, exp.Column) and isinstance(tree.this, exp.Star) and len(tree.parts) == 2:
        if not any(tree.this.args.values()):
            return list(scope.star(clause, tree.parts[0].name))
    elif not isinstance(tree, exp.Star):
        return None
    message = (
        f"`*` is allowed alone or after the name of an input. Otherwise name the columns. {ALLOWED_JOIN}"
    )
    raise clause.error(UnsupportedError, message)


def _whole(column: Column, written: Clause) -> Expression:
    """A column that a star stands for."""
    clause = Clause(quote(column.name), written.script, written.start)
    return Expression(clause, (Reference(0, len(clause.text), column),))
