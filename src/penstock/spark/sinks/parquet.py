"""The sink `parquet`: a folder of Parquet files, local or in an object store, partitioned by columns.

The names of a delivery's files say its sink and number: a repeated delivery replaces them with the same rows.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from functools import partial
from pathlib import Path

import pyarrow.dataset as ds
from pyspark.sql import SparkSession

from penstock.errors import InputError, SqlError
from penstock.spark.sinks import options
from penstock.spark.sinks.delivery import Delivery, Mode
from penstock.spark.sinks.providers import Opens, PlainTarget, Promise, SinkTable, TargetHome
from penstock.spark.sinks.published import Limits
from penstock.spark.storage.store_paths import StorePath, files_in, store_path
from penstock.stores.files import Files

_MOST_PARTITIONS = 4_096


class _FolderTarget(PlainTarget):
    """Writes files beside the folder first.

    Args:
        files: the folder's.
        staged: a local folder that no reader looks into.
        partition_by: columns that name folders.
    """

    def __init__(self, files: Files, staged: Path, partition_by: tuple[str, ...]) -> None:
        self._files = files
        self._staged = staged
        self._partition_by = list(partition_by)

    def deliver(self, delivery: Delivery) -> None:
        shutil.rmtree(self._staged, ignore_errors=True)
        ds.write_dataset(
            delivery.rows,
            self._staged,
            format="parquet",
            basename_template=f"{delivery.sink}-{delivery.number:010d}-{{i}}.parquet",
            partitioning=self._partition_by or None,
            partitioning_flavor="hive" if self._partition_by else None,
            max_partitions=_MOST_PARTITIONS,
        )
        written = sorted(self._staged.rglob("*.parquet"))
        self._files.put_all({file.relative_to(self._staged).as_posix(): file for file in written})
        shutil.rmtree(self._staged)


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
            SqlError: the path is neither a folder nor an address of an object store.
        """
        path = options.required(table, "path")
        try:
            folder = store_path(path)
        except InputError as error:
            raise SqlError(f"table {table.name}: {error}", *table.statement.at("path")) from error
        return partial(_opened, folder, options.columns(table, "partition_by"))


def _opened(folder: StorePath, partition_by: tuple[str, ...], home: TargetHome) -> _FolderTarget:
    # readers pass over folders whose names begin with a dot
    staged = folder / f".{home.id}" if isinstance(folder, Path) else home.folder / "staged"
    return _FolderTarget(files_in(folder), staged, partition_by)


PROVIDER = ParquetProvider()
