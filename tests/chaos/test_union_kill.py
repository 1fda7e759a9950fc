"""`kill -9` of a run with UNION ALL views, at each step of a cut: each row is published once, and windows over them are those of an undisturbed run."""

from __future__ import annotations

import signal
from collections import Counter
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest
import victim

from engine_cases import put_rides
from forms import ALL, INTERPRETED
from killing import forked
from penstock.spark.results.read_plain import plain_rows
from penstock.spark.storage.layout import Layout

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(1_800)]

PLACES = (
    ("cut_put", "cut_answered", "cut_published", "rows_logged", "binding_put", "staged")
    if ALL
    else ("cut_answered", "cut_published", "rows_logged")
)
FILES_A_START, ROWS, SECONDS = 2, 200, 60
BOTH = "SELECT ts, k, x FROM rides WHERE x > 2 UNION ALL SELECT ts, upper(k), x * 2 FROM rides WHERE k = 'a'"
VIEWS = {
    "every": BOTH,
    "few": "SELECT k, x FROM every WHERE x > 10",
    "sums": "SELECT k, count(*) AS n, max(x) AS most FROM every GROUP BY k",
}
MINUTES = (
    "SELECT window(ts, '1 minute').start AS begun, count(*) AS n FROM every GROUP BY window(ts, '1 minute')"
)


def test_a_killed_run_publishes_each_row_once(tmp_path: Path) -> None:
    script, log = tmp_path / "script.sql", tmp_path / "victim.log"
    (tmp_path / "rides").mkdir()
    options = f"path '{tmp_path / 'rides'}', event_time 'ts', max_files_per_trigger '1'"
    views = "\n".join(
        f"CREATE VIEW {name} AS {text};" for name, text in {**VIEWS, "minutes": MINUTES}.items()
    )
    script.write_text(f"CREATE TABLE rides USING parquet OPTIONS ({options});\n{views}")
    conf = [
        f"{key}={value}"
        for key, value in {"spark.python.daemon.module": "pyspark.daemon", **INTERPRETED}.items()
    ]
    tables: list[pa.Table] = []
    for place in (*PLACES, ""):
        for _ in range(FILES_A_START):
            begin = 1_700_000_000 + len(tables) * SECONDS
            tables.append(put_rides(tmp_path, len(tables), ROWS, begin, SECONDS))
        code = forked(
            victim.main_with, {}, str(script), str(tmp_path / "out"), *conf, log=log, failpoint=place
        )
        assert code == (-signal.SIGKILL if place else 0), f"{place}: {code}; {log.read_text()[-3000:]}"
    layout = Layout.of(str(tmp_path / "out"), None)
    with duckdb.connect() as connection:
        connection.register("rides", pa.concat_tables(tables))
        connection.sql(BOTH).to_view("every")
        wanted = {name: connection.sql(text).to_arrow_table() for name, text in VIEWS.items()}
        minutes = connection.sql(
            "SELECT epoch_us(time_bucket(INTERVAL '1 minute', ts)), count(*) FROM every GROUP BY 1"
        )
        expected = dict(minutes.fetchall())
    for name, rows in wanted.items():
        found = plain_rows(layout, name, 0, False)
        assert found is not None
        assert _bag(found.rows) == _bag(rows), name
        assert rows.num_rows > 0
    found = plain_rows(layout, "minutes", 0, False)
    assert found is not None
    begun = found.rows.column("begun").cast(pa.int64()).to_pylist()
    told = dict(zip(begun, found.rows.column("n").to_pylist(), strict=True))
    assert told
    assert told.items() <= expected.items(), "the last minutes are not due yet"
    assert len(expected) - len(told) <= 3


def _bag(table: pa.Table) -> Counter[tuple[object, ...]]:
    return Counter(tuple(row.values()) for row in table.to_pylist())
