"""The refreshed views of a run: which there are, what they ask of streams, where each begins."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.spark.lanes.asking import Asked
from penstock.spark.lanes.cuts import forget_lane
from penstock.spark.lanes.refreshed.archive import demand_of
from penstock.spark.log.stream_log import LogReader
from penstock.spark.sources.static_tables import StaticTable
from penstock.spark.storage.layout import Layout
from penstock.spark.storage.refreshed import (
    ReadStream,
    RefreshedBeginning,
    RefreshedDefinition,
    RefreshedRegister,
    RegisteredRefresh,
    read_refreshed,
    store_refreshed,
)


class RefreshedViews:
    """Keeps the register of refreshed views; one thread changes it at a time.

    A view begins with what comes to its streams after it was declared: tuples before that were not kept for it. Where another view, or
    the same one as it was before, has asked for the same tuples of a stream, it begins where that one does.

    Args:
        layout: output and checkpoint folders.
    """

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        #: replaced as a whole, as the next
        self.register = read_refreshed(layout)
        #: static tables by name
        self.tables: Mapping[str, StaticTable] = {}

    @property
    def views(self) -> tuple[RegisteredRefresh, ...]:
        """The views that are answered."""
        return self.register.views

    def settle(
        self, wanted: Mapping[str, RefreshedDefinition], tables: Mapping[str, StaticTable]
    ) -> tuple[RegisteredRefresh, ...]:
        """Makes the register hold these views and no others, durable on return.

        Args:
            wanted: the views by name.
            tables: static tables by name.

        Returns:
            Those that are answered no more and have left something; see `forget`.
        """
        self.tables = dict(tables)
        dropped = [
            each.definition.name for each in self.views if wanted.get(each.definition.name) != each.definition
        ]
        register = self.register.without(dropped) if dropped else self.register
        for name, definition in wanted.items():
            if register.of(name) is None:
                beginnings = tuple(map(self._beginning, definition.inputs))
                register = register.with_view(definition, beginnings)
        self._store(register)
        return register.gone

    def forget(self, gone: RegisteredRefresh) -> None:
        """Removes what the lane of a dropped view has left beside its results; the lane does not run."""
        forget_lane(self._layout, gone.lane, gone.definition.streams)
        self._store(self.register.forgetting(gone.lane))

    def asked(self, stream: str) -> list[Asked]:
        """What the views ask of a stream."""
        return [
            Asked(each.lane, each.definition.name, (demand_of(read),), reads_again=True)
            for each in self.views
            for read in each.definition.inputs
            if read.name == stream
        ]

    def _store(self, register: RefreshedRegister) -> None:
        if register != self.register:
            store_refreshed(self._layout, register)
            self.register = register

    def _beginning(self, read: ReadStream) -> RefreshedBeginning:
        held = [
            begun.entry
            for view in self.views
            if any(each == read for each in view.definition.inputs)
            for begun in view.beginnings
            if begun.stream == read.name
        ]
        return RefreshedBeginning(read.name, min([LogReader(self._layout.log(read.name)).last, *held]))
