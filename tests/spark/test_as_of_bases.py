"""ASOF JOIN without a lower bound: the newest version of each key outlives the log of the versions, over restarts and repeated cuts."""

from __future__ import annotations

import errno
import re
import sys
from pathlib import Path

import numpy as np
import pytest
from pyspark.sql import SparkSession
from test_as_of_joins import OUTPUTS, asof

from joined_inputs import Inputs, answered, multiset
from penstock.monitor.verification import verify
from penstock.spark.engine import Engine
from penstock.spark.lanes.joins.lane import JoinLane
from penstock.spark.lanes.joins.versions import Base, VersionBases
from penstock.spark.log import ingest_log
from penstock.spark.log.stream_log import SEGMENT, LogReader
from penstock.spark.storage.formats import STATIC
from penstock.spark.storage.layout import Layout
from read_results import bag, published

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1_800)]
__all__ = ["asof"]

#: entries of a segment here: those of an earlier run leave the history during a later one, and none of its own do
FEW = 8
VIEWS = {
    "newest": f"SELECT {OUTPUTS} FROM flights l ASOF JOIN weather r MATCH_CONDITION (l.ts >= r.ts) ON l.k = r.k",
    "or_none": f"SELECT {OUTPUTS} FROM flights l LEFT ASOF JOIN weather r MATCH_CONDITION (r.ts < l.ts) "
    "ON l.x = r.x AND l.name = r.name AND r.n > 1 AND l.n < 5",
    "behind_a_table": f"SELECT {OUTPUTS}, a.x AS ax FROM flights l JOIN airports a ON l.n = a.n "
    "LEFT ASOF JOIN weather r MATCH_CONDITION (l.ts - INTERVAL 1 SECOND >= r.ts) ON a.k = r.k",
}


@pytest.fixture
def short_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    """Entries leave the history soon."""
    for name, module in list(sys.modules.items()):
        if name.startswith("penstock.spark") and getattr(module, "SEGMENT", None) == SEGMENT:
            monkeypatch.setattr(module, "SEGMENT", FEW)
    monkeypatch.setattr(ingest_log, "_TIDY_EVERY", 1)


@pytest.mark.usefixtures("asof", "short_segments")
def test_versions_outlive_the_log(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed: dict[str, list[int]] = {}
    repeated = set()
    answer = JoinLane.answer

    def answer_twice(lane, cut, store):  # type: ignore[no-untyped-def]
        found = answer(lane, cut, store)
        cuts = failed.setdefault(lane.name, [])
        if cut.number in cuts:
            repeated.add((lane.name, cut.number))
            assert lane._bases._place in found.puts, "a cut that is answered again makes the base too"
        elif lane._bases._place in found.puts and len(cuts) < 2:
            cuts.append(cut.number)
            raise OSError(errno.ENOSPC, "No space left on device")
        return found

    monkeypatch.setattr(JoinLane, "answer", answer_twice)
    kept = set()
    remove = VersionBases._remove_others

    def remove_later(bases, files):  # type: ignore[no-untyped-def]
        if bases._folder not in kept:
            kept.add(bases._folder)
            raise OSError(errno.ENOSPC, "No space left on device")
        remove(bases, files)

    monkeypatch.setattr(VersionBases, "_remove_others", remove_later)
    inputs = Inputs(tmp_path / "in", np.random.default_rng(5))
    script = re.sub(r"max_files_per_trigger '\d+'", "max_files_per_trigger '1'", inputs.script())
    layout = Layout.of(tmp_path / "out", None)
    log = LogReader(layout.log("weather"))
    bases: dict[str, Base] = {}
    for files, history in ((9, 10_000), (3, 0), (3, 0), (1, 0), (1, 0)):
        inputs.feed(files)
        begun = log.last
        run = answered(
            Engine(spark, history_seconds=history).execute(script).add_views(VIEWS), tmp_path / "out"
        )
        # its first entry says that the stream goes on
        assert log.kept().since <= begun + 2, "what this run brought is still in the history"
        inputs.register(spark)
        for name, text in VIEWS.items():
            if name == "behind_a_table":
                spark.table("flights").where("ts IS NOT NULL").createOrReplaceTempView("flights")
            assert bag(published(run, name)) == multiset(spark.sql(text)), name
        cuts = [each["figures"]["views"] for each in run.events("cut")]
        assert sum(own.get("beyond_history", 0) for each in cuts for own in each.values()) == 0
        lanes = [name for name in layout.lanes.names() if name.startswith("joins.")]
        right = {name: max(layout.static_versions(name).numbers(), default=-1) for name in lanes}
        bases = {
            name: Base.of((STATIC.read(layout.static_versions(name)[number]) or {}).get("base"))
            for name, number in right.items()
        }
        run.stop()
    assert log.first >= FEW, "old entries have gone"
    assert len(bases) == len(VIEWS)
    assert all(base.entry >= log.first - 1 for base in bases.values())
    assert {name: len(cuts) for name, cuts in failed.items()} == dict.fromkeys(bases, 2), (
        "the second has a base before it"
    )
    assert len(repeated) == 2 * len(bases)
    stored = {each.name for name in bases for each in layout.log_store.list(f"_lanes/{name}/static/versions")}
    assert stored == {file.name for base in bases.values() for file in base.files}
    assert not verify(tmp_path / "out").faults
    assert len(kept) == len(VIEWS), "a base was there, and the files of before were not removed yet"

    run = answered(Engine(spark).execute(script).view("newest", VIEWS["newest"]), tmp_path / "out")
    run.stop()
    stored = {each.name for name in bases for each in layout.log_store.list(f"_lanes/{name}/static")}
    (own,) = (base for base in bases.values() if stored & {file.name for file in base.files})
    assert stored == {file.name for file in own.files}, "those of dropped views are deleted"
