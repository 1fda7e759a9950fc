"""The views of one kind that have lanes of their own: which there are, what they ask of streams, where each begins."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, Generic, TypeVar

from penstock.spark.lanes.asking import Asked
from penstock.spark.lanes.cuts import forget_lane
from penstock.spark.lanes.lane import LanePlan
from penstock.spark.log.stream_log import LogReader
from penstock.spark.sources.static_tables import StaticTable
from penstock.spark.storage.demands import TupleDemand
from penstock.spark.storage.lane_views import (
    LaneDefinition,
    LaneViewsKind,
    LaneViewsRegister,
    RegisteredView,
    StreamBeginning,
)
from penstock.spark.storage.layout import Layout
from penstock.status import ViewKind

_Definition = TypeVar("_Definition", bound=LaneDefinition)


class LaneViews(ABC, Generic[_Definition]):
    """Keeps the register of one kind of views; one thread changes it at a time.

    A view begins with what comes to its streams after it was declared: tuples before that were not kept for it.

    Args:
        layout: output and checkpoint folders.
        stored: how the register is kept.
    """

    #: what users call such a view
    kind: ClassVar[ViewKind]
    #: whether the lanes read tuples again that they have left behind
    reads_again: ClassVar[bool]

    def __init__(self, layout: Layout, stored: LaneViewsKind[_Definition]) -> None:
        self._layout = layout
        self._stored = stored
        #: replaced as a whole, as the next
        self.register: LaneViewsRegister[_Definition] = stored.read(layout)
        #: static tables by name
        self.tables: Mapping[str, StaticTable] = {}

    @property
    def views(self) -> tuple[RegisteredView[_Definition], ...]:
        """The views that are answered."""
        return self.register.views

    def settle(
        self, wanted: Mapping[str, _Definition], tables: Mapping[str, StaticTable]
    ) -> tuple[RegisteredView[_Definition], ...]:
        """Makes the register hold these views and no others, durable on return.

        Args:
            wanted: the views by name.
            tables: static tables by name.

        Returns:
            Those that are answered no more and have left something; see `forget`.
        """
        self.tables = dict(tables)
        dropped = [
            each.definition.name
            for each in self.views
            if not self.is_same(each.definition, wanted.get(each.definition.name))
        ]
        register = self.register.without(dropped) if dropped else self.register
        for name, definition in wanted.items():
            if register.of(name) is None:
                register = register.with_view(
                    definition, self.beginnings(definition), self.shares(definition)
                )
        if register != self.register:
            self._stored.store(self._layout, register)
            self.register = register
        return tuple(each for each in register.gone if self._has_left(each))

    def _has_left(self, gone: RegisteredView[_Definition]) -> bool:
        """Whether the lane of a dropped view has left something: it may have joined logs and never run."""
        if self._layout.lanes[gone.lane].exists():
            return True
        logs = (LogReader(self._layout.log(stream)) for stream in self.logs(gone))
        return any(log.mark(gone.lane) is not None for log in logs)

    def forget(self, gone: RegisteredView[_Definition]) -> None:
        """Removes what the lane of a dropped view has left beside its results; the lane does not run."""
        forget_lane(self._layout, gone.lane, self.logs(gone))

    def logs(self, gone: RegisteredView[_Definition]) -> Sequence[str]:
        """The logs that the lane of a dropped view has read."""
        return gone.definition.streams

    def asked(self, stream: str) -> list[Asked]:
        """What the views ask of a stream."""
        return [
            Asked(each.lane, each.definition.name, tuple(self.demands(each, stream)), self.reads_again)
            for each in self.views
        ]

    def lanes(self) -> Iterator[LanePlan]:
        """The lane of each view."""
        return map(self.lane, self.views)

    def entries(self) -> list[dict[str, Any]]:
        """What the catalog says of the views."""
        return list(map(self.entry, self.views))

    def is_same(self, known: _Definition, wanted: _Definition | None) -> bool:
        """Whether a view is wanted as it is known."""
        return wanted is not None and known.id == wanted.id

    def beginnings(self, definition: _Definition) -> Sequence[StreamBeginning]:  # noqa: ARG002
        """Where a new view begins; none: with what its lane is asked for first."""
        return ()

    def shares(self, definition: _Definition) -> Sequence[int]:  # noqa: ARG002
        """The shares of a new view's grid."""
        return ()

    @abstractmethod
    def demands(self, registered: RegisteredView[_Definition], stream: str) -> Sequence[TupleDemand]:
        """What a view asks of a stream."""

    @abstractmethod
    def lane(self, registered: RegisteredView[_Definition]) -> LanePlan:
        """The lane that answers a view."""

    @abstractmethod
    def entry(self, registered: RegisteredView[_Definition]) -> dict[str, Any]:
        """What the catalog says of a view."""
