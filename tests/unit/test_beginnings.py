"""Where window views begin that are declared, or come back, in mid-stream: from manifests, results and plans."""

from __future__ import annotations

import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql.types import StructType

from penstock.operators.windows.aggregates import Parts
from penstock.operators.windows.shard import OperatorPlan, WindowProgram
from penstock.plan.slack import SlackChoice
from penstock.plan.times import BEFORE_ALL
from penstock.plan.windows import Aggregate, ErrorBound, WindowPlan, Windows
from penstock.settings import Settings
from penstock.spark.ingest import beginnings, compiling
from penstock.spark.ingest.beginnings import Beginnings
from penstock.spark.ingest.plans import StreamPlans
from penstock.spark.log.programs import prune_programs, store_program
from penstock.spark.publication.history import Stretch, lengthened
from penstock.spark.publication.manifests import MERGED, Merged, PublishedBatches, read_published
from penstock.spark.storage.bindings import (
    FROM_THE_START,
    Beginning,
    PlanLog,
    RegisteredWindow,
    ViewDefinition,
    WindowDefinition,
    WindowRegister,
)
from penstock.spark.storage.formats import MANIFEST, MERGED_MANIFEST, RESULT_VIEWS
from penstock.spark.storage.layout import Layout
from publishing import listed

pytestmark = pytest.mark.usefixtures("own_commits")

SQL = "SELECT count(*) AS n FROM s GROUP BY window(ts, '10 seconds')"
VIEW = WindowDefinition("v", "v:1", SQL)
PLAN = WindowPlan(
    "v", "ts", Windows(10, 10), (), (Aggregate("count", None, pa.int64()),), ErrorBound(0.1, 0.1)
)


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    """Five batches of a stream; the last one is being bound."""
    own = Layout(tmp_path / "out", tmp_path / "checkpoint")
    offsets = own.spark("s") / "offsets"
    offsets.mkdir(parents=True)
    (offsets / "4").write_text('v1\n{"batchWatermarkMs":0}\n{"logOffset":6}\n')
    return own


def published(layout: Layout, *batches: tuple[int, int | None, int | None, int]) -> None:
    """Batches of (plan, oldest event time, newest event time, tuples)."""
    figures = [
        {
            "batch": number,
            "plan": plan,
            "tuples": tuples,
            "oldest_event_time_us": oldest,
            "newest_event_time_us": newest,
            "furthest_event_time_us": newest,
        }
        for number, (plan, oldest, newest, tuples) in enumerate(batches)
    ]
    # the first two are so old that only stretches are kept of them
    stretches = tuple(lengthened((), map(Stretch.of, figures[:2])))
    merged = Merged(2, stretches=stretches, batches=tuple(figures[2:3]))
    MERGED_MANIFEST.replace(layout.manifests("s")[MERGED], merged.document())
    for each in figures[3:]:
        number = each["batch"]
        document = {"first": number, "last": number, "files": [], "batches": [each]}
        MANIFEST.replace(layout.manifests("s")[number], document)


def answered(layout: Layout, operator: int, batch: int, *rows: tuple[int, int, bool]) -> None:
    """Rows of (end of the window, revision, whether it is final) that an operator has published."""
    ends = pa.array([end for end, _, _ in rows]).cast(pa.timestamp("us", "UTC"))
    table = pa.table(
        {
            "end": pa.array([7] * len(rows)),
            "revision": pa.array([revision for _, revision, _ in rows], pa.int32()),
            "coverage": pa.nulls(len(rows), pa.float64()),
            "slack": pa.nulls(len(rows), pa.float64()),
            "is_final": [final for _, _, final in rows],
            "op": ["upsert"] * len(rows),
            "_row": pa.StructArray.from_arrays([ends, ends], names=["start", "end"]),
        }
    )
    layout.results("v").mkdir(parents=True, exist_ok=True)
    name = f"{batch:010d}-{operator}-00000.parquet"
    pq.write_table(table, layout.results("v") / name)
    files = [listed(f"{operator}/v", layout.results("v") / name, len(rows))]
    document = {"first": batch, "last": batch, "files": files, "batches": [{"batch": batch, "whole": []}]}
    MANIFEST.replace(layout.manifests("s.results")[batch], document)


def known(
    layout: Layout, operator: int, plan: int, floor: int | None = None, definition: str = "v:1"
) -> None:
    """An operator of the view that a plan version had."""
    described = {"v": {"columns": {}, "row": {}, "definition": definition, "floor": floor}}
    RESULT_VIEWS.replace(layout.result_views("s")[operator], {"views": described})
    own = OperatorPlan(operator, (PLAN,), Parts.of(PLAN.aggregates), 10)
    store_program(layout, "s", WindowProgram(plan, (own,), 0, 0))


FIVE = ((0, 0, 20, 9), (0, 5, 45, 9), (0, None, None, 0), (1, 33, 60, 9), (1, 47, 70, 9))


def test_a_new_view_begins_behind_the_newest_event_time(layout: Layout) -> None:
    published(layout, *FIVE)
    where = Beginnings(layout, "s", Settings())
    assert where(5)(VIEW) == Beginning(5, 70, 70, '{"logOffset":6}')
    assert where(2)(VIEW) == Beginning(2, 45, 45, None)
    hinted = WindowDefinition("v", "v:2", SQL.replace("SELECT", "SELECT /*+ BACKFILL */"))
    assert where(5)(hinted) == Beginning(5, 70, BEFORE_ALL, '{"logOffset":6}')


def test_the_first_view_of_a_stream_sees_everything(layout: Layout) -> None:
    assert Beginnings(layout, "s", Settings())(0)(VIEW) == FROM_THE_START
    published(layout, *((0, None, None, 0),) * 5)
    assert Beginnings(layout, "s", Settings())(5)(VIEW) == FROM_THE_START


def test_a_stream_that_had_no_event_time_may_have_brought_anything(layout: Layout) -> None:
    published(layout, *((0, None, None, 3),) * 5)
    assert (Beginnings(layout, "s", Settings())(5)(VIEW).newest or 0) > 1_700_000_000_000_000


def test_a_view_that_returns_begins_where_it_left_off_or_with_what_came_without_it(layout: Layout) -> None:
    published(layout, *FIVE)
    where = Beginnings(layout, "s", Settings())
    known(layout, 0, 0)
    assert where(5)(VIEW).floor == BEFORE_ALL, "nothing was final"
    answered(layout, 0, 0, (20, 1, True), (10, 1, True), (30, 0, False))
    assert where(5)(VIEW).floor == 20
    answered(layout, 0, 1, (40, 0, False), (10, 1_000_003, True))
    assert where(5)(VIEW).floor == 20
    answered(layout, 0, 2, (40, 1, True))
    assert where(5)(VIEW).floor == 33, "the oldest tuple of batches 3 and 4"
    known(layout, 1, 1, floor=25)
    assert where(5)(VIEW).floor == 25
    known(layout, 2, 1, definition="v:other")
    assert where(5)(VIEW).floor == 25


def test_a_view_begins_the_same_when_old_plans_are_gone(layout: Layout) -> None:
    published(layout, (0, 0, 20, 9), (1, 5, 45, 9), (1, 33, 60, 9), (3, 47, 70, 9), (3, 50, 80, 9))
    for plan in range(3):
        known(layout, 0, plan)
    store_program(layout, "s", WindowProgram(3, (), 0, 0))
    answered(layout, 0, 0, (60, 1, True))
    where = Beginnings(layout, "s", Settings())
    assert where(5)(VIEW).floor == 47, "the oldest tuple of batches 3 and 4"
    prune_programs(layout, "s", 0, 3)
    assert layout.programs("s").numbers() == [2, 3]
    assert where(5)(VIEW).floor == 47


def test_a_view_that_was_never_made_whole_begins_where_it_began_before(layout: Layout) -> None:
    """Windows behind that lacked tuples and were never final, though later ones were."""
    published(layout, (0, 0, 20, 9), (0, 5, 45, 9), (1, 46, 60, 9), (1, 55, 75, 9), (1, 70, 90, 9))
    where = Beginnings(layout, "s", Settings())
    known(layout, 0, 1, floor=45)
    answered(layout, 0, 0, (50, 0, False), (70, 1, True))
    assert where(5)(VIEW).floor == 45
    manifest = layout.manifests("s.results")[0]
    document = MANIFEST.read(manifest)
    assert document is not None
    document["batches"][0]["whole"] = [0]
    MANIFEST.replace(manifest, document)
    assert where(5)(VIEW).floor == 70


def test_what_was_published_before_is_read_once_for_all_views_of_a_plan(
    layout: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    published(layout, *FIVE)
    known(layout, 0, 0)
    answered(layout, 0, 0, (20, 1, True))
    read: list[str] = []

    def counted(layout: Layout, name: str) -> PublishedBatches:
        read.append(name)
        return read_published(layout, name)

    monkeypatch.setattr(beginnings, "read_published", counted)
    where = Beginnings(layout, "s", Settings())(5)
    assert not read
    assert where(VIEW).floor == 20
    assert where(WindowDefinition("w", "w:1", SQL)).floor == 70
    assert sorted(read) == ["s", "s.results"]


def test_views_are_listed_and_changed_while_it_is_looked_up_where_new_ones_begin(
    layout: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    layout.open()
    log = PlanLog(layout, "s")
    seen: list[list[str]] = []

    def where(_: WindowDefinition) -> Beginning:
        looks = threading.Thread(target=lambda: seen.append(sorted(plans.views)), daemon=True)
        looks.start()
        looks.join(60)
        if len(seen) == 1:
            plans.change({"b": ViewDefinition("b", "b:1", "", "x > 2", None)})
        return FROM_THE_START

    def compiled() -> int:
        raise LookupError("all that needs Spark comes behind it")

    monkeypatch.setattr(compiling, "SparkExpressionHost", lambda *_: None)
    monkeypatch.setattr(compiling, "sharing", lambda windows, *_: [windows])
    source: Any = SimpleNamespace(schema=StructType().add("x", "long"), event_time="ts")
    unused: Any = None
    plans = StreamPlans(
        unused, "s", source, log, unused, Settings(), compiled, unused, lambda _: where, lambda _: 0
    )
    plans.change({"a": ViewDefinition("a", "a:1", "", "x > 1", None), "v": VIEW})
    with pytest.raises(LookupError):
        plans.begin(5)
    assert seen == [["a"], ["a", "b"]]
    assert set(log.load(0)) == {"a", "b"}
    assert log.load_windows(0).windows[0].beginning == FROM_THE_START


@pytest.mark.parametrize(("policy", "is_new"), [("required", False), ("pd", True)])
def test_another_slack_policy_of_the_settings_makes_a_new_plan_version(
    layout: Layout, monkeypatch: pytest.MonkeyPatch, policy: Any, is_new: bool
) -> None:
    layout.open()
    log = PlanLog(layout, "s")
    log.store(0, {}, WindowRegister((RegisteredWindow(VIEW, 0, beginning=FROM_THE_START),), 1))

    def compiled() -> int:
        raise LookupError("all that needs Spark comes behind it")

    monkeypatch.setattr(compiling, "SparkExpressionHost", lambda *_: None)
    source: Any = SimpleNamespace(schema=StructType().add("x", "long"), event_time="ts")
    unused: Any = None
    settings = Settings(slack_policy=policy)
    plans = StreamPlans(
        unused, "s", source, log, unused, settings, compiled, unused, lambda _: unused, lambda _: 0
    )
    if not is_new:
        assert plans.begin(5) is None
        return
    with pytest.raises(LookupError):
        plans.begin(5)
    assert log.load_windows(1).slack == SlackChoice("pd")
    assert log.load_windows(0).slack == SlackChoice("required")
