"""What readers of a stream's log have asked for of its tuples, as plan versions hold it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from penstock.spark.storage.codec import Codec


@dataclass(frozen=True, slots=True)
class TupleDemand:
    """Tuples of a stream that a reader of its log asks for.

    Those whose event time is too far ahead of the clock, and of the stream's own time, are not kept, as in windows, and are counted;
    but for `is_untimed`.

    Attributes:
        condition: Spark SQL over the stream's columns; tuples are wanted where it is true. None: all are.
        columns: (Spark SQL over the stream's columns, name) pairs: what is kept of a tuple. Where an expression raises,
            the tuple is not kept, and is counted.
        key: names of the columns it is looked for by; none: by event time alone.
        time: name of the event time column, a TIMESTAMP or TIMESTAMP_NTZ.
        router: deals the tuples out, see `routers.Router.document`; its columns are among `columns`.
        or_null: names of columns that are NULL where their expression raises: the tuple is kept, and counted all the same.
        is_untimed: whether tuples without event time, or with one too far ahead, are kept as any other and found by their key.
    """

    condition: str | None
    columns: tuple[tuple[str, str], ...]
    key: tuple[str, ...]
    time: str
    router: Mapping[str, Any]
    or_null: tuple[str, ...] = ()
    is_untimed: bool = False


@dataclass(frozen=True, slots=True)
class NumberedDemand:
    """A demand of a plan version.

    Attributes:
        id: names its files for ever.
        demand: what is asked for.
        begins: the first batch that is dealt out for it; None: it has not been bound yet.
    """

    id: int
    demand: TupleDemand
    begins: int | None = 0


@dataclass(frozen=True, slots=True)
class DemandRegister:
    """The demands of a plan version.

    Attributes:
        demands: by id, ascending.
        next_id: the id of the next new demand; ids are never used again.
    """

    demands: tuple[NumberedDemand, ...] = ()
    next_id: int = 0

    def id_of(self, demand: TupleDemand) -> int:
        """The id of a demand that is there."""
        return next(each.id for each in self.demands if each.demand == demand)

    def with_demands(self, demands: Iterable[TupleDemand]) -> DemandRegister:
        """With some demands; those that were there are as they were."""
        found = list(self.demands)
        for demand in demands:
            if all(each.demand != demand for each in found):
                new = len(found) - len(self.demands)
                found.append(NumberedDemand(self.next_id + new, demand, None))
        return DemandRegister(tuple(found), self.next_id + len(found) - len(self.demands))

    def begun(self, batch: int) -> DemandRegister:
        """With the demands that have not begun yet beginning with a batch."""
        demands = (each if each.begins is not None else replace(each, begins=batch) for each in self.demands)
        return replace(self, demands=tuple(demands))

    def without(self, id_: int) -> DemandRegister:
        """Without a demand."""
        return replace(self, demands=tuple(each for each in self.demands if each.id != id_))


NO_DEMANDS = DemandRegister()
#: on disk
DEMANDS = Codec(DemandRegister)
