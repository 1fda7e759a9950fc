"""A join view's query as text for Spark to analyse."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from penstock.plan.expressions import JoinHost
from penstock.sql.joins.conjuncts import Conjunct
from penstock.sql.joins.inputs import Input
from penstock.sql.joins.query import AS_OF, JoinQuery
from penstock.sql.joins.scope import Column
from penstock.sql.text.clauses import Clause
from penstock.sql.text.lexing import ended, quote
from penstock.sql.text.placed import PlacedText
from penstock.sql.text.query import SelectQuery

#: by the word of a join with the newest row that of one with all rows
_ALL_MATCHES = {newest: word for word, newest in AS_OF.items()}


def written(
    query: JoinQuery, inputs: Sequence[Input], host: JoinHost, compared: Conjunct | None = None
) -> PlacedText:
    """The query as it was written, on empty tables; views among its inputs are subqueries, an IN is the join that it is. In place of
    the newest row all rows that match are joined, which have the same names and types.

    Args:
        query: the join.
        inputs: its inputs.
        host: Spark's analysis.
        compared: the comparison of its IN.
    """
    text = "SELECT "
    pieces: list[tuple[int, int, Clause]] = []

    def add(clause: Clause) -> None:
        nonlocal text
        pieces.append((len(text), len(text) + len(clause.text), clause))
        text += clause.text

    for number, item in enumerate(query.items):
        text += ", " if number else ""
        add(item.clause)
    named = {each.source.alias: each for each in inputs}
    for number, source in enumerate(query.sources):
        text += f"\n{_ALL_MATCHES.get(source.word, source.word)} " if number else "\nFROM "
        text += f"{_table(named[source.alias], host)} AS {quote(source.alias)}"
        if source.member is not None and compared is not None:
            text += "\nON "
            begin = len(text)
            text += compared.text(partial(_qualified, inputs))
            pieces.append((begin, len(text), compared.clause))
        if source.on is not None:
            text += "\nON " if source.member is None else "\nAND ("
            add(source.on)
            text += "" if source.member is None else "\n)"
        for place, name in enumerate(source.using):
            text += ", " if place else "\nUSING ("
            add(name)
        text += ")" if source.using else ""
    if query.where is not None:
        text += "\nWHERE "
        add(query.where)
    return PlacedText(text, tuple(pieces), query.sources[0].clause)


def selected_from(below: PlacedText, selection: SelectQuery) -> PlacedText:
    """A selection over a query."""
    text = "SELECT "
    pieces: list[tuple[int, int, Clause]] = []
    for number, output in enumerate(selection.projection or ()):
        text += ", " if number else ""
        pieces.append((len(text), len(text) + len(output.clause.text), output.clause))
        text += output.clause.text
    text += "\nFROM (\n" if selection.projection else "*\nFROM (\n"
    pieces += ((len(text) + start, len(text) + end, clause) for start, end, clause in below.pieces)
    text += f"{below.text}\n)"
    for condition in selection.conditions:
        text += "\nWHERE "
        pieces.append((len(text), len(text) + len(condition.text), condition))
        text += condition.text
    return PlacedText(text, tuple(pieces), selection.source_clause)


def _table(each: Input, host: JoinHost) -> str:
    name = host.name_of(each.relation.name)
    if each.source.below is None:
        return name
    columns = ", ".join(f"{ended(column.text)} AS {quote(column.name)}" for column in each.columns)
    return f"(SELECT {columns} FROM {name})"


def _qualified(inputs: Sequence[Input], column: Column) -> str:
    """A column with the name of its input."""
    return f"{quote(inputs[column.input].source.alias)}.{quote(column.name)}"
