"""Aggregations over window views, windows over the windows of the view beneath, and over running views, join views and UNION ALL."""

from __future__ import annotations

from dataclasses import replace

from penstock.errors import UnsupportedError
from penstock.sql.text.clauses import Clause
from penstock.sql.text.lexing import in_parentheses, is_call, name_of, tokenize, without_parentheses
from penstock.sql.text.parts import ALLOWED_OVER_A_WINDOW, ALLOWED_SESSION
from penstock.sql.windows.query import WINDOW_NAME, Beneath, BeneathJoin, WindowQuery
from penstock.sql.windows.selections import Over

#: an expression over the groups of the view beneath -> which moment of its window it is
_MOMENTS = {WINDOW_NAME: "last", f"{WINDOW_NAME}.start": "start", f"{WINDOW_NAME}.end": "end"}
_MICROSECOND = "INTERVAL '0 00:00:00.000001' DAY TO SECOND"


def aggregated_over(below: WindowQuery, query: WindowQuery) -> WindowQuery:
    """An aggregation over a window view or running view, its time a text that Spark computes from that view's rows.

    Args:
        below: the view, flattened.
        query: the aggregation as it was written.

    Raises:
        UnknownNameError: a name that the view does not put out.
        UnsupportedError: its windows are not over those of the view, or that is an aggregation over another one.
    """
    if below.is_running:
        return _over_running(below, query)
    _refuse_sessions(query, "window view")
    if below.over is not None:
        place, kind = query.source_clause, "window view"
        if isinstance(below.over, BeneathJoin):
            kind = below.over.kind
        message = (
            f"{query.source} aggregates a {kind}; an aggregation over it is not supported yet. "
            f"Allowed: an aggregation over the {kind} that it reads, a selection over {query.source}."
        )
        raise place.error(UnsupportedError, message)
    if below.windows.is_cumulating:
        message = f"{query.source} has cumulating windows; an aggregation over them is not supported. Allowed: a selection over {query.source}."
        raise query.source_clause.error(UnsupportedError, message)
    if below.hints.deadline_seconds is not None:
        place = query.source_clause
        message = (
            f"View {query.source} has a deadline; an aggregation over it is not supported yet. "
            f"Allowed: a selection over {query.source}."
        )
        raise place.error(UnsupportedError, message)
    if query.hints.cumulate is not None:
        message = "CUMULATE is not supported over a view. Allowed: over a stream or a selection."
        raise UnsupportedError(message, query.source_clause.script, *query.hints.places["CUMULATE"])
    if query.hints.deadline_seconds is not None:
        message = f"DEADLINE is not supported over window view {query.source} yet. Allowed: over a stream or a selection."
        raise UnsupportedError(message, query.source_clause.script, *query.hints.places["DEADLINE"])
    _refuse_hints(
        query,
        f"Write the hint in window view {query.source}; this view is answered when that one is.",
    )
    if query.is_running:
        return replace(query, over=Beneath(below.windows, "end"))
    written, is_last = _without_window_time(query.time_clause)
    moment = _MOMENTS.get(Over(below).rewrite(written))
    if moment is None or (is_last and moment != "last"):
        place = query.time_clause
        message = f"This is not the window of {query.source}, or its start or end. {ALLOWED_OVER_A_WINDOW}"
        raise place.error(UnsupportedError, message)
    text = written.text.strip()
    # what Spark takes for the time of a window, in a form that it knows without the window's mark on the column
    time = f"({text}.end - {_MICROSECOND})" if moment == "last" else text
    return replace(query, time=time, over=Beneath(below.windows, moment))


def _over_running(below: WindowQuery, query: WindowQuery) -> WindowQuery:
    """An aggregation without a window, or a ranking, over a running view; see `aggregated_over`."""
    place = query.source_clause
    if below.over is not None:
        message = (
            f"{query.source} is a running view over another view; a view over it is not supported yet. "
            f"Allowed: a selection over {query.source}, the hint REFRESH('1 minute')."
        )
        raise place.error(UnsupportedError, message)
    if query.sets:
        message = (
            f"GROUPING SETS, ROLLUP and CUBE over running view {query.source} are not supported yet. "
            "Write a view for each grouping set, or add the hint REFRESH('1 minute')."
        )
        raise query.window_clause.error(UnsupportedError, message)
    if not query.is_running or query.gap is not None:
        message = (
            f"{query.source} is a running view, whose rows have no event time: a window over it is not supported. "
            f"Allowed: GROUP BY without a window, a ranking, a selection over {query.source}, the hint REFRESH('1 minute')."
        )
        raise place.error(UnsupportedError, message)
    _refuse_hints(
        query,
        f"Write the hint in running view {query.source}: groups that leave its state leave the one of this view too.",
    )
    return replace(query, over=Beneath(below.windows, "end"))


def aggregated_over_rows(query: WindowQuery, kind: str) -> WindowQuery:
    """An aggregation over a join view or a UNION ALL.

    Args:
        query: the aggregation as it was written.
        kind: what it is over, in words.

    Raises:
        UnsupportedError: its windows are over no column of the view, or are sessions, or it has hints.
    """
    _refuse_sessions(query, kind)
    _refuse_hints(
        query,
        f"Hints are not supported over {kind} {query.source} yet. Remove the hint.",
    )
    if query.is_running:
        return replace(query, over=BeneathJoin("", kind))
    tokens = without_parentheses(
        tokenize(query.time_clause.text, query.time_clause.start, query.time_clause.script)
    )
    name = name_of(tokens[0]) if len(tokens) == 1 else None
    if name is None:
        place = query.time_clause
        message = f"A window over {kind} {query.source} needs a column of it that is the event time of one of its streams."
        raise place.error(UnsupportedError, message)
    return replace(query, over=BeneathJoin(name, kind))


def _refuse_sessions(query: WindowQuery, kind: str) -> None:
    if query.gap is not None:
        place = query.window_clause
        message = f"Sessions over {kind} {query.source} are not supported yet. {ALLOWED_SESSION}"
        raise place.error(UnsupportedError, message)


def _refuse_hints(query: WindowQuery, message: str) -> None:
    if query.hints:
        raise UnsupportedError(message, query.source_clause.script, query.hints.start, query.hints.end)


def _without_window_time(clause: Clause) -> tuple[Clause, bool]:
    """The argument of `window_time`, where that is what a clause calls, and whether it is; else the clause."""
    tokens = without_parentheses(tokenize(clause.text, clause.start, clause.script))
    is_last = is_call(tokens, 0) and tokens[0].text.lower() == "window_time" and in_parentheses(tokens[1:])
    tokens = without_parentheses(tokens[2:-1]) if is_last else tokens
    if not tokens:
        return clause, False
    return clause.part(tokens[0].start, tokens[-1].end + 1), is_last
