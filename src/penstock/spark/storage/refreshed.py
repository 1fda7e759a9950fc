"""Which refreshed views a run has, durably: their definitions, and the lanes that answer them."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

import pyarrow as pa

from penstock.errors import DamagedError
from penstock.spark.storage.codec import Codec
from penstock.spark.storage.formats import REFRESHED
from penstock.spark.storage.layout import Layout

#: what names of lanes of refreshed views begin with
REFRESHED_NAME = "refreshed"


def refreshed_lane(number: int) -> str:
    """The name of a lane of a refreshed view; no stream has such a name."""
    return f"{REFRESHED_NAME}.{number}"


@dataclass(frozen=True, slots=True)
class ReadStream:
    """A stream that a refreshed view reads.

    Attributes:
        name: the stream's.
        columns: those that the view may read, in the order of the stream.
        time: the event time column; None: the stream has none.
    """

    name: str
    columns: tuple[str, ...]
    time: str | None


@dataclass(frozen=True, slots=True)
class OutputColumn:
    """A column of a refreshed view."""

    name: str
    type: pa.DataType


@dataclass(frozen=True, slots=True)
class RefreshedDefinition:
    """A refreshed view as registered.

    Attributes:
        name: the view's name.
        id: identifies this definition; redefining a view gives a new one.
        sql: the whole text of its query.
        seconds: the least time between two answers.
        inputs: the streams that it reads, directly or through views.
        tables: the static tables that it reads.
        outputs: its columns.
        beneath: (name, text) of the views that it selects from, directly or through others; each after those that it selects from.
    """

    name: str
    id: str
    sql: str
    seconds: float
    inputs: tuple[ReadStream, ...]
    tables: tuple[str, ...]
    outputs: tuple[OutputColumn, ...]
    beneath: tuple[tuple[str, str], ...] = ()

    @property
    def streams(self) -> tuple[str, ...]:
        """The names of the streams."""
        return tuple(each.name for each in self.inputs)

    @property
    def schema(self) -> pa.Schema:
        """Its columns."""
        return pa.schema([(each.name, each.type) for each in self.outputs])


@dataclass(frozen=True, slots=True)
class RefreshedBeginning:
    """Where in a stream a refreshed view begins: it reads the tuples of later entries of the log.

    Attributes:
        stream: which.
        entry: number of the last entry before; -1: it has all of them.
    """

    stream: str
    entry: int


@dataclass(frozen=True, slots=True)
class RegisteredRefresh:
    """A refreshed view with a lane.

    Attributes:
        definition: the view.
        number: of its lane; none is used again.
        beginnings: where it begins, by stream.
    """

    definition: RefreshedDefinition
    number: int
    beginnings: tuple[RefreshedBeginning, ...]

    @property
    def lane(self) -> str:
        """The lane's name."""
        return refreshed_lane(self.number)


@dataclass(frozen=True, slots=True)
class RefreshedRegister:
    """The refreshed views of a checkpoint.

    Attributes:
        views: those that are answered, in order of registration.
        gone: those that were, and whose lanes have left something.
        next_number: of the next new lane.
    """

    views: tuple[RegisteredRefresh, ...] = ()
    gone: tuple[RegisteredRefresh, ...] = ()
    next_number: int = 0

    def of(self, name: str) -> RegisteredRefresh | None:
        """A refreshed view that is answered."""
        return next((each for each in self.views if each.definition.name == name), None)

    def without(self, names: Collection[str]) -> RefreshedRegister:
        """With some views dropped."""
        dropped = tuple(each for each in self.views if each.definition.name in names)
        kept = tuple(each for each in self.views if each.definition.name not in names)
        return replace(self, views=kept, gone=(*self.gone, *dropped))

    def with_view(
        self, definition: RefreshedDefinition, beginnings: tuple[RefreshedBeginning, ...]
    ) -> RefreshedRegister:
        """With a view that is not answered yet."""
        added = RegisteredRefresh(definition, self.next_number, beginnings)
        return replace(self, views=(*self.views, added), next_number=self.next_number + 1)

    def forgetting(self, lane: str) -> RefreshedRegister:
        """Without a view that is gone, whose lane has left nothing any more."""
        return replace(self, gone=tuple(each for each in self.gone if each.lane != lane))


_REGISTER = Codec(RefreshedRegister)


def read_refreshed(layout: Layout) -> RefreshedRegister:
    """The refreshed views of a checkpoint.

    Raises:
        DamagedError: they are missing or damaged.
    """
    document = REFRESHED.read(layout.refreshed)
    if document is None:
        if any(each.startswith(f"{REFRESHED_NAME}.") for each in layout.queries()):
            raise DamagedError(str(layout.refreshed), f"({REFRESHED.kind}) is missing")
        return RefreshedRegister()
    try:
        return _REGISTER.value(document["register"])
    except ValueError as error:
        raise DamagedError(str(layout.refreshed), f"({REFRESHED.kind}) is damaged: {error}") from error


def store_refreshed(layout: Layout, register: RefreshedRegister) -> None:
    """Stores the refreshed views of a checkpoint, durable on return."""
    REFRESHED.replace(layout.refreshed, {"register": _REGISTER.document(register)})
