"""Which side answers a batch, the index or the ASCs: decided by measured time."""

from __future__ import annotations

from typing import Literal

Side = Literal["index", "asc"]

#: a side that is not in use is tried again once the time spent since is this many times its last cost
PATIENCE = 50
#: time spent before the ASCs are built and tried at all
FIRST_TRIAL_NS = 500_000_000
#: tuples of a trial of the ASCs
TRIAL_ROWS = 256
#: weight of the newest measurement when it is slower than what is known
SLOWER_WEIGHT = 0.3


class StrategyChoice:
    """Keeps what either side costs and says which to use.

    The index costs much the same for any batch of a size class (a power of two), the ASCs so much a
    tuple; so the ASCs are tried on a few tuples beside the index, the index on a whole batch.
    """

    def __init__(self) -> None:
        self._asc_ns_a_row: float | None = None
        self._index_ns: dict[int, float] = {}
        self._spent_ns = 0.0
        self._trial_due_ns = float(FIRST_TRIAL_NS)
        self._index_due_ns: dict[int, float] = {}

    def choose(self, rows: int) -> Side:
        """The side that should answer a batch of `rows` tuples."""
        size = rows.bit_length()
        index_ns = self._index_ns.get(size)
        if self._asc_ns_a_row is None or index_ns is None or self._asc_ns_a_row * rows >= index_ns:
            return "index"
        return "index" if self._spent_ns >= self._index_due_ns[size] else "asc"

    @property
    def trial_due(self) -> bool:
        """Whether to try the ASCs on a few tuples of a batch the index has answered."""
        return self._spent_ns >= self._trial_due_ns

    def index_answered(self, rows: int, ns: int) -> None:
        """Takes the time the index took for a batch."""
        size = rows.bit_length()
        self._index_ns[size] = _smoothed(self._index_ns.get(size), ns)
        self._spent_ns += ns
        self._index_due_ns[size] = self._spent_ns + PATIENCE * ns

    def asc_answered(self, rows: int, ns: int) -> None:
        """Takes the time the ASCs took for a batch."""
        self._spent_ns += ns
        self._asc_ns_a_row = _smoothed(self._asc_ns_a_row, ns / max(rows, 1))

    def asc_rearranged(self) -> None:
        """What the ASCs cost by the sequence before says little of this one: they are tried again soon."""
        self._trial_due_ns = min(self._trial_due_ns, self._spent_ns)

    def asc_tried(self, rows: int, ns: int, cost_ns: int) -> None:
        """Takes the time of a trial.

        Args:
            rows: tuples evaluated.
            ns: what evaluating them took.
            cost_ns: what the trial cost in all, tables built for it included.
        """
        self._asc_ns_a_row = _smoothed(self._asc_ns_a_row, ns / max(rows, 1))
        self._trial_due_ns = self._spent_ns + PATIENCE * cost_ns


def _smoothed(known: float | None, measured: float) -> float:
    if known is None or measured < known:
        return measured
    return known + SLOWER_WEIGHT * (measured - known)
