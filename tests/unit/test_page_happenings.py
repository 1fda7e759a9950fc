"""What happened: a line a batch does not hide the others."""

from __future__ import annotations

from penstock.page.happenings import Happenings

STARTED = {"kind": "run_started"}
SWAPPED = {"kind": "decision", "action": "SwapSequence", "stream": "s"}


def test_events_that_repeat_are_one_line_with_a_count_and_the_newest_event() -> None:
    happened = Happenings()
    happened.add(STARTED)
    for batch in range(12):
        happened.add({"kind": "records_quarantined", "stream": "s", "batch": batch})
        happened.add({"kind": "batch", "stream": "s", "batch": batch})
    happened.add({"kind": "records_quarantined", "stream": "other", "batch": 0})
    found = [(each.event["kind"], each.count, each.event.get("batch")) for each in happened.newest(40)]
    assert found == [("records_quarantined", 1, 0), ("records_quarantined", 12, 11), ("run_started", 1, None)]


def test_changes_of_a_plan_remain_visible_beside_many_others() -> None:
    happened = Happenings()
    happened.add(STARTED)
    happened.add(SWAPPED)
    happened.add(SWAPPED)
    for number in range(5_000):
        happened.add({"kind": "window_failed", "view": f"v{number}"})
    found = [each.event["kind"] for each in happened.newest(40)]
    assert found == ["window_failed"] * 37 + ["decision", "decision", "run_started"]
    for _ in range(5_000):
        happened.add(SWAPPED)
    found = [each.event["kind"] for each in happened.newest(40)]
    assert (found.count("window_failed"), found.count("decision")) == (20, 20)
