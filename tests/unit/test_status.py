"""The status of a results folder from its files alone: folds of events, dead runs, quarantined records."""

from __future__ import annotations

import json
import os
import time
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.cli.status import quarantine
from penstock.errors import InputError, UnknownNameError
from penstock.monitor.book import StatusBook, stream_state
from penstock.monitor.folder import folder_layout, folder_status, quarantined_records
from penstock.monitor.problems import problem_lines
from penstock.monitor.report import status_lines
from penstock.operators.ingest.stage_counts import StageCounts
from penstock.operators.ingest.stream_program import StreamProgram
from penstock.page.histories import Histories
from penstock.page.overview import overview_answer
from penstock.spark.ingest.figures import view_pairs_of
from penstock.spark.publication.manifests import read_published
from penstock.spark.publication.publish import Publisher
from penstock.spark.reporting.catalog import find_view, known_catalog
from penstock.spark.reporting.starting import read_status, told_as_starting
from penstock.spark.reporting.status_file import StatusFile
from penstock.spark.results.cataloguing import CatalogWriter
from penstock.spark.storage.bindings import WindowDefinition
from penstock.spark.storage.documents import replace_json
from penstock.spark.storage.events import EventLog
from penstock.spark.storage.formats import CATALOG, MANIFEST
from penstock.spark.storage.layout import Layout
from publishing import listed
from status_cases import BATCH, NEXT, lines, results_folder

pytestmark = pytest.mark.usefixtures("own_commits")

#: more than Linux gives
NO_PROCESS = 1 << 23
#: before any test runs, whatever its clock is set to
LONG_AGO = datetime(2001, 1, 1, tzinfo=UTC)


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    return results_folder(tmp_path)


def test_a_batch_counts_once_whether_its_event_or_its_manifest_tells_of_it(layout: Layout) -> None:
    status = StatusFile(layout, dict, every_seconds=60)
    log = EventLog(layout.events, told=status.book.note)
    log.record("run_started")
    status.begin_stream("orders")
    log.record("batch", **NEXT, bind_seconds=0.5, run_seconds=0.5, publish_seconds=0.0)
    log.record("batch", **{**NEXT, "batch": 2}, bind_seconds=0.5, run_seconds=0.5, publish_seconds=0.0)
    status.close()
    stream = folder_status(layout.output)["streams"]["orders"]
    assert (stream["batches"], stream["tuples"], stream["quarantined"]) == (3, 20, {"malformed": 4})
    assert stream["tuples_per_second"] == 5
    again = StatusFile(layout, dict, every_seconds=60)
    again.book.note({"kind": "run_started", "time": "x"})
    again.close()
    stream = folder_status(layout.output)["streams"]["orders"]
    assert (stream["batches"], stream["tuples"]) == (3, 20)


def put_batch(layout: Layout, figures: dict[str, Any]) -> None:
    """Publishes a batch without files."""
    batch = figures["batch"]
    document = {"first": batch, "last": batch, "files": [], "batches": [figures]}
    MANIFEST.replace(layout.manifests("orders")[batch], document)


def selections(layout: Layout) -> dict[str, int]:
    """The rows of the selections by the files of the folder."""
    found: dict[str, int] = folder_status(layout.output)["streams"]["orders"]["selections"]
    return found


def test_rows_of_selections_are_those_of_the_published_batches_after_any_kill(layout: Layout) -> None:
    # the run is killed before it has written its status: it has counted nothing
    assert selections(layout) == {"large": 6, "silent": 0}
    status = StatusFile(layout, lambda: {"orders": {"silent": 3}}, every_seconds=60)
    status.begin_stream("orders")
    assert status.all_pairs() == {"orders": {"large": 6, "silent": 3}}
    status.close()
    assert selections(layout) == {"large": 6, "silent": 0}, "what is not published does not count"
    for batch in (2, 3):
        put_batch(layout, {**NEXT, "batch": batch, "view_pairs": {"silent": 2}})
    publisher = Publisher(layout, "orders")
    assert publisher.compact(2) == (0, 2)
    publisher.close()
    assert selections(layout) == {"large": 6, "silent": 4}, "whether the files of a batch are merged or not"
    merged = read_published(layout, "orders").merged
    assert merged.view_pairs == {"large": 6, "silent": 2}
    assert not any("view_pairs" in each for each in merged.batches), "merged batches share one sum"


def test_rows_of_a_selection_are_those_of_its_present_definition(layout: Layout) -> None:
    counts = StageCounts(tuples=9, matched=9, pairs=14, view_pairs=np.array([5, 0, 9]))
    program = cast(StreamProgram, SimpleNamespace(views=("large", "new", "silent"), definitions=(2, 1, 1)))
    pairs = view_pairs_of(counts, program)
    assert list(pairs.values()) == [5, 9]
    put_batch(layout, {**NEXT, "batch": 2, "view_pairs": pairs})
    catalog = known_catalog(layout)
    assert catalog is not None
    catalog["views"]["large"]["number"] = 2
    CATALOG.replace(layout.catalog, catalog)
    assert selections(layout) == {"silent": 9, "large": 5}


def test_a_run_whose_process_is_gone_is_dead_and_what_it_published_is_counted(layout: Layout) -> None:
    replace_json(layout.status, {**StatusBook().document(), "state": "running", "pid": 1, "time": "2026"})
    told = lines(layout)
    assert "out: dead" in told
    assert "process 1 ended without a report" in told
    assert "stream orders: dead | 15 tuples in 2 batches" in told
    assert "set aside: 2 records: malformed\n    for example in batch 1, from 1.csv: 4,Oslo,much" in told


def test_a_failure_is_told_by_its_reason_also_where_only_the_events_have_it(layout: Layout) -> None:
    log = EventLog(layout.events)
    log.record("run_started")
    log.record("run_failed", stream="orders", told="view large: division by zero")
    owner = layout.ledger.open()
    replace_json(layout.status, {**StatusBook().document(), "pid": os.getpid()})
    assert "out: failed" in lines(layout), "its process may be there still"
    owner.close()
    log.record("run_stopped")
    log.close()
    told = lines(layout)
    assert "out: failed" in told
    assert "\n  failed: view large: division by zero\n" in told


def test_a_start_that_is_refused_is_no_stop(layout: Layout) -> None:
    log = EventLog(layout.events)
    for kind in ("run_started", "run_ended", "run_started"):
        log.record(kind)
    log.record("run_refused", told="stream orders: the network of its checkpoint has seed 7")
    log.record("run_stopped")
    log.close()
    assert "out: refused" in lines(layout)
    assert "\n  refused: stream orders: the network of its checkpoint has seed 7" in lines(layout)


def test_a_run_that_is_killed_while_it_starts_does_not_leave_the_word_of_the_run_before(
    layout: Layout,
) -> None:
    log = EventLog(layout.events, clock=lambda: LONG_AGO)
    log.record("run_started")
    log.record("run_failed", stream="orders", told="a full disk")
    log.close()
    owner = layout.ledger.open()
    with told_as_starting(layout):
        assert f"out: starting (process {os.getpid()})" in lines(layout)
        owner.close()
        assert f"out: starting (process {os.getpid()})" in lines(layout), "before it opens the ledger"
        killed = {**read_status(layout)}
    killed["starting"]["pid"] = NO_PROCESS
    assert "out: failed" in lines(layout), "a script with a mistake starts nothing"
    replace_json(layout.status, killed)
    document = folder_status(layout.output)
    assert document["state"] == "dead"
    assert document["started"] == killed["starting"]["time"]
    assert f"process {NO_PROCESS} ended while it was starting" in lines(layout)
    status = StatusFile(layout, dict, every_seconds=60)
    status.book.note({"kind": "run_started", "time": document["started"]})
    status.close()
    assert "starting" not in json.loads(layout.status.read_bytes())


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
    assert [stream_state(retried, lambda later=later: time.time() + later) for later in (290, 310)] == [
        "retrying",
        "running",
    ]
    replace_json(layout.status, {**book.document(), "pid": os.getpid()})
    owner = layout.ledger.open()
    told = lines(layout)
    owner.close()
    assert "out: running" in told
    assert "stream orders: retrying" in told
    assert "source unreachable since 2026" in told
    assert ": topic orders: no broker at kafka:9092" in told
    assert "restarted 1 time, most recently: a worker was killed" in told
    book.note({"kind": "batch", "time": "2026-01-01T00:00:01+00:00", **BATCH})
    assert book.document()["streams"]["orders"]["outage"] is None
    assert book.document()["streams"]["orders"]["state"] == "running"


def test_lanes_that_fail_are_problems_and_how_far_behind_they_are_is_known(layout: Layout) -> None:
    status = StatusFile(layout, dict, every_seconds=60)
    log = EventLog(layout.events, told=status.book.note)
    log.record("run_started")
    fails = {
        "stream": "orders",
        "part": "join",
        "lane": "pairs",
        "views": ["pairs"],
        "told": "the disk is full",
    }
    for attempt in (1, 2):
        log.record("lane_retried", **fails, attempt=attempt, wait_seconds=1.0)
    assert status.book.stream("orders").get("state") != "retrying", "a lane is not its stream"
    document = {**status.book.document(), "output": "out", "pid": 1}
    told = "\n".join(status_lines(document))
    assert "\n  RETRYING: view pairs of stream orders, since " in told
    assert ": the disk is full; retried 2 times;" in told
    (news,) = (line for line in status_lines(document, verbose=True) if "failed, retrying" in line)
    assert "view pairs: failed, retrying: the disk is full" in news, "the news has it once"
    log.record("lane_back", **fails, attempt=2)
    for cut, entry in ((6, 1_499), (7, 1_500)):
        took = {"wake_seconds": None, "put_seconds": 0.1, "answer_seconds": 0.5, "publish_seconds": 0.2}
        log.record("cut", lane="pairs", cut=cut, streams={"orders": entry, "visits": 3}, entries=1, **took)
    status.close()
    assert "RETRYING" not in lines(layout)
    document = folder_status(layout.output)
    assert document["lanes"]["pairs"]["behind_seconds"] == pytest.approx(0.8)
    pairs = {"streams": ["orders"], "rows": 12_430, "backlog": {"orders": 0}, "behind_seconds": 0.8}
    document["views"]["pairs"] = pairs
    assert "join view pairs of orders: 12,430 rows | 0.8 s behind" in status_lines(document, verbose=True)


def test_a_selection_has_no_revisions_and_its_results_are_named(layout: Layout) -> None:
    with pytest.raises(UnknownNameError) as refused:
        find_view(layout, "LARGE", revisions=True)
    assert str(refused.value) == (
        "View large is a selection. Its rows never change, so it has no revisions. Read the rows with results('large') or "
        "`penstock results DIR large`."
    )


def test_a_slow_disk_does_not_make_the_status_rarer(layout: Layout, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[bytes] = []

    def slowly(_: Path, content: bytes) -> None:
        time.sleep(0.2)
        written.append(content)

    monkeypatch.setattr("penstock.spark.reporting.status_file.replace_content", slowly)
    status = StatusFile(layout, dict, every_seconds=0.05)
    until = time.monotonic() + 3
    while len(written) < 4 and time.monotonic() < until:
        status.book.update(turn=len(written))
        time.sleep(0.05)
    assert len(written) >= 4, "a writing that waits 0.2 s is no reason to pause for 4 s"
    status.close()


def test_a_derived_lane_tells_of_its_views_and_is_no_stream(layout: Layout) -> None:
    definition = WindowDefinition("daily", "1", "SELECT 1")
    CatalogWriter(layout).write({}, {"rides.fares": {"daily": definition}})
    status = StatusFile(layout, dict, every_seconds=60)
    log = EventLog(layout.events, told=status.book.note)
    for cut in (0, 1, 1):
        views = {"daily": {"early": 2, "corrected": 1, "final": 0, "rows": 3, "slack": 0}}
        log.record(
            "cut", lane="rides.fares.results", cut=cut, streams={"rides.fares": cut}, figures={"views": views}
        )
    status.close()
    assert "rides.fares" not in status.book.document()["streams"]
    assert "window view daily of fares: 4 early, 2 corrected, 0 final" in lines(layout)


@pytest.mark.parametrize(
    ("refused", "kept", "told"),
    [
        (0, 0, None),
        (1, 0, "1 rule with mistakes: it has no earlier definition and is left out"),
        (1, 1, "1 rule with mistakes: the last good definition of it runs"),
        (3, 0, "3 rules with mistakes: 3 left out"),
        (
            200,
            198,
            "200 rules with mistakes: the last good definition of 198 runs, 2 left out; `penstock check` names all",
        ),
    ],
)
def test_rules_with_mistakes_are_problems_until_they_are_mended(
    layout: Layout, refused: int, kept: int, told: str | None
) -> None:
    named = [f"rules/{number}.sql:3: Column x does not exist." for number in range(min(refused, 100))]
    status = StatusFile(layout, dict, every_seconds=60)
    log = EventLog(layout.events, told=status.book.note)
    log.record("run_started")
    log.record("rules_changed", rules="rules/*.sql", refused=["old"], refused_count=1, kept_count=0)
    log.record("rules_changed", rules="rules/*.sql", refused=named, refused_count=refused, kept_count=kept)
    status.close()
    problems = [line for line in problem_lines(folder_status(layout.output)) if line.startswith("rule")]
    assert problems == [
        *([] if told is None else [f"rules rules/*.sql: {told}"]),
        *(f"rule {each}" for each in named[:3]),
    ]


def test_a_refused_script_is_a_problem_until_one_is_followed(layout: Layout) -> None:
    status = StatusFile(layout, dict, every_seconds=60)
    log = EventLog(layout.events, told=status.book.note)

    def problems() -> list[str]:
        return [
            line for line in problem_lines(status.book.document() | {"output": "out"}) if "script" in line
        ]

    refused = {"script": "rules.sql", "told": "line 2: Column wieght does not exist."}
    line = "script rules.sql: not applied, the run continues unchanged: line 2: Column wieght does not exist."
    log.record("script_refused", **refused)
    assert problems() == [line]
    log.record("script_followed", script="rules.sql")
    assert problems() == []
    log.record("script_refused", **refused)
    log.record("run_started")
    assert problems() == [], "the start has read the script"
    log.record("script_refused", **refused)
    status.close()
    document = folder_status(layout.output)
    assert line in problem_lines(document)
    assert line in overview_answer(1, document, {"views": {}, "streams": {}}, Histories(), None)["problems"]


def test_a_stream_of_which_nothing_was_read_is_the_first_problem(layout: Layout) -> None:
    book = StatusBook()
    book.note({"kind": "run_started", "time": datetime.now(UTC).isoformat()})
    counts = {
        **BATCH,
        "tuples": 0,
        "matched": 0,
        "quarantined": {"malformed csv record: amount is no INT": 12},
    }
    book.note({"kind": "batch", "time": datetime.now(UTC).isoformat(), **counts, "batch": 5})
    replace_json(layout.status, book.document())
    document = folder_status(layout.output)
    first = next(line for line in problem_lines({**document, "reason": None}))
    assert first.startswith(
        "stream orders: NOTHING READ: all 12 records so far were set aside, malformed csv record: "
    )
    assert "the options sep and header" in first


def test_places_of_files_are_told_by_the_reason_they_are_counted_by(
    layout: Layout, capsys: pytest.CaptureFixture[str]
) -> None:
    path = layout.quarantine("orders") / "0000000002-0-00000.parquet"
    figures = {**BATCH, "batch": 2, "quarantined": {"unreadable row group": 1}, "rows_set_aside": 1}
    reason, origin = "unreadable row group: Corrupt snappy data", "/data/1.parquet#3 (1 row)"
    place = {"record": pa.array([None], pa.binary()), "origin": [origin], "reason": [reason]}
    pq.write_table(pa.table(place), path)
    files = [listed("quarantine", path, 1)]
    MANIFEST.replace(
        layout.manifests("orders")[2], {"first": 2, "last": 2, "files": files, "batches": [figures]}
    )
    told = lines(layout)
    assert (
        f"set aside: 1 record: unreadable row group\n    for example in batch 2, from {origin}: {reason}"
        in told
    )
    assert f"all records set aside: penstock quarantine {layout.output} orders" in told
    assert "  1 row unreadable, not answered" in told
    quarantine(layout.output, None, 1)
    (printed,) = capsys.readouterr().out.splitlines()
    assert printed.startswith("1: batch 2, ")
    assert printed.endswith(f" | {reason} | {origin}")
    for file in layout.quarantine("orders").iterdir():
        file.unlink()
    quarantine(layout.output, None, 1)
    assert (
        capsys.readouterr().out
        == "Penstock has set aside 3 records of orders, but their files were deleted.\n"
    )
    CATALOG.replace(layout.catalog, {"streams": {"orders": {}, "clicks": {}}, "views": {}})
    with pytest.raises(UnknownNameError, match=r"Name a stream\. Existing streams: orders, clicks"):
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
    owner = layout.ledger.open()
    told = lines(layout)
    assert "  in progress: batch 2 (2 files), since " in told
    assert " s; the backlog does not count it" in told
    owner.close()
    told = lines(layout)
    assert (
        "unfinished: batch 2 (2 files), not part of the counts above and of the backlog; the next start"
        in told
    )
    (offsets / "2").unlink()
    assert "unfinished" not in lines(layout), "batch 1 is published"


def test_records_are_shown_newest_first_as_text(layout: Layout) -> None:
    found = list(quarantined_records(layout, "orders", 0))
    assert [record["record"] for record in found] == ["�,\n", "4,Oslo,much"]
    assert found[0]["batch"] == "1"
    assert list(quarantined_records(layout, "orders", 1)) == found[:1]
    next(layout.quarantine("orders").iterdir()).unlink()
    assert list(quarantined_records(layout, "orders", 0)) == []
    with pytest.raises(
        UnknownNameError, match=r"Stream order does not exist; did you mean orders\? Existing streams: orders"
    ):
        list(quarantined_records(layout, "order", 1))
    with pytest.raises(InputError, match="is not a results folder"):
        folder_layout(layout.output.parent)


def test_a_status_that_cannot_be_written_stops_nothing(layout: Layout) -> None:
    layout.status.mkdir()
    status = StatusFile(layout, dict, every_seconds=60)
    status.book.note({"kind": "run_started", "time": "x"})
    status.close()
    status.close()
    assert "orders" in lines(layout)


def test_an_event_of_whatever_values_does_not_end_the_status(
    layout: Layout, caplog: pytest.LogCaptureFixture
) -> None:
    status = StatusFile(layout, dict, every_seconds=0.01)
    status.book.note({"kind": "whatever", "time": "x", "value": Path("a")})
    status.book.note({"kind": "whatever", "time": "x", "value": {(1, 2): 3}})
    deadline = time.monotonic() + 60
    while "cannot write" not in caplog.text:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert status._thread.is_alive()
    status.close()
    assert "orders" in lines(layout)
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


def test_a_join_view_tells_what_all_its_lanes_have_counted(layout: Layout) -> None:
    views = {"pairs": {"streams": ["orders"], "lanes": [1, 3]}}
    CATALOG.replace(layout.catalog, {"streams": {"orders": {}}, "views": views})
    log = EventLog(layout.events)
    said = {"rows": 10, "raised": 0, "untimed": 0, "beyond_history": 2}
    for lane, cut in (("joins.1", {**said, "withdrawn": 1}), ("joins.3", said)):
        log.record("cut", lane=lane, cut=0, streams={}, entries=1, figures={"views": {"pairs": cut}})
    shown = folder_status(layout.output)["views"]["pairs"]
    assert [shown[what] for what in ("rows", "raised", "withdrawn", "beyond_history")] == [20, 0, 1, 4]
    told = lines(layout)
    assert "was found later: 1 row\n" in told
    assert "4 tuples arrived after partners may have been deleted" in told


def test_a_join_view_tells_of_its_static_tables_and_which_are_lost(layout: Layout) -> None:
    views = {"pairs": {"streams": ["orders"], "lanes": [3]}}
    CATALOG.replace(layout.catalog, {"streams": {"orders": {}}, "views": views})
    log = EventLog(layout.events)
    of_custs = {"lane": "joins.3", "table": "custs"}
    log.record("static_table_read", **of_custs, rows=3, version="a")
    told = lines(layout)
    assert "\n  static table custs: 3 rows, read " in told
    assert "is lost" not in told.partition("newest events:")[0]
    assert "custs, set aside" not in told
    log.record("static_table_read", **of_custs, rows=2, malformed={"not UTF-8": 1}, version="b")
    told = lines(layout)
    assert "\n  static table custs: 2 rows, read " in told
    assert "\n  static table custs, set aside: 1 record: not UTF-8\n" in told
    assert f"\n  all records of custs set aside: penstock quarantine {layout.output} custs\n" in told
    log.record("static_table_read", **of_custs, rows=3, malformed={}, version="c")
    log.record("static_table_lost", **of_custs, reason="its files are gone")
    block = lines(layout).partition("newest events:")[0]
    assert "\n  static table custs: 3 rows, read " in block
    assert "\n  static table custs is lost since " in block
    assert "its last version remains in use: its files are gone" in block
    shown = folder_status(layout.output)["views"]["pairs"]["tables"]["custs"]
    assert (shown["rows"], shown["lost"]["reason"]) == (3, "its files are gone")
    for kind in ("static_table_back", "run_started"):
        log.record("static_table_lost", **of_custs, reason="its files are gone")
        log.record(kind, **of_custs if kind == "static_table_back" else {})
        block = lines(layout).partition("newest events:")[0]
        assert "is lost" not in block
        assert "static table custs: 3 rows" in block


def test_static_tables_whose_records_do_not_fit_are_problems(layout: Layout) -> None:
    views = {name: {"streams": ["orders"], "lanes": [number]} for number, name in enumerate(("pairs", "few"))}
    CATALOG.replace(layout.catalog, {"streams": {"orders": {}}, "views": views})
    log = EventLog(layout.events)

    def read(lane: int, rows: int, **malformed: int) -> list[str]:
        counts = {f"malformed csv record: {reason}": count for reason, count in malformed.items()}
        log.record(
            "static_table_read",
            lane=f"joins.{lane}",
            table="cities",
            rows=rows,
            malformed=counts,
            version="a",
        )
        told = problem_lines(folder_status(layout.output))
        return [line.replace("\N{NO-BREAK SPACE}", " ") for line in told if "cities" in line]

    command = f"penstock quarantine {layout.output} cities"
    (line,) = read(0, 0, fields=6)
    assert line == (
        "static table cities: NO ROWS: 6 records set aside, all: malformed csv record: fields. Compare the options sep and "
        f"header, and the declared columns, with a line of the file: {command}"
    )
    assert "\n  static table cities: NO ROWS: " in "\n".join(status_lines(folder_status(layout.output)))
    (line,) = read(1, 3, fields=6, type=1)
    assert line == (
        f"static table cities: 7 records set aside, most: malformed csv record: fields: {command}"
    ), "another view's condition leaves rows"
    assert read(0, 0) != []
    assert read(1, 3) == []


def test_a_join_view_tells_how_its_order_stands_and_which_it_had(layout: Layout) -> None:
    views = {"pairs": {"streams": ["orders"], "lanes": [3]}}
    CATALOG.replace(layout.catalog, {"streams": {"orders": {}}, "views": views})
    counts = {"rows": 100.0, "pairs": 60.0, "output": 50.0, "seconds": 0.01}
    standing = {
        "inputs": ["o 100 tuples/s", "a 12 tuples"],
        "selectivities": ["key 0 is equal in 0.08 of the pairs of o and a"],
        "steps": [{"first": "o", "step": "a (merge by key 0)", "predicted": counts, "measured": None}],
        "predicted_rate": 50.0,
        "measured_rate": 48.0,
        "seconds": 0.01,
        "best_seconds": 0.009,
        "search": "dynamic programming over all orders",
        "runner_up": "new tuples of o would take 80 % longer",
        "predicates": [{"text": "costly(o.n)", "rate": 50.0, "selectivity": 0.25, "seconds": 2e-5}],
        "best_predicates": ["cheap(a.n)", "costly(o.n)"],
    }
    book = StatusBook()
    for cut in range(7):
        book.note(
            {
                "time": "2024-01-01T00:00:00.000+00:00",
                "kind": "join_switched" if cut < 6 else "predicates_reordered",
                "lane": "joins.3",
                "view": "pairs",
                "cut": cut,
                "order": f"order {cut}",
                "reason": "20.0% less",
            }
        )
    book.take_standing("joins.3", standing)
    replace_json(layout.status, book.document())
    told = lines(layout).splitlines()
    begin = told.index("join view pairs of orders: 0 rows")
    assert told[begin + 1 : begin + 9] == [
        "  measured: o 100 tuples/s, a 12 tuples",
        "  measured: key 0 is equal in 0.08 of the pairs of o and a",
        "  new tuples of o meet a (merge by key 0): predicted 100 tuples in, 60 pairs compared, 50 out a second, "
        "0.0001 s a tuple",
        "  joined rows a second: predicted 50, measured 48; one second of the streams takes 0.01 s of a core; found by "
        "dynamic programming over all orders",
        "  the best order would take 0.009 s: the gain is too small, or the last change too recent",
        "  second-best order: new tuples of o would take 80 % longer",
        "  user predicate costly(o.n): measured 50 rows a second, 0.25 of them pass, 2e-05 s a row",
        "  the best order of user predicates: cheap(a.n), costly(o.n): the gain is too small, or the last change too recent",
    ]
    assert told[begin + 9] == "  its order changed 7 times, most recently:"
    switches = told[begin + 10 : begin + 15]
    assert [line.partition(": order")[2] for line in switches] == [
        f" {cut}: 20.0% less" for cut in range(2, 7)
    ]
    book.note({"time": "2024-01-01T00:00:01.000+00:00", "kind": "run_started"})
    replace_json(layout.status, book.document())
    told_later = lines(layout)
    assert "second-best" not in told_later, "what an earlier run has measured says nothing of this one"
    assert "its order changed 7 times" in told_later


def test_a_view_with_a_deadline_is_one_before_its_first_window(layout: Layout) -> None:
    views = {"in_time": {"stream": "deadlines.0", "id": "in_time:1", "sql": ""}}
    CATALOG.replace(layout.catalog, {"streams": {"orders": {}}, "views": views})
    told = lines(layout)
    assert "view in_time with a deadline: 0 of 0 windows released in time" in told
    assert "deadlines.0" not in told


def test_quarantined_records_have_the_numbers_that_why_takes(
    layout: Layout, capsys: pytest.CaptureFixture[str]
) -> None:
    records = list(quarantined_records(layout, "orders", 0))
    assert [record["number"] for record in records] == [1, 2]
    at = datetime.fromisoformat(records[0]["time"])
    assert abs((datetime.now(UTC) - at).total_seconds()) < 3_600
    quarantine(layout.output, "orders")
    printed = capsys.readouterr().out.splitlines()
    assert printed[0].startswith(f"1: batch 1, {records[0]['time']} | ")
    assert any(line.startswith("2: batch 1, ") for line in printed)


def test_an_unknown_view_is_told_with_the_nearest_one(layout: Layout) -> None:
    with pytest.raises(UnknownNameError, match="View larg does not exist; did you mean large\\? Existing"):
        find_view(layout, "larg")
