"""Where join views begin: behind batches that were bound before they were declared."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from log_places import log_at
from penstock.spark.lanes.joins.beginnings import ViewBeginnings
from penstock.spark.log.entries import Entry
from penstock.spark.log.stream_log import StreamLog

#: numbers of batches by entry: some entries say something between two batches
BATCHES = [0, 1, 1, 2, 4, 4, 4, 5, 7, 8, 8, 9]
LAST = len(BATCHES) - 1


@pytest.fixture(scope="module")
def log() -> Iterator[StreamLog]:
    with TemporaryDirectory() as folder:
        log = StreamLog(log_at(Path(folder)))
        for number, batch in enumerate(BATCHES):
            assert log.append(Entry(number, batch, 0, number))
        yield log


def expected(declared: int, begun: int | None, after: int, until: int) -> int:
    for number in range(max(declared, after) + 1, until + 1):
        if begun is not None and BATCHES[number] >= begun:
            return number
    return until + 1


@given(
    declared=st.integers(-1, LAST),
    begun=st.integers(0, BATCHES[-1] + 1),
    spans=st.lists(st.tuples(st.booleans(), st.integers(-1, LAST), st.integers(-1, LAST)), max_size=12),
)
def test_the_first_entry_is_found_whatever_was_asked_before(
    log: StreamLog, declared: int, begun: int, spans: list[tuple[bool, int, int]]
) -> None:
    said: list[int | None] = [None]
    beginnings = ViewBeginnings({"s": declared}, {"s": log}, lambda _: said[-1])
    for is_begun, one, other in spans:
        if is_begun:
            said.append(begun)
        after, until = sorted((one, other))
        assert beginnings.first("s", after, until) == expected(declared, said[-1], after, until)


def test_what_is_known_is_not_read_again(log: StreamLog, monkeypatch: pytest.MonkeyPatch) -> None:
    beginnings = ViewBeginnings({"s": 1}, {"s": log}, lambda _: 4)
    assert beginnings.first("s", 1, LAST) == 4
    monkeypatch.setattr(log, "entry", pytest.fail)
    for after in range(-1, LAST):
        assert beginnings.first("s", after, LAST) == max(4, after + 1)
