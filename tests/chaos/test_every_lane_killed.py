"""`kill -9` of a run with views of every kind, once in each lane: in the end each answer is that of an undisturbed run.

The short form kills it at two places. Places of files and logs alone need no Spark: `test_lane_kill.py`, `test_running_kill.py`,
`test_ranked_kill.py` and `test_session_kill.py` kill a lane's process at each place of a cut, `tests/unit/` the processes that
write batches, logs, runs and events.
"""

from __future__ import annotations

import signal
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest
import victim
from pyspark.sql import SparkSession

from conftest import S3_JARS
from engine_cases import put_rides
from forms import ALL, INTERPRETED
from killing import forked
from penstock.monitor.folder import folder_status
from penstock.spark.results.misses import missed_windows
from penstock.spark.results.read_plain import plain_rows
from penstock.spark.storage.layout import Layout
from penstock_lab.servers.s3 import S3Server

pytestmark = [pytest.mark.spark, pytest.mark.chaos, pytest.mark.timeout(1_800)]

#: of the ingest, of a lane of each kind, of the rows that other views read, and of the views with a deadline
PLACES = (
    "staged",
    "cut_answered@rides.results",
    "cut_published@joins.0",
    "cut_answered@unions.0",
    "rows_logged@unions.0",
    "cut_answered@refreshed.0",
    "cut_published@rides.running.0.results",
    "order_judged",
    "cut_put",
    "bound",
    "cut_answered@joins.1",
    "cut_published@joins.1",
)
#: in the short form of a lane with cuts and of the one without; the lanes with cuts are of one class
if not ALL:
    PLACES = ("cut_answered@rides.results", "order_judged")
FILES_A_START, ROWS, SECONDS = 2, 200, 60
BY_KEY = "k, window(ts, '10 seconds') AS w, count(*) AS n, sum(x) AS s FROM rides GROUP BY k, w"
BOTH = "SELECT ts, k, x FROM rides WHERE x > 2 UNION ALL SELECT ts, upper(k), x * 2 FROM rides WHERE k = 'a'"
BEST = "k, x FROM rides WHERE x = (SELECT max(x) FROM rides)"
VIEWS = {
    "high": "SELECT * FROM rides WHERE x > 30",
    "sums": f"SELECT {BY_KEY}",
    "peaks": "SELECT window(w, '30 seconds') AS w, max(n) AS most, count(*) AS groups FROM sums GROUP BY window(w, '30 seconds')",
    "pairs": "SELECT a.k, a.ts AS first, b.ts AS later, b.x FROM rides a JOIN rides b ON a.k = b.k AND "
    "b.ts BETWEEN a.ts + INTERVAL 1 SECOND AND a.ts + INTERVAL 2 SECONDS",
    "before": "SELECT a.k, a.ts, a.x, b.ts AS earlier, b.x AS before FROM rides a LEFT ASOF JOIN rides b MATCH_CONDITION (a.ts > b.ts) "
    "ON a.k = b.k AND b.x > 0",
    "timely": f"SELECT /*+ DEADLINE('1 hour') */ {BY_KEY}",
    "so_far": "SELECT k, count(*) AS n, sum(x) AS s FROM rides GROUP BY k",
    "peaks_of_keys": "SELECT k, window(ts, '10 seconds') AS w, max(x) AS most FROM rides GROUP BY k, w",
    "mean_of_peaks": "SELECT avg(most) AS mean, count(*) AS windows FROM peaks_of_keys",
    "every": BOTH,
    "few": "SELECT k, x FROM every WHERE x > 10",
    "most": "SELECT k, max(x) AS most FROM every GROUP BY k",
    "visits": "SELECT k, count(*) AS n, session_window.start AS begun FROM rides GROUP BY k, session_window(ts, '2 seconds')",
    "rounded": "SELECT /*+ REFRESH('1 second') */ k, floor(x) AS y FROM rides",
    "minutes": "SELECT window(ts, '1 minute') AS w, count(*) AS n FROM every GROUP BY w",
    "best": f"SELECT /*+ REFRESH('1 second') */ {BEST}",
}
SUMS = (
    "SELECT k, time_bucket(INTERVAL 10 SECONDS, ts) AS w, count(*) AS n, sum(x) AS s FROM rides GROUP BY ALL"
)
#: the same for DuckDB, a window by its beginning
WANTED = {
    "sums": SUMS,
    "peaks": f"SELECT time_bucket(INTERVAL 30 SECONDS, w) AS w, max(n) AS most, count(*) AS groups FROM ({SUMS}) GROUP BY ALL",
    "pairs": VIEWS["pairs"],
    "before": "SELECT a.k, a.ts, a.x, b.ts AS earlier, b.x AS before FROM rides a ASOF LEFT JOIN (SELECT * FROM rides WHERE x > 0) b "
    "ON a.k = b.k AND a.ts > b.ts",
    "timely": SUMS,
    "high": VIEWS["high"],
    "so_far": VIEWS["so_far"],
    "mean_of_peaks": "SELECT avg(most) AS mean, count(*) AS windows FROM (SELECT max(x) AS most FROM rides GROUP BY k, "
    "time_bucket(INTERVAL 10 SECONDS, ts))",
    "every": BOTH,
    "few": f"SELECT k, x FROM ({BOTH}) WHERE x > 10",
    "most": f"SELECT k, max(x) AS most FROM ({BOTH}) GROUP BY k",
    "visits": "SELECT k, count(*) AS n, min(ts) AS begun FROM (SELECT k, ts, sum(is_new) OVER (PARTITION BY k ORDER BY ts RANGE UNBOUNDED "
    "PRECEDING) AS visit FROM (SELECT k, ts, CASE WHEN ts - lag(ts) OVER (PARTITION BY k ORDER BY ts) <= INTERVAL 2 SECONDS THEN 0 ELSE 1 END "
    "AS is_new FROM rides)) GROUP BY k, visit",
    "rounded": "SELECT k, floor(x)::BIGINT AS y FROM rides",
    "minutes": f"SELECT time_bucket(INTERVAL 1 MINUTE, ts) AS w, count(*) AS n FROM ({BOTH}) GROUP BY ALL",
    "best": f"SELECT {BEST}",
}


def test_a_run_killed_in_every_lane_answers_all_once(spark: SparkSession, tmp_path: Path) -> None:
    _kill_and_check(spark, tmp_path, str(tmp_path / "out"), {})


@pytest.mark.long
def test_a_run_on_an_object_store_killed_in_every_lane_answers_all_once(
    spark: SparkSession, tmp_path: Path, s3_environment: S3Server
) -> None:
    output = f"s3://bucket/killed-{time.time_ns()}"
    jars = {"spark.jars": ",".join(map(str, S3_JARS))}
    _kill_and_check(spark, tmp_path, output, s3_environment.environment(), **jars)


def _kill_and_check(
    spark: SparkSession, tmp_path: Path, output: str, environment: Mapping[str, str], **settings: str
) -> None:
    script, log = tmp_path / "script.sql", tmp_path / "victim.log"
    (tmp_path / "rides").mkdir()
    options = f"path '{tmp_path / 'rides'}', event_time 'ts', max_files_per_trigger '1'"
    views = "\n".join(f"CREATE VIEW {name} AS {text};" for name, text in VIEWS.items())
    script.write_text(f"CREATE TABLE rides USING parquet OPTIONS ({options});\n{views}")
    tables: list[pa.Table] = []
    for place in (*PLACES, ""):
        for _ in range(FILES_A_START):
            begin = 1_700_000_000 + len(tables) * SECONDS
            tables.append(put_rides(tmp_path, len(tables), ROWS, begin, SECONDS))
        conf = [
            f"{key}={value}"
            for key, value in {
                "spark.python.daemon.module": "pyspark.daemon",
                # that of the last run
                "spark.sql.session.timeZone": "UTC",
                **INTERPRETED,
                **settings,
            }.items()
        ]
        if not place:
            # nothing kills the last one
            victim.answer(spark, str(script), output, "--ended")
            break
        code = forked(victim.main_with, environment, str(script), output, *conf, log=log, failpoint=place)
        assert code == -signal.SIGKILL, f"{place}: {code}; {log.read_text()[-3000:]}"
    _check(Layout.of(output, None), pa.concat_tables(tables))


def _check(layout: Layout, rides: pa.Table) -> None:
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.register("rides", rides)
        wanted = {name: connection.sql(text).to_arrow_table() for name, text in WANTED.items()}
    for name, rows in wanted.items():
        found = plain_rows(layout, name, 0, False)
        assert found is not None
        assert rows.num_rows > 0
        assert _bag(found.rows) == _bag(rows), name
    for name in ("sums", "peaks", "timely", "so_far", "mean_of_peaks", "minutes"):
        told = plain_rows(layout, name, 0, True)
        assert told is not None
        assert max(Counter(map(repr, told.rows.to_pylist())).values()) == 1, f"{name}: nothing is told twice"
    timely = folder_status(layout.output)["views"]["timely"]
    assert missed_windows(layout, "timely").num_rows == 0
    assert timely["released"] == timely["created"] == len(wanted["timely"]["w"].unique())


def _bag(table: pa.Table) -> Counter[tuple[object, ...]]:
    """The rows of a table, a window by its beginning, whatever the order of columns."""
    return Counter(
        tuple(row[name]["start"] if isinstance(row[name], dict) else row[name] for name in sorted(row))
        for row in table.to_pylist()
    )
