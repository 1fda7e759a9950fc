"""What the status says of sinks: how far they have come, why one fails, and that it works again."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from penstock.monitor.book import StatusBook
from penstock.monitor.details import detail_lines
from penstock.monitor.problems import problem_lines
from penstock.monitor.report import status_lines
from penstock.monitor.troubles import undelivered_words
from penstock.spark.run_status import run_status

TIME = "2026-01-01T10:00:00+00:00"
FAILS = {"sink": "alerts.large", "views": ["large"], "cause": "sink_failed", "part": "sink"}
TOLD = "sink alerts of view large failed: ConnectionError: no answer"


def book() -> StatusBook:
    """The book of a run whose sink has begun."""
    found = StatusBook()
    found.note({"kind": "run_started", "time": TIME})
    found.take_sink("alerts.large", {"view": "large", "kind": "http", "deliveries": 3, "backlog": 0})
    return found


def document(of: StatusBook, **fields: Any) -> dict[str, Any]:
    """What `penstock status` reads."""
    return {**of.document(), "reason": None, "output": "out", "time": TIME, **fields}


def test_a_failing_sink_is_a_problem_with_its_backlog_until_it_works() -> None:
    known = book()
    assert list(problem_lines(document(known))) == []
    known.note(
        {"kind": "sink_retried", "time": TIME, **FAILS, "told": TOLD, "attempt": 4, "wait_seconds": 1e12}
    )
    known.take_sink("alerts.large", {"backlog": 12})
    (line,) = problem_lines(document(known))
    assert line.startswith(f"RETRYING: {TOLD}, since ")
    assert line.endswith("; 12 batches behind; streams and other sinks continue")
    (over,) = problem_lines(document(known, state="stopped"))
    assert over.endswith("; the next start continues")
    known.note({"kind": "sink_back", "time": TIME, **FAILS, "attempt": 4})
    assert list(problem_lines(document(known))) == []


def test_rows_that_a_server_refuses_remain_a_problem() -> None:
    known = book()
    for rows in (1, 2):
        known.note(
            {"kind": "sink_rejected", "time": TIME, "sink": "alerts.large", "rows": rows, "file": "dead"}
        )
    (line,) = problem_lines(document(known))
    assert line == "sink alerts.large: the server refused 3 rows; see dead"


def test_details_have_a_line_for_each_sink() -> None:
    known = book()
    known.take_sink("table.large", {"kind": "delta", "deliveries": 1, "backlog": 2})
    assert [line for line in detail_lines(document(known)) if line.startswith("sink ")] == [
        "sink alerts.large (http) | 3 deliveries | up to date",
        "sink table.large (delta) | 1 delivery | 2 batches behind",
    ]


def test_the_status_has_a_line_for_each_sink() -> None:
    known = book()
    known.take_sink("alerts.large", {"rows": 2_061})
    inserted = "insert_into_hook_1f8ed3"
    known.take_sink(f"hook.{inserted}", {"view": inserted, "kind": "http", "backlog": 2, "rows": 5})
    known.take_sink("table.large", {"view": "large", "kind": "delta", "rows": None, "backlog": 1})
    known.note({"kind": "sink_retried", "time": TIME, **FAILS, "told": TOLD, "wait_seconds": 1e12})
    lines = list(status_lines(document(known, pid=1)))
    begin = lines.index("3 sinks")
    assert [line.split() for line in lines[begin + 1 :]] == [
        ["sink", "view", "state", "rows", "behind"],
        ["alerts", "large", "retrying", "2,061", "up", "to", "date"],
        ["hook", "INSERT", "INTO", "running", "5", "2", "batches"],
        ["table", "large", "running", "-", "1", "batch"],
    ]
    assert not any("sink" in line for line in status_lines(document(StatusBook(), pid=1)))


def test_another_run_begins_with_the_sinks_that_it_declares() -> None:
    known = book()
    known.note({"kind": "run_started", "time": TIME})
    assert "sinks" not in known.document()


def test_a_run_has_its_sinks_as_frozen_values() -> None:
    known = book()
    known.note({"kind": "sink_failed", "time": TIME, **FAILS, "told": TOLD})
    known.take_sink("alerts.large", {"backlog": 1, "backlog_since": 0.0})
    run: Any = SimpleNamespace(
        status_file=SimpleNamespace(book=known, all_pairs=dict),
        layout=SimpleNamespace(output=Path("out")),
        queries={},
        lanes=SimpleNamespace(running={}),
        views=list,
        followers=SimpleNamespace(all={"alerts.large": SimpleNamespace(active=False)}),
    )
    sink = run_status(run).sinks["alerts.large"]
    assert (sink.view, sink.kind, sink.active, sink.deliveries, sink.backlog) == (
        "large",
        "http",
        False,
        3,
        1,
    )
    assert sink.behind_seconds is not None
    assert sink.trouble is not None
    assert (sink.trouble.state, sink.trouble.reason) == ("failed", TOLD)


def test_a_run_that_ends_names_the_sinks_that_lack_rows() -> None:
    assert undelivered_words([{"told": TOLD}]) == (
        f"some sinks lack rows: {TOLD}. The results folder has all rows. Run the same command again to continue"
    )
