"""A checkpoint belongs to one run at a time, which others can name."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.errors import CheckpointError
from penstock.monitor.book import StatusBook
from penstock.spark.storage.checkpoint_lock import CheckpointLock, lock_holder
from penstock.spark.storage.documents import replace_json
from penstock.spark.storage.layout import Layout
from status_cases import lines, results_folder


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    return results_folder(tmp_path)


def test_a_running_process_is_found_by_its_lock_and_keeps_it(layout: Layout) -> None:
    assert lock_holder(layout.checkpoint) is None
    program = "import sys, pathlib; from penstock.spark.storage.checkpoint_lock import CheckpointLock;"
    program += "CheckpointLock(pathlib.Path(sys.argv[1])); print(flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", program, layout.checkpoint], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        replace_json(layout.status, {**StatusBook().document(), "state": "running", "pid": holder.pid})
        for _ in range(2):
            assert f"out: running (process {holder.pid})" in lines(layout)
        holder.communicate(b"")
    lock = CheckpointLock(layout.checkpoint)
    assert lock_holder(layout.checkpoint) == os.getpid()
    lock.release()
    assert lock_holder(layout.checkpoint) is None


def test_a_checkpoint_belongs_to_one_run_of_a_process_until_that_has_ended(layout: Layout) -> None:
    lives = True
    before = CheckpointLock(layout.checkpoint)
    run = CheckpointLock(layout.checkpoint, lambda: lives)
    elsewhere = layout.output / ".." / layout.output.name / layout.checkpoint.relative_to(layout.output)
    for _ in range(2):
        with pytest.raises(
            CheckpointError, match="is in use by another run of this process; stop that first"
        ):
            CheckpointLock(elsewhere, lambda: True)
    lives = False
    second = CheckpointLock(elsewhere, lambda: True)
    for lock in (run, before, run):
        lock.release()
        assert lock_holder(layout.checkpoint) == os.getpid(), "the second run still has it"
    second.release()
    assert lock_holder(layout.checkpoint) is None
