"""Functions of text."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.operators.scalars.values import Argument, Found
from penstock.operators.text.equal import formed_values
from penstock.plan.java_regex import UnprovenError
from penstock.plan.re2_regex import re2_pattern


def length(text: Argument, kind: pa.DataType) -> Found:
    """How many code points a text has."""
    return pc.utf8_length(text).cast(kind), None


def replace(text: Argument, sought: Argument, replacement: Argument, _kind: pa.DataType) -> Found:
    return pc.replace_substring(text, pattern=sought.as_py(), replacement=replacement.as_py()), None


def concat(*arguments: Argument) -> Found:
    """Texts behind each other; the last argument is the type of the result."""
    *texts, _ = arguments
    return pc.binary_join_element_wise(*texts, pa.scalar("", pa.string())), None


def split_part(text: Argument, delimiter: Argument, number: Argument, kind: pa.DataType) -> Found:
    """The part with a number, from 1, or from the end with -1; an empty text where there are fewer."""
    parts = pc.split_pattern(text, delimiter.as_py())
    offsets = np.asarray(parts.offsets).astype(np.int64)
    first, end, wanted = offsets[:-1], offsets[1:], number.as_py()
    places = first + wanted - 1 if wanted > 0 else end + wanted
    is_there = (places >= first) & (places < end)
    found = parts.values.take(pa.array(places, mask=~is_there)).fill_null("")
    return pc.if_else(pc.is_valid(text), found, pa.scalar(None, kind)), None


def substring(text: Argument, begin: Argument, length: Argument, kind: pa.DataType) -> Found:
    """So many code points from a place, which counts from 1; from the first one also where it is 0."""
    first = max(begin.as_py() - 1, 0)
    end = first + max(length.as_py(), 0)
    return pc.utf8_slice_codeunits(_valid_text(text), start=first, stop=end).cast(kind), None


def regexp_extract(text: Argument, pattern: Argument, group: Argument, kind: pa.DataType) -> Found:
    """What a group captures of the first match; an empty text where there is no match, or the group is not part of it."""
    found = pc.extract_regex(_valid_text(text), pattern=re2_pattern(pattern.as_py(), group.as_py()))
    captured = pc.fill_null(pc.struct_field(found, 0), "")
    return pc.if_else(pc.is_valid(text), captured, pa.scalar(None, kind)), None


def is_extractable(pattern: str, group: int) -> bool:
    """Whether `regexp_extract` finds what Java would."""
    try:
        pc.extract_regex(pa.array([""]), pattern=re2_pattern(pattern, group))
    except (UnprovenError, pa.ArrowInvalid):
        return False
    return True


def _valid_text(text: Argument) -> Argument:
    """A text in which what is no UTF-8 is replaced, as Java replaces it."""
    try:
        text.validate(full=True)
    except pa.ArrowInvalid:
        values = text.cast(pa.binary()).to_pylist()
        replaced = [None if each is None else each.decode(errors="replace") for each in values]
        return pa.array(replaced, text.type)
    return text


def _formed(function: str, text: Argument, kind: pa.DataType) -> Found:
    return formed_values(text.cast(pa.large_string()), (function,)).cast(kind), None


def _searched(search: Callable[..., pa.Array], text: Argument, sought: Argument, _kind: pa.DataType) -> Found:
    return search(text, pattern=sought.as_py()), None


TEXTS: Mapping[str, Callable[..., Found]] = {
    "length": length,
    "replace": replace,
    "concat": concat,
    "split_part": split_part,
    "regexp_extract": regexp_extract,
    "substring": substring,
    **{name: partial(_formed, name) for name in ("lower", "upper", "trim", "ltrim", "rtrim")},
    "starts_with": partial(_searched, pc.starts_with),
    "ends_with": partial(_searched, pc.ends_with),
    "contains": partial(_searched, pc.match_substring),
}
