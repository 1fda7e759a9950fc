"""What `penstock check` notes of a script without mistakes."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from penstock import Engine
from penstock.trigger import Trigger

pytestmark = pytest.mark.spark

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "tables.md").read_text()


def change(op: str, key: int, status: str, at: int) -> str:
    row = {"id": key, "status": status}
    sides = {"before": row, "after": None} if op == "d" else {"before": None, "after": row}
    return json.dumps({**sides, "op": op, "ts_ms": at})


def test_sinks_that_get_early_rows_of_windows_are_noted(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "s").mkdir()
    options = {
        "plain": "",
        "final": ", final_only 'true'",
        "chosen": ", mode 'changes'",
    }
    script = (
        f"CREATE TABLE s (k INT, at TIMESTAMP) USING json OPTIONS (path '{tmp_path}/s', event_time 'at');"
    )
    script += "CREATE TABLE shown USING console;"
    script += "CREATE VIEW w AS SELECT k, window, count(*) AS n FROM s GROUP BY k, window(at, '1 minute');"
    for name, further in options.items():
        script += f"CREATE TABLE {name} USING parquet OPTIONS (path '{tmp_path}/{name}'{further});"
    script += "".join(f"INSERT INTO {name} SELECT * FROM w;" for name in (*options, "shown"))
    script += f"CREATE TABLE kept USING parquet OPTIONS (path '{tmp_path}/kept'); INSERT INTO kept SELECT * FROM s WHERE k > 1;"
    assert Engine(spark).execute(script).notes == [
        "w: sink plain: rows of windows are written early and again when corrected or final (columns revision, is_final). "
        "OPTIONS (final_only 'true') writes final rows only."
    ]


def test_aggregations_over_change_events_are_noted_and_the_page_shows_the_rows(
    spark: SparkSession, tmp_path: Path
) -> None:
    (section,) = re.findall(r"^## Change events of Debezium\n(.*?)(?=^## )", PAGE, re.MULTILINE | re.DOTALL)
    script = "".join(re.findall(r"```sql\n(.*?)```", section, re.DOTALL))
    changes = [
        change("c", 1, "new", 1), change("c", 2, "new", 2), change("c", 3, "new", 3), change("u", 1, "paid", 4), change("d", 2, "new", 5)
    ]  # fmt: skip
    (tmp_path / "orders").mkdir()
    (tmp_path / "orders" / "1.json").write_text("\n".join(changes) + "\n")
    engine = Engine(spark).execute(script.replace("path 'orders'", f"path '{tmp_path}/orders'"))
    noted = "orders has changes, not rows: an update adds to this aggregation once more, and a delete too."
    assert not any(noted in note for note in engine.notes)
    engine.add_views(
        {
            "added": "SELECT status, COUNT(*) AS n FROM orders GROUP BY status",
            "windows": "SELECT window, COUNT(*) AS n FROM paid_or_new GROUP BY window(at, '1 minute')",
            "paid_or_new": "SELECT * FROM orders WHERE status <> 'op'",
            "by_op": "SELECT op, COUNT(*) AS n FROM orders GROUP BY op",
            "created": "SELECT status, COUNT(*) AS n FROM orders WHERE op = 'c' GROUP BY status",
            "filtered": "SELECT status, COUNT(*) FILTER (WHERE op = 'c') AS n FROM orders GROUP BY status",
        }
    )
    found = {note.partition(":")[0] for note in engine.notes if noted in note}
    assert found == {"added", "windows"}
    with engine.start(tmp_path / "out", trigger=Trigger.available_now()) as run:
        assert run.await_termination(300)
        assert {tuple(row) for row in run.results("per_status").select("status", "n").collect()} == {
            ("new", 1),
            ("paid", 1),
        }
