"""Whether early answers kept their bound, of many views at a time."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from page_cases import SLOW_SECONDS
from penstock.page import judgements
from penstock.page.judgements import Judgement, Judgements, Revisions
from penstock.spark.results.window_schemas import FINAL
from penstock.spark.storage.layout import Layout

BOUND = {"epsilon": 0.1, "delta": 0.05}
VIEW = {"rows": 2, "final": 1, "standing": {"bound": BOUND}}
ALL_KEPT = Judgement(1, 0, 1, 0, 0)


def _kept() -> Revisions:
    """A window whose early answer was that of the final one."""
    table = pa.table({"n": [1.0, 1.0], "is_final": [False, True]})
    return Revisions(
        table, {FINAL: "is_final"}, {}, ["n"], np.zeros(2, np.int64), np.arange(2), is_whole=True
    )


@pytest.mark.parametrize(
    "error", [pa.ArrowNotImplementedError("struct"), pa.ArrowInvalid("x"), KeyError("x")]
)
def test_a_view_that_cannot_be_judged_leaves_the_others_theirs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, error: Exception
) -> None:
    def read(_: Layout, view: str, __: int) -> Revisions:
        if view == "odd":
            raise error
        return _kept()

    monkeypatch.setattr(judgements, "read_revisions", read)
    found = Judgements().of(Layout(tmp_path, tmp_path), {"odd": VIEW, "hours": VIEW}, SLOW_SECONDS)
    assert found == {"odd": None, "hours": ALL_KEPT}
    assert "cannot judge the windows of odd" in caplog.text


def test_a_long_read_keeps_no_other_answer_waiting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reads: list[str] = []
    is_reading, may_end = threading.Event(), threading.Event()

    def read(_: Layout, view: str, __: int) -> Revisions:
        reads.append(view)
        if view == "long":
            is_reading.set()
            assert may_end.wait(SLOW_SECONDS)
        return _kept()

    monkeypatch.setattr(judgements, "read_revisions", read)
    layout, known, views = Layout(tmp_path, tmp_path), Judgements(), {"long": VIEW, "hours": VIEW}
    first = threading.Thread(target=known.of, args=(layout, {"long": VIEW}, SLOW_SECONDS))
    first.start()
    assert is_reading.wait(SLOW_SECONDS)
    found: dict[str, Judgement | None] = {}
    second = threading.Thread(target=lambda: found.update(known.of(layout, views, SLOW_SECONDS)))
    second.start()
    second.join(5)
    was_answered = not second.is_alive()
    may_end.set()
    first.join(SLOW_SECONDS)
    second.join(SLOW_SECONDS)
    assert was_answered
    assert found == {"long": None, "hours": ALL_KEPT}
    assert sorted(reads) == ["hours", "long"]
    assert known.of(layout, views, 0) == {"long": ALL_KEPT, "hours": ALL_KEPT}
