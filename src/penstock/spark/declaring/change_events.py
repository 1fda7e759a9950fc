"""Aggregations over tables of change events, which are tuples of their own: an update adds to a sum what the row is now once more."""

from __future__ import annotations

from penstock.spark.sources.reader_options import plain_option
from penstock.spark.sources.stored_fields import DEBEZIUM
from penstock.sql.script.statements import CreateTable, Query
from penstock.sql.text.lexing import name_of, tokenize
from penstock.sql.windows.query import WindowQuery

#: where an event says what has happened
_OPERATION = ("op",)
_WAY = 'Take the newest change of each key first: docs/reference/tables.md, "Change events of Debezium", shows how.'


def change_note(table: CreateTable | None, query: Query) -> str | None:
    """That an aggregation counts changes; None where it is over rows, or looks at what each change is.

    Args:
        table: what the query reads; None: no table that a script declares.
        query: the view's query, flattened.
    """
    if table is None or not isinstance(query, WindowQuery) or query.ranking is not None:
        return None
    options = {plain_option(name): value for name, value in table.options.items()}
    if query.over is not None or options.get("format") != DEBEZIUM:
        return None
    texts = [each.text for each in query.conditions]
    texts += [each.expression for each in query.keys]
    texts += [argument for each in query.aggregates for argument in each.arguments]
    named = {
        name.upper() for text in texts for token in tokenize(text) if (name := name_of(token)) is not None
    }
    if any(column.path == _OPERATION and column.name.upper() in named for column in table.columns):
        return None
    return f"{table.name} has changes, not rows: an update adds to this aggregation once more, and a delete too. {_WAY}"
