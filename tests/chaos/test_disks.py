"""A full disk is waited for, a read-only one refuses a start: it is told, and what follows is exact."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from disturbed_runs import Orders, until
from forms import ALL
from penstock.spark.engine import Engine
from penstock.spark.run import Run
from penstock.trigger import Trigger
from whole_runs import run_to_end

pytestmark = [pytest.mark.spark, pytest.mark.chaos, pytest.mark.timeout(1_800)]

ROUNDS = 5 if ALL else 1
#: what is tried again passes before a minute has gone by
PATIENT = {"retry_attempts": 40, "retry_seconds": 0.5, "compact_every_batches": 3}


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A small file system of its own."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=48m", "tmpfs", str(folder)], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip(f"no file system can be mounted here: {mounted.stderr.decode().strip()}")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


@pytest.mark.long
def test_a_full_disk_is_waited_for(spark: SparkSession, tmp_path: Path, disk: Path) -> None:
    orders = Orders(tmp_path / "in")
    orders.feed(2)
    run = Engine(spark, **PATIENT).execute(orders.script()).start(disk / "out")
    try:
        until(lambda: run.status().streams["orders"].tuples == orders.rows, run.events)
        for number in range(ROUNDS):
            retried = _retried(run, "disk_full")
            ballast = disk / "ballast"
            _fill(ballast, leave=4_096 * (1 + 3 * number))
            orders.feed(1, 20_000)
            until(lambda before=retried: _retried(run, "disk_full") > before, run.events)
            ballast.unlink()
            orders.feed(1)
            until(lambda: run.status().streams["orders"].tuples == orders.rows, run.events)
    finally:
        run.stop()
    run = run_to_end(Engine(spark).execute(orders.script()), disk / "out", seconds=None)
    orders.assert_answered(disk / "out")


def test_a_disk_that_is_read_only_refuses_a_start_and_nothing_is_lost(
    spark: SparkSession, tmp_path: Path, disk: Path
) -> None:
    orders = Orders(tmp_path / "in")
    for _ in range(1 + ROUNDS):
        orders.feed(1)
        run = (
            Engine(spark, **PATIENT)
            .execute(orders.script())
            .start(disk / "out", trigger=Trigger.available_now())
        )
        run.await_termination()
        run.stop()
        # not while a file is open for writing
        until(lambda: not _remounted(disk, "ro").returncode, lambda: _remounted(disk, "ro").stderr)
        with pytest.raises(Exception, match="Read-only file system"):
            Engine(spark).execute(orders.script()).start(disk / "out", trigger=Trigger.available_now())
        assert not _remounted(disk, "rw").returncode
    orders.assert_answered(disk / "out")


def _remounted(disk: Path, how: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(["mount", "-o", f"remount,{how}", str(disk)], capture_output=True, check=False)


def _fill(ballast: Path, leave: int) -> None:
    """Fills the disk but for some bytes, beside a run that writes too."""
    with suppress(OSError), ballast.open("wb", buffering=0) as file:
        while True:
            file.write(b"\0" * 65_536)
    os.truncate(ballast, max(0, ballast.stat().st_size - leave))


def _retried(run: Run, cause: str) -> int:
    """How often the run was tried again for a cause; on a busy machine there are others."""
    return sum(event["cause"] == cause for event in run.events("stream_retried"))
