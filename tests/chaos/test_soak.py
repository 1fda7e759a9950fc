"""The short form of the soak: a few hundred small batches in two processes, one of which is killed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SOAK = Path(__file__).parents[2] / "benchmarks" / "soak.py"

pytestmark = [pytest.mark.spark, pytest.mark.chaos, pytest.mark.long, pytest.mark.timeout(1_800)]


def test_small_batches_over_a_kill_are_answered_and_the_log_loses_its_beginning(tmp_path: Path) -> None:
    command = [sys.executable, str(SOAK), "--short", "--output", str(tmp_path / "soak")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1_500, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "soak" / "soak.png").stat().st_size
