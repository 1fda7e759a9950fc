"""What a machine does to a run: its clock jumps, permissions are taken away. It is told, and what follows is exact."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from disturbed_runs import Orders
from killing import ended, started

pytestmark = [pytest.mark.chaos, pytest.mark.long, pytest.mark.timeout(1_800)]

DAEMON = "spark.python.daemon.module=pyspark.daemon"
#: what is taken away, relative to the folder of the test; a place in the output is there after a first run
TAKEN = ("in", "in/00002.parquet", "out/_penstock/ledger.db", "out/matches")


def test_a_clock_that_jumps_changes_no_answer(tmp_path: Path) -> None:
    orders = Orders(tmp_path / "in")
    script, log = tmp_path / "script.sql", tmp_path / "victim.log"
    script.write_text(orders.script())
    for _ in range(4):
        orders.feed(8)
        code = ended(started("clock_victim.py", script, tmp_path / "out", DAEMON, log=log))
        assert code == 0, log.read_text()[-3000:]
    orders.assert_answered(tmp_path / "out")


@pytest.mark.parametrize("place", TAKEN)
def test_permissions_taken_away_are_told_and_given_back(tmp_path: Path, place: str) -> None:
    orders = Orders(tmp_path / "in")
    script, log = tmp_path / "script.sql", tmp_path / "victim.log"
    script.write_text(orders.script())
    orders.feed(2)
    if place.startswith("out"):
        assert _run_bound_by_permissions(script, tmp_path / "out", log) == 0, log.read_text()[-3000:]
    orders.feed(2)
    with _taken(tmp_path / place):
        log.write_bytes(b"")
        code = _run_bound_by_permissions(script, tmp_path / "out", log)
        told = log.read_text()
        assert code != 0
        assert "Permission denied" in told or "may not be read" in told, told[-3000:]
        assert Path(place).name in told, told[-3000:]
    assert _run_bound_by_permissions(script, tmp_path / "out", log) == 0, log.read_text()[-3000:]
    orders.assert_answered(tmp_path / "out")


@contextmanager
def _taken(path: Path) -> Iterator[None]:
    before = path.stat().st_mode
    path.chmod(0)
    try:
        yield
    finally:
        path.chmod(before)


def _run_bound_by_permissions(script: Path, output: Path, log: Path) -> int:
    """Runs the victim to its end as a user whom permissions bind, which root is not; its exit code."""
    return ended(started("victim.py", script, output, DAEMON, log=log, prefix=_prefix()))


def _prefix() -> list[str]:
    if os.geteuid():
        return []
    if shutil.which("setpriv") is None:
        pytest.skip("permissions do not bind root, and setpriv is not here")
    prefix = [
        "setpriv",
        "--bounding-set=-dac_override,-dac_read_search",
        "--inh-caps=-dac_override,-dac_read_search",
    ]
    if subprocess.run([*prefix, "true"], capture_output=True, check=False).returncode:
        pytest.skip("permissions do not bind root, and its capabilities cannot be dropped here")
    return prefix
