"""Maps that share what they have in common, so that copies and comparisons take time in proportion to what differs."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, ItemsView, Iterable, Iterator, Mapping, MutableMapping, ValuesView
from dataclasses import dataclass
from functools import cached_property
from typing import Generic, NamedTuple, TypeVar

#: a map gets a base of its own once so large a part of its base, and so many entries, differ
_MOST_DIFFERENT, _LEAST_DIFFERENT = 1 / 64, 64

Value = TypeVar("Value")
Made = TypeVar("Made")


class _Base(Generic[Value]):
    """What maps share; never changed."""

    def __init__(self, entries: dict[str, Value]) -> None:
        self.entries = entries

    @cached_property
    def places(self) -> dict[str, int]:
        """The place of each name in the order of all."""
        return {name: place for place, name in enumerate(self.entries)}


class _State(NamedTuple, Generic[Value]):
    """A map's base and what differs from it.

    Attributes:
        base: the base.
        own: entries that are new or have another value.
        gone: names of the base that left their places; those that are in `own` too are behind it.
    """

    base: _Base[Value]
    own: dict[str, Value]
    gone: dict[str, None]

    @property
    def behind(self) -> list[str]:
        """The names behind the base, in order."""
        return [name for name in self.own if name not in self.base.entries or name in self.gone]


@dataclass(frozen=True, slots=True)
class Changes(Generic[Value]):
    """What makes one map of another.

    Attributes:
        others: the entries that are new or have another value, in the order of the later map.
        gone: the names that the later map lacks, in no order.
        is_in_order: whether the later map has remaining names in the order of the earlier one, and new ones behind them.
    """

    others: dict[str, Value]
    gone: list[str]
    is_in_order: bool

    def __len__(self) -> int:
        return len(self.others) + len(self.gone)


class SharedMap(MutableMapping[str, Value]):
    """A map from names to values in the order of insertion, as a dict is one, whose copies share what they have in common.

    Copying takes time in proportion to what differs from the base that copies share, and so does comparing copies. One thread at a
    time changes a map.

    Args:
        entries: the first entries.
    """

    __slots__ = ("_length", "_state")

    def __init__(self, entries: Mapping[str, Value] | None = None) -> None:
        self._state: _State[Value] = _State(_Base(dict(entries or {})), {}, {})
        self._length = len(self._state.base.entries)

    @classmethod
    def of(cls, entries: Mapping[str, Value]) -> SharedMap[Value]:
        """Return a map of these entries that whoever has them does not change."""
        return entries.copy() if isinstance(entries, SharedMap) else cls(entries)

    def copy(self) -> SharedMap[Value]:
        """Return a map of the same entries, to be changed apart from this one."""
        base, own, gone = self._state
        if len(own) + len(gone) > max(_LEAST_DIFFERENT, _MOST_DIFFERENT * len(base.entries)):
            # other threads may read this map; later copies of it share the new base
            base, own, gone = self._state = _State(_Base(self._entries()), {}, {})
        copy: SharedMap[Value] = SharedMap()
        copy._state, copy._length = _State(base, dict(own), dict(gone)), self._length
        return copy

    def __getitem__(self, name: str) -> Value:
        base, own, gone = self._state
        if name in own:
            return own[name]
        if name in gone:
            raise KeyError(name)
        return base.entries[name]

    def __contains__(self, name: object) -> bool:
        base, own, gone = self._state
        return name in own or (name in base.entries and name not in gone)

    def __setitem__(self, name: str, value: Value) -> None:
        self._length += name not in self
        self._state.own[name] = value

    def __delitem__(self, name: str) -> None:
        if name not in self:
            raise KeyError(name)
        base, own, gone = self._state
        own.pop(name, None)
        if name in base.entries:
            gone[name] = None
        self._length -= 1

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries())

    def items(self) -> ItemsView[str, Value]:
        """Return the entries at this moment."""
        return self._entries().items()

    def values(self) -> ValuesView[Value]:
        """Return the values at this moment."""
        return self._entries().values()

    def __repr__(self) -> str:
        return f"SharedMap({self._entries()!r})"

    def _entries(self) -> dict[str, Value]:
        base, own, gone = self._state
        if not own and not gone:
            return base.entries
        entries = dict(base.entries)
        for name in gone:
            del entries[name]
        entries.update(own)
        return entries

    def changes_since(self, before: SharedMap[Value]) -> Changes[Value]:
        """Return what makes this map of an earlier one; values are the same where they are equal."""
        base, own, gone = self._state
        other, former, left = before._state
        if base is not other or not left.keys() <= gone.keys():
            return _compared(before, self)
        behind = self._state.behind
        kept = [name for name in before._state.behind if name in self]
        is_in_order = behind[: len(kept)] == kept and not any(name in before for name in behind[len(kept) :])
        others = {name: self[name] for name in own | former if name in self and _differs(name, before, self)}
        return Changes(
            {name: others[name] for name in self._in_order(others)},
            [name for name in gone | dict.fromkeys(former) if name in before and name not in self],
            is_in_order,
        )

    def places(self, names: Iterable[str]) -> list[int]:
        """Return the place of each of some names in the order of all."""
        places, behind = (
            self._state.base.places,
            {name: place for place, name in enumerate(self._state.behind)},
        )
        gone = sorted(map(places.__getitem__, self._state.gone))
        first = len(places) - len(gone)
        return [
            first + behind[name] if name in behind else places[name] - bisect_left(gone, places[name])
            for name in names
        ]

    def _in_order(self, names: Iterable[str]) -> list[str]:
        found = list(names)
        if len(found) < 2:
            return found
        return [name for _, name in sorted(zip(self.places(found), found, strict=True))]


def made_of(
    entries: SharedMap[Value],
    make: Callable[[Value], Made],
    known: tuple[SharedMap[Value], SharedMap[Made]],
) -> SharedMap[Made]:
    """Return what a function makes of each value of a map, in its order.

    Args:
        entries: the map.
        make: the function.
        known: another map, and what the function made of its values.
    """
    changes = entries.changes_since(known[0])
    made = known[1].copy()
    for name in changes.gone:
        del made[name]
    made.update((name, make(value)) for name, value in changes.others.items())
    return made if changes.is_in_order else SharedMap({name: made[name] for name in entries})


def _differs(name: str, before: Mapping[str, object], now: Mapping[str, object]) -> bool:
    return name not in before or not (before[name] is now[name] or before[name] == now[name])


def _compared(before: Mapping[str, Value], now: Mapping[str, Value]) -> Changes[Value]:
    """What makes one map of another, found by looking at all of both."""
    others = {name: value for name, value in now.items() if _differs(name, before, now)}
    gone = [name for name in before if name not in now]
    kept = [name for name in before if name in now]
    new = [name for name in others if name not in before]
    return Changes(others, gone, [*kept, *new] == list(now))
