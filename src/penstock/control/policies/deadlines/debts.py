"""Lost windows whose exact answer still comes, late: which are owed, and which is worked out next."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class OwedWindow:
    """A window that was shed or missed, of a view that asks for late answers.

    Attributes:
        start, end: of the window, microseconds; windows of a view are told apart by their ends.
        created: when the instance was, seconds since the epoch.
    """

    start: int
    end: int
    created: float


class Debts:
    """What is owed.

    Views take turns, and of each the newest window is next: what was lost last is worth most. Where more windows of a view are
    owed than may be, the oldest is given up: under an overload that lasts it would wait for ever, and its tuples with it.

    Args:
        most: windows of a view that are owed at the most.
        owed: by number of a view, what it is owed.
    """

    def __init__(self, most: int, owed: Mapping[int, Iterable[OwedWindow]]) -> None:
        self._most = most
        #: by view in order of turns, the windows by their ends
        self._owed = {view: {each.end: each for each in windows} for view, windows in owed.items()}
        #: what is being worked out: views and ends
        self._taken: set[tuple[int, int]] = set()

    def __len__(self) -> int:
        return sum(map(len, self._owed.values()))

    def of(self, view: int) -> tuple[OwedWindow, ...]:
        """The windows that are owed of a view, those that are being worked out among them, the oldest first."""
        owed = self._owed.get(view, {})
        return tuple(owed[end] for end in sorted(owed))

    def owe(self, view: int, window: OwedWindow) -> list[OwedWindow]:
        """Takes a window in; gives those that are given up, as more are owed than may be: none that is being worked out."""
        owed = self._owed.setdefault(view, {})
        owed[window.end] = window
        given_up = self._waiting(view)[: max(0, len(owed) - self._most)]
        for each in given_up:
            del owed[each.end]
        return given_up

    def take(self) -> tuple[int, OwedWindow] | None:
        """The next window and its view's number: it is being worked out from now on; None where there is none."""
        for view in list(self._owed):
            if waiting := self._waiting(view):
                self._owed[view] = self._owed.pop(view)
                self._taken.add((view, waiting[-1].end))
                return view, waiting[-1]
        return None

    def put_back(self, view: int, window: OwedWindow) -> None:
        """Says that a window is not being worked out any more, and owed still."""
        self._taken.remove((view, window.end))

    def settle(self, view: int, window: OwedWindow) -> None:
        """Says that a window that was being worked out is owed no more."""
        self.put_back(view, window)
        del self._owed[view][window.end]

    def _waiting(self, view: int) -> list[OwedWindow]:
        return [each for each in self.of(view) if (view, each.end) not in self._taken]
