"""What is printed beside the status: lengths of time, news, snapshots, warnings."""

from __future__ import annotations

from io import StringIO
from typing import Any

import pytest
from rich.console import Console

from penstock.cli.check import unused
from penstock.errors import StreamFailedError
from penstock.monitor.deadlines import deadline_lines, deadline_words
from penstock.monitor.figures import length, moment
from penstock.monitor.live import follow
from penstock.monitor.news import News, event_line
from penstock.monitor.snapshot import LaneSnapshot, take_lanes, take_snapshot
from penstock.monitor.stream_faults import lost_rows
from penstock.monitor.troubles import TroubleSnapshot, trouble_words


def test_lengths_of_time_read_well() -> None:
    told = [length(seconds) for seconds in (0.25, 45, 60, 200, 7_500, 86_400, 270_000, -5)]
    assert told == ["0.25 s", "45 s", "1 min", "3 min 20 s", "2 h 5 min", "1 day", "3 days 3 h", "-5 s"]


def test_the_screen_tells_rows_since_this_start_from_those_of_earlier_runs() -> None:
    counts = {
        "views": 3,
        "selections": 2,
        "inserts": 1,
        "running": 1,
        "batches": 0,
        "tuples": 0,
        "matched": 0,
    }
    nothing: dict[str, Any] = {"quarantined": {}, "errors": {}, "windows": {}, "sequence": None}
    measured = {"pairs": 0, "unusable_times": 0, "tuples_per_second": 2.0, "evaluations_per_tuple": None}
    stream = {**counts, **nothing, **measured, "state": "waiting"}

    def line(**fields: Any) -> str:
        (snapshot,) = take_snapshot({"orders": {**stream, **fields}})
        return snapshot.line()

    views = "1 selection | 1 insert | 1 running view"
    assert line() == f"orders: waiting for the first rows | {views}"
    assert line(busy=True) == f"orders: the first batch is running | {views}", (
        "no file is left beside those of the batch"
    )
    assert (
        line(busy=True, tuples_before=9) == f"orders: the first batch since this start is running | {views}"
    )
    nothing_left = {"backlog": 0, "unit": "files"}
    assert line(lag=nothing_left).startswith("orders: waiting for the first rows | ")
    assert line(lag=nothing_left, tuples_before=9).startswith("orders: no rows since this start | ")
    assert line(tuples_before=9) == f"orders: no rows since this start | {views}"
    backlog = {"backlog": 23, "unit": "files"}
    assert line(lag=backlog) == f"orders: the first batch is running | {views} | backlog 23 files"
    assert line(tuples_before=9, lag=backlog) == (
        f"orders: the first batch since this start is running | {views} | backlog 23 files"
    )
    assert line(tuples_before=9, lag=backlog, state="retrying", tried_until=1e12).startswith(
        "RETRYING | orders: no rows since this start | "
    )
    assert line(tuples_before=9, tuples=398).startswith("orders: 398 tuples since this start | 2 tuples/s | ")
    assert line(tuples=398).startswith("orders: 398 tuples | ")


def test_moments_of_every_year_are_told() -> None:
    told = {
        0: "1970-01-01 00:00:00 UTC",
        1_700_000_000_999_999: "2023-11-14 22:13:20 UTC",
        -1: "1969-12-31 23:59:59 UTC",
        -62_135_596_800_000_001: "0000-12-31 23:59:59 UTC",
        253_402_300_800_000_000: "10000-01-01 00:00:00 UTC",
        -(2**63): "-290308-12-21 19:59:05 UTC",
        2**63 - 1: "294247-01-10 04:00:54 UTC",
    }
    assert {each: moment(each) for each in told} == told


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
    assert news.lines() == ["x stream orders: source unreachable: no broker (source topic t)"]
    assert news.lines() == []
    events.append(
        {"time": "y", "kind": "files_changed", "stream": "orders", "files": ["a", "b"], "rows": 1_200}
    )
    assert news.lines() == ["y stream orders: files changed after the first read (files a, b, rows 1,200)"]
    events.append(
        {"time": "z", "kind": "files_changed", "told": "a was replaced", "files": [{"path": "a"}], "count": 1}
    )
    assert news.lines() == ["z files changed after the first read: a was replaced (count 1)"]
    counts = {
        "views": 2,
        "selections": 2,
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
        "SOURCE UNREACHABLE | orders: 4 tuples | 2 tuples/s | 3 matched, 25.0% matched no view | 2 selections | "
        "backlog 1,200 records"
    )
    shares = {(4, 4): "4 matched | 2", (0, 4): "0 matched, 100.0% matched no view"}
    shares |= {
        (9_999, 10_000): "less than 0.1% matched no view",
        (1, 10_000): "more than 99.9% matched no view",
    }
    for (matched, tuples), told in shares.items():
        (shared,) = take_snapshot({"orders": {**status, "matched": matched, "tuples": tuples}})
        assert told in shared.line()
    (windows,) = take_snapshot({"orders": {**status, "matched": 0, "selections": 0}})
    assert windows.line() == (
        "SOURCE UNREACHABLE | orders: 4 tuples | 2 tuples/s | 2 window views | backlog 1,200 records"
    )
    (running,) = take_snapshot({"orders": {**status, "matched": 0, "selections": 0, "running": 2}})
    assert "| 2 running views |" in running.line()
    assert "window view" not in running.line()


def test_attempts_are_printed_at_most_once_a_minute() -> None:
    def retried(seconds: int, attempt: int, stream: str = "orders") -> dict[str, Any]:
        time = f"2024-05-01T10:{seconds // 60:02}:{seconds % 60:02}+00:00"
        return {
            "time": time,
            "kind": "stream_retried",
            "stream": stream,
            "told": "disk full",
            "attempt": attempt,
        }

    events = [retried(seconds, attempt) for attempt, seconds in enumerate((0, 1, 3, 7, 15, 59, 61, 100), 1)]
    events.insert(2, retried(2, 1, "clicks"))
    lines = News(lambda: events).lines()
    assert [line.split(" ", 2)[2] for line in lines] == [
        "stream orders: restarted after a failure: disk full (attempt 1)",
        "stream clicks: restarted after a failure: disk full (attempt 1)",
        "stream orders: restarted after a failure: disk full (attempt 7)",
    ]


def test_a_view_that_fails_is_printed_at_once_and_then_once_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("penstock.monitor.live.time.monotonic", lambda: now[0])
    printed = StringIO()

    def read() -> list[TroubleSnapshot]:
        state = "failed" if now[0] > 130 else "retrying"
        return [TroubleSnapshot(f"a {state}", f"{state} at {now[0]:.0f}")] if now[0] > 10 else []

    def wait(_: float) -> bool:
        now[0] += 5
        return now[0] >= 150

    follow(Console(file=printed), read, wait)
    assert printed.getvalue().splitlines() == [
        *("retrying at 15", "retrying at 75", "failed at 135"),
    ]


def test_only_lines_that_have_changed_are_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("penstock.monitor.live.time.monotonic", lambda: now[0])
    printed = StringIO()

    def read() -> list[LaneSnapshot]:
        rows = {"busy": now[0], "quiet": 3 if now[0] < 18 else 4, "over": 7}
        return [
            LaneSnapshot(name, ((name, f"{count:.0f} rows"),), None, "", None) for name, count in rows.items()
        ]

    def wait(_: float) -> bool:
        now[0] += 5
        return now[0] >= 25

    follow(Console(file=printed), read, wait)
    told = [line.removeprefix("view ") for line in printed.getvalue().splitlines()]
    assert told == [
        *("busy: 5 rows", "quiet: 3 rows", "over: 7 rows"),
        *("busy: 10 rows", "busy: 15 rows", "busy: 20 rows", "quiet: 4 rows", "busy: 25 rows"),
    ]


@pytest.mark.parametrize("is_terminal", [False, True])
def test_the_last_lines_are_those_of_the_end_although_a_view_has_failed(is_terminal: bool) -> None:
    printed = StringIO()
    rows = 0

    def read() -> list[LaneSnapshot]:
        return [LaneSnapshot("v", (("v", f"{rows} rows"),), None, "", None)]

    def wait(_: float) -> bool:
        nonlocal rows
        rows += 1
        if rows == 3:
            raise StreamFailedError("some views are incomplete")
        return False

    with pytest.raises(StreamFailedError):
        follow(Console(file=printed, force_terminal=is_terminal, width=80), read, wait)
    assert "view v: 3 rows" in printed.getvalue()


def test_a_script_with_nothing_to_answer_is_warned_of() -> None:
    assert list(unused({"orders": ["large"], "clicks": []})) == [
        "no view reads stream clicks; add a view or remove the table"
    ]
    assert list(unused({})) == ["the script declares no stream; nothing will run"]


def test_join_views_and_windows_over_windows_have_lines_of_their_own() -> None:
    pairs: dict[str, Any] = {
        "view": "pairs",
        "views": {"pairs": {"rows": 1_200, "raised": 3, "untimed": 0}},
        "cut": 7,
        "behind_seconds": 0.8,
        "backlog": {"flights": 2, "weather": 0},
        "measured_rate": 42.5,
    }
    daily = {"cut": 4, "views": {"daily": {"early": 5, "corrected": 1, "final": 2, "rows": 20}}}
    quiet = {"view": "rare", "names": ["rare"], "views": {}, "backlog": {"flights": 0}, "measured_rate": None}
    quiet["lost_tables"] = {"custs": "its files are gone"}
    status = {
        "flights": {"lanes": {"joins.0": pairs, "joins.1": quiet}},
        "weather": {"lanes": {"joins.0": pairs, "results/rides.fares": daily}},
    }
    assert [each.line() for each in take_lanes(status)] == [
        "view pairs: 1,200 rows, 3 left out because a condition failed, 0.8 s behind | 42.5 joined rows/s | "
        "not answered yet: 2 batches of flights",
        "view rare: no rows yet | static table lost, its last version remains in use: custs",
        "view daily: 5 early, 1 corrected, 2 final",
    ]


def test_lost_windows_are_told_with_what_became_of_them_since() -> None:
    counts = {"created": 20, "released": 12, "shed": 5, "missed": 3, "late": 4, "owed": 3, "abandoned": 1}
    assert deadline_words(counts) == (
        "12 of 20 windows released in time (60.0%), 5 shed, 3 missed, 4 answered late, 3 still to be answered late, 1 never answered"
    )


def test_windows_that_fail_are_not_called_overload() -> None:
    standing = {
        "constraint": {"k": 0, "m": 3},
        "violations": 1,
        "waiting": 0,
        "overloaded": False,
        "failing": True,
    }
    _, *further = deadline_lines("v", {"created": 4, "failed": 4, "standing": standing})
    assert further == ["  most of its windows fail"]


def test_windows_that_are_noticed_late_are_told() -> None:
    standing = {"constraint": {"k": 0, "m": 3}, "violations": 0, "waiting": 0}
    words = [deadline_words({"standing": {**standing, "notice_seconds": each}}) for each in (0.2, 1.4)]
    told = "noticed 1.4 s after the arrival of their last tuple"
    assert [told in each for each in words] == [False, True]


def test_sums_that_do_not_fit_are_told_with_their_views() -> None:
    status = _stream(
        tuples=4, windows={"early": 2, "overflowed": 3}, overflowed={"huge": 2, "vast": 1, "small": 0}
    )
    (snapshot,) = take_snapshot({"ledger": status})
    told = "3 rows with NULL for a SUM or AVG that does not fit its type in huge, vast"
    assert told in snapshot.line().split(" | ")
    daily = {"views": {"daily": {"early": 5, "corrected": 1, "final": 2, "rows": 20, "overflowed": 1}}}
    (lane,) = take_lanes({"ledger": {"lanes": {"l": daily}}})
    assert "1 row with NULL for a SUM or AVG that does not fit its type" in lane.line()


@pytest.mark.parametrize(
    ("reason", "aside", "remedy"),
    [
        ("malformed csv record: x is no INT", None, "options sep and header"),
        ("malformed JSON", None, "multiLine 'true'"),
        ("malformed json record: not a JSON object", None, "one JSON object a line"),
        ("not UTF-8", None, "option encoding"),
        (
            "unreadable file",
            "in 1.parquet: Illegal Parquet type: INT64 (TIMESTAMP(NANOS,true))",
            "microseconds",
        ),
        (
            "unreadable Parquet file",
            "column: [t], physicalType: INT64, logicalType: timestamp",
            "microseconds",
        ),
        ("unreadable file", "in 1.parquet: not a whole file", "the type that the files have"),
        ("whatever else", None, "declared columns and options"),
    ],
)
def test_a_stream_of_which_nothing_was_read_says_so_first(
    reason: str, aside: str | None, remedy: str
) -> None:
    aside_all = _stream(tuples=0, quarantined={"rare": 1, reason: 1_200}, aside=aside)
    (snapshot,) = take_snapshot({"orders": aside_all})
    first = snapshot.line().split(" | ")[0]
    assert first.startswith(f"NOTHING READ: all 1,201 records so far were set aside, most for: {reason}. ")
    assert remedy in first
    (snapshot,) = take_snapshot({"orders": {**aside_all, "tuples": 1}})
    assert "NOTHING READ" not in snapshot.line()


def _stream(**fields: Any) -> dict[str, Any]:
    zero = dict.fromkeys(("views", "selections", "batches", "tuples", "matched", "pairs"), 0)
    empty: dict[str, Any] = {"quarantined": {}, "errors": {}, "windows": {}, "overflowed": {}}
    return {
        **zero,
        **empty,
        "unusable_times": 0,
        "tuples_per_second": 2.0,
        "evaluations_per_tuple": None,
        "sequence": None,
        **fields,
    }


def test_a_running_view_over_another_view_has_rows_and_no_windows() -> None:
    counts = {"early": 0, "corrected": 0, "final": 0, "rows": 9, "revised_rows": 2}
    (lane,) = take_lanes({"s": {"lanes": {"s.unions.1.results": {"views": {"total": counts}}}}})
    assert "total: 7 rows" in lane.line()
    (lane,) = take_lanes(
        {"s": {"lanes": {"s.unions.1.results": {"views": {"hourly": {**counts, "final": 3}}}}}}
    )
    assert "hourly: 0 early, 0 corrected, 3 final" in lane.line()


def test_a_lane_without_rows_names_its_views_as_the_user_does() -> None:
    lane = {"names": ["per", "hourly"], "views": {"per": {"early": 0, "rows": 3, "revised_rows": 1}}}
    lanes = {name: {"names": ["total"], "views": {}} for name in ("unions.0.both.results", "s.running.0")}
    (some, none, running) = take_lanes({"s": {"lanes": {"joins.0.pairs.results": lane, **lanes}}})
    assert some.line() == "view per: 2 rows | view hourly: no rows yet"
    assert none.line() == running.line() == "view total: no rows yet"


def test_a_refreshed_view_has_the_rows_of_its_newest_answer() -> None:
    lane = {"view": "top", "names": ["top"], "views": {"top": {"rows": 1_207, "withdrawn": 1_197}}}
    (shown,) = take_lanes({"s": {"lanes": {"refreshed.0": {**lane, "answer": {"rows": 10}}}}})
    assert shown.line() == "view top: 10 rows now (1,207 inserted, 1,197 deleted so far)"


def test_lines_name_the_view_whose_rows_a_lane_reads() -> None:
    trouble = {"state": "failed", "stream": "unions.1.both", "views": ["per"], "since": "", "told": "full"}
    assert "view per of view both" in trouble_words("unions.1.both.results", trouble)
    changed = {"kind": "views_changed", "time": "", "stream": "joins.0.pairs", "added": ["per"]}
    assert "view pairs: views changed (added per)" in event_line(changed)
    assert "view totals: views changed" in event_line({**changed, "stream": "orders.totals"})
    assert "stream orders: views changed" in event_line({**changed, "stream": "orders"})


def test_a_line_names_a_sink_once() -> None:
    began = {"kind": "sink_began", "time": "", "sink": "out.large", "view": "large", "begin": "earliest"}
    assert event_line(began).endswith("sink out.large: begun (begin earliest)")


def test_tuples_without_an_event_time_are_left_out_of_windows_and_joins() -> None:
    told = list(lost_rows({"null_event_times": 25, "future_event_times": 1}, 3))
    assert told == [
        "left out of windows and joins: 25 tuples whose event time is NULL",
        "left out of windows and joins: 1 tuple whose event time is too far ahead of the clock",
    ]
    (snapshot,) = take_snapshot(
        {
            "orders": {
                **dict.fromkeys(
                    ("views", "selections", "inserts", "running", "batches", "tuples", "matched"), 0
                ),
                **{"quarantined": {}, "errors": {}, "windows": {}, "sequence": None, "pairs": 0},
                **{
                    "unusable_times": 12,
                    "tuples_per_second": 2.0,
                    "evaluations_per_tuple": None,
                    "state": "waiting",
                },
            }
        }
    )
    assert snapshot.line().endswith(
        " | 12 tuples left out of windows and joins (event time NULL or in the future)"
    )


def test_the_line_of_a_static_table_counts_its_rows_and_what_was_set_aside() -> None:
    def line(**fields: Any) -> str:
        event = {
            "kind": "static_table_read",
            "time": "",
            "lane": "joins.1",
            "table": "cities",
            "version": "a",
        }
        return event_line({**event, **fields}).partition("static table cities: ")[2]

    reason = "malformed csv record: 3 fields, 2 columns"
    assert line(rows=0, malformed={reason: 6}) == f"0 rows; 6 records set aside: {reason}"
    assert line(rows=1_200, malformed={}) == "1,200 rows"
    assert line(malformed={}) == "read"
    many = {f"reason {number}": number for number in (1, 5, 2, 4, 3)}
    assert line(rows=1, malformed=many) == (
        "1 row; 5 records set aside: reason 5; 4 records set aside: reason 4; 3 records set aside: reason 3; "
        "3 records set aside for other reasons"
    )
