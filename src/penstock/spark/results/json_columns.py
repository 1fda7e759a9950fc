"""Rows as JSON, column by column: the same text as `texts` gives value by value, where Arrow has a kernel for it."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.spark.results.texts import Texts, json_texts, moments_as_json, quoted

#: what a text cannot hold as it is
_ESCAPED = r'[\x00-\x1f"\\]'
#: floating point numbers of this size have no exponent
_LEAST, _MOST = 1e-3, 1e7


def json_column(rows: pa.RecordBatch) -> pa.Array:
    """A JSON object a row, moments in this machine's time zone; every type must have a form."""
    if not rows.num_columns:
        return pa.array(["{}"] * rows.num_rows, pa.large_string())
    parts: list[pa.Array | str] = []
    before = "{"
    for name, values in zip(rows.schema.names, rows.columns, strict=True):
        parts += [f"{before}{quoted(name)}:", json_values(values).fill_null("null")]
        before = ","
    return _joined(*parts, "}")


def json_lines(rows: pa.RecordBatch) -> Iterator[str]:
    """The same as Python's texts."""
    yield from json_column(rows).to_pylist()


def json_values(values: pa.Array) -> pa.Array:
    """Each value as JSON, NULL as NULL, as Spark's `to_json` writes it; the type must have a form."""
    kind, types = values.type, pa.types
    if types.is_integer(kind) or types.is_boolean(kind):
        return values.cast(pa.large_string())
    if types.is_string(kind) or types.is_large_string(kind):
        return _with_others(values, pc.match_substring_regex(values, _ESCAPED), _in_quotes(values))
    if types.is_floating(kind):
        size = pc.abs(values)
        is_plain = pc.or_(pc.and_(pc.greater_equal(size, _LEAST), pc.less(size, _MOST)), pc.equal(size, 0))
        texts = values.cast(pa.large_string())
        whole = pc.invert(pc.match_substring(texts, "."))
        texts = pc.if_else(whole, _joined(texts, ".0"), texts)
        return _with_others(values, pc.invert(is_plain), texts)
    if types.is_timestamp(kind):
        return _in_quotes(moments_as_json(values))
    return pa.array(json_texts(values), pa.large_string())


def _with_others(values: pa.Array, are_others: pa.Array, texts: pa.Array) -> pa.Array:
    """Texts, with those of some values by Python."""
    places = np.flatnonzero(are_others.fill_null(False).to_numpy(zero_copy_only=False))
    if not len(places):
        return texts
    own: Texts = json_texts(values.take(pa.array(places)))
    mask = np.zeros(len(values), np.bool_)
    mask[places] = True
    return pc.replace_with_mask(texts, pa.array(mask), pa.array(own, texts.type))


def _in_quotes(texts: pa.Array) -> pa.Array:
    return _joined('"', texts, '"')


def _joined(*parts: pa.Array | str) -> pa.Array:
    """Parts one after the other; NULL where one is."""
    text = pa.large_string()
    given = [pa.scalar(each, text) if isinstance(each, str) else each.cast(text) for each in parts]
    return pc.binary_join_element_wise(*given, pa.scalar("", text))
