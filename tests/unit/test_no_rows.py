"""`penstock results` of a view without rows says why on the standard error."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from page_cases import page_folder
from penstock.cli.main import main
from penstock.monitor.no_rows import no_rows_words
from penstock.spark.storage.documents import replace_json
from penstock.spark.storage.formats import CATALOG
from penstock.spark.storage.layout import Layout

pytestmark = pytest.mark.usefixtures("own_commits")

SELECTION = {"stream": "orders", "projection": None}
WINDOWS = {"stream": "orders", "id": "v:1"}
JOIN = {"streams": ["orders", "cities"], "lanes": [0]}
PLANNED = {"batch": 0, "age_seconds": 3.2}


def said(
    entry: dict[str, Any],
    state: str = "running",
    view: dict[str, Any] | None = None,
    **streams: dict[str, Any],
) -> str:
    """What is said of view v."""
    document = {"state": state, "pid": 7, "streams": streams, "views": {"v": view or {}}}
    return no_rows_words(document, "v", entry).removeprefix("view v: no rows. ")


@pytest.mark.parametrize(
    ("state", "stream", "told"),
    [
        ("never started", {}, "No batch is complete: no run has started."),
        ("dead", {"batch": -1}, "No batch is complete: the last run is dead."),
        ("starting", {}, "The run is starting."),
        ("running", {}, "No tuple of orders has arrived yet."),
        ("running", {"at_hand": PLANNED}, "The first batch of stream orders is running (3.2 s so far)."),
        # a dead run's batch does not run
        ("dead", {"at_hand": PLANNED}, "No batch is complete: the last run is dead."),
        ("running", {"batch": 2, "tuples": 1200}, "1,200 tuples of stream orders read, none matched."),
        ("ended", {"batch": 0, "tuples": 1}, "1 tuple of stream orders read, none matched."),
        (
            "running",
            {"batch": 0, "tuples": 5, "at_hand": {"batch": 1, "age_seconds": 1.0}},
            "5 tuples of stream orders read, none matched. Batch 1 of stream orders is running.",
        ),
    ],
)
def test_why_a_selection_has_no_rows(state: str, stream: dict[str, Any], told: str) -> None:
    assert said(SELECTION, state, orders=stream) == told


def test_a_ranking_without_final_rows_says_when_they_are_final() -> None:
    document = {"state": "running", "pid": 7, "streams": {"orders": {"batch": 3, "tuples": 9}}}
    entry = {"stream": "orders.running.0", "is_running": True}
    views = {"v": {"rows": 4}}
    told = no_rows_words({**document, "views": views}, "v", entry, final_only=True)
    assert told.startswith("view v: no final rows yet. Rows of rankings and other running views become final")
    assert "retention" not in told
    assert "no final rows" not in no_rows_words({**document, "views": {"v": {}}}, "v", entry, final_only=True)


def test_input_of_which_nothing_could_be_read_is_named() -> None:
    told = said(SELECTION, orders={"batch": 0, "tuples": 0, "quarantined": {"malformed csv record": 3}})
    assert told.startswith(
        "0 tuples of stream orders read, none matched. Stream orders: NOTHING READ: all 3 records"
    )


def test_tuples_at_which_an_expression_failed_are_counted() -> None:
    stream = {"batch": 0, "tuples": 400, "errors": {"v": 400, "other": 2}, "raising": {"v": "CAST(s AS INT)"}}
    entry = {"stream": "orders.running.0", "is_running": True}
    assert said(entry, "ended", orders=stream) == (
        "400 tuples of stream orders read, no group has a row. An expression of the view failed at 400 tuples, which are left out: "
        "`CAST(s AS INT)`. See penstock status."
    )
    del stream["raising"]
    assert said(WINDOWS, orders=stream).endswith(
        "failed at 400 tuples, which are left out. See penstock status."
    )
    assert "failed" not in said(WINDOWS, orders={**stream, "errors": {"other": 2}})


def test_why_views_with_windows_and_joins_have_no_rows() -> None:
    stream = {"batch": 3, "tuples": 5}
    assert said(WINDOWS, orders=stream) == "5 tuples of stream orders read, no window has a row."
    behind = {"not_answered": [0, 3]}
    assert said(WINDOWS, view=behind, orders=stream).endswith(
        " The windows of batches 0 to 3 are not answered yet."
    )
    assert "not answered" not in said(WINDOWS, "stopped", behind, orders=stream)
    told = said(JOIN, view={"backlog": {"orders": 2, "cities": 0}}, orders=stream, cities={"batch": 0})
    assert told == (
        "5 tuples of stream orders read; 0 tuples of stream cities read, none joined. Not answered yet: 2 batches of orders."
    )
    # a view over another view
    assert said({"stream": "rows of w", "id": "v:1"}, orders=stream).startswith(
        "5 tuples of stream orders read"
    )


def _results(*arguments: object) -> int:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(sys, "argv", ["penstock", "results", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            main()
    return int(ended.value.code or 0)


@pytest.mark.parametrize("form", ["csv", "json", "table"])
def test_the_words_are_on_the_standard_error_only(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], form: str
) -> None:
    layout = page_folder(tmp_path / "out")
    for options in ([], ["--limit", "0"]):
        assert _results(layout.output, "silent", "--format", form, *options) == 0
        printed = capsys.readouterr()
        assert printed.err == "view silent: no rows. 20 tuples of stream orders read, none matched.\n"
        assert printed.out.startswith({"csv": '"id","note"\n', "json": "", "table": "  silent: 0"}[form])
    assert _results(layout.output, "large", "--format", form) == 0
    assert capsys.readouterr().err == ""


def test_before_the_first_batch_is_complete(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    layout = page_folder(tmp_path / "out")
    layout.manifests("orders").remove(layout.manifests("orders").numbers())
    layout.events.unlink()
    for form in ("csv", "json", "table"):
        for options in ([], ["--limit", "0"]):
            assert _results(layout.output, "large", "--format", form, *options) == 0
            assert "No batch is complete: the last run is dead." in capsys.readouterr().err


def test_windows_that_are_not_answered_are_no_mistake(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    views = {"sums": {"stream": "orders", "id": "sums:1", "groups": []}}
    layout = page_folder(tmp_path / "out", views)
    assert _results(layout.output, "sums", "--format", "json") == 0
    printed = capsys.readouterr()
    assert (printed.out, printed.err) == (
        "",
        "view sums: no rows. 20 tuples of stream orders read, no window has a row.\n",
    )
    assert _results(layout.output, "sum") == 2


def test_a_folder_without_views_says_whether_a_run_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    layout = Layout(tmp_path / "out", tmp_path / "out" / "_penstock" / "checkpoint")
    layout.open().close()
    assert _results(layout.output, "v") == 2
    assert (
        "No run has declared a view: no run has started. Start one: penstock run" in capsys.readouterr().err
    )
    replace_json(
        layout.status, {"version": 1, "starting": {"pid": 1 << 23, "time": "2026-01-01T00:00:00+00:00"}}
    )
    assert _results(layout.output, "v") == 2
    assert "No run has declared a view: the last run is dead." in capsys.readouterr().err
    CATALOG.replace(layout.catalog, {"streams": {}, "views": {}})
    assert _results(layout.output, "v") == 2
    assert "View v does not exist" in capsys.readouterr().err
