"""The log as a streaming source of Spark, whose offset is the number of an entry.

Spark asks it in a Python process of its own, which loads what this module imports; so it imports little. What it
reads is one row a batch, the number of the batch's last entry, and goes to Spark with the offset: no worker
runs for it, but for a batch that is repeated after a restart.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, SimpleDataSourceStreamReader

from penstock.spark.log.stream_log import LogReader
from penstock.spark.storage.stored_log import StoredLog

#: between two looks at a log in an object store
_LOOK_SECONDS = 0.2
#: the column of its rows
ENTRY = "entry"


def following(session: SparkSession, log: StoredLog, reader: str, after: int, entries: int) -> DataFrame:
    """A streaming DataFrame of one column, `entry`, with one row a batch: the last entry the batch takes in.

    Args:
        session: the query's.
        log: the log.
        reader: who it is and of which stream, for messages.
        after: the entry before the first batch's first one; -1 for the beginning. Once a batch is committed it is not asked for.
        entries: most entries of a batch.
    """
    # pickled with the log, whose address may have secrets that options of a source would show
    source: type[LogSource] = type("SourceOfLog", (LogSource,), {"log": log})
    session.dataSource.register(source)
    options = {"reader": reader, "after": str(after), "entries": str(entries)}
    return session.readStream.format(source.name()).options(**options).load()


class LogSource(DataSource):
    """Follows a log: options `reader`, `after`, the entry before the first, and `entries`, the most of a batch.

    Attributes:
        log: where it is.
    """

    log: StoredLog

    @classmethod
    def name(cls) -> str:
        """What Spark knows it by."""
        return "penstock_log"

    def schema(self) -> str:
        """One column: the number of an entry."""
        return f"{ENTRY} BIGINT"

    def simpleStreamReader(self, schema: Any) -> _Follower:  # noqa: ARG002, N802
        """What Spark asks how far the log has come."""
        after, entries = int(self.options["after"]), int(self.options["entries"])
        return _Follower(LogReader(self.log), self.options["reader"], after, entries)


class _Follower(SimpleDataSourceStreamReader):
    def __init__(self, log: LogReader, reader: str, after: int, entries: int) -> None:
        self._log = log
        self._reader = reader
        self._after = after
        self._entries = entries
        #: a look at a log in an object store is some requests, and Spark asks a hundred times a second
        self._pause = 0.0 if isinstance(log.log.files, Path) else _LOOK_SECONDS
        self._looked = -_LOOK_SECONDS

    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        return {ENTRY: self._after}

    def read(self, start: Mapping[str, int]) -> tuple[Iterator[tuple[int]], dict[str, int]]:
        first, now = start[ENTRY], time.monotonic()
        if now - self._looked < self._pause:
            return iter([]), {ENTRY: first}
        self._looked = now
        last = self._log.ahead(self._reader, first, self._entries)
        return iter([(last,)] if last > first else []), {ENTRY: last}

    def readBetweenOffsets(  # noqa: N802
        self, start: Mapping[str, int], end: Mapping[str, int]
    ) -> Iterator[tuple[int]]:
        return iter([(end[ENTRY],)] if end[ENTRY] > start[ENTRY] else [])
