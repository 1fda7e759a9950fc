"""The sink `iceberg`: a table of any Iceberg catalog, written by pyiceberg without Spark.

Each delivery is one commit, with the number of the delivery as a property of the table and in the snapshot's summary. Both are compared before
each commit, and the library repeats none (docs/decisions/0085).
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import SparkSession

from penstock.errors import PenstockError, SqlError, TypeMismatchError
from penstock.plan.spark_types import spark_name
from penstock.redaction import option_secrets_masked
from penstock.spark.sinks import options
from penstock.spark.sinks.delivery import Delivery, Mode, is_taken
from penstock.spark.sinks.iceberg_files import delete_unreached, merge_small, upsert
from penstock.spark.sinks.lengths import seconds
from penstock.spark.sinks.providers import Opens, PlainTarget, Promise, SinkTable, TargetHome
from penstock.spark.sinks.published import Limits

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.partitioning import PartitionSpec
    from pyiceberg.schema import Schema
    from pyiceberg.table import Table
    from pyiceberg.table.snapshots import Snapshot

_log = logging.getLogger(__name__)
PREFIX = "catalog."
#: the last delivery of a sink: a property of the table, its sink's identity behind it
_DELIVERED = "penstock.delivered."
#: what a summary says
_SINK, _NUMBER, _VIEW, _BATCH = "penstock-sink", "penstock-delivery", "penstock-view", "penstock-batch"
#: how often a delivery is tried on a table that others write too
_TRIES = 5
_MAINTAIN_EVERY = 20
_KEEP_SECONDS = 3_600.0
#: of tables that the sink creates: lists of files stay short, and so does the list of their versions
_CREATED_WITH = {
    "commit.manifest-merge.enabled": "true",
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "20",
}


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a table is, and how it is arranged.

    Attributes:
        catalog: the catalog's name in pyiceberg's configuration.
        properties: of the catalog.
        table: namespaces and name, with dots between.
        location: of a new table; None: the catalog chooses.
        partition_by: columns, of a new table.
        maintain_every: small files are merged, and snapshots expire, after so many deliveries; 0: never.
        keep_seconds: how long a snapshot of the sink's remains at the least.
    """

    catalog: str
    properties: Mapping[str, str] = field(repr=False)
    table: str
    location: str | None
    partition_by: tuple[str, ...]
    maintain_every: int
    keep_seconds: float


class _IcebergTarget(PlainTarget):
    def __init__(self, place: _Place) -> None:
        self._place = place
        self._catalog: Catalog | None = None
        #: the columns of the table and of rows that fit it
        self._fitted: tuple[Schema, pa.Schema] | None = None

    def deliver(self, delivery: Delivery) -> None:
        try:
            self._deliver(delivery)
        except PenstockError:
            raise
        except Exception as error:
            told = f"{type(error).__name__}: {error}"
            if (
                plain := option_secrets_masked(told, self._place.properties)
            ) == told and error.__cause__ is None:
                raise
            raise ConnectionError(f"Iceberg: {plain}") from None

    def _deliver(self, delivery: Delivery) -> None:
        from pyiceberg.exceptions import CommitFailedException

        from penstock.spark.sinks.iceberg_changes import Change

        is_upsert = delivery.form.mode == "upsert"
        changed = delivery.upserts if is_upsert else None
        rows = delivery.rows if changed is None else changed.rows
        schema = pa.schema([iceberg_field(each) for each in rows.schema])
        for _ in range(_TRIES):
            table = self._table(schema)
            if is_taken(delivery, _delivered(table, delivery.sink), "the table"):
                return
            told = _told(delivery)
            change = Change(table)
            if self._fitted != (table.schema(), schema):
                change.update_schema().union_by_name(schema).commit()
            if changed is None:
                change.append(rows.cast(schema), snapshot_properties=told)
            else:
                upsert(change, told, changed, delivery.form.key)
            change.set_properties({_DELIVERED + delivery.sink: str(delivery.number)})
            # another writer was there in between, perhaps a run that has taken over
            with suppress(CommitFailedException):
                self._fitted = change.commit_transaction().schema(), schema
                break
        else:
            raise ConnectionError(f"Iceberg: other writers changed table {self._place.table} each time")
        every = self._place.maintain_every
        if every and delivery.number % every == every - 1:
            self._maintain(delivery)

    def _table(self, schema: pa.Schema) -> Table:
        """The table as it is now, created where it is missing."""
        from pyiceberg.catalog import load_catalog
        from pyiceberg.exceptions import NoSuchTableError

        place = self._place
        if self._catalog is None:
            self._catalog = load_catalog(place.catalog, **place.properties)
        with suppress(NoSuchTableError):
            return self._catalog.load_table(place.table)
        self._catalog.create_namespace_if_not_exists(place.table.rpartition(".")[0])
        columns, spec = _new(schema, place.partition_by)
        return self._catalog.create_table_if_not_exists(
            place.table, columns, place.location, spec, properties=_CREATED_WITH
        )

    def _maintain(self, delivery: Delivery) -> None:
        """Merges small files, and lets old snapshots of the sink expire."""
        from penstock.spark.sinks.iceberg_changes import Change

        try:
            assert self._catalog is not None, "a delivery has opened it"
            table = self._catalog.load_table(self._place.table)
            change = Change(table)
            if merge_small(change, {_SINK: delivery.sink, _VIEW: delivery.view}):
                change.commit_transaction()
            self._expire(table, delivery.sink)
        except Exception as error:
            # the rows are there: the next time does it
            told = option_secrets_masked(str(error), self._place.properties)
            _log.warning("cannot merge the small files of the Iceberg table %s: %s", self._place.table, told)

    def _expire(self, table: Table, sink: str) -> None:
        before = datetime.now(UTC) - timedelta(seconds=self._place.keep_seconds)
        held = {each.snapshot_id for each in table.refs().values()}
        expired = [
            each
            for each in table.snapshots()
            if each.timestamp_ms < before.timestamp() * 1_000
            and each.snapshot_id not in held
            and _of_summary(each).get(_SINK) == sink
        ]
        if expired:
            table.maintenance.expire_snapshots().by_ids([each.snapshot_id for each in expired]).commit()
            delete_unreached(table, expired)


def _new(schema: pa.Schema, partition_by: tuple[str, ...]) -> tuple[Schema, PartitionSpec]:
    """The columns of a new table, and what it is partitioned by."""
    from pyiceberg.io.pyarrow import _pyarrow_to_schema_without_ids
    from pyiceberg.partitioning import PARTITION_FIELD_ID_START, PartitionField, PartitionSpec
    from pyiceberg.schema import assign_fresh_schema_ids
    from pyiceberg.transforms import IdentityTransform

    columns = assign_fresh_schema_ids(_pyarrow_to_schema_without_ids(schema))
    fields = [
        PartitionField(
            columns.find_field(name).field_id, PARTITION_FIELD_ID_START + place, IdentityTransform(), name
        )
        for place, name in enumerate(partition_by)
    ]
    return columns, PartitionSpec(*fields)


def _told(delivery: Delivery) -> dict[str, str]:
    return {
        _SINK: delivery.sink,
        _NUMBER: str(delivery.number),
        _VIEW: delivery.view,
        _BATCH: str(delivery.batch),
    }


def _delivered(table: Table, sink: str) -> int | None:
    """The number of a sink's last delivery in a table: by the snapshots that remain, else by the property."""
    from pyiceberg.table.snapshots import ancestors_of

    for each in ancestors_of(table.current_snapshot(), table.metadata):
        told = _of_summary(each)
        if told.get(_SINK) == sink and _NUMBER in told:
            return int(told[_NUMBER])
    number = table.properties.get(_DELIVERED + sink)
    return None if number is None else int(number)


def _of_summary(snapshot: Snapshot) -> Mapping[str, str]:
    return {} if snapshot.summary is None else snapshot.summary.additional_properties


def iceberg_field(column: pa.Field) -> pa.Field:
    """A column as Iceberg stores it: integers of 32 or 64 bits, and any value may be missing."""
    return pa.field(column.name, _stored(column.type))


def _stored(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_int8(kind) or pa.types.is_int16(kind):
        return pa.int32()
    if pa.types.is_struct(kind):
        return pa.struct([iceberg_field(each) for each in kind])
    if pa.types.is_list(kind):
        return pa.list_(_stored(kind.value_type))
    if pa.types.is_map(kind):
        return pa.map_(_stored(kind.key_type), _stored(kind.item_type))
    return kind


class IcebergProvider:
    """Rows in a table of an Iceberg catalog."""

    modes: tuple[Mode, ...] = ("upsert", "append", "changes")
    promise: Promise = "exactly once"
    limits = Limits(rows=1_000_000, batches=None)
    prefixes = (PREFIX,)
    #: each commit adds a snapshot to the table's metadata, which the next one writes again
    every_seconds = 30.0

    def options(self) -> Iterable[str]:
        """The table, its catalog, and how its files are arranged."""
        return ("catalog", "table", "location", "partition_by", "compact_every", "keep_snapshots")

    def open(self, spark: SparkSession, table: SinkTable) -> Opens:  # noqa: ARG002
        """See `SinkProvider`.

        Raises:
            TypeMismatchError: a column has a type that Iceberg tables have not.
        """
        options.library(table, "pyiceberg", "iceberg")
        name = options.required(table, "table")
        if "." not in name or not all(name.split(".")):
            raise SqlError(
                f"table {table.name}: table is '{name}'; write namespace.table", *table.statement.at("table")
            )
        place = _Place(
            table.options.get("catalog", "default"),
            _properties(table),
            name,
            table.options.get("location"),
            options.columns(table, "partition_by"),
            options.whole_number(table, "compact_every", _MAINTAIN_EVERY),
            seconds(table.statement, table.options, "keep_snapshots", _KEEP_SECONDS),
        )
        for each in table.columns:
            _check_type(table, each, is_partition=each.name in place.partition_by)
        return partial(_opened, place)


def _properties(table: SinkTable) -> dict[str, str]:
    """The properties of a table's catalog: those that a file has are read.

    Raises:
        SqlError: nothing says where the catalog is.
    """
    from pyiceberg.catalog import CatalogType
    from pyiceberg.utils.config import Config

    found = {
        name.removeprefix(PREFIX): value for name, value in table.options.items() if name.startswith(PREFIX)
    }
    catalog = table.options.get("catalog", "default")
    known = {**(Config().get_catalog_config(catalog) or {}), **found}
    if not {"uri", "type", "py-catalog-impl"} & set(known):
        raise SqlError(
            f"table {table.name}: nothing says where catalog {catalog} is. Set catalog.type and catalog.uri, or describe it in .pyiceberg.yaml.",
            *table.statement.at("catalog"),
        )
    kinds = [each.value for each in CatalogType]
    kind = found.get("type", kinds[0])
    if kind.lower() not in kinds:
        raise SqlError(
            f"table {table.name}: catalog.type is '{kind}'; allowed: {', '.join(kinds)}",
            *table.statement.at("catalog.type"),
        )
    return found


def _check_type(table: SinkTable, column: pa.Field, *, is_partition: bool) -> None:
    from pyiceberg.io.pyarrow import UnsupportedPyArrowTypeException, _pyarrow_to_schema_without_ids

    kind = iceberg_field(column)
    try:
        _pyarrow_to_schema_without_ids(pa.schema([kind]))
    except (UnsupportedPyArrowTypeException, TypeError, ValueError) as error:
        raise TypeMismatchError(
            f"table {table.name}: column {column.name} is {spark_name(column.type)}, which Iceberg tables do not have. CAST it, or leave it out.",
            *table.statement.at("using"),
        ) from error
    if is_partition and pa.types.is_nested(kind.type):
        raise SqlError(
            f"table {table.name}: partition_by names column {column.name}, which is {spark_name(column.type)}. Name columns with plain values.",
            *table.statement.at("partition_by"),
        )


def _opened(place: _Place, home: TargetHome) -> _IcebergTarget:  # noqa: ARG001
    return _IcebergTarget(place)


PROVIDER = IcebergProvider()
