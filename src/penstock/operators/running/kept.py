"""Rows of running views in one pane, with the pieces that they are stored in."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from hashlib import blake2b
from types import MappingProxyType

import pyarrow as pa

from penstock.operators.windows.content import Content, Merging
from penstock.operators.windows.pane import Pane, PaneTable


class KeptRows:
    """A pane whose changes are stored in pieces.

    Args:
        pieces: what is stored, as `take_change` gave it; none: there are no rows.
        known: tables of pieces that are decoded already, see `pieces`.
    """

    def __init__(
        self, pieces: Sequence[bytes] = (), known: Mapping[bytes, PaneTable] = MappingProxyType({})
    ) -> None:
        digests = map(_digest, pieces)
        self._stored = [
            (digest, known.get(digest) or PaneTable.stored(Content.loaded(piece)))
            for digest, piece in zip(digests, pieces, strict=True)
        ]
        self._pane = Pane.of(table for _, table in self._stored) if pieces else Pane()
        self._is_changed = False

    @property
    def rows(self) -> int:
        """How many there are; of a group that lies in several levels more than one."""
        return self._pane.rows

    @property
    def content(self) -> Content | None:
        """All rows; None where there are none."""
        return self._pane.content.without_arrivals() if self._pane.rows else None

    def of_groups(self, groups: pa.Table, keys: Sequence[str]) -> Content | None:
        """The rows of some groups, and seldom some of others; None where there are no rows at all."""
        return self._pane.of_groups(groups, keys).without_arrivals() if self._pane.rows else None

    def append(
        self,
        content: Content,
        arrival: int,
        parts: Merging,
        keys: Sequence[str],
        merge: Callable[[Content], Content] | None = None,
    ) -> None:
        """Adds rows, of which there are some; the other arguments as of `Pane.merge_arrivals`."""
        self._is_changed = True
        self._pane.append(content.arrived(arrival, keys), arrival)
        self._pane.merge_arrivals(parts, keys, (), merge)

    def clear(self) -> None:
        """Forgets all rows."""
        self._is_changed = True
        self._pane = Pane()

    @property
    def pieces(self) -> Mapping[bytes, PaneTable]:
        """The tables of the stored pieces by the digests of these, with their indexes."""
        return dict(self._stored)

    def take_change(self, parts: Merging, keys: Sequence[str]) -> tuple[int, list[bytes]] | None:
        """What to store since the last call: how many pieces stay, and those that follow them; None: nothing has changed."""
        if not self._is_changed:
            return None
        self._is_changed = False
        change = self._pane.change(parts, keys)
        pieces = [piece.stored() for piece in change.pieces]
        tables = self._pane.take_pieces(change.kept)
        self._stored = self._stored[: change.kept]
        self._stored += [(_digest(piece), table) for piece, table in zip(pieces, tables, strict=True)]
        return change.kept, pieces


def _digest(piece: bytes) -> bytes:
    return blake2b(piece, digest_size=16).digest()
