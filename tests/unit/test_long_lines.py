"""Lines that are longer than a record may be: found exactly where Hadoop's reader passes them over."""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest

from penstock.spark.sources import long_lines as module
from penstock.spark.sources.long_lines import ANY_END, line_ends, long_lines

MOST = 50


def _expected(content: bytes) -> list[tuple[int, int]]:
    """(number, bytes) of the lines whose bytes and end take MOST + 3 or more."""
    lines = re.findall(rb"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+\Z", content)
    return [
        (number, len(line.rstrip(b"\r\n"))) for number, line in enumerate(lines, 1) if len(line) >= MOST + 3
    ]


@pytest.mark.parametrize("block", [7, 64, 1 << 16])
def test_lines_as_hadoop_counts_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block: int) -> None:
    monkeypatch.setattr(module, "_BLOCK_BYTES", block)
    rng = random.Random(block)
    path = tmp_path / "1.csv"
    for _ in range(400):
        pieces = []
        for _ in range(rng.randrange(1, 12)):
            pieces.append(b"x" * rng.choice([0, 3, 10, MOST - 1, MOST, MOST + 1, MOST + 2, 3 * MOST, 500]))
            pieces.append(rng.choice([b"\n", b"\r\n", b"\r", b"\n\n", b"\n\r", b"\r\r\n"]))
        content = b"".join(pieces[: rng.choice([None, -1])])
        path.write_bytes(content)
        found = [(each.line, each.size) for each in long_lines(f"file:{path}", MOST, ANY_END)]
        assert found == _expected(content), content


def test_what_the_quarantine_keeps(tmp_path: Path) -> None:
    path = tmp_path / "1.csv"
    path.write_bytes(b"1,a\n" + b"2," + b"b" * 5_000 + b"\n3,c\n")
    (line,) = long_lines(str(path), 1_000, ANY_END)
    assert line.origin == f"{path}:2 (5,002 bytes)"
    assert line.beginning == b"2," + b"b" * 1_022
    assert not long_lines(str(path), 5_002, ANY_END)
    assert not long_lines(str(tmp_path / "gone.csv"), 1, ANY_END)
    path.rename(tmp_path / "1.csv.gz")
    assert not long_lines(str(tmp_path / "1.csv.gz"), 1_000, ANY_END)


def test_a_line_that_is_as_long_as_it_may_be(tmp_path: Path) -> None:
    path = tmp_path / "1.csv"
    for end in (b"\n", b"\r\n"):
        path.write_bytes(b"a" * MOST + end + b"b")
        assert not long_lines(str(path), MOST, ANY_END)
    path.write_bytes(b"a" * (MOST + 1) + b"\r\nb")
    assert [each.size for each in long_lines(str(path), MOST, ANY_END)] == [MOST + 1]


def test_a_separator_of_ones_own(tmp_path: Path) -> None:
    path = tmp_path / "1.json"
    path.write_bytes(b"a\rb;" + b"c\r\n" * 40 + b";d;" + b"e" * 90)
    assert [(each.line, each.size) for each in long_lines(str(path), MOST, b";")] == [(2, 120), (4, 90)]


def test_which_tables_have_lines() -> None:
    assert line_ends("csv", {"header": "true"}) == ANY_END
    assert line_ends("text", {}) == ANY_END
    assert line_ends("json", {"linesep": "\n"}) == b"\n"
    assert not line_ends("csv", {"linesep": "||"})
    assert not line_ends("json", {"multiline": "TRUE"})
    assert not line_ends("text", {"wholetext": "true"})
    assert not line_ends("orc", {})
