"""Take the pictures of docs/images: photograph the page of a results folder.

    python docs/screenshots.py out/demo

Needs Debian's chromium and chromium-driver.
"""

from __future__ import annotations

import argparse
import base64
import sys
import tempfile
import time
from pathlib import Path

from selenium.webdriver import Chrome

from penstock.page.child import page_beside
from penstock.page.listening import Place

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests" / "browser"))
from browsing import browser, look, visit  # noqa: E402

IMAGES = ROOT / "docs" / "images"
WIDTH, HEIGHT = 1280, 960
#: seconds until charts are drawn
DRAWING = 1.5
#: of each picture: its name, the page, the colours
PICTURES = (
    ("page-overview", "/", "light"),
    ("page-windows", "/windows/departures_by_origin", "dark"),
)


def main() -> None:
    """Write each picture to docs/images."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, help="results folder of a run")
    IMAGES.mkdir(parents=True, exist_ok=True)
    place = Place.taken("127.0.0.1", 0, None)
    site = place.address.rstrip("/")
    with page_beside(parser.parse_args().folder, place):
        take(site)


def take(site: str) -> None:
    """Photograph the pages of a site."""
    with tempfile.TemporaryDirectory() as folder, browser(Path(folder) / "profile") as driver:
        for name, page, theme in PICTURES:
            look(driver, width=WIDTH, height=HEIGHT, theme=theme)
            visit(driver, site + page)
            time.sleep(DRAWING)
            (IMAGES / f"{name}.png").write_bytes(picture(driver))


def picture(driver: Chrome) -> bytes:
    """Return the screen as PNG."""
    return base64.b64decode(driver.execute_cdp_cmd("Page.captureScreenshot", {"format": "png"})["data"])


if __name__ == "__main__":
    main()
