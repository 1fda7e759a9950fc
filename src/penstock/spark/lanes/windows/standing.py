"""How far window views have come, all shards taken together."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from penstock.operators.windows.answers import Progress, Standing
from penstock.operators.windows.shard import WindowProgram
from penstock.plan.times import AFTER_ALL
from penstock.spark.lanes.windows.shard_task import ShardReport


def progress_of(
    reports: Sequence[ShardReport], views: Iterable[str], *, has_ended: bool
) -> dict[str, dict[str, int]]:
    """How far some views are answered, as `Progress`, by view.

    Args:
        reports: of all shards.
        views: those whose rows others read.
        has_ended: whether the stream has.
    """
    found = {}
    for view in views:
        own = [report for report in reports if view in report.progress]
        progress = Progress.least([report.progress[view] for report in own])
        if has_ended and own:
            is_final = all(report.standing[view].oldest is None for report in own)
            final = AFTER_ALL if is_final else progress.final
            progress = replace(progress, closed=AFTER_ALL, beforehand=AFTER_ALL, final=final)
        found[view] = asdict(progress)
    return found


def final_of(
    shards: Sequence[Mapping[str, Standing]], program: WindowProgram, never_whole: Collection[int]
) -> int:
    """Of tuples before it all windows are final, or never will be, microseconds.

    Args:
        shards: how far the views have come in each.
        program: the views.
        never_whole: operators whose windows are not waited for where they lack tuples of the batches before.
    """
    final = AFTER_ALL
    for plan in program.operators:
        for view in plan.views:
            for standing in (shard[view.name] for shard in shards):
                until = standing.final
                if standing.oldest is not None and plan.id not in never_whole:
                    until = min(until, standing.oldest - 1)
                final = min(final, until - view.windows.size)
    return final


def standing_of(shards: Sequence[Mapping[str, Standing]]) -> dict[str, dict[str, Any]]:
    """How far each view has come: of all shards the largest slack and horizon, and the oldest open window.

    The coverage is that of the shard with the least. What slack and horizon are used and what is promised is said by those that have windows, as long as there are some.

    Args:
        shards: how far the views have come in each.
    """
    found: dict[str, dict[str, Any]] = {}
    for name in dict.fromkeys(name for shard in shards for name in shard):
        own = [shard[name] for shard in shards if name in shard]
        answering = [each for each in own if each.has_windows] or own
        slowest = max(answering, key=lambda each: each.slack)
        found[name] = {
            "slack": slowest.slack,
            "slack_policy": slowest.policy,
            "slack_figures": dict(slowest.figures),
            "promised": all(each.promised for each in answering),
            "bound": asdict(own[0].bound),
            "coverage": min((each.coverage for each in answering if each.coverage is not None), default=None),
            "horizon": max(each.horizon for each in answering),
            "newest": max((each.newest for each in own if each.newest is not None), default=None),
            "reached": max((each.reached for each in own if each.reached is not None), default=None),
            "open": max(each.open for each in own),
            "oldest": min((each.oldest for each in own if each.oldest is not None), default=None),
            "final_from": max((each.final_from for each in own if each.final_from is not None), default=None),
        }
    return found
