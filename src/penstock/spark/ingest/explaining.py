"""What a plan does, in lines for people."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from penstock.monitor.figures import counted
from penstock.operators.scalars.columns import ComputedColumns
from penstock.operators.windows.rankings import RankedParts
from penstock.operators.windows.shard import RunningPlan
from penstock.plan.rankings import ROW_NUMBER, OrderKey, RankedPlan, Ranking
from penstock.plan.selection import Attribute
from penstock.plan.windows import Aggregate, WindowPlan
from penstock.spark.ingest.window_views import CompiledWindows
from penstock.sql.conditions.bind import BoundSelections
from penstock.sql.script.statements import Query
from penstock.sql.text.intervals import length_text
from penstock.sql.text.lexing import quote
from penstock.sql.windows.bind import BoundWindow
from penstock.sql.windows.query import WINDOW_NAME, Beneath, WindowQuery, aggregate_name, key_name

#: how a view over another one follows its rows
FROM_ALL_ROWS = "computed again from all rows of that view at each change"
FROM_LIVE_ROWS = "computed from the live rows of that view, which its state keeps"
#: lines of one kind that are shown
_SHOWN = 50
_NOTHING: Mapping[str, Sequence[str]] = {}
#: how columns of groups are called
_NAME = re.compile(r"\b_(w|[ak]\d+)\b")
#: what limits a state that grows with something
_TTL = "If the number of {} grows without end, add the hint STATE_TTL('1 day')."


def computer_of(computed: ComputedColumns | None) -> str:
    """Who computes the derived columns of a plan."""
    return "Spark" if computed is None else "the workers"


def explain_windows(
    windows: CompiledWindows, computer: str, said: Mapping[str, Sequence[str]] = _NOTHING
) -> list[str]:
    """Compiled window views in lines: the operators, what they keep, the columns that are computed for them.

    Args:
        windows: the views.
        computer: who computes columns.
        said: further lines of views, by name.
    """
    expressions = {each.name: each.expression for each in windows.derived}
    plans = windows.panes.operators if windows.panes is not None else ()
    operators = {each.id: each for each in windows.shards.every}
    lines = []
    for plan in plans:
        operator = operators[plan.id]
        keyed = [expressions.get(key.column, key.column) for key in plan.keys]
        keys = f", keys {', '.join(keyed)}" if keyed else ""
        if plan.sets:
            keys += f" in {counted(len(plan.sets), 'grouping set')}"
            keyed.append("grouping_id()")
        if isinstance(operator, RunningPlan):
            kept = "its state grows with its groups"
            if isinstance(operator.parts, RankedParts):
                ties = (
                    "" if operator.parts.ranking.function == ROW_NUMBER else " and with tuples that are equal"
                )
                kept = f"its state grows with its partitions{ties}"
            if operator.ttl is not None:
                kept = (
                    f"a group leaves the state after {length_text(operator.ttl)} of event time without tuples"
                )
            if operator.session is not None:
                kept = f"a session leaves the state {length_text(operator.session.history)} after it is final"
            lines.append(f"  running group {plan.id}{keys}: {kept}")
            lines += _explained_views(windows, operator.views, keyed, said)
            continue
        conditions = len(plan.selections)
        shared = f", each tuple aggregated once for {conditions} conditions" if conditions > 1 else ""
        lines.append(f"  window group {plan.id}: panes of {length_text(plan.pane)}{keys}{shared}")
        lines += _explained_views(windows, operator.views, keyed, said)
    if len(lines) > _SHOWN:
        lines[_SHOWN:] = [f"  ... {len(windows.bound)} window and running views in total"]
    lines += [f"  computed by {computer}: {each.expression}" for each in windows.derived[:_SHOWN]]
    return lines


def _explained_views(
    windows: CompiledWindows,
    views: Iterable[WindowPlan | RankedPlan],
    keys: Sequence[str],
    said: Mapping[str, Sequence[str]],
) -> Iterator[str]:
    """Yield the lines of the views of an operator with some keys."""
    for view in views:
        yield f"    {view.name}: {explain_window(windows.bound[view.name], keys)}"
        yield from (f"      {line}" for line in said.get(view.name, ()))


def said_of(text: str, query: Query) -> list[str]:
    """What is said of a view beside what it computes: its text, on one line, and what bounds its state.

    Args:
        text: the view as written.
        query: its query, flattened.
    """
    words = state_words(query)
    return [" ".join(text.split()), *([] if words is None else [words])]


def state_words(query: Query) -> str | None:
    """What bounds the state of a running view, and what is promised of its groups or sessions; None of one row, and of one without state.

    Args:
        query: the view's query, flattened.
    """
    if isinstance(query, WindowQuery) and query.gap is not None:
        return (
            "the state keeps each session until history_seconds (by default 7 days) after it is final. Tuples of sessions that "
            "have left the state are left out and counted (left_out)."
        )
    if isinstance(query, WindowQuery) and query.is_over_running:
        return (
            f"the state keeps every live row of running view {query.source}; only disk space limits it. With STATE_TTL in {query.source}, "
            "groups that leave its state leave this one too."
        )
    if not isinstance(query, WindowQuery) or not query.is_running or query.over is not None:
        return None
    ttl, ranking = query.hints.state_ttl, query.ranking
    if ranking is not None and ranking.function != ROW_NUMBER:
        partitions = " of every partition" if query.keys else ""
        places = counted(ranking.limit, "place")
        return (
            f"the state keeps all tuples of the first {places}{partitions}, however many are equal; only disk space limits them. "
            "ROW_NUMBER keeps one tuple at each place."
        )
    if not query.keys:
        return None
    if ranking is not None and ttl is None:
        kept = "one row" if ranking.limit == 1 else f"the rows of the first {counted(ranking.limit, 'place')}"
        remedy = f" {_TTL.format('partitions')}" if ranking.limit == 1 else ""
        return f"the state keeps {kept} of every partition; only disk space limits the number of partitions.{remedy}"
    if ttl is None:
        return f"the state keeps every group; only disk space limits it. {_TTL.format('groups')}"
    return (
        f"a group without tuples for {length_text(ttl)} of event time leaves the state, and its row is final. If the group "
        "gets tuples later, it starts from zero, and a new row replaces that one."
    )


def state_note(query: Query) -> str | None:
    """What is worth knowing of the state of a view: that its groups may need the hint STATE_TTL; None: nothing.

    Args:
        query: the view's query, flattened.
    """
    # beneath a view over a running one the groups are limited, and that view has its own note
    if not isinstance(query, WindowQuery) or not query.keys or query.gap is not None or query.is_over_running:
        return None
    ranking, limited = query.ranking, query.hints.state_ttl is not None
    is_one_row = ranking is None or (ranking.function == ROW_NUMBER and ranking.limit == 1)
    return state_words(query) if is_one_row and not limited else None


def window_note(query: Query) -> str | None:
    """What is worth knowing of the windows of a window view; None: nothing.

    Args:
        query: the view's query, flattened.
    """
    if not isinstance(query, WindowQuery):
        return None
    over = query.over
    if isinstance(over, Beneath) and over.moment == "end" and not query.is_running:
        return (
            f"{query.time_clause.text.strip()} is the first moment behind a window of {query.source}, so that a row may count in the "
            f"window behind its own. To group windows by the window that they lie in, write window(window_time(w), ...), where w is the "
            f"window that {query.source} selects."
        )
    if query.hints.cumulate is None:
        return None
    return (
        "CUMULATE widens the windows of the text: each begins at the last multiple of the hint's length. Spark ignores the hint, "
        "so spark.sql of the same text answers the windows as they are written."
    )


def explain_window(view: BoundWindow, keys: Sequence[str] = (), *, how: str | None = None) -> str:
    """A window view in a line.

    Args:
        view: the view.
        keys: what its tuples are grouped by.
        how: of a view over another one, which has no bound of its own: how it follows the rows of that.
    """
    windows, bound = view.plan.windows, view.plan.bound
    every = "" if windows.slide == windows.size else f" every {length_text(windows.slide)}"
    start = "" if not windows.start else f" from {length_text(windows.start)}"
    if windows.is_cumulating:
        every = f" every {length_text(windows.slide)}, each since a multiple of that length"
    expressions = {each.name: each.expression for each in view.derived}

    def call(each: Aggregate) -> str:
        given = [expressions.get(argument, argument) for argument in each.arguments] or ["*"]
        further = [f"{number:g}" for number in (each.parameter, each.accuracy) if number is not None]
        return f"{each.function}({', '.join([*given, *further])})"

    calls = [call(each) for each in view.plan.aggregates]
    aggregates = ", ".join(calls)
    error = f"{bound.epsilon:g}" if bound.absolute else f"{100 * bound.epsilon:g} %"
    names = {WINDOW_NAME: "window"}
    names |= {aggregate_name(number): each for number, each in enumerate(calls)}
    names |= {key_name(number): each for number, each in enumerate(keys)}
    having = (
        ""
        if view.having is None
        else f"; HAVING {_NAME.sub(lambda name: names.get(name[0], name[0]), view.having)}"
    )
    if isinstance(view.plan, RankedPlan):
        again = "" if how is None else f"; {how}"
        return f"ranking: {_ranking(view.plan.ranking, expressions)}{having}{again}"
    if view.plan.is_running:
        again = "" if how is None else f" {how};"
        sessions = "" if view.plan.gap is None else f" by sessions with a gap of {length_text(view.plan.gap)}"
        return f"running results{sessions};{again} {aggregates or 'no aggregate'}{having}"
    told = f"windows of {length_text(windows.size)}{every}{start}; {aggregates or 'no aggregate'}{having}"
    if how is not None:
        return told
    most = f"at most {100 * bound.delta:g} % of early answers are off by {error} or more"
    chosen = view.plan.slack_policy
    promise = most if chosen.policy == "required" else f"no promise of an error ({most})"
    return f"{told}; slack policy {chosen}: {promise}"


def _ranking(ranking: Ranking, expressions: Mapping[str, str]) -> str:
    """Which tuples a ranking keeps, in words."""

    def by(key: OrderKey) -> str:
        nulls = (
            ""
            if key.nulls_first is not key.is_descending
            else f" NULLS {'FIRST' if key.nulls_first else 'LAST'}"
        )
        return f"{expressions.get(key.argument, key.argument)}{' DESC' if key.is_descending else ''}{nulls}"

    order = ", ".join(map(by, ranking.order))
    return f"{ranking.function} <= {ranking.limit} of each partition, by {order}"


def _compared(attribute: Attribute) -> str:
    """An attribute's name and type, and its expression where it is more than this name."""
    told = f"{attribute.name} {attribute.type}"
    is_name = attribute.expression in (attribute.name, quote(attribute.name))
    return told if is_name else f"{told} = {attribute.expression}"


def explain_bound(bound: BoundSelections, computer: str) -> list[str]:
    """Bound selections in lines: compared columns, columns that are computed, conditions.

    Args:
        bound: the selections.
        computer: who computes columns.
    """
    attributes, derived = bound.selections.attributes, bound.computed
    compared = list(dict.fromkeys(_compared(each) for each in attributes))
    more = f", ... {len(compared)} in total" if len(compared) > _SHOWN else ""
    lines = [f"  compared columns: {', '.join(compared[:_SHOWN])}{more}"] if compared else []
    lines += [
        f"  computed by {computer}: {column.name} = {column.expression}"
        + (" (where it fails, the row matches nothing)" if column.error_column else "")
        for column in derived[:_SHOWN]
    ]
    if len(derived) > _SHOWN:
        lines.append(f"  ... {len(derived)} computed columns in total")
    queries = (*bound.selections.queries, *(each.query for each in bound.branches))
    rules = sum(query.tree is not None for query in queries)
    terms = sum(len(query.terms) for query in queries)
    lines.append(f"  {counted(len(bound.selections.queries), 'selection')}, {counted(terms, 'condition')}")
    return (
        [*lines, f"  {rules} of the selections as trees: matched by text and by classes of tuples"]
        if rules
        else lines
    )
