"""Streams whose tuples come late, as the log of their stream brings them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from penstock.operators.deadlines.creation import Brought
from penstock.operators.deadlines.instances import Tuples


@dataclass(frozen=True)
class Disordered:
    """A stream in order of arrival, entry by entry, as its log brings it.

    Attributes:
        brought: by entry.
    """

    brought: list[Brought]

    @classmethod
    def drawn(
        cls, seed: int, entries: int, rows: int, delay: Callable[[np.random.Generator, int], np.ndarray]
    ):  # type: ignore[no-untyped-def]
        """Entries of so many tuples, one a microsecond, which come late by what `delay` draws of them."""
        rng = np.random.default_rng(seed)
        total = entries * rows
        due = np.arange(total, dtype=np.int64)
        order = np.argsort(due + delay(rng, total), kind="stable")
        times = due[order]
        keys = pa.array(np.where(rng.random(total) < 0.5, "a", "b"))
        values = pa.array(rng.exponential(1.0, total))
        newest: int | None = None
        found = []
        for entry in range(entries):
            own = times[entry * rows : (entry + 1) * rows]
            before = np.maximum.accumulate(own if newest is None else np.append(newest, own)[:-1])
            delays = np.maximum(before - own, 0)
            newest = int(max(own.max(), -1 if newest is None else newest))
            columns = pa.table({"k": keys, "x": values}).slice(entry * rows, rows)
            tuples = Tuples(columns, own, np.full(rows, entry))
            found.append(Brought(entry, tuples, newest, newest, (int(delays.max()),)))
        return cls(found)


def few_late(rng: np.random.Generator, total: int) -> np.ndarray:
    """A fifth of the tuples come late."""
    return np.where(rng.random(total) < 0.2, rng.integers(0, 120, total), 0)


def growing(rng: np.random.Generator, total: int) -> np.ndarray:
    """A fifth of the tuples come late, ever later."""
    return np.where(rng.random(total) < 0.2, rng.integers(0, 30, total) * (1 + np.arange(total) // 2_000), 0)
