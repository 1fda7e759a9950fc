"""Which views with a deadline a run has, durably: their definitions, their numbers, and where each begins."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

from penstock.errors import DamagedError
from penstock.plan.deadlines import DeadlineQuery, DeadlineView
from penstock.spark.storage.bindings import WindowDefinition
from penstock.spark.storage.codec import Codec
from penstock.spark.storage.demands import TupleDemand
from penstock.spark.storage.formats import DEADLINES
from penstock.spark.storage.layout import Layout

#: the stream that these views are on for readers of the output; no other stream or view has such a name
DEADLINES_NAME = "deadlines.0"


@dataclass(frozen=True, slots=True)
class RegisteredDeadline:
    """A view with a deadline that is answered.

    Attributes:
        definition: the view.
        stream: the stream it is on.
        view: what its instances are worked out from.
        demand: what is kept of the stream's tuples for it.
        number: names its results for ever; none is used again.
        entry: the newest entry of the stream's log as it was declared; it is answered by those behind it. -1: there was none.
    """

    definition: WindowDefinition
    stream: str
    view: DeadlineView
    demand: TupleDemand
    number: int
    entry: int

    @property
    def query(self) -> DeadlineQuery:
        """Its deadline and the losses it allows."""
        return self.view.query


@dataclass(frozen=True, slots=True)
class DeadlineRegister:
    """The views with a deadline of a checkpoint.

    Attributes:
        views: in order of registration.
        next_number: of the next new one.
    """

    views: tuple[RegisteredDeadline, ...] = ()
    next_number: int = 0

    def of(self, name: str) -> RegisteredDeadline | None:
        """A view that is answered."""
        return next((each for each in self.views if each.definition.name == name), None)

    def without(self, names: Collection[str]) -> DeadlineRegister:
        """With some views dropped."""
        return replace(self, views=tuple(each for each in self.views if each.definition.name not in names))

    def with_view(
        self,
        definition: WindowDefinition,
        stream: str,
        view: DeadlineView,
        demand: TupleDemand,
        entry: int,
    ) -> DeadlineRegister:
        """With a view that is not answered yet."""
        added = RegisteredDeadline(definition, stream, view, demand, self.next_number, entry)
        return DeadlineRegister((*self.views, added), self.next_number + 1)


_REGISTER = Codec(DeadlineRegister)


def read_deadlines(layout: Layout) -> DeadlineRegister:
    """The views with a deadline of a checkpoint.

    Raises:
        DamagedError: they are missing or damaged.
    """
    document = DEADLINES.read(layout.deadlines)
    if document is None:
        if any(each.startswith(f"{DEADLINES_NAME}.") for each in layout.queries()):
            raise DamagedError(str(layout.deadlines), f"({DEADLINES.kind}) is missing")
        return DeadlineRegister()
    try:
        return _REGISTER.value(document["register"])
    except ValueError as error:
        raise DamagedError(str(layout.deadlines), f"({DEADLINES.kind}) is damaged: {error}") from error


def store_deadlines(layout: Layout, register: DeadlineRegister) -> None:
    """Stores the views with a deadline of a checkpoint, durable on return."""
    DEADLINES.replace(layout.deadlines, {"register": _REGISTER.document(register)})
