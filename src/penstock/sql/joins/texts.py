"""A join view's query as text for Spark to analyse."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from penstock.plan.expressions import JoinHost
from penstock.sql.joins.conjuncts import Conjunct
from penstock.sql.joins.inputs import Input
from penstock.sql.joins.query import AS_OF, JoinQuery
from penstock.sql.joins.scope import Column, Expression
from penstock.sql.text.lexing import ended, quote
from penstock.sql.text.placed import PlacedText, PlacedWriter
from penstock.sql.text.query import SelectQuery

#: by the word of a join with the newest row that of one with all rows
_ALL_MATCHES = {newest: word for word, newest in AS_OF.items()}


def written(
    query: JoinQuery,
    inputs: Sequence[Input],
    host: JoinHost,
    compared: Conjunct | None = None,
    tested: Expression | None = None,
) -> PlacedText:
    """The query as it was written, on empty tables; views among its inputs are subqueries, an EXISTS or IN is the join that it is. In
    place of the newest row all rows that match are joined, which have the same names and types.

    Args:
        query: the join.
        inputs: its inputs.
        host: Spark's analysis.
        compared: the comparison of its IN.
        tested: the condition after WHERE of the query of its EXISTS or IN.
    """
    made = PlacedWriter()
    made.add("SELECT ", *(item.clause for item in query.items))
    named = {each.source.alias: each for each in inputs}
    for number, source in enumerate(query.sources):
        made.add(f"\n{_ALL_MATCHES.get(source.word, source.word)} " if number else "\nFROM ")
        made.add(f"{_table(named[source.alias], host)} AS {quote(source.alias)}")
        if source.member is not None and compared is not None:
            made.add("\nON ")
            made.listed([(compared.text(partial(_qualified, inputs)), compared.clause)])
        if source.on is not None:
            made.add("\nON " if source.member is None else "\nAND (")
            own = tested if source.is_tested else None
            text = source.on.text if own is None else own.text(partial(_qualified, inputs))
            made.listed([(text, source.on)])
            made.add("" if source.member is None else "\n)")
        if source.using:
            made.add("\nUSING (", *source.using)
            made.add(")")
    if query.where is not None:
        made.add("\nWHERE ", query.where)
    return made.finished(query.sources[0].clause)


def selected_from(below: PlacedText, selection: SelectQuery) -> PlacedText:
    """A selection over a query."""
    made = PlacedWriter()
    made.add(
        "SELECT " if selection.projection else "SELECT *",
        *(each.clause for each in selection.projection or ()),
    )
    made.add("\nFROM (\n")
    made.placed(below)
    made.add("\n)")
    for condition in selection.conditions:
        made.add("\nWHERE ", condition)
    return made.finished(selection.source_clause)


def _table(each: Input, host: JoinHost) -> str:
    name = host.name_of(each.relation.name)
    if each.source.below is None:
        return name
    columns = ", ".join(f"{ended(column.text)} AS {quote(column.name)}" for column in each.columns)
    return f"(SELECT {columns} FROM {name})"


def _qualified(inputs: Sequence[Input], column: Column) -> str:
    """A column with the name of its input."""
    return f"{quote(inputs[column.input].source.alias)}.{quote(column.name)}"
