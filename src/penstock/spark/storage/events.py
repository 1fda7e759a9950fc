"""The event log: one decision or measurement a line, appended by the driver only.

It is kept in files of bounded size. `events.jsonl` is the one that is written; once it is full it is renamed to
`events-NNNNNN.jsonl`, a new one is begun, and the oldest are removed. What counts over the life of a folder is in
`_penstock/status.json` and the manifests, so nothing but looking things up needs the older ones.
"""

from __future__ import annotations

import json
import logging
import os
import re
import threading
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, BinaryIO

from penstock.redaction import masked_known
from penstock.spark.storage.failpoints import failpoint

_log = logging.getLogger(__name__)
#: lines that wait for room on the disk
_MOST_WAITING = 10_000
#: bytes of JSON of the events that are kept in memory; as objects they take about four times as many
_MOST_KEPT_BYTES = 16 << 20
#: bytes of a log's end looked at in one go
_LOOKED_AT = 1 << 16
#: a file that could not be renamed is tried again when it has grown by one part in so many
_TRIES = 16
#: fields with texts that other programs may have written
_TEXTS = ("told", "reason", "error")


def _now() -> datetime:
    return datetime.now(UTC)


class EventLog:
    """Appends to `events.jsonl` and keeps the newest events in memory.

    Where the file cannot be written (a full disk), the run goes on: lines wait, so many at the most, and are
    written with a later event; both are told.

    Args:
        path: the file; a last line torn by a crash is cut off when it is opened.
        keep: events kept in memory; fewer where they are large.
        clock: gives the current time.
        told: given each event, in order.
        most_bytes: a file that has as many is full.
        most_files: files that are kept, the one that is written among them.
    """

    def __init__(
        self,
        path: Path,
        keep: int = 10_000,
        clock: Callable[[], datetime] = _now,
        told: Callable[[dict[str, Any]], None] = lambda _: None,
        most_bytes: int = 64 << 20,
        most_files: int = 8,
    ) -> None:
        self._clock = clock
        self._told = told
        self._lock = threading.Lock()
        #: events and the bytes of each, oldest first
        self._recent: deque[tuple[dict[str, Any], int]] = deque()
        self._recent_bytes, self._most_recent = 0, keep
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists():
            _cut_torn_line(path)
        self._path = path
        self._file = path.open("ab", buffering=0)
        self._most_bytes, self._most_files = most_bytes, most_files
        self._full_at = most_bytes
        self._turn_if_full()
        #: lines not written yet; the first may be written in part
        self._waiting: deque[bytes] = deque()
        self._failure: OSError | None = None
        self._lost = 0

    def record(self, kind: str, **fields: Any) -> None:
        """Writes one event with the current time."""
        event = self._event(kind, **fields)
        with self._lock:
            if self._failure is not None and self._drained():
                self._keep(
                    self._event("events_delayed", error=str(self._failure), lost=self._lost), is_due=True
                )
                self._failure, self._lost = None, 0
            self._keep(event, is_due=self._failure is None)

    def _event(self, kind: str, **fields: Any) -> dict[str, Any]:
        texts = {name: masked_known(fields[name]) for name in _TEXTS if isinstance(fields.get(name), str)}
        return {"time": self._clock().isoformat(timespec="milliseconds"), "kind": kind, **fields, **texts}

    def _keep(self, event: dict[str, Any], *, is_due: bool) -> None:
        line = json.dumps(event, separators=(",", ":"), default=str).encode() + b"\n"
        self._recent.append((event, len(line)))
        self._recent_bytes += len(line)
        while len(self._recent) > self._most_recent or (
            self._recent_bytes > _MOST_KEPT_BYTES and len(self._recent) > 1
        ):
            self._recent_bytes -= self._recent.popleft()[1]
        self._told(event)
        if self._file.closed:
            return
        if len(self._waiting) >= _MOST_WAITING:
            # the first may be written in part
            del self._waiting[1]
            self._lost += 1
        self._waiting.append(line)
        if is_due:
            self._drained()

    def _drained(self) -> bool:
        """Writes what waits, as far as the disk takes it; False where some of it is left."""
        try:
            while self._waiting:
                written = self._file.write(self._waiting[0])
                rest = self._waiting[0][written:]
                if rest:
                    self._waiting[0] = rest
                else:
                    self._waiting.popleft()
        except OSError as error:
            if self._failure is None:
                _log.warning("cannot write %s: %s; events wait for free space", self._path, error)
            self._failure = error
            return False
        self._turn_if_full()
        return True

    def _turn_if_full(self) -> None:
        """Begins a new file; where that cannot be, this one is written on."""
        size = os.fstat(self._file.fileno()).st_size
        if size < self._full_at:
            return
        older = older_files(self._path)
        number = _number(older[-1]) + 1 if older else 1
        renamed = self._path.with_name(f"{self._path.stem}-{number:06d}{self._path.suffix}")
        try:
            self._path.rename(renamed)
            failpoint("events_renamed", number)
            try:
                file = self._path.open("ab", buffering=0)
            except OSError:
                renamed.rename(self._path)
                raise
            self._file.close()
            self._file, self._full_at = file, self._most_bytes
            failpoint("events_turned", number)
            for path in older_files(self._path)[: -self._most_files + 1 or None]:
                path.unlink()
        except OSError as error:
            self._full_at = size + self._most_bytes // _TRIES
            _log.warning("%s is full, and Penstock cannot start a new one: %s", self._path, error)

    @property
    def recent(self) -> list[dict[str, Any]]:
        """The newest events, oldest first."""
        with self._lock:
            return [event for event, _ in self._recent]

    def close(self) -> None:
        """Closes the file; later events stay in memory only."""
        with self._lock:
            if not self._file.closed:
                self._drained()
            self._file.close()


def older_files(path: Path) -> list[Path]:
    """The files before the one that is written, oldest first."""
    pattern = re.compile(re.escape(path.stem) + r"-\d+" + re.escape(path.suffix))
    found = [each for each in path.parent.iterdir() if pattern.fullmatch(each.name)]
    return sorted(found, key=_number)


def newest_events(path: Path, most_bytes: int = 1 << 18) -> list[dict[str, Any]]:
    """The events at the end of a log, oldest first; lines that are not whole are left out.

    Args:
        path: the file that is written; [] where there is none, nor an older one.
        most_bytes: how much of the log's end is read.
    """
    lines = _lines_at_the_end(path, most_bytes)
    while lines is None:
        lines = _lines_at_the_end(path, most_bytes)
    return parsed_events(lines)


def parsed_events(lines: Iterable[bytes]) -> list[dict[str, Any]]:
    """The events of lines; lines that are not whole are left out."""
    found = []
    for line in lines:
        try:
            event = json.loads(line)
        except ValueError:
            continue
        if isinstance(event, dict) and "kind" in event:
            found.append(event)
    return found


def _lines_at_the_end(path: Path, most_bytes: int) -> list[bytes] | None:
    """Of the newest file and of the one before; None where files were turned meanwhile."""
    with ExitStack() as held:
        file = _opened(path)
        if file is not None:
            held.callback(file.close)
        lines, room = ([], most_bytes) if file is None else _last_lines(file, most_bytes)
        if room <= 0:
            return lines
        # the file read just now may be one of the older ones by now; as long as it is open, no other one has its inode
        newest = None if file is None else os.fstat(file.fileno()).st_ino
        older = older_files(path)
        own = next((number for number, each in enumerate(older) if _inode(each) == newest), len(older))
        if own == len(older) and _inode(path) != newest:
            return None
        if not own:
            return lines
        before = _opened(older[own - 1])
        if before is None:
            return lines
        with before:
            return [*_last_lines(before, room)[0], *lines]


def _opened(path: Path) -> BinaryIO | None:
    try:
        return path.open("rb")
    except OSError:
        return None


def _last_lines(file: BinaryIO, most_bytes: int) -> tuple[list[bytes], int]:
    """The lines at the end of a file, and how many bytes less than may be read that is."""
    begin = max(0, file.seek(0, os.SEEK_END) - most_bytes)
    file.seek(begin)
    content = file.read()
    return content.split(b"\n")[1 if begin else 0 : -1], most_bytes - len(content)


def _inode(path: Path) -> int | None:
    try:
        return path.stat().st_ino
    except OSError:
        return None


def _number(path: Path) -> int:
    return int(path.stem.rpartition("-")[2])


def _cut_torn_line(path: Path) -> None:
    """Cuts off what a crash left behind the last whole line; only the file's end is read."""
    with path.open("r+b") as file:
        end = file.seek(0, os.SEEK_END)
        behind = end
        while behind:
            begin = max(0, behind - _LOOKED_AT)
            file.seek(begin)
            newline = file.read(behind - begin).rfind(b"\n")
            if newline >= 0:
                file.truncate(begin + newline + 1)
                return
            behind = begin
        file.truncate(0)
