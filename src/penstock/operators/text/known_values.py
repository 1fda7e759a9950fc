"""Signatures of values that were seen before, in two generations of bounded size."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from penstock.kernels.text_tables import enter, look_up
from penstock.operators.text.columns import Texts

Signatures = npt.NDArray[np.uint32]

#: bytes of an entry beside its text: a hash, where it begins, its signature, two slots
_ENTRY_BYTES = 8 + 8 + 4 + 2 * 4
_FIRST_ENTRIES = 1024
#: entered but without a signature yet; no signature reaches it
_PENDING = 0xFFFFFFFF


class _Generation:
    """Entries numbered in their order, with room for some of them and for some bytes of text."""

    def __init__(self, entries: int, room: int, before: _Generation | None = None) -> None:
        self.slots = np.full(2 * entries, -1, np.int32)
        self.hashes = np.empty(entries, np.uint64)
        self.starts = np.zeros(entries + 1, np.int64)
        self.signatures = np.empty(entries, np.uint32)
        self.pool = np.empty(room, np.uint8)
        self.entries = 0
        if before is not None:
            self.entries = count = before.entries
            self.hashes[:count] = before.hashes[:count]
            self.starts[: count + 1] = before.starts[: count + 1]
            self.signatures[:count] = before.signatures[:count]
            self.pool[: before.starts[count]] = before.pool[: before.starts[count]]
            enter(self.slots, self.hashes, count)

    @property
    def nbytes(self) -> int:
        return self.pool.nbytes + len(self.hashes) * _ENTRY_BYTES


class KnownValues:
    """A cache from a value's bytes to its signature.

    The young generation grows up to half the budget. Where it is full it becomes the old one, and the old one is dropped; what is
    found in the old one moves to the young one.

    Args:
        budget: bytes of both generations.
    """

    def __init__(self, budget: int) -> None:
        self._most_entries = 1 << max(4, (budget // 4 // (_ENTRY_BYTES + 32)).bit_length())
        self._most_room = max(1024, budget // 2 - self._most_entries * _ENTRY_BYTES)
        self._young = self._empty()
        self._old = self._empty()

    @property
    def nbytes(self) -> int:
        """Bytes of both generations."""
        return self._young.nbytes + self._old.nbytes

    def signatures(self, texts: Texts, of_new: Callable[[Texts], Signatures]) -> tuple[Signatures, int]:
        """The signatures of values, and how many were not known: distinct ones, but for very long values.

        Args:
            texts: the values.
            of_new: the signatures of values that are not known.
        """
        signatures = np.empty(len(texts), np.uint32)
        entry_of, fresh = np.empty(len(texts), np.int32), np.empty(len(texts), np.int32)
        done = news = 0
        while done < len(texts):
            young, old, begin = self._young, self._old, done
            done, count, young.entries = look_up(
                np.uint64(texts.address), texts.begins, texts.ends, begin, self._most_room // 16,
                young.slots, young.hashes, young.starts, young.pool, young.signatures, young.entries,
                old.slots, old.hashes, old.starts, old.pool, old.signatures, _PENDING, entry_of, fresh,
            )  # fmt: skip
            new = fresh[:count]
            found = of_new(texts.take(new))
            entries = entry_of[new]
            young.signatures[entries[entries >= 0]] = found[entries >= 0]
            signatures[begin:done] = young.signatures[entry_of[begin:done]]
            signatures[new] = found
            news += count
            if done < len(texts):
                self._make_room()
        return signatures, news

    def _empty(self) -> _Generation:
        return _Generation(min(_FIRST_ENTRIES, self._most_entries), min(32 * _FIRST_ENTRIES, self._most_room))

    def _make_room(self) -> None:
        young = self._young
        entries, room = len(young.hashes), len(young.pool)
        if young.entries == entries < self._most_entries:
            self._young = _Generation(2 * entries, room, young)
        elif young.entries < entries and room < self._most_room:
            self._young = _Generation(entries, min(4 * room, self._most_room), young)
        else:
            self._old, self._young = young, self._empty()
