"""Questions on the page of a view in headless Chromium; a stand-in takes Spark's place."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest
from browsing import IS_INSTALLED, PATIENCE, browser, complaints, heading, look, requests, sticks_out, visit
from selenium.webdriver import Chrome
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.wait import WebDriverWait

from page_cases import QUOTED, SCRIPT, page_folder, served
from penstock.page import asking
from penstock.page.asking import Script
from penstock.provenance import (
    Backtest,
    Conjunct,
    Count,
    Judged,
    Partners,
    Passed,
    Revision,
    TupleWindow,
    Value,
    Why,
)

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(
        not IS_INSTALLED, reason="/usr/bin/chromium and /usr/bin/chromedriver are not installed"
    ),
]

AXE = Path(__file__).parents[2] / ".cache" / "axe" / "axe.min.js"
MARKUP = "<script>alert(2)</script>"
LONG = "x" * 3_000
PARTS = (
    Judged("id = 7", "test", "false", values=(Value("id", 1),)),
    Judged("1 / id > 0", "test", "error", "Division by zero.", (Value("1 / id", None, "Division by zero."),)),
)
WHY = Why(
    "large",
    "window",
    "orders",
    values={"id": 1, "note": MARKUP},
    missing=("seen",),
    unknown=(LONG,),
    conjuncts=(
        Conjunct("inner", Judged(f"note <> '{MARKUP}'", "test", "true", values=(Value("note", MARKUP),))),
        Conjunct("large", Judged("id = 7 OR 1 / id > 0", "or", "error", parts=PARTS)),
    ),
    windows=(
        TupleWindow(
            "2026-01-01T00:00:00",
            "2026-01-01T01:00:00",
            {"city": MARKUP},
            "final",
            revisions=(Revision(0, 0.93, False, "upsert", {"n": 4}),),
        ),
    ),
    partners=(
        Partners("c", "cities", 3, 1, ({"name": LONG},)),
        Partners("w", "w", None, None, (), "unknown"),
    ),
    joined=2,
    notes=(MARKUP,),
)
TRIED = Backtest(
    "draft",
    "SELECT 1",
    {"orders": "/in"},
    {"orders": 1_200},
    1,
    300,
    2,
    "hour",
    (*(Count(f"2026-01-01 {hour:02}:00:00", 40, hour) for hour in range(24)), Count("", 9, 1)),
    ({"id": 1, "note": MARKUP},),
    (Passed("id > 1", 800), Passed(f"note = '{MARKUP}'", 300)),
)
STAND_IN = """#!{python}
import os, sys
if "sleeps" in " ".join(sys.argv):
    os.mkdir({report!r})
    sys.stdin.read()
    os.mkdir({report!r} + "-ended")
if "refused" in " ".join(sys.argv):
    sys.stderr.write("penstock: Column x does not exist.\\n  SELECT x\\n         ^\\n")
    sys.exit(2)
command = sys.argv[sys.argv.index("penstock.cli.main") + 1]
print({{"why": {why!r}, "try": {tried!r}}}[command])
"""


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the tests; the stand-in says there whether it is asked and ends."""
    return tmp_path_factory.mktemp("asking")


@pytest.fixture(scope="module")
def site(root: Path) -> Iterator[str]:
    """The address of the page, without a slash at its end."""
    stand_in = root / "stand-in"
    why, tried = json.dumps(WHY.to_dict()), json.dumps(TRIED.to_dict())
    stand_in.write_text(
        STAND_IN.format(python=sys.executable, why=why, tried=tried, report=str(root / "asked"))
    )
    stand_in.chmod(0o755)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(asking.sys, "executable", str(stand_in))
        with served(page_folder(root / "out").output, script=Script(Path("/rules/it's.sql"))) as page:
            yield page.address.rstrip("/")


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chrome]:
    with browser(tmp_path_factory.mktemp("chromium") / "profile") as running:
        yield running


def _part(driver: Chrome, name: str) -> WebElement:
    """A part of the page, which appears after the heading."""
    found: list[WebElement] = WebDriverWait(driver, PATIENCE).until(
        lambda driver: [
            each
            for each in driver.find_elements(By.CSS_SELECTOR, "main section")
            if each.get_attribute("aria-label") == name
        ]
    )
    return found[0]


def _answered(driver: Chrome, name: str, button: str) -> str:
    """Asks, and returns what the part of the page shows then."""
    asks = _part(driver, name).find_element(By.XPATH, f".//button[text()='{button}']")
    # on a narrow screen the head of the page remains above
    driver.execute_script("arguments[0].scrollIntoView({block: 'center'})", asks)
    asks.click()
    found = WebDriverWait(driver, PATIENCE).until(
        lambda driver: _part(driver, name).find_elements(By.CSS_SELECTOR, ".answer, .reason")
    )
    return str(found[0].text)


@pytest.mark.parametrize(("width", "theme"), [(1280, "light"), (390, "dark")])
def test_questions_are_answered_on_the_page(driver: Chrome, site: str, width: int, theme: str) -> None:
    look(driver, width=width, theme=theme)
    complaints(driver)
    visit(driver, f"{site}/queries/large")
    why = _answered(driver, "Why does a tuple not match?", "Ask")
    assert why.startswith("error The tuple does not match.") or why.startswith("error\nThe tuple")
    assert all(
        text in why for text in (MARKUP, "id = 7", "Division by zero.", "coverage 93 %", "1 of 3 tuples")
    )
    parts = _answered(driver, "Parts of the clause", "Count")
    assert all(
        text in parts for text in ("1,200 tuples of orders (/in)", "id > 1", "800 (66.7 %)", "300 (25 %)")
    )
    tried = _answered(driver, "Try a draft", "Try")
    assert all(
        text in tried for text in ("300 matches in 1,200 tuples", "2 tuples no match", "2026-01-01 23:00:00")
    )
    assert driver.execute_script("return document.querySelectorAll('main script').length") == 0
    assert sticks_out(driver) == []
    assert {address for address in requests(driver) if not address.startswith(f"{site}/")} == set()
    if AXE.is_file():
        driver.execute_script(AXE.read_text())
        found = driver.execute_async_script(
            "const done = arguments[arguments.length - 1]; axe.run().then((result) => done(result.violations))"
        )
        grave = [
            (each["id"], each["nodes"][0]["html"])
            for each in found
            if each["impact"] in ("serious", "critical")
        ]
        assert grave == []
    assert complaints(driver) == []


def test_what_was_typed_and_answered_remains_when_the_run_changes(driver: Chrome, site: str) -> None:
    look(driver, width=1280, theme="light")
    visit(driver, f"{site}/queries/large")
    field = _part(driver, "Try a draft").find_element(By.TAG_NAME, "textarea")
    assert field.get_attribute("value").startswith("SELECT * FROM orders WHERE")
    field.clear()
    field.send_keys("SELECT refused")
    assert "Column x does not exist.\n  SELECT x" in _answered(driver, "Try a draft", "Try")
    # the page shows its ages anew every 5 s
    driver.execute_async_script("setTimeout(arguments[0], 6000)")
    assert field.get_attribute("value") == "SELECT refused"
    assert _part(driver, "Try a draft").find_elements(By.CSS_SELECTOR, ".reason")
    complaints(driver)


def test_the_same_question_as_a_command_can_be_copied(driver: Chrome, site: str) -> None:
    look(driver, width=1280, theme="light")
    for view in ("large", SCRIPT, QUOTED):
        visit(driver, f"{site}/queries/{quote(view, safe='')}")
        part = _part(driver, "Why does a tuple not match?")
        part.find_element(By.TAG_NAME, "summary").click()
        command = part.find_element(By.CSS_SELECTOR, "details code").text
        shell = f"set -- {command}; printf '%s\\n' \"$@\""
        words = subprocess.run(
            ["sh", "-c", shell], capture_output=True, text=True, check=True
        ).stdout.splitlines()
        assert words[:4] == ["penstock", "why", "/rules/it's.sql", "--row"]
        assert set(json.loads(words[4])) == {"id", "note"}
        assert words[-1] == view


def test_a_question_ends_when_the_reader_opens_another_page(driver: Chrome, site: str, root: Path) -> None:
    def wait_for(path: Path) -> None:
        WebDriverWait(driver, PATIENCE).until(lambda _: path.exists())

    look(driver, width=1280, theme="light")
    complaints(driver)
    visit(driver, f"{site}/queries/large")
    part = _part(driver, "Try a draft")
    field = part.find_element(By.TAG_NAME, "textarea")
    field.clear()
    field.send_keys("SELECT sleeps")
    part.find_element(By.XPATH, ".//button[text()='Try']").click()
    wait_for(root / "asked")
    driver.find_element(By.CSS_SELECTOR, "nav a[href='/queries']").click()
    wait_for(root / "asked-ended")
    assert heading(driver) == "Queries"
    driver.back()
    WebDriverWait(driver, PATIENCE).until(lambda driver: driver.find_elements(By.TAG_NAME, "textarea"))
    assert "The tuple does not match." in _answered(driver, "Why does a tuple not match?", "Ask")
    assert complaints(driver) == []
