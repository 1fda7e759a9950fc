"""Which side answers a batch, the index or the ASCs: decided by measured time."""

from __future__ import annotations

from typing import Literal

Side = Literal["index", "asc"]

#: a side that is not in use is tried again once the time spent since is this many times its last cost
PATIENCE = 50
#: time spent before the ASCs are built and tried at all
FIRST_TRIAL_NS = 500_000_000
#: tuples of a trial of the ASCs
TRIAL_ROWS = 1 << 13
#: a trial bears the fixed costs of a batch on few tuples: ASCs that take so many times the index's time are
#: given a batch
PROMISING = 2.5
#: weight of the newest measurement when it is slower than what is known
SLOWER_WEIGHT = 0.3


class StrategyChoice:
    """Keeps what either side costs for batches of a size class (a power of two) and says which to use.

    The ASCs are tried on a few tuples beside the index first, as they may be far dearer; where they promise
    something they answer a batch. The index is tried again on a whole batch.
    """

    def __init__(self) -> None:
        self._ns_a_row: dict[Side, dict[int, float]] = {"index": {}, "asc": {}}
        self._spent_ns = 0.0
        self._trial_due_ns = float(FIRST_TRIAL_NS)
        self._index_due_ns: dict[int, float] = {}
        self._is_promising = False

    def choose(self, rows: int) -> Side:
        """The side that should answer a batch of `rows` tuples."""
        if self._is_promising:
            return "asc"
        size = rows.bit_length()
        asc, index = self.ns_a_row("asc", rows), self.ns_a_row("index", rows)
        if asc is None or index is None or asc >= index:
            return "index"
        return "index" if self._spent_ns >= self._index_due_ns[size] else "asc"

    def ns_a_row(self, side: Side, rows: int) -> float | None:
        """What a side takes for a tuple of a batch of such a size, ns; None where that is not known."""
        return self._ns_a_row[side].get(rows.bit_length())

    @property
    def trial_due(self) -> bool:
        """Whether to try the ASCs on a few tuples of a batch the index has answered."""
        return self._spent_ns >= self._trial_due_ns

    def answered(self, side: Side, rows: int, ns: int, *, is_usual: bool = True) -> None:
        """Takes the time that a side took for a batch.

        Args:
            side: the side.
            rows: tuples of the batch.
            ns: time, encoding included.
            is_usual: whether the next batch would take as long: the index has not laid itself out anew.
        """
        size = rows.bit_length()
        if is_usual:
            known = self._ns_a_row[side]
            known[size] = _smoothed(known.get(size), ns / max(rows, 1))
        self._spent_ns += ns
        if side == "asc":
            if self._is_promising:
                self._is_promising = False
                self._trial_due_ns = self._spent_ns + PATIENCE * ns
        else:
            self._index_due_ns[size] = self._spent_ns + PATIENCE * ns

    def asc_rearranged(self) -> None:
        """What the ASCs cost by the sequence before says little of this one: they are tried again soon."""
        self._trial_due_ns = min(self._trial_due_ns, self._spent_ns)

    def asc_tried(self, rows: int, few: int, ns: int, cost_ns: int) -> None:
        """Takes the time of a trial.

        Args:
            rows: tuples of the batch beside which they were tried.
            few: tuples evaluated.
            ns: what evaluating them took.
            cost_ns: what the trial cost in all, tables built for it included.
        """
        index = self.ns_a_row("index", rows)
        self._is_promising = index is not None and ns / max(few, 1) < PROMISING * index
        self._spent_ns += cost_ns
        self._trial_due_ns = self._spent_ns + PATIENCE * cost_ns


def _smoothed(known: float | None, measured: float) -> float:
    if known is None or measured < known:
        return measured
    return known + SLOWER_WEIGHT * (measured - known)
