"""Counts of a status that only events tell of: they add up over runs, and a killed run loses none of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.monitor.book import StatusBook
from penstock.monitor.durations import BOUNDS
from penstock.monitor.folder import folder_status
from penstock.spark.reporting.status_file import StatusFile
from penstock.spark.storage.events import EventLog
from penstock.spark.storage.layout import Layout
from status_cases import BATCH, results_folder

STARTED = {"kind": "run_started"}


def _batch(number: int, seconds: float) -> dict[str, object]:
    return {
        **BATCH,
        **{"kind": "batch", "batch": number},
        **{"bind_seconds": 0.0, "run_seconds": seconds, "publish_seconds": 0.0},
    }


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    return results_folder(tmp_path)


def test_durations_of_batches_are_counted_by_upper_bound_and_a_batch_counts_once() -> None:
    book = StatusBook()
    for number, seconds in enumerate((0.01, BOUNDS[0], 0.3, 1_000.0)):
        book.note(_batch(number, seconds))
    book.note(_batch(3, 1_000.0))
    durations = book.document()["streams"]["orders"]["durations"]
    assert durations["counts"] == [2, 0, 0, 1, *[0] * (len(BOUNDS) - 4), 1]
    assert durations["seconds"] == pytest.approx(1_000.36)


def test_durations_are_counted_where_the_manifest_has_told_of_the_batch(layout: Layout) -> None:
    log = EventLog(layout.events)
    log.record(**_batch(1, 0.3))
    stream = folder_status(layout.output)["streams"]["orders"]
    assert stream["batches"] == 2
    assert sum(stream["durations"]["counts"]) == 1


def test_counters_do_not_begin_anew_with_the_next_run() -> None:
    book = StatusBook()
    for _ in range(2):
        book.note(STARTED)
        book.note(_batch(0, 0.3))
        book.note({"kind": "stream_retried", "stream": "orders"})
        book.note({"kind": "lane_retried", "lane": "joins.0", "stream": "orders"})
        book.note({"kind": "lane_left", "lane": "joins.0"})
        book.note({"kind": "decision", "stream": "orders", "action": "SwapSequence", "reason": "faster"})
        book.note({"kind": "decision", "stream": "orders", "action": "KeepSequence", "reason": "as fast"})
    document = StatusBook(book.document()).document()
    stream = document["streams"]["orders"]
    assert (stream["retried"], stream["switched"], document["lanes_retried"]) == (2, 2, 2)
    assert sum(stream["durations"]["counts"]) == 1


def test_what_a_killed_run_told_after_its_last_status_is_not_lost(layout: Layout) -> None:
    killed = StatusFile(layout, dict, every_seconds=60)
    log = EventLog(layout.events, told=killed.book.note)
    log.record("run_started")
    killed.close()
    log.record(**_batch(1, 0.3))
    log.record("stream_retried", stream="orders", told="the disk is full")
    before = folder_status(layout.output)["streams"]["orders"]
    again = StatusFile(layout, dict, every_seconds=60)
    EventLog(layout.events, told=again.book.note).record("run_started")
    again.close()
    after = folder_status(layout.output)["streams"]["orders"]
    assert (before["retried"], sum(before["durations"]["counts"])) == (1, 1)
    assert (after["retried"], sum(after["durations"]["counts"])) == (1, 1)
    assert (after["batches"], after["tuples"]) == (before["batches"], before["tuples"])


def test_views_of_a_status_are_in_the_order_in_which_they_were_declared(layout: Layout) -> None:
    status = StatusFile(layout, dict, every_seconds=60)
    status.book.note(
        {"kind": "windows", "stream": "orders", "batch": 0, "views": {"later": {"early": 1, "slack": 0}}}
    )
    status.close()
    assert list(folder_status(layout.output)["views"]) == ["hours", "later"]
