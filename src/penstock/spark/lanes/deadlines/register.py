"""The views with a deadline of a run: which there are, what they ask of streams, where each begins."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.spark.lanes.asking import Asked
from penstock.spark.lanes.deadlines.views import DeadlineDefinition, demand_of
from penstock.spark.log.stream_log import LogReader
from penstock.spark.publication.kinds import results_of
from penstock.spark.results.bound_views import store_views, stored_views
from penstock.spark.storage.bindings import RegisteredWindow, WindowDefinition
from penstock.spark.storage.deadlines import (
    DEADLINES_NAME,
    RegisteredDeadline,
    read_deadlines,
    store_deadlines,
)
from penstock.spark.storage.layout import Layout
from penstock.sql.windows.bind import BoundWindow

#: the lane that answers all of them: losses are spread over all views
DEADLINE_LANE = results_of(DEADLINES_NAME)
#: so much of its deadline a window may lose as its stream gathers tuples for a batch, and so many seconds at most
_PATIENCE, _MOST_PATIENCE = 0.2, 1.0


class DeadlineViews:
    """Keeps the register of views with a deadline; one thread changes it at a time.

    A view begins with what comes to its stream after it was declared: tuples before that were not kept for it.

    Args:
        layout: output and checkpoint folders.
    """

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        #: replaced as a whole
        self.register = read_deadlines(layout)

    @property
    def views(self) -> tuple[RegisteredDeadline, ...]:
        """The views that are answered."""
        return self.register.views

    @property
    def streams(self) -> tuple[str, ...]:
        """The streams that they are on, each once."""
        return tuple(dict.fromkeys(each.stream for each in self.views))

    @property
    def definitions(self) -> dict[str, WindowDefinition]:
        """The views by name."""
        return {each.definition.name: each.definition for each in self.views}

    def settle(self, wanted: Mapping[str, tuple[str, DeadlineDefinition]]) -> tuple[list[str], list[str]]:
        """Makes the register hold these views and no others, durable on return.

        Args:
            wanted: by name, a view and the stream it is on.

        Returns:
            The names of those that are new and of those that are gone.
        """
        gone = [
            name
            for name, definition in self.definitions.items()
            if name not in wanted or wanted[name][1].id != definition.id
        ]
        register = self.register.without(gone)
        added = [name for name in wanted if register.of(name) is None]
        for name in added:
            stream, each = wanted[name]
            definition = WindowDefinition(name, each.id, each.sql, each.beneath)
            number = register.next_number
            registered = {name: RegisteredWindow(definition, number)}
            store_views(self._layout, DEADLINES_NAME, number, [each.bound.window], registered)
            register = register.with_view(
                definition, stream, each.bound.view, demand_of(each.bound), self._newest(stream)
            )
        if register != self.register:
            store_deadlines(self._layout, register)
            self.register = register
        return added, gone

    def bound(self, registered: RegisteredDeadline) -> BoundWindow:
        """A view over its stream's columns."""
        stored = stored_views(self._layout, DEADLINES_NAME, registered.number)
        return stored[registered.definition.name]

    def asked(self, stream: str) -> list[Asked]:
        """What the views ask of a stream."""
        return [
            Asked(
                DEADLINE_LANE,
                each.definition.name,
                (each.demand,),
                reads_again=False,
                patience=min(_MOST_PATIENCE, _PATIENCE * each.view.query.deadline),
            )
            for each in self.views
            if each.stream == stream
        ]

    def _newest(self, stream: str) -> int:
        """The newest entry of a stream's log."""
        entry = LogReader(self._layout.log(stream)).newest()
        return -1 if entry is None else entry.number
