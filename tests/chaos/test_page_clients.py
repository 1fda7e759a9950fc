"""200 clients for a minute beside a run: it loses nothing and goes on; what is huge or slow is refused.

The figures are printed: requests answered and refused, and the tuples a second that the run answers with the clients and without.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from statistics import median, quantiles

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from engine_cases import put_file
from penstock.monitor.folder import folder_status
from penstock.spark.results.read_plain import plain_rows
from penstock.spark.storage.layout import Layout

pytestmark = [pytest.mark.chaos, pytest.mark.long, pytest.mark.timeout(3_600)]

SECONDS = int(os.environ.get("PENSTOCK_CLIENT_SECONDS", "60"))
FOLLOWERS, READERS, HUGE, SLOW = 100, 90, 5, 5
#: rows of a file, files ahead of the run, seconds of event time of a file
ROWS, AHEAD, FILE_SECONDS = 200_000, 8, 30
FIRST = np.datetime64("2026-01-01T00:00:00", "us")
CLIENTS = Path(__file__).parents[1] / "page_clients.py"
#: the least share of its rate that the run keeps on two cores, which it shares with all clients
LEAST_SHARE = 0.25
VIEWS = """
CREATE VIEW large AS SELECT id, amount FROM orders WHERE amount >= 990;
CREATE VIEW none AS SELECT * FROM orders WHERE amount > 5000;
CREATE VIEW minutes AS SELECT window(seen, '1 minute') AS w, count(*) AS n, sum(amount) AS total FROM orders GROUP BY w;
"""


def _amounts(ids: np.ndarray) -> np.ndarray:
    return (ids * 2_654_435_761 % 1_000).astype(np.int32)


def _moments(ids: np.ndarray) -> np.ndarray:
    """Microseconds since the first one."""
    return ids * (FILE_SECONDS * 1_000_000 // ROWS)


class Feeder:
    """Write files of a stream, some ahead of the run.

    Args:
        folder: of the files.
        output: results folder of the run.
    """

    def __init__(self, folder: Path, output: Path) -> None:
        self.files = 0
        self._folder, self._output = folder, output
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._feed, daemon=True)
        folder.mkdir()

    def __enter__(self) -> Feeder:
        self._write(AHEAD)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def tuples(self) -> int:
        """The tuples that the run has answered."""
        with suppress(Exception):
            return int(folder_status(self._output)["streams"]["orders"].get("tuples", 0))
        return 0

    def _feed(self) -> None:
        while not self._ended.wait(0.5):
            self._write(self.tuples() // ROWS + AHEAD)

    def _write(self, until: int) -> None:
        while self.files < until:
            ids = np.arange(self.files * ROWS, (self.files + 1) * ROWS)
            seen = pa.array(FIRST + _moments(ids).astype("timedelta64[us]"), pa.timestamp("us", "UTC"))
            table = pa.table({"id": ids, "amount": _amounts(ids), "seen": seen})
            put_file(self._folder / f"{self.files:06}.parquet", partial(pq.write_table, table))
            self.files += 1


@contextmanager
def _running(folder: Path, *options: str) -> Iterator[subprocess.Popen[str]]:
    command = [
        sys.executable,
        "-m",
        "penstock.cli.main",
        "run",
        "script.sql",
        "--output",
        "out",
        "--master",
        "local[2]",
    ]
    with (folder / "printed").open("a") as printed:
        process = subprocess.Popen(
            [*command, *options], cwd=folder, stdout=printed, stderr=printed, text=True
        )
        try:
            yield process
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGINT)
            try:
                process.wait(300)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _rate(feeder: Feeder, wait: float) -> float:
    """Tuples a second that the run answers within so many seconds."""
    tuples, began = feeder.tuples(), time.monotonic()
    time.sleep(wait)
    return (feeder.tuples() - tuples) / (time.monotonic() - began)


def _port(folder: Path) -> int:
    end = time.monotonic() + 120
    while time.monotonic() < end:
        if found := re.search(
            r"^Page: http://127\.0\.0\.1:(\d+)/", (folder / "printed").read_text(), re.MULTILINE
        ):
            return int(found[1])
        time.sleep(0.2)
    raise AssertionError((folder / "printed").read_text())


def test_200_clients_for_a_minute_cost_the_run_no_row(tmp_path: Path) -> None:
    options = "event_time 'seen', max_files_per_trigger '1'"
    table = f"CREATE TABLE orders USING parquet OPTIONS (path '{tmp_path / 'in'}', {options});"
    (tmp_path / "script.sql").write_text(table + VIEWS)
    with Feeder(tmp_path / "in", tmp_path / "out") as feeder, _running(tmp_path, "--page", "0") as run:
        port = _port(tmp_path)
        end = time.monotonic() + 300
        while feeder.tuples() < 10 * ROWS and time.monotonic() < end:
            assert run.poll() is None, (tmp_path / "printed").read_text()
            time.sleep(1)
        rates = [_rate(feeder, SECONDS / 2)]
        counts = map(str, (FOLLOWERS, READERS, HUGE, SLOW))
        asked = subprocess.Popen(
            [sys.executable, str(CLIENTS), str(port), str(SECONDS), *counts],
            stdout=subprocess.PIPE,
            text=True,
        )
        beside = _rate(feeder, SECONDS)
        printed, _ = asked.communicate(timeout=300)
        rates.append(_rate(feeder, SECONDS / 2))
        assert run.poll() is None
    with _running(tmp_path, "--available-now", "--ended") as last:
        assert last.wait(600) == 0
    seen = json.loads(printed)
    answered, statuses = sum(seen["statuses"].values()), seen["statuses"]
    slowest = quantiles(seen["seconds"], n=100)
    figures = {
        "requests": f"{answered} in {SECONDS} s, {answered / SECONDS:.1f} a second, by status {statuses}",
        "seconds": f"median {median(seen['seconds']):.3f}, 99 % within {slowest[-1]:.3f}",
        "overviews of a follower": f"{min(seen['overviews'])} to {max(seen['overviews'])}",
        "huge": seen["huge"],
        "slow": f"{seen['slow']} closed, {seen['left_open']} left open",
        "failed": seen["failed"],
        "tuples a second": f"before {rates[0]:,.0f}, with clients {beside:,.0f}, after {rates[1]:,.0f}",
    }
    print(json.dumps(figures, indent=1), flush=True)

    assert set(statuses) <= {"200", "429", "503"}
    assert statuses["200"] >= answered / 2
    assert seen["failed"] == {}
    assert len(seen["overviews"]) == FOLLOWERS
    assert min(seen["overviews"]) >= SECONDS / 10
    assert seen["backwards"] == 0
    assert set(seen["huge"]) <= {"0", "400", "405", "413", "431"}
    assert seen["slow"] > 0
    assert seen["left_open"] == 0
    assert beside >= LEAST_SHARE * max(rates)

    ids = np.arange(feeder.files * ROWS)
    amounts = _amounts(ids)
    layout = Layout.of(tmp_path / "out", None)
    large, none, minutes = (plain_rows(layout, name, 0) for name in ("large", "none", "minutes"))
    assert large is not None
    assert none is not None
    assert minutes is not None
    assert Counter(large.rows.column("id").to_pylist()) == Counter(ids[amounts >= 990].tolist())
    assert none.count == 0
    minute = _moments(ids) // 60_000_000
    starts = [each["start"] for each in minutes.rows.column("w").to_pylist()]
    found = {
        int((np.datetime64(start.replace(tzinfo=None), "us") - FIRST) // np.timedelta64(1, "m")): (n, total)
        for start, n, total in zip(
            starts,
            minutes.rows.column("n").to_pylist(),
            minutes.rows.column("total").to_pylist(),
            strict=True,
        )
    }
    sums, counted = np.bincount(minute, amounts), np.bincount(minute)
    assert found == {each: (int(counted[each]), int(sums[each])) for each in range(len(counted))}
