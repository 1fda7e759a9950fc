"""`kill -9` of a run with refreshed views, at each step of a cut: each answer is in the end that of an undisturbed run, told once."""

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
    ("cut_put", "cut_answered", "cut_published", "binding_put", "staged")
    if ALL
    else ("cut_answered", "cut_published")
)
FILES_A_START, ROWS, SECONDS = 2, 200, 60
HINT = "/*+ REFRESH('1 second') */"
VIEWS = {
    "sums": f"SELECT {HINT} k, count(*) AS n, max(x) AS most FROM rides GROUP BY k",
    "best": f"SELECT {HINT} k, x FROM rides WHERE x = (SELECT max(x) FROM rides)",
    "rounded": f"SELECT {HINT} k, floor(x) AS y FROM rides",
}


def test_a_killed_run_tells_each_answer_once(tmp_path: Path) -> None:
    script, log = tmp_path / "script.sql", tmp_path / "victim.log"
    (tmp_path / "rides").mkdir()
    options = f"path '{tmp_path / 'rides'}', event_time 'ts', max_files_per_trigger '1'"
    views = "\n".join(f"CREATE VIEW {name} AS {text};" for name, text in VIEWS.items())
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
        for name, text in VIEWS.items():
            found = plain_rows(layout, name, 0, False)
            assert found is not None
            wanted = connection.sql(text).to_arrow_table()
            assert _bag(found.rows) == _bag(wanted), name
            assert wanted.num_rows > 0


def _bag(table: pa.Table) -> Counter[tuple[object, ...]]:
    return Counter(tuple(row.values()) for row in table.to_pylist())
