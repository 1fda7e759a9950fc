"""Take the pictures of docs/images: run the demo, and photograph its page while it runs.

    python docs/screenshots.py [--output out/screenshots]

Needs Debian's chromium and chromium-driver.
"""

from __future__ import annotations

import argparse
import base64
import json
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

from selenium.webdriver import Chrome

from penstock.page.child import page_beside

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests" / "browser"))
from browsing import browser, look, visit  # noqa: E402

IMAGES = ROOT / "docs" / "images"
WIDTH, HEIGHT = 1280, 960
#: tuples after which the run is worth a picture
ENOUGH = 60_000
#: seconds to wait for them, and for a chart to be drawn
PATIENCE, DRAWING = 1_800, 1.5
#: of each picture: its name, the page, the colours
PICTURES = (
    ("page-overview", "/", "light"),
    ("page-windows", "/windows/departures_by_origin", "dark"),
)


def main() -> None:
    """Run the demo and write the pictures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=ROOT / "out" / "screenshots", help="results folder")
    output = parser.parse_args().output
    shutil.rmtree(output, ignore_errors=True)
    command = [sys.executable, "-m", "penstock.cli.main", "demo", "--no-page", "--output", str(output)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as demo:
        try:
            with page_beside(output, "127.0.0.1", 0, None) as address:
                wait_for_tuples(address, demo)
                take(address)
        finally:
            demo.terminate()


def wait_for_tuples(address: str, demo: subprocess.Popen[bytes]) -> None:
    """Wait until the page reports ENOUGH tuples."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end and demo.poll() is None:
        with urllib.request.urlopen(f"{address}api/overview") as answer:
            if json.load(answer)["totals"]["tuples"] >= ENOUGH:
                return
        time.sleep(1)
    sys.exit(f"the demo has not read {ENOUGH:,} tuples")


def take(address: str) -> None:
    """Write each picture to docs/images."""
    IMAGES.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, browser(Path(folder) / "profile") as driver:
        for name, page, theme in PICTURES:
            look(driver, width=WIDTH, height=HEIGHT, theme=theme)
            visit(driver, address.rstrip("/") + page)
            time.sleep(DRAWING)
            (IMAGES / f"{name}.png").write_bytes(picture(driver))


def picture(driver: Chrome) -> bytes:
    """Return the screen as PNG."""
    return base64.b64decode(driver.execute_cdp_cmd("Page.captureScreenshot", {"format": "png"})["data"])


if __name__ == "__main__":
    main()
