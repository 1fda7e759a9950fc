"""The window and running views of plan versions, as a cut's tasks receive them: one broadcast a version."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from pyspark import Broadcast, SparkContext

from penstock.errors import CheckpointError
from penstock.operators.windows.shard import WindowProgram
from penstock.spark.log.programs import stored_program
from penstock.spark.publication.kinds import running_of
from penstock.spark.results.bound_views import stored_views
from penstock.spark.storage.layout import Layout
from penstock.spark.storage.offsets import REMEDY
from penstock.sql.windows.bind import BoundWindow

#: versions that workers keep beside those of the newest cut
_KEPT = 2
#: programs that stay decoded in a worker
_RECEIVED = 16


@dataclass(frozen=True, slots=True, eq=False)
class BoundProgram:
    """The window and running views of a plan version.

    Attributes:
        program: what the shards do.
        views: the views of each operator by name, as they were bound.
    """

    program: WindowProgram
    views: Mapping[int, Mapping[str, BoundWindow]]


@dataclass(frozen=True, slots=True)
class SentProgram:
    """A program on its way to workers.

    Attributes:
        key: tells it from all others.
        broadcast: what Spark sends; a worker forgets it with the next job that does not need it.
    """

    key: str
    broadcast: Broadcast[BoundProgram]

    @property
    def value(self) -> BoundProgram:
        """The program; a worker decodes it once."""
        found = _received.get(self.key)
        if found is None:
            if len(_received) >= _RECEIVED:
                _received.pop(next(iter(_received)))
            found = _received[self.key] = self.broadcast.value
        return found


#: what this worker has decoded, by key
_received: dict[str, BoundProgram] = {}


class WindowPrograms:
    """Sends the window views of a stream's plan versions to workers, each once; threads may share it.

    Args:
        spark: the context.
        layout: output and checkpoint folders.
        stream: the stream's name.
    """

    def __init__(self, spark: SparkContext, layout: Layout, stream: str) -> None:
        self._spark = spark
        self._layout = layout
        self._stream = stream
        self._lock = threading.Lock()
        #: by version, those used last behind
        self._sent: dict[int, tuple[BoundProgram, SentProgram]] = {}

    def of(self, version: int) -> BoundProgram:
        """Return the views of a version.

        Raises:
            CheckpointError: they are missing.
        """
        with self._lock:
            return self._entry(version)[0]

    def sent(self, versions: Iterable[int]) -> dict[int, SentProgram]:
        """Return the views of versions for tasks.

        Raises:
            CheckpointError: those of one are missing.
        """
        with self._lock:
            found = {version: self._entry(version)[1] for version in versions}
            for version in list(self._sent)[:-_KEPT]:
                if version not in found:
                    self._sent.pop(version)[1].broadcast.unpersist()
            return found

    def _entry(self, version: int) -> tuple[BoundProgram, SentProgram]:
        entry = self._sent.pop(version, None)
        if entry is None:
            program = self._read(version)
            entry = program, SentProgram(uuid.uuid4().hex, self._spark.broadcast(program))
        self._sent[version] = entry
        return entry

    def _read(self, version: int) -> BoundProgram:
        program = stored_program(self._layout, self._stream, version)
        if program is None:
            raise CheckpointError(
                f"stream {self._stream}: the window views of plan version {version} are missing in "
                f"{self._layout.programs(self._stream)}; {REMEDY}"
            )
        views = {plan.id: stored_views(self._layout, self._stream, plan.id) for plan in program.operators}
        running = running_of(self._stream)
        views |= {plan.id: stored_views(self._layout, running, plan.id) for plan in program.running}
        return BoundProgram(program, views)
