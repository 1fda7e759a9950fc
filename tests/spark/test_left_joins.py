"""LEFT JOIN and its kin: what the engine publishes, withdrawals applied, equals what Spark says of the same tuples, as multisets."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession

from forms import ALL
from joined_inputs import Inputs, answered, multiset, random_order, wait
from outer_joins import OUTPUTS, RAISING, SHAPES, TRIED, WORDS, random_outer_join
from penstock.monitor.folder import folder_status
from penstock.spark.engine import Engine
from penstock.spark.lanes.cuts import Reach
from penstock.spark.lanes.joins.lane import JoinLane
from penstock.spark.results.read_plain import plain_rows
from penstock.spark.run import Run
from penstock.spark.storage.layout import Layout
from read_results import bag, published

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1_800)]

TIME = pa.timestamp("us", "UTC")
SEEDS, VIEWS, KINDS = (20, 15, 4) if ALL else (1, 6, 1)
#: some partners come with a later run
PLAIN = f"SELECT {OUTPUTS} FROM flights l LEFT JOIN weather r ON l.k = r.k AND r.ts BETWEEN l.ts AND l.ts + INTERVAL 9 SECONDS"
#: its left rows are pairs
CHAIN = (
    f"SELECT {OUTPUTS}, m.n AS mn FROM flights l JOIN delays m ON l.n = m.n AND m.ts BETWEEN l.ts AND l.ts + INTERVAL 4 SECONDS "
    "LEFT JOIN weather r ON l.k = r.k AND m.x <= r.x AND r.ts BETWEEN m.ts AND m.ts + INTERVAL 9 SECONDS"
)
#: with tables behind, one of which is looked up by what the other one has
LOOKED_UP = (
    f"SELECT {OUTPUTS}, t.name AS tname, u.x AS ux FROM flights l LEFT JOIN airports t ON l.n = t.n LEFT JOIN weather r ON l.k = r.k AND "
    "r.ts BETWEEN l.ts AND l.ts + INTERVAL 9 SECONDS LEFT JOIN carriers u ON t.k = u.k AND r.x <= u.x WHERE u.name IS NULL OR u.name <> 'north'"
)


@pytest.fixture
def switching(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every cut is joined in another order."""
    rng = np.random.default_rng(12)
    orders = JoinLane.orders

    def switched(lane: JoinLane, until: Mapping[str, Reach]) -> Mapping[str, Any]:
        lane.planner.order = random_order(lane.plan, rng)
        return orders(lane, until)

    monkeypatch.setattr(JoinLane, "orders", switched)


def standing(changes: DataFrame) -> Counter[str]:
    """The rows that were told and not withdrawn."""
    rows = Counter[str]()
    for row in changes.toArrow().to_pylist():
        op = row.pop("op")
        rows[repr(row)] += {"insert": 1, "delete": -1}[op]
    assert min(rows.values(), default=0) >= 0
    return +rows


def withdrawn(runs: Sequence[Run]) -> int:
    views = [cut["figures"]["views"] for run in runs for cut in run.events("cut")]
    return sum(said.get("withdrawn", 0) for each in views for said in each.values())


@pytest.mark.parametrize("seed", range(SEEDS))
@pytest.mark.usefixtures("switching")
def test_random_left_joins_equal_spark_over_a_restart(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    rng = np.random.default_rng(seed)
    inputs = Inputs(tmp_path / "in", rng)
    shapes = [list(SHAPES)[number % len(SHAPES)] for number in range(VIEWS)]
    views = {f"view_{number}": random_outer_join(rng, shape) for number, shape in enumerate(shapes)}
    for word, among in WORDS.items():
        for shape in rng.choice(among, KINDS).tolist():
            views[f"view_{len(views)}"] = random_outer_join(rng, shape, word)
            shapes.append(shape)
    views |= {
        "view_0": f"{PLAIN} AND 6 / l.n < 4",
        "view_1": CHAIN,
        "view_5": f"{PLAIN} AND 6 / l.n = r.k",
        "looked_up": LOOKED_UP,
    }
    shapes.append("a stream")
    script = inputs.script()
    runs = []
    for files in (4, 3):
        inputs.feed(files, count=40)
        run = answered(Engine(spark).execute(script).add_views(views), tmp_path / "out")
        for (name, text), shape in zip(views.items(), shapes, strict=True):
            inputs.register(spark, is_timed=shape == "a stream behind a table")
            expected = multiset(spark.sql(RAISING.sub(TRIED, text)))
            assert bag(published(run, name)) == expected, text
            if re.search("(LEFT|ANTI|FULL) JOIN weather|weather r RIGHT JOIN", text):
                assert standing(run.changes(name)) == expected, text
            plain = plain_rows(Layout.of(run.output, None), name, 0)
            assert plain is not None
            assert plain.count == expected.total()
        runs.append(run)
        run.stop()
    assert withdrawn(runs) > 0


def test_a_row_without_a_partner_waits_and_is_withdrawn_if_one_comes(
    spark: SparkSession, tmp_path: Path
) -> None:
    def feed(name: str, number: int, *rows: tuple[int | None, int]) -> None:
        moments = pa.array([(1_700_000_000 + second) * 1_000_000 for _, second in rows])
        table = pa.table({"k": pa.array([key for key, _ in rows], pa.int64()), "ts": moments.cast(TIME)})
        pq.write_table(table, tmp_path / name / f"{number}.parquet")

    def is_told(*rows: tuple[int | None, int | None, str]) -> bool:
        told = run.changes("pairs").toArrow().to_pylist()
        return Counter((row["k"], row["other"], row["op"]) for row in told) == Counter(rows)

    def is_joined() -> bool:
        return not any(folder_status(tmp_path / "out")["views"]["pairs"]["backlog"].values())

    script = []
    for name in ("l", "r"):
        (tmp_path / name).mkdir()
        script.append(
            f"CREATE TABLE {name} USING parquet OPTIONS (path '{tmp_path / name}', event_time 'ts')"
        )
    feed("l", 0, (1, 100), (2, 100), (None, 100), (3, 300))
    feed("r", 0, (2, 101), (9, 50))
    text = "SELECT l.k, r.k AS other FROM l LEFT JOIN r ON l.k = r.k AND r.ts BETWEEN l.ts AND l.ts + INTERVAL 9 SECONDS"
    taken: list[tuple[int | None, int | None, str]] = []
    engine = Engine(spark, idle_seconds=0).execute(";\n".join(script)).view("pairs", text)
    engine.sink("pairs", lambda rows, _: taken.extend((row.k, row.other, row.op) for row in rows.collect()))
    run = engine.start(tmp_path / "out")

    told: list[tuple[int | None, int | None, str]] = [(2, 2, "insert")]
    wait(lambda: is_told(*told), run)
    feed("r", 1, (9, 200))
    told += [(1, None, "insert"), (None, None, "insert")]
    wait(lambda: is_told(*told), run)
    feed("r", 2, (1, 105), (1, 106))
    told += [(1, None, "delete"), (1, 1, "insert"), (1, 1, "insert")]
    wait(lambda: is_told(*told), run)
    feed("r", 3, (9, 310))
    feed("l", 1, (9, 320))
    wait(lambda: [run.status().streams[name].batches for name in ("l", "r")] == [2, 4] and is_joined(), run)
    assert is_told(*told), "others may be as late as the last one was, 95 s: 300 and 320 are not due yet"
    feed("r", 4, (9, 500))
    told += [(3, None, "insert"), (9, None, "insert")]
    wait(lambda: is_told(*told), run)
    wait(lambda: len(taken) == len(told), run)
    assert Counter(taken) == Counter(told)
    rows = [(row.k, row.other) for row in run.results("pairs").collect()]
    assert Counter(rows) == Counter([(2, 2), (None, None), (1, 1), (1, 1), (3, None), (9, None)])
    document = folder_status(tmp_path / "out")
    assert document["views"]["pairs"]["rows"] == len(rows)
    run.stop()
