"""The streams and static tables that a view reads, and their stored tuples as a DataFrame."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from penstock.errors import ConnectionFailedError, InputError
from penstock.spark.declaring.declared import Declared
from penstock.spark.recovery.messages import first_line, quoted
from penstock.spark.reporting.catalog import read_catalog
from penstock.spark.reporting.definitions import lacking_columns
from penstock.spark.results.read import matches
from penstock.spark.sources.file_frames import files_at_rest
from penstock.spark.sources.listing import is_passed_over
from penstock.spark.sources.option_paths import FILE_SOURCES
from penstock.spark.sources.outside_values import filled
from penstock.spark.sources.patterns import absolute, is_pattern
from penstock.spark.sources.stored_tuples import StoredTuples, stored_tuples
from penstock.spark.storage.layout import Layout
from penstock.spark.tasks.dataframe_stage import CORRUPT, ORIGIN, REASON

#: formats of files by the ending of their names
_ENDINGS = {
    **{f".{kind}": kind for kind in ("parquet", "csv", "json", "orc")},
    ".jsonl": "json",
    ".ndjson": "json",
}


@dataclass(frozen=True, slots=True)
class Relation:
    """A stream or static table.

    Attributes:
        name: as declared.
        schema: the columns as queries see them.
        stored: how its tuples are stored.
        event_time: the event time column, or None.
    """

    name: str
    schema: StructType
    stored: StoredTuples
    event_time: str | None = None

    def over(self, place: str | None) -> Relation:
        """The relation with its tuples in another folder or file; None: where it has them itself.

        Raises:
            InputError: it has no files of its own, or nothing is at that place.
        """
        if place is not None and is_results_folder(place):
            self._refuse_lacking(place)
            return replace(self, stored=replace(self.stored, path=place))
        path = place or self.stored.path
        if path is None or (place is None and self.stored.kind not in FILE_SOURCES):
            kind = {"dataframe": "a streaming DataFrame"}.get(
                self.stored.kind, f"a {self.stored.kind} source"
            )
            raise InputError(
                f"Stream {self.name} is {kind}, which cannot be read again from files. Name a folder with stored tuples of it."
            )
        if "://" not in path and not is_pattern(path) and not Path(path).exists():
            raise InputError(f"Path {path} does not exist. Name a folder or file with tuples of {self.name}.")
        kind = self.stored.kind if place is None else _ending(path) or self.stored.kind
        if kind not in FILE_SOURCES:
            raise InputError(
                f"The format of {path} is unknown. Name a folder of files that end with {', '.join(_ENDINGS)}."
            )
        options = self.stored.options if kind == self.stored.kind else {}
        return replace(self, stored=replace(self.stored, path=path, kind=kind, options=options))

    def _refuse_lacking(self, place: str) -> None:
        folder = Path(place).resolve()
        views = read_catalog(Layout(folder, folder))["views"]
        if lacking := lacking_columns(views, self.name, self.schema.fieldNames()):
            raise InputError(
                f"Some tuples of {self.name} in {place} have no {', '.join(lacking)}: a results folder has the columns that its "
                "selections read and have read. Name a folder or file with stored tuples."
            )

    def read(self, spark: SparkSession) -> DataFrame:
        """The stored tuples.

        Returns:
            The columns as queries see them, CORRUPT and REASON, which are NULL but for records that do not fit, and ORIGIN, the file.
            Of a results folder the tuples that its views matched.

        Raises:
            ConnectionFailedError: Spark cannot read them.
        """
        path = self.stored.path
        assert path is not None, "the place is known"
        if is_results_folder(path):
            folder = Path(path).resolve()
            found = matches(spark, Layout(folder, folder), self.name)
            nothing = [F.lit(None).cast(kind).alias(name) for name, kind in ((CORRUPT, "binary"),)]
            nothing += [F.lit(None).cast("string").alias(name) for name in (REASON, ORIGIN)]
            return found.select(*map(quoted, self.schema.fieldNames()), *nothing)
        try:
            frame = files_at_rest(
                spark, self.stored.kind, absolute(path), self.stored.schema, dict(self.stored.options)
            )
        except PySparkException as error:
            raise ConnectionFailedError(f"{path}: {first_line(error)}") from error
        # a reader that is asked for some columns only does not notice what does not fit the others
        every = F.struct(*map(quoted, self.stored.schema.fieldNames())).cast("string")
        whole = frame.withColumn(REASON, F.when(F.spark_partition_id() >= 0, F.col(REASON)).otherwise(every))
        seen = self.stored.seen(whole)
        columns = [
            F.lit(None).cast(field.dataType).alias(field.name)
            if field.name == self.stored.arrival
            else F.col(quoted(field.name))
            for field in self.schema
        ]
        return seen.select(*columns, CORRUPT, REASON, ORIGIN)


def find_relation(spark: SparkSession, declared: Declared, name: str) -> Relation:
    """A declared stream or static table.

    Args:
        spark: the session.
        declared: what is declared.
        name: as declared.
    """
    if (static := declared.statics.get(name)) is not None:
        stored = StoredTuples(static.kind, static.path, static.stored, static.options, fields=static.fields)
        return Relation(name, static.schema, stored)
    source = declared.streams[name].source
    table = declared.tables.get(name)
    stored = (
        StoredTuples("dataframe", None, source.schema, {})
        if table is None
        else stored_tuples(spark, filled(table), source.schema)
    )
    return Relation(name, source.schema, stored, source.event_time)


def is_results_folder(path: str) -> bool:
    """Whether a path is a results folder of Penstock."""
    return (Path(path) / "_penstock").is_dir()


def _ending(path: str) -> str | None:
    """The format of a place's files by the ending of the first one's name that says it."""
    place = Path(path)
    files: Iterable[Path] = place.rglob("*") if place.is_dir() else (place,)
    for file in files:
        if not any(map(is_passed_over, file.relative_to(place).parts)):
            kind = next((_ENDINGS[each] for each in reversed(file.suffixes) if each in _ENDINGS), None)
            if kind is not None:
                return kind
    return None
