"""Kernels are compiled once per installation, and whatever happens to the files the answers are right."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from forms import ALL
from penstock.cache_folder import cache_folder

#: that fill a folder at once
PROCESSES = 4 if ALL else 2

SMALL = """
import numpy as np
from penstock.kernels.segments import extremes_before, sums_before
amounts, bounds = np.array([1.0, 2.0, 4.0]), np.array([0, 3])
answer = [part.tolist() for part in (*sums_before(amounts, bounds), *extremes_before(amounts, bounds, True))]
"""
MATCHER = """
import pyarrow as pa
from penstock import Matcher
schema = pa.schema({"distance": pa.int32(), "carrier": pa.string()})
matcher = Matcher({"far": "distance > 2000", "ua": "carrier LIKE 'U%'"}, schema)
answer = matcher.match(pa.record_batch({"distance": [2500, 100], "carrier": ["UA", None]}, schema)).offsets.tolist()
"""
COUNTED = """
import json
from numba.core import event
with event.install_recorder("numba:compile") as recorder:
{}
compiled = [each.data["dispatcher"].__module__ for _, each in recorder.buffer if each.is_start]
print(json.dumps([answer, sum(module.startswith("penstock") for module in compiled)]))
"""


def start(program: str, folder: Path) -> subprocess.Popen[str]:
    counted = COUNTED.format("".join(f"    {line}\n" for line in program.splitlines()))
    return subprocess.Popen(
        [sys.executable, "-c", counted],
        env={**os.environ, "NUMBA_CACHE_DIR": str(folder)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def ended(process: subprocess.Popen[str]) -> tuple[Any, int, str]:
    """What the program answered, how many functions it compiled and what it said on the way."""
    output, errors = process.communicate(timeout=900)
    assert process.returncode == 0, errors
    answer, compiled = json.loads(output)
    return answer, compiled, errors


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    """A folder that some processes filled at the same time, and the answer."""
    folder = tmp_path_factory.mktemp("filled")
    runs = [ended(process) for process in [start(SMALL, folder) for _ in range(PROCESSES)]]
    answers = [answer for answer, _, _ in runs]
    assert answers == answers[:1] * PROCESSES
    assert max(compiled for _, compiled, _ in runs) > 0
    return folder, answers[0]


def kept(folder: Path) -> list[Path]:
    return sorted(file for file in folder.glob("penstock/kernels/*/*") if file.name != "lock")


def test_processes_that_fill_the_folder_at_once_leave_files_for_the_next(filled: tuple[Path, Any]) -> None:
    folder, answer = filled
    assert ended(start(SMALL, folder)) == (answer, 0, "")
    assert {file.name.partition("-")[0] for file in kept(folder)} == {"sums_before", "extremes_before"}


def test_a_later_process_matches_without_compiling() -> None:
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    first, _, _ = ended(start(MATCHER, folder))
    assert ended(start(MATCHER, folder)) == (first, 0, "")


def test_damaged_files_are_replaced(filled: tuple[Path, Any]) -> None:
    folder, answer = filled
    cut, flipped = kept(folder)
    cut.write_bytes(cut.read_bytes()[:1000])
    data = flipped.read_bytes()
    flipped.write_bytes(data[:1000] + bytes([data[1000] ^ 1]) + data[1001:])
    assert ended(start(SMALL, folder)) == (answer, 2, "")
    assert ended(start(SMALL, folder)) == (answer, 0, "")


def test_a_file_under_the_name_of_another_function_is_not_run(filled: tuple[Path, Any]) -> None:
    folder, answer = filled
    first, second = kept(folder)
    whole = first.read_bytes()
    first.write_bytes(second.read_bytes())
    second.write_bytes(whole)
    assert ended(start(SMALL, folder)) == (answer, 2, "")


def test_a_folder_that_cannot_be_written_costs_a_warning_and_time(
    filled: tuple[Path, Any], tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    answer, compiled, said = ended(start(SMALL, tmp_path / "file"))
    assert (answer, compiled) == (filled[1], 2)
    assert said.count("cannot cache compiled code") == 1


def test_code_that_others_may_write_is_not_run(filled: tuple[Path, Any]) -> None:
    folder, answer = filled
    (versions,) = folder.glob("penstock/kernels/*")
    versions.chmod(0o777)
    try:
        answered, compiled, said = ended(start(SMALL, folder))
    finally:
        versions.chmod(0o700)
    assert (answered, compiled) == (answer, 2)
    assert "others may write to" in said


@pytest.mark.parametrize("part", ["", "penstock", "penstock/kernels", "penstock/kernels/1"])
def test_no_folder_on_the_way_may_be_written_by_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "cache"))
    assert cache_folder("kernels", "1") == tmp_path / "cache/penstock/kernels/1"
    folder = tmp_path / "cache" / part
    folder.chmod(0o777)
    assert cache_folder("kernels", "1") is None
    folder.chmod(0o1777)
    assert (cache_folder("kernels", "1") is None) is bool(part), "a sticky folder to be below will do"
    folder.chmod(0o700)
    assert cache_folder("kernels", "1") is not None
    if part:
        folder.rename(tmp_path / "moved")
        folder.symlink_to(tmp_path / "moved")
        assert cache_folder("kernels", "1") is None
