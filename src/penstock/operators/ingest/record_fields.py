"""From which fields of a record the columns of a table are taken."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar

import pyarrow as pa
import pyarrow.compute as pc

Leaf = TypeVar("Leaf")
Names = tuple[str, ...]
#: objects by name, and leaves
Tree = dict[str, "Leaf | Tree[Leaf]"]


class SharedFieldError(ValueError):
    """Two columns cannot both be taken from one record.

    Attributes:
        column, other: the later one and the earlier one.
        path: of the field that both need.
    """

    def __init__(self, column: str, other: str, path: Names) -> None:
        super().__init__(column, other, path)
        self.column, self.other, self.path = column, other, path


@dataclass(frozen=True, slots=True)
class FieldOf:
    """Where a column is in a record.

    Attributes:
        column: its name.
        path: names of the objects around the field and of the field itself, the outermost first.
        otherwise: the path where the object around the field is missing or null; (): NULL then.
    """

    column: str
    path: Names
    otherwise: Names = ()

    @property
    def paths(self) -> tuple[Names, ...]:
        """All paths that a reader needs."""
        return (self.path, self.otherwise) if self.otherwise else (self.path,)


@dataclass(frozen=True, slots=True)
class RecordFields:
    """The fields of all columns, in the columns' order."""

    fields: tuple[FieldOf, ...]

    @property
    def nested(self) -> frozenset[str]:
        """Names of the columns that are within objects of the record."""
        return frozenset(each.column for each in self.fields if len(each.path) > 1)

    def wire(self, columns: pa.Schema) -> pa.Schema:
        """The schema of the records.

        Args:
            columns: some of the columns, with the types that their fields are read as.
        """
        wanted = [each for each in self.fields if each.column in columns.names]
        tree = field_tree(wanted, lambda name: columns.field(name).type)
        struct = _struct(tree)
        return pa.schema([struct.field(place) for place in range(struct.num_fields)])

    def taken(self, records: pa.Table, columns: pa.Schema) -> list[pa.Array]:
        """The columns of records that were read by `wire(columns)`, in the order of `columns`."""
        own = {each.column: each for each in self.fields}
        whole = {name: records.column(name).combine_chunks() for name in records.column_names}
        return [_value(whole, own[name]) for name in columns.names]


def field_tree(fields: Iterable[FieldOf], leaf: Callable[[str], Leaf]) -> Tree[Leaf]:
    """The objects and fields that columns need.

    Args:
        fields: of the columns.
        leaf: gives the type of a column.

    Raises:
        SharedFieldError: columns read one field as different types, or one a whole object and another a field in it.
    """
    tree: Tree[Leaf] = {}
    readers: dict[Names, str] = {}
    for each in fields:
        for path in each.paths:
            own = leaf(each.column)
            level = tree
            for depth, name in enumerate(path[:-1], 1):
                if path[:depth] in readers:
                    raise SharedFieldError(each.column, readers[path[:depth]], path[:depth])
                below = level.setdefault(name, {})
                assert isinstance(below, dict), "a path without a reader is one of an object"
                level = below
            before = level.setdefault(path[-1], own)
            if isinstance(before, dict) or before != own:
                other = next(name for known, name in readers.items() if known[: len(path)] == path)
                raise SharedFieldError(each.column, other, path)
            readers.setdefault(path, each.column)
    return tree


def _struct(tree: Mapping[str, pa.DataType | Tree[pa.DataType]]) -> pa.StructType:
    return pa.struct(
        [pa.field(name, _struct(each) if isinstance(each, dict) else each) for name, each in tree.items()]
    )


def _value(whole: Mapping[str, pa.Array], field: FieldOf) -> pa.Array:
    found = _at(whole, field.path)
    if not field.otherwise:
        return found
    has_object = _at(whole, field.path[:-1]).is_valid()
    return pc.if_else(has_object, found, _at(whole, field.otherwise))


def _at(whole: Mapping[str, pa.Array], path: Names) -> pa.Array:
    found = whole[path[0]]
    for name in path[1:]:
        place = found.type.get_field_index(name)
        found = found.flatten()[place]
    return found
