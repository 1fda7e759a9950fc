"""Which UNION ALL views a run has, durably: their definitions, and the lanes that answer them."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

import pyarrow as pa

from penstock.errors import DamagedError
from penstock.spark.storage.codec import Codec
from penstock.spark.storage.demands import TupleDemand
from penstock.spark.storage.formats import UNIONS
from penstock.spark.storage.layout import Layout

#: what names of lanes of UNION ALL views begin with
UNIONS_NAME = "unions"


def union_lane(number: int) -> str:
    """The name of a lane of a UNION ALL view; no stream has such a name."""
    return f"{UNIONS_NAME}.{number}"


@dataclass(frozen=True, slots=True)
class UnionBranch:
    """A selection of a UNION ALL.

    Attributes:
        stream: the stream that it selects from.
        demand: its condition and its SELECT list, as the stream is asked for them; the n-th column of the view is `column_name(n)`.
    """

    stream: str
    demand: TupleDemand


def column_name(number: int) -> str:
    """The name of a view's column among those of a branch's demand."""
    return f"c{number}"


@dataclass(frozen=True, slots=True)
class UnitedColumn:
    """A column of a UNION ALL view.

    Attributes:
        name: the column's.
        type: the type that all branches are cast to.
        is_time: whether it is the event time of the stream in every branch.
    """

    name: str
    type: pa.DataType
    is_time: bool


@dataclass(frozen=True, slots=True)
class UnionDefinition:
    """A UNION ALL view as registered.

    Attributes:
        name: the view's name.
        id: identifies this definition; redefining a view gives a new one.
        sql: the whole text of its query.
        branches: the selections, in order.
        outputs: its columns.
        beneath: (name, text) of the views that it selects from, directly or through others.
    """

    name: str
    id: str
    sql: str
    branches: tuple[UnionBranch, ...]
    outputs: tuple[UnitedColumn, ...]
    beneath: tuple[tuple[str, str], ...] = ()

    @property
    def streams(self) -> tuple[str, ...]:
        """The names of the streams, each once."""
        return tuple(dict.fromkeys(each.stream for each in self.branches))

    @property
    def schema(self) -> pa.Schema:
        """Its columns."""
        return pa.schema([(each.name, each.type) for each in self.outputs])


@dataclass(frozen=True, slots=True)
class RegisteredUnion:
    """A UNION ALL view with a lane.

    Attributes:
        definition: the view.
        number: of its lane; none is used again.
        before: numbers of the lanes that answered the same definition before, while it was declared earlier.
    """

    definition: UnionDefinition
    number: int
    before: tuple[int, ...] = ()

    @property
    def lane(self) -> str:
        """The lane's name."""
        return union_lane(self.number)


@dataclass(frozen=True, slots=True)
class UnionRegister:
    """The UNION ALL views of a checkpoint.

    Attributes:
        unions: those that are answered, in order of registration.
        gone: those that were, the last one of each name: their rows are there when they come back.
        next_number: of the next new lane.
    """

    unions: tuple[RegisteredUnion, ...] = ()
    gone: tuple[RegisteredUnion, ...] = ()
    next_number: int = 0

    def of(self, name: str) -> RegisteredUnion | None:
        """A UNION ALL view that is answered."""
        return next((each for each in self.unions if each.definition.name == name), None)

    def without(self, names: Collection[str]) -> UnionRegister:
        """With some views dropped."""
        dropped = tuple(each for each in self.unions if each.definition.name in names)
        kept = tuple(each for each in self.unions if each.definition.name not in names)
        gone = tuple(each for each in self.gone if each.definition.name not in names)
        return replace(self, unions=kept, gone=(*gone, *dropped))

    def with_union(self, definition: UnionDefinition) -> UnionRegister:
        """With a view that is not answered yet; its rows of before stay where it is the same as then."""
        earlier = [each for each in self.gone if each.definition.id == definition.id]
        before = tuple(number for each in earlier for number in (*each.before, each.number))
        added = RegisteredUnion(definition, self.next_number, before)
        return UnionRegister((*self.unions, added), self.gone, self.next_number + 1)


_REGISTER = Codec(UnionRegister)


def read_unions(layout: Layout) -> UnionRegister:
    """The UNION ALL views of a checkpoint.

    Raises:
        DamagedError: they are missing or damaged.
    """
    document = UNIONS.read(layout.unions)
    if document is None:
        if any(each.startswith(f"{UNIONS_NAME}.") for each in layout.queries()):
            raise DamagedError(str(layout.unions), f"({UNIONS.kind}) is missing")
        return UnionRegister()
    try:
        return _REGISTER.value(document["register"])
    except ValueError as error:
        raise DamagedError(str(layout.unions), f"({UNIONS.kind}) is damaged: {error}") from error


def store_unions(layout: Layout, register: UnionRegister) -> None:
    """Stores the UNION ALL views of a checkpoint, durable on return."""
    UNIONS.replace(layout.unions, {"register": _REGISTER.document(register)})
