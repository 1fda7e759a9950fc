"""The sinks of the page: as the status has them, and what they failed with last."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from page_cases import SCRIPT, event, page_folder, served
from penstock.page.sinks import sinks
from penstock.spark.storage.documents import replace_json

TOLD = "sink alerts of view large failed: ConnectionError: no answer"
KNOWN: dict[str, Any] = {
    "table.large": {
        **{"kind": "delta", "view": "large", "promise": "exactly once", "deliveries": 7, "rows": 1_000},
        **{"backlog": 0, "backlog_since": None},
    },
    "alerts.large": {
        **{"kind": "http", "view": "large", "promise": "at least once", "deliveries": 3, "rows": 12},
        **{"backlog": 4, "backlog_since": 1_000.0, "rejected": 2, "missed": 5},
        "trouble": {
            "state": "retrying",
            "told": TOLD,
            "since": "2026-01-01T10:00:00+00:00",
            "tried_until": 1e12,
        },
    },
    "function.v": {"kind": "function", "view": "v", "rows": None},
}


def _document(state: str) -> dict[str, Any]:
    return {"state": state, "sinks": KNOWN}


def test_a_sink_has_its_state_backlog_error_and_rows() -> None:
    good, bad, plain = sinks(_document("running"))
    assert good == {
        **{"name": "table.large", "kind": "delta", "view": "large", "state": "running", "error": None},
        **{"promise": "exactly once", "deliveries": 7, "rows": 1_000, "backlog": 0, "behind": None},
        **{"rejected": 0, "missed": 0},
    }
    assert (bad["state"], bad["error"], bad["backlog"], bad["rows"]) == ("retrying", TOLD, 4, 12)
    assert bad["behind"] == pytest.approx(time.time() - 1_000, abs=60)
    assert (bad["rejected"], bad["missed"]) == (2, 5)
    assert (plain["rows"], plain["deliveries"], plain["backlog"]) == (None, 0, 0)


def test_a_run_that_is_over_keeps_the_last_error() -> None:
    good, bad, _ = sinks(_document("ended"))
    assert (good["state"], bad["state"], bad["error"], bad["behind"]) == ("ended", "failed", TOLD, None)


def test_the_overview_lists_them(tmp_path: Path) -> None:
    layout = page_folder(tmp_path / "out")
    layout.events.write_bytes(event(0, "run_started"))
    known = {**KNOWN, f"t.{SCRIPT}": {"kind": "http", "view": SCRIPT}}
    replace_json(
        layout.status, {"version": 1, "state": "ended", "time": "2026-01-01T00:01:00", "sinks": known}
    )
    with served(layout.output) as page:
        found = page.get("/api/overview").json()["sinks"]
    assert [each["name"] for each in found] == list(known)
    assert json.dumps(found)
