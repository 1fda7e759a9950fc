"""What Spark SQL calls an Arrow type, for messages."""

from __future__ import annotations

import pyarrow as pa

_NAMES = {
    pa.int8(): "TINYINT",
    pa.int16(): "SMALLINT",
    pa.int32(): "INT",
    pa.int64(): "BIGINT",
    pa.float32(): "FLOAT",
    pa.float64(): "DOUBLE",
    pa.bool_(): "BOOLEAN",
    pa.date32(): "DATE",
    pa.string(): "STRING",
    pa.large_string(): "STRING",
    pa.binary(): "BINARY",
    pa.large_binary(): "BINARY",
    pa.month_day_nano_interval(): "INTERVAL",
    pa.duration("us"): "INTERVAL",
}


def spark_name(kind: pa.DataType) -> str:
    """The type of a column as Spark SQL writes it; one that Spark does not have as Arrow does."""
    if pa.types.is_timestamp(kind):
        return "TIMESTAMP" if kind.tz is not None else "TIMESTAMP_NTZ"
    if pa.types.is_decimal(kind):
        return f"DECIMAL({kind.precision}, {kind.scale})"
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return f"ARRAY<{spark_name(kind.value_type)}>"
    if pa.types.is_map(kind):
        return f"MAP<{spark_name(kind.key_type)}, {spark_name(kind.item_type)}>"
    if pa.types.is_struct(kind):
        return f"STRUCT<{', '.join(f'{field.name}: {spark_name(field.type)}' for field in kind)}>"
    return _NAMES.get(kind, str(kind).upper())
