"""Partials that a worker keeps from order to order of views, for as long as the lane and the worker live.

They are made of what the log says alone: whoever lacks them makes them again from its tuples, so none are stored and none travel.
"""

from __future__ import annotations

from collections import OrderedDict

from penstock.operators.deadlines.pane_partials import PanePartials

#: by one name: larger ones are not kept, bytes
_MOST_OF_NAME = 8 << 20
#: of a worker; those that were used last remain, bytes
_MOST = 64 << 20


class KeptPartials:
    """Partials of views by name; one thread uses it.

    Args:
        most_of_name: partials that take more are not kept, bytes.
        most: all together, bytes.
    """

    def __init__(self, most_of_name: int = _MOST_OF_NAME, most: int = _MOST) -> None:
        self._most_of_name = most_of_name
        self._most = most
        #: those used last behind, and their bytes; None: they were too large
        self._kept: OrderedDict[str, tuple[PanePartials | None, int]] = OrderedDict()

    def of(self, name: str) -> PanePartials | None:
        """The partials by a name; None where there are none."""
        found, _ = self._kept.get(name, (None, 0))
        if found is not None:
            self._kept.move_to_end(name)
        return found

    def is_too_large(self, name: str) -> bool:
        """Whether those by a name were not kept for their size."""
        return name in self._kept and self._kept[name][0] is None

    def put(self, name: str, partials: PanePartials) -> None:
        """Keeps partials in place of those before, unless they are too large."""
        size = partials.content.nbytes
        self._kept[name] = (partials, size) if size <= self._most_of_name else (None, 0)
        self._kept.move_to_end(name)
        # an order may be abandoned anywhere, so the total is not carried on
        while sum(each for _, each in self._kept.values()) > self._most:
            self._kept.popitem(last=False)


#: of this worker
KEPT = KeptPartials()
