"""Who hears whom: unit disks of reception and of sensing, as bit sets."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


class Topology:
    """Distances of nodes at a moment.

    Attributes:
        reach: by node, a bit for each node that receives its frames.
        sense: by node, a bit for each node that senses its transmissions.
        distance: metres, by node and node.
    """

    def __init__(self, range_metres: float, sensing_metres: float) -> None:
        self._range = range_metres
        self._sensing = sensing_metres
        self.reach: list[int] = []
        self.sense: list[int] = []
        self.distance: list[list[float]] = []

    def move(self, positions: Floats) -> None:
        """Takes positions, (nodes, 2), in metres. The lists are new ones: who keeps the old ones keeps that moment."""
        away = positions[:, None, :] - positions[None, :, :]
        distance = np.hypot(away[:, :, 0], away[:, :, 1])
        np.fill_diagonal(distance, np.inf)
        self.reach = _bits(distance <= self._range)
        self.sense = _bits(distance <= self._sensing)
        self.distance = distance.tolist()


def _bits(matrix: npt.NDArray[np.bool_]) -> list[int]:
    packed = np.packbits(matrix, axis=1, bitorder="little")
    return [int.from_bytes(row.tobytes(), "little") for row in packed]


def members(bits: int) -> Iterator[int]:
    """The nodes of a bit set, ascending."""
    while bits:
        lowest = bits & -bits
        yield lowest.bit_length() - 1
        bits ^= lowest
