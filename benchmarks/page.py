"""The page beside a run of 100,000 rules and 500 window views: what it costs the run, and how soon a browser shows it.

Two streams over Parquet files: one with the rules, one with window views that differ in WHERE alone. The run answers all files, with
the page, which Chromium has open, and without it, in turn. Then each page is opened in a new Chromium: milliseconds to the first
contentful paint, and bytes of the script's heap.

The exit code is 1 where, by the medians, the run with the page answers less than 98 % of the tuples a second, a first paint takes 1.5 s
or more, or a page takes 200 MB.

Run: python benchmarks/page.py [--small]      (Debian's chromium and chromium-driver are needed)
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession
from selenium.webdriver import Chrome, ChromeOptions
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.support.wait import WebDriverWait

from expectations import Expectations
from penstock.page.child import page_beside
from penstock.page.listening import Place
from penstock.spark.engine import Engine
from penstock.spark.sessions.build import build_session
from penstock.trigger import Trigger

OUTPUT = Path(__file__).resolve().parent.parent / "out" / "bench"
RULES, VIEWS, ROUNDS = 100_000, 500, 3
FILES, TUPLES, WINDOW_TUPLES = 24, 1_000_000, 20_000
PAGES = ("/", "/queries", "/windows", "/plans")
LEAST_SHARE, MOST_PAINT_MS, MOST_HEAP = 0.98, 1_500.0, 200e6
CHROMIUM, DRIVER = "/usr/bin/chromium", "/usr/bin/chromedriver"
PAINT = (
    "return performance.getEntriesByName('first-contentful-paint').map((each) => each.startTime)[0] ?? null"
)
SHOWN = "return document.querySelector('main .bone') ? null : document.querySelector('main h1')?.textContent"


def write_tuples(folder: Path, files: int) -> None:
    """The files of both streams."""
    rng = np.random.default_rng(5)
    for number in range(files):
        rules = {"id": np.arange(TUPLES) + number * TUPLES, "amount": rng.random(TUPLES) * 1e6}
        times = (np.arange(WINDOW_TUPLES) + number * WINDOW_TUPLES) * 5_000 + 1_767_225_600_000_000
        windows = {
            "ts": pa.array(times, pa.timestamp("us", "UTC")),
            "k": rng.integers(0, 20, WINDOW_TUPLES),
            "x": rng.integers(0, 1_000, WINDOW_TUPLES),
        }
        for name, columns in (("payments", rules), ("trips", windows)):
            (folder / name).mkdir(exist_ok=True)
            pq.write_table(pa.table(columns), folder / name / f"{number:03}.parquet")


def engine_of(spark: SparkSession, folder: Path, rules: int, views: int) -> Engine:
    """An engine with all views."""
    engine = Engine(spark).execute(
        f"CREATE TABLE payments USING parquet OPTIONS (path '{folder / 'payments'}', max_files_per_trigger '1');"
        f"CREATE TABLE trips USING parquet OPTIONS (path '{folder / 'trips'}', event_time 'ts', max_files_per_trigger '4')"
    )
    width = 1e6 / rules
    engine.add_views(
        {
            f"rule_{n:06}": f"SELECT * FROM payments WHERE amount BETWEEN {n * width} AND {n * width + width / 50}"
            for n in range(rules)
        }
    )
    return engine.add_views(
        {
            f"sums_{n:03}": f"SELECT k, window(ts, '10 seconds') AS w, count(*) AS n FROM trips WHERE x >= {n} GROUP BY k, w"
            for n in range(views)
        }
    )


@contextmanager
def chromium(folder: Path) -> Iterator[Chrome]:
    """A Chromium with an empty profile."""
    options = ChromeOptions()
    options.binary_location = CHROMIUM
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--enable-precise-memory-info"):
        options.add_argument(argument)
    options.add_argument(f"--user-data-dir={folder}")
    driver = Chrome(options=options, service=Service(DRIVER))
    try:
        yield driver
    finally:
        driver.quit()


def shown(driver: Chrome, address: str) -> None:
    """Opens a page and waits for its data."""
    driver.get(address)
    WebDriverWait(driver, 120).until(lambda driver: driver.execute_script(SHOWN))


def rate(engine: Engine, output: Path, scratch: Path, *, with_page: bool) -> float:
    """Tuples of the rules a second of a run, from its third batch to its last; in the end of all."""
    shutil.rmtree(output, ignore_errors=True)
    with ExitStack() as held:
        address = None
        if with_page:
            place = Place.taken("127.0.0.1", 0, None)
            address = place.address
            held.enter_context(page_beside(output, place))
        run = engine.start(output, trigger=Trigger.available_now(ended=True))
        held.callback(run.stop)
        if address is not None:
            driver = held.enter_context(chromium(scratch / f"profile-{time.monotonic_ns()}"))
            shown(driver, address)
        run.await_termination()
        begins, counts = [], []
        for event in run.events("batch"):
            if event["stream"] == "payments":
                begins.append(event["bind_seconds"] + event["run_seconds"] + event["publish_seconds"])
                counts.append(event["tuples"])
    return sum(counts[2:]) / sum(begins[2:])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--small", action="store_true", help="1,000 rules and 20 views: figures are not judged"
    )
    small = parser.parse_args().small
    rules, views, rounds, files = (1_000, 20, 1, 8) if small else (RULES, VIEWS, ROUNDS, FILES)
    expected = Expectations(judged=not small)
    OUTPUT.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="page-", dir=OUTPUT) as name, ExitStack() as held:
        folder = Path(name)
        write_tuples(folder, files)
        spark = build_session("local[2]", {"spark.driver.memory": "3g"})
        held.callback(spark.stop)
        engine = engine_of(spark, folder, rules, views)
        rates: dict[bool, list[float]] = {False: [], True: []}
        # the first run of a session warms it; then the one and the other are first in turn
        rate(engine, folder / "out", folder, with_page=False)
        for number in range(2 * rounds):
            with_page = (number + number // 2) % 2 == 1
            rates[with_page].append(rate(engine, folder / "out", folder, with_page=with_page))
            print(
                f"{'with' if with_page else 'without'} the page: {rates[with_page][-1]:,.0f} tuples/s",
                flush=True,
            )
        expected.at_least(
            "share of the rate beside the page", median(rates[True]) / median(rates[False]), LEAST_SHARE
        )
        place = Place.taken("127.0.0.1", 0, None)
        address = place.address.rstrip("/")
        held.enter_context(page_beside(folder / "out", place))
        urllib.request.urlopen(f"{address}/api/overview", timeout=120).close()
        for page in PAGES:
            with chromium(folder / f"profile{page.replace('/', '-')}") as driver:
                shown(driver, address + page)
                heap = driver.execute_script("return performance.memory.usedJSHeapSize")
                expected.at_most(f"first paint of {page}, ms", driver.execute_script(PAINT), MOST_PAINT_MS)
                expected.at_most(f"heap of {page}, bytes", heap, MOST_HEAP)
    sys.exit(expected.exit_code)


if __name__ == "__main__":
    main()
