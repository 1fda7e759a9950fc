"""Whether a window view keeps its MAX_ERROR promise: all readers of a folder say the same."""

from __future__ import annotations

import pytest

from penstock.monitor.overview import view_rows
from penstock.monitor.problems import problem_lines
from penstock.monitor.promises import Promise
from status_cases import large_document

BOUND = {"epsilon": 0.05, "delta": 0.05}


@pytest.mark.parametrize(
    ("final", "promised", "within", "state", "words"),
    [
        (0, False, None, "unknown", "not yet known (0 of 20 final windows)"),
        (8, False, 1.0, "unknown", "not yet known (8 of 20 final windows)"),
        (8, True, 0.5, "unknown", "not yet known (8 of 20 final windows)"),
        (25, False, 0.5, "unknown", "not yet known (25 final windows, too few to learn slack from)"),
        (20, True, None, "active", "active"),
        (20, True, 0.95, "kept", "kept"),
        (20, True, 0.949, "broken", "broken"),
    ],
)
def test_a_promise_is_judged_once_enough_windows_are_final(
    final: int, promised: bool, within: float | None, state: str, words: str
) -> None:
    view = {"final": final, "within": within, "standing": {"promised": promised, "bound": BOUND}}
    promise = Promise.of(view)
    assert promise is not None
    assert (promise.state, promise.words) == (state, words)
    document = large_document()
    document["views"]["hourly_00"] |= view
    (row,) = (row for row in view_rows(document) if row.name == "hourly_00")
    assert (row.promise, row.is_broken) == (words, state == "broken")
    broken = [line for line in problem_lines(document) if "hourly_00: MAX_ERROR promise broken" in line]
    assert len(broken) == (state == "broken")


def test_final_windows_that_slack_is_not_learned_from_are_told_apart() -> None:
    """Windows that began before the view was watched are final, and nothing is learned from them, whether windows overlap or not."""
    standing = {"promised": False, "bound": BOUND, "slack_figures": {"known": 5, "needed": 20}}
    promise = Promise.of({"final": 156, "within": 0.9, "standing": standing})
    assert promise is not None
    told = "not yet known (156 final windows; slack is learned from 5 of 20 that it needs)"
    assert (promise.state, promise.words) == ("unknown", told)


def test_a_broken_promise_says_by_how_much() -> None:
    promise = Promise.of({"final": 20, "within": 0.9, "standing": {"promised": True, "bound": BOUND}})
    assert promise is not None
    assert promise.fault == (
        "MAX_ERROR promise broken: 90 % of the early answers were within the bound, 95 % is asked for"
    )


def test_a_view_without_a_bound_promises_nothing() -> None:
    assert Promise.of({"final": 20, "standing": {"promised": True}}) is None
    assert Promise.of({"final": 20}) is None
