"""What a slack policy remembers of the newest final windows."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]

_NOTHING = np.zeros(0, np.int64)


class SlackMemory:
    """The required slacks of final windows.

    Args:
        debt: violations so far beyond the share delta, in windows, half of them forgotten every 20 / delta windows; below zero at
            most by what chance may add.
        required: int64, required slacks of the windows' groups, those of a window together.
        sizes: int64[windows], how many of them each window has.
        settled: int64[windows], see `WindowOutcome`.
    """

    def __init__(
        self, debt: float = 0.0, required: Ints = _NOTHING, sizes: Ints = _NOTHING, settled: Ints = _NOTHING
    ) -> None:
        self.debt = debt
        self._required, self._sizes, self._settled = required, sizes, settled
        #: windows that have been added since: arrays are put together when somebody looks at them
        self._added: list[tuple[Ints, int]] = []
        self._count = len(sizes)
        self._is_zero = not (required.any() or settled.any())

    def add(self, required: Ints, settled: int, most: int) -> None:
        """Remembers a window, and no more than so many; always as many for one memory."""
        self._added.append((required, settled))
        self._count = min(self._count + 1, most)

    def __len__(self) -> int:
        """How many windows are remembered."""
        return self._count

    @property
    def required(self) -> Ints:
        """int64, required slacks of the windows' groups, those of a window together."""
        self._put_together()
        return self._required

    @property
    def sizes(self) -> Ints:
        """int64[windows], how many of them each window has."""
        self._put_together()
        return self._sizes

    @property
    def settled(self) -> Ints:
        """int64[windows], see `WindowOutcome`."""
        self._put_together()
        return self._settled

    @property
    def is_zero(self) -> bool:
        """Whether no window required any slack, or settled later than at its end."""
        self._put_together()
        return self._is_zero

    def _put_together(self) -> None:
        if not self._added:
            return
        required, settled = zip(*self._added, strict=True)
        sizes = np.append(self._sizes, [len(each) for each in required])
        self._sizes = sizes[len(sizes) - self._count :]
        groups = np.concatenate([self._required, *required])
        self._required = groups[len(groups) - int(self._sizes.sum()) :]
        self._settled = np.append(self._settled, np.array(settled, np.int64))[len(sizes) - self._count :]
        self._is_zero = not (self._required.any() or self._settled.any())
        self._added.clear()
