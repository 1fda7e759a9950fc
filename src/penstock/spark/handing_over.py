"""What an engine's changed declarations change of its run."""

from __future__ import annotations

from penstock.spark.declaring.declared import LANE_VIEWS, Declared
from penstock.spark.declaring.retaining import retained_seconds
from penstock.spark.execution import Execution
from penstock.spark.lanes.deadlines.views import DeadlineDefinition


def hand_over(run: Execution, before: Declared, staged: Declared) -> None:
    """Bring a run to what is declared anew; after a failure it can be repeated.

    Args:
        run: what runs.
        before: what it answers.
        staged: what it is to answer.
    """
    run.set_retention(retained_seconds(staged))
    run.set_sinks(staged.sinks_of_views())
    run.set_rules(staged.files_of_rules)
    has_same_tables = staged.statics.keys() == before.statics.keys()
    if not has_same_tables or any(staged.touches(before, kind) for kind in LANE_VIEWS):
        lane_views = before.lane_views
        for kind, definitions in staged.lane_views.items():
            if not has_same_tables or definitions != lane_views[kind]:
                run.lanes.set_views(kind, definitions, staged.statics)
    if staged.touches(before, DeadlineDefinition):
        run.lanes.set_deadlines(staged.deadlines)
    for name, stream in staged.streams.items():
        if name in run.queries:
            changed, dropped = staged.changes(before, name)
            if changed or dropped:
                run.change(name, changed, dropped)
        elif (new := staged.on(name)) or name in staged.mapped:
            run.prepare(name, stream.source, stream.probe)
            run.add_stream(name, stream.source, new, stream.probe)
    if not any(view.derived for name in staged.touched for view in staged.versions(before, name)):
        return
    derived = staged.derived
    for place in before.derived | derived:
        known, wanted = before.derived.get(place, {}), derived.get(place, {})
        added = {name: view for name, view in wanted.items() if known.get(name) != view}
        gone = [name for name in known if name not in wanted]
        if added or gone:
            run.lanes.derive(*place, added, gone)
