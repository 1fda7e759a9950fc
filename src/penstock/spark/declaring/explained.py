"""What is declared, explained: what will run where and why."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from pyspark.sql import SparkSession

from penstock.control.policies.call_order import CallsStanding
from penstock.monitor.figures import counted
from penstock.settings import Settings
from penstock.spark.declaring.declared import Declared, Stream
from penstock.spark.ingest.call_orders import explain_calls
from penstock.spark.ingest.compiling import by_whom
from penstock.spark.ingest.explaining import (
    FROM_ALL_ROWS,
    FROM_LIVE_ROWS,
    computer_of,
    explain_bound,
    explain_window,
    explain_windows,
    said_of,
)
from penstock.spark.ingest.window_views import CompiledWindows
from penstock.spark.lanes.deadlines.estimates import explain_asked
from penstock.spark.lanes.deadlines.explaining import explain_deadline
from penstock.spark.lanes.joins.computed import computed_rows, is_computed
from penstock.spark.lanes.joins.explaining import explain_first
from penstock.spark.lanes.refreshed.explaining import explain_refreshed
from penstock.spark.lanes.unions.explaining import explain_union
from penstock.spark.publication.kinds import is_running_name
from penstock.spark.storage.bindings import ViewDefinition, WindowDefinition
from penstock.spark.storage.joins import JoinDefinition
from penstock.spark.storage.lane_views import LaneDefinition
from penstock.spark.storage.refreshed import RefreshedDefinition
from penstock.spark.storage.unions import UnionDefinition
from penstock.sql.conditions.bind import BoundSelections
from penstock.sql.script.views import flatten


def explained(
    spark: SparkSession,
    settings: Settings,
    declared: Declared,
    bind: Callable[[Stream, Mapping[str, str]], BoundSelections],
    compiled: Callable[[Stream, Sequence[WindowDefinition]], CompiledWindows],
    measured: Callable[[str], CallsStanding | None],
) -> str:
    """Return the lines of everything declared, without starting anything.

    Args:
        spark: the session.
        settings: frozen settings.
        declared: what is declared.
        bind: binds conditions of views on a stream.
        compiled: compiles window and running views on a stream.
        measured: gives what a run has measured of a stream's calls of users' functions; None: nothing.
    """
    lines = []
    for name, stream in declared.streams.items():
        views = declared.on(name).values()
        selections = [view for view in views if isinstance(view, ViewDefinition)]
        conditions = {view.name: view.condition for view in selections}
        bound = bind(stream, conditions)
        grouped = [view for view in views if isinstance(view, WindowDefinition)]
        windows = compiled(stream, grouped)
        said = {
            view.name: said_of(view.sql, flatten(declared.views[view.name].query, declared.queries))
            for view in grouped
        }
        columns, computed = by_whom(stream.host, (*bound.computed, *windows.derived))
        place = stream.source.place(() if computed else columns)
        computer = computer_of(computed)
        lines.append(f"stream {name}: {counted(len(declared.reading(name)), 'view')}, {place}")
        calls = explain_calls([each.text for each in bound.calls], measured(name))
        lines += [
            *(explain_bound(bound, computer) if selections else ()),
            *calls,
            *explain_windows(windows, computer, said),
        ]
    for name, (stream_name, deadline) in declared.deadlines.items():
        view = deadline.bound.view
        plan = replace(view.plan, slack=view.plan.slack or settings.slack)
        lines.append(explain_deadline(name, stream_name, replace(view, plan=plan)))
    of_deadlines = {name: each.bound.view for name, (_, each) in declared.deadlines.items()}
    lines += explain_asked(spark, of_deadlines)
    cells = settings.shards or spark.sparkContext.defaultParallelism
    for own in declared.lane_views.values():
        lines += [line for each in own.values() for line in _of_lane(spark, each, cells)]
    for (place, below), derived in declared.derived.items():
        how = FROM_LIVE_ROWS if is_running_name(place) else FROM_ALL_ROWS
        lines.append(f"rows of view {below}: {counted(len(derived), 'view')}")
        for each, above in derived.items():
            lines.append(f"    {each}: {explain_window(above.bound, how=how)}")
            query = flatten(declared.views[each].query, declared.queries)
            lines += [f"      {line}" for line in said_of(above.definition.sql, query)]
    return "\n".join(lines)


def _of_lane(spark: SparkSession, definition: LaneDefinition, cells: int) -> list[str]:
    """What answers a view with a lane of its own, in lines.

    Args:
        spark: the session.
        definition: the view.
        cells: how many cells the grid of a join has.
    """
    if isinstance(definition, JoinDefinition):
        plan = definition.plan
        by_spark = is_computed(plan) and computed_rows(spark, plan) is None
        return explain_first(plan, cells, by_spark=by_spark)
    if isinstance(definition, RefreshedDefinition):
        return explain_refreshed(definition)
    assert isinstance(definition, UnionDefinition)
    return explain_union(definition)
