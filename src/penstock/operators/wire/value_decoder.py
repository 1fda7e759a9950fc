"""Values of Kafka in Avro or Protobuf to tuples, and why a value is none."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.kernels import protobuf_records
from penstock.kernels.compiled import filling
from penstock.kernels.protobuf_records import read_protobuf
from penstock.kernels.wire_bytes import frames
from penstock.operators.wire.avro_programs import AvroSchema
from penstock.operators.wire.readers import (
    AVRO,
    PROTOBUF,
    TITLES,
    AvroReader,
    Bytes,
    Places,
    Reader,
    WantedColumn,
    misfit,
    room,
)
from penstock.operators.wire.wire_types import as_column, lost, texts_valid
from penstock.plan.spark_types import spark_name

#: bits of one number of a message's path, see `frames`
_PATH_BITS = 15
#: kinds of fields whose text may be no UTF-8
_TEXTS = ("string", "bytes")


class UnknownSchemaError(Exception):
    """The schema of a value is not known; the message says why."""


#: gives the reader of a schema, by its number and the path of the message in its file, and which wanted columns it has fields of; raises
#: UnknownSchemaError. Values without a frame have number 0.
Readers = Callable[[int, tuple[int, ...]], tuple[Reader, Sequence[bool]]]


@dataclass(frozen=True, slots=True, eq=False)
class Decoded:
    """What became of a block of values.

    Attributes:
        tuples: in the order of the values.
        is_decoded: bool[values], whose tuples they are.
        reasons: of the other values, in their order, why they are no tuples.
    """

    tuples: pa.RecordBatch
    is_decoded: npt.NDArray[np.bool_]
    reasons: list[str]


class ValueDecoder:
    """Decodes blocks of values; it keeps the readers of the schemas that it meets.

    Args:
        wanted: the columns.
        form: AVRO or PROTOBUF.
        readers: gives the reader of a schema.
        max_record_bytes: a larger value is malformed.
        is_framed: whether values begin with zero and the number of their schema, as Confluent's serializers write them.
    """

    def __init__(
        self,
        wanted: Sequence[WantedColumn],
        form: str,
        readers: Readers,
        max_record_bytes: int,
        *,
        is_framed: bool = True,
    ) -> None:
        self._wanted = wanted
        self._schema = pa.schema([pa.field(each.name, each.type) for each in wanted])
        self._has_path = form == PROTOBUF
        self._malformed = f"malformed {TITLES[form]}"
        self._get = readers
        self._most_bytes = max_record_bytes
        self._is_framed = is_framed
        self._readers: dict[tuple[int, int], Reader | str] = {}

    def decode(self, values: pa.Array) -> Decoded:
        """The tuples of a block, and why other values are none."""
        offsets = np.frombuffer(values.buffers()[1], np.int32)[
            values.offset : values.offset + len(values) + 1
        ]
        data = np.frombuffer(values.buffers()[2] or b"", np.uint8)
        begins, ends = offsets[:-1].astype(np.int64), offsets[1:].astype(np.int64)
        reasons = _Reasons(len(values))
        reasons.put(ends - begins > self._most_bytes, "record too large")
        if values.null_count:
            reasons.put(values.is_null().to_numpy(zero_copy_only=False), "no value")
        schemas, paths = np.zeros(len(values), np.int64), np.ones(len(values), np.int64)
        if self._is_framed:
            frames(data, begins, ends, self._has_path, schemas, paths)
            is_odd = (schemas < 0) & reasons.is_fine
            reasons.put(is_odd, f"{self._malformed}: it does not begin with 0 and the number of a schema")
        left = np.flatnonzero(reasons.is_fine)
        found = []
        for number, path, rows in _by_schema(schemas[left], paths[left], left):
            found.append(self._of_schema(data, begins, ends, rows, number, path, reasons))
        return Decoded(self._together(found), reasons.is_fine, reasons.texts())

    def _together(self, found: Sequence[tuple[pa.RecordBatch, npt.NDArray[np.int64]]]) -> pa.RecordBatch:
        found = [each for each in found if each[0].num_rows]
        if not found:
            return pa.RecordBatch.from_pylist([], schema=self._schema)
        if len(found) == 1:
            return found[0][0]
        table = pa.Table.from_batches([tuples for tuples, _ in found])
        order = np.argsort(np.concatenate([rows for _, rows in found]), kind="stable")
        return pa.concat_batches(table.take(pa.array(order)).to_batches())

    def _of_schema(
        self,
        data: Bytes,
        begins: Places,
        ends: Places,
        rows: npt.NDArray[np.int64],
        number: int,
        path: int,
        reasons: _Reasons,
    ) -> tuple[pa.RecordBatch, npt.NDArray[np.int64]]:
        """The tuples of values of one schema, and which values these are; the reasons of others are written."""
        reader = self._reader(number, path)
        if isinstance(reader, str):
            reasons.put(rows, reader)
            return pa.RecordBatch.from_pylist([], schema=self._schema), rows[:0]
        found, faults = reader.read(data, begins[rows], ends[rows])
        for fault in np.unique(faults[faults != 0]):
            reasons.put(rows[faults == fault], f"{self._malformed}: {reader.faults[int(fault)]}")
        is_good = faults == 0
        columns = []
        for column, wire, each in zip(self._wanted, reader.types, found, strict=True):
            if wire is None or each is None:
                columns.append(pa.nulls(len(rows), column.type))
                continue
            own = as_column(wire, column.type, each)
            beyond = lost(own, each)
            if (
                wire.kind in _TEXTS
                and pa.types.is_string(column.type)
                and (fits := texts_valid(own)) is not None
            ):
                reasons.put(rows[~fits], "not UTF-8")
                is_good &= fits
            if beyond is not None:
                reasons.put(rows[beyond], f"{self._malformed}: {column.name} is no {spark_name(column.type)}")
                is_good &= ~beyond
            columns.append(own)
        tuples = pa.RecordBatch.from_arrays(columns, schema=self._schema)
        return (tuples, rows) if is_good.all() else (tuples.filter(pa.array(is_good)), rows[is_good])

    def _reader(self, number: int, path: int) -> Reader | str:
        """The reader of a schema, or why there is none."""
        known = self._readers.get((number, path))
        if known is None:
            known = self._readers[number, path] = self._new(number, path)
        return known

    def _new(self, number: int, path: int) -> Reader | str:
        if path < 0:
            return f"{self._malformed}: the path of its message is not readable"
        indexes = tuple(
            each - 1 for depth in range(4) if (each := path >> (_PATH_BITS * depth) & ((1 << _PATH_BITS) - 1))
        )
        try:
            reader, has_field = self._get(number, indexes)
        except UnknownSchemaError as error:
            return f"{self._malformed}: {error}"
        odd = misfit(self._wanted, reader, has_field)
        if odd is None:
            return reader
        return f"{self._malformed}: {f'schema {number}: ' if self._is_framed else ''}{' '.join(odd)}"


def _by_schema(schemas: Places, paths: Places, rows: Places) -> Iterator[tuple[int, int, Places]]:
    """The schemas and paths that values have, and the values of each."""
    while len(rows):
        own = (schemas == schemas[0]) & (paths == paths[0])
        yield int(schemas[0]), int(paths[0]), rows[own]
        schemas, paths, rows = schemas[~own], paths[~own], rows[~own]


class _Reasons:
    """Why values of a block are no tuples."""

    def __init__(self, values: int) -> None:
        self._codes = np.full(values, -1, np.int32)
        self._texts: list[str] = []

    @property
    def is_fine(self) -> npt.NDArray[np.bool_]:
        """bool[values], which have no reason."""
        return self._codes < 0

    def put(self, rows: npt.NDArray[np.int64] | npt.NDArray[np.bool_], text: str) -> None:
        """Gives a reason to values, by their numbers or by a mask."""
        if not len(self._texts) or self._texts[-1] != text:
            self._texts.append(text)
        self._codes[rows] = len(self._texts) - 1

    def texts(self) -> list[str]:
        """The reasons of the values that have one."""
        return [self._texts[code] for code in self._codes[self._codes >= 0]]


@filling()
def warm_up() -> None:
    """Compile or load the kernels, before a process forks or is timed."""
    schema = AvroSchema(
        '{"type":"record","name":"r","fields":[{"name":"s","type":"string"},'
        '{"name":"d","type":{"type":"bytes","logicalType":"decimal","precision":9,"scale":2}}]}'
    )
    wanted = [WantedColumn("s", pa.string(), ("s",)), WantedColumn("d", pa.decimal128(9, 2), ("d",))]
    framed = pa.array([b"\0\0\0\0\x01\x02a\x02\x01"], pa.binary())
    ValueDecoder(wanted, AVRO, lambda _, __: (AvroReader(schema, wanted), [True, True]), 100).decode(framed)
    begins, ends = np.array([0], np.int64), np.array([2], np.int64)
    firsts, fields = (
        np.array([0, 1], np.int32),
        np.array([[1, protobuf_records.VARINT, 0, 0, 0, 0]], np.int32),
    )
    clears = np.zeros(1, np.int32)
    read_protobuf(np.array([8, 1], np.uint8), begins, ends, firsts, fields, clears, *room(1, 1))
