"""Columns of a view as columns of a database table: two for a window."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc


@dataclass(frozen=True, slots=True)
class FlatColumn:
    """A column of a table.

    Attributes:
        name: its name.
        type: the type of its values.
        path: the column of the view, then the field of its struct.
    """

    name: str
    type: pa.DataType
    path: tuple[str, ...]

    def values(self, rows: pa.Table) -> pa.ChunkedArray:
        """Return its values in rows of the view."""
        column = rows.column(self.path[0])
        return pc.struct_field(column, self.path[1]) if len(self.path) > 1 else column


def flat_columns(schema: pa.Schema) -> Iterator[FlatColumn]:
    """Yield the columns for those of a view."""
    for each in schema:
        if pa.types.is_struct(each.type) and [part.name for part in each.type] == ["start", "end"]:
            for part in each.type:
                yield FlatColumn(f"{each.name}_{part.name}", part.type, (each.name, part.name))
        else:
            yield FlatColumn(each.name, each.type, (each.name,))
