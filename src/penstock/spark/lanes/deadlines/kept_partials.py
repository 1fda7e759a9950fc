"""Partials that a worker keeps from order to order of a view, for as long as the lane and the worker live.

They are made of what the log says alone: whoever lacks them makes them again from its tuples, so none are stored and none travel.
"""

from __future__ import annotations

from collections import OrderedDict

from penstock.operators.deadlines.pane_partials import PanePartials

#: of a view: larger ones are not kept, bytes
_MOST_OF_VIEW = 8 << 20
#: of a worker; those that were used last remain, bytes
_MOST = 64 << 20


class KeptPartials:
    """Partials of views; one thread uses it.

    Args:
        most_of_view: partials of a view that take more are not kept, bytes.
        most: all together, bytes.
    """

    def __init__(self, most_of_view: int = _MOST_OF_VIEW, most: int = _MOST) -> None:
        self._most_of_view = most_of_view
        self._most = most
        #: by lane and view, those used last behind, and their bytes; None: they were too large
        self._kept: OrderedDict[tuple[str, int], tuple[PanePartials | None, int]] = OrderedDict()

    def of(self, lane: str, view: int) -> PanePartials | None:
        """The partials of a view; None where there are none."""
        found, _ = self._kept.get((lane, view), (None, 0))
        if found is not None:
            self._kept.move_to_end((lane, view))
        return found

    def is_too_large(self, lane: str, view: int) -> bool:
        """Whether those of a view were not kept for their size."""
        return (lane, view) in self._kept and self._kept[lane, view][0] is None

    def put(self, lane: str, view: int, partials: PanePartials) -> bool:
        """Keeps partials in place of those before; whether they are kept."""
        size = partials.content.nbytes
        is_kept = size <= self._most_of_view
        self._kept[lane, view] = (partials, size) if is_kept else (None, 0)
        self._kept.move_to_end((lane, view))
        # an order may be abandoned anywhere, so the total is not carried on
        while sum(each for _, each in self._kept.values()) > self._most:
            self._kept.popitem(last=False)
        return is_kept


#: of this worker
KEPT = KeptPartials()
