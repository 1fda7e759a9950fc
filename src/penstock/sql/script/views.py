"""Views on views: a view on selections is one on the table beneath, a selection on a window view a window view, one on a
join view a join view, one on a UNION ALL a UNION ALL.

The rows of a window view, of a join view and of a UNION ALL are a stream of their own: an aggregation over one stays that.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import overload

from sqlglot import exp
from sqlglot.errors import ParseError

from penstock.errors import SqlError, UnknownNameError, UnsupportedError
from penstock.sql.joins.parsing import ALLOWED_JOIN
from penstock.sql.joins.query import JoinQuery, JoinSource
from penstock.sql.refreshed.query import RefreshedQuery
from penstock.sql.script.statements import Query
from penstock.sql.text.clauses import Clause
from penstock.sql.text.lexing import parse_expression
from penstock.sql.text.query import Output, SelectQuery
from penstock.sql.unions.parsing import ALLOWED_UNION
from penstock.sql.unions.query import UnionQuery
from penstock.sql.windows.derived import aggregated_over, aggregated_over_rows
from penstock.sql.windows.query import WindowQuery
from penstock.sql.windows.selections import selected_from

#: what lanes answer by themselves
FlatQuery = SelectQuery | WindowQuery | JoinQuery | UnionQuery


@overload
def flatten(query: JoinQuery, views: Mapping[str, Query]) -> JoinQuery: ...


@overload
def flatten(query: UnionQuery, views: Mapping[str, Query]) -> UnionQuery: ...


@overload
def flatten(query: Query, views: Mapping[str, Query]) -> FlatQuery: ...


def flatten(query: Query, views: Mapping[str, Query]) -> FlatQuery:
    """Rewrites a query to one on tables and join views.

    Conditions are conjoined; names of the inner view's outputs are replaced by what they stand for. A selection on a
    window view becomes a window view, one on a join view a join view, one on a UNION ALL a UNION ALL; an aggregation over one of these
    stays that, its source is the view. The inputs of a join that are selections are marked with what they stand for. Selections on a
    UNION ALL are kept as written: what its columns are called is known once its branches are bound.

    Args:
        query: a view on tables or on some of `views`.
        views: the views defined before it, by name in upper case.

    Raises:
        UnknownNameError: a name the inner view does not put out.
        UnsupportedError: it is a refreshed view, or reads one; a selection of an expression without a name, on a view that computes
            columns; an aggregation over a window view that is none over its windows, one over a join view that is none over a
            column, one over such an aggregation; or a join or UNION ALL that reads a window view or join view.
    """
    if isinstance(query, RefreshedQuery):
        message = "Spark answers a refreshed view as a whole: only other views have this."
        raise query.clause.error(UnsupportedError, message)
    if isinstance(query, JoinQuery):
        return replace(query, sources=tuple(_flat_source(source, views) for source in query.sources))
    if isinstance(query, UnionQuery):
        return replace(query, branches=tuple(_flat_branch(branch, views) for branch in query.branches))
    inner: Query | None = query.inner or views.get(query.source.upper())
    if inner is None:
        return query
    below = flatten(_not_refreshed(inner, query.source, query.source_clause), views)
    if (
        isinstance(query, WindowQuery)
        and isinstance(query.inner, SelectQuery)
        and not isinstance(below, SelectQuery)
    ):
        read = query.inner.source
        message = (
            f"An aggregation or ranking over a query in FROM that reads {read}, whose rows are a stream of their own, is not "
            "supported yet. Make that query a view."
        )
        raise query.source_clause.error(UnsupportedError, message)
    query = replace(query, inner=None)
    if isinstance(below, JoinQuery):
        if isinstance(query, SelectQuery):
            return replace(below, selected=(*below.selected, query))
        return aggregated_over_rows(query, "join view")
    if isinstance(below, UnionQuery):
        if isinstance(query, SelectQuery):
            return replace(below, selected=(*below.selected, query))
        return aggregated_over_rows(query, "UNION ALL")
    if isinstance(below, WindowQuery):
        if isinstance(query, SelectQuery):
            return selected_from(below, query)
        return aggregated_over(below, query)
    names = _Names(below.projection)
    rewritten = replace(
        query,
        source=below.source,
        source_clause=below.source_clause,
        conditions=below.conditions + tuple(map(names.in_clause, query.conditions)),
    )
    if isinstance(rewritten, SelectQuery):
        if below.projection is None:
            return rewritten
        return replace(rewritten, projection=names.projected(rewritten.projection, below.projection))
    return replace(
        rewritten,
        time=rewritten.time and names.in_text(rewritten.time, rewritten.time_clause),
        keys=tuple(
            replace(key, expression=names.in_text(key.expression, key.clause)) for key in rewritten.keys
        ),
        aggregates=tuple(
            replace(call, arguments=tuple(names.in_text(each, call.clause) for each in call.arguments))
            for call in rewritten.aggregates
        ),
        below=below.projection,
        ranking=rewritten.ranking
        and replace(
            rewritten.ranking,
            order=tuple(
                replace(each, expression=names.in_text(each.expression, each.clause))
                for each in rewritten.ranking.order
            ),
        ),
    )


def _flat_source(source: JoinSource, views: Mapping[str, Query]) -> JoinSource:
    inner = source.inner or views.get(source.source.upper())
    if inner is None:
        return source
    below = flatten(_not_refreshed(inner, source.source, source.clause), views)
    if isinstance(below, SelectQuery):
        return replace(source, inner=None, below=below)
    kind = {JoinQuery: "join view", UnionQuery: "UNION ALL"}.get(type(below), "window view")
    if isinstance(below, WindowQuery) and below.is_running:
        kind = "running view"
    name = source.source if source.inner is None else source.inner.source
    message = f"{name} is a {kind}; a join view cannot read it yet. {ALLOWED_JOIN}"
    raise source.clause.error(UnsupportedError, message)


def _flat_branch(branch: SelectQuery | UnionQuery, views: Mapping[str, Query]) -> SelectQuery | UnionQuery:
    below = flatten(branch, views)
    if isinstance(below, SelectQuery | UnionQuery):
        return below
    assert isinstance(branch, SelectQuery), "a UNION ALL stays one"
    kind, place = "join" if isinstance(below, JoinQuery) else "window", branch.source_clause
    if isinstance(below, WindowQuery) and below.is_running:
        kind = "running"
    name = branch.source if branch.inner is None else branch.inner.source
    message = f"{name} is a {kind} view; a UNION ALL cannot read it yet. {ALLOWED_UNION}"
    raise place.error(UnsupportedError, message)


def _not_refreshed(inner: Query, name: str, clause: Clause) -> FlatQuery:
    if isinstance(inner, RefreshedQuery):
        message = f"{name} is a view that Spark answers; beside a stream only a refreshed view can read it. Add /*+ REFRESH('1 minute') */ behind SELECT."
        raise clause.error(UnsupportedError, message)
    return inner


class _Names:
    """The names a selection puts out, and the expressions they stand for.

    Args:
        projection: its SELECT list; None for all columns of the table.
    """

    def __init__(self, projection: tuple[Output, ...] | None) -> None:
        self._outputs = {
            output.name.upper(): output for output in projection or () if output.name is not None
        }
        self._is_open = projection is None or any(output.is_star for output in projection)

    def projected(self, outer: tuple[Output, ...] | None, inner: tuple[Output, ...]) -> tuple[Output, ...]:
        """The SELECT list of a selection from the view, over the table's columns."""
        if outer is None:
            return inner
        items: list[Output] = []
        for output in outer:
            if output.is_star:
                items.extend(replace(item, clause=output.clause) for item in inner)
                continue
            if output.name is None:
                raise output.clause.error(
                    UnsupportedError,
                    "Over a view that computes columns, an expression needs a name: add AS name.",
                )
            items.append(Output(self.in_clause(output.written).text, output.name, output.clause))
        return tuple(items)

    def in_text(self, text: str, written: Clause) -> str:
        """A text made from a clause, with names of outputs replaced by their expressions."""
        try:
            return self.in_clause(Clause.alone(text)).text
        except SqlError as error:
            raise written.locating(error, text) from None

    def in_clause(self, clause: Clause) -> Clause:
        """The clause with names of outputs replaced by their expressions."""
        if not self._outputs and self._is_open:
            return clause
        try:
            tree = parse_expression(clause.text)
        except ParseError:
            raise clause.error(SqlError, "This is not an expression.") from None
        places: list[tuple[int, int, str]] = []
        for column in tree.find_all(exp.Column):
            name = column.parts[0]
            start, end = name.meta["start"], name.meta["end"] + 1
            output = self._outputs.get(name.name.upper())
            if output is not None:
                written = output.expression if output.is_name else f"({output.expression})"
                places.append((start, end, written))
            elif not self._is_open:
                known = [item.name or "" for item in self._outputs.values()]
                error = UnknownNameError.among("Column", name.name, known, "Existing columns")
                raise clause.at(error, start, end)
        text = clause.text
        for start, end, expression in sorted(places, reverse=True):
            text = text[:start] + expression + text[end:]
        return clause if text == clause.text else Clause.alone(text)
