"""What a plan does, in lines for people."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.monitor.figures import counted
from penstock.operators.windows.rankings import RankedParts
from penstock.operators.windows.shard import RunningPlan
from penstock.plan.rankings import ROW_NUMBER, OrderKey, RankedPlan, Ranking
from penstock.plan.windows import Aggregate
from penstock.spark.ingest.window_views import CompiledWindows
from penstock.sql.conditions.bind import BoundSelections
from penstock.sql.script.statements import Query
from penstock.sql.windows.bind import BoundWindow
from penstock.sql.windows.query import WindowQuery

#: how a view over another one follows its rows
FROM_ALL_ROWS = "computed again from all rows of that view at each change"
FROM_LIVE_ROWS = "computed from the live rows of that view, which its state keeps"
#: lines of one kind that are shown
_SHOWN = 50


def explain_windows(windows: CompiledWindows) -> list[str]:
    """Compiled window views in lines: the operators, what they keep, the columns Spark computes for them."""
    plans = windows.panes.operators if windows.panes is not None else ()
    operators = {each.id: each for each in windows.shards.every}
    lines = []
    for plan in plans:
        operator = operators[plan.id]
        keys = f", keys {', '.join(key.column for key in plan.keys)}" if plan.keys else ""
        if isinstance(operator, RunningPlan):
            kept = "its state grows with its groups"
            if isinstance(operator.parts, RankedParts):
                ties = (
                    "" if operator.parts.ranking.function == ROW_NUMBER else " and with tuples that are equal"
                )
                kept = f"its state grows with its partitions{ties}"
            if operator.ttl is not None:
                kept = f"a group leaves the state after {operator.ttl / 1e6:g} s of event time without tuples"
            if operator.session is not None:
                kept = f"a session leaves the state {operator.session.history / 1e6:g} s after it is final"
            lines.append(f"  running group {plan.id}{keys}: {kept}")
            lines += [
                f"    {view.name}: {explain_window(windows.bound[view.name])}" for view in operator.views
            ]
            continue
        conditions = len(plan.selections)
        shared = f", each tuple aggregated once for {conditions} conditions" if conditions > 1 else ""
        lines.append(f"  window group {plan.id}: panes of {plan.pane / 1e6:g} s{keys}{shared}")
        lines += [f"    {view.name}: {explain_window(windows.bound[view.name])}" for view in operator.views]
    if len(lines) > _SHOWN:
        lines[_SHOWN:] = [f"  ... {len(windows.bound)} window and running views in total"]
    lines += [f"  computed by Spark: {each.name} = {each.expression}" for each in windows.derived[:_SHOWN]]
    return lines


def state_words(name: str, query: Query) -> str | None:
    """What bounds the state of a running view, and what is promised of its groups or sessions; None of one row, and of one without state.

    Args:
        name: the view's name.
        query: its query, flattened.
    """
    if isinstance(query, WindowQuery) and query.gap is not None:
        return (
            f"the state of view {name} keeps each session until history_seconds (by default 7 days) after it is final. Tuples of sessions that "
            "have left the state are left out and counted (left_out)."
        )
    if isinstance(query, WindowQuery) and query.is_over_running:
        return (
            f"the state of view {name} keeps every live row of running view {query.source}; only disk space limits it. With STATE_TTL in {query.source}, "
            "groups that leave its state leave this one too."
        )
    if not isinstance(query, WindowQuery) or query.over is not None:
        return None
    ttl, ranking = query.hints.state_ttl, query.ranking
    if ranking is not None and ranking.function != ROW_NUMBER:
        partitions = " of every partition" if query.keys else ""
        places = counted(ranking.limit, "place")
        return (
            f"the state of view {name} keeps all tuples of the first {places}{partitions}, however many are equal; only disk space limits them. "
            "ROW_NUMBER keeps one tuple at each place."
        )
    if not query.keys:
        return None
    if ranking is not None and ttl is None:
        is_one_row = ranking.limit == 1
        kept = "one row" if is_one_row else f"the rows of the first {counted(ranking.limit, 'place')}"
        remedy = " If their number grows without end, add the hint STATE_TTL('1 day')." if is_one_row else ""
        return f"the state of view {name} keeps {kept} of every partition; only disk space limits the number of partitions.{remedy}"
    if ttl is None:
        return (
            f"the state of view {name} keeps every group; only disk space limits it. If the number of groups grows without end, add "
            "the hint STATE_TTL('1 day')."
        )
    return (
        f"a group of view {name} without tuples for {ttl / 1e6:g} s of event time leaves the state, and its row is final. If the group "
        "gets tuples later, it starts from zero, and a new row replaces that one."
    )


def explain_window(view: BoundWindow, how: str | None = None) -> str:
    """A window view in a line.

    Args:
        view: the view.
        how: of a view over another one, which has no bound of its own: how it follows the rows of that.
    """
    windows, bound = view.plan.windows, view.plan.bound
    every = "" if windows.slide == windows.size else f" every {windows.slide / 1e6:g} s"
    start = "" if not windows.start else f" from {windows.start / 1e6:g} s"
    expressions = {each.name: each.expression for each in view.derived}

    def call(each: Aggregate) -> str:
        argument = "*" if each.argument is None else expressions.get(each.argument, each.argument)
        further = [f"{number:g}" for number in (each.parameter, each.accuracy) if number is not None]
        return f"{each.function}({', '.join([argument, *further])})"

    aggregates = ", ".join(f"_a{number} = {call(each)}" for number, each in enumerate(view.plan.aggregates))
    error = f"{bound.epsilon:g}" if bound.absolute else f"{100 * bound.epsilon:g} %"
    having = "" if view.having is None else f"; HAVING {view.having}"
    if isinstance(view.plan, RankedPlan):
        again = "" if how is None else f"; {how}"
        return f"ranking: {_ranking(view.plan.ranking, expressions)}{having}{again}"
    if view.plan.is_running:
        again = "" if how is None else f" {how};"
        sessions = "" if view.plan.gap is None else f" by sessions with a gap of {view.plan.gap / 1e6:g} s"
        return f"running results{sessions};{again} {aggregates or 'no aggregate'}{having}"
    told = f"windows of {windows.size / 1e6:g} s{every}{start}; {aggregates or 'no aggregate'}{having}"
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


def explain_bound(bound: BoundSelections) -> list[str]:
    """Bound selections in lines: compared columns, columns that Spark computes, conditions."""
    attributes, derived = bound.selections.attributes, bound.computed
    lines = [
        f"  compared column {each.name}: {each.type} = {each.expression}" for each in attributes[:_SHOWN]
    ]
    if len(attributes) > _SHOWN:
        lines.append(f"  ... {len(attributes)} compared columns in total")
    lines += [
        f"  computed by Spark: {column.name} = {column.expression}"
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
