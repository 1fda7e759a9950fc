"""Deleting old rows of a results folder that no run uses (docs/decisions/0087)."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from functools import partial

from penstock.errors import CheckpointError, InputError, UnknownNameError
from penstock.monitor.figures import counted
from penstock.spark.log.row_log import held_rows
from penstock.spark.publication.kinds import is_of_view, results_of, rows_of
from penstock.spark.publication.retention import Leaving, Needed, Plan, carry_out, owner_of, plan_of
from penstock.spark.reporting.catalog import read_catalog
from penstock.spark.results.joined_rows import REFRESH_SECONDS, lanes_of
from penstock.spark.sinks.followers import first_needed
from penstock.spark.sinks.marks import Mark
from penstock.spark.sinks.published import Feed
from penstock.spark.storage.events import EventLog
from penstock.spark.storage.formats import SINK
from penstock.spark.storage.layout import Layout
from penstock.spark.storage.replaced import ReplacedFiles


def prune(
    layout: Layout,
    seconds: float,
    name: str | None = None,
    *,
    past_sinks: bool = False,
    now: bool = False,
    grace_seconds: float = 600.0,
    only_tell: bool = False,
) -> list[Leaving]:
    """Delete rows that were published longer ago, by whole files.

    Args:
        layout: output and checkpoint folders; no run uses them.
        seconds: how long ago.
        name: of a stream, whose matches and quarantined records are meant, or of a window or join view; None: all.
        past_sinks: whether rows are deleted that a sink has not delivered.
        now: whether files are deleted at once, and not by the next start or call after the grace period.
        grace_seconds: the grace period.
        only_tell: whether nothing is deleted.

    Returns:
        What left, or would, by stream or view; what remains because others need it has `held`.

    Raises:
        CheckpointError: a run uses the folder.
        UnknownNameError: no stream, window or join view has this name.
        InputError: a sink has not delivered the rows; nothing is deleted.
    """
    owner = layout.ledger.owner()
    if owner is not None and owner.is_running and not owner.is_this_process:
        raise CheckpointError(
            f"{layout.output} is in use by {owner.name()}. Stop that process first, or set retain: a run then deletes its own old rows."
        )
    ledger = layout.open()
    try:
        if name is not None:
            _check_name(layout, name)
        pruning = _Pruning(layout, time.time() - seconds, name)
        plans = {query: pruning.plan(query, past_sinks=past_sinks) for query in layout.queries()}
        if not past_sinks:
            _refuse_undelivered(plans.values())
        if not only_tell:
            for query, plan in plans.items():
                replaced = ReplacedFiles(
                    layout.replaced(query), layout.files, grace_seconds, partial(held_rows, layout)
                )
                if plan.is_any:
                    carry_out(layout, query, plan, replaced, is_read=not now)
                replaced.remove()
            _record(layout, plans.values())
    finally:
        ledger.close()
    return [each for plan in plans.values() for each in plan.leaving]


class _Pruning:
    """Plans what leaves of each query.

    Args:
        layout: output and checkpoint folders.
        until: rows that were published before leave, seconds since the epoch.
        name: whose rows; None: all.
    """

    def __init__(self, layout: Layout, until: float, name: str | None) -> None:
        self._layout = layout
        self._until = until
        self._name = name
        self._views = read_catalog(layout)["views"]
        #: each sink that a run of the folder had, and how far it has come
        self.sinks = {
            sink: Mark.of(SINK.opened(document, layout.sinks[sink]))
            for sink, document in layout.sinks.all(SINK.kind).items()
        }

    def plan(self, query: str, *, past_sinks: bool) -> Plan:
        """What leaves of a query."""

        def until(kind: str) -> float | None:
            return self._until if self._name in (None, owner_of(query, kind)) else None

        def needed(query: str, kinds: Iterable[str]) -> Mapping[str, Needed]:
            readers = {kind: tuple(self._readers(query, kind)) for kind in kinds}
            found = {kind: Needed(0, own) for kind, own in readers.items() if own}
            for kind in [] if past_sinks else kinds:
                for sink, mark in self.sinks.items():
                    first = first_needed(mark, Feed(query, kind), _view_of(str(sink)))
                    if first is not None and (kind not in found or first < found[kind].first):
                        found[kind] = Needed(first, (_SINK + str(sink),))
            return found

        return plan_of(self._layout, query, until, needed, newest=True)

    def _readers(self, query: str, kind: str) -> Iterator[str]:
        """What reads the rows of a view."""
        view = kind.partition("/")[2]
        if not is_of_view(kind, view):
            return
        logs = {rows_of(stream, view) for stream in (query.removesuffix(results_of("")), query)}
        for name, entry in self._views.items():
            if name == view and REFRESH_SECONDS in entry and query in dict(lanes_of(entry)).values():
                yield f"the next answer of view {name}"
            # one without an interval reads rows, and not the texts of the views beneath
            reads = entry.get(REFRESH_SECONDS) == 0 and view in dict(entry["beneath"])
            if (entry.get("stream") in logs or reads) and "dropped" not in entry:
                yield f"view {name}"


_SINK = "sink "


def _view_of(sink: str) -> str:
    return sink.partition(".")[2]


def _refuse_undelivered(plans: Iterable[Plan]) -> None:
    for plan in plans:
        for each in plan.leaving:
            if each.held and each.by[0].startswith(_SINK):
                sink = each.by[0].removeprefix(_SINK)
                raise InputError(
                    f"Sink {sink} has not delivered {counted(each.held, 'stored row')} of {each.name} that would be deleted. Run the "
                    "script until the sink has them, or pass --past-sinks to delete them all the same."
                )


def _check_name(layout: Layout, name: str) -> None:
    catalog = read_catalog(layout)
    views = {view for view, entry in catalog["views"].items() if "projection" not in entry}
    if name in catalog["streams"] or name in views:
        return
    if name in catalog["views"]:
        stream = catalog["views"][name]["stream"]
        raise UnknownNameError(
            f"View {name} is a selection: its rows are in the files of stream {stream}, with those of other selections. Name the "
            f"stream {stream}, to delete old rows of all of them."
        )
    known = sorted({*catalog["streams"], *views})
    raise UnknownNameError.among("Stream or view", name, known, "Existing names", most=20)


def _record(layout: Layout, plans: Iterable[Plan]) -> None:
    leaving = [each for plan in plans for each in plan.leaving if each.files]
    if not leaving:
        return
    events = EventLog(layout.events)
    for each in leaving:
        events.record("rows_removed", **each.told, rows=each.rows, files=each.files, bytes=each.bytes)
    events.close()
