"""Follows the event log of a folder that another process writes."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, BinaryIO

from penstock.spark.storage.events import older_files

#: bytes of the log that are read at the start
MOST_BYTES = 32 << 20
#: bytes read in one go
_STEP = 1 << 20


class EventTail:
    """Reads what is appended to `events.jsonl`, across its turns to a new file.

    Args:
        path: the file that is written; it may not exist yet.
        most_bytes: how much of the log's end the first call of `read` gives.
    """

    def __init__(self, path: Path, most_bytes: int = MOST_BYTES) -> None:
        self._path = path
        self._most_bytes = most_bytes
        self._file: BinaryIO | None = None
        self._rest = b""
        #: whether the log is another one than in the call before
        self.is_new = False

    def read(self) -> list[dict[str, Any]]:
        """Return the events since the last call, oldest first; a line that is not whole waits for its end."""
        self.is_new = False
        try:
            if self._file is None:
                return self._begin()
            events = self._appended(self._file)
            if os.fstat(self._file.fileno()).st_ino != self._path.stat().st_ino:
                events += self._turn()
        except OSError:
            # the folder is gone, or turns just now: the next call looks again
            return []
        return events

    def close(self) -> None:
        """Closes the file."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _begin(self) -> list[dict[str, Any]]:
        files = [*older_files(self._path), self._path]
        room, chosen = self._most_bytes, []
        for path in reversed(files):
            chosen.append((path, max(0, path.stat().st_size - room)))
            room -= path.stat().st_size
            if room <= 0:
                break
        events: list[dict[str, Any]] = []
        for path, begin in reversed(chosen):
            events += self._open(path, begin)
        self.is_new = True
        return events

    def _turn(self) -> list[dict[str, Any]]:
        """The files behind the one that is open; all of them where that is none of the log's."""
        assert self._file is not None, "a file is open"
        inode = os.fstat(self._file.fileno()).st_ino
        older = older_files(self._path)
        own = next((number for number, each in enumerate(older) if each.stat().st_ino == inode), None)
        if own is None:
            self.close()
            return self._begin()
        events: list[dict[str, Any]] = []
        for path in (*older[own + 1 :], self._path):
            events += self._open(path, 0)
        return events

    def _open(self, path: Path, begin: int) -> list[dict[str, Any]]:
        file = path.open("rb")
        self.close()
        self._file, self._rest = file, b""
        file.seek(begin)
        if begin:
            file.readline()
        return self._appended(file)

    def _appended(self, file: BinaryIO) -> list[dict[str, Any]]:
        if os.fstat(file.fileno()).st_size < file.tell():
            # a restart has cut off a torn line
            file.seek(0, os.SEEK_END)
            self._rest = b""
        events = []
        while content := file.read(_STEP):
            *lines, self._rest = (self._rest + content).split(b"\n")
            events += [event for line in lines if (event := _event(line)) is not None]
        return events


def _event(line: bytes) -> dict[str, Any] | None:
    try:
        event = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return event if isinstance(event, dict) and "kind" in event else None
