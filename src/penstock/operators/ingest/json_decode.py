"""JSON records to columns with pyarrow, refusing whatever it might read differently from Spark.

A record is decoded here only where it is plain (`kernels/json_scan.py`), in a block whose plain records have fields of
exactly the declared types. What is refused is left to Spark's `from_json`, so both paths give the same tuples.
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pajson

from penstock.kernels.compiled import filling
from penstock.kernels.json_scan import SHORT_BYTES, plain_records
from penstock.operators.ingest.json_records import Records
from penstock.operators.ingest.record_fields import RecordFields

#: the one way of writing a timestamp that is read here; everything else is left to Spark
_TIMESTAMP = r"^(?:19|20)\d\d-(?:0[1-9]|1[0-2])-(?:0[1-9]|1\d|2[0-8])T(?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d(?:\.\d{1,6})?Z$"
_EXACT = (pa.int32(), pa.int64(), pa.float64(), pa.string(), pa.bool_())
#: Jackson reads no longer string
_MOST_BYTES = 16 << 20
#: with more records that are not plain a block of Kafka is refused as a whole: each is named to Spark by its offset
_MOST_APART = 16


def decodable(schema: pa.Schema) -> bool:
    """Whether every column is of a type whose JSON form both readers agree on."""
    return all(field.type in _EXACT or field.type == pa.timestamp("us", "UTC") for field in schema)


def decoded_first(schema: pa.Schema, needed: Collection[str], within: Collection[str] = ()) -> pa.Schema:
    """The columns that are decoded of every record; the others are texts of matched ones.

    Spark takes a value of any kind as text, so that a column of texts does not make a record malformed. All others may, and so may
    the objects around a field.

    Args:
        schema: all columns.
        needed: those that are compared, or wanted of tuples without a match.
        within: those that are within objects of the record.
    """
    first = [
        field for field in schema if field.name in needed or field.type != pa.string() or field.name in within
    ]
    return pa.schema(first or [schema.field(0)])


class JsonDecoder:
    """Decodes blocks of JSON records.

    Args:
        schema: the columns; `decodable`.
        max_record_bytes: a larger record is refused.
        fields: where the columns are in a record; None: at its top, by their names.
    """

    def __init__(self, schema: pa.Schema, max_record_bytes: int, fields: RecordFields | None = None) -> None:
        self._schema = schema
        self._fields = fields
        self._most_bytes = min(max_record_bytes, _MOST_BYTES)
        self._timestamps = [field.name for field in schema if pa.types.is_timestamp(field.type)]
        wire = pa.schema(
            [pa.field(f.name, pa.string() if f.name in self._timestamps else f.type) for f in schema]
        )
        self._wire = wire
        records = wire if fields is None else fields.wire(wire)
        self._parse = pajson.ParseOptions(explicit_schema=records, unexpected_field_behavior="ignore")

    def decode(self, records: Records) -> tuple[pa.RecordBatch, npt.NDArray[np.bool_]]:
        """The tuples of a block, but for those that Spark has to read.

        Returns:
            The tuples, and bool[records]: whose they are.
        """
        plain = self._plain(records)
        if records.lines or len(plain) - np.count_nonzero(plain) <= _MOST_APART:
            tuples = self.tuples(records.where(plain))
            if tuples is not None:
                return tuples, plain
        return pa.RecordBatch.from_pylist([], schema=self._schema), np.zeros(len(records), np.bool_)

    def tuples(self, records: Records) -> pa.RecordBatch | None:
        """The tuples of plain records; None where pyarrow refuses one."""
        # pyarrow's reader does not look whether ignored strings are UTF-8
        if not len(records) or not records.are_utf8():
            return None
        lines = records.as_lines()
        options = pajson.ReadOptions(use_threads=False, block_size=max(1 << 16, lines.size + 1))
        try:
            table = pajson.read_json(pa.BufferReader(lines), options, self._parse)
        except pa.ArrowInvalid:
            return None
        if table.num_rows != len(records):
            return None
        if self._fields is None:
            found = [table.column(name).combine_chunks() for name in self._schema.names]
        else:
            found = self._fields.taken(table, self._wire)
        columns = []
        for field, read in zip(self._schema, found, strict=True):
            column = read
            if field.name in self._timestamps:
                column = _timestamps(column)
                if column is None:
                    return None
            columns.append(column)
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)

    def _plain(self, records: Records) -> npt.NDArray[np.bool_]:
        plain = np.empty(len(records), np.bool_)
        data = np.frombuffer(records.data, np.uint8)
        plain_records(data, records.begins, records.ends, self._most_bytes, plain)
        plain[records.doubtful] = False
        return plain


@filling()
def warm_up() -> None:
    """Compiles or loads the kernels, before a process forks or is timed."""
    long = b'{"a":"' + SHORT_BYTES * b"\\u0041" + b'","b":[1.5e3,null,{"c":true}]}'
    records = Records.of_lines(b'{"a":"b"}\n' + long + b"\nno record\n")
    decoder = JsonDecoder(pa.schema({"a": pa.string()}), _MOST_BYTES)
    _, is_decoded = decoder.decode(records)
    records.where(~is_decoded).as_lines()
    decoder.tuples(records.where(is_decoded))


def _timestamps(text: pa.Array) -> pa.Array | None:
    fits = pc.match_substring_regex(text, _TIMESTAMP)
    if not pc.all(pc.fill_null(fits, True)).as_py():
        return None
    return pc.assume_timezone(pc.utf8_rtrim(text, "Z").cast(pa.timestamp("us")), "UTC")
