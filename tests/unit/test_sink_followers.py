"""Followers: every published row once and in order, whatever is merged, killed or refused in between."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from penstock.spark.sinks import shared_files
from penstock.spark.sinks.published import Limits, Publications
from penstock.spark.storage import columns
from penstock.spark.storage.columns import batches_of
from penstock.spark.storage.formats import SINK
from penstock.spark.storage.store_paths import StorePath
from sink_cases import WINDOWS, Folder, until
from sinks_taken import Taken, sink_to


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Folder]:
    """A results folder whose batches are never merged."""
    found = Folder(tmp_path / "out")
    yield found
    found.close()


def test_what_is_published_is_delivered_in_order_and_the_next_run_goes_on_behind_it(folder: Folder) -> None:
    target = Taken()
    folder.match([1, 2, -1], [], [-2], [3])
    folder.deliver(sink_to(target))
    assert (target.ids, target.numbers) == ([1, 2, 3], [0, 1])
    folder.deliver(sink_to(target))
    folder.match([4])
    folder.deliver(sink_to(target))
    assert (target.ids, target.numbers) == ([1, 2, 3, 4], [0, 1, 2])


def test_rows_are_counted_over_all_runs(folder: Folder) -> None:
    target = Taken()
    folder.match([1, 2, -1], [3])
    folder.deliver(sink_to(target))
    folder.match([4])
    with folder.following(sink_to(target)) as told:
        until(lambda: told.get("taken.large", {}).get("rows") == 4)
    where = folder.layout.sinks["taken.large"]
    document = SINK.read(where)
    assert document is not None
    del document["sent"]
    SINK.replace(where, document)
    folder.match([5])
    with folder.following(sink_to(target)) as told:
        until(lambda: told.get("taken.large", {}).get("deliveries") == 4)
    assert told["taken.large"]["rows"] is None, "a ledger of before did not count them"
    assert target.ids == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("every", [1, 2, 3, 7])
@pytest.mark.parametrize("limits", [Limits(None, 1), Limits(2, None), Limits(1, 1), Limits(100, None)])
def test_merged_files_are_delivered_once_and_in_order(tmp_path: Path, every: int, limits: Limits) -> None:
    folder, target = Folder(tmp_path / "out", every), Taken()
    wanted: list[int] = []
    for number in range(30):
        ids = list(range(number * 10, number * 10 + number % 4)) + [-1] * (number % 3)
        folder.match(ids)
        wanted += [each for each in ids if each >= 0]
        if number % 5 == 3:
            folder.deliver(sink_to(target, limits=limits))
            assert target.ids == wanted
    late = Taken()
    folder.deliver(sink_to(target, limits=limits), sink_to(late, "late", limits=limits))
    assert target.ids == late.ids == wanted
    assert target.ordinals == late.ordinals
    assert len(set(target.ordinals)) == len(wanted)
    assert target.numbers == list(range(len(target.numbers)))
    folder.close()


def test_small_deliveries_of_a_large_file_decode_it_once(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    decoded: list[object] = []

    def noted(path: StorePath, *given: Any, **named: Any) -> Iterator[pa.RecordBatch]:
        decoded.append(path)
        return batches_of(path, *given, **named)

    for module in (shared_files, columns):
        monkeypatch.setattr(module, "batches_of", noted)
    ids = [each if each % 7 else -each for each in range(1, shared_files.SMALL_ROWS + 5_000)]
    folder.match(ids)
    target = Taken()
    folder.deliver(sink_to(target, limits=Limits(700, 1)))
    assert target.ids == [each for each in ids if each >= 0]
    assert len(target.numbers) == -(-len(ids) // 700)
    assert len(decoded) == 1


def test_a_failed_delivery_is_repeated_with_the_same_rows_though_more_came_and_files_were_merged(
    tmp_path: Path,
) -> None:
    folder, target = Folder(tmp_path / "out", 2), Taken()
    folder.match([1, 2])
    target.fails = [ConnectionError("away")]
    target.blocks = threading.Event()
    followers, _ = folder.followers(lambda: False, is_bounded=False)
    followers.set([sink_to(target, limits=Limits(1_000, None))])
    followers.start()
    until(lambda: folder.layout.sinks.names() == ["taken.large"])
    until(lambda: bool((SINK.read(folder.layout.sinks["taken.large"]) or {})["planned"]))
    folder.match([3], [4], [5], [6])
    target.blocks.set()
    until(lambda: target.ids == [1, 2, 3, 4, 5, 6])
    assert target.numbers[0] == 0
    assert target.ordinals[:2] == ["0", "1"]
    followers.stop()
    kinds = [event["kind"] for event in folder.events.recent if event["kind"].startswith("sink_")]
    assert (kinds[:2], kinds[-1]) == (["sink_began", "sink_retried"], "sink_back")
    folder.close()


def test_a_sink_that_fails_delays_no_other_and_its_backlog_is_told(folder: Folder) -> None:
    failing, works = Taken(), Taken()
    failing.fails = [ValueError("no")] * 40
    sinks = [sink_to(failing, "failing"), sink_to(works, "works")]
    with folder.following(*sinks) as told:
        folder.match([1], [2], [3])
        until(lambda: works.ids == [1, 2, 3])
        until(lambda: told["works.large"].get("backlog") == 0)
        assert failing.ids == []
        failing.fails = []
        until(lambda: failing.ids == [1, 2, 3])
        until(lambda: told["failing.large"]["backlog"] == 0)


def test_batches_are_gathered_for_a_while(folder: Folder) -> None:
    target = Taken()
    with folder.following(sink_to(target, limits=Limits(1_000, None), every_seconds=1.0)):
        folder.match([1])
        until(lambda: target.numbers == [0])
        folder.match([2], [3], [4])
        until(lambda: target.ids == [1, 2, 3, 4])
        assert target.numbers == [0, 1]
    folder.match([5])
    folder.deliver(sink_to(target, limits=Limits(1_000, None), every_seconds=3_600.0))
    folder.match([6])
    folder.deliver(sink_to(target, limits=Limits(1, None), every_seconds=3_600.0))
    assert target.ids == [1, 2, 3, 4, 5, 6]


def test_how_long_a_sink_is_behind_is_told_of_merged_batches_too(tmp_path: Path) -> None:
    folder, target = Folder(tmp_path / "out", 2), Taken()
    target.fails = [ValueError("no")] * 1_000
    with folder.following(sink_to(target)) as told:
        folder.match([1])
        until(lambda: told["taken.large"].get("backlog") == 1)
        before = told["taken.large"]["backlog_since"]
        for each in range(2, 10):
            folder.match([each])
        until(lambda: told["taken.large"]["backlog"] == 9)
        after = told["taken.large"]["backlog_since"]
        target.fails = []
        until(lambda: told["taken.large"]["backlog"] == 0)
        assert told["taken.large"]["backlog_since"] is None
    assert target.ids == list(range(1, 10))
    # of a merged batch the time of the last one of its file is known
    assert before <= after <= time.time()
    folder.close()


def test_a_backlog_is_not_gathered(folder: Folder) -> None:
    target = Taken()
    folder.match(range(10))
    with folder.following(sink_to(target, limits=Limits(2, None), every_seconds=3_600.0)):
        until(lambda: target.ids == list(range(10)))


def test_a_sink_may_begin_behind_the_last_row(folder: Folder) -> None:
    folder.match([1], [2])
    folder.answer([("a", 0, 1, False, False)])
    target, windows = Taken(), Taken()
    sinks = [
        sink_to(target, begin="latest"),
        sink_to(windows, "windows", WINDOWS, begin="latest"),
    ]
    folder.deliver(*sinks)
    folder.match([3])
    folder.answer([("a", 0, 2, True, False)])
    folder.deliver(*sinks)
    assert (target.ids, windows.ids) == ([3], [2])


def test_every_revision_of_a_window_is_delivered(folder: Folder) -> None:
    target = Taken()
    folder.answer([("a", 0, 1, False, False)], [("a", 0, 2, True, False), ("b", 0, 5, False, False)])
    folder.deliver(sink_to(target, view=WINDOWS))
    assert target.ids == [1, 2, 5]
    assert target.ordinals == ["3-0", "3-1", "3-2"]


def test_fewer_rows_than_were_delivered_are_an_error(folder: Folder) -> None:
    target = Taken()
    folder.match([1, 2], [3])
    folder.deliver(sink_to(target))
    where = folder.layout.sinks["taken.large"]
    document = SINK.read(where)
    assert document is not None
    document["feeds"][0]["place"] = {"batch": 0, "base": 2, "rows": 9}
    SINK.replace(where, document)
    followers, _ = folder.followers(lambda: True)
    followers.set([sink_to(target)])
    followers.start()
    assert followers.join(None)
    (failed,) = followers.failed
    assert "a sink was given 9" in failed["told"]


def test_rows_that_are_read_once_are_delivered_by_their_definitions(folder: Folder) -> None:
    """Files with rows of other views, and of two definitions in turn: a delivery has rows of one."""
    target = Taken()
    sink = sink_to(target, limits=Limits(1_000, None))
    folder.match([1])
    folder.deliver(sink)
    folder.redefine()
    folder.match([2, -3, 4], [5, 6])
    folder.match([-7, 8], [9, -10], definition=2)
    folder.match([11, -12])
    folder.deliver(sink)
    assert target.ids == [1, 2, 4, 5, 6, 8, 9, 11]
    assert target.ordinals == ["0", "1", "3", "4", "5", "7", "8", "10"]


def test_rows_of_a_definition_that_came_meanwhile_are_delivered(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between a follower's look at the catalog and at what is published."""
    taken = Taken()
    followers, _ = folder.followers(lambda: False, is_bounded=False)
    after = Publications.after
    redefined: list[bool] = []

    def overtaken(self: Publications, *arguments: Any) -> Any:
        if not redefined:
            redefined.append(True)
            folder.redefine()
            followers.views_changed()
            folder.match([100, 101], definition=2)
        return after(self, *arguments)

    monkeypatch.setattr(Publications, "after", overtaken)
    folder.match([1])
    followers.set([sink_to(taken, limits=Limits(1_000, None))])
    followers.start()
    until(lambda: taken.ids[-1:] == [101])
    folder.match([200], definition=2)
    until(lambda: taken.ids[-1:] == [200])
    followers.stop()
    assert taken.ids == [1, 100, 101, 200]
