"""Views of the newer kinds by seed: over streams out of order, views that come and go, restarts and a kill, each is `spark.sql(text)`."""

from __future__ import annotations

import math
import random
import re
import signal
from collections import Counter
from datetime import datetime
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
import victim
from pyspark.sql import SparkSession

from forms import ALL, INTERPRETED
from generated_views import View, generated_views
from joined_inputs import STREAMS, Inputs
from killing import forked
from outer_joins import RAISING, TRIED
from penstock.spark.engine import Engine
from penstock.spark.results.read_plain import plain_rows
from penstock.spark.storage.layout import Layout
from penstock.spark.storage.refreshed import REFRESHED
from penstock.trigger import Trigger

pytestmark = [pytest.mark.spark, pytest.mark.chaos, pytest.mark.timeout(1_800)]

#: 400 views in the long form, and a kill in every third run: `test_every_lane_killed.py` has one in the short form
FIRST, LATER = (28, 12) if ALL else (14, 4)
#: in the first life some views are of no longer life
GONE = ("v0", "v3")
PLACES = ("staged", "before_commit", "cut_put", "cut_answered", "cut_published", "rows_logged")
#: with this hint a view has all tuples, however late it is declared
BACKFILL = "/*+ BACKFILL */"


@pytest.mark.parametrize("seed", range(10) if ALL else [1])
def test_views_of_all_kinds_are_their_texts(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    choice = random.Random(seed)
    inputs = Inputs(tmp_path / "in", np.random.default_rng(seed))
    tables, output = inputs.script(), tmp_path / "out"
    first, later = generated_views(seed, FIRST, "f_"), generated_views(1_000 + seed, LATER, "l_")
    for name, view in later.items():
        if view.kind in ("running", "windows") and choice.random() < 0.5:
            later[name] = View(view.text.replace("SELECT", f"SELECT {BACKFILL}", 1), view.kind)
    inputs.feed(2, count=40)
    _answer(spark, tables, first, output)
    gone = {f"f_{name}" for name in GONE}
    compared = {name: view for name, view in first.items() if name in gone or "_v" not in name}
    _compare(spark, inputs, output, compared, seed)
    before = {name: len(tables) for name, tables in inputs.tuples.items()}
    staying = {name: view for name, view in first.items() if name not in gone}
    inputs.feed(2, count=40)
    if seed % 3 == 0:
        _kill(tmp_path, tables, {**staying, **later}, choice.choice(PLACES))
    else:
        _answer(spark, tables, {**staying, **later}, output)
    inputs.feed(1, count=40)
    _answer(spark, tables, {**staying, **later}, output, ended=choice.random() < 0.5)
    _compare(spark, inputs, output, staying, seed)
    _compare(spark, inputs, output, later, seed, before)


def _answer(
    spark: SparkSession, tables: str, views: dict[str, View], output: Path, *, ended: bool = False
) -> None:
    """A life of a run."""
    engine = Engine(spark, retry_attempts=20).execute(tables)
    engine.add_views({name: view.text for name, view in views.items()})
    run = engine.start(output, trigger=Trigger.available_now(ended=ended))
    try:
        assert run.await_termination(900)
    finally:
        run.stop()


def _kill(folder: Path, tables: str, views: dict[str, View], place: str) -> None:
    """A life that kills itself at a place, or ends before it comes there."""
    script, log = folder / "script.sql", folder / "victim.log"
    declared = ";\n".join(f"CREATE VIEW {name} AS {view.text}" for name, view in views.items())
    script.write_text(f"{tables};\n{declared};")
    conf = [
        f"{key}={value}"
        for key, value in {"spark.python.daemon.module": "pyspark.daemon", **INTERPRETED}.items()
    ]
    code = forked(victim.main_with, {}, str(script), str(folder / "out"), *conf, log=log, failpoint=place)
    assert code in (0, -signal.SIGKILL), f"{place}: {code}; {log.read_text()[-3000:]}"


def _compare(
    spark: SparkSession,
    inputs: Inputs,
    output: Path,
    views: dict[str, View],
    seed: int,
    before: dict[str, int] | None = None,
) -> None:
    """Compares each view with its text over the tuples since it was declared.

    Args:
        spark: the session.
        inputs: has all tuples.
        output: of the run.
        views: the views, those beneath others first.
        seed: is told where they differ.
        before: by stream how many files came before the views were declared; None: none.
    """
    layout, failed = Layout.of(output, None), []
    for name, view in views.items():
        has_all = before is None or view.kind == "windows" or BACKFILL in view.text
        since = {} if has_all else before or {}
        if view.kind == "refreshed" and since:
            since = _since(layout, name, since)
        _register(spark, inputs, since, view)
        for below, selection in views.items():
            # what is aggregated over a selection has of it what it has of the stream
            if selection.kind == "selection":
                spark.sql(selection.text).createOrReplaceTempView(below)
        wanted = spark.sql(RAISING.sub(TRIED, view.text))
        if view.kind == "windows" and before is not None and BACKFILL not in view.text:
            newest = max(
                pc.max(table["ts"]).as_py() for table in inputs.tuples[_stream(view)][: before[_stream(view)]]
            )
            wanted = wanted.where(f"w.end > timestamp_micros({round(newest.timestamp() * 1e6)})")
        if any(re.search(rf"\b{name}\b", other.text) for other in views.values()):
            wanted = wanted.cache()
        # as a frame of Spark's, whose windows others may be over
        wanted.createOrReplaceTempView(name)
        table = wanted.toArrow()
        found = plain_rows(layout, name, 0, False)
        assert found is not None, name
        if bag(found.rows) != bag(table):
            missing, other = bag(table) - bag(found.rows), bag(found.rows) - bag(table)
            failed.append((seed, name, view, list(missing.items())[:3], list(other.items())[:3]))
    assert not failed, "\n".join(map(str, failed))


def _since(layout: Layout, name: str, before: dict[str, int]) -> dict[str, int]:
    """Of a refreshed view: it has all tuples of a stream of which another one has asked for the same since the first one."""
    registered = REFRESHED.read(layout).of(name)
    assert registered is not None, name
    begun = {each.stream: each.entry for each in registered.beginnings}
    return {stream: 0 if begun.get(stream, 0) < 0 else files for stream, files in before.items()}


def _stream(view: View) -> str:
    return next(name for name in ("weather", "delays", "flights") if name in f"{view.text} flights")


def _register(spark: SparkSession, inputs: Inputs, before: dict[str, int], view: View) -> None:
    """Lets Spark's own queries see the tuples: of several inputs before an optional stream one without an event time is in no row."""
    for name in STREAMS:
        is_timed = view.kind == "join" and view.shape.startswith("a stream behind")
        inputs.frame(spark, name, before.get(name, 0), is_timed=is_timed).createOrReplaceTempView(name)
    inputs.register_tables(spark)


def bag(rows: pa.Table) -> Counter[str]:
    """The rows, a window by its beginning, doubles to nine digits."""
    return Counter(
        repr(sorted((name, _plain(value)) for name, value in row.items())) for row in rows.to_pylist()
    )


def _plain(value: object) -> str:
    if isinstance(value, dict):
        value = value["start"]
    if isinstance(value, datetime):
        value = value.timestamp()
    if isinstance(value, float):
        return "nan" if math.isnan(value) else f"{value + 0.0:.9g}"
    return repr(value)
