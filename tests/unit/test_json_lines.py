"""Lines of JSON files: each is read once, wherever segments and pieces of a file end."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from penstock.operators.ingest.json_decode import JsonDecoder, decoded_first
from penstock.operators.ingest.json_records import Records
from penstock.spark.tasks import json_files

TEXTS = [
    b"",
    b"\n",
    b"{}",
    b'{"a":1}\n{"b":2}\n',
    b'{"a":1}\r\n{"b":2}\r\n\r\n{"c":3}',
    b'{"a":1}\r{"b":2}\r\r{"c":3}\r',
    b'\xef\xbb\xbf{"a":1}\n\n\n{"bcdefgh":2}\r\n{"c":3}\n',
]


def own(records: Records) -> list[bytes]:
    return [bytes(records.data)[begin:end] for begin, end in zip(records.begins, records.ends, strict=True)]


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("size", [1, 2, 3, 7, 100])
def test_each_line_is_read_once(
    text: bytes, size: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(text)
    lines = [line for line in re.split(b"\r\n|\r|\n", text.removeprefix(b"\xef\xbb\xbf")) if line]
    # a piece is larger than the mark of UTF-8 that a file may begin with
    for segment, piece in ((size, 3 + size), (1 << 20, 3 + size), (size, 1 << 20)):
        monkeypatch.setattr(json_files, "_SEGMENT_BYTES", segment)
        monkeypatch.setattr(json_files, "_PIECE_BYTES", piece)
        monkeypatch.setattr(json_files, "_SEARCHED_BYTES", size)
        read = [
            line
            for each in json_files.segments(str(path), len(text), 0)
            for part in json_files._pieces(each)
            for line in own(Records.of_lines(part))
        ]
        assert read == lines


def test_records_are_chosen_and_written_as_lines() -> None:
    values = pa.array([b"{1}", b"", b"{22}", b"{3}"], pa.binary())
    for records in (Records.of_values(values), Records.of_values(values.slice(0, 4))[0:4]):
        assert own(records) == values.to_pylist()
        assert bytes(records.as_lines()) == b"{1}\n\n{22}\n{3}\n"
        assert bytes(records.where(np.array([True, False, False, True])).as_lines()) == b"{1}\n{3}\n"
    lines = Records.of_lines(b"{1}\n\n{22}\n{3}")
    assert own(lines[1:]) == [b"{22}", b"{3}"]
    assert bytes(lines[1:2].as_lines()) == b"{22}\n"
    assert bytes(lines[1:1].as_lines()) == b""


def test_what_may_hold_a_replaced_character_is_doubtful() -> None:
    text = '{"a":"b"}\n{"a":"\ufffd"}\n\n{"a":"\\uFFfd"}\n{"a":"\\ufffe"}\n{"a":"\\ufffd \ufffd"}\n'.encode()
    lines = Records.of_lines(text)
    assert lines.doubtful.tolist() == [1, 2, 4]
    assert lines[2:].doubtful.tolist() == [0, 2]


def test_columns_that_make_a_record_malformed_are_decoded_of_every_record() -> None:
    schema = pa.schema([("a", pa.string()), ("n", pa.int64()), ("b", pa.string()), ("x", pa.float64())])
    assert decoded_first(schema, ["b"]).names == ["n", "b", "x"]
    texts = pa.schema([("a", pa.string()), ("b", pa.string())])
    assert decoded_first(texts, []).names == ["a"]
    decoder = JsonDecoder(decoded_first(schema, ["b"]), 1 << 20)
    lines = Records.of_lines(b'{"a":1,"b":"x"}\n{"a":{"c":2},"n":5}\n')
    tuples, is_decoded = decoder.decode(lines)
    assert tuples.to_pylist() == [{"n": None, "b": "x", "x": None}, {"n": 5, "b": None, "x": None}]
    assert is_decoded.all()
    assert JsonDecoder(schema, 1 << 20).tuples(lines) is None
