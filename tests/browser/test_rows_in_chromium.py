"""The rows of a view in headless Chromium: all pages are reached, and a search that is cut off goes on."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from browsing import IS_INSTALLED, PATIENCE, browser, complaints, look, sticks_out, visit
from selenium.webdriver import Chrome
from selenium.webdriver.common.by import By
from selenium.webdriver.support.wait import WebDriverWait

from page_cases import page_folder, served
from penstock.page import rows
from penstock.spark.storage.formats import MANIFEST
from publishing import listed

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(
        not IS_INSTALLED, reason="/usr/bin/chromium and /usr/bin/chromedriver are not installed"
    ),
]

ROWS = 250


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a page over 260 rows of the view `large`; an answer looks at 100 of them and those of their batch."""
    layout = page_folder(tmp_path_factory.mktemp("rows") / "out")
    ids = np.arange(10, 10 + ROWS)
    table = pa.table({"id": ids, "note": [f"note {each}" for each in ids], "queries": [["large"]] * ROWS})
    pq.write_table(table, layout.matches("orders") / "2.parquet", row_group_size=50)
    file = listed("matches", layout.matches("orders") / "2.parquet", ROWS)
    figures = {"batch": 2, "tuples": ROWS, "matched": ROWS, "pairs": ROWS}
    ledger = layout.ledger.open()
    MANIFEST.replace(
        layout.manifests("orders")[2], {"first": 2, "last": 2, "files": [file], "batches": [figures]}
    )
    ledger.close()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(rows, "_MOST_LOOKED", 100)
        with served(layout.output) as page:
            yield page.address.rstrip("/")


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chrome]:
    with browser(tmp_path_factory.mktemp("chromium") / "profile") as running:
        yield running


def _shows(driver: Chrome, place: str) -> list[str]:
    """Waits until the line below the table says which rows it shows, and returns the ids of the first and the last."""
    shown = "return document.querySelector('.pager [role=status]')?.textContent"
    WebDriverWait(driver, PATIENCE).until(lambda driver: driver.execute_script(shown) == place)
    found = driver.execute_script(
        "return [...document.querySelectorAll('main tbody tr td:first-child')].map((cell) => cell.textContent)"
    )
    return [found[0], found[-1]]


def _press(driver: Chrome, button: str) -> None:
    found = driver.find_element(By.XPATH, f"//main//button[text()='{button}']")
    driver.execute_script("arguments[0].scrollIntoView({block: 'center'})", found)
    found.click()


def test_each_page_is_reached(driver: Chrome, site: str) -> None:
    look(driver, width=390, theme="light")
    complaints(driver)
    visit(driver, f"{site}/rows/large")
    assert _shows(driver, "1 to 100 of 260 rows") == ["259", "160"]
    _press(driver, "Next")
    assert _shows(driver, "101 to 200 of 260 rows") == ["159", "60"]
    _press(driver, "Next")
    assert _shows(driver, "201 to 260 of 260 rows") == ["59", "0"]
    _press(driver, "Previous")
    assert _shows(driver, "101 to 200 of 260 rows") == ["159", "60"]
    _press(driver, "Last")
    assert _shows(driver, "161 to 260 of 260 rows") == ["99", "0"]
    _press(driver, "First")
    assert _shows(driver, "1 to 100 of 260 rows") == ["259", "160"]
    assert sticks_out(driver) == []
    assert complaints(driver) == []


def test_a_search_says_how_far_it_looked_and_goes_on(driver: Chrome, site: str) -> None:
    look(driver, width=1280, theme="dark")
    visit(driver, f"{site}/rows/large?search=note+1")
    assert _shows(driver, "40 rows among 1 to 100 of 260 stored rows") == ["199", "160"]
    note = driver.find_element(By.CSS_SELECTOR, ".note").text
    assert note.startswith("The page looked at 100 of 260 stored rows and found 40.")
    _press(driver, "Look further")
    assert _shows(driver, "60 rows among 101 to 200 of 260 stored rows") == ["159", "100"]
    _press(driver, "Look further")
    assert _shows(driver, "10 rows among 201 to 260 of 260 stored rows") == ["19", "10"]
    assert driver.find_elements(By.CSS_SELECTOR, ".note") == []
    assert sticks_out(driver) == []
    assert complaints(driver) == []
