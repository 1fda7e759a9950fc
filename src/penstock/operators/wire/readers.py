"""Readers of records of one schema: bytes to columns, the same for Avro and Protobuf."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from google.protobuf.descriptor import Descriptor

from penstock.kernels import avro_records, protobuf_records
from penstock.kernels.avro_records import read_avro
from penstock.kernels.protobuf_records import read_protobuf
from penstock.operators.wire.avro_programs import AvroSchema, avro_program
from penstock.operators.wire.protobuf_programs import Place, protobuf_program
from penstock.operators.wire.wire_types import Found, WireType
from penstock.plan.spark_types import spark_name

AVRO, PROTOBUF = "avro", "protobuf"
#: what formats are called in messages
TITLES = {AVRO: "Avro", PROTOBUF: "Protobuf"}
Bytes = npt.NDArray[np.uint8]
Places = npt.NDArray[np.int64]

_AVRO_FAULTS = {
    avro_records.ENDS_EARLY: "it ends within a field",
    avro_records.IS_LONGER: "bytes follow its last field",
    avro_records.NO_BRANCH: "a union has no such branch",
    avro_records.NO_LENGTH: "a length is negative",
    avro_records.NO_NUMBER: "a number has too many bytes",
    avro_records.TOO_DEEP: "it is nested too deeply",
    avro_records.NO_SYMBOL: "an enum has no such symbol",
    avro_records.NO_BOOLEAN: "a boolean is neither 0 nor 1",
}
_PROTOBUF_FAULTS = {
    protobuf_records.ENDS_EARLY: "it ends within a field",
    protobuf_records.NO_NUMBER: "a number has too many bytes",
    protobuf_records.NO_FIELD: "a field has no valid number",
    protobuf_records.TOO_DEEP: "it is nested too deeply",
}


@dataclass(frozen=True, slots=True)
class WantedColumn:
    """A column and the field that it is taken from.

    Attributes:
        name, type: of the column.
        path: names of the records around the field and of the field itself.
    """

    name: str
    type: pa.DataType
    path: tuple[str, ...]


class Reader(Protocol):
    """Reads records of one schema."""

    @property
    def types(self) -> Sequence[WireType | None]:
        """Of the field of each wanted column; None without a field of a readable type."""
        ...

    @property
    def faults(self) -> dict[int, str]:
        """What is wrong with a record, by fault."""
        ...

    def read(
        self, data: Bytes, begins: Places, ends: Places
    ) -> tuple[list[Found | None], npt.NDArray[np.int8]]:
        """Read records.

        Returns:
            What was found for each wanted column, None without a field; and the fault of each record, 0 where it has none.
        """
        ...


class AvroReader:
    """Reads records of an Avro schema.

    Args:
        schema: the schema they were written with.
        wanted: the columns.
    """

    faults = _AVRO_FAULTS

    def __init__(self, schema: AvroSchema, wanted: Sequence[WantedColumn]) -> None:
        self._program = avro_program(schema, [each.path for each in wanted])
        self.types = self._program.types
        self._slots = max(self._program.slots, default=-1) + 1

    def read(
        self, data: Bytes, begins: Places, ends: Places
    ) -> tuple[list[Found | None], npt.NDArray[np.int8]]:
        """Read records; see `Reader`."""
        program = self._program
        values, lengths, has_value, faults = room(self._slots, len(begins))
        read_avro(data, begins, ends, program.code, program.branches, values, lengths, has_value, faults)
        has_value[:, faults != 0] = False
        found = [
            None if slot < 0 else Found(data, values[slot], lengths[slot], has_value[slot])
            for slot in program.slots
        ]
        return found, faults


class ProtobufReader:
    """Reads records of a Protobuf message.

    Args:
        message: the type they were written with.
        wanted: the columns.
    """

    faults = _PROTOBUF_FAULTS

    def __init__(self, message: Descriptor, wanted: Sequence[WantedColumn]) -> None:
        self._program = protobuf_program(message, [each.path for each in wanted])
        self.types = self._program.types

    def read(
        self, data: Bytes, begins: Places, ends: Places
    ) -> tuple[list[Found | None], npt.NDArray[np.int8]]:
        """Read records; see `Reader`."""
        program = self._program
        values, lengths, has_value, faults = room(program.slots, len(begins))
        read_protobuf(
            data,
            begins,
            ends,
            program.firsts,
            program.fields,
            program.clears,
            values,
            lengths,
            has_value,
            faults,
        )
        is_fine = faults == 0
        has_value[:, ~is_fine] = False

        def at(place: Place) -> Found | None:
            if place.slot < 0:
                return None
            own, there = values[place.slot], has_value[place.slot]
            if place.has_default:
                # a field that is not there has zero, or no bytes
                there = is_fine if place.around < 0 else has_value[place.around]
            nanos = values[place.nanos] if place.nanos >= 0 else None
            return Found(data, own, lengths[place.slot], there, nanos)

        return [at(each) for each in program.places], faults


def misfit(
    wanted: Sequence[WantedColumn], reader: Reader, has_field: Sequence[bool]
) -> tuple[str, str] | None:
    """The first column that a schema has another type for, and what it is there; None where all fit.

    Args:
        wanted: the columns.
        reader: of the schema.
        has_field: of each column, whether the schema has its field.
    """
    for column, wire, is_there in zip(wanted, reader.types, has_field, strict=True):
        if wire is None and is_there:
            return column.name, "is a list, a map, a record or one of several types"
        if wire is not None and not wire.fits(column.type):
            return column.name, f"is {wire.name}, no {spark_name(column.type)}"
    return None


def room(
    slots: int, records: int
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int32], npt.NDArray[np.bool_], npt.NDArray[np.int8]]:
    """What the kernels fill for some records: values, lengths and whether there is one, by slot; the fault of each record."""
    return (
        np.zeros((slots, records), np.int64),
        np.zeros((slots, records), np.int32),
        np.zeros((slots, records), np.bool_),
        np.empty(records, np.int8),
    )
