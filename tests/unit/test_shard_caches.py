"""What a worker keeps decoded of a stream whose views change on and on is bounded."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.errors import CheckpointError
from penstock.operators.windows.shard import KeyedProgram
from penstock.spark.lanes.windows import shard_task
from penstock.spark.log.programs import store_program
from penstock.spark.log.shards import KeyedContext
from penstock.spark.storage.layout import Layout

pytestmark = pytest.mark.usefixtures("own_commits")


def test_a_worker_keeps_the_newest_programs_alone(tmp_path: Path) -> None:
    layout = Layout(tmp_path / "out", tmp_path / "checkpoint")
    context = KeyedContext(layout, "s", "id", (0,))
    shard_task._program.cache_clear()
    for version in range(40):
        store_program(layout, "s", KeyedProgram(version, (), 0, 0))
        assert shard_task._program(context, version).version == version
        layout.programs("s")[version].remove()
    assert shard_task._program(context, 39).version == 39
    with pytest.raises(CheckpointError, match="plan version 0 are missing"):
        shard_task._program(context, 0)
