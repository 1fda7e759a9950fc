"""`kill -9` of a run with views with a deadline at every step of an order: each window is accounted for once, none released twice,
and what is owed an answer gets it once, late.

Tuples come before each start. `test_every_lane_killed.py` is the short form.
"""

from __future__ import annotations

import signal
from collections import Counter
from functools import partial
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from engine_cases import put_file
from killing import ended, started
from penstock.monitor.folder import folder_status
from penstock.spark.results.misses import missed_windows
from penstock.spark.results.read_plain import plain_rows
from penstock.spark.storage.failpoints import COMPACTION_NAMES, LATE_NAMES, NAMES, ORDER_NAMES
from penstock.spark.storage.layout import Layout

pytestmark = [pytest.mark.chaos, pytest.mark.long, pytest.mark.timeout(3_600)]

PLACES = (*ORDER_NAMES, *LATE_NAMES, *(f"order_{name}" for name in COMPACTION_NAMES), *NAMES)
FILES_A_START, ROWS, SECONDS = 3, 400, 60
#: of the second and the third all windows miss; those of the third are answered late
SCRIPT = """
CREATE TABLE rides USING parquet OPTIONS (path '{}', event_time 'ts', max_files_per_trigger '1');
CREATE VIEW kept AS SELECT /*+ DEADLINE('1 hour') */ k, window(ts, '10 seconds') AS w, count(*) AS n, sum(x) AS s FROM rides GROUP BY k, w;
CREATE VIEW hinted AS SELECT /*+ MAX_ERROR(0.1, 0.1), DEADLINE('1 hour') */ k, window(ts, '10 seconds') AS w, count(*) AS n, sum(x) AS s FROM rides GROUP BY k, w;
CREATE VIEW owed AS SELECT /*+ DEADLINE('1 millisecond'), LOSS(1, 1, 'late') */ k, window(ts, '10 seconds') AS w, count(*) AS n, sum(x) AS s FROM rides GROUP BY k, w;
CREATE VIEW lost AS SELECT /*+ DEADLINE('1 millisecond') */ window(ts, '10 seconds') AS w, count(*) AS n FROM rides GROUP BY w;
"""


def test_orders_killed(tmp_path: Path) -> None:
    script, output, log = tmp_path / "script.sql", tmp_path / "out", tmp_path / "victim.log"
    folder = tmp_path / "rides"
    folder.mkdir()
    script.write_text(SCRIPT.format(folder))
    tables = []
    for number, place in enumerate((*PLACES, "")):
        tables += [_put(folder, number * FILES_A_START + part) for part in range(FILES_A_START)]
        code = ended(
            started(
                "victim.py",
                script,
                output,
                "spark.python.daemon.module=pyspark.daemon",
                log=log,
                failpoint=place,
            )
        )
        assert code == (-signal.SIGKILL if place else 0), f"{place}: {code}; {log.read_text()[-3000:]}"
    layout = Layout.of(output, None)
    rides = pa.concat_tables(tables)
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.register("rides", rides)
        answered = connection.sql(
            "SELECT k, time_bucket(INTERVAL 10 SECONDS, ts) AS begun, count(*) AS n, sum(x) AS s FROM rides GROUP BY ALL"
        )
        wanted = answered.arrow().read_all().to_pylist()
    windows = {row["begun"] for row in wanted}
    for view, revision in (("kept", 0), ("hinted", 0), ("owed", 1)):
        told, found = (plain_rows(layout, view, 0, revisions) for revisions in (True, False))
        assert told is not None
        assert found is not None
        assert told.rows.num_rows == found.rows.num_rows, "nothing is answered twice"
        assert set(told.rows.column("revision").to_pylist()) == {revision}
        rows = [(row["k"], row["w"]["start"], row["n"], row["s"]) for row in found.rows.to_pylist()]
        assert Counter(rows) == Counter((row["k"], row["begun"], row["n"], row["s"]) for row in wanted)
    views = folder_status(output)["views"]
    for view in ("kept", "hinted"):
        assert missed_windows(layout, view).num_rows == 0
        assert views[view]["released"] == views[view]["created"] == len(windows)
    for view in ("lost", "owed"):
        missed = missed_windows(layout, view).to_pylist()
        assert Counter(row["window"]["start"] for row in missed) == Counter(windows)
        assert {row["answered"] is not None for row in missed} == {view == "owed"}
        assert views[view]["shed"] + views[view]["missed"] == views[view]["created"] == len(windows)
    assert views["owed"]["late"] == len(windows)
    assert views["owed"]["owed"] == views["owed"]["abandoned"] == 0


def _put(folder: Path, number: int) -> pa.Table:
    """A file of the rides, behind those before."""
    rng = np.random.default_rng(number)
    moments = 1_700_000_000 + (number + rng.random(ROWS)) * SECONDS
    table = pa.table(
        {
            "ts": pa.array((moments * 1e6).astype(np.int64)).cast(pa.timestamp("us", "UTC")),
            "k": rng.integers(0, 3, ROWS),
            "x": rng.integers(-50, 50, ROWS),
        }
    )
    put_file(folder / f"{number}.parquet", partial(pq.write_table, table))
    return table
