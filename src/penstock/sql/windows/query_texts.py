"""A window view's query as text for Spark to analyse: as it was written, and over its groups."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.sql.text.clauses import Clause
from penstock.sql.text.lexing import quote
from penstock.sql.text.placed import PlacedText, PlacedWriter
from penstock.sql.text.query import Output
from penstock.sql.windows.query import WHOLE, WINDOW_NAME, RankingClause, WindowQuery, aggregate_name
from penstock.sql.windows.ranking import row_number_names


class QueryTexts:
    """Texts of one window view's query.

    Args:
        query: the view, flattened.
        stream: the name of its stream in the texts.
    """

    def __init__(self, query: WindowQuery, stream: str) -> None:
        self._query = query
        self._stream = stream
        self._writer = PlacedWriter()

    def written(self) -> PlacedText:
        """The query as the user wrote it, but for the condition on tuples, on the stream."""
        self._write(self._query)
        return self._finished()

    def written_alone(self, item: Clause) -> PlacedText:
        """The same with one item of its SELECT list, without its condition on groups."""
        self._write(self._query, [item])
        return self._finished()

    def over_groups(self) -> PlacedText:
        """`_w`, then the outputs, then the conditions on groups, over the columns of the view's groups."""
        query = self._query
        self._writer.add(f"SELECT {WINDOW_NAME}, ")
        self._writer.listed((each.expression, each.clause) for each in (*query.outputs, *query.having))
        windows = query.windows
        window = f"window({query.time}, {windows.size}, {windows.slide}, {windows.start})"
        if query.gap is not None:
            window = f"session_window({query.time}, '{query.gap} microseconds')"
        elif query.is_running:
            window = f"named_struct('{WHOLE}', TRUE)"
        columns = [f"{window} AS {WINDOW_NAME}"]
        columns += [f"({key.expression}) AS {key.name}" for key in query.keys]
        if query.ranking is not None:
            self._writer.add(f"\nFROM (SELECT {', '.join([*columns, *_kept(query)])}\nFROM {self._stream})")
            return self._finished()
        columns += [f"{call.sql} AS {aggregate_name(number)}" for number, call in enumerate(query.aggregates)]
        if query.grouping_id is not None:
            columns.append(f"grouping_id() AS {query.grouping_id}")
        grouped = _grouped(query, window)
        self._writer.add(f"\nFROM (SELECT {', '.join(columns)}\nFROM {self._stream}{grouped})")
        return self._finished()

    def _write(self, query: WindowQuery, alone: Sequence[Clause] | None = None) -> None:
        """Adds a query as it was written, or some items of it without its condition on groups."""
        items = alone or query.items
        self._writer.add("SELECT " if items else "SELECT *", *items)
        if query.selected is None and query.ranking is not None:
            self._ranked(query.ranking)
            if query.ranking.condition is not None and alone is None:
                self._writer.add("\nWHERE ", query.ranking.condition)
            return
        if query.selected is None:
            grouping = "\nGROUP BY " if query.grouped else ""
            self._writer.add(f"\nFROM {self._source()}{grouping}", *query.grouped)
            conditions = [condition.clause for condition in query.having]
            before = "\nHAVING "
        else:
            below, selection = query.selected
            self._writer.add("\nFROM (")
            self._write(below)
            self._writer.add(")")
            conditions = list(selection.conditions)
            before = "\nWHERE "
        if conditions and alone is None:
            self._writer.add(before, *conditions)

    def _ranked(self, ranking: RankingClause) -> None:
        """Adds what a ranking selects from; places are constants there, as they have the same type."""
        if ranking.inner is None:
            self._writer.add(f"\nFROM {self._source()}")
            return
        self._writer.add("\nFROM (SELECT ", *ranking.inner)
        self._writer.add(f"\nFROM {self._source()})")

    def _source(self) -> str:
        below, stream = self._query.below, self._stream
        if self._query.columns:
            stream = f"(SELECT {', '.join(map(quote, self._query.columns))} FROM {stream})"
        return stream if below is None else f"(SELECT {', '.join(map(_item, below))} FROM {stream})"

    def _finished(self) -> PlacedText:
        written = self._writer.finished(self._query.window_clause)
        self._writer = PlacedWriter()
        return written


def _grouped(query: WindowQuery, window: str) -> str:
    """GROUP BY of the window and the keys, in the order in which the grouping ID has them."""
    keys = [f"({key.expression})" for key in query.keys]
    windows = [window] if query.time else []
    groups = [*keys[: query.before_window], *windows, *keys[query.before_window :]]
    if not groups:
        return ""
    sets = [", ".join([*windows, *(keys[number] for number in each.keys)]) for each in query.sets]
    listed = f" GROUPING SETS ({', '.join(f'({each})' for each in sets)})" if sets else ""
    return f"\nGROUP BY {', '.join(groups)}{listed}"


def _kept(query: WindowQuery) -> list[str]:
    """The columns of the kept tuples of a ranking and their places, which are constants here."""
    return [f"1 AS {name}" for name in row_number_names(query)] + [
        f"{f'({call.arguments[0]})' if call.arguments else '1'} AS {aggregate_name(number)}"
        for number, call in enumerate(query.aggregates)
    ]


def _item(output: Output) -> str:
    named = output.name is not None and not output.is_star
    return f"{output.expression} AS {quote(output.name or '')}" if named else output.expression
