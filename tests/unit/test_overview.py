"""What `penstock status` prints on one screen: problems, totals, and a line a stream and a view."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path

import pytest

from penstock.monitor.book import StatusBook
from penstock.monitor.details import detail_lines
from penstock.monitor.figures import counted, event_moment, listed, views_words
from penstock.monitor.folder import folder_status
from penstock.monitor.overview import WIDTH, unmatched_lines, view_rows
from penstock.monitor.problems import problem_lines
from penstock.monitor.report import status_lines
from penstock.spark.storage.documents import replace_json
from penstock.spark.storage.events import EventLog
from penstock.spark.storage.layout import Layout
from status_cases import BATCH, NEXT, large_document, results_folder, screen

#: words of the inside, none of which a status shows
INSIDE = (
    *("p-attribute", "lane ", "lane:", " cut ", "version 0", "arrow", "DataFrame", "joins.3", "entry"),
    *("at hand", "of late", "last word", "K 1", "1 rows", "1 files", "1 records", "1 problems"),
)


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    return results_folder(tmp_path)


def test_250_views_fit_one_screen() -> None:
    document = large_document()
    lines = list(status_lines(document))
    assert len(list(view_rows(document))) == 250
    assert len(lines) <= 50
    assert max(map(len, lines)) <= WIDTH
    text = "\n".join(lines)
    assert lines[0].startswith("out: running (process 4711), started ")
    assert lines[1] == "6 problems:"
    assert "\n  RETRYING: view j_dev_3 of stream payments, since " in text
    assert "view rule_2_079 matches nothing, Spark refuses it: a division by zero" in text
    assert "\n    penstock quarantine out payments\n" in text, "a command remains whole"
    assert "\n  view in_time_5: LOSS promise broken 2 times\n" in text
    assert "\n3 streams: 9,624,755 tuples, 380,896 matched, 17 records set aside\n" in text
    assert "\n250 views: 200 selections, 40 window views, 6 deadline views, 4 join views\n" in text
    assert "devices   unreachable" in text
    assert "2013-10-12 08:00" in text
    assert lines[-1] == "230 more: -v shows them"
    first = [line.split()[0] for line in lines[-21:-1]]
    assert {"j_dev_3", "rule_2_079", "in_time_5"} == set(first[:3]), "what fails"
    assert first[3:5] == ["rule_1_007", "rule_1_090"], "then errors"
    assert first[5] == "hourly_07", "then what is behind"
    assert first[6:10] == ["rule_1_000", "rule_2_000", "rule_1_001", "rule_2_001"], "then the busiest"
    assert not [word for word in INSIDE if word in text]


def test_rules_without_a_match_are_counted() -> None:
    document = large_document()
    selections = document["streams"]["payments"]["selections"]
    for name in list(selections)[:3]:
        selections[name] = 0
    selections[list(selections)[3]] = None
    text = "\n".join(status_lines(document))
    assert "\n250 views: 200 selections (3 without a match), 40 window views, " in text
    assert text.endswith(
        "\n230 more: -v shows them\n3 without a match: penstock status out --without-matches"
    )
    unmatched = list(unmatched_lines(document))
    assert unmatched == ["3 selections without a match:", *(f"  {name}" for name in list(selections)[:3])]


def test_rules_on_a_stream_that_has_read_nothing_are_not_counted_as_without_a_match() -> None:
    document = large_document()
    document["streams"]["payments"]["tuples"] = 0
    for stream in document["streams"].values():
        stream["selections"] = dict.fromkeys(stream.get("selections") or (), 0)
    counted = sum(len(stream["selections"]) for stream in document["streams"].values() if stream["tuples"])
    assert 0 < counted < 200
    assert f" selections ({counted} without a match), " in "\n".join(status_lines(document))
    assert next(unmatched_lines(document)) == f"{counted} selections without a match:"


def test_an_insert_without_a_match_is_counted_as_such() -> None:
    document = large_document()
    document["streams"]["payments"]["selections"]["insert_into_alerts_0a1b2c"] = 0
    text = "\n".join(status_lines(document))
    assert "\n251 views: 200 selections, 1 insert (1 without a match), " in text


def test_empty_windows_do_not_hide_the_rules_that_match() -> None:
    document = large_document()
    for name, view in document["views"].items():
        if name.startswith("hourly"):
            view |= {"rows": 0, "not_answered": [811, 811]}
    shown = [line.split()[0] for line in list(status_lines(document))[-21:-1]]
    assert not [name for name in shown if name.startswith("hourly")]


def test_records_set_aside_and_failed_expressions_are_two_columns() -> None:
    lines = list(status_lines(large_document()))
    header = next(line for line in lines if line.startswith("stream "))
    payments = next(line for line in lines if line.startswith("payments "))
    assert header.split()[-3:] == ["set", "aside", "errors"]
    assert payments.split()[-2:] == ["17", "215"]


def test_a_batch_leaves_no_backlog_that_it_has_answered() -> None:
    book = StatusBook()
    for kind, fields in (
        ("lag", {"backlog": 40, "unit": "records"}),
        ("batch", {**BATCH, "tuples": 37, "quarantined": {"malformed": 2}}),
    ):
        book.note({"kind": kind, "stream": "orders", "time": "2026", **fields})
    assert book.stream("orders")["lag"]["backlog"] == 1
    book.note({"kind": "batch", "time": "2026", **NEXT})
    assert book.stream("orders")["lag"]["backlog"] == 0, "it has what came since"
    book.note({"kind": "lag", "stream": "orders", "time": "2026", "backlog": 3, "unit": "files"})
    book.note({"kind": "batch", "time": "2026", **NEXT, "batch": 2})
    assert book.stream("orders")["lag"]["backlog"] == 3, "no batch says how many files it has"


def test_verbose_lists_every_view_and_details() -> None:
    document = large_document()
    text = "\n".join(status_lines(document, verbose=True))
    assert all(f"\n{row.name} " in text for row in view_rows(document))
    assert "more: -v" not in text
    assert "may still lose 1 of the next 6 windows; promise kept" in text
    assert "MAX_ERROR promise: not yet known (8 of 20 final windows)" in text
    assert "join view j_dev_0 of payments, devices: 12,430 rows | 0.8 s behind" in text
    assert not [word for word in INSIDE if word in text]


def test_lag_is_in_seconds_and_batches_are_details() -> None:
    document = large_document()
    document["views"]["hourly_07"]["waiting_seconds"] = 95.0
    document["views"]["j_dev_0"]["backlog"]["devices"] = 3
    document["streams"]["payments"]["at_hand"] = {"batch": 812, "files": None, "age_seconds": 7.5}
    rows = {row.name: row for row in view_rows(document)}
    names = ("hourly_07", "hourly_08", "j_dev_0", "j_dev_1", "rule_1_000", "rule_2_000")
    assert [rows[name].lag for name in names] == [95.0, 1.1, None, 0.8, 7.5, None]
    table = list(status_lines(document))
    (line,) = (line for line in table if line.startswith("hourly_07 "))
    assert "1 min 35 s" in line
    assert "batch" not in "\n".join(table[-21:])
    (stream,) = (line for line in table if line.startswith("devices "))
    assert "38,400 records" in stream
    verbose = "\n".join(status_lines(document, verbose=True))
    assert "not answered yet: batches 800 to 811 of the stream" in verbose
    assert "not joined yet: 3 batches of devices" in verbose
    ended = {**document, "state": "ended"}
    assert {row.lag for row in view_rows(ended)} == {None}
    assert {row.rate for row in view_rows(ended)} == {None}
    lines = list(status_lines(ended))
    assert not [line for line in lines if "12,430" in line and line.startswith("payments")]


def test_rows_of_a_window_view_count_once_whatever_their_revisions() -> None:
    document = large_document()
    document["views"]["hourly_00"] |= {"rows": 715, "revised_rows": 192}
    rows = {row.name: row.rows for row in view_rows(document)}
    assert rows["hourly_00"] == 523
    assert "  rows: 523; with every revision 715\n" in "\n".join(status_lines(document, verbose=True))


def test_rows_of_a_deadline_view_are_rows_and_not_windows() -> None:
    document = large_document()
    document["views"]["in_time_0"] |= {"released": 493, "rows": 5_210}
    assert {row.name: row.rows for row in view_rows(document)}["in_time_0"] == 5_210


def test_a_running_view_over_another_view_is_no_window_view(layout: Layout) -> None:
    entries = {"per": "unions.1.both", "by_n": "orders.hours", "total": "orders.running.0"}
    catalog = {"streams": {"orders": {}}, "views": {"hours": {"stream": "orders"}}}
    catalog["views"] |= {name: {"stream": stream, "is_running": True} for name, stream in entries.items()}
    document = folder_status(layout.output, catalog)
    kinds = {row.name: row.kind for row in view_rows(document)}
    assert kinds == {"hours": "windows", **dict.fromkeys(entries, "running")}
    details = "\n".join(detail_lines(document))
    for name, beneath in {"per": "both", "by_n": "hours", "total": "orders"}.items():
        assert f"running view {name} of {beneath}: 0 rows" in details


def test_problems_and_details_say_the_same_of_a_stream() -> None:
    document = large_document()
    faults = {"files_changed": 2, "topics_recreated": 1, "null_event_times": 4, "rows_set_aside": 7}
    document["streams"]["payments"] |= {**faults, "retries": 3, "retry": "the disk is full"}
    problems = [line for line in problem_lines(document) if line.startswith("stream payments: ")]
    details = [line.strip() for line in detail_lines(document)]
    said = [problem.removeprefix("stream payments: ") for problem in problems]
    assert len([line for line in said if line in details]) == 6
    assert "2 files changed after the first read; the new content is not answered" in details


def test_errors_of_a_view_are_listed_with_the_expression_that_failed(layout: Layout) -> None:
    log = EventLog(layout.events)
    where = {"stream": "orders", "batch": 2, "plan": 1}
    log.record("expression_raised", **where, counts={"large": 3}, expressions={"large": "100 / amount"})
    log.close()
    document = folder_status(layout.output)
    document["streams"]["orders"]["errors"] = {"large": 186, "silent": 2}
    text = " ".join("\n".join(status_lines(document)).split())
    assert (
        "stream orders: an expression failed; these tuples match nothing of the view: large 186 (`100 / amount`), silent 2"
        in text
    )


def test_columns_are_aligned_and_long_names_give_way() -> None:
    document = large_document()
    document["views"] = {"n" * 90: document["views"]["j_dev_0"], "b": document["views"]["hourly_07"]}
    for stream in document["streams"].values():
        stream["selections"] = {}
    header, first, second = list(status_lines(document))[-3:]
    assert len(first) <= WIDTH
    assert first.startswith("nnnnnnnnnn")
    assert ".." in first
    for column in ("kind", "state", "lag", "promise"):
        at = header.index(column)
        assert {line[at - 1] for line in (header, first, second)} == {" "}


@pytest.mark.parametrize("state", ["stopped", "dead"])
def test_a_lane_that_failed_until_the_end_is_a_problem_afterwards(state: str) -> None:
    document = {**large_document(), "state": state}
    later = datetime.fromisoformat(str(document["time"])) + timedelta(hours=1)
    document["lanes"]["joins.3"]["trouble"]["tried_until"] = later.timestamp() - 3_540
    text = "\n".join(status_lines(document)).replace("\n    ", " ")
    assert "RETRYING: view j_dev_3 of stream payments" in text
    assert "the run ended before it answered" in text
    document["time"] = later.isoformat()
    assert "RETRYING" not in "\n".join(status_lines(document)), "it worked again before the end"


@pytest.mark.parametrize(
    ("kinds", "state"),
    [
        (("run_started", "run_stopped"), "stopped"),
        (("run_started", "run_ended"), "ended"),
        (("run_started",), "dead"),
    ],
)
def test_a_run_that_is_over_says_how(layout: Layout, kinds: tuple[str, ...], state: str) -> None:
    replace_json(layout.status, {"version": 1, "pid": 12})
    log = EventLog(layout.events)
    for kind in kinds:
        log.record(kind)
    log.close()
    lines = screen(layout)
    assert lines[0].startswith(f"{layout.output}: {state}, started ")
    text = "\n".join(lines)
    assert f"\norders  {state} " in text
    assert ("Run the same command again to continue" in text.replace("\n    ", " ")) == (state == "dead")


def test_a_failed_run_names_its_reason_first(layout: Layout) -> None:
    log = EventLog(layout.events)
    log.record("run_started")
    log.record("run_failed", stream="orders", told="the disk is full: /data")
    log.close()
    lines = screen(layout)
    assert lines[0].startswith(f"{layout.output}: failed")
    assert lines[2] == "  failed: the disk is full: /data"


def test_everything_set_aside_names_the_remedy_and_the_command(layout: Layout) -> None:
    log = EventLog(layout.events)
    log.record("run_started")
    log.record(
        "batch", stream="orders", batch=7, tuples=0, quarantined={"malformed csv record: a is no INT": 3}
    )
    log.close()
    document = large_document()
    reason = "malformed csv record: a is no INT"
    sample = {"origin": "/data/prices.csv:2", "record": "3,50", "reason": reason, "batch": "7"}
    stream = {"tuples": 0, "quarantined": {reason: 1}, "samples": {reason: sample}}
    document["streams"] = {"orders": stream}
    document["views"] = document["lanes"] = {}
    lines = list(status_lines(document))
    assert lines[1] == "2 problems:"
    assert lines[2].startswith(
        "  stream orders: NOTHING READ: the only record so far was set aside, malformed csv"
    )
    assert "(for example /data/prices.csv:2)" in " ".join(line.strip() for line in lines)
    stream["tuples"] = 5
    (problem,) = problem_lines(document)
    assert problem.startswith(
        "stream orders: 1 record set aside, all: malformed csv record: a is no INT (for example /data"
    )
    assert "  stream orders: see the records: penstock quarantine out orders" in lines


def test_an_insert_with_a_query_of_its_own_is_no_selection() -> None:
    document = large_document()
    document["streams"] = {
        "orders": {"tuples": 3, "selections": {"large": 2, "insert_into_a_rather_long_name_1f8ed3": 1}}
    }
    document["views"] = document["lanes"] = {}
    lines = list(status_lines(document))
    assert "2 views: 1 selection, 1 insert" in lines
    assert any(line.startswith("-> a_rather_long_name  insert ") for line in lines)


def test_numbers_and_names_read_well() -> None:
    assert [counted(number, "row") for number in (0, 1, 2_000)] == ["0 rows", "1 row", "2,000 rows"]
    assert [counted(number, "entry") for number in (1, 2)] == ["1 entry", "2 entries"]
    assert listed(["a", "b", "c"], 2) == "a, b and 1 more"
    inserted = "insert_into_alerts_0a1b2c"
    assert views_words([inserted], 3) == "INSERT INTO alerts"
    assert views_words(["a", inserted, "insert_into_x"], 2) == "views a, INSERT INTO alerts and 1 more"
    now = 1_800_000_000.0
    assert event_moment(int((now - 0.8) * 1e6), now) == "0.8 s ago"
    assert event_moment(int((now + 90) * 1e6), now) == "1 min 30 s ahead of the clock"
    assert event_moment(1_381_564_800_000_000, now) == "2013-10-12 08:00"
