"""Signatures of values: numbers that last, whatever a column's form."""

from __future__ import annotations

import pickle
import time

import numpy as np
import pyarrow as pa
import pytest

from penstock.operators.text.signatures import NULL_SIGNATURE, SignatureEncoder
from penstock.plan.patterns import TextPattern, holds

PATTERNS = [
    TextPattern("like", "%exe"),
    TextPattern("like", "%.exe%", ("lower",)),
    TextPattern("like", "c:\\\\%", ("lower",)),
    TextPattern("like", "%"),
    TextPattern("like", "%a_e%", ("lower",)),
    TextPattern("regex", "[0-9]{2}"),
    TextPattern("regex", "(?:foo|bar)+$", ("lower",)),
    TextPattern("like", ""),
]
VALUES = [
    "C:\\a.exe",
    None,
    "",
    "xx12",
    "C:\\a.exe",
    "é.exe",
    "FOOBAR\n",
    "foo bar",
    "ale",
    "aİe",
    None,
    "kaKe",
]


def meant(encoder: SignatureEncoder, value: str | None, signature: int) -> bool:
    """Whether a signature says of a value what it satisfies."""
    expected = [] if value is None else [number for number, each in enumerate(PATTERNS) if holds(each, value)]
    return encoder.satisfied(signature).tolist() == expected and (value is None) == (
        signature == NULL_SIGNATURE
    )


FORMS = {
    "string": pa.array(VALUES),
    "large_string": pa.array(VALUES, pa.large_string()),
    "string_view": pa.array(VALUES, pa.string_view()),
    "dictionary": pa.array(VALUES).dictionary_encode(),
    "dictionary of large_string": pa.array(VALUES, pa.large_string()).dictionary_encode(),
    "dictionary of string_view": pa.DictionaryArray.from_arrays(
        pa.array([0, 1, 2, 3, 0, 5, 6, 7, 8, 9, None, 11], pa.int8()), pa.array(VALUES, pa.string_view())
    ),
    "chunks": pa.chunked_array([VALUES[:3], [], VALUES[3:]], pa.string()),
    "chunks of dictionaries": pa.chunked_array(
        [pa.array(VALUES[:5]).dictionary_encode(), pa.array(VALUES[5:]).dictionary_encode()]
    ),
    "slice": pa.array(["c:\\x", *VALUES, "a"]).slice(1, len(VALUES)),
    "slice of a dictionary": pa.array(["c:\\x", *VALUES, "a"]).dictionary_encode().slice(1, len(VALUES)),
}


@pytest.mark.parametrize("form", FORMS)
def test_the_form_of_a_column_does_not_matter(form: str) -> None:
    encoder = SignatureEncoder(PATTERNS)
    column = FORMS[form]
    signatures = encoder.encode(column)
    assert signatures.dtype == np.uint32
    assert all(map(meant, [encoder] * len(VALUES), VALUES, signatures.tolist()))
    rows = np.array([10, 3, 3, 0, 9, 4], np.int64)
    assert encoder.encode(column, rows).tolist() == signatures[rows].tolist()
    assert encoder.encode(column, rows[:0]).tolist() == []


@pytest.mark.parametrize(
    "column", [pa.array([], pa.string()), pa.chunked_array([], pa.string()), pa.array([], pa.dictionary(pa.int32(), pa.string()))]
)  # fmt: skip
def test_no_rows(column: pa.Array | pa.ChunkedArray) -> None:
    assert SignatureEncoder(PATTERNS).encode(column).tolist() == []


@pytest.mark.parametrize("kind", [pa.string(), pa.null(), pa.dictionary(pa.int32(), pa.string())])
def test_only_null(kind: pa.DataType) -> None:
    assert SignatureEncoder(PATTERNS).encode(pa.array([None, None], kind)).tolist() == [0, 0]


def test_other_columns_are_refused() -> None:
    with pytest.raises(TypeError, match="int64 is not a type of strings"):
        SignatureEncoder(PATTERNS).encode(pa.array([1]))


def test_patterns_that_only_spark_computes_are_refused() -> None:
    with pytest.raises(ValueError, match="Only Spark can compute the pattern"):
        SignatureEncoder([TextPattern("regex", r"\Bx")])


def test_no_patterns() -> None:
    encoder = SignatureEncoder([])
    assert encoder.encode(pa.array(["a", None, ""])).tolist() == [1, 0, 1]
    assert encoder.satisfied(1).tolist() == []


def test_numbers_keep_their_meaning_while_values_are_forgotten() -> None:
    encoder = SignatureEncoder([TextPattern("like", f"%{digit}%") for digit in range(10)], cache_bytes=4096)
    values = [f"{number * 7919 % 100_003}" for number in range(20_000)]
    first = encoder.encode(pa.array(values))
    known = encoder.signatures
    assert encoder.encode(pa.array(values[::-1])).tolist() == first[::-1].tolist()
    assert encoder.signatures == known
    assert encoder.nbytes < 200_000
    for value, signature in zip(values[:500], first.tolist(), strict=False):
        assert encoder.satisfied(signature).tolist() == sorted({int(digit) for digit in value})


def test_values_longer_than_the_cache_are_matched_too() -> None:
    encoder = SignatureEncoder(PATTERNS, cache_bytes=4096)
    values = ["x" * 100_000 + "exe", "short.exe", "y" * 100_000] * 2
    signatures = encoder.encode(pa.array(values)).tolist()
    assert all(map(meant, [encoder] * len(values), values, signatures))


def test_a_column_that_does_not_repeat_is_matched_row_by_row() -> None:
    encoder = SignatureEncoder(PATTERNS)
    for batch in range(3):
        values = [f"{batch} {number}.exe" for number in range(6000)]
        signatures = encoder.encode(pa.array(values)).tolist()
        assert all(map(meant, [encoder] * len(values), values, signatures))


def test_an_encoder_can_be_pickled() -> None:
    encoder = pickle.loads(pickle.dumps(SignatureEncoder(PATTERNS)))
    assert all(map(meant, [encoder] * len(VALUES), VALUES, encoder.encode(pa.array(VALUES)).tolist()))


def test_bytes_that_are_no_text_raise_nothing() -> None:
    array = pa.array([b"\xff.exe", b"\x80", b"a\xc4"], pa.binary()).view(pa.string())
    encoder = SignatureEncoder(
        [*PATTERNS, TextPattern("like", "_"), TextPattern("like", "a%\ufffd", ("lower",))]
    )
    signatures = encoder.encode(array).tolist()
    assert 0 in encoder.satisfied(signatures[0])
    assert 8 in encoder.satisfied(signatures[1])
    assert 9 in encoder.satisfied(signatures[2])


def test_eleven_thousand_patterns_are_built_in_a_second() -> None:
    SignatureEncoder(PATTERNS)
    patterns = [
        TextPattern("like", f"%{number * 7919:x} tool-{number}.exe%", ("lower",)) for number in range(11_000)
    ]
    began = time.process_time()
    SignatureEncoder(patterns)
    assert time.process_time() - began < 1.0
