"""The sink `parquet`: a folder of Parquet files, partitioned by columns.

The names of a delivery's files say its sink and number: a repeated delivery replaces them with the same rows.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from functools import partial
from pathlib import Path

import pyarrow.dataset as ds
from pyspark.sql import SparkSession

from penstock.errors import SqlError
from penstock.spark.sinks import options
from penstock.spark.sinks.delivery import Delivery, Mode
from penstock.spark.sinks.providers import Opens, PlainTarget, Promise, SinkTable, TargetHome
from penstock.spark.sinks.published import Limits
from penstock.stores.durable import sync_folder

_MOST_PARTITIONS = 4_096


class _FolderTarget(PlainTarget):
    def __init__(self, folder: Path, partition_by: tuple[str, ...]) -> None:
        self._folder = folder
        self._partition_by = list(partition_by)

    def deliver(self, delivery: Delivery) -> None:
        # readers pass over folders whose names begin with a dot
        staged = self._folder / f".{delivery.sink}"
        shutil.rmtree(staged, ignore_errors=True)
        ds.write_dataset(
            delivery.rows,
            staged,
            format="parquet",
            basename_template=f"{delivery.sink}-{delivery.number:010d}-{{i}}.parquet",
            partitioning=self._partition_by or None,
            partitioning_flavor="hive" if self._partition_by else None,
            max_partitions=_MOST_PARTITIONS,
        )
        folders = set()
        for file in sorted(staged.rglob("*.parquet")):
            target = self._folder / file.relative_to(staged)
            target.parent.mkdir(parents=True, exist_ok=True)
            with file.open("rb") as written:
                os.fsync(written.fileno())
            file.replace(target)
            folders.add(target.parent)
        for each in folders:
            sync_folder(each)
        shutil.rmtree(staged)


class ParquetProvider:
    """Rows in files."""

    modes: tuple[Mode, ...] = ("changes", "append")
    promise: Promise = "exactly once"
    limits = Limits(rows=1_000_000, batches=None)

    def options(self) -> Iterable[str]:
        """Where the files lie, and in which folders."""
        return ("path", "partition_by")

    def open(self, spark: SparkSession, table: SinkTable) -> Opens:  # noqa: ARG002
        """See `SinkProvider`.

        Raises:
            SqlError: the path is no local folder.
        """
        path = options.required(table, "path")
        if "://" in path:
            raise SqlError(
                f"table {table.name}: sink parquet writes to a local folder; use a table USING delta in an object store",
                *table.statement.at("path"),
            )
        return partial(_opened, Path(path), options.columns(table, "partition_by"))


def _opened(folder: Path, partition_by: tuple[str, ...], home: TargetHome) -> _FolderTarget:  # noqa: ARG001
    folder.mkdir(parents=True, exist_ok=True)
    return _FolderTarget(folder, partition_by)


PROVIDER = ParquetProvider()
