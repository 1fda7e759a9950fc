"""Which join views a run has, durably: their definitions, and the lanes that answer them."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

from penstock.errors import DamagedError
from penstock.plan.joins import JoinPlan
from penstock.spark.storage.codec import Codec
from penstock.spark.storage.formats import JOINS
from penstock.spark.storage.layout import Layout


@dataclass(frozen=True, slots=True)
class JoinDefinition:
    """A join view as registered.

    Attributes:
        name: the view's name.
        id: identifies this definition; redefining a view gives a new one.
        sql: the whole text of its query.
        plan: the query bound to the columns of its inputs.
        beneath: (name, text) of the views that it selects from, directly or through others.
    """

    name: str
    id: str
    sql: str
    plan: JoinPlan
    beneath: tuple[tuple[str, str], ...] = ()

    @property
    def streams(self) -> tuple[str, ...]:
        """The streams among its inputs, each once."""
        return tuple(dict.fromkeys(each.relation for each in self.plan.inputs if not each.is_static))

    @property
    def tables(self) -> tuple[str, ...]:
        """The static tables among them, each once."""
        return tuple(dict.fromkeys(each.relation for each in self.plan.inputs if each.is_static))


#: what names of lanes of join views begin with
JOINS_NAME = "joins"


def join_lane(number: int) -> str:
    """The name of a lane of a join view; no stream has such a name."""
    return f"{JOINS_NAME}.{number}"


@dataclass(frozen=True, slots=True)
class JoinBeginning:
    """Where in a stream a join view begins: it joins the tuples of later entries of the log.

    Attributes:
        stream: which.
        entry: number of the last entry before; -1: it has all of them.
        clock: when that entry was put, microseconds since the epoch; None: there is none.
    """

    stream: str
    entry: int
    clock: int | None


@dataclass(frozen=True, slots=True)
class RegisteredJoin:
    """A join view with a lane.

    Attributes:
        definition: the view.
        number: of its lane; none is used again.
        shares: of its grid, by key of the plan.
        beginnings: where it begins, by stream.
        before: numbers of the lanes that answered the same definition before, while it was declared earlier.
    """

    definition: JoinDefinition
    number: int
    shares: tuple[int, ...]
    beginnings: tuple[JoinBeginning, ...]
    before: tuple[int, ...] = ()

    @property
    def lane(self) -> str:
        """The lane's name."""
        return join_lane(self.number)


@dataclass(frozen=True, slots=True)
class JoinRegister:
    """The join views of a checkpoint.

    Attributes:
        joins: those that are answered, in order of registration.
        gone: those that were, the last one of each name: their rows are there when they come back.
        next_number: of the next new lane.
    """

    joins: tuple[RegisteredJoin, ...] = ()
    gone: tuple[RegisteredJoin, ...] = ()
    next_number: int = 0

    def of(self, name: str) -> RegisteredJoin | None:
        """A join view that is answered."""
        return next((each for each in self.joins if each.definition.name == name), None)

    def without(self, names: Collection[str]) -> JoinRegister:
        """With some join views dropped."""
        dropped = tuple(each for each in self.joins if each.definition.name in names)
        kept = tuple(each for each in self.joins if each.definition.name not in names)
        gone = tuple(each for each in self.gone if each.definition.name not in names)
        return replace(self, joins=kept, gone=(*gone, *dropped))

    def with_join(
        self, definition: JoinDefinition, shares: tuple[int, ...], beginnings: tuple[JoinBeginning, ...]
    ) -> JoinRegister:
        """With a join view that is not answered yet; its rows of before stay where it is the same as then."""
        earlier = [each for each in self.gone if each.definition.id == definition.id]
        before = tuple(number for each in earlier for number in (*each.before, each.number))
        added = RegisteredJoin(definition, self.next_number, shares, beginnings, before)
        return JoinRegister((*self.joins, added), self.gone, self.next_number + 1)


_REGISTER = Codec(JoinRegister)


def read_joins(layout: Layout) -> JoinRegister:
    """The join views of a checkpoint.

    Raises:
        DamagedError: they are missing or damaged.
    """
    document = JOINS.read(layout.joins)
    if document is None:
        if any(each.startswith(f"{JOINS_NAME}.") for each in layout.queries()):
            raise DamagedError(str(layout.joins), f"({JOINS.kind}) is missing")
        return JoinRegister()
    try:
        return _REGISTER.value(document["register"])
    except ValueError as error:
        raise DamagedError(str(layout.joins), f"({JOINS.kind}) is damaged: {error}") from error


def store_joins(layout: Layout, register: JoinRegister) -> None:
    """Stores the join views of a checkpoint, durable on return."""
    JOINS.replace(layout.joins, {"register": _REGISTER.document(register)})
