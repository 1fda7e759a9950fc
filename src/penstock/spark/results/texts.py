"""Values as text: the same text in a table, in CSV and in JSON, as Spark writes it, without Spark.

No moment becomes a Python datetime on the way: years before 1 and after 9999 are as good as others.
"""

from __future__ import annotations

import base64
import time
from collections.abc import Iterable, Iterator, Sequence
from decimal import Decimal
from itertools import pairwise, repeat
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

#: a text a value; None is NULL
Texts = list[str | None]

_SHORT = {"\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r", '"': '\\"', "\\": "\\\\"}
_ESCAPES = str.maketrans({**{chr(code): f"\\u{code:04X}" for code in range(32)}, **_SHORT})
_SECOND = 1_000_000
#: moments whose years have four digits, microseconds
_FIRST, _AFTER = (int(np.datetime64(year, "us").astype(np.int64)) for year in ("0000", "10000"))
_NULL = "NULL"


def has_form(kind: pa.DataType) -> bool:
    """Whether values of a type can be written here; those of others are left to Spark."""
    types = pa.types
    if types.is_list(kind) or types.is_large_list(kind):
        return has_form(kind.value_type)
    if types.is_struct(kind):
        fields = [kind.field(number) for number in range(kind.num_fields)]
        return all(has_form(each.type) and not _is_of_variant(each) for each in fields)
    if types.is_map(kind):
        # Spark writes other keys as it holds them: moments as numbers, binaries as addresses
        return has_form(kind.item_type) and (_is_text(kind.key_type) or types.is_integer(kind.key_type))
    return (
        types.is_boolean(kind)
        or types.is_integer(kind)
        or types.is_float32(kind)
        or types.is_float64(kind)
        or types.is_decimal(kind)
        or types.is_date32(kind)
        or types.is_timestamp(kind)
        or _is_text(kind)
        or _is_binary(kind)
    )


def _is_of_variant(field: pa.Field) -> bool:
    """Whether a field is one of the two that a VARIANT is stored as."""
    return b"variant" in (field.metadata or {})


def json_texts(values: pa.Array) -> Texts:
    """Each value as JSON, NULL as None, as Spark's `to_json` writes it; the type must have a form."""
    kind, types = values.type, pa.types
    if types.is_list(kind) or types.is_large_list(kind):
        return [
            None if own is None else f"[{','.join(map(_or_null, own))}]"
            for own in _groups(values, json_texts(*_slices(values, values.values)))
        ]
    if types.is_map(kind):
        keys, items = _slices(values, values.keys, values.items)
        names = ["" if key is None else quoted(str(key)) for key in keys.to_pylist()]
        pairs: Texts = [
            f"{name}:{_or_null(item)}" for name, item in zip(names, json_texts(items), strict=True)
        ]
        return [
            None if own is None else "{" + ",".join(map(_or_null, own)) + "}"
            for own in _groups(values, pairs)
        ]
    if types.is_struct(kind):
        names = [quoted(kind.field(number).name) for number in range(kind.num_fields)]
        columns = [json_texts(field) for field in values.flatten()]
        return [
            _object(names, (column[number] for column in columns)) if is_there else None
            for number, is_there in enumerate(values.is_valid().to_pylist())
        ]
    texts = _texts(values, "T", 6)
    if _is_text(kind):
        return [None if text is None else quoted(text) for text in texts]
    if types.is_floating(kind):
        return [text if text is None or text[-1].isdigit() else f'"{text}"' for text in texts]
    if _is_binary(kind) or types.is_date(kind) or types.is_timestamp(kind):
        return [None if text is None else f'"{text}"' for text in texts]
    return texts


def cell_texts(values: pa.Array) -> Texts:
    """Each value as it stands in a table or in CSV, NULL as None; nested ones as JSON. The type must have a form."""
    return json_texts(values) if pa.types.is_nested(values.type) else _texts(values, " ", 0)


def shown_texts(values: pa.ChunkedArray) -> list[str]:
    """Each value as a table shows it: NULL as `NULL`, a text that reads NULL in quotes, a window by its start and end."""
    texts = [text for part in values.chunks for text in _shown(part)]
    return [_NULL if text is None else f"'{text}'" if text == _NULL else text for text in texts]


def csv_lines(rows: pa.RecordBatch) -> Iterator[str]:
    """Rows as CSV, without the header: texts in quotes, NULL as nothing between commas; every type must have a form."""
    yield from map(",".join, zip(*map(_csv_cells, rows.columns), strict=True))


def csv_line(texts: Iterable[str | None]) -> str:
    """Texts, such as the names of columns, as a line of CSV."""
    return ",".join("" if text is None else _in_quotes(text) for text in texts)


def quoted(text: str) -> str:
    """A text as JSON."""
    return f'"{text.translate(_ESCAPES)}"'


def _shown(values: pa.Array) -> Texts:
    kind = values.type
    if not pa.types.is_struct(kind) or [field.name for field in kind] != ["start", "end"]:
        return cell_texts(values)
    starts, ends = map(cell_texts, values.flatten())
    return [
        None if start is None and end is None else f"{start} - {end}"
        for start, end in zip(starts, ends, strict=True)
    ]


def _csv_cells(values: pa.Array) -> list[str]:
    kind = values.type
    if _is_text(kind) or _is_binary(kind) or pa.types.is_nested(kind):
        return ["" if text is None else _in_quotes(text) for text in cell_texts(values)]
    return ["" if text is None else text for text in cell_texts(values)]


def _in_quotes(text: str) -> str:
    return '"' + text.replace('"', '""') + '"'


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _is_binary(kind: pa.DataType) -> bool:
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind))


def _texts(values: pa.Array, between: str, least_digits: int) -> Texts:
    """Each value that is not nested.

    Args:
        values: of a type that has a form.
        between: what stands between the date and the time of a moment.
        least_digits: 6 where fractions of seconds are written whole, 0 where trailing zeros are left out.
    """
    kind, types = values.type, pa.types
    if types.is_date(kind):
        return _dates(values)
    if types.is_timestamp(kind):
        return _moments(values, between, least_digits)
    if types.is_boolean(kind):
        return [None if value is None else "true" if value else "false" for value in values.to_pylist()]
    if _is_binary(kind):
        return [None if value is None else base64.b64encode(value).decode() for value in values.to_pylist()]
    if types.is_float32(kind):
        return [
            None if value is None else _number(value, str(np.float32(value))) for value in values.to_pylist()
        ]
    if types.is_float64(kind):
        return [None if value is None else _number(value, repr(value)) for value in values.to_pylist()]
    if _is_text(kind):
        texts: Texts = values.to_pylist()
        return texts
    return [None if value is None else str(value) for value in values.to_pylist()]


def moments_as_json(values: pa.Array) -> pa.Array:
    """Each moment as JSON has it, without quotes; NULL as NULL."""
    zone = values.type.tz
    moments = values.cast(pa.timestamp("us", zone), safe=False).cast(pa.int64()).fill_null(0).to_numpy()
    offsets = np.zeros(len(moments), np.int64) if zone is None else _offsets(moments)
    local = moments + offsets * _SECOND
    if len(local) and not (local.min() >= _FIRST and local.max() < _AFTER):
        return pa.array(_moments(values, "T", 6), pa.large_string())
    dates = pa.array(np.datetime_as_string(local.astype("M8[us]"), unit="us"), pa.large_string())
    if zone is not None:
        known, places = np.unique(offsets, return_inverse=True)
        suffixes = pa.array([_zone(each) for each in known.tolist()], pa.large_string()).take(
            pa.array(places)
        )
        dates = pc.binary_join_element_wise(dates, suffixes, pa.scalar("", pa.large_string()))
    return pc.if_else(values.is_valid(), dates, pa.scalar(None, pa.large_string()))


def _dates(values: pa.Array) -> Texts:
    days = values.cast(pa.int32()).fill_null(0).to_numpy()
    return _of_numpy(np.datetime_as_string(days.astype("M8[D]")), values)


def _moments(values: pa.Array, between: str, least_digits: int) -> Texts:
    zone = values.type.tz
    moments = values.cast(pa.timestamp("us", zone), safe=False).cast(pa.int64()).fill_null(0).to_numpy()
    offsets = None if zone is None else _offsets(moments)
    local = moments if offsets is None else moments + offsets * _SECOND
    dates = np.datetime_as_string(local.astype("M8[us]"), unit="us")
    zones = repeat("") if offsets is None else map(_zone, offsets.tolist())
    shown: Texts = []
    for text, suffix in zip(_of_numpy(dates, values), zones, strict=False):
        if text is None:
            shown.append(None)
            continue
        date, _, clock = text.partition("T")
        if not least_digits:
            clock = clock.rstrip("0").rstrip(".") if "." in clock else clock
        shown.append(f"{date}{between}{clock}{suffix}")
    return shown


def _of_numpy(texts: Any, values: pa.Array) -> Texts:
    """Texts of moments as numpy has them, with years as Java writes them."""
    return [
        _with_year(text) if is_there else None
        for text, is_there in zip(texts.tolist(), values.is_valid().to_pylist(), strict=True)
    ]


def _with_year(text: str) -> str:
    """A moment with four digits of its year at the least, and a sign where it has more or is before the year 0."""
    if text[0] == "-":
        year, dash, rest = text[1:].partition("-")
        return f"-{year:0>4}{dash}{rest}"
    return f"+{text}" if text[4].isdigit() else text


def _offsets(moments: Any) -> Any:
    """How far this machine's time is ahead of UTC at each moment, seconds."""
    seconds, places = np.unique(moments // _SECOND, return_inverse=True)
    return np.asarray([time.localtime(each).tm_gmtoff for each in seconds.tolist()], np.int64)[places]


def _zone(seconds: int) -> str:
    minutes = abs(seconds) // 60
    return f"{'-' if seconds < 0 else '+'}{minutes // 60:02}:{minutes % 60:02}" if minutes else "Z"


def _slices(values: pa.Array, *children: pa.Array) -> list[pa.Array]:
    """What lists or maps hold, without what lies before and behind them."""
    first, last = values.offsets[0].as_py(), values.offsets[-1].as_py()
    return [child.slice(first, last - first) for child in children]


def _groups(values: pa.Array, flat: Texts) -> Iterator[Texts | None]:
    """The elements of each list or map, None of one that is NULL.

    Args:
        values: lists or maps.
        flat: what they hold, see `_slices`.
    """
    offsets = values.offsets.to_numpy()
    spans = pairwise((offsets - offsets[0]).tolist())
    for is_there, (first, last) in zip(values.is_valid().to_pylist(), spans, strict=True):
        yield flat[first:last] if is_there else None


def _or_null(text: str | None) -> str:
    return "null" if text is None else text


def _object(names: Sequence[str], texts: Iterable[str | None]) -> str:
    parts = (f"{name}:{_or_null(text)}" for name, text in zip(names, texts, strict=True))
    return "{" + ",".join(parts) + "}"


def _number(value: float, shortest: str) -> str:
    """A floating point number as Java writes it."""
    if value != value or value in (float("inf"), float("-inf")):
        return "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"
    sign, digits, exponent = Decimal(shortest).as_tuple()
    text = "".join(map(str, digits)).rstrip("0") or "0"
    assert isinstance(exponent, int)
    point = len(digits) + exponent
    minus = "-" if sign else ""
    if value == 0:
        return f"{minus}0.0"
    if 1e-3 <= abs(value) < 1e7:
        padded = text.rjust(len(text) + max(0, 1 - point), "0") if point < 1 else text.ljust(point + 1, "0")
        whole, fraction = padded[: max(point, 1)], padded[max(point, 1) :]
        return f"{minus}{whole}.{fraction or '0'}"
    return f"{minus}{text[0]}.{text[1:] or '0'}E{point - 1}"
