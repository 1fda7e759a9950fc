"""Arrangements: in which order the attribute selection constructs (ASCs) of a stream are evaluated."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import numpy.typing as npt

#: Target of a region that owns no micro-arrow.
NO_ARROW = -1


class ArrangementKind(StrEnum):
    """How an arrangement was found."""

    #: given, not measured
    FIXED = "fixed"
    #: one measured order for all tuples
    MACRO = "macro"
    #: a measured order, and micro-arrows where a region knows better
    HYBRID = "hybrid"


@dataclass(frozen=True, slots=True, eq=False)
class Arrangement:
    """An evaluation sequence of ASCs.

    After a region that owns a micro-arrow to an unevaluated ASC, that ASC comes next; else the first
    unevaluated ASC of the macro-sequence.

    Source: Lee & Lee, sections 4.2, 4.3 and 5.1.

    Attributes:
        kind: how it was found.
        order: the macro-sequence: indices of all p-attributes that some term uses.
        micro: int16[codes], one array a p-attribute: the ASC each region's micro-arrow points to, or
            `NO_ARROW`. Empty tuple: no micro-arrows at all.
    """

    kind: ArrangementKind
    order: tuple[int, ...]
    micro: tuple[npt.NDArray[np.int16], ...] = ()

    def __post_init__(self) -> None:
        if len(set(self.order)) != len(self.order):
            raise ValueError(f"an arrangement names every ASC once, got {self.order}")

    @property
    def micro_arrows(self) -> int:
        """Number of regions that own a micro-arrow."""
        return sum(int(np.count_nonzero(targets != NO_ARROW)) for targets in self.micro)

    def same_as(self, other: Arrangement) -> bool:
        """Whether every tuple takes the same way through both."""
        if self.order != other.order or self.micro_arrows != other.micro_arrows:
            return False
        if not self.micro_arrows:
            return True
        return all(np.array_equal(mine, its) for mine, its in zip(self.micro, other.micro, strict=True))

    def fields(self) -> dict[str, object]:
        """A compact JSON form: kind, order and the number of micro-arrows."""
        return {"kind": self.kind.value, "order": list(self.order), "micro_arrows": self.micro_arrows}
