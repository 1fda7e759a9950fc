"""The columns that conditions test, each once, however many conditions test it."""

from __future__ import annotations

from collections.abc import Iterable

from penstock.plan.names import free_name
from penstock.plan.selection import Attribute
from penstock.sql.conditions.operands import Compared


class Attributes:
    """Columns of the stream, expressions that are computed, and values of calls, in order of first use.

    Args:
        names: of the stream's columns.
    """

    def __init__(self, names: Iterable[str]) -> None:
        self.all: list[Attribute] = []
        #: places of those that are expressions
        self.derived: list[int] = []
        self._taken = set(names)
        self._places: dict[tuple[str, bool], int] = {}

    def __getitem__(self, place: int) -> Attribute:
        return self.all[place]

    def place(self, compared: Compared, *, is_text: bool = False) -> int:
        """The place of an attribute; text that is matched against patterns is one apart from ordered values."""
        key = compared.expression, is_text
        place = self._places.get(key)
        if place is None:
            other = self._places.get((compared.expression, not is_text))
            place = self._places[key] = len(self.all)
            name = compared.name
            if name is None:
                name = self.unused(f"__d{len(self.derived)}") if other is None else self[other].name
                self.derived.append(place)
            self.all.append(Attribute(name, compared.type, compared.expression))
        return place

    def unused(self, name: str) -> str:
        """A name that no column of the stream has, from one that is wanted."""
        return free_name(name, self._taken, also="_error")
