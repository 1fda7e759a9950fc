"""Plain JSON records: what the scan says of records, short and long, and that of long ones it takes good JSON only."""

from __future__ import annotations

import json
import random

import numpy as np
import pyarrow as pa
import pytest

from json_records import good_record, records
from penstock.kernels.json_scan import (
    EXPONENT_DIGITS,
    LEVELS,
    NAME_BYTES,
    NUMBER_BYTES,
    SHORT_BYTES,
    plain_records,
)
from penstock.operators.ingest.json_decode import JsonDecoder
from penstock.operators.ingest.json_records import Records

LONG = ', "f": "' + "f" * SHORT_BYTES + '"}'
PLAIN = [
    '{"id": 1}',
    '{"id": -1.50e-12, "x": [0, -0.0, 1E+5], "y": [{"a": [true, false, null]}, {}, []]}',
    '{"s": "More Info: NaN", "t": "\\u00e9 \\ud83d\\ude00 \\" \\\\ \\/ \\b\\f\\n\\r\\t"}',
    '{\t"é" : "日本 😀" }',
    '{"d": "2024-01-02T03:04:05Z", "n": 10}',
]
ODD = [
    '{"x": NaN}',
    '{"x": Inf}',
    '{"x":-Infinity}',
    '{"x":[1,-NaN]}',
    '{"x": -0}',
    '{"x":-0e1}',
    '{"s": "a\tb", "c": "\x01"}',
    '{"id": 1}\r{"id": 2}',
    '{"id": 1}\n',
    '{"id": 1\x00}',
    ' {"id": 1}',
    "[]",
    "",
]


def plain(texts: list[str | bytes]) -> list[bool]:
    values = pa.array([text if isinstance(text, bytes) else text.encode() for text in texts], pa.binary())
    found = np.empty(len(values), np.bool_)
    data = np.frombuffer(values.buffers()[2], np.uint8)
    ends = np.frombuffer(values.buffers()[1], np.int32)
    plain_records(data, ends[:-1], ends[1:], 1 << 20, found)
    return found.tolist()


def test_words_that_one_reader_refuses_are_found_in_short_records_and_in_long_ones() -> None:
    for texts, expected in ((PLAIN, True), (ODD, False)):
        assert plain(texts) == [expected] * len(texts)
        long = [text[:-1] + LONG for text in texts if text.endswith("}")]
        assert plain(long) == [expected] * len(long)


@pytest.mark.parametrize(
    ("text", "most"),
    [
        ('{{"z": {}, "x": 1{}}}', NUMBER_BYTES - 1),
        ('{{"z": {}, "x": 1e1{}}}', EXPONENT_DIGITS - 1),
    ],
)
def test_numbers_are_bounded(text: str, most: int) -> None:
    filled = '"' + "f" * SHORT_BYTES + '"'
    assert plain([text.format(filled, "0" * digits) for digits in (most, most + 1)]) == [True, False]


def test_names_and_nesting_are_bounded() -> None:
    names = [f'{{"{"n" * length}": 1}}' for length in (NAME_BYTES - 1, NAME_BYTES + 1)]
    # the record itself is one level
    nested = [f'{{"z": {"[" * levels}{"]" * levels}{LONG}' for levels in (LEVELS - 1, LEVELS)]
    assert plain(names) == plain(nested) == [True, False]


def test_a_long_plain_record_is_good_json() -> None:
    long = [each[:-1] + LONG.encode() for each in records(2_000, seed=1) if each.endswith(b"}")]
    taken = [each for each, is_plain in zip(long, plain(long), strict=True) if is_plain]
    assert len(taken) > len(long) // 5
    for each in taken:
        assert isinstance(json.loads(each.decode(errors="replace")), dict)


def test_an_odd_record_leaves_its_neighbours_where_they_are() -> None:

    schema = pa.schema([("id", pa.int64()), ("x", pa.float64())])
    decoder = JsonDecoder(schema, 1 << 20)
    good = [good_record(random.Random(seed)) for seed in range(100)]
    block = [*good[:50], b'{"x": Inf}', *good[50:], b'{"x": -0}', None]
    tuples, is_decoded = decoder.decode(Records.of_values(pa.array(block, pa.binary())))
    assert np.flatnonzero(~is_decoded).tolist() == [50, 101, 102]
    assert tuples.column("id").to_pylist() == [json.loads(each)["id"] for each in good]
    # too many odd ones, or one of another type than declared: Spark reads all of them
    for odd in ([b'{"x": Inf}'] * 17, [b'{"id": "1"}']):
        tuples, is_decoded = decoder.decode(Records.of_values(pa.array(good + odd, pa.binary())))
        assert not len(tuples)
        assert not is_decoded.any()
