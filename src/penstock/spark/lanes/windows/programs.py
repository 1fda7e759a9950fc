"""The window views of plan versions, as a cut's tasks receive them: one broadcast a version."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from pyspark import Broadcast, SparkContext

from penstock.errors import CheckpointError
from penstock.operators.windows.shard import WindowProgram
from penstock.spark.log.programs import stored_program
from penstock.spark.results.bound_views import stored_views
from penstock.spark.storage.layout import Layout
from penstock.spark.storage.offsets import REMEDY
from penstock.sql.windows.bind import BoundWindow

#: versions that workers keep beside those of the newest cut
_KEPT = 2


@dataclass(frozen=True, slots=True, eq=False)
class BoundProgram:
    """The window views of a plan version.

    Attributes:
        program: what the shards do.
        views: the views of each operator by name, as they were bound.
    """

    program: WindowProgram
    views: Mapping[int, Mapping[str, BoundWindow]]


class WindowPrograms:
    """Sends the window views of a stream's plan versions to workers, each once; one thread calls it.

    Args:
        spark: the context.
        layout: output and checkpoint folders.
        stream: the stream's name.
    """

    def __init__(self, spark: SparkContext, layout: Layout, stream: str) -> None:
        self._spark = spark
        self._layout = layout
        self._stream = stream
        #: by version, those used last behind
        self._sent: dict[int, tuple[BoundProgram, Broadcast[BoundProgram]]] = {}

    def of(self, version: int) -> BoundProgram:
        """Return the views of a version.

        Raises:
            CheckpointError: they are missing.
        """
        return self._entry(version)[0]

    def sent(self, versions: Iterable[int]) -> dict[int, Broadcast[BoundProgram]]:
        """Return the views of versions for tasks.

        Raises:
            CheckpointError: those of one are missing.
        """
        found = {version: self._entry(version)[1] for version in versions}
        for version in list(self._sent)[: -_KEPT or None]:
            if version not in found:
                self._sent.pop(version)[1].unpersist()
        return found

    def _entry(self, version: int) -> tuple[BoundProgram, Broadcast[BoundProgram]]:
        entry = self._sent.pop(version, None)
        if entry is None:
            program = self._read(version)
            entry = program, self._spark.broadcast(program)
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
        return BoundProgram(program, views)
