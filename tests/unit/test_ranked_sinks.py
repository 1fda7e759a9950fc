"""Sinks of rankings: the partition and the place are the key, and nothing else is."""

from __future__ import annotations

from typing import Any, cast

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from penstock.errors import SqlError
from penstock.plan.rankings import PLACE_TYPE, RANK, ROW_NUMBER
from penstock.spark.declaring.insertions import key_needs
from penstock.spark.results.window_schemas import own_schema
from penstock.spark.sinks.declared import SinkView, table_sink
from penstock.sql.script.script import parse_script
from penstock.sql.windows.bind import BoundOutput, BoundWindow
from plain_rankings import ranked_plan

NONE = cast(SparkSession, None)
KINDS = {"_k0": pa.int64(), "_k1": PLACE_TYPE, "_a0": pa.int64()}


def bound(limit: int, function: str, **outputs: str) -> BoundWindow:
    made = tuple(BoundOutput(expression, name, KINDS[expression]) for name, expression in outputs.items())
    whole = pa.struct([("all", pa.bool_())])
    return BoundWindow(cast(Any, ranked_plan(limit, function).views[0]), (), None, whole, made, None)


def refusal(view: SinkView, options: str) -> str:
    script = parse_script(f"CREATE TABLE t USING delta OPTIONS (path 'x', {options});")
    with pytest.raises(SqlError) as caught:
        table_sink(NONE, script.tables[0], view, "")
    return caught.value.message


@pytest.mark.parametrize(
    ("window", "needs"),
    [
        (bound(3, ROW_NUMBER, k="_k0", place="_k1", x="_a0"), ""),
        (bound(3, ROW_NUMBER, k="_k0", x="_a0"), "select its place"),
        (bound(3, ROW_NUMBER, x="_a0"), "select its PARTITION BY columns and its place"),
        (bound(1, ROW_NUMBER, k="_k0", x="_a0"), ""),
        (bound(1, ROW_NUMBER, x="_a0"), "select its PARTITION BY columns"),
        (bound(1, RANK, k="_k0", x="_a0"), "RANK gives equal rows one place. Use ROW_NUMBER"),
    ],
)
def test_what_gives_a_ranking_a_key(window: BoundWindow, needs: str) -> None:
    assert key_needs(window) == needs
    if needs:
        view = SinkView("v", own_schema(window), None, has_windows=False, changes=True, needs=needs)
        assert f"view v has none: {needs}, or use mode changes" in refusal(view, "mode 'upsert'")
        assert f"view v has no key: {needs}" in refusal(view, "mode 'upsert', key 'x'")


@pytest.mark.parametrize("key", ["k", "place", "k, x", "k, place, x"])
def test_another_key_is_refused(key: str) -> None:
    window = bound(3, ROW_NUMBER, k="_k0", place="_k1", x="_a0")
    view = SinkView("v", own_schema(window), ("k", "place"), has_windows=False, changes=True, needs="")
    assert "has the key k, place" in refusal(view, f"mode 'upsert', key '{key}'")
