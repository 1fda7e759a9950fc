"""What the tests of the page share: a headless Chromium, and what it reported."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from selenium.webdriver import Chrome, ChromeOptions
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.support.wait import WebDriverWait

CHROMIUM, DRIVER = "/usr/bin/chromium", "/usr/bin/chromedriver"
IS_INSTALLED = bool(shutil.which(CHROMIUM) and shutil.which(DRIVER))
#: seconds that a page may take on a busy machine
PATIENCE = 60
_ARGUMENTS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
)


@contextmanager
def browser(profile: Path) -> Iterator[Chrome]:
    """Start a Chromium with an empty profile.

    Args:
        profile: folder of the profile, which does not exist.
    """
    options = ChromeOptions()
    options.binary_location = CHROMIUM
    for argument in (*_ARGUMENTS, f"--user-data-dir={profile}"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = Chrome(options=options, service=Service(DRIVER))
    try:
        driver.set_page_load_timeout(PATIENCE)
        yield driver
    finally:
        driver.quit()


def look(driver: Chrome, *, width: int, theme: str, height: int = 900) -> None:
    """Set the width in pixels, and the colours that the system prefers: light or dark."""
    screen = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", screen)
    features = [{"name": "prefers-color-scheme", "value": theme}]
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})


def visit(driver: Chrome, address: str) -> str:
    """Open a page, wait until it shows data, and return its heading."""
    driver.get(address)
    return heading(driver)


def heading(driver: Chrome) -> str:
    """Wait for the heading of the page, which appears with its data."""
    found = WebDriverWait(driver, PATIENCE).until(
        lambda driver: driver.execute_script(
            "const main = document.querySelector('main');"
            "return main.querySelector('.bone') ? null : main.querySelector('h1')?.textContent"
        )
    )
    return str(found)


def complaints(driver: Chrome) -> list[str]:
    """What the console reported since it was asked last, but for notes of the browser itself."""
    return [
        entry["message"] for entry in driver.get_log("browser") if entry["level"] in ("SEVERE", "WARNING")
    ]


def requests(driver: Chrome) -> set[str]:
    """The addresses that the page has asked."""
    return set(
        driver.execute_script("return performance.getEntriesByType('resource').map((entry) => entry.name)")
    )


def sticks_out(driver: Chrome) -> list[str]:
    """The elements that are wider than the screen, where the page scrolls to the side; none where it does not."""
    script = """
    if (document.documentElement.scrollWidth <= innerWidth) return [];
    return [...document.querySelectorAll('body *')].filter((each) => each.getBoundingClientRect().right > innerWidth + 1)
      .map((each) => `${each.tagName}.${each.className}`).slice(0, 9);
    """
    return list(driver.execute_script(script))
