"""Protobuf types as tables of wanted fields (`kernels/protobuf_records.py`)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
from google.protobuf import descriptor_pb2, descriptor_pool
from google.protobuf.descriptor import Descriptor, FieldDescriptor, FileDescriptor

# files may import these, and a pool has to know them
from google.protobuf import any_pb2, duration_pb2, struct_pb2, timestamp_pb2, wrappers_pb2  # isort: skip

from penstock.kernels import protobuf_records as op
from penstock.operators.wire.wire_types import WireType

Names = tuple[str, ...]
_WELL_KNOWN = (any_pb2, duration_pb2, struct_pb2, timestamp_pb2, wrappers_pb2)
_TIMESTAMP = "google.protobuf.Timestamp"
_KINDS = {
    FieldDescriptor.TYPE_BOOL: ("boolean", op.VARINT),
    FieldDescriptor.TYPE_INT32: ("int", op.VARINT),
    FieldDescriptor.TYPE_SINT32: ("int", op.ZIGZAG),
    FieldDescriptor.TYPE_SFIXED32: ("int", op.FIXED32),
    FieldDescriptor.TYPE_UINT32: ("long", op.VARINT),
    FieldDescriptor.TYPE_FIXED32: ("long", op.FIXED32),
    FieldDescriptor.TYPE_INT64: ("long", op.VARINT),
    FieldDescriptor.TYPE_SINT64: ("long", op.ZIGZAG),
    FieldDescriptor.TYPE_SFIXED64: ("long", op.FIXED64),
    FieldDescriptor.TYPE_UINT64: ("unsigned", op.VARINT),
    FieldDescriptor.TYPE_FIXED64: ("unsigned", op.FIXED64),
    FieldDescriptor.TYPE_FLOAT: ("float", op.FIXED32),
    FieldDescriptor.TYPE_DOUBLE: ("double", op.FIXED64),
    FieldDescriptor.TYPE_STRING: ("string", op.BYTES),
    FieldDescriptor.TYPE_BYTES: ("bytes", op.BYTES),
    FieldDescriptor.TYPE_ENUM: ("enum", op.VARINT),
}
#: in the place of a slot: of fields that no column wants
_UNWANTED = -1
_NAMES = {
    number: name[5:].lower() for name, number in vars(FieldDescriptor).items() if name.startswith("TYPE_")
}


class ProtobufSchemaError(ValueError):
    """Bytes are no description of Protobuf files, or a message is not in them; the message says why."""


class ProtobufFiles:
    """Files of Protobuf types.

    Args:
        files: their descriptions, each after those that it imports.

    Raises:
        ProtobufSchemaError: an import is missing, or a description contradicts itself.
    """

    def __init__(self, files: Iterable[descriptor_pb2.FileDescriptorProto]) -> None:
        pool = descriptor_pool.DescriptorPool()
        for known in _WELL_KNOWN:
            pool.AddSerializedFile(known.DESCRIPTOR.serialized_pb)
        own = {known.DESCRIPTOR.name for known in _WELL_KNOWN}
        try:
            for each in files:
                if each.name not in own:
                    pool.Add(each)
                self.last: FileDescriptor = pool.FindFileByName(each.name)
        except (TypeError, KeyError) as error:
            raise ProtobufSchemaError(f"the files of types do not fit together: {error}") from None

    @classmethod
    def of_set(cls, serialized: bytes) -> ProtobufFiles:
        """Those of a FileDescriptorSet, as `protoc --descriptor_set_out --include_imports` writes it.

        Raises:
            ProtobufSchemaError: the bytes are none.
        """
        found = descriptor_pb2.FileDescriptorSet()
        try:
            found.ParseFromString(serialized)
        except Exception:
            raise ProtobufSchemaError("the file is no FileDescriptorSet of protoc") from None
        if not found.file:
            raise ProtobufSchemaError("the file has no types")
        return cls(found.file)

    def message(self, name: str | None, path: Sequence[int] = (0,)) -> Descriptor:
        """A message of the last file.

        Args:
            name: its full or short name; None: by its path.
            path: numbers of the messages around it and of itself.

        Raises:
            ProtobufSchemaError: there is none.
        """
        own = list(self.last.message_types_by_name.values())
        if name is not None:
            found = next((each for each in own if name in (each.name, each.full_name)), None)
            if found is None:
                names = ", ".join(each.full_name for each in own)
                raise ProtobufSchemaError(f"message {name} does not exist; messages: {names}")
            return found
        level = own
        for depth, number in enumerate(path):
            if number >= len(level):
                break
            if depth == len(path) - 1:
                return level[number]
            level = list(level[number].nested_types)
        raise ProtobufSchemaError("the value's message is not in the schema")


def protobuf_field(message: Descriptor, path: Names) -> FieldDescriptor | None:
    """The field of a message at a path; None where there is none."""
    found = None
    for name in path:
        if message is None:
            return None
        found = message.fields_by_name.get(name)
        if found is None:
            return None
        message = None if _is_repeated(found) else found.message_type
    return found


def protobuf_type(found: FieldDescriptor) -> WireType | None:
    """The type of a field that a column can have; None of repeated fields, maps and messages but for moments and wrapped values."""
    if _is_repeated(found):
        return None
    if found.message_type is not None and found.message_type.full_name == _TIMESTAMP:
        return WireType("moment", _TIMESTAMP, 10**6)
    found = _unwrapped(found)
    known = _KINDS.get(found.type)
    if known is None:
        return None
    symbols = (
        tuple((each.number, each.name) for each in reversed(found.enum_type.values))
        if found.enum_type is not None
        else ()
    )
    return WireType(known[0], _NAMES[found.type], symbols=symbols, is_cut=known[0] == "int")


@dataclass(frozen=True, slots=True)
class Place:
    """Where a wanted field is found.

    Attributes:
        slot: of its value; -1: the message has no such field.
        around: the slot of the message around it; -1: the record itself.
        has_default: whether a field that is not there has zero, false or an empty text instead of NULL.
        nanos: of a moment, the slot of its nanoseconds; `slot` has the seconds.
    """

    slot: int = -1
    around: int = -1
    has_default: bool = False
    nanos: int = -1


@dataclass(frozen=True, slots=True, eq=False)
class ProtobufProgram:
    """What reads messages of one type.

    Attributes:
        firsts, fields, clears: see `read_protobuf`.
        slots: how many there are.
        places: of each wanted path.
        types: of each wanted path; None without a field.
    """

    firsts: npt.NDArray[np.int32]
    fields: npt.NDArray[np.int32]
    clears: npt.NDArray[np.int32]
    slots: int
    places: tuple[Place, ...]
    types: tuple[WireType | None, ...]


def protobuf_program(message: Descriptor, paths: Sequence[Names]) -> ProtobufProgram:
    """Compile a type for the fields that columns want; those without a `protobuf_type` are skipped."""
    found = [protobuf_field(message, path) for path in paths]
    types = tuple(None if each is None else protobuf_type(each) for each in found)
    tables = _Tables()
    places = []
    for path, own, kind in zip(paths, found, types, strict=True):
        if own is None or kind is None:
            places.append(Place())
            continue
        around, level = tables.within(message, path[:-1])
        if own.message_type is None:
            places.append(Place(tables.value(level, own), around, not own.has_presence))
            continue
        inner, below = tables.message(level, own)
        if own.message_type.full_name == _TIMESTAMP:
            names = own.message_type.fields_by_name
            places.append(
                Place(tables.value(below, names["seconds"]), inner, True, tables.value(below, names["nanos"]))
            )
        else:
            places.append(Place(tables.value(below, _unwrapped(own)), inner, True))
    firsts = np.cumsum([0, *(len(each) for each in tables.messages)]).astype(np.int32)
    fields, clears = tables.rows()
    return ProtobufProgram(
        firsts,
        np.array(fields or [[0] * 6], np.int32),
        np.array(clears or [0], np.int32),
        # the last slot is of all that is not wanted
        tables.slots + 1,
        tuple(places),
        types,
    )


@dataclass(slots=True)
class _Tables:
    messages: list[dict[int, list[int]]] = field(default_factory=lambda: [{}])
    #: of each message the oneof of a field, by number
    oneofs: list[dict[int, int]] = field(default_factory=lambda: [{}])
    slots: int = 0

    def within(self, message: Descriptor, path: Names) -> tuple[int, int]:
        """The slot and the table of the message at a path."""
        slot, level = -1, 0
        for name in path:
            own = message.fields_by_name[name]
            slot, level = self.message(level, own)
            message = own.message_type
        return slot, level

    def message(self, level: int, own: FieldDescriptor) -> tuple[int, int]:
        known = self.messages[level].get(own.number)
        if known is None or known[2] == _UNWANTED:
            known = self.messages[level][own.number] = [
                own.number,
                op.MESSAGE,
                self._slot(),
                len(self.messages),
            ]
            self.messages.append({})
            self.oneofs.append({})
            self._add_siblings(level, own)
        return known[2], known[3]

    def value(self, level: int, own: FieldDescriptor) -> int:
        known = self.messages[level].get(own.number)
        if known is None or known[2] == _UNWANTED:
            known = self.messages[level][own.number] = [own.number, _KINDS[own.type][1], self._slot(), 0]
            self._add_siblings(level, own)
        return known[2]

    def rows(self) -> tuple[list[list[int]], list[int]]:
        """The fields of all messages, and the slots that they clear."""
        rows: list[list[int]] = []
        clears: list[int] = []
        for table, oneofs in zip(self.messages, self.oneofs, strict=True):
            for number, encoding, slot, message in sorted(table.values()):
                first = len(clears)
                for other in oneofs if number in oneofs else ():
                    if other != number and oneofs[other] == oneofs[number] and other in table:
                        clears += self._slots_of(table[other])
                own = self.slots if slot == _UNWANTED else slot
                rows.append([number, encoding, own, message, first, len(clears)])
        return rows, clears

    def _slots_of(self, row: list[int]) -> list[int]:
        """The slots of a wanted field and of those within it."""
        if row[2] == _UNWANTED:
            return []
        within = self.messages[row[3]].values() if row[1] == op.MESSAGE else ()
        return [row[2], *(slot for each in within for slot in self._slots_of(each))]

    def _add_siblings(self, level: int, own: FieldDescriptor) -> None:
        """The other fields of a oneof: where one comes, an earlier value is gone."""
        siblings = () if own.containing_oneof is None else own.containing_oneof.fields
        for each in siblings:
            encoding = op.BYTES if each.message_type is not None else _KINDS[each.type][1]
            self.messages[level].setdefault(each.number, [each.number, encoding, _UNWANTED, 0])
            self.oneofs[level][each.number] = own.containing_oneof.index

    def _slot(self) -> int:
        self.slots += 1
        return self.slots - 1


def _is_repeated(found: FieldDescriptor) -> bool:
    return bool(found.is_repeated)


def _unwrapped(found: FieldDescriptor) -> FieldDescriptor:
    """The value of a wrapper such as google.protobuf.Int64Value; of any other field itself."""
    kind = found.message_type
    is_wrapper = kind is not None and kind.file.name == "google/protobuf/wrappers.proto"
    return kind.fields_by_name["value"] if is_wrapper else found
