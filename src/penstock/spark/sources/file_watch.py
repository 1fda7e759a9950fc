"""Files that change after a stream has read them: noticed and told, since Spark reads a name only once. What Spark lists
and is no file is told too.

What was read is known from Spark's own file log; a ledger beside it keeps the sizes, one line a file. Of the files that a
stream ever read it is the newest that are looked at.
"""

from __future__ import annotations

import json
import stat
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

from penstock.errors import DamagedError
from penstock.monitor.figures import counted
from penstock.spark.storage.documents import sealed, unsealed
from penstock.spark.storage.events import EventLog
from penstock.spark.storage.formats import READ_FILES, VERSION
from penstock.spark.storage.spark_files import last_lines, sources_of
from penstock.spark.storage.store_paths import StorePath
from penstock.spark.tasks.parquet_files import Stamp, local_path, other_kind
from penstock.stores.durable import replace_bytes

_PERIOD_SECONDS = 10.0
#: a look may take one part in so many of the time
_SHARE = 100
#: files that are looked at, the newest; the ledger holds twice as many lines at the most
_MOST_WATCHED = 50_000
#: first line of Spark's file logs
_VERSION = b"v1"
#: files that an event names
_MOST_NAMED = 100


@dataclass(frozen=True, slots=True)
class _Seen:
    """A file as it was read.

    Attributes:
        modified_ms: time of its last modification, milliseconds since the epoch.
        size: bytes; None where it had changed before anyone looked.
    """

    modified_ms: int
    size: int | None


class FileWatch:
    """Compares the files of a stream with what they were when they were read.

    Args:
        stream: the stream's name.
        logs: folder in which Spark keeps the logs of the stream's sources.
        ledger: keeps what was read; written by this object only.
        events: where changes are told.
        period_seconds: between two looks; a look that takes long makes them rarer.
        most: files that are looked at, the newest.
    """

    def __init__(
        self,
        stream: str,
        logs: StorePath,
        ledger: Path,
        events: EventLog,
        period_seconds: float = _PERIOD_SECONDS,
        most: int = _MOST_WATCHED,
    ) -> None:
        self._stream = stream
        self._logs = logs
        self._ledger = ledger
        self._events = events
        self._period = period_seconds
        self._most = most
        self._lock = threading.Lock()
        #: in order of reading
        self._seen: dict[str, _Seen] = {}
        self._lines = 0
        self._next: dict[str, int] = {}
        self._changed = self._passed_over = 0
        self._ending = threading.Event()
        self._thread: threading.Thread | None = None
        self._load()

    @property
    def changed(self) -> int:
        """Changes noticed since this process started."""
        with self._lock:
            return self._changed

    @property
    def passed_over(self) -> int:
        """FIFOs, sockets and devices among the files of batches since this process started."""
        with self._lock:
            return self._passed_over

    def answered(self, stamps: Mapping[str, Stamp]) -> None:
        """Takes in the files of a batch that has been published; Spark has logged no later ones yet.

        Args:
            stamps: what files were when they were read, by URI, where the source knows it; of others
                Spark knows the time at which they were last modified.
        """
        exact = {path: stamp for uri, stamp in stamps.items() if (path := local_path(uri)) is not None}
        with self._lock:
            for source in sources_of(self._logs):
                entries = list(_logged(source, self._next.get(source.name, 0)))
                batch = max((entry["batchId"] for entry in entries), default=-1)
                read = {
                    path: _as_read(path, entry["timestamp"], exact.get(path))
                    for entry in entries
                    if (path := _path_of(entry["path"])) is not None
                }
                new = {path: seen for path, seen in read.items() if path not in self._seen}
                self._keep(new, source=source.name, batch=batch)
                self._tell_others(new)
                if entries:
                    self._next[source.name] = batch + 1

    def _tell_others(self, paths: Iterable[str]) -> None:
        """Tells of what was in a batch and is no file."""
        others = [{"path": path, "kind": kind} for path in paths if (kind := other_kind(path)) is not None]
        if others:
            self._passed_over += len(others)
            self._events.record(
                "files_passed_over",
                stream=self._stream,
                count=len(others),
                told=f"{counted(len(others), 'name')} skipped because a stream reads files only: first "
                f"{others[0]['path']}, a {others[0]['kind']}. Add files under other names",
                files=others[:_MOST_NAMED],
            )

    def start(self) -> None:
        """Looks from time to time, in a thread of its own."""
        self._ending.clear()
        self._thread = threading.Thread(
            target=self._look_again, daemon=True, name=f"penstock-files-{self._stream}"
        )
        self._thread.start()

    def close(self) -> None:
        """Looks for the last time."""
        thread, self._thread = self._thread, None
        if thread is not None:
            self._ending.set()
            thread.join()
            self.look()

    def look(self) -> None:
        """Tells which files are no longer what they were when they were read."""
        with self._lock:
            known = list(self._seen.items())
        found = [
            (path, then, now) for path, then in known if (now := _found(path)) is not None and now != then
        ]
        if not found:
            return
        with self._lock:
            self._changed += len(found)
            self._keep({path: now for path, _, now in found})
        self._events.record(
            "files_changed",
            stream=self._stream,
            count=len(found),
            told=f"{counted(len(found), 'file')} changed after the first read; the new content is not answered: "
            f"first {found[0][0]}, {_bytes(found[0][1].size)} then, {_bytes(found[0][2].size)} now",
            files=[
                {"path": path, "size_then": then.size, "size_now": now.size}
                for path, then, now in found[:_MOST_NAMED]
            ],
        )

    def _look_again(self) -> None:
        wait = 0.0
        while not self._ending.wait(wait):
            began = time.monotonic()
            self.look()
            wait = max(self._period, _SHARE * (time.monotonic() - began))

    def _load(self) -> None:
        if not self._ledger.exists():
            return
        for line in self._ledger.read_bytes().splitlines():
            try:
                entry = unsealed(line, self._ledger, READ_FILES.kind)
            except DamagedError:  # torn by a crash or a full disk: that file is not looked at
                continue
            if VERSION in entry:
                READ_FILES.opened(entry, self._ledger)
                continue
            self._lines += 1
            if "source" in entry:
                # the batch at the end may be there in part
                self._next[entry["source"]] = entry["batch"]
            if "path" in entry:
                self._seen[entry["path"]] = _Seen(entry["modified_ms"], entry["size"])
        self._forget()

    def _keep(self, seen: Mapping[str, _Seen], **place: Any) -> None:
        """Takes in files, the ledger as well; a ledger that cannot be written stops nobody."""
        if not seen:
            return
        self._seen.update(seen)
        self._forget()
        self._lines += len(seen)
        try:
            if self._lines > 2 * self._most:
                self._rewrite(place)
                return
            self._ledger.parent.mkdir(parents=True, exist_ok=True)
            with self._ledger.open("a", encoding="utf-8") as file:
                head = "" if file.tell() else sealed(READ_FILES.stamped({})).decode()
                # a line that was torn ends here
                lines = [_line(path, each, place) for path, each in seen.items()]
                file.write("\n".join([head, *lines, ""]))
        except OSError as error:
            told = f"{self._ledger} cannot be written; Penstock may miss later changes of some files: {error}"
            self._events.record("file_watch_failed", stream=self._stream, told=told)

    def _forget(self) -> None:
        surplus = len(self._seen) - self._most
        for path in list(islice(self._seen, max(0, surplus))):
            del self._seen[path]

    def _rewrite(self, place: Mapping[str, Any]) -> None:
        """Begins the ledger anew with the files that are looked at."""
        known = [{"source": source, "batch": batch - 1} for source, batch in self._next.items()]
        heads = [READ_FILES.stamped({}), *known, *([place] if place else [])]
        lines = [sealed(each).decode() for each in heads]
        lines += [_line(path, each, {}) for path, each in self._seen.items()]
        replace_bytes(self._ledger, ("\n".join(lines) + "\n").encode())
        self._lines = len(lines)


def _line(path: str, seen: _Seen, place: Mapping[str, Any]) -> str:
    document = {"path": path, "modified_ms": seen.modified_ms, "size": seen.size, **place}
    return sealed(document).decode()


def _logged(source: StorePath, first: int) -> Iterator[dict[str, Any]]:
    """The files that Spark's log of one source has from a batch of the log on; none for other kinds of sources."""
    names = {path.name for path in source.iterdir()} if source.is_dir() else set()
    plain = sorted(int(name) for name in names if name.isdigit() and int(name) >= first)
    merged = [
        int(name.removesuffix(".compact"))
        for name in names
        if name.endswith(".compact") and name[:-8].isdigit() and int(name[:-8]) >= first
    ]
    newest = max(merged, default=-1)
    paths = [source / f"{newest}.compact"] if merged else []
    for path in [*paths, *(source / str(number) for number in plain if number > newest)]:
        # a merged log holds everything there ever was, oldest first, behind a version
        for line in last_lines(path):
            if line == _VERSION:
                break
            try:
                entry = json.loads(line)
            except ValueError:  # another kind of source
                return
            if not isinstance(entry, dict) or "batchId" not in entry:
                return
            if entry["batchId"] < first:
                break
            yield entry


def _path_of(uri: str) -> str | None:
    parsed = urlparse(uri)
    return unquote(parsed.path) if parsed.scheme in ("", "file") else None


def _as_read(path: str, modified_ms: int, stamp: Stamp | None) -> _Seen:
    if stamp is not None:
        return _Seen(stamp.modified_ns // 1_000_000, stamp.size)
    now = _found(path)
    return _Seen(modified_ms, now.size if now is not None and now.modified_ms == modified_ms else None)


def _bytes(size: int | None) -> str:
    return "of unknown size" if size is None else counted(size, "byte")


def _found(path: str) -> _Seen | None:
    try:
        found = Path(path).stat()
    except OSError:
        return None
    if not stat.S_ISREG(found.st_mode):
        return None
    return _Seen(found.st_mtime_ns // 1_000_000, found.st_size)
