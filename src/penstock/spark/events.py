"""The event log: one decision or measurement a line, appended by the driver only."""

from __future__ import annotations

import json
import threading
from collections import deque
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any


def _now() -> datetime:
    return datetime.now(UTC)


class EventLog:
    """Appends to `events.jsonl` and keeps the newest events in memory.

    Args:
        path: the file; a last line torn by a crash is cut off when it is opened.
        keep: events kept in memory.
        clock: gives the current time.
    """

    def __init__(self, path: Path, keep: int = 10_000, clock: Callable[[], datetime] = _now) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self.recent: deque[dict[str, Any]] = deque(maxlen=keep)
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists():
            content = path.read_bytes()
            whole = content.rfind(b"\n") + 1
            if whole < len(content):
                with path.open("r+b") as file:
                    file.truncate(whole)
        self._file = path.open("a", encoding="utf-8")

    def record(self, kind: str, **fields: Any) -> None:
        """Writes one event with the current time."""
        event = {"time": self._clock().isoformat(timespec="milliseconds"), "kind": kind, **fields}
        line = json.dumps(event, separators=(",", ":"), default=str) + "\n"
        with self._lock:
            self.recent.append(event)
            if not self._file.closed:
                self._file.write(line)
                self._file.flush()

    def close(self) -> None:
        """Closes the file; later events stay in memory only."""
        with self._lock:
            self._file.close()
