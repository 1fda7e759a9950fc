"""Copies of a run's events in an object store: a file each minute, for readers on other machines."""

from __future__ import annotations

import json
import logging
import threading
from collections import deque
from contextlib import suppress
from typing import Any

from penstock.spark.storage.layout import Layout
from penstock.spark.storage.store_paths import ObjectPath

_log = logging.getLogger(__name__)
_EVERY_SECONDS = 60.0
#: files that are kept, and lines that wait while the store fails
_MOST_FILES, _MOST_LINES = 1_000, 100_000
_FOLDER = "_penstock/events"


class EventCopies:
    """Stores the events that it is given; a thread of its own writes them.

    Args:
        output: the results folder in an object store.
        run: number of the run, which begins the names: another run's are others.
    """

    def __init__(self, output: ObjectPath, run: int) -> None:
        self._run = run
        self._files = output.files
        self._lines: deque[bytes] = deque(maxlen=_MOST_LINES)
        self._number = 0
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._follow, daemon=True, name="penstock-events")
        self._thread.start()

    def add(self, event: dict[str, Any]) -> None:
        """Take an event; any thread may call it."""
        self._lines.append(json.dumps(event, separators=(",", ":"), default=str).encode())

    def close(self) -> None:
        """Store what is left."""
        self._closing.set()
        self._thread.join()

    def _follow(self) -> None:
        while not self._closing.wait(_EVERY_SECONDS):
            self._store()
        self._store()

    def _store(self) -> None:
        lines = [self._lines.popleft() for _ in range(len(self._lines))]
        if not lines:
            return
        try:
            name = f"{self._run:06d}-{self._number:06d}.jsonl"
            self._files.put(f"{_FOLDER}/{name}", b"\n".join([*lines, b""]))
        except OSError as error:
            self._lines.extendleft(reversed(lines))
            _log.warning("cannot store events in %s: %s; they are stored later", self._files.address(), error)
            return
        self._number += 1
        with suppress(OSError):
            self._files.delete(self._names()[:-_MOST_FILES])

    def _names(self) -> list[str]:
        return [each.name for each in self._files.list(_FOLDER)]


def copied_lines(layout: Layout, most_bytes: int) -> list[bytes]:
    """Return the newest events of a results folder in an object store, a line each, oldest first.

    Args:
        layout: of the folder; of a local one: no lines.
        most_bytes: no file is read once so many bytes are.
    """
    found: list[bytes] = []
    if isinstance(layout.output, ObjectPath):
        files = layout.output.files
        for each in reversed(list(files.list(_FOLDER))):
            if most_bytes <= 0:
                break
            found = files.get(each.name).splitlines() + found
            most_bytes -= each.size
    return found
