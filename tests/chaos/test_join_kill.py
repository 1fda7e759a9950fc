"""`kill -9` of a run with a join view, or a window view over one, between any two steps: of the ingest, of a cut, of the log of
joined rows. Each pair is published once.

Tuples come before each start. `test_every_lane_killed.py` is the short form.
"""

from __future__ import annotations

import json
import signal
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from engine_cases import names
from joined_inputs import Inputs
from killing import ended, started
from penstock.spark.publication.kinds import results_of
from penstock.spark.publication.manifests import published_paths
from penstock.spark.results.read_plain import plain_rows
from penstock.spark.storage.failpoints import COMPACTION_NAMES, CUT_NAMES, NAMES, ROW_NAMES
from penstock.spark.storage.joins import JOINS
from penstock.spark.storage.lane_views import lane_name
from penstock.spark.storage.layout import Layout
from penstock_lab.servers.kafka import KafkaBroker
from publishing import shown

pytestmark = [pytest.mark.chaos, pytest.mark.long, pytest.mark.timeout(3_600)]

PLACES = (*NAMES, *CUT_NAMES, *(f"cut_{name}" for name in COMPACTION_NAMES))
WINDOW_PLACES = (*PLACES, *ROW_NAMES)
#: more files than a cut of a run that ends takes entries
ROWS, FILES_A_START = 60, 6
LANE = lane_name(JOINS.name, 0)
#: every cut with new flights has rows; of `lonely` each run ends before some partners are there
VIEWS = {
    "pairs": "SELECT a.k, a.ts AS first, b.ts AS later, c.name FROM flights a JOIN flights b ON a.k = b.k AND "
    "b.ts BETWEEN a.ts AND a.ts + INTERVAL 30 SECONDS JOIN airports c ON a.n = c.n",
    "lonely": "SELECT a.k, a.ts AS first, b.ts AS later, a.name FROM flights a LEFT JOIN flights b ON a.k = b.k AND "
    "b.ts BETWEEN a.ts + INTERVAL 1 SECOND AND a.ts + INTERVAL 5 SECONDS",
    "near": "SELECT a.k, a.ts AS first, b.ts AS later, b.name FROM flights a JOIN flights b ON a.k = b.k AND "
    "b.ts BETWEEN a.ts AND a.ts + INTERVAL 9 SECONDS",
}
#: the first run ends: what it tells to have no partner is withdrawn by later ones
FILE_PLACES = ("", *PLACES)
#: over `pairs`; and what DuckDB is asked for the same
WINDOWS = "SELECT k % 3 AS g, window(first, '20 seconds') AS w, count(*) AS c, max(later) AS last FROM pairs GROUP BY g, w"
BUCKETS = (
    "SELECT k % 3 AS g, time_bucket(INTERVAL 20 SECONDS, first) AS begun, count(*) AS c, max(later) AS last FROM pairs "
    "GROUP BY ALL"
)
CONNECTOR = sorted((Path(__file__).parents[2] / ".cache" / "kafka-connector").glob("*.jar"))


@pytest.mark.parametrize("views", [("pairs",), ("lonely",), tuple(VIEWS)], ids="-".join)
def test_a_join_of_files_killed(tmp_path: Path, views: Sequence[str]) -> None:
    inputs = Inputs(tmp_path / "in", np.random.default_rng(3))
    options = f"path '{tmp_path / 'in' / 'flights'}', max_files_per_trigger '1'"
    table = f"flights USING parquet OPTIONS ({options}, event_time 'ts')"
    _kill(inputs, {view: VIEWS[view] for view in views}, table, FILE_PLACES, lambda _: None)
    for number, view in enumerate(views):
        _check(inputs, view, Layout.of(tmp_path / "out", None), number)


def test_windows_over_a_join_killed(tmp_path: Path) -> None:
    inputs = Inputs(tmp_path / "in", np.random.default_rng(5))
    options = f"path '{tmp_path / 'in' / 'flights'}', max_files_per_trigger '1'"
    table = f"flights USING parquet OPTIONS ({options}, event_time 'ts')"
    _kill(inputs, {"pairs": VIEWS["pairs"], "windows": WINDOWS}, table, WINDOW_PLACES, lambda _: None)
    layout = Layout.of(tmp_path / "out", None)
    _check(inputs, "pairs", layout)
    told, found = (plain_rows(layout, "windows", 0, revisions) for revisions in (True, False))
    assert told is not None
    assert found is not None
    assert max(Counter(map(repr, told.rows.to_pylist())).values()) == 1, "nothing is told twice"
    rows = [(row["g"], row["w"]["start"], row["c"], row["last"]) for row in found.rows.to_pylist()]
    wanted = _answers(inputs, "pairs", BUCKETS).to_pylist()
    assert Counter(rows) == Counter((row["g"], row["begun"], row["c"], row["last"]) for row in wanted)
    assert not layout.cuts(results_of(f"{LANE}.pairs")).numbers()


@pytest.mark.kafka
def test_a_join_of_a_topic_killed(tmp_path: Path, kafka: KafkaBroker) -> None:
    inputs = Inputs(tmp_path / "in", np.random.default_rng(4))
    topic = f"flights-{tmp_path.name}"
    kafka.create_topic(topic, partitions=2)

    def feed(tuples: pa.Table) -> None:
        moments = pc.strftime(tuples["ts"], "%Y-%m-%dT%H:%M:%SZ").to_pylist()
        values = [
            json.dumps({name: value for name, value in each.items() if value is not None})
            for ts, k, n in zip(moments, tuples["k"].to_pylist(), tuples["n"].to_pylist(), strict=True)
            for each in ({"ts": ts, "k": k, "n": n},)
        ]
        for partition in range(2):
            kafka.produce(topic, values[partition::2], partition=partition)

    options = (
        f"kafka.bootstrap.servers '{kafka.address}', subscribe '{topic}', startingOffsets 'earliest', "
        f"maxOffsetsPerTrigger '{ROWS}'"
    )
    table = f"flights (ts TIMESTAMP, k BIGINT, n INT) USING kafka OPTIONS ({options}, event_time 'ts')"
    _kill(inputs, {"pairs": VIEWS["pairs"]}, table, PLACES, feed)
    _check(inputs, "pairs", Layout.of(tmp_path / "out", None))


def _kill(
    inputs: Inputs,
    views: Mapping[str, str],
    table: str,
    places: Sequence[str],
    feed: Callable[[pa.Table], None],
) -> None:
    """Runs to the end, killed at places.

    Args:
        inputs: makes the tuples, and writes them to files.
        views: texts by name.
        table: the declaration of the stream.
        places: where to kill.
        feed: hands tuples to the stream, beside their files.
    """
    folder = inputs.folder.parent
    script, output, log = folder / "script.sql", folder / "out", folder / "victim.log"
    static = f"airports USING parquet OPTIONS (path '{inputs.folder / 'airports'}', static 'true')"
    declared = "".join(f"CREATE VIEW {name} AS {text};\n" for name, text in views.items())
    script.write_text(f"CREATE TABLE {table};\nCREATE TABLE {static};\n{declared}")
    # each victim answers few batches: compiling only the kernels it needs is sooner done
    conf = f"spark.jars={','.join(map(str, CONNECTOR))}", "spark.python.daemon.module=pyspark.daemon"
    for place in (*places, ""):
        inputs.feed(FILES_A_START, ROWS)
        for tuples in inputs.tuples["flights"][-FILES_A_START:]:
            feed(tuples)
        code = ended(started("victim.py", script, output, *conf, log=log, failpoint=place))
        assert code == (-signal.SIGKILL if place else 0), f"{place}: {code}; {log.read_text()[-3000:]}"


def _check(inputs: Inputs, view: str, layout: Layout, number: int = 0) -> None:
    """Compares the rows of the join view of a lane with those that DuckDB finds."""
    paths = list(published_paths(layout, lane_name(JOINS.name, number), f"{number}/{view}"))
    assert names(paths) == names(shown(layout, lane_name(JOINS.name, number), layout.results(view)))
    if view == "lonely":
        ops = [op for path in paths for op in pq.read_table(path)["op"].to_pylist()]
        assert 0 < ops.count("delete") < ops.count("insert")
    told = plain_rows(layout, view, 0)
    assert told is not None
    assert told.rows.num_rows > 0
    assert _rows(told.rows) == _rows(_answers(inputs, view, f"FROM {view}"))
    assert not layout.cuts(lane_name(JOINS.name, number)).numbers()


def _answers(inputs: Inputs, view: str, query: str) -> pa.Table:
    """What DuckDB answers over a join view."""
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.register("flights", pa.concat_tables(inputs.tuples["flights"]))
        connection.register("airports", pq.read_table(inputs.folder / "airports"))
        connection.execute(f"CREATE VIEW {view} AS {VIEWS[view]}")
        return connection.sql(query).arrow().read_all()


def _rows(table: pa.Table) -> Counter[tuple[object, ...]]:
    moments = [table.column(name).cast(pa.int64()) for name in ("first", "later")]
    return Counter(zip(*(each.to_pylist() for each in (table["k"], table["name"], *moments)), strict=True))
