"""Views on views: a selection on a selection is one selection on the table beneath."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import sqlglot
from sqlglot import exp
from sqlglot.errors import ParseError

from penstock.errors import SqlError, UnknownNameError, UnsupportedError
from penstock.sql.clauses import Clause
from penstock.sql.query import Output, SelectQuery


def flatten(query: SelectQuery, views: Mapping[str, SelectQuery]) -> SelectQuery:
    """Rewrites a query to one on a table.

    Conditions are conjoined; names of the inner view's outputs are replaced by what they stand for.

    Args:
        query: a selection on a table or on one of `views`.
        views: the views defined before it, by name in upper case.

    Raises:
        UnknownNameError: a name the inner view does not put out.
        UnsupportedError: an expression without a name, on a view that computes columns.
    """
    inner = views.get(query.source.upper())
    if inner is None:
        return query
    below = flatten(inner, views)
    if below.projection is None:
        conditions, projection = query.conditions, query.projection
    else:
        outputs = {output.name.upper(): output for output in below.projection if output.name is not None}
        is_open = any(output.is_star for output in below.projection)
        conditions = tuple(_substituted(clause, outputs, is_open) for clause in query.conditions)
        projection = _projected(query.projection, below.projection, outputs, is_open)
    return replace(
        query,
        source=below.source,
        source_clause=below.source_clause,
        conditions=below.conditions + conditions,
        projection=projection,
    )


def _projected(
    outer: tuple[Output, ...] | None, inner: tuple[Output, ...], outputs: Mapping[str, Output], is_open: bool
) -> tuple[Output, ...]:
    if outer is None:
        return inner
    items: list[Output] = []
    for output in outer:
        if output.is_star:
            items.extend(inner)
            continue
        if output.name is None:
            raise output.clause.error(
                UnsupportedError,
                "On a view that computes columns, an expression needs a name: add AS and one.",
                0,
                len(output.clause.text),
            )
        start = output.clause.text.find(output.expression)
        clause = Clause(output.expression, output.clause.script, output.clause.start + start)
        items.append(Output(_substituted(clause, outputs, is_open).text, output.name, output.clause))
    return tuple(items)


def _substituted(clause: Clause, outputs: Mapping[str, Output], is_open: bool) -> Clause:
    """The clause with names of outputs replaced by their expressions."""
    try:
        tree = sqlglot.parse_one(clause.text, dialect="spark")
    except ParseError:
        raise clause.error(SqlError, "This is no expression.", 0, len(clause.text)) from None
    places: list[tuple[int, int, str]] = []
    for column in tree.find_all(exp.Column):
        name = column.parts[0]
        start, end = name.meta["start"], name.meta["end"] + 1
        output = outputs.get(name.name.upper())
        if output is not None:
            places.append((start, end, output.expression if output.is_name else f"({output.expression})"))
        elif not is_open:
            known = ", ".join(item.name or "" for item in outputs.values())
            raise clause.error(
                UnknownNameError, f"Column {name.name} does not exist. Existing columns: {known}", start, end
            )
    text = clause.text
    for start, end, expression in sorted(places, reverse=True):
        text = text[:start] + expression + text[end:]
    return clause if text == clause.text else Clause.alone(text)
