"""JSON records to columns with pyarrow, refusing whatever it might read differently from Spark.

A block is accepted only where every record is one JSON object whose fields have exactly the declared
types; a refused block is left to Spark's `from_json`, so both paths give the same tuples.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pajson

#: the one way of writing a timestamp that is read here; everything else is left to Spark
_TIMESTAMP = r"^(?:19|20)\d\d-(?:0[1-9]|1[0-2])-(?:0[1-9]|1\d|2[0-8])T(?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d(?:\.\d{1,6})?Z$"
_NEWLINE = ord("\n")
_EXACT = (pa.int32(), pa.int64(), pa.float64(), pa.string(), pa.bool_())


def decodable(schema: pa.Schema) -> bool:
    """Whether every column is of a type whose JSON form both readers agree on."""
    return all(field.type in _EXACT or field.type == pa.timestamp("us", "UTC") for field in schema)


class JsonDecoder:
    """Decodes blocks of JSON records.

    Args:
        schema: the columns; `decodable`.
        max_record_bytes: a block with a larger record is refused.
    """

    def __init__(self, schema: pa.Schema, max_record_bytes: int) -> None:
        self._schema = schema
        self._max_record_bytes = max_record_bytes
        self._timestamps = [field.name for field in schema if pa.types.is_timestamp(field.type)]
        wire = pa.schema(
            [pa.field(f.name, pa.string() if f.name in self._timestamps else f.type) for f in schema]
        )
        self._parse = pajson.ParseOptions(explicit_schema=wire, unexpected_field_behavior="ignore")

    def decode(self, values: pa.Array) -> pa.RecordBatch | None:
        """The tuples of a block, or None where Spark has to read it.

        Args:
            values: binary, one record each.
        """
        if values.null_count or not self._plain(values):
            return None
        joined = pc.binary_join(pa.ListArray.from_arrays([0, len(values)], values), b"\n")[0].as_buffer()
        try:
            options = pajson.ReadOptions(use_threads=False, block_size=max(1 << 16, joined.size + 1))
            table = pajson.read_json(pa.BufferReader(joined), options, self._parse)
        except pa.ArrowInvalid:
            return None
        if table.num_rows != len(values):
            return None
        columns = []
        for field in self._schema:
            column = table.column(field.name).combine_chunks()
            if field.name in self._timestamps:
                column = _timestamps(column)
                if column is None:
                    return None
            columns.append(column)
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)

    def _plain(self, values: pa.Array) -> bool:
        """Whether each record is one line of UTF-8 from brace to brace (pyarrow refuses repeated keys)."""
        try:
            text = values.cast(pa.string())
        except pa.ArrowInvalid:
            return False
        longest = pc.max(pc.binary_length(values)).as_py()
        if longest is None or longest > self._max_record_bytes or _NEWLINE in _bytes(values):
            return False
        return bool(pc.all(pc.and_(pc.starts_with(text, "{"), pc.ends_with(text, "}"))).as_py())


def _bytes(values: pa.Array) -> npt.NDArray[np.uint8]:
    offsets = np.frombuffer(values.buffers()[1], np.int32)
    start, end = offsets[values.offset], offsets[values.offset + len(values)]
    return np.frombuffer(values.buffers()[2], np.uint8)[start:end]


def _timestamps(text: pa.Array) -> pa.Array | None:
    fits = pc.match_substring_regex(text, _TIMESTAMP)
    if not pc.all(pc.fill_null(fits, True)).as_py():
        return None
    return pc.assume_timezone(pc.utf8_rtrim(text, "Z").cast(pa.timestamp("us")), "UTC")
