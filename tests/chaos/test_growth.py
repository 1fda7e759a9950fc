"""Ten minutes of small batches: memory and descriptors of driver, JVM and workers stop growing."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from disturbed_runs import VIEWS, Orders, slope, until
from penstock.spark.engine import Engine

pytestmark = [
    pytest.mark.spark,
    pytest.mark.chaos,
    pytest.mark.timeout(3_600),
    pytest.mark.long,
]

SECONDS, EVERY_SECONDS = 600, 5
#: what may be added in a minute of the last two thirds
MOST_BYTES, MOST_DESCRIPTORS = 10 << 20, 5
JOINED = {
    **VIEWS,
    "pairs": "SELECT orders.id, o.id AS other FROM orders JOIN orders AS o ON orders.id = o.id "
    "AND o.seen BETWEEN orders.seen AND orders.seen + INTERVAL 1 SECOND WHERE orders.amount > 990",
}


def test_memory_and_descriptors_stop_growing(spark: SparkSession, tmp_path: Path) -> None:
    orders = Orders(tmp_path / "in", keep=False)
    orders.feed(2)
    settings = {"compact_every_batches": 8, "history_bytes": 20_000_000, "events_bytes": 1 << 20}
    run = Engine(spark, **settings).execute(orders.script(JOINED)).start(tmp_path / "out")
    seen: list[tuple[int, int]] = []
    minutes: list[float] = []
    begun = sampled = time.monotonic()
    try:
        while time.monotonic() - begun < SECONDS:
            orders.feed(1, 500)
            until(lambda: run.status().streams["orders"].tuples == orders.rows, run.events)
            if time.monotonic() - sampled > EVERY_SECONDS:
                sampled = time.monotonic()
                seen.append(_held())
                minutes.append((time.monotonic() - begun) / 60)
    finally:
        run.stop()
    third = len(seen) // 3
    assert third > 2, "the machine is too slow for this to be told"
    for number, (name, most) in enumerate((("bytes", MOST_BYTES), ("descriptors", MOST_DESCRIPTORS))):
        values = [each[number] for each in seen[third:]]
        added = slope(minutes[third:], values)
        print(f"{name}: {values[-1]:,}, {added:+,.0f} a minute", flush=True)
        assert added <= most, values


def _held() -> tuple[int, int]:
    """Resident bytes and open descriptors of this process and those that it has started."""
    held = [0, 0]
    for process in _family(os.getpid()):
        try:
            held[0] += int(Path(f"/proc/{process}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
            held[1] += sum(1 for _ in Path(f"/proc/{process}/fd").iterdir())
        except OSError:
            continue
    return held[0], held[1]


def _family(process: int) -> Iterator[int]:
    """A process and those that it has started; one that ends meanwhile is left out."""
    yield process
    found: list[str] = []
    with suppress(OSError):
        for task in Path(f"/proc/{process}/task").iterdir():
            found += (task / "children").read_text().split()
    for child in found:
        yield from _family(int(child))
