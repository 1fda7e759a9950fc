"""Folders of JSON lines: workers read and decode them in the scan where the plan and the file allow it.

Lines that a worker might read differently from Spark are read by Spark in a second job of the same batch; see
`tasks/json_files.py`. Files that only Spark reads, and those with lines that are too long, are left to the source behind a DataFrame.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import quote

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from penstock.monitor.figures import counted
from penstock.operators.ingest.arrivals import FILE
from penstock.operators.ingest.json_decode import decodable
from penstock.operators.windows.arrival_steps import file_steps
from penstock.plan.expressions import Derived
from penstock.settings import Settings
from penstock.spark.analysis.schemas import arrow_schema
from penstock.spark.sources.event_times import StoredTimes
from penstock.spark.sources.long_lines import COMPRESSED, long_lines
from penstock.spark.sources.source import BoundBatch, DataFrameSource, SimpleSource
from penstock.spark.sources.stored_fields import StoredFields
from penstock.spark.storage.offsets import times_of_batch
from penstock.spark.storage.past import Past
from penstock.spark.tasks.dataframe_stage import ARRIVAL_STEP, ORIGIN
from penstock.spark.tasks.json_files import Copied, Segment, run_json_files, segments
from penstock.spark.tasks.parquet_files import local_path, other_kind
from penstock.spark.tasks.worker import TaskReport

#: ASCII letters of a path that Spark does not escape in a URI
_UNESCAPED = "/_-!.~'()*,;:$&+=@"
#: below this many bytes a task its start costs more than it gains
_LEAST_BYTES_A_TASK = 8 << 20
_TASKS_A_CORE = 2


@dataclass(frozen=True, slots=True)
class JsonSource(SimpleSource):
    """A local folder of JSON lines, read with no option of Spark's reader.

    Attributes:
        behind: the folder behind a DataFrame.
        records, apart: see `TolerantFiles`.
        path: the folder.
        settings: frozen settings.
        times: how the event time is stored; None: as a timestamp.
        fields: how the columns are taken from the records; None: each has a field of its name.
    """

    behind: DataFrameSource
    records: Callable[[SparkSession], DataFrame]
    apart: Callable[[DataFrame], DataFrame]
    path: str
    settings: Settings
    times: StoredTimes | None = None
    fields: StoredFields | None = None

    @property
    def schema(self) -> StructType:
        """The tuple's columns."""
        return self.behind.schema

    @property
    def event_time(self) -> str | None:
        """Name of the event time column, or None."""
        return self.behind.event_time

    def timed(self, times: StoredTimes) -> JsonSource:
        """The source with its event time as a TIMESTAMP."""
        apart = self.apart
        return replace(
            self,
            behind=self.behind.timed(times),
            apart=lambda frame: times.of(apart(frame)),
            times=times,
        )

    def of_fields(self, fields: StoredFields) -> JsonSource:
        """The source with its columns taken from inside its records."""
        apart = self.apart
        return replace(
            self,
            behind=self.behind.of_fields(fields),
            apart=lambda frame: fields.of(apart(frame)),
            fields=fields,
        )

    def frame(self, spark: SparkSession) -> DataFrame:
        """The streaming frame; of a batch that workers read only its files are asked for.

        Spark plans it for each batch, also where nobody reads it.
        """
        return self.records(spark)

    def again(self, spark: SparkSession, past: Past) -> Iterable[DataFrame]:
        """The files that were read before."""
        return self.behind.again(spark, past)

    def run(self, df: DataFrame, batch: BoundBatch) -> list[TaskReport]:
        """One job in the scan, one over the lines that its tasks leave to Spark, and one for the files that only Spark reads."""
        paths = [] if self._why_not(batch.derived) else batch.files(df)
        sizes = {path: size for path in paths if (size := self._size(path)) is not None}
        if not sizes:
            return self.behind.run(self.apart(df), batch)
        batch.arrived_by = FILE
        spark = df.sparkSession
        steps = _steps(batch)
        splits = _split(
            [each for path, size in sizes.items() for each in segments(path, size, steps.get(path, 0))],
            spark.sparkContext.defaultParallelism,
        )
        reports: list[TaskReport] = []
        if splits:
            times = None if self.times is None else self.times.epoch
            fields = None if self.fields is None else self.fields.fields
            reports += run_json_files(spark, splits, arrow_schema(self._stored), times, batch.job(), fields)
        copied = [each for report in reports for each in report.refused]
        if copied:
            reports += batch.run_behind(self._left(spark, copied, steps), self.behind.form)
        rest = [path for path in paths if path not in sizes]
        return reports + (self.behind.run_files(spark, rest, batch) if rest else [])

    def place(self, derived: tuple[Derived, ...]) -> str:
        """In the worker's own JSON decoder, or behind Spark's."""
        why = self._why_not(derived)
        return f"slower path: {why}" if why else "fast path: Python workers read and decode the JSON files"

    @property
    def _stored(self) -> StructType:
        """The columns with the types of their fields in the records."""
        return self.schema if self.times is None else self.times.stored

    def _why_not(self, derived: tuple[Derived, ...]) -> str | None:
        for name in ("map_in_scan", "decode_in_worker"):
            if not getattr(self.settings, name):
                return f"the setting {name} is off"
        if derived:
            return f"Spark computes {counted(len(derived), 'expression')}, such as {derived[0].expression}"
        if not decodable(arrow_schema(self._stored)):
            return "Spark decodes json before the rules run: only Spark decodes the type of a column"
        if self.times is not None and self.times.epoch is None:
            return "Spark decodes json before the rules run: only Spark reads the format of the event time"
        return None

    def _size(self, uri: str) -> int | None:
        """The bytes of a file that workers read; None where only Spark reads it, or tells why nobody does."""
        path = local_path(uri)
        if path is None or path.lower().endswith(COMPRESSED) or other_kind(uri) is not None:
            return None
        # Spark would make columns of partition folders; the URI of a name is known in ASCII only
        if "=" in str(Path(path).parent).removeprefix(self.path) or not path.isascii():
            return None
        try:
            with Path(path).open("rb") as file:
                size = file.seek(0, 2)
        except OSError:
            return None
        return None if long_lines(uri, self.settings.max_record_bytes, self.behind.line_ends) else size

    def _left(self, spark: SparkSession, copied: Sequence[Copied], steps: Mapping[str, int]) -> DataFrame:
        """Lines that Spark has to read, each with its own file as its origin."""
        read = self.behind.read
        assert read is not None, "a source of files"
        folder = {"basePath": str(Path(copied[0].copy).parent)}
        frame = read(spark, [each.copy for each in copied], folder)
        copy = F.element_at(F.split(F.col(ORIGIN), "/"), -1)
        names = [Path(each.copy).name for each in copied]
        if steps:
            own = {name: F.lit(steps[each.path]) for name, each in zip(names, copied, strict=True)}
            frame = frame.withColumn(ARRIVAL_STEP, _looked_up(own, copy))
        origins = {name: F.lit(_uri(each.path)) for name, each in zip(names, copied, strict=True)}
        return frame.withColumn(ORIGIN, _looked_up(origins, copy))


def _looked_up(values: Mapping[str, Column], key: Column) -> Column:
    return F.create_map(*(each for name, value in values.items() for each in (F.lit(name), value)))[key]


def _uri(uri: str) -> str:
    """The URI of a file as Spark's `_metadata` has it."""
    path = local_path(uri)
    assert path is not None, "planned for local files"
    return "file:" + quote(path, safe=_UNESCAPED)


def _steps(batch: BoundBatch) -> dict[str, int]:
    """The arrival steps of a batch's files, by their times; nothing where the batch has but one."""
    times = None if batch.checkpoint is None else times_of_batch(batch.checkpoint, batch.number)
    if times is None or len(set(times.values())) < 2 or batch.cut(len(times)) < 2:
        return {}
    found = file_steps([(time, 1) for time in times.values()], batch.steps)
    return dict(zip(times, found, strict=True))


def _split(every: Sequence[Segment], cores: int) -> list[list[Segment]]:
    """Spreads segments over tasks so that each gets about as many bytes, order kept."""
    total = sum(each.end - each.begin for each in every)
    tasks = min(cores * _TASKS_A_CORE, max(cores, total // _LEAST_BYTES_A_TASK), len(every))
    splits: list[list[Segment]] = [[] for _ in range(tasks)]
    taken = 0
    for each in every:
        splits[min(tasks - 1, taken * tasks // total)].append(each)
        taken += each.end - each.begin
    return [part for part in splits if part]
