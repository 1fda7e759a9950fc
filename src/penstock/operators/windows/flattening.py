"""Columns of any type as columns whose values can be numbered."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from penstock.operators.python_values import python_values


def flattened(table: pa.Table) -> pa.Table:
    """A table whose columns have codes: structs taken apart, what else has parts as its text; names are places."""
    found = table
    while any(pa.types.is_struct(field.type) for field in found.schema):
        marked = found.rename_columns([f"{place}" for place in range(found.num_columns)])
        for field in marked.schema:
            if pa.types.is_struct(field.type):
                marked = marked.append_column(f"{field.name}?", pc.is_null(marked.column(field.name)))
        found = marked.flatten()
    columns = [
        pa.array([repr(value) for value in python_values(column)], pa.string())
        if pa.types.is_nested(column.type)
        else column
        for column in found.columns
    ]
    return pa.table(columns, names=[f"{place}" for place in range(found.num_columns)])
