"""`kill -9` of a run with a join view between any two steps of a cut: each pair is published once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from contextlib import suppress
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from join_victim import VIEW

from joined_inputs import Inputs
from penstock.spark.publication.manifests import published_paths, read_published
from penstock.spark.storage.failpoints import CUT_NAMES
from penstock.spark.storage.files import numbered
from penstock.spark.storage.layout import Layout

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(1_800)]

FULL = os.environ.get("PENSTOCK_CHAOS") == "full"
LANE = "joins.0"


def test_a_join_killed_between_its_steps(tmp_path: Path) -> None:
    inputs = Inputs(tmp_path / "in", np.random.default_rng(3))
    layout = Layout.of(tmp_path / "out", None)
    for place in CUT_NAMES if FULL else ("cut_put", "cut_half_published", "cut_published"):
        inputs.feed(2)
        cut = read_published(layout, LANE).last + 1
        assert _run(tmp_path, f"{place}:{cut}") == -signal.SIGKILL, f"{place}:{cut} was never reached"
    inputs.feed(1)
    assert _run(tmp_path) == 0, (tmp_path / "victim.log").read_text()[-3000:]

    paths = list(published_paths(layout, LANE, "0/pairs"))
    assert sorted(paths) == sorted(layout.results("pairs").glob("*.parquet"))
    found = pa.concat_tables(pq.read_table(path) for path in paths)
    with duckdb.connect() as connection:
        connection.register("flights", pa.concat_tables(inputs.tuples["flights"]))
        connection.register("airports", pq.read_table(tmp_path / "in" / "airports"))
        wanted = connection.sql(VIEW).arrow().read_all()
    assert found.num_rows > 0
    assert _rows(found) == _rows(wanted)
    assert not numbered(layout.cuts(LANE))


def _rows(table: pa.Table) -> Counter[tuple[object, ...]]:
    moments = [table.column(name).cast(pa.int64()) for name in ("first", "later")]
    return Counter(zip(*(each.to_pylist() for each in (table["k"], table["name"], *moments)), strict=True))


def _run(folder: Path, failpoint: str = "") -> int:
    program = Path(__file__).with_name("join_victim.py")
    with (folder / "victim.log").open("ab") as told:
        process = subprocess.Popen(
            [sys.executable, str(program), str(folder)],
            env={**os.environ, "PENSTOCK_FAILPOINT": failpoint},
            stdout=told,
            stderr=told,
            start_new_session=True,
        )
        code = process.wait(timeout=900)
    with suppress(ProcessLookupError):
        # what the killed driver left behind: its JVM and Python workers
        os.killpg(process.pid, signal.SIGKILL)
    return code
