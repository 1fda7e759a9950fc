"""ASOF JOIN: what the engine publishes, withdrawals applied, equals what Spark says of the same tuples, as multisets."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from forms import ALL
from joined_inputs import Inputs, answered, multiset, wait
from penstock.monitor.folder import folder_status
from penstock.spark.engine import Engine
from penstock.spark.lanes.cut_lane import CutLane
from penstock.spark.results.read_plain import plain_rows
from penstock.spark.storage.layout import Layout
from read_results import bag, published

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1_800)]

TIME = pa.timestamp("us", "UTC")
SEEDS = 12 if ALL else 1
ASOF = "spark.sql.join.asofJoin.enabled"
OUTPUTS = "l.k, l.n, l.ts, r.n AS rn, r.x AS rx, r.ts AS rts"
#: by name the view, and what Spark is asked where that is another text
VIEWS = {
    "newest": f"SELECT {OUTPUTS} FROM flights l ASOF JOIN weather r MATCH_CONDITION (l.ts >= r.ts) ON l.k = r.k",
    "or_none": f"SELECT {OUTPUTS} FROM flights l LEFT ASOF JOIN weather r MATCH_CONDITION (r.ts < l.ts) "
    "ON l.k = r.k AND l.name = r.name AND r.n > 1 AND l.n < 5",
    "young": f"SELECT {OUTPUTS} FROM flights l LEFT ASOF JOIN weather r MATCH_CONDITION (l.ts >= r.ts) "
    "ON l.name = r.name AND r.ts >= l.ts - INTERVAL 3 SECONDS",
    "larger": f"SELECT {OUTPUTS}, coalesce(r.name, 'none') AS rname FROM flights l LEFT ASOF JOIN weather r MATCH_CONDITION (l.ts >= r.ts) "
    "ON l.k = r.k AND l.x < r.x AND r.ts >= l.ts - INTERVAL 20 SECONDS WHERE l.n > 1 AND coalesce(r.n, 7) > 2",
    "filtered": f"SELECT {OUTPUTS} FROM flights l ASOF JOIN weather r MATCH_CONDITION (l.ts >= r.ts) ON l.day = r.day WHERE r.x > 1",
    "behind_a_table": f"SELECT {OUTPUTS}, a.x AS ax FROM flights l JOIN airports a ON l.n = a.n "
    "LEFT ASOF JOIN weather r MATCH_CONDITION (l.ts >= r.ts) ON a.k = r.k",
    "using_names": "SELECT k, l.n, r.x AS rx FROM flights l ASOF JOIN weather r MATCH_CONDITION (l.ts - INTERVAL 1 SECOND > r.ts) USING (k)",
    "as_of": f"SELECT {OUTPUTS} FROM flights AS l LEFT JOIN weather FOR SYSTEM_TIME AS OF l.ts AS r ON l.k = r.k",
    "refreshed": "SELECT /*+ REFRESH('1 second') */ k, n, ts, rn, rx, rts FROM (SELECT l.k, l.n, l.ts, r.n AS rn, r.x AS rx, r.ts AS rts, "
    "row_number() OVER (PARTITION BY l.k, l.n, l.ts ORDER BY r.ts DESC) AS place "
    "FROM flights l JOIN weather r ON l.k = r.k AND r.ts <= l.ts) WHERE place = 1",
}
ORACLES = {
    **VIEWS,
    "as_of": f"SELECT {OUTPUTS} FROM flights l LEFT ASOF JOIN weather r MATCH_CONDITION (l.ts >= r.ts) ON l.k = r.k",
    "refreshed": VIEWS["newest"],
}


@pytest.fixture
def one_entry_a_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    """However fast the ingest is, versions come with later cuts than rows that they concern."""
    begin = CutLane.__init__

    def begun(lane: CutLane, *given: Any, **named: Any) -> None:
        begin(lane, *given, **named)
        lane._entries_per_cut = 1

    monkeypatch.setattr(CutLane, "__init__", begun)


@pytest.fixture
def asof(spark: SparkSession) -> Iterator[None]:
    """Spark answers ASOF JOIN too."""
    spark.conf.set(ASOF, "true")
    yield
    spark.conf.unset(ASOF)


@pytest.mark.parametrize("seed", range(SEEDS))
@pytest.mark.usefixtures("asof", "one_entry_a_cut")
def test_as_of_joins_equal_spark_over_a_restart(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    inputs = Inputs(tmp_path / "in", np.random.default_rng(seed))
    script = inputs.script()
    withdrawn = 0
    for files in (4, 3):
        inputs.feed(files)
        run = answered(Engine(spark).execute(script).add_views(VIEWS), tmp_path / "out")
        inputs.register(spark)
        for name, text in ORACLES.items():
            if name == "behind_a_table":
                spark.table("flights").where("ts IS NOT NULL").createOrReplaceTempView("flights")
            expected = multiset(spark.sql(text))
            assert expected.total() > 0
            assert bag(published(run, name)) == expected, name
            plain = plain_rows(Layout.of(run.output, None), name, 0)
            assert plain is not None
            assert Counter(map(repr, plain.rows.to_pylist())) == expected, name
            inputs.frame(spark, "flights").createOrReplaceTempView("flights")
        cuts = [cut["figures"]["views"] for cut in run.events("cut")]
        withdrawn += sum(own.get("withdrawn", 0) for each in cuts for own in each.values())
        run.stop()
    assert withdrawn > 0


def test_a_row_waits_for_its_version_and_is_told_anew_if_a_newer_one_comes(
    spark: SparkSession, tmp_path: Path
) -> None:
    def feed(name: str, number: int, *rows: tuple[str, int, int]) -> None:
        moments = pa.array([(1_700_000_000 + second) * 1_000_000 for _, second, _ in rows])
        table = pa.table(
            {"k": [key for key, _, _ in rows], "v": [value for *_, value in rows], "ts": moments.cast(TIME)}
        )
        pq.write_table(table, tmp_path / name / f"{number}.parquet")

    def is_told(*rows: tuple[int, int | None, str]) -> bool:
        told = run.changes("priced").toArrow().to_pylist()
        return Counter((row["id"], row["rate"], row["op"]) for row in told) == Counter(rows)

    script = []
    for name in ("orders", "rates"):
        (tmp_path / name).mkdir()
        script.append(
            f"CREATE TABLE {name} USING parquet OPTIONS (path '{tmp_path / name}', event_time 'ts')"
        )
    feed("orders", 0, ("EUR", 100, 1), ("USD", 100, 2), ("EUR", 300, 3))
    feed("rates", 0, ("EUR", 50, 10), ("EUR", 101, 11))
    text = "SELECT o.v AS id, r.v AS rate FROM orders o LEFT JOIN rates FOR SYSTEM_TIME AS OF o.ts AS r ON o.k = r.k"
    engine = Engine(spark, idle_seconds=0).execute(";\n".join(script)).view("priced", text)
    run = engine.start(tmp_path / "out")
    told: list[tuple[int, int | None, str]] = []
    feed("rates", 1, ("CHF", 200, 20))
    told += [(1, 10, "insert"), (2, None, "insert")]
    wait(lambda: is_told(*told), run)
    feed("rates", 2, ("EUR", 90, 12), ("EUR", 95, 13), ("EUR", 40, 14))
    told += [(1, 10, "delete"), (1, 13, "insert")]
    wait(lambda: is_told(*told), run)
    feed("rates", 3, ("USD", 99, 15))
    told += [(2, None, "delete"), (2, 15, "insert")]
    wait(lambda: is_told(*told), run)
    feed("rates", 4, ("CHF", 600, 20))
    told += [(3, 11, "insert")]
    wait(lambda: is_told(*told), run)
    time.sleep(1)
    assert is_told(*told)
    assert folder_status(tmp_path / "out")["views"]["priced"]["rows"] == 3
    rows = [(row.id, row.rate) for row in run.results("priced").collect()]
    assert Counter(rows) == Counter([(1, 13), (2, 15), (3, 11)])
    run.stop()


def test_why_finds_the_newest_version_without_a_lower_bound(spark: SparkSession, tmp_path: Path) -> None:
    script = []
    for name, rows in {
        "orders": [("a", 1, 10), ("a", 2, 30)],
        "rates": [("a", 7, 5), ("a", 8, 20), ("b", 9, 8)],
    }.items():
        (tmp_path / name).mkdir()
        moments = pa.array([(1_700_000_000 + second) * 1_000_000 for *_, second in rows]).cast(TIME)
        table = pa.table(
            {"k": [key for key, *_ in rows], "v": [value for _, value, _ in rows], "ts": moments}
        )
        pq.write_table(table, tmp_path / name / "0.parquet")
        script.append(
            f"CREATE TABLE {name} (k STRING, v BIGINT, ts TIMESTAMP) USING parquet "
            f"OPTIONS (path '{tmp_path / name}', event_time 'ts')"
        )
    engine = Engine(spark).execute(";".join(script))
    engine.view(
        "priced",
        "SELECT o.v AS id, r.v AS rate FROM orders o ASOF JOIN rates r MATCH_CONDITION (o.ts >= r.ts) ON o.k = r.k",
    )
    found = engine.why("priced", '{"k": "a", "v": 1, "ts": "2023-11-14T22:13:30Z"}', input="orders")
    (partners,) = found.partners
    assert (partners.count, found.joined) == (1, 1)
    assert [row["v"] for row in partners.rows] == [7]
    assert (
        engine.why("priced", '{"k": "a", "v": 2, "ts": "2023-11-14T22:13:50Z"}', input="orders").joined == 1
    )
    # a version is in the rows of which it is the newest: also one that has not come
    for second, value, joined in ((25, 7, 1), (40, 8, 1), (23, 6, 0), (28, 10, 1)):
        asked = f'{{"k": "a", "v": {value}, "ts": "2023-11-14T22:13:{second}Z"}}'
        assert engine.why("priced", asked, input="rates").joined == joined, value
