"""The event log: one decision or measurement a line, appended by the driver only."""

from __future__ import annotations

import json
import logging
import os
import threading
from collections import deque
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

_log = logging.getLogger(__name__)
#: lines that wait for room on the disk
_MOST_WAITING = 10_000
#: bytes of a log's end looked at in one go
_LOOKED_AT = 1 << 16


def _now() -> datetime:
    return datetime.now(UTC)


class EventLog:
    """Appends to `events.jsonl` and keeps the newest events in memory.

    Where the file cannot be written (a full disk), the run goes on: lines wait, so many at the most, and are
    written with a later event; both are told.

    Args:
        path: the file; a last line torn by a crash is cut off when it is opened.
        keep: events kept in memory.
        clock: gives the current time.
        told: given each event, in order.
    """

    def __init__(
        self,
        path: Path,
        keep: int = 10_000,
        clock: Callable[[], datetime] = _now,
        told: Callable[[dict[str, Any]], None] = lambda _: None,
    ) -> None:
        self._clock = clock
        self._told = told
        self._lock = threading.Lock()
        self._recent: deque[dict[str, Any]] = deque(maxlen=keep)
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists():
            _cut_torn_line(path)
        self._path = path
        self._file = path.open("ab", buffering=0)
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
        return {"time": self._clock().isoformat(timespec="milliseconds"), "kind": kind, **fields}

    def _keep(self, event: dict[str, Any], *, is_due: bool) -> None:
        self._recent.append(event)
        self._told(event)
        if self._file.closed:
            return
        if len(self._waiting) >= _MOST_WAITING:
            # the first may be written in part
            del self._waiting[1]
            self._lost += 1
        self._waiting.append(json.dumps(event, separators=(",", ":"), default=str).encode() + b"\n")
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
                _log.warning("cannot write %s: %s; events wait for room", self._path, error)
            self._failure = error
            return False
        return True

    @property
    def recent(self) -> list[dict[str, Any]]:
        """The newest events, oldest first."""
        with self._lock:
            return list(self._recent)

    def close(self) -> None:
        """Closes the file; later events stay in memory only."""
        with self._lock:
            if not self._file.closed:
                self._drained()
            self._file.close()


def newest_events(path: Path, most_bytes: int = 1 << 18) -> list[dict[str, Any]]:
    """The events at the end of a log, oldest first; lines that are not whole are left out.

    Args:
        path: the file; [] where it is not there.
        most_bytes: how much of its end is read.
    """
    try:
        with path.open("rb") as file:
            begin = max(0, file.seek(0, os.SEEK_END) - most_bytes)
            file.seek(begin)
            lines = file.read().split(b"\n")
    except OSError:
        return []
    found = []
    for line in lines[1 if begin else 0 : -1]:
        try:
            event = json.loads(line)
        except ValueError:
            continue
        if isinstance(event, dict) and "kind" in event:
            found.append(event)
    return found


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
