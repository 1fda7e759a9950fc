"""Which views a run answers in lanes of their own, durably: a register for each kind, of join, refreshed and UNION ALL views."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Generic, Protocol, TypeVar

from penstock.errors import DamagedError
from penstock.spark.storage.codec import Codec
from penstock.spark.storage.formats import LANE_VIEWS
from penstock.spark.storage.layout import Layout


class LaneDefinition(Protocol):
    """A view as registered, of any kind that has lanes of its own."""

    @property
    def name(self) -> str:
        """The view's name."""

    @property
    def id(self) -> str:
        """Identifies this definition; redefining a view gives a new one."""

    @property
    def sql(self) -> str:
        """The whole text of its query."""

    @property
    def beneath(self) -> tuple[tuple[str, str], ...]:
        """(name, text) of the views that it selects from, directly or through others."""

    @property
    def streams(self) -> tuple[str, ...]:
        """The streams that it reads, each once."""


_Definition = TypeVar("_Definition", bound=LaneDefinition)


def lane_name(kind: str, number: int) -> str:
    """The name of a lane; no stream has such a name.

    Args:
        kind: the kind's in `LaneViewsKind`.
        number: the lane's among those of the kind.
    """
    return f"{kind}.{number}"


@dataclass(frozen=True, slots=True)
class StreamBeginning:
    """Where in a stream a view begins: it reads the tuples of later entries of the log.

    Attributes:
        stream: which.
        entry: number of the last entry before; -1: it has all of them.
        clock: when that entry was put, microseconds since the epoch; None: there is none, or nobody asks.
    """

    stream: str
    entry: int
    clock: int | None = None


@dataclass(frozen=True, slots=True)
class RegisteredView(Generic[_Definition]):
    """A view with a lane.

    Attributes:
        kind: the kind's in `LaneViewsKind`.
        number: of its lane; none is used again.
        definition: the view.
        beginnings: where it begins, by stream; none where it begins with what its lane is asked for first.
        shares: of a join's grid, by key of the plan.
        before: numbers of the lanes that answered the same definition before, while it was declared earlier.
    """

    kind: str
    number: int
    definition: _Definition
    beginnings: tuple[StreamBeginning, ...] = ()
    shares: tuple[int, ...] = ()
    before: tuple[int, ...] = ()

    @property
    def lane(self) -> str:
        """The lane's name."""
        return lane_name(self.kind, self.number)

    @property
    def lanes_before(self) -> list[str]:
        """The names of the lanes of before."""
        return [lane_name(self.kind, number) for number in self.before]


@dataclass(frozen=True, slots=True)
class LaneViewsRegister(Generic[_Definition]):
    """The views of one kind of a checkpoint.

    Attributes:
        kind: the kind's in `LaneViewsKind`.
        views: those that are answered, in order of registration.
        gone: those that were, the last one of each name.
        next_number: of the next new lane.
    """

    kind: str
    views: tuple[RegisteredView[_Definition], ...] = ()
    gone: tuple[RegisteredView[_Definition], ...] = ()
    next_number: int = 0

    def of(self, name: str) -> RegisteredView[_Definition] | None:
        """A view that is answered."""
        return next((each for each in self.views if each.definition.name == name), None)

    def without(self, names: Collection[str]) -> LaneViewsRegister[_Definition]:
        """With some views dropped."""
        dropped = tuple(each for each in self.views if each.definition.name in names)
        kept = tuple(each for each in self.views if each.definition.name not in names)
        gone = tuple(each for each in self.gone if each.definition.name not in names)
        return replace(self, views=kept, gone=(*gone, *dropped))

    def with_view(
        self,
        definition: _Definition,
        beginnings: Sequence[StreamBeginning] = (),
        shares: Sequence[int] = (),
    ) -> LaneViewsRegister[_Definition]:
        """With a view that is not answered yet; lanes that answered the same definition are known to it."""
        earlier = [each for each in self.gone if each.definition.id == definition.id]
        before = tuple(number for each in earlier for number in (*each.before, each.number))
        number = self.next_number
        added = RegisteredView(self.kind, number, definition, tuple(beginnings), tuple(shares), before)
        return replace(self, views=(*self.views, added), next_number=number + 1)


@dataclass(frozen=True, slots=True)
class LaneViewsKind(Generic[_Definition]):
    """A kind of views with lanes of their own.

    Attributes:
        name: what names of their lanes begin with.
        codec: of its register.
    """

    name: str
    codec: Codec[LaneViewsRegister[_Definition]]

    def read(self, layout: Layout) -> LaneViewsRegister[_Definition]:
        """The register of a checkpoint.

        Raises:
            DamagedError: it is missing or damaged.
        """
        place = layout.lane_views(self.name)
        document = LANE_VIEWS.read(place)
        if document is None:
            if any(each.startswith(f"{self.name}.") for each in layout.queries()):
                raise DamagedError(str(place), f"({LANE_VIEWS.kind}) is missing")
            return LaneViewsRegister(self.name)
        try:
            return self.codec.value(document["register"])
        except ValueError as error:
            raise DamagedError(str(place), f"({LANE_VIEWS.kind}) is damaged: {error}") from error

    def store(self, layout: Layout, register: LaneViewsRegister[_Definition]) -> None:
        """Stores the register of a checkpoint, durable on return."""
        LANE_VIEWS.replace(layout.lane_views(self.name), {"register": self.codec.document(register)})
