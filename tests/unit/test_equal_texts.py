"""Strings of two columns compared, whatever forms the columns have."""

from __future__ import annotations

from random import Random

import numpy as np
import pyarrow as pa
import pytest

from penstock.operators.text.equal import DIFFERENT, EQUAL, ONE_IS_NULL, compared
from penstock.plan.patterns import Form, formed
from text_cases import FORMS, random_value


def column(random: Random, values: list[str | None]) -> pa.Array | pa.ChunkedArray:
    """The values as any type, in chunks or not."""
    kind = random.choice((pa.string(), pa.large_string(), pa.string_view()))
    cut = random.randrange(len(values) + 1)
    parts = [pa.array(part, kind) for part in (values[:cut], values[cut:])]
    if kind != pa.string_view() and random.random() < 0.5:
        parts = [part.dictionary_encode() for part in parts]
        return random.choice((pa.chunked_array(parts), pa.array(values, kind).dictionary_encode()))
    return pa.chunked_array(parts) if random.random() < 0.5 else pa.array(values, kind)


def expected(left: str | None, right: str | None) -> int:
    return ONE_IS_NULL if left is None or right is None else EQUAL if left == right else DIFFERENT


def behind(form: Form, value: str | None, if_null: str | None) -> str | None:
    return if_null if value is None else formed(form, value)


@pytest.mark.parametrize("seed", range(60))
def test_each_row_is_compared_behind_the_functions(seed: int) -> None:
    random = Random(seed)
    texts = [random_value(random, 3) for _ in range(4)]
    lefts = [random.choice((*texts, None)) for _ in range(random.randrange(40))]
    rights = [random.choice((text, text and text.lower(), random.choice(texts), None)) for text in lefts]
    forms = random.choice(FORMS), random.choice(FORMS)
    if_null = random.choice((None, "", texts[0])), random.choice((None, ""))
    rows = (
        None
        if random.random() < 0.5
        else np.sort(np.array(random.sample(range(len(lefts)), len(lefts) // 2), np.int64))
    )
    found = compared(column(random, lefts), column(random, rights), forms, if_null, rows)
    wanted = [
        expected(behind(forms[0], lefts[row], if_null[0]), behind(forms[1], rights[row], if_null[1]))
        for row in (range(len(lefts)) if rows is None else rows.tolist())
    ]
    assert found.tolist() == wanted


def test_a_dictionary_of_string_view() -> None:
    column = pa.DictionaryArray.from_arrays(pa.array([1, None, 0]), pa.array(["a", "b"], pa.string_view()))
    found = compared(column, pa.array(["b", "b", "b"]), ((), ()), (None, None), np.array([0, 2], np.int64))
    assert found.tolist() == [EQUAL, DIFFERENT]


def test_bytes_that_are_no_text() -> None:
    values = pa.Array.from_buffers(
        pa.string(), 2, [None, pa.py_buffer(np.array([0, 1, 2], np.int32)), pa.py_buffer(b"\xffA")]
    )
    assert compared(values, pa.array(["\ufffd", "a"]), (("lower",), ()), (None, None), None).tolist() == [
        EQUAL,
        EQUAL,
    ]


def test_a_column_without_values() -> None:
    assert (
        compared(pa.nulls(2), pa.array(["a", None]), ((), ()), (None, None), None).tolist()
        == [ONE_IS_NULL] * 2
    )
    assert compared(pa.nulls(1), pa.array([""]), (("trim",), ()), ("", None), None).tolist() == [EQUAL]
