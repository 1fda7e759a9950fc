"""The sink `delta`: a Delta Lake table, written without Spark.

Each delivery is one commit with an application transaction: the identity of the sink and the number of the delivery. The library takes a
second commit of the same number, so the number in the table is compared before each commit.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import SparkSession

from penstock.errors import PenstockError, SqlError, TypeMismatchError
from penstock.plan.spark_types import spark_name
from penstock.spark.sinks import options
from penstock.spark.sinks.delivery import IS_FINAL, Delivery, Mode, Upserts, is_taken
from penstock.spark.sinks.providers import Opens, PlainTarget, Promise, SinkTable, TargetHome
from penstock.spark.sinks.published import Limits

if TYPE_CHECKING:
    from deltalake import CommitProperties, DeltaTable

_log = logging.getLogger(__name__)
_FORBIDDEN = re.compile(r"[ ,;{}()\n\t=]")
#: the library says causes as a tree, in colours
_CAUSE = re.compile(r"\s*(?:\x1b\[[\d;]*m)*↳(?:\x1b\[[\d;]*m)*\s*")
#: of rows that are merged: whether the row is withdrawn
_GONE = "__penstock_gone"
#: small files are made one after so many deliveries
_COMPACT_EVERY = 100


class DeltaTableError(Exception):
    """A Delta table cannot be read or written."""


class _DeltaTarget(PlainTarget):
    def __init__(self, path: str, partition_by: tuple[str, ...], compact_every: int) -> None:
        self._path = path
        self._partition_by = list(partition_by)
        self._compact_every = compact_every
        self._table: DeltaTable | None = None

    def deliver(self, delivery: Delivery) -> None:
        try:
            self._deliver(delivery)
        except PenstockError:
            raise
        except Exception as error:
            # what the library and the system say names no table
            passes = isinstance(error, ConnectionError | TimeoutError)
            kind = ConnectionError if passes else DeltaTableError
            told = " ".join(_CAUSE.sub(": ", str(error)).split())
            raise kind(f"Delta table {self._path}: {type(error).__name__}: {told}") from None

    def _deliver(self, delivery: Delivery) -> None:
        is_upsert = delivery.form.mode == "upsert"
        table = self._current() or self._created(delivery.upserts.rows if is_upsert else delivery.rows)
        if is_taken(delivery, table.transaction_version(delivery.sink), "the table"):
            return
        if is_upsert:
            self._upsert(table, delivery, delivery.upserts)
        else:
            self._append(table, delivery.rows, _committed_as(delivery))
        if self._compact_every and delivery.number % self._compact_every == self._compact_every - 1:
            self._compact()

    def _current(self) -> DeltaTable | None:
        """The table as it is now; None where it does not exist yet."""
        from deltalake import DeltaTable

        if self._table is None:
            if not DeltaTable.is_deltatable(self._path):
                return None
            self._table = DeltaTable(self._path)
        else:
            self._table.update_incremental()
        return self._table

    def _created(self, rows: pa.Table) -> DeltaTable:
        """The table, made unless another process has just done so: what is written to it then meets that one's commits."""
        from deltalake import DeltaTable

        DeltaTable.create(
            self._path, rows.schema, mode="ignore", partition_by=list(self._partition_by) or None
        )
        self._table = DeltaTable(self._path)
        return self._table

    def _append(self, table: DeltaTable, rows: pa.Table, committed: CommitProperties | None) -> None:
        from deltalake import write_deltalake

        write_deltalake(table, rows, mode="append", schema_mode="merge", commit_properties=committed)

    def _upsert(self, table: DeltaTable, delivery: Delivery, changed: Upserts) -> None:
        known = {field.name for field in table.schema().fields}
        if not known.issuperset(changed.rows.column_names):
            # a merge that adds columns fills them in rows that it leaves as they are
            self._append(table, changed.rows.slice(0, 0), None)
            table.update_incremental()
            if is_taken(delivery, table.transaction_version(delivery.sink), "the table"):
                return
        source = _with_deleted(changed)
        key = delivery.form.key
        same = " AND ".join(_same(name, source.schema.field(name).type) for name in key)
        merge = table.merge(
            source, same, source_alias="s", target_alias="t", commit_properties=_committed_as(delivery)
        )
        is_newer = "(s.`is_final` OR NOT t.`is_final`)" if IS_FINAL in changed.rows.column_names else "TRUE"
        merge = merge.when_matched_delete(predicate=f"s.`{_GONE}` AND {is_newer}")
        merge = merge.when_matched_update_all(
            predicate=f"NOT s.`{_GONE}` AND {is_newer}", except_cols=[_GONE]
        )
        merge.when_not_matched_insert_all(predicate=f"NOT s.`{_GONE}`", except_cols=[_GONE]).execute()

    def _compact(self) -> None:
        table = self._current()
        try:
            if table is not None:
                table.optimize.compact()
        except Exception as error:
            # the rows are there: the next time does it
            _log.warning("cannot merge the small files of the Delta table %s: %s", self._path, error)


def _committed_as(delivery: Delivery) -> CommitProperties:
    from deltalake import CommitProperties, Transaction

    told = {"penstock_view": delivery.view, "penstock_batch": str(delivery.batch)}
    return CommitProperties(
        custom_metadata=told, app_transactions=[Transaction(delivery.sink, delivery.number)]
    )


def _with_deleted(changed: Upserts) -> pa.Table:
    rows, gone = changed.rows, changed.deleted
    kept = rows.append_column(_GONE, pa.array([False] * rows.num_rows, pa.bool_()))
    if not gone.num_rows:
        return kept
    columns: list[Any] = [
        gone.column(field.name) if field.name in gone.column_names else pa.nulls(gone.num_rows, field.type)
        for field in rows.schema
    ]
    withdrawn = pa.table(columns, rows.schema.names)
    withdrawn = withdrawn.append_column(_GONE, pa.array([True] * gone.num_rows, pa.bool_()))
    return pa.concat_tables([kept, withdrawn.cast(kept.schema)])


def _same(name: str, kind: pa.DataType) -> str:
    """The condition that a column of two rows is the same, NULL among its values."""
    if pa.types.is_struct(kind):
        return " AND ".join(f"t.`{name}`['{each.name}'] = s.`{name}`['{each.name}']" for each in kind)
    return f"(t.`{name}` = s.`{name}` OR (t.`{name}` IS NULL AND s.`{name}` IS NULL))"


class DeltaProvider:
    """Rows in a Delta table."""

    modes: tuple[Mode, ...] = ("upsert", "append", "changes")
    promise: Promise = "exactly once"
    limits = Limits(rows=1_000_000, batches=None)
    #: a commit costs some 10 ms and a file, however few its rows
    every_seconds = 5.0

    def options(self) -> Iterable[str]:
        """Where it lies, and how its files are arranged."""
        return ("path", "partition_by", "compact_every")

    def open(self, spark: SparkSession, table: SinkTable) -> Opens:  # noqa: ARG002
        """See `SinkProvider`.

        Raises:
            TypeMismatchError: a column has a type that Delta tables have not.
        """
        delta = options.library(table, "deltalake", "delta")
        path = options.required(table, "path")
        partition_by = options.columns(table, "partition_by")
        compact_every = options.whole_number(table, "compact_every", _COMPACT_EVERY)
        for field in table.columns:
            if _FORBIDDEN.search(field.name):
                raise SqlError(
                    f"table {table.name}: a Delta table cannot have a column named '{field.name}'. Rename it with AS.",
                    *table.statement.at("using"),
                )
            try:
                delta.Schema.from_arrow(pa.schema([field]))
            except Exception as error:
                raise TypeMismatchError(
                    f"table {table.name}: column {field.name} is {spark_name(field.type)}, which Delta tables do not have. CAST it, or leave "
                    "it out.",
                    *table.statement.at("using"),
                ) from error
        return partial(_opened, path, partition_by, compact_every)


def _opened(
    path: str,
    partition_by: tuple[str, ...],
    compact_every: int,
    home: TargetHome,  # noqa: ARG001
) -> _DeltaTarget:
    return _DeltaTarget(path, partition_by, compact_every)


PROVIDER = DeltaProvider()
