"""The status of a results folder from its files alone: folds of events, dead runs, quarantined records."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql.types import StructType

from penstock.cli.check import unused
from penstock.cli.status import quarantine
from penstock.errors import CheckpointError, InputError, UnknownNameError
from penstock.monitor.book import StatusBook, stream_state
from penstock.monitor.folder import folder_layout, folder_status, quarantined_records
from penstock.monitor.report import News, length, status_lines
from penstock.monitor.snapshot import take_snapshot
from penstock.operators.windows.answers import Answer
from penstock.spark.publication.kinds import results_of
from penstock.spark.publication.manifests import Merged
from penstock.spark.reporting.starting import told_as_starting
from penstock.spark.reporting.status_file import StatusFile
from penstock.spark.results.read import write_catalog
from penstock.spark.results.read_plain import plain_rows
from penstock.spark.results.window_schemas import FIRST_REVISION
from penstock.spark.results.window_staging import SaidWindows, ViewCounts
from penstock.spark.storage.bindings import ViewDefinition
from penstock.spark.storage.checkpoint_lock import CheckpointLock, lock_holder
from penstock.spark.storage.events import EventLog, newest_events
from penstock.spark.storage.files import replace_json
from penstock.spark.storage.formats import CATALOG, MANIFEST, MERGED_MANIFEST
from penstock.spark.storage.layout import Layout

BATCH = {
    "stream": "orders",
    "batch": 0,
    "tuples": 10,
    "matched": 4,
    "pairs": 5,
    "newest_event_time_us": 60_000_000,
}
NEXT = {
    "stream": "orders",
    "batch": 1,
    "tuples": 5,
    "matched": 1,
    "pairs": 1,
    "quarantined": {"malformed": 2},
}


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    """A results folder with two published batches of one stream, the second with records set aside."""
    layout = Layout(tmp_path / "out", tmp_path / "out" / "_penstock" / "checkpoint")
    layout.open()
    views = {
        "large": {"stream": "orders", "projection": None},
        "silent": {"stream": "orders", "projection": None},
        "hours": {"stream": "orders", "groups": []},
    }
    CATALOG.replace(layout.catalog, {"streams": {"orders": {}}, "views": views})
    aside = {"kind": "quarantine", "name": "0000000001-0-00000.parquet", "rows": 2}
    for figures, files in ((BATCH, []), (NEXT, [aside])):
        batch = figures["batch"]
        MANIFEST.replace(
            layout.manifests("orders") / f"{batch}.json",
            {"first": batch, "last": batch, "files": files, "batches": [figures]},
        )
    layout.quarantine("orders").mkdir(parents=True)
    records = pa.table(
        {
            "record": [b"4,Oslo,much", b"\xff,\n"],
            "origin": ["1.csv"] * 2,
            "reason": ["malformed", "not UTF-8"],
        }
    )
    pq.write_table(records, layout.quarantine("orders") / str(aside["name"]))
    return layout


def _lines(layout: Layout) -> str:
    return "\n".join(status_lines(folder_status(layout.output)))


def test_a_batch_counts_once_whether_its_event_or_its_manifest_tells_of_it(layout: Layout) -> None:
    status = StatusFile(layout, lambda: {"orders": {"large": 5}}, every_seconds=60)
    log = EventLog(layout.events, told=status.book.note)
    log.record("run_started")
    status.begin_stream("orders")
    log.record("batch", **NEXT, bind_seconds=0.5, run_seconds=0.5, publish_seconds=0.0)
    log.record("batch", **{**NEXT, "batch": 2}, bind_seconds=0.5, run_seconds=0.5, publish_seconds=0.0)
    status.close()
    stream = folder_status(layout.output)["streams"]["orders"]
    assert (stream["batches"], stream["tuples"], stream["quarantined"]) == (3, 20, {"malformed": 4})
    assert stream["tuples_per_second"] == 5
    again = StatusFile(layout, lambda: {"orders": {"large": 2, "silent": 1}}, every_seconds=60)
    again.book.note({"kind": "run_started", "time": "x"})
    again.close()
    stream = folder_status(layout.output)["streams"]["orders"]
    assert (stream["batches"], stream["tuples"]) == (3, 20)
    assert stream["busiest"] == {"large": 7, "silent": 1}


def test_a_run_whose_process_is_gone_is_dead_and_what_it_published_is_counted(layout: Layout) -> None:
    replace_json(layout.status, {**StatusBook().document(), "state": "running", "pid": 1, "time": "2026"})
    told = _lines(layout)
    assert "out: dead" in told
    assert "its process 1 is gone without a last word" in told
    assert "stream orders: dead | 15 tuples in 2 batches" in told
    assert "quarantined: 2 for: malformed\n    such as, in batch 1, from 1.csv: 4,Oslo,much" in told


def test_a_failure_is_told_by_its_reason_also_where_only_the_events_have_it(layout: Layout) -> None:
    log = EventLog(layout.events)
    log.record("run_started")
    log.record("run_failed", stream="orders", told="view large: division by zero")
    lock = CheckpointLock(layout.checkpoint)
    replace_json(layout.status, {**StatusBook().document(), "pid": os.getpid()})
    assert "out: failed" in _lines(layout), "its process may be there still"
    lock.release()
    log.record("run_stopped")
    log.close()
    told = _lines(layout)
    assert "out: failed" in told
    assert "\n  view large: division by zero\nstream orders: failed" in told


def test_a_run_that_is_killed_while_it_starts_does_not_leave_the_word_of_the_run_before(
    layout: Layout,
) -> None:
    log = EventLog(layout.events)
    log.record("run_started")
    log.record("run_failed", stream="orders", told="a full disk")
    log.close()
    replace_json(layout.status, {"pairs_by_view": {"orders": {"large": 3}}})
    lock = CheckpointLock(layout.checkpoint)
    with told_as_starting(layout):
        assert f"out: starting (process {os.getpid()})" in _lines(layout)
        killed = layout.status.read_bytes()
    lock.release()
    assert "out: failed" in _lines(layout), "a script with a mistake starts nothing"
    layout.status.write_bytes(killed)
    document = folder_status(layout.output)
    assert document["state"] == "dead"
    assert document["started"] == json.loads(killed)["starting"]["time"]
    assert f"its process {os.getpid()} is gone and had not begun" in _lines(layout)
    status = StatusFile(layout, dict, every_seconds=60)
    status.book.note({"kind": "run_started", "time": datetime.now(UTC).isoformat()})
    status.close()
    assert "starting" not in json.loads(layout.status.read_bytes())
    assert json.loads(layout.status.read_bytes())["pairs_by_view"] == {"orders": {"large": 3}}


def test_a_running_process_is_found_by_its_lock_and_keeps_it(layout: Layout) -> None:
    assert lock_holder(layout.checkpoint) is None
    program = "import sys, pathlib; from penstock.spark.storage.checkpoint_lock import CheckpointLock;"
    program += "CheckpointLock(pathlib.Path(sys.argv[1])); print(flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", program, layout.checkpoint], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        replace_json(layout.status, {**StatusBook().document(), "state": "running", "pid": holder.pid})
        for _ in range(2):
            assert f"out: running (process {holder.pid})" in _lines(layout)
        holder.communicate(b"")
    lock = CheckpointLock(layout.checkpoint)
    assert lock_holder(layout.checkpoint) == os.getpid()
    lock.release()
    assert lock_holder(layout.checkpoint) is None


def test_a_checkpoint_belongs_to_one_run_of_a_process_until_that_has_ended(layout: Layout) -> None:
    lives = True
    before = CheckpointLock(layout.checkpoint)
    run = CheckpointLock(layout.checkpoint, lambda: lives)
    elsewhere = layout.output / ".." / layout.output.name / layout.checkpoint.relative_to(layout.output)
    for _ in range(2):
        with pytest.raises(
            CheckpointError, match="is in use by another run of this process; stop that first"
        ):
            CheckpointLock(elsewhere, lambda: True)
    lives = False
    second = CheckpointLock(elsewhere, lambda: True)
    for lock in (run, before, run):
        lock.release()
        assert lock_holder(layout.checkpoint) == os.getpid(), "the second run still has it"
    second.release()
    assert lock_holder(layout.checkpoint) is None


def test_window_results_of_an_older_version_are_refused_in_words(layout: Layout) -> None:
    empty = StructType().jsonValue()
    replace_json(layout.result_views("orders") / "0.json", {"hours": {"columns": empty, "row": empty}})
    with pytest.raises(
        CheckpointError, match=r"0\.json.* an older version .* no format version, .* reads format 1"
    ):
        plain_rows(layout, "hours", 10)


def test_outages_and_retries_are_told_until_a_batch_comes(layout: Layout) -> None:
    book = StatusBook()
    for kind, fields in (
        ("run_started", {}),
        (
            "source_unreachable",
            {"stream": "orders", "source": "topic orders", "told": "no broker at kafka:9092"},
        ),
        ("stream_retried", {"stream": "orders", "told": "a worker was killed"}),
    ):
        book.note({"kind": kind, "time": datetime.now(UTC).isoformat(), **fields})
    retried = book.stream("orders")
    assert [stream_state(retried, lambda later=later: time.time() + later) for later in (50, 70)] == [
        "retrying",
        "running",
    ]
    replace_json(layout.status, {**book.document(), "pid": os.getpid()})
    lock = CheckpointLock(layout.checkpoint)
    told = _lines(layout)
    lock.release()
    assert "out: running" in told
    assert "stream orders: retrying" in told
    assert "source out of reach since 2026" in told
    assert ": topic orders: no broker at kafka:9092" in told
    assert "started again 1 time, last for: a worker was killed" in told
    book.note({"kind": "batch", "time": "2026-01-01T00:00:01+00:00", **BATCH})
    assert book.document()["streams"]["orders"]["outage"] is None
    assert book.document()["streams"]["orders"]["state"] == "running"


def test_lanes_tell_their_newest_cut(layout: Layout) -> None:
    status = StatusFile(layout, dict, every_seconds=60)
    log = EventLog(layout.events, told=status.book.note)
    log.record("run_started")
    log.record("stream_retried", stream="orders", part="lane", lane="pairs", told="the disk is full")
    assert status.book.stream("orders")["state"] == "retrying"
    for cut, entry in ((6, 1_499), (7, 1_500)):
        log.record("cut", lane="pairs", cut=cut, streams={"orders": entry, "visits": 3}, entries=1)
    status.close()
    assert folder_status(layout.output)["streams"]["orders"]["state"] != "retrying"
    assert status.book.stream("orders")["state"] == "running"
    told = _lines(layout)
    assert "lane pairs: cut 7 " in told
    assert " ago, orders up to entry 1,500, visits up to entry 3" in told


def test_windows_add_up_over_batches_and_keep_the_newest_of_the_rest(layout: Layout) -> None:
    def figures(batch: int, early: int) -> dict[str, Any]:
        counts = {
            "early": early,
            "corrected": 1,
            "final": 2,
            "rows": 9,
            "slack": early * 90_000_000,
            "horizon": batch,
        }
        return {"batch": batch, "views": {"hours": counts}}

    MERGED_MANIFEST.replace(
        layout.manifests(results_of("orders")) / "merged.json",
        Merged(1, batches=(figures(0, 3), figures(1, 0))).document(),
    )
    standing = {
        "slack": 90_000_000,
        "promised": False,
        "horizon": 7_200_000_000,
        "newest": 7_260_000_000,
        "reached": 0,
    }
    standing |= {"open": 3, "oldest": 3_600_000_000}
    log = EventLog(layout.events)
    log.record("windows", stream="orders", batch=2, views={}, standing={"hours": standing})
    log.record("lag", stream="orders", backlog=1_200, unit="records", newest_event_time_us=5, age_seconds=1)
    log.close()
    view = folder_status(layout.output)["views"]["hours"]
    assert (view["early"], view["corrected"], view["final"], view["horizon"]) == (3, 2, 4, 1)
    told = _lines(layout)
    assert (
        "window view hours of orders: 3 early, 2 corrected, 4 final | slack K 1 min 30 s | horizon 2 h"
        in told
    )
    assert (
        "not final: 3 windows, the oldest ends 1970-01-01 01:00:00 UTC; it is final once the stream's time passes "
        "1970-01-01 03:00:00 UTC (its end and the horizon, as late as tuples may come), which needs a tuple of 59 min later"
    ) in told
    assert "no bound can be promised yet" in told
    view["standing"]["newest"] = 20_000_000_000
    told = "\n".join(status_lines({**folder_status(layout.output), "views": {"hours": view}}))
    assert (
        "the horizon is past (1970-01-01 03:00:00 UTC): it is final with the stream's next batch or" in told
    )
    assert "backlog 1,200 records" in told


def test_a_window_counts_once_whatever_its_shards_and_a_corrected_final_one_apart(layout: Layout) -> None:
    def answer(
        end: int, revision: int, *, final: bool = False, slack: int = 5, promised: bool = True
    ) -> Answer:
        nothing = pa.table({})
        return Answer("hours", end - 10, end, revision, final, slack, None, promised, nothing, nothing)

    said = SaidWindows()
    for shard in (
        [answer(10, 0), answer(20, 0, final=True), answer(5, FIRST_REVISION + 3, final=True)],
        [answer(10, 0, slack=7, promised=False), answer(20, 1, final=True), answer(10, 1)],
        [answer(10, 1), answer(5, FIRST_REVISION + 3, final=True)],
    ):
        one = SaidWindows()
        for each in shard:
            one.note(each)
        said.add(one)
    assert said.counts() == ViewCounts(2, corrected=1, final=1, final_corrected=1, slack=12, promised=1)
    log = EventLog(layout.events)
    for batch in range(2):
        views = {"hours": asdict(said.counts())}
        log.record("windows", stream="orders", batch=batch, views=views, standing={})
    log.close()
    assert folder_status(layout.output)["views"]["hours"]["final_corrected"] == 2
    told = "window view hours of orders: 4 early, 2 corrected, 2 final, final windows corrected: 2"
    assert told in _lines(layout)


def test_windows_that_lag_behind_say_so_and_a_dropped_view_waits_for_nothing(layout: Layout) -> None:
    standing = {
        "slack": 1,
        "promised": True,
        "horizon": 5,
        "newest": 99,
        "reached": 0,
        "open": 3,
        "oldest": 7,
    }
    replace_json(layout.status, {**StatusBook().document(), "pairs_by_view": {}})
    log = EventLog(layout.events)
    log.record(
        "windows",
        stream="orders",
        batch=0,
        entry=2,
        answered=0,
        views={},
        standing={"hours": standing},
    )
    log.close()
    told = _lines(layout)
    assert "the windows have not answered batch 1 of the stream yet\n  not final: 3 windows" in told
    assert "what it waits for is known once these batches are answered" in told
    assert "the horizon is past" not in told
    assert "  2 selections, none with a match so far" in told
    schema = StructType()
    write_catalog(
        layout, {"orders": schema}, {"orders": {"silent": ViewDefinition("silent", "1", "", "TRUE", None)}}
    )
    told = _lines(layout)
    assert "window view hours of orders: 0 early, 0 corrected, 0 final" in told
    assert "  dropped at 20" in told
    assert "not final" not in told
    assert "  1 selection, without a match so far" in told
    write_catalog(
        layout,
        {"orders": schema},
        {"orders": {name: ViewDefinition(name, "1", "", "TRUE", None) for name in ("silent", "large")}},
    )
    assert folder_status(layout.output)["streams"]["orders"]["silent"] == 2


def test_places_of_files_are_told_by_the_reason_they_are_counted_by(
    layout: Layout, capsys: pytest.CaptureFixture[str]
) -> None:
    aside = {"kind": "quarantine", "name": "0000000002-0-00000.parquet", "rows": 1}
    figures = {**BATCH, "batch": 2, "quarantined": {"unreadable row group": 1}, "rows_set_aside": 1}
    MANIFEST.replace(
        layout.manifests("orders") / "2.json", {"first": 2, "last": 2, "files": [aside], "batches": [figures]}
    )
    reason, origin = "unreadable row group: Corrupt snappy data", "/data/1.parquet#3 (1 rows)"
    place = {"record": pa.array([None], pa.binary()), "origin": [origin], "reason": [reason]}
    pq.write_table(pa.table(place), layout.quarantine("orders") / str(aside["name"]))
    told = _lines(layout)
    assert (
        f"quarantined: 1 for: unreadable row group\n    such as, in batch 2, from {origin}: {reason}" in told
    )
    assert f"all of them: penstock quarantine {layout.output} orders" in told
    assert "not answered: 1 row that could not be read" in told
    quarantine(layout.output, None, 1)
    assert capsys.readouterr().out == f"batch 2 | {reason} | {origin}\n"
    for file in layout.quarantine("orders").iterdir():
        file.unlink()
    quarantine(layout.output, None, 1)
    assert capsys.readouterr().out == "no records of stream orders are set aside\n"
    CATALOG.replace(layout.catalog, {"streams": {"orders": {}, "clicks": {}}, "views": {}})
    with pytest.raises(UnknownNameError, match="name a stream; existing streams: orders, clicks"):
        quarantine(layout.output, None, 1)


def test_the_batch_at_hand_is_told_though_it_is_not_in_the_backlog(layout: Layout) -> None:
    log, offsets = (layout.spark("orders") / name for name in ("sources/0", "offsets"))
    for folder in (log, offsets):
        folder.mkdir(parents=True)
    for batch in range(3):
        (offsets / str(batch)).write_text(f'v1\n{{}}\n{{"logOffset":{batch}}}')
        entries = [f'{{"path":"/{batch}-{each}","timestamp":1,"batchId":{batch}}}' for each in range(batch)]
        (log / str(batch)).write_text("\n".join(["v1", *entries]))
    replace_json(layout.status, {**StatusBook().document(), "state": "running", "pid": os.getpid()})
    lock = CheckpointLock(layout.checkpoint)
    told = _lines(layout)
    assert "  batch 2 (2 files) is at hand, planned " in told
    assert " ago; the backlog does not count it" in told
    lock.release()
    told = _lines(layout)
    assert (
        "batch 2 (2 files) was at hand and is not counted above, nor in the backlog; the next start" in told
    )
    (offsets / "2").unlink()
    assert "at hand" not in _lines(layout), "batch 1 is published"


def test_records_are_shown_newest_first_as_text(layout: Layout) -> None:
    found = list(quarantined_records(layout, "orders", 0))
    assert [record["record"] for record in found] == ["�,\n", "4,Oslo,much"]
    assert found[0]["batch"] == "1"
    assert list(quarantined_records(layout, "orders", 1)) == found[:1]
    next(layout.quarantine("orders").iterdir()).unlink()
    assert list(quarantined_records(layout, "orders", 0)) == []
    with pytest.raises(UnknownNameError, match="no stream order; existing streams: orders"):
        list(quarantined_records(layout, "order", 1))
    with pytest.raises(InputError, match="is not a results folder"):
        folder_layout(layout.output.parent)


def test_only_the_end_of_a_long_log_is_read(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    log = EventLog(path)
    for number in range(2_000):
        log.record("batch", number=number)
    log.close()
    with path.open("a") as file:
        file.write('{"kind": "torn')
    found = newest_events(path, most_bytes=4_096)
    assert 10 < len(found) < 100
    assert found[-1]["number"] == 1_999
    EventLog(path).close()
    assert json.loads(path.read_text().splitlines()[-1])["number"] == 1_999


def test_a_status_that_cannot_be_written_stops_nothing(layout: Layout) -> None:
    layout.status.mkdir()
    status = StatusFile(layout, dict, every_seconds=60)
    status.book.note({"kind": "run_started", "time": "x"})
    status.close()
    status.close()
    assert "orders" in _lines(layout)


def test_an_event_of_whatever_values_does_not_end_the_status(layout: Layout) -> None:
    status = StatusFile(layout, dict, every_seconds=0.01)
    status.book.note({"kind": "whatever", "time": "x", "value": Path("a")})
    status.book.note({"kind": "whatever", "time": "x", "value": {(1, 2): 3}})
    time.sleep(0.05)
    assert status._thread.is_alive()
    status.close()
    assert "orders" in _lines(layout)
    again = StatusFile(layout, dict, every_seconds=60)
    again.book.note({"kind": "whatever", "time": "x", "value": Path("a")})
    again.close()
    assert folder_status(layout.output)["news"][-1]["value"] == "a"


def test_events_of_one_millisecond_are_each_taken_in_once(layout: Layout) -> None:
    status = StatusFile(layout, dict, every_seconds=60)
    log = EventLog(layout.events, clock=lambda: datetime(2026, 1, 1, tzinfo=UTC), told=status.book.note)
    log.record("run_started")
    log.record("files_changed", stream="orders", count=1)
    status.close()
    for count in (2, 4):
        log.record("files_changed", stream="orders", count=count)
    assert folder_status(layout.output)["streams"]["orders"]["files_changed"] == 7


def test_a_script_with_nothing_to_answer_is_warned_of() -> None:
    assert list(unused({"orders": ["large"], "clicks": []})) == [
        "clicks: no view reads it, nothing will be answered"
    ]
    assert list(unused({})) == ["no stream is declared, there is nothing to run"]


def test_lengths_of_time_read_well() -> None:
    told = [length(seconds) for seconds in (0.25, 45, 60, 200, 7_500, 86_400, 270_000, -5)]
    assert told == ["0.25 s", "45 s", "1 min", "3 min 20 s", "2 h 5 min", "1 day", "3 days 3 h", "-5 s"]


def test_the_screen_says_each_event_once_and_no_words_of_the_inside() -> None:
    events: list[dict[str, Any]] = [
        {"time": "x", "kind": "run_started"},
        {"time": "x", "kind": "batch", "stream": "orders"},
        {
            "time": "x",
            "kind": "source_unreachable",
            "stream": "orders",
            "source": "topic t",
            "told": "no broker",
        },
    ]
    news = News(lambda: list(events))
    assert news.lines() == ["x stream orders: source out of reach: no broker (source topic t)"]
    assert news.lines() == []
    events.append(
        {"time": "y", "kind": "files_changed", "stream": "orders", "files": ["a", "b"], "rows": 1_200}
    )
    assert news.lines() == ["y stream orders: files changed (files a, b, rows 1,200)"]
    events.append(
        {"time": "z", "kind": "files_changed", "told": "a was replaced", "files": [{"path": "a"}], "count": 1}
    )
    assert news.lines() == ["z files changed: a was replaced (count 1)"]
    counts = {
        "views": 2,
        "batches": 1,
        "tuples": 4,
        "matched": 3,
        "pairs": 3,
        "quarantined": {},
        "errors": {},
    }
    status = {
        **counts,
        **{
            "unusable_times": 0,
            "tuples_per_second": 2.0,
            "evaluations_per_tuple": 1.5,
            "sequence": "a > __d0",
        },
        **{"windows": {}, "state": "source unreachable", "lag": {"backlog": 1_200, "unit": "records"}},
    }
    (snapshot,) = take_snapshot({"orders": status})
    assert snapshot.line() == (
        "SOURCE UNREACHABLE | orders: 4 tuples | 2/s | 3 matched, 25.0% matched by no query | 2 queries | "
        "backlog 1,200 records"
    )
