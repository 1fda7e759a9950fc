"""Baselines for evaluation sequences: the best and worst fixed order, and ticket routing."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from penstock.kernels.asc import Codes
from penstock.operators.selection.asc import AscIndex
from penstock.plan.arrangement import Arrangement, ArrangementKind
from penstock_lab.simulate import selection_kernels as kernels

#: 2^24 sets of ASCs take 400 MB.
_MOST_ASCS = 24


@dataclass(frozen=True, slots=True, eq=False)
class FixedOrder:
    """A fixed order and its cost on given tuples in ASC evaluations."""

    arrangement: Arrangement
    evaluations: int


def extreme_orders(index: AscIndex, codes: Codes) -> tuple[FixedOrder, FixedOrder]:
    """The best and the worst of all fixed orders on given tuples, exactly.

    The tuples alive after a set of ASCs do not depend on their order, so a shortest and a longest path
    over the 2^n sets replace the n! orders.

    Args:
        index: the ASCs.
        codes: uint32[n, tuples], region codes.

    Raises:
        ValueError: more than 24 ASCs.
    """
    attributes = np.asarray(index.attributes, np.int64)
    if len(attributes) > _MOST_ASCS:
        raise ValueError(f"at most {_MOST_ASCS} ASCs can be ordered exhaustively, got {len(attributes)}")
    alive = kernels.alive_after_subsets(index.tables, codes, attributes)
    best, worst = (_order(attributes, *kernels.extreme_costs(alive, worst)) for worst in (False, True))
    return best, worst


def _order(
    attributes: npt.NDArray[np.int64], cost: npt.NDArray[np.int64], last: npt.NDArray[np.int64]
) -> FixedOrder:
    order: list[int] = []
    members = len(cost) - 1
    while members:
        bit = int(last[members])
        order.append(int(attributes[bit]))
        members &= ~(1 << bit)
    return FixedOrder(Arrangement(ArrangementKind.FIXED, tuple(reversed(order))), int(cost[-1]))


def route_by_tickets(
    index: AscIndex, codes: Codes, window: int = 1000, seed: int = 0
) -> npt.NDArray[np.int32]:
    """Selection modules each tuple visits under Eddies' lottery scheduling.

    Every ASC is a selection module; a tuple leaves when no query is left for it. Credits are kept by
    windows (banked and escrow tickets), so that routing adapts.

    Source: Avnur & Hellerstein, *Eddies: continuously adaptive query processing*, sections 4.2, 4.3.

    Args:
        index: the ASCs.
        codes: uint32[n, tuples], region codes.
        window: tuples a window.
        seed: of the lottery.
    """
    attributes = np.asarray(index.attributes, np.int64)
    counts: npt.NDArray[np.int32] = kernels.route_by_lottery(index.tables, codes, attributes, window, seed)
    return counts
