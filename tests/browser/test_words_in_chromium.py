"""What the page says in words, and that its tables fit: over folders that are made without Spark."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from browsing import IS_INSTALLED, browser, complaints, look, visit
from selenium.webdriver import Chrome

from page_cases import event, page_folder, served
from penstock.spark.storage.documents import replace_json

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(
        not IS_INSTALLED, reason="/usr/bin/chromium and /usr/bin/chromedriver are not installed"
    ),
]

STREAM = {
    **{"name": "flights", "state": "running", "is_read": True, "selections": 2_000, "windows": 3},
    **{"rate": 480_000, "answered": 400_000, "arrives": 400_000, "backlog": "0 records", "lag": 0.5},
}
OVERVIEW: dict[str, Any] = {
    "run": {"state": "running"},
    "totals": {"views": 2_003, "tuples": 336_776, "quarantined": 0, "errors": 0},
    "streams": [STREAM],
    "lanes": [],
    "problems": [],
}


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chrome]:
    with browser(tmp_path_factory.mktemp("chromium") / "profile") as running:
        yield running


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a page, without a slash at its end."""
    layout = page_folder(tmp_path_factory.mktemp("words") / "out")
    with served(layout.output) as page:
        yield page.address.rstrip("/")


@pytest.fixture(autouse=True)
def _no_complaint(driver: Chrome) -> Iterator[None]:
    complaints(driver)
    yield
    assert complaints(driver) == []


def called(driver: Chrome, module: str, call: str, *arguments: object) -> Any:
    """What a function of a module of the page returns."""
    script = (
        "const done = arguments[arguments.length - 1];"
        f"import('/static/js/{module}.js').then((all) => done(all.{call}(...JSON.parse(arguments[0]))))"
    )
    return driver.execute_async_script(script, json.dumps(arguments))


def sentence(driver: Chrome, site: str, **changes: Any) -> str:
    """The first sentence of an overview that differs from OVERVIEW; fields of the stream by `stream`."""
    if driver.current_url != f"{site}/":
        visit(driver, f"{site}/")
    stream = {**STREAM, **changes.pop("stream", {})}
    said: str = called(driver, "pages/sentence", "sentence", {**OVERVIEW, "streams": [stream], **changes})
    return said


def test_a_run_that_has_read_nothing_is_starting(driver: Chrome, site: str) -> None:
    new = {"views": 2_003, "tuples": 0, "quarantined": 0, "errors": 0}
    assert sentence(driver, site, streams=[], totals=new) == "Starting: 2,003 views, no tuple read yet."
    assert sentence(driver, site, totals=new, stream={"is_read": False, "backlog": None}) == (
        "Starting: 2,000 rules and 3 window views, no tuple read yet."
    )
    assert sentence(driver, site, totals=new, stream={"is_read": False}) == (
        "Waiting for tuples: 2,000 rules and 3 window views, no tuple read yet."
    )
    assert sentence(driver, site, stream={"is_read": False, "state": "waiting"}) == (
        "Starting: 2,000 rules and 3 window views, no tuple read since this start."
    )


def test_a_run_says_by_which_figures_it_keeps_up(driver: Chrome, site: str) -> None:
    opening = "Answering 2,000 rules and 3 window views over 336,776 tuples of flights"
    assert sentence(driver, site) == (
        f"{opening}: keeps up: answers 480,000/s, arrives 400,000/s, 500 ms behind, nothing lost."
    )
    late = {"arrives": 500_000, "backlog": "90,000 records"}
    assert sentence(driver, site, stream=late) == (
        f"{opening}: falls behind: answers 480,000/s, arrives 500,000/s, 90,000 records wait, 500 ms behind, nothing lost."
    )
    replayed = {"arrives": None, "backlog": None}
    assert sentence(driver, site, stream=replayed) == (
        f"{opening}: answers 400,000/s, as fast as the source gives them, 500 ms behind, nothing lost."
    )


def test_a_broken_promise_is_not_hidden_by_a_load_that_is_bearable(driver: Chrome, site: str) -> None:
    visit(driver, f"{site}/")
    said = called(driver, "pages/promises", "standing", {"overloaded": 0, "broken": 10})
    assert said == "No view is overloaded. LOSS promise broken 10 times."
    assert called(driver, "pages/promises", "tone", {"overloaded": 0, "broken": 10}) == "note bad"


def test_numbers_side_by_side_have_as_many_digits_as_tell_them_apart(driver: Chrome, site: str) -> None:
    visit(driver, f"{site}/")
    assert called(driver, "format", "apart", 15.992567, 15.983767) == "15.99"
    assert called(driver, "format", "apart", 15.9926, 15.9921) == "15.993"
    assert called(driver, "format", "apart", 16, 16) == "16"


def test_lengths_and_axes_below_zero_are_shown_only_where_a_value_is(driver: Chrome, site: str) -> None:
    visit(driver, f"{site}/")
    assert called(driver, "format", "length", -3_660) == "-1 h 1 min"
    assert called(driver, "components/chart", "range", 0, 64_800)[0] == 0
    assert called(driver, "components/chart", "range", 3_600, 64_800)[0] == 0
    assert called(driver, "components/chart", "range", -5, 5)[0] < 0


def test_tables_fit_a_small_screen(driver: Chrome, site: str) -> None:
    look(driver, width=1280, theme="light")
    for page in ("/", "/windows", "/deadlines", "/plans"):
        visit(driver, site + page)
        wide = driver.execute_script(
            "return [...document.querySelectorAll('.card.flush')].map((each) => each.scrollWidth - each.clientWidth)"
        )
        assert max(wide, default=0) <= 0, page


def test_sinks_are_listed_with_what_is_wrong(driver: Chrome, tmp_path: Path) -> None:
    layout = page_folder(tmp_path / "out")
    trouble = {
        "state": "failed",
        "told": "sink alerts of view large failed: no answer",
        "since": "2026-01-01T10:00:00+00:00",
    }
    known = {
        "table.large": {
            "kind": "delta",
            "view": "large",
            "promise": "exactly once",
            "rows": 1_000,
            "deliveries": 7,
        },
        "alerts.large": {"kind": "http", "view": "large", "backlog": 4, "rejected": 2, "trouble": trouble},
    }
    layout.events.write_bytes(event(0, "run_started"))
    replace_json(
        layout.status, {"version": 1, "state": "ended", "time": "2026-01-01T00:01:00", "sinks": known}
    )
    with served(layout.output) as page:
        visit(driver, page.address)
        rows = driver.execute_script(
            "return [...document.querySelectorAll('table')].find((each) => each.caption.textContent === 'Sinks')"
            ".querySelectorAll('tbody tr').length"
        )
        assert rows == 2
        assert trouble["told"] in driver.find_element("tag name", "main").text
