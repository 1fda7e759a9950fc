"""Avro schemas as programs that read wanted fields and skip all others (`kernels/avro_records.py`)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from penstock.kernels import avro_records as op
from penstock.operators.wire.wire_types import WireType

Names = tuple[str, ...]
#: wanted fields of a record by name: of one that is a value its slot
Wanted = dict[str, "int | Wanted"]
_PRIMITIVES = {
    "boolean": op.BOOLEAN,
    "int": op.LONG,
    "long": op.LONG,
    "float": op.FLOAT,
    "double": op.DOUBLE,
    "bytes": op.BYTES,
    "string": op.BYTES,
}
#: logical types of moments, and their units in a second
_MOMENTS = {
    **{f"timestamp-{unit}": ("moment", each) for unit, each in (("millis", 10**3), ("micros", 10**6), ("nanos", 10**9))},
    **{f"local-timestamp-{unit}": ("local moment", each) for unit, each in (("millis", 10**3), ("micros", 10**6), ("nanos", 10**9))},
}  # fmt: skip


#: how many schemas may lie within each other where they are written out
MOST_NESTED = 100


class AvroSchemaError(ValueError):
    """A text is no Avro schema of a record; the message says why."""


_TOO_DEEP = f"the schema is nested more than {MOST_NESTED} levels deep"


class AvroSchema:
    """A schema of records.

    Args:
        text: JSON.

    Raises:
        AvroSchemaError: it is no schema of a record.
    """

    def __init__(self, text: str) -> None:
        try:
            given = json.loads(text)
        except ValueError as error:
            raise AvroSchemaError(f"the schema is not JSON: {error}") from None
        except RecursionError:
            raise AvroSchemaError(_TOO_DEEP) from None
        self._named: dict[str, Any] = {}
        self.root = self._resolved(given, "", MOST_NESTED)
        if not self.is_record(self.root):
            raise AvroSchemaError("the schema is not one of a record")

    def is_record(self, schema: Any) -> bool:
        """Whether a schema is one of records."""
        return isinstance(schema, dict) and schema.get("type") in ("record", "error")

    def field(self, path: Names) -> Any:
        """The schema of a field; None where there is none."""
        found = self.root
        for name in path:
            found = self.value(found)
            if not self.is_record(found):
                return None
            found = next((each["type"] for each in found["fields"] if each["name"] == name), None)
            if found is None:
                return None
        return found

    def value(self, schema: Any) -> Any:
        """The schema of values that are not null."""
        if isinstance(schema, list):
            others = [each for each in schema if each != "null"]
            return others[0] if len(others) == 1 else schema
        return schema

    def wire_type(self, schema: Any) -> WireType | None:
        """The type of a field that a column can have; None of lists, maps, records and unions of several types."""
        schema = self.value(schema)
        kind = schema if isinstance(schema, str) else schema.get("type") if isinstance(schema, dict) else ""
        while isinstance(kind, dict):
            schema, kind = kind, kind.get("type")
        logical = str(schema.get("logicalType")) if isinstance(schema, dict) else None
        if kind in ("bytes", "fixed") and logical == "decimal":
            precision, scale = schema.get("precision"), schema.get("scale", 0)
            # what is no decimal is bytes, as Avro says
            if _is_int(precision, 1, 38) and _is_int(scale, 0, precision):
                return WireType("decimal", f"decimal({precision}, {scale})", precision=precision, scale=scale)
        if kind == "long" and logical in _MOMENTS:
            moment, unit = _MOMENTS[logical]
            return WireType(moment, logical, unit)
        if kind == "int" and logical == "date":
            return WireType("date", logical)
        if kind == "enum":
            return WireType("enum", "enum", symbols=tuple(enumerate(schema["symbols"])))
        if kind in _PRIMITIVES or kind == "fixed":
            return WireType(str(kind), str(kind))
        return None

    def _resolved(self, schema: Any, space: str, levels: int) -> Any:
        """A schema with types in the place of their names; types within themselves make it a circle."""
        if levels == 0:
            raise AvroSchemaError(_TOO_DEEP)
        if isinstance(schema, list):
            return [self._resolved(each, space, levels - 1) for each in schema]
        if isinstance(schema, str):
            if schema in _PRIMITIVES or schema == "null":
                return schema
            known = next((each for each in (f"{space}.{schema}", schema) if each in self._named), None)
            if known is None:
                raise AvroSchemaError(f"the schema has no type {schema}")
            return self._named[known]
        if not isinstance(schema, dict) or "type" not in schema:
            raise AvroSchemaError(f"{json.dumps(schema)[:80]} is not a schema")
        kind, found = schema["type"], dict(schema)
        if not _has_parts(schema):
            raise AvroSchemaError(f"{json.dumps(schema)[:80]} is not a schema")
        if kind in ("record", "error", "enum", "fixed"):
            name = str(schema.get("name", ""))
            space = name.rpartition(".")[0] or schema.get("namespace", space)
            self._named[name if "." in name or not space else f"{space}.{name}"] = found
            if kind in ("record", "error"):
                found["fields"] = [
                    {**each, "type": self._resolved(each["type"], space, levels - 1)}
                    for each in schema["fields"]
                ]
        elif kind in ("array", "map"):
            part = "items" if kind == "array" else "values"
            found[part] = self._resolved(schema[part], space, levels - 1)
        else:
            found["type"] = self._resolved(kind, space, levels - 1)
        return found


def _has_parts(schema: dict[str, Any]) -> bool:
    """Whether a type has what its kind needs."""
    kind = schema["type"]
    if kind in ("record", "error"):
        fields = schema.get("fields")
        return isinstance(fields, list) and all(
            isinstance(each, dict) and isinstance(each.get("name"), str) and "type" in each for each in fields
        )
    if kind == "enum":
        symbols = schema.get("symbols")
        return isinstance(symbols, list) and all(isinstance(each, str) for each in symbols)
    if kind == "fixed":
        return _is_int(schema.get("size"), 0, 2**31 - 1)
    if kind in ("array", "map"):
        return ("items" if kind == "array" else "values") in schema
    # a union stands by itself
    return isinstance(kind, str | dict)


def _is_int(value: Any, least: int, most: int) -> bool:
    return type(value) is int and least <= value <= most


@dataclass(frozen=True, slots=True, eq=False)
class AvroProgram:
    """What reads the records of one schema.

    Attributes:
        code, branches: see `read_avro`.
        slots: the slot of each wanted path; -1: the schema has no such field.
        types: of each wanted path; None without a field.
    """

    code: npt.NDArray[np.int32]
    branches: npt.NDArray[np.int32]
    slots: tuple[int, ...]
    types: tuple[WireType | None, ...]


def avro_program(schema: AvroSchema, paths: Sequence[Names]) -> AvroProgram:
    """Compile a schema for the fields that columns want; those without a `wire_type` are skipped."""
    types = tuple(
        None if (found := schema.field(path)) is None else schema.wire_type(found) for path in paths
    )
    slots: dict[Names, int] = {}
    wanted: Wanted = {}
    for path, kind in zip(paths, types, strict=True):
        if kind is not None and path not in slots:
            slots[path] = len(slots)
            level = wanted
            for name in path[:-1]:
                below = level.setdefault(name, {})
                assert isinstance(below, dict), "a field with a type is no record"
                level = below
            level[path[-1]] = slots[path]
    writer = _Writer(schema)
    writer.record(schema.root, wanted)
    writer.put(op.END)
    writer.finish()
    return AvroProgram(
        np.array(writer.code, np.int32),
        np.array(writer.branches or [0], np.int32),
        tuple(slots.get(path, -1) for path in paths),
        types,
    )


@dataclass(slots=True)
class _Writer:
    schema: AvroSchema
    code: list[list[int]] = field(default_factory=list)
    branches: list[int] = field(default_factory=list)
    calls: list[tuple[int, int]] = field(default_factory=list)
    skipped: dict[int, Any] = field(default_factory=dict)

    def put(self, kind: int, slot: int = -1, first: int = 0, second: int = 0) -> int:
        self.code.append([kind, slot, first, second])
        return len(self.code) - 1

    def record(self, schema: Any, wanted: Mapping[str, Any]) -> None:
        for each in schema["fields"]:
            self.any(each["type"], wanted.get(each["name"]))

    def any(self, schema: Any, wanted: Any) -> None:
        if isinstance(schema, list):
            self._union(schema, wanted)
            return
        slot = wanted if isinstance(wanted, int) else -1
        kind = schema if isinstance(schema, str) else schema["type"]
        if isinstance(kind, dict | list):
            self.any(kind, wanted)
        elif kind == "null":
            self.put(op.NOTHING)
        elif kind in _PRIMITIVES:
            self.put(_PRIMITIVES[kind], slot)
        elif kind == "fixed":
            self.put(op.FIXED, slot, int(schema["size"]))
        elif kind == "enum":
            self.put(op.ENUM, slot, len(schema["symbols"]))
        elif kind in ("array", "map"):
            self._blocks(schema)
        elif wanted:
            self.record(schema, wanted)
        else:
            self.skipped[id(schema)] = schema
            self.calls.append((self.put(op.CALL), id(schema)))

    def finish(self) -> None:
        """Writes what skips records, each once."""
        begins: dict[int, int] = {}
        while missing := [key for key in self.skipped if key not in begins]:
            for key in missing:
                begins[key] = len(self.code)
                self.record(self.skipped[key], {})
                self.put(op.RETURN)
        for place, key in self.calls:
            self.code[place][2] = begins[key]

    def _union(self, schema: list[Any], wanted: Any) -> None:
        first = len(self.branches)
        self.branches += [0] * len(schema)
        self.put(op.UNION, -1, len(schema), first)
        ends = []
        for number, each in enumerate(schema):
            self.branches[first + number] = len(self.code)
            self.any(each, wanted if each != "null" else None)
            ends.append(self.put(op.JUMP))
        for place in ends:
            self.code[place][2] = len(self.code)

    def _blocks(self, schema: Any) -> None:
        is_list = schema["type"] == "array"
        has_bytes = not is_list or _has_bytes(self.schema, schema["items"], frozenset())
        begin = self.put(op.BLOCKS, -1, 0, int(has_bytes))
        if not is_list:
            self.put(op.BYTES)
        self.any(schema["items" if is_list else "values"], None)
        self.put(op.NEXT)
        self.code[begin][2] = len(self.code)


def _has_bytes(schema: AvroSchema, found: Any, seen: frozenset[int]) -> bool:
    """Whether each value takes a byte at least."""
    if found == "null":
        return False
    if isinstance(found, dict) and found["type"] == "fixed":
        return int(found["size"]) > 0
    if schema.is_record(found):
        if id(found) in seen:
            return True
        return any(_has_bytes(schema, each["type"], seen | {id(found)}) for each in found["fields"])
    return True
