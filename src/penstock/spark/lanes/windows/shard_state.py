"""The state of a shard: immutable files, each with what one cut has changed.

A file has an entry for each pane that the cut changed: how many of the pane's older pieces stay, and the pieces that follow them; no
piece at all means that the pane is gone. Files are read the oldest first. A new file takes in the newest ones before it as long as
these are not much larger, so that there are few, as in a log-structured merge tree (O'Neil et al., 1996).

A file is: two little-endian integers of eight bytes, the length and the CRC-32 of the head; the head; the pieces, each at a multiple
of eight bytes.
"""

from __future__ import annotations

import mmap
import struct
import uuid
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache

import pyarrow as pa

from penstock.errors import DamagedError
from penstock.operators.windows.stored import packed, unpacked
from penstock.spark.storage.store_paths import StorePath, name_below, opened
from penstock.stores.files import Files

_PREAMBLE = struct.Struct("<QQ")
_ALIGNMENT = 8
#: a file takes in the one before it that has up to so many times its bytes
_RATIO = 2
#: a file has about so many bytes beside scalars and pieces
_HEAD_BYTES = 2_048
#: heads that stay decoded in a worker
_KEPT_HEADS = 64

#: operator, start of the pane
Place = tuple[int, int]


@dataclass(frozen=True, slots=True)
class StateFile:
    """A file of a shard's state.

    Attributes:
        name: in the folder of the stream's states.
        size: bytes.
    """

    name: str
    size: int


@dataclass(frozen=True, slots=True, eq=False)
class StoredChange:
    """How a pane differs from what older files have.

    Attributes:
        kept: so many of its older pieces stay.
        pieces: those that follow them; none: the pane is gone.
    """

    kept: int
    pieces: Sequence[bytes]

    def after(self, older: StoredChange) -> StoredChange:
        """Return both changes as one."""
        if self.kept < older.kept:
            return self
        return StoredChange(older.kept, [*older.pieces[: self.kept - older.kept], *self.pieces])


Changes = Mapping[Place, StoredChange]


class StateFiles:
    """The files of one shard's state, as a worker reads and writes them.

    Args:
        store: of the checkpoint.
        root: the folder that the store is of.
        folder: the folder of the stream's states.
    """

    def __init__(self, store: Files, root: StorePath, folder: StorePath) -> None:
        self._store = store
        self._root = root
        self._folder = folder

    def scalars(self, file: StateFile) -> bytes:
        """Return everything but the panes, as the newest file has it.

        Raises:
            DamagedError: the file is missing or damaged.
        """
        return _head(self._folder / file.name, file).scalars

    def places(self, files: Iterable[StateFile]) -> set[Place]:
        """Return the panes that some files have entries of."""
        return {place for file in files for place in _head(self._folder / file.name, file).panes}

    def panes(self, files: Sequence[StateFile], wanted: set[Place]) -> dict[Place, Sequence[bytes]]:
        """Read panes.

        Args:
            files: the oldest first.
            wanted: which.

        Returns:
            Their pieces; what is gone is left out.

        Raises:
            DamagedError: a file is missing or damaged.
        """
        found = self._together(files, wanted)
        return {place: change.pieces for place, change in found.items() if change.pieces}

    def write(
        self, before: Sequence[StateFile], stem: str, changes: Changes, scalars: bytes
    ) -> list[StateFile]:
        """Store the state after a cut, durable on return.

        Args:
            before: the files of the state before, the oldest first. They stay as they are.
            stem: begins the file's name: the cut and the shard.
            changes: by pane.
            scalars: everything but the panes.

        Returns:
            The files of the state, the oldest first.

        Raises:
            OSError: the store failed.
            DamagedError: a file is missing or damaged.
        """
        kept = list(before)
        size = _HEAD_BYTES + len(scalars)
        size += sum(len(piece) for change in changes.values() for piece in change.pieces)
        taken: list[StateFile] = []
        while kept and kept[-1].size <= _RATIO * size:
            taken.insert(0, kept.pop())
            size += taken[0].size
        merged = dict(self._together(taken, None)) if taken else {}
        for place, change in changes.items():
            older = merged.get(place)
            merged[place] = change if older is None else change.after(older)
        if not kept:
            merged = {place: change for place, change in merged.items() if change.pieces}
        content = _encoded(merged, scalars)
        name = f"{stem}-{uuid.uuid4().hex[:8]}.state"
        self._store.put(name_below(self._root, self._folder / name), memoryview(content))
        return [*kept, StateFile(name, len(content))]

    def _together(self, files: Sequence[StateFile], wanted: set[Place] | None) -> dict[Place, StoredChange]:
        found: dict[Place, StoredChange] = {}
        for file in files:
            path = self._folder / file.name
            head = _head(path, file)
            places = head.panes.keys() if wanted is None else head.panes.keys() & wanted
            if not places:
                continue
            with _mapped(path) as content:
                for place in places:
                    change = head.change(place, content, path)
                    older = found.get(place)
                    found[place] = change if older is None else change.after(older)
        return found


@dataclass(frozen=True, slots=True, eq=False)
class _Pieces:
    """Where a pane's pieces lie in a file: offset of the first, their sizes and CRC-32s."""

    kept: int
    offset: int
    sizes: Sequence[int]
    sums: Sequence[int]


@dataclass(frozen=True, slots=True, eq=False)
class _Head:
    scalars: bytes
    panes: Mapping[Place, _Pieces]

    def change(self, place: Place, content: mmap.mmap, path: StorePath) -> StoredChange:
        own = self.panes[place]
        pieces, offset = [], own.offset
        for size, crc in zip(own.sizes, own.sums, strict=True):
            piece = content[offset : offset + size]
            if zlib.crc32(piece) != crc:
                raise DamagedError(str(path), "(state of window views) is damaged")
            pieces.append(piece)
            offset += _aligned(size)
        return StoredChange(own.kept, pieces)


def _encoded(changes: Changes, scalars: bytes) -> bytes:
    places = list(changes)
    pieces = [changes[place].pieces for place in places]
    table = pa.table(
        {
            "operator": pa.array([operator for operator, _ in places], pa.int64()),
            "pane": pa.array([pane for _, pane in places], pa.int64()),
            "kept": pa.array([changes[place].kept for place in places], pa.int32()),
            "sizes": pa.array([[len(piece) for piece in own] for own in pieces], pa.list_(pa.int64())),
            "sums": pa.array([[zlib.crc32(piece) for piece in own] for own in pieces], pa.list_(pa.int64())),
        }
    )
    head = packed({"panes": table}, {}, scalars)
    parts = [_PREAMBLE.pack(len(head), zlib.crc32(head)), *_padded(head)]
    for own in pieces:
        for piece in own:
            parts += _padded(piece)
    return b"".join(parts)


def _padded(part: bytes) -> tuple[bytes, bytes]:
    return part, b"\0" * (_aligned(len(part)) - len(part))


def _aligned(size: int) -> int:
    return -(-size // _ALIGNMENT) * _ALIGNMENT


@contextmanager
def _mapped(path: StorePath) -> Iterator[mmap.mmap]:
    """A file, mapped into memory."""
    try:
        with opened(path) as local, local.open("rb") as file:
            content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except (FileNotFoundError, ValueError):
        # a cause that is tried again would be told instead
        raise DamagedError(str(path), "(state of window views) is missing or empty") from None
    with content:
        yield content


def check_state(path: StorePath, file: StateFile) -> None:
    """Read all of a file.

    Raises:
        DamagedError: it is missing or damaged.
    """
    head = _read_head(path, file)
    with _mapped(path) as content:
        for place in head.panes:
            head.change(place, content, path)


def _read_head(path: StorePath, file: StateFile) -> _Head:
    with _mapped(path) as content:
        if len(content) != file.size:
            raise DamagedError(
                str(path), f"(state of window views) has {len(content)} bytes instead of {file.size}"
            )
        length, crc = _PREAMBLE.unpack_from(content)
        head = content[_PREAMBLE.size : _PREAMBLE.size + length]
        if len(head) != length or zlib.crc32(head) != crc:
            raise DamagedError(str(path), "(state of window views) is damaged")
    found = unpacked(head)
    panes: dict[Place, _Pieces] = {}
    offset = _PREAMBLE.size + _aligned(length)
    rows = found.tables["panes"]
    for operator, pane, kept, sizes, sums in zip(
        *(column.to_pylist() for column in rows.columns), strict=True
    ):
        panes[operator, pane] = _Pieces(kept, offset, sizes, sums)
        offset += sum(map(_aligned, sizes))
    return _Head(found.rest, panes)


_head = lru_cache(maxsize=_KEPT_HEADS)(_read_head)
