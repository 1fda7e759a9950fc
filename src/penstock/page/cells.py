"""Values of Arrow columns as cells of the page's tables."""

from __future__ import annotations

import math
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from penstock.page.answers import cut
from penstock.spark.results.texts import cell_texts, has_form

#: characters of a cell; a download has the whole text
MOST_CELL = 2_000
#: integers beyond are no numbers of JavaScript
_EXACT = 1 << 53

#: characters of numbers, moments and booleans as text
_OF_NUMBERS = frozenset("0123456789+-.: TZEtruefalsNaInity")

Cell = str | float | bool | None


def cells_of(values: pa.Array | pa.ChunkedArray) -> list[Cell]:
    """The values of a column: numbers and booleans as they are where JavaScript has them, everything else as text, NULL as None."""
    parts = values.chunks if isinstance(values, pa.ChunkedArray) else [values]
    return [cell for part in parts for cell in _cells(part)]


def texts_of(values: pa.Array) -> list[str | None]:
    """The values of a column as text, NULL as None."""
    if has_form(values.type):
        return cell_texts(values)
    return [None if value is None else str(value) for value in values.to_pylist()]


def places_with(rows: pa.RecordBatch, search: str) -> pa.Array:
    """The places of the rows of which a cell has a text in it, in any case."""
    found: Any = pa.array([False] * rows.num_rows)
    for column in rows.columns:
        if pa.types.is_string(column.type):
            texts = column
        elif pa.types.is_integer(column.type):
            texts = column.cast(pa.string())
        elif pa.types.is_primitive(column.type) and not _OF_NUMBERS.issuperset(search):
            continue
        else:
            texts = pa.array(texts_of(column), pa.string())
        has = pc.match_substring(texts, search, ignore_case=True)
        found = pc.or_(found, pc.fill_null(has, False))
    return pc.indices_nonzero(found)


def _cells(values: pa.Array) -> list[Cell]:
    types = pa.types
    if types.is_boolean(values.type):
        booleans: list[Cell] = values.to_pylist()
        return booleans
    if types.is_integer(values.type):
        return [
            value if value is None or abs(value) <= _EXACT else str(value) for value in values.to_pylist()
        ]
    if types.is_floating(values.type):
        texts = texts_of(values)
        return [
            value if value is None or math.isfinite(value) else text
            for value, text in zip(values.to_pylist(), texts, strict=True)
        ]
    return [None if text is None else cut(text, MOST_CELL) for text in texts_of(values)]
