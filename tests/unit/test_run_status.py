"""The status of a run as frozen values, read from the document that the monitor reads."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

from penstock import RunStatus, StreamStatus
from penstock.monitor.snapshot import take_lanes, take_snapshot
from penstock.spark.run_status import run_status
from penstock.status import DeadlineCounts, Lag, Outage, SlackStatus, WindowCounts, trouble_of, view_status

DOCUMENT: dict[str, Any] = {
    "tried_until": None,
    "outage": {"since": "2026-01-01T00:00:00+00:00", "source": "topic orders at b:1", "told": "no answer"},
    "retries": 2,
    "lag": {"backlog": 7, "unit": "records", "time": "2026-01-01T00:00:01+00:00"},
    "newest_event_time_us": 1_500_000,
    "network": None,
    "aside": None,
    "state": "source unreachable",
    "held_by": {},
    "active": True,
    "batches": 3,
    "tuples": 10,
    "matched": 4,
    "pairs": 5,
    "tuples_per_second": 2.5,
    "quarantined": {"record too large": 1},
    "rows_set_aside": 0,
    "files_changed": 0,
    "files_passed_over": 0,
    "unusable_times": 0,
    "errors": {"ratio": 2},
    "views": 2,
    "selections": 1,
    "windows": {"early": 1},
    "overflowed": {},
    "troubles": {},
    "lanes": {},
    "view_pairs": {"large": 5},
    "sequence": None,
    "evaluations_per_tuple": None,
}


@pytest.fixture
def status() -> RunStatus:
    views = {"large": view_status("large", "selection", "orders", {"rows": 5})}
    return RunStatus("running", "out", {"orders": StreamStatus.of("orders", DOCUMENT)}, views, {})


def test_a_stream_has_typed_fields(status: RunStatus) -> None:
    orders = status.streams["orders"]
    assert (orders.state, orders.tuples, orders.retries) == ("source unreachable", 10, 2)
    assert orders.lag == Lag(7, "records")
    assert orders.outage == Outage("topic orders at b:1", datetime(2026, 1, 1, tzinfo=UTC), "no answer")
    assert orders.newest_event_time == datetime(1970, 1, 1, 0, 0, 1, 500_000, tzinfo=UTC)
    assert "_document" not in repr(orders)


def test_an_event_time_beyond_the_years_of_python_is_none() -> None:
    assert StreamStatus.of("s", {**DOCUMENT, "newest_event_time_us": 2**62}).newest_event_time is None


def test_the_dictionary_is_the_document_that_the_monitor_reads(status: RunStatus) -> None:
    told = status.to_dict()
    assert told == {"state": "running", "output": "out", "streams": {"orders": DOCUMENT}}
    assert json.loads(json.dumps(told)) == told
    assert [each.name for each in take_snapshot(told["streams"])] == ["orders"]
    assert take_lanes(told["streams"]) == []


def test_the_old_dictionary_by_stream_works_and_warns(status: RunStatus) -> None:
    with pytest.warns(DeprecationWarning, match=r"use Run\.status\(\)\.streams\['orders'\]") as warned:
        assert status["orders"]["tuples"] == 10
    assert warned[0].filename == __file__
    assert list(status) == ["orders"]
    assert len(status) == 1


def test_a_view_has_the_counts_of_its_kind() -> None:
    window = view_status("w", "window", "orders", {"rows": 9, "early": 3, "final": 2}, errors=1)
    assert (window.rows, window.errors, window.windows, window.deadline) == (
        9,
        1,
        WindowCounts(3, 0, 2),
        None,
    )
    late = view_status("d", "deadline", "orders", {"created": 5, "released": 3, "shed": 1, "missed": 1})
    assert (late.windows, late.deadline) == (None, DeadlineCounts(5, 3, 1, 1, 0))
    assert view_status("j", "join", "orders", {"rows": 4, "raised": 2}).errors == 2


def test_a_lane_that_fails_says_why() -> None:
    assert trouble_of(None) is None
    trouble = trouble_of({"state": "retrying", "since": None, "views": ["v"], "told": "no space"})
    assert trouble is not None
    assert (trouble.state, trouble.views, trouble.reason) == ("retrying", ("v",), "no space")


class Dropping:
    """A run without streams, whose only lane another thread removes once it has been read."""

    followers = SimpleNamespace(all={})
    layout = SimpleNamespace(output=Path("out"))
    status_file = SimpleNamespace(
        book=SimpleNamespace(document=lambda: {"state": "running", "streams": {}, "views": {}}),
        all_pairs=dict,
    )

    def __init__(self) -> None:
        self.queries: dict[str, Any] = {}
        self._lanes = {"joins": SimpleNamespace(name="joins", views=["pairs"], active=True, before=())}

    @property
    def lanes(self) -> SimpleNamespace:
        read, self._lanes = self._lanes, {}
        return SimpleNamespace(running=read)

    def views(self) -> list[Any]:
        return []


def test_a_lane_that_is_removed_meanwhile_remains_in_the_status() -> None:
    assert run_status(Dropping()).lanes["joins"].views == ("pairs",)  # type: ignore[arg-type]


class Declared:
    """A run whose join view was dropped and declared again: its second lane has answered nothing yet."""

    layout = SimpleNamespace(output=Path("out"))
    followers = SimpleNamespace(all={})
    queries: ClassVar[dict[str, Any]] = {}
    lanes = SimpleNamespace(
        running={
            "joins.1": SimpleNamespace(name="joins.1", views=["pairs"], active=True, before=("joins.0",))
        }
    )

    def __init__(self) -> None:
        lanes = {
            "joins.0": {"views": {"pairs": {"rows": 10}}},
            "joins.1": {"views": {"pairs": {"rows": 0}}},
        }
        book = {"state": "running", "streams": {}, "views": {}, "lanes": lanes}
        self.status_file = SimpleNamespace(book=SimpleNamespace(document=lambda: book), all_pairs=dict)

    def views(self) -> list[Any]:
        return [("pairs", "join", "orders")]


def test_rows_of_a_join_view_that_is_declared_again_are_those_of_all_its_lanes() -> None:
    assert run_status(Declared()).views["pairs"].rows == 10  # type: ignore[arg-type]


def test_a_view_says_which_slack_policy_runs_and_why_k_is_what_it_is() -> None:
    standing = {"slack": 2_500_000, "slack_policy": "mp-k-slack", "slack_figures": {}}
    found = view_status("w", "window", "orders", {"standing": standing})
    assert found.slack == SlackStatus("mp-k-slack", 2.5, "K is the largest delay so far")
    assert view_status("w", "window", "orders", {}).slack is None
    assert view_status("w", "window", "orders", {"standing": {"slack": 3}}).slack is None, (
        "of an earlier version"
    )
