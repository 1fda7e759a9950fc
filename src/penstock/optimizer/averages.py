"""Averages of what was measured, over the newest time: sums that fade or that leave a window, and their ratios."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np
import numpy.typing as npt

#: what is summed: numbers or arrays by name
Sums = Mapping[Hashable, float | npt.NDArray[np.float64]]


class Averaging(StrEnum):
    """How old measurements lose their weight."""

    #: by half after each `seconds`
    EXPONENTIAL = "exponential"
    #: at once when they are `seconds` old
    WINDOWED = "windowed"


@dataclass(frozen=True, slots=True)
class AveragingSettings:
    """How measurements are averaged.

    Attributes:
        kind: how old ones lose their weight.
        seconds: half-life or window.

    Raises:
        ValueError: seconds is not above 0.
    """

    kind: Averaging = Averaging.EXPONENTIAL
    seconds: float = 3.0

    def __post_init__(self) -> None:
        if self.seconds <= 0:
            raise ValueError(f"seconds must be above 0, got {self.seconds}")


class FadingSums:
    """Sums over the newest time. Averages are ratios of them, so that a period counts for as much as it measured.

    Args:
        settings: which time.
    """

    def __init__(self, settings: AveragingSettings) -> None:
        self._settings = settings
        self._sums: dict[Hashable, float | npt.NDArray[np.float64]] = {}
        self._periods: deque[tuple[float, Sums]] = deque()

    def add(self, seconds: float, measured: Sums) -> None:
        """Takes what a period measured that has lasted so many seconds."""
        if self._settings.kind is Averaging.EXPONENTIAL:
            kept = 0.5 ** (seconds / self._settings.seconds)
            self._sums = {name: each * kept for name, each in self._sums.items()}
        else:
            self._periods.append((seconds, measured))
            while len(self._periods) > 1 and sum(
                length for length, _ in self._periods
            ) > self._settings.seconds * (1 + 1e-9):
                self._periods.popleft()
            self._sums = {}
            for _, earlier in list(self._periods)[:-1]:
                self._include(earlier)
        self._include(measured)

    def document(self) -> list[list[Any]]:
        """The sums as JSON: [name, number or arrays of numbers] pairs; names are texts, numbers and tuples of such."""
        return [
            [_listed(name), each.tolist() if isinstance(each, np.ndarray) else each]
            for name, each in self._sums.items()
        ]

    def restore(self, document: list[list[Any]]) -> None:
        """Takes the sums of an earlier life; only for sums that fade.

        Args:
            document: see `document`.
        """
        for name, each in document:
            self._sums[_named(name)] = np.asarray(each) if isinstance(each, list) else float(each)

    def sum(self, name: Hashable) -> float:
        """A sum of numbers; 0 of what was never measured."""
        return float(self._sums.get(name, 0.0))

    def names(self) -> tuple[Hashable, ...]:
        """Of all that was measured."""
        return tuple(self._sums)

    def array(self, name: Hashable) -> npt.NDArray[np.float64] | None:
        """A sum of arrays; None of what was never measured."""
        found = self._sums.get(name)
        return None if found is None else np.asarray(found)

    def ratio(self, name: Hashable, of: Hashable) -> float:
        """A sum divided by another; 0 where that is 0."""
        whole = self.sum(of)
        return self.sum(name) / whole if whole else 0.0

    def _include(self, measured: Sums) -> None:
        for name, each in measured.items():
            self._sums[name] = self._sums.get(name, 0.0) + each


def _listed(name: Hashable) -> Any:
    return [_listed(each) for each in name] if isinstance(name, tuple) else name


def _named(name: Any) -> Hashable:
    return tuple(_named(each) for each in name) if isinstance(name, list) else name
