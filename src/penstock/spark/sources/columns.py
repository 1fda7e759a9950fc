"""What the columns of a stream may be called, and which may be its event time."""

from __future__ import annotations

import re

from pyspark.sql.types import StructType, TimestampNTZType, TimestampType

from penstock.errors import InputError
from penstock.spark.results.read import BATCH, ORDINAL, SINK_DEFINITION
from penstock.spark.sources.event_times import no_timestamp, refuse_missing
from penstock.spark.storage.names import check_length

#: columns that sinks are given beside a view's own, and the one in which Spark's readers put text that does not fit
_RESERVED = (BATCH, ORDINAL, SINK_DEFINITION, "_corrupt_record")
#: how columns begin that a batch has beside a tuple's
_PREFIX = "__penstock_"


def check_columns(stream: str, schema: StructType, event_time: str | None) -> None:
    """Refuses reserved and repeated column names and an event time that is no timestamp.

    Raises:
        InputError: a column name is reserved or stands twice.
        UnknownNameError: the event time column is not there.
    """
    if not re.fullmatch(r"\w[\w-]*", stream):
        raise InputError(
            f"stream {stream}: the name is also the name of a folder. Use letters, digits, _ and - only."
        )
    check_length("stream", stream)
    seen: set[str] = set()
    for field in schema:
        name = field.name.lower()
        if name in _RESERVED or name.startswith(_PREFIX):
            raise InputError(
                f"stream {stream}: column name {field.name} is reserved; rename it, in JSON, Avro and Protobuf with PATH "
                f"'$.{field.name}' (reserved: {', '.join(_RESERVED)} and names that begin with {_PREFIX})"
            )
        if name in seen:
            raise InputError(
                f"stream {stream}: column {field.name} is declared twice; names are case-insensitive. Rename one."
            )
        seen.add(name)
    if event_time is None:
        return
    refuse_missing(stream, schema, event_time)
    kind = schema[event_time].dataType
    if not isinstance(kind, TimestampType | TimestampNTZType):
        raise no_timestamp(stream, event_time, kind)
