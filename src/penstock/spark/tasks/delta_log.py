"""What a Delta table has: the data files of a version, and those that later versions append."""

from __future__ import annotations

import errno
import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from penstock.errors import StreamFailedError

_LOG = "_delta_log"
_COMMIT = re.compile(r"\d{20}\.json")
#: rows that are read at a time
_ROWS = 65_536


@dataclass(frozen=True, slots=True)
class DataFile:
    """A data file.

    Attributes:
        path: its absolute path.
        size: its bytes.
        partition: names of the columns that it does not have, with the text of their value.
    """

    path: str
    size: int
    partition: tuple[tuple[str, str | None], ...]


@dataclass(frozen=True, slots=True)
class DeltaLog:
    """The log of a table.

    Attributes:
        path: the table's folder.
        skips_changes: whether versions that delete or rewrite rows are passed over.
    """

    path: str
    skips_changes: bool = False

    def newest(self) -> int:
        """The newest version.

        Raises:
            FileNotFoundError: the table is not there.
        """
        with os.scandir(Path(self.path) / _LOG) as entries:
            versions = [int(each.name[:20]) for each in entries if _COMMIT.fullmatch(each.name)]
        if not versions:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), self.path)
        return max(versions)

    def files(self, version: int) -> list[DataFile]:
        """All files of a version."""
        from deltalake import DeltaTable

        actions = pa.table(DeltaTable(self.path, version=version).get_add_actions()).to_pylist()
        return [
            DataFile(
                self._at(each["path"]),
                int(each["size_bytes"]),
                tuple((name, _text(value)) for name, value in (each.get("partition") or {}).items()),
            )
            for each in actions
        ]

    def appended(self, after: int, until: int) -> list[DataFile]:
        """The files that versions have appended, in their order.

        Args:
            after: the version before the first one.
            until: the last one.

        Raises:
            StreamFailedError: a version deletes or rewrites rows, or is not in the log any more.
        """
        return [file for version in range(after + 1, until + 1) for file in self._appended(version)]

    def _appended(self, version: int) -> Iterator[DataFile]:
        actions = self._actions(version)
        removed = next((each for each in actions if each.get("remove", {}).get("dataChange")), None)
        if removed is not None and not self.skips_changes:
            raise StreamFailedError(
                f"Delta table {self.path}: version {version} deletes or rewrites rows, and a stream reads appended rows alone. "
                "Set the table option skip_change_commits 'true' to pass over such versions."
            )
        if removed is not None:
            return
        for each in actions:
            added = each.get("add")
            if added is None or not added.get("dataChange", True):
                continue
            if added.get("deletionVector"):
                raise StreamFailedError(
                    f"Delta table {self.path}: version {version} has deletion vectors, which Penstock does not read."
                )
            yield DataFile(
                self._at(added["path"]),
                int(added["size"]),
                tuple((added.get("partitionValues") or {}).items()),
            )

    def _actions(self, version: int) -> list[dict[str, Any]]:
        try:
            text = (Path(self.path) / _LOG / f"{version:020d}.json").read_text()
        except FileNotFoundError:
            raise StreamFailedError(
                f"Delta table {self.path}: version {version} was removed from its log before the stream has read it. "
                "Start with a new checkpoint and a new output folder."
            ) from None
        return [json.loads(line) for line in text.splitlines() if line.strip()]

    def _at(self, path: str) -> str:
        # the log has paths as URIs, relative to the table unless the table is a shallow copy
        plain = unquote(path.removeprefix("file://"))
        return str(Path(self.path) / plain)


def _text(value: Any) -> str | None:
    """The value of a partition column as the log has it."""
    return None if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def read_file(file: DataFile, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The rows of a file.

    Args:
        file: the file.
        schema: the wanted columns; what the file has not is NULL.
    """
    given = dict(file.partition)
    with pq.ParquetFile(file.path) as parquet:
        stored = set(parquet.schema_arrow.names)
        own = [name for name in schema.names if name in stored and name not in given]
        for batch in parquet.iter_batches(_ROWS, columns=own):
            columns = []
            for field in schema:
                if field.name in own:
                    columns.append(_cast(batch.column(field.name), field.type))
                else:
                    text = pa.array([given.get(field.name)], pa.string())
                    columns.append(
                        _constant(text, field.type).take(pa.array([0] * batch.num_rows, pa.int32()))
                    )
            yield pa.RecordBatch.from_arrays(columns, schema=schema)


def _constant(text: pa.Array, kind: pa.DataType) -> pa.Array:
    if pa.types.is_timestamp(kind):
        moment = pc.replace_substring_regex(text, r"(Z|\+00:00)$", "").cast(pa.timestamp("us"))
        return moment if kind.tz is None else pc.assume_timezone(moment, "UTC")
    return text.cast(kind)


def _cast(column: pa.Array, kind: pa.DataType) -> pa.Array:
    return column if column.type == kind else column.cast(kind)
