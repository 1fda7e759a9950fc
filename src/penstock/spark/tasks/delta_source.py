"""Delta tables as a data source of Spark: Spark keeps which version a batch ends with, tasks read the files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from penstock.errors import StreamFailedError
from penstock.spark.tasks.delta_log import DataFile, DeltaLog, read_file

NAME = "penstock_delta"
#: options: the folder; the most tasks; the version before the stream's first one, FROM_ALL for all rows that exist; whether changes are
#: passed over; whether a stream gives the files' paths instead of their rows; the version of a table at rest
PATH, TASKS, AFTER, SKIPS, PATHS, VERSION = "path", "tasks", "after", "skips", "paths", "version"
FROM_ALL = -2
_VERSION = "version"


@dataclass
class _Part(InputPartition):
    """What a task reads."""

    files: list[DataFile]

    def __init__(self, files: list[DataFile]) -> None:
        super().__init__(None)
        self.files = files


class DeltaSource(DataSource):
    """A Delta table of this machine."""

    @classmethod
    def name(cls) -> str:
        """What Spark calls it."""
        return NAME

    def reader(self, schema: StructType) -> DataSourceReader:
        """Reads a version."""
        return _Reader(
            DeltaLog(self.options[PATH]), int(self.options[VERSION]), schema, int(self.options[TASKS])
        )

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        """Reads what is there and what is appended."""
        log = DeltaLog(self.options[PATH], self.options[SKIPS] == "true")
        if self.options[PATHS] == "true":
            return _PathReader(log, int(self.options[AFTER]), schema, 1)
        return _StreamReader(log, int(self.options[AFTER]), schema, int(self.options[TASKS]))


class _Reader(DataSourceReader):
    def __init__(self, log: DeltaLog, version: int, schema: StructType, tasks: int) -> None:
        self._log, self._version, self._schema, self._tasks = log, version, schema, tasks

    def partitions(self) -> Sequence[InputPartition]:
        return _parts(self._log.files(self._version), self._tasks)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        yield from _rows(partition, self._schema)


class _StreamReader(DataSourceStreamReader):
    def __init__(self, log: DeltaLog, after: int, schema: StructType, tasks: int) -> None:
        self._log, self._after, self._schema, self._tasks = log, after, schema, tasks

    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        return {_VERSION: self._after}

    def latestOffset(self) -> dict[str, int]:  # type: ignore[override]  # noqa: N802 - the older form of it
        return {_VERSION: self._log.newest()}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        after, until = start[_VERSION], end[_VERSION]
        if until < after:
            raise StreamFailedError(
                f"Delta table {self._log.path} has version {until}, and the stream has read version {after}: the table was created again. "
                "Start with a new checkpoint and a new output folder."
            )
        files = self._log.files(until) if after == FROM_ALL else self._log.appended(after, until)
        return _parts(files, self._tasks)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        yield from _rows(partition, self._schema)


class _PathReader(_StreamReader):
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, _Part), "planned here"
        yield pa.record_batch({"path": [f"file:{each.path}" for each in partition.files]})


def _parts(files: Sequence[DataFile], tasks: int) -> list[InputPartition]:
    """Spreads files over tasks so that each reads about as many bytes, order kept."""
    total = sum(each.size for each in files)
    number = max(1, min(tasks, len(files)))
    parts: list[list[DataFile]] = [[] for _ in range(number)]
    taken = 0
    for each in files:
        parts[min(number - 1, taken * number // max(1, total))].append(each)
        taken += each.size
    return [_Part(part) for part in parts if part]


def _rows(partition: InputPartition, schema: StructType) -> Iterator[pa.RecordBatch]:
    assert isinstance(partition, _Part), "planned here"
    for file in partition.files:
        yield from read_file(file, to_arrow_schema(schema, timezone="UTC"))
