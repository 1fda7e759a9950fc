"""Where the lines go that Spark's JVM and its Python workers print: to a file of the results folder while a run goes on.

Only a JVM that Penstock has started prints here (`penstock.spark.sessions.jvm`); the output of a session of the user's own is the user's.
"""

from __future__ import annotations

import re
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO

#: a file with so many bytes is renamed to `spark.log.1`, in the place of the one before
MOST_BYTES = 8 << 20
#: lines kept in memory
_KEPT = 1_000
#: the time is written behind a silence of so many seconds
_SILENCE_SECONDS = 1.0
_SPEAKS_OF_AN_ERROR = re.compile(r"error|exception", re.IGNORECASE)


class Output:
    """Takes lines from any thread; the newest file that was begun gets them.

    Without a file they go to the screen or, where that is to be kept clean, nowhere: the last ones can be asked for.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._tail: deque[str] = deque(maxlen=_KEPT)
        #: lines of before the first file
        self._waiting: deque[str] = deque(maxlen=_KEPT)
        self._files: list[_BoundedFile] = []
        self._is_clean = False

    def take(self, line: str) -> None:
        """Takes in a line, with its end."""
        with self._lock:
            self._tail.append(line)
            if self._files:
                self._files[-1].write(line)
            elif self._is_clean:
                self._waiting.append(line)
            else:
                with suppress(OSError, ValueError):
                    print(line, end="", file=sys.stderr, flush=True)

    def keep_off_the_screen(self) -> None:
        """Keeps the screen clean until the process ends, which the JVM may outlast; lines wait for a file."""
        self._is_clean = True

    def into(self, path: Path) -> Callable[[], None]:
        """Has the lines written to a file from now on; it is made with the first one.

        Returns:
            Ends that. May be called again.
        """
        file = _BoundedFile(path)
        with self._lock:
            self._files.append(file)
            while self._waiting:
                file.write(self._waiting.popleft())

        def end() -> None:
            with self._lock:
                if file in self._files:
                    self._files.remove(file)
                    file.close()

        return end

    @property
    def last(self) -> list[str]:
        """The last lines, oldest first."""
        with self._lock:
            return list(self._tail)

    def reason(self) -> str:
        """The first of the last lines that speaks of an error, or the very last one; "" without any."""
        lines = [line.strip() for line in self.last if line.strip()]
        return next(filter(_SPEAKS_OF_AN_ERROR.search, lines), lines[-1] if lines else "")


class _BoundedFile:
    """A file of lines, and one older."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: BinaryIO | None = None
        self._newest = 0.0

    def write(self, line: str) -> None:
        """Appends a line; one that the disk does not take is lost."""
        with suppress(OSError):
            now = time.monotonic()
            if self._file is None:
                self._file = self._path.open("ab", buffering=0)
            if self._file.tell() >= MOST_BYTES:
                self.close()
                self._path.replace(self._path.with_name(f"{self._path.name}.1"))
                self._file = self._path.open("ab", buffering=0)
            if now - self._newest > _SILENCE_SECONDS:
                self._file.write(f"--- {datetime.now(UTC).isoformat(timespec='seconds')}\n".encode())
            self._newest = now
            self._file.write(line.encode(errors="replace"))

    def close(self) -> None:
        """Closes it."""
        if self._file is not None:
            self._file.close()
            self._file = None


#: of this process, which has one JVM at most
OUTPUT = Output()
