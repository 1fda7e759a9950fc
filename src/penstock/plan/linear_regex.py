"""Regular expressions whose search by backtracking may take exponential time, searched in linear time.

Thompson's construction, and its states' sets made as a text asks for them and kept (a lazy DFA): K. Thompson, "Regular expression
search algorithm", CACM 11(6), 1968. About 0.1 us a character where the sets are known. No lookahead, no captures.
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections.abc import Iterable, Set

from penstock.plan.java_regex import (
    Characters,
    Choice,
    Group,
    Lookahead,
    Node,
    Place,
    Position,
    Ranges,
    Repeat,
    Sequence,
    UnprovenError,
    tests_words,
)
from penstock.plan.word_boundaries import word_boundaries

#: a pattern of more states is refused; sets beyond this number are forgotten
_MOST_STATES, _MOST_SETS = 20_000, 2_000
#: a part that may be repeated more often, and matches in several ways, may take exponential time
_FEW = 4
_ACCEPTED = 0


def needs_linear_search(node: Node) -> bool:
    """Whether a part with choices is repeated, so that backtracking may try exponentially many ways."""
    match node:
        case Sequence(parts) | Choice(parts):
            return any(map(needs_linear_search, parts))
        case Lookahead(part) | Group(part):
            return needs_linear_search(part)
        case Repeat(part, _, most):
            return ((most is None or most > _FEW) and _has_choices(part)) or needs_linear_search(part)
        case _:
            return False


def _has_choices(node: Node) -> bool:
    match node:
        case Sequence(parts):
            return any(map(_has_choices, parts))
        case Choice():
            return True
        case Repeat(part, least, most):
            return least != most or _has_choices(part)
        case Group(part):
            return _has_choices(part)
        case _:
            return False


class LinearRegex:
    """Searches texts for a match of a syntax tree. Threads that share one take turns, as a search adds to the known sets.

    Args:
        tree: as parsed.

    Raises:
        UnprovenError: it has lookahead, or too many states.
    """

    def __init__(self, tree: Node) -> None:
        # of a state: ranges and the state behind them, or a place that must be and the states behind it
        self._ranges: list[tuple[Ranges, int] | None] = [None]
        self._free: list[tuple[Place | None, list[int]]] = [(None, [])]
        self._start = self._states(tree, _ACCEPTED)
        bounds = {
            bound for each in self._ranges if each for low, high in each[0] for bound in (low, high + 1)
        }
        self._bounds = sorted(bounds)
        self._tests_words = tests_words(tree)
        self._turn = threading.Lock()
        self._forget()

    def search(self, text: str) -> bool:
        """Whether a text has a match anywhere."""
        with self._turn:
            return self._search(text)

    def _search(self, text: str) -> bool:
        ends = {len(text)}
        if text.endswith("\r\n"):
            ends.add(len(text) - 2)
        elif text.endswith(("\n", "\r", "\x85", "\u2028", "\u2029")):
            ends.add(len(text) - 1)
        words = word_boundaries(text) if self._tests_words else frozenset[int]()
        current = self._number(self._closed((), self._places(0, text, ends, words)))
        for place, character in enumerate(text, 1):
            if self._accepting[current]:
                return True
            symbol = bisect_right(self._bounds, ord(character))
            # where a position is met, the next set depends on more than the character
            is_near = place in ends
            step = current, symbol, place in words
            known = None if is_near else self._steps.get(step)
            if known is None:
                behind = self._behind(current, ord(character))
                closed = self._closed(behind, self._places(place, text, ends, words))
                if len(self._sets) > _MOST_SETS:
                    self._forget()
                    known = self._number(closed)
                else:
                    known = self._number(closed)
                    if not is_near:
                        self._steps[step] = known
            current = known
        return self._accepting[current]

    def _behind(self, number: int, code: int) -> list[int]:
        """The states that a character leads to."""
        edges = (self._ranges[state] for state in self._sets[number])
        return [edge[1] for edge in edges if edge and any(low <= code <= high for low, high in edge[0])]

    @staticmethod
    def _places(place: int, text: str, ends: set[int], words: Set[int]) -> tuple[Place, ...]:
        """The positions that a place of a text is."""
        return (
            *((Place.BEGIN,) if place == 0 else ()),
            *((Place.END_OF_LINE,) if place in ends else ()),
            *((Place.END,) if place == len(text) else ()),
            *((Place.WORD_BOUNDARY,) if place in words else ()),
        )

    def _forget(self) -> None:
        self._sets: list[tuple[int, ...]] = []
        self._accepting: list[bool] = []
        self._numbers: dict[tuple[int, ...], int] = {}
        self._steps: dict[tuple[int, int, bool], int] = {}

    def _number(self, states: tuple[int, ...]) -> int:
        number = self._numbers.get(states)
        if number is None:
            number = self._numbers[states] = len(self._sets)
            self._sets.append(states)
            self._accepting.append(_ACCEPTED in states)
        return number

    def _closed(self, states: Iterable[int], places: tuple[Place, ...]) -> tuple[int, ...]:
        """All states reached without a character, also from the start, as a match may begin anywhere."""
        found = {self._start, *states}
        waiting = list(found)
        while waiting:
            required, behind = self._free[waiting.pop()]
            if required is None or required in places:
                waiting += [state for state in behind if state not in found]
                found.update(behind)
        return tuple(sorted(found))

    def _new(self, edge: tuple[Ranges, int] | None, behind: list[int], required: Place | None = None) -> int:
        if len(self._ranges) >= _MOST_STATES:
            raise UnprovenError("a pattern of too many states")
        self._ranges.append(edge)
        self._free.append((required, behind))
        return len(self._ranges) - 1

    def _states(self, node: Node, behind: int) -> int:
        """Adds the states of a node that `behind` follows; the first of them."""
        match node:
            case Characters(ranges):
                return self._new((ranges, behind), [])
            case Position(place):
                return self._new(None, [behind], place)
            case Sequence(parts):
                for part in reversed(parts):
                    behind = self._states(part, behind)
                return behind
            case Choice(branches):
                return self._new(None, [self._states(branch, behind) for branch in branches])
            case Repeat(part, least, most):
                if most is None:
                    loop = self._new(None, [behind])
                    self._free[loop][1].append(self._states(part, loop))
                    behind = loop
                else:
                    last = behind
                    for _ in range(most - least):
                        behind = self._new(None, [last, self._states(part, behind)])
                for _ in range(least):
                    behind = self._states(part, behind)
                return behind
            case Group(part):
                return self._states(part, behind)
            case Lookahead():
                raise UnprovenError("lookahead beside repeated choices")
