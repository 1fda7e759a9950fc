"""The page in headless Chromium, over the results folder of a real run with hostile names, records and rows."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from browsing import (
    IS_INSTALLED,
    PATIENCE,
    browser,
    complaints,
    heading,
    look,
    requests,
    sticks_out,
    visit,
)
from pyspark.sql import SparkSession
from selenium.webdriver import Chrome, Keys
from selenium.webdriver.common.by import By
from selenium.webdriver.support.wait import WebDriverWait

from forms import ALL
from penstock.page.child import page_beside
from penstock.page.listening import Place
from penstock.spark.engine import Engine
from penstock.trigger import Trigger

pytestmark = [
    pytest.mark.browser,
    pytest.mark.spark,
    pytest.mark.skipif(
        not IS_INSTALLED, reason="/usr/bin/chromium and /usr/bin/chromedriver are not installed"
    ),
]

AXE = Path(__file__).parents[2] / ".cache" / "axe" / "axe.min.js"
HOSTILE = "<script>document.title = 'owned'</script>\"'&<img src=x onerror=alert(1)>/a?b#c%20"
MARKUP = "<script>alert(2)</script>"
VIEWS = {
    HOSTILE: "SELECT id, name AS `<b>name</b>` FROM orders WHERE amount > 10",
    "large": "SELECT * FROM orders WHERE amount > 900 AND name <> 'x' OR 1000 / amount > 900",
    "never": "SELECT * FROM orders WHERE amount > 5000",
    "sums": "SELECT /*+ MAX_ERROR(0.1, 0.9) */ name, window(seen, '10 minutes') AS w, count(*) AS n, sum(amount) AS total "
    "FROM orders GROUP BY name, w",
    "pairs": "SELECT a.id AS left_id, b.id AS right_id FROM orders a JOIN orders b ON a.name = b.name AND a.id < b.id "
    "AND b.seen BETWEEN a.seen - INTERVAL 2 MINUTES AND a.seen + INTERVAL 2 MINUTES",
    "in_time": "SELECT /*+ DEADLINE('60 seconds') */ window(seen, '10 minutes') AS w, count(*) AS n FROM orders GROUP BY w",
}
PAGES = (
    "/",
    "/queries",
    "/queries/large",
    f"/queries/{quote(HOSTILE, safe='')}",
    "/windows",
    "/windows/sums",
    "/windows/in_time",
    "/plans",
    "/deadlines",
    "/rows",
    "/rows/pairs",
    f"/rows/{quote(HOSTILE, safe='')}",
    "/quarantine",
    "/quarantine/orders",
)
#: how often the list of queries was loaded
LOADS = "return performance.getEntriesByType('resource').filter((each) => each.name.includes('/api/views')).length"
LOOKS = [(1280, "light"), (390, "dark"), *([(1280, "dark"), (390, "light")] if ALL else [])]


@pytest.fixture(scope="module")
def folder(_session: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The results folder of a run with views of every kind."""
    root = tmp_path_factory.mktemp("run")
    source = root / "in"
    source.mkdir()
    for number in range(3):
        lines = [
            f"{number * 40 + row},{row * 37 % 1000},{MARKUP if row % 9 == 0 else 'north'},2026-01-01 0{number}:{row}:00"
            for row in range(10, 50)
        ]
        lines.append(f"{MARKUP},much,{'x' * 10_000},never")
        (source / f"{number}.csv").write_text("\n".join(lines) + "\n")
    table = (
        "CREATE TABLE orders (id BIGINT, amount INT, name STRING, seen TIMESTAMP) USING csv "
        f"OPTIONS (path '{source}', event_time 'seen', max_files_per_trigger '1')"
    )
    run = (
        Engine(_session, shards=1)
        .execute(table)
        .add_views(VIEWS)
        .start(root / "out", trigger=Trigger.available_now(ended=True))
    )
    try:
        run.await_termination(900)
    finally:
        run.stop()
    return root / "out"


@pytest.fixture(scope="module")
def site(folder: Path) -> Iterator[str]:
    """The address of the page, without a slash at its end."""
    place = Place.taken("127.0.0.1", 0, None)
    address = place.address
    with page_beside(folder, place):
        yield address.rstrip("/")


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chrome]:
    with browser(tmp_path_factory.mktemp("chromium") / "profile") as running:
        yield running


@pytest.fixture(autouse=True)
def _no_complaint(driver: Chrome) -> Iterator[None]:
    complaints(driver)
    yield
    assert complaints(driver) == []


@dataclass(frozen=True)
class Seen:
    """What a page showed.

    Attributes:
        title: its heading.
        wide: elements that stick out.
        requests: the addresses that it asked.
        complaints: of the console.
        embedded: scripts, images and bold texts in its content.
        ground: the colour of its background.
        violations: what axe found; nothing where it is not there.
    """

    title: str
    wide: list[str]
    requests: set[str]
    complaints: list[str]
    embedded: int
    ground: str
    violations: list[dict[str, Any]]


@pytest.fixture(scope="module", params=LOOKS, ids=lambda look: f"{look[0]}-{look[1]}")
def seen(driver: Chrome, site: str, request: pytest.FixtureRequest) -> tuple[str, dict[str, Seen]]:
    """A theme, and every page as it looks with it at some width."""
    width, theme = request.param
    look(driver, width=width, theme=theme)
    complaints(driver)
    return theme, {page: _seen(driver, site + page) for page in PAGES}


def _seen(driver: Chrome, address: str) -> Seen:
    title = visit(driver, address)
    wide, asked, told = sticks_out(driver), requests(driver), complaints(driver)
    embedded = driver.execute_script(
        "return document.querySelectorAll('main script, main img, main b').length"
    )
    ground = driver.execute_script("return getComputedStyle(document.documentElement).backgroundColor")
    violations: list[dict[str, Any]] = []
    if AXE.is_file():
        driver.execute_script(AXE.read_text())
        violations = driver.execute_async_script(
            "const done = arguments[arguments.length - 1];"
            "axe.run({ runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'best-practice'] }).then((result) => done(result.violations))"
        )
    return Seen(title, wide, asked, told, embedded, ground, violations)


def test_every_page_fits_and_asks_its_own_origin_alone(site: str, seen: tuple[str, dict[str, Seen]]) -> None:
    theme, pages = seen
    for page, shown in pages.items():
        assert shown.title not in ("", "This page has no data", "No such page"), page
        assert shown.wide == [], page
        assert {address for address in shown.requests if not address.startswith(f"{site}/")} == set(), page
        assert shown.complaints == [], page
        assert shown.ground == ("rgb(245, 247, 248)" if theme == "light" else "rgb(14, 19, 23)"), page


@pytest.mark.skipif(not AXE.is_file(), reason=".cache/axe/axe.min.js does not exist: `make axe` fetches it")
def test_axe_finds_no_serious_violation(seen: tuple[str, dict[str, Seen]]) -> None:
    for page, shown in seen[1].items():
        serious = [
            (each["id"], each["nodes"][0]["html"][:200], each["nodes"][0]["failureSummary"])
            for each in shown.violations
            if each["impact"] in ("serious", "critical")
        ]
        assert serious == [], page


def test_what_pages_show_is_text(seen: tuple[str, dict[str, Seen]]) -> None:
    assert {page: shown.embedded for page, shown in seen[1].items() if shown.embedded} == {}


def test_the_first_screen_says_in_a_sentence_what_the_run_did(driver: Chrome, site: str) -> None:
    look(driver, width=1280, theme="light")
    assert visit(driver, f"{site}/").startswith(
        "Answered 3 rules, 1 window view, 1 join and 1 view with a deadline over 120 tuples of orders: "
        "3 records in quarantine"
    )


def test_hostile_names_records_and_columns_are_text(driver: Chrome, site: str) -> None:
    look(driver, width=1280, theme="light")
    name = quote(HOSTILE, safe="")
    assert visit(driver, f"{site}/queries/{name}") == HOSTILE
    assert "owned" not in driver.title.split(" · ")[-1]
    assert "<b>name</b>" in driver.find_element(By.CSS_SELECTOR, "main .card.flush table").text
    visit(driver, f"{site}/quarantine/orders")
    assert MARKUP in driver.find_element(By.TAG_NAME, "main").text


def test_search_sort_and_filters_are_part_of_the_address(driver: Chrome, site: str) -> None:
    look(driver, width=1280, theme="light")
    visit(driver, f"{site}/queries?only=never&kind=selection")
    assert _names(driver) == ["never"]
    visit(driver, f"{site}/queries")
    field = driver.find_element(By.CSS_SELECTOR, "input[type=search]")
    field.send_keys("larg")
    WebDriverWait(driver, PATIENCE).until(lambda driver: _names(driver) == ["large"])
    assert driver.current_url == f"{site}/queries?search=larg"
    assert driver.switch_to.active_element == field
    assert field.get_attribute("value") == "larg"


def test_back_and_forward_move_between_pages(driver: Chrome, site: str) -> None:
    look(driver, width=1280, theme="light")
    visit(driver, f"{site}/")
    driver.find_element(By.LINK_TEXT, "Queries").click()
    _wait_for_heading(driver, "Queries")
    driver.find_element(By.LINK_TEXT, "large").click()
    _wait_for_heading(driver, "large")
    assert driver.current_url == f"{site}/queries/large"
    driver.back()
    _wait_for_heading(driver, "Queries")
    driver.forward()
    _wait_for_heading(driver, "large")
    assert driver.find_element(By.CSS_SELECTOR, "nav [aria-current=page]").text == "Queries"


def test_pages_that_were_left_keep_no_connection(driver: Chrome, site: str) -> None:
    """A browser has six to a server: where left pages kept theirs, the seventh page waited for a minute."""
    driver.set_page_load_timeout(PATIENCE / 2)
    try:
        for _ in range(8):
            visit(driver, f"{site}/plans")
            visit(driver, f"{site}/windows")
    finally:
        driver.set_page_load_timeout(PATIENCE)


def test_the_keyboard_reaches_the_content_and_each_page(driver: Chrome, site: str) -> None:
    look(driver, width=1280, theme="light")
    visit(driver, f"{site}/")
    seen = []
    for _ in range(10):
        driver.switch_to.active_element.send_keys(Keys.TAB)
        active = driver.switch_to.active_element
        seen.append(active.text)
        assert driver.execute_script("return getComputedStyle(arguments[0]).outlineStyle", active) == "solid"
    assert seen[0] == "Skip to the content"
    assert seen[2:9] == ["Overview", "Queries", "Windows", "Plans", "Deadlines", "Rows", "Quarantine"]


def test_the_theme_that_the_reader_chose_remains(driver: Chrome, site: str) -> None:
    look(driver, width=1280, theme="light")
    visit(driver, f"{site}/")
    button = driver.find_element(By.CSS_SELECTOR, "#foot button")
    button.click()
    button.click()
    assert button.text == "Theme: dark"
    driver.refresh()
    heading(driver)
    assert driver.execute_script("return document.documentElement.dataset.theme") == "dark"
    driver.execute_script("localStorage.clear()")


def test_a_change_appears_within_two_seconds_and_leaves_what_the_reader_typed(
    driver: Chrome, folder: Path, site: str
) -> None:
    look(driver, width=1280, theme="light")
    visit(driver, f"{site}/queries?search=a")
    driver.execute_script("window.scrollTo(0, 40)")
    field = driver.find_element(By.CSS_SELECTOR, "input[type=search]")
    field.click()
    batch = next(
        event for event in map(json.loads, (folder / "events.jsonl").open()) if event["kind"] == "batch"
    )
    # the page loads once more when it is connected
    time.sleep(3)
    before, written = driver.execute_script(LOADS), time.time()
    with (folder / "events.jsonl").open("a") as events:
        events.write(json.dumps({**batch, "batch": batch["batch"] + 900}) + "\n")
    WebDriverWait(driver, PATIENCE, 0.1).until(lambda driver: driver.execute_script(LOADS) > before)
    assert time.time() - written < 2 or _is_busy(), "a change took more than two seconds"
    assert driver.switch_to.active_element == field
    assert field.get_attribute("value") == "a"


def test_a_server_that_is_gone_is_reported(driver: Chrome, folder: Path) -> None:
    look(driver, width=1280, theme="light")
    place = Place.taken("127.0.0.1", 0, None)
    address = place.address
    with page_beside(folder, place):
        visit(driver, address)
    note = driver.find_element(By.ID, "connection")
    WebDriverWait(driver, PATIENCE).until(lambda _: note.is_displayed())
    assert note.text.startswith("Not connected. You see the state of ")
    driver.get("about:blank")
    complaints(driver)


def _names(driver: Chrome) -> list[str]:
    script = "return [...document.querySelectorAll('main tbody th a')].map((each) => each.textContent)"
    return list(driver.execute_script(script))


def _wait_for_heading(driver: Chrome, text: str) -> None:
    WebDriverWait(driver, PATIENCE).until(lambda driver: heading(driver) == text)


def _is_busy() -> bool:
    return os.getloadavg()[0] > (os.cpu_count() or 1)
