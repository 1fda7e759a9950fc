"""`value:path` in SELECT lists, keys and aggregates as in conditions; extremes of structs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from penstock import Engine
from penstock.errors import UnsupportedError
from whole_runs import run_to_end

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_a_field_of_a_variant_is_selected_as_it_is_compared(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "1.json").write_text(
        '{"id": "1", "at": "2024-05-01T10:00:00Z", "payload": "{\\"size\\": 3, \\"by\\": {\\"who\\": \\"a\\"}}"}\n'
    )
    script = (
        f"CREATE TABLE events (id STRING, payload STRING, at TIMESTAMP) USING json OPTIONS (path '{tmp_path}/in', event_time 'at');\n"
        "CREATE VIEW big AS SELECT id, parse_json(payload):size::int AS n, parse_json(e.payload):by.who::string AS who "
        "FROM events e WHERE parse_json(payload):size::int > 2;\n"
        "CREATE VIEW over_it AS SELECT n + 1 AS m FROM big WHERE who = 'a';\n"
        "CREATE VIEW per_size AS SELECT parse_json(payload):size::int AS n, max(parse_json(payload):by.who::string) AS who "
        "FROM events GROUP BY parse_json(payload):size::int, window(at, '1 minute');\n"
    )
    engine = Engine(spark).execute(script)
    with pytest.raises(
        UnsupportedError, match=r"max of STRUCT<.*> is not supported yet. Take it of each field.*\.`at`\)"
    ):
        engine.view("latest", "SELECT max(struct(at, id)) AS m FROM events GROUP BY window(at, '1 minute')")
    run = run_to_end(engine, str(tmp_path / "out"), ended=True, seconds=None)
    assert run.results("big").collect() == [("1", 3, "a")]
    assert run.results("over_it").collect() == [(4,)]
    assert run.results("per_size").collect() == [(3, "a")]
