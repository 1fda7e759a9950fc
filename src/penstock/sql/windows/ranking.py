"""What a running view that ranks has beside its keys: the order, the bound, and columns of tuples in the place of aggregates."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import pyarrow as pa

from penstock.errors import TypeMismatchError, UnsupportedError
from penstock.plan.rankings import KEPT, PLACE_TYPE, ROW_NUMBER, OrderKey, RankedPlan, Ranking
from penstock.plan.spark_types import spark_name
from penstock.plan.windows import WindowPlan
from penstock.sql.text.clauses import Clause
from penstock.sql.text.lexing import quote, spelled
from penstock.sql.text.query import Output
from penstock.sql.windows.aggregate_calls import AggregateCall
from penstock.sql.windows.query import (
    GroupExpression,
    Key,
    RankingClause,
    WindowQuery,
    aggregate_name,
    key_name,
)

#: of an output: all columns of the source
STAR = "*"


class KeptColumns:
    """The columns of tuples that a ranking keeps: keys of the partition, and others by number.

    Args:
        keys: those of the partition.
        calls: the others so far. All keep their numbers: two that are written alike over a view may be one column over its stream.
    """

    def __init__(self, keys: Sequence[Key], calls: Iterable[AggregateCall] = ()) -> None:
        self._keys = {spelled(key.expression): key.name for key in keys}
        self._calls = list(calls)

    @property
    def calls(self) -> tuple[AggregateCall, ...]:
        """The others; the n-th is `_an`."""
        return tuple(self._calls)

    def name(self, text: str, clause: Clause) -> str:
        """The name of an expression in expressions over kept tuples.

        Args:
            text: Spark SQL over the source's columns.
            clause: where it was written.
        """
        return self._keys.get(spelled(text)) or self._named(AggregateCall(KEPT, (text,), None, None, clause))

    def place(self, function: str, clause: Clause) -> str:
        """The name of the place."""
        return self._named(AggregateCall(function, (), None, None, clause))

    def _named(self, call: AggregateCall) -> str:
        identities = [_identity(each) for each in self._calls]
        if _identity(call) not in identities:
            self._calls.append(call)
            identities.append(_identity(call))
        return aggregate_name(identities.index(_identity(call)))


def expanded(query: WindowQuery, columns: Sequence[str]) -> WindowQuery:
    """A ranking whose SELECT list names every column.

    Args:
        query: the view, flattened.
        columns: those of its source.
    """
    kept, outputs = KeptColumns(query.keys, query.aggregates), list[GroupExpression]()
    below = (Output(STAR, None, query.source_clause),) if query.below is None else query.below
    for output in query.outputs:
        if output.expression != STAR:
            outputs.append(output)
            continue
        for each in below:
            texts = (
                [(quote(name), name) for name in columns] if each.is_star else [(each.expression, each.name)]
            )
            outputs += (
                GroupExpression(kept.name(text, output.clause), name, output.clause) for text, name in texts
            )
    return replace(query, outputs=tuple(outputs), aggregates=kept.calls)


def kept_types(calls: Iterable[tuple[AggregateCall, Sequence[pa.DataType]]]) -> list[pa.DataType]:
    """The types of what a ranking has in the place of aggregates.

    Args:
        calls: each with the types of its arguments: one of a column, none of the place.

    Raises:
        TypeMismatchError: a column is NULL in every tuple.
        UnsupportedError: it is an interval that no file holds.
    """
    found = []
    for call, types in calls:
        kind = types[0] if types else PLACE_TYPE
        place = call.clause
        if pa.types.is_null(kind):
            raise place.error(TypeMismatchError, "This is NULL in every tuple: CAST it to a type.")
        if kind == pa.month_day_nano_interval():
            raise place.error(UnsupportedError, f"A column of type {spark_name(kind)} is not supported here.")
        found.append(kind)
    return found


def ordered_by(query: WindowQuery) -> list[tuple[str, Clause]]:
    """What a ranking orders tuples by, and where that was written."""
    return [] if query.ranking is None else [(each.expression, each.clause) for each in query.ranking.order]


def ranked(plan: WindowPlan, clause: RankingClause, columns: Sequence[str]) -> RankedPlan:
    """The plan of a ranking.

    Args:
        plan: the plan of the running view, its keys those of the partition.
        clause: what makes it a ranking.
        columns: those of the order.
    """
    order = tuple(
        OrderKey(column, entry.is_descending, entry.nulls_first)
        for column, entry in zip(columns, clause.order, strict=True)
    )
    ranking = Ranking(clause.function, order, clause.limit)
    keys = plan.keys if ranking.is_one_row else (*plan.keys, ("", PLACE_TYPE))
    return RankedPlan(plan.name, plan.time, plan.windows, keys, plan.aggregates, plan.bound, ranking=ranking)


def row_number_names(query: WindowQuery) -> list[str]:
    """The name of the row number among the keys; none where one tuple of a partition is kept, or nothing is ranked."""
    ranking = query.ranking
    if ranking is None or (ranking.function == ROW_NUMBER and ranking.limit == 1):
        return []
    return [key_name(len(query.keys))]


def _identity(call: AggregateCall) -> tuple[str, tuple[tuple[str, ...], ...]]:
    return call.function, tuple(spelled(argument) for argument in call.arguments)
