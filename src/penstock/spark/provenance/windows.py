"""The windows that a tuple belongs to, and what a results folder says became of them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from penstock.monitor.folder import folder_status
from penstock.provenance import Fate, Revision, TupleWindow
from penstock.spark.analysis.gate import tried
from penstock.spark.analysis.grouping_sets import keys_by_sets
from penstock.spark.analysis.schemas import spark_schema
from penstock.spark.provenance.verdicts import number
from penstock.spark.recovery.messages import quoted
from penstock.spark.reporting.catalog import find_view
from penstock.spark.results.frames import published_frame
from penstock.spark.results.misses import MISSES, missed_paths
from penstock.spark.results.read import TO_JSON
from penstock.spark.results.window_rows import window_revisions
from penstock.spark.results.window_schemas import (
    DELETE,
    FIRST_REVISION,
    ROW,
    ReadableView,
    require_readable,
)
from penstock.spark.storage.deadlines import DEADLINES_NAME
from penstock.spark.storage.layout import Layout
from penstock.sql.windows.query import WindowQuery

_TIME, _WINDOW, _WAY = "_time", "_window", "_way"


def windows_of(tuple_: DataFrame, query: WindowQuery) -> DataFrame:
    """The windows that a tuple belongs to.

    Args:
        tuple_: a frame of one row.
        query: the view, flattened.

    Returns:
        A row for each, and for each grouping set: `_window`, a struct of `start` and `end`, and the grouping keys `_k0`, ..., the grouping
        ID too; none where the event time is NULL or cannot be computed.
    """
    spark, laid = tuple_.sparkSession, query.windows
    keys = [tried(spark, key.expression).alias(key.name) for key in query.keys]
    timed = tuple_.select(tried(spark, query.time).alias(_TIME), *keys)
    lengths = (f"{length} microseconds" for length in (laid.size, laid.slide, laid.start))
    names = [key.name for key in query.keys]
    windows = timed.select(F.window(_TIME, *lengths).alias(_WINDOW), *names)
    if not query.sets:
        return windows
    ways = keys_by_sets(windows, [F.col(name) for name in names], query.sets)
    return windows.select(_WINDOW, ways.alias(_WAY)).select(_WINDOW, f"{_WAY}.*")


def without_fate(windows: DataFrame, query: WindowQuery) -> list[TupleWindow]:
    """The windows alone, by start."""
    return [_window(each, query) for each in _collected(windows.select(_json(windows.columns).alias("own")))]


def with_fate(windows: DataFrame, query: WindowQuery, layout: Layout, view: str) -> list[TupleWindow]:
    """The windows, by start, with what was published of them.

    Args:
        windows: see `windows_of`.
        query: the view, flattened.
        layout: of the results folder.
        view: the view's name.

    Raises:
        InputError: it is no results folder.
        UnknownNameError: the folder has no such view, or no results of it yet.
    """
    name, entry = find_view(layout, view)
    readable = require_readable(layout, entry["stream"], name, entry["id"])
    spark = windows.sparkSession
    revisions = window_revisions(spark, layout, entry["stream"], name, readable)
    is_same = [F.col(f"{ROW}.start") == F.col(f"{_WINDOW}.start")]
    is_same += [
        F.col(f"{ROW}.k{position}").eqNullSafe(F.col(name))
        for position, name in enumerate(windows.columns[1:])
    ]
    marks = [F.col(quoted(own)).alias(mark) for mark, own in readable.marks.items()]
    row = F.struct(*map(F.col, map(quoted, readable.columns.names))).alias("row")
    published = revisions.select(ROW, F.struct(*marks, row).alias("told"))
    told = (
        windows.join(published, is_same, "left")
        .groupBy(*windows.columns)
        .agg(F.collect_list("told").alias("told"))
        .select(_json(windows.columns).alias("own"), F.to_json("told", TO_JSON).alias("told"))
    )
    found = [_judged(_window(each, query), each["told"]) for each in _collected(told)]
    if entry["stream"] == DEADLINES_NAME:
        return _with_misses(found, windows, layout, name)
    others = _of_other_groups(windows, revisions, readable)
    newest = folder_status(layout.output)["streams"].get(entry["stream"], {}).get("newest_event_time_us")
    ends = {each["own"][_WINDOW]["start"]: each["end_us"] for each in _collected(_ends(windows))}
    return [
        _explained(each, newest, ends[each.start], others.get(each.start, False))
        if each.fate == "no row"
        else each
        for each in found
    ]


def _explained(window: TupleWindow, newest_us: int | None, end_us: int, is_final: bool) -> TupleWindow:
    """Says why no row was published for a window and its keys."""
    if newest_us is None or newest_us < end_us:
        return replace(
            window, fate="not due", reason="the newest event time of the stream is before the window's end"
        )
    state = "other groups of this window are final" if is_final else "no group of this window is final"
    return replace(
        window,
        reason=f"the results have no row of these keys; {state}. No tuple of them satisfied WHERE, HAVING removed the "
        "row, the row left by retention, or the tuple has not been read yet",
    )


def _of_other_groups(windows: DataFrame, revisions: DataFrame, readable: ReadableView) -> Mapping[str, bool]:
    """Whether any row of a window is final, by the window's start."""
    final = F.col(quoted(readable.marks["is_final"]))
    found = (
        windows.join(revisions, F.col(f"{ROW}.start") == F.col(f"{_WINDOW}.start"))
        .groupBy(_WINDOW)
        .agg(F.bool_or(final).alias("final"))
    )
    return {
        each["own"][_WINDOW]["start"]: bool(each["final"])
        for each in _collected(found.select(_json([_WINDOW]).alias("own"), "final"))
    }


def _ends(windows: DataFrame) -> DataFrame:
    end = F.unix_micros(F.col(f"{_WINDOW}.end").cast("timestamp"))
    return windows.select(_json([_WINDOW]).alias("own"), end.alias("end_us"))


def _with_misses(
    found: Sequence[TupleWindow], windows: DataFrame, layout: Layout, view: str
) -> list[TupleWindow]:
    """Adds the windows that were not released in time."""
    spark = windows.sparkSession
    missed = published_frame(spark, spark_schema(MISSES), missed_paths(layout, view))
    told = windows.join(missed, F.col("window.start") == F.col(f"{_WINDOW}.start"))
    rows = _collected(told.select(_json([_WINDOW]).alias("own"), "outcome", "reason"))
    reasons = {each["own"][_WINDOW]["start"]: f"{each['outcome']}: {each['reason']}" for each in rows}
    return [
        replace(each, fate="missed", reason=reasons[each.start])
        if each.start in reasons and each.fate == "no row"
        else each
        for each in found
    ]


def _judged(window: TupleWindow, told: Any) -> TupleWindow:
    revisions = sorted(
        (
            Revision(each["revision"], each["coverage"], each["is_final"], each["op"], each["row"])
            for each in told or ()
        ),
        key=lambda each: (each.is_final, each.revision),
    )
    return replace(window, fate=_fate(revisions), revisions=tuple(revisions))


def _fate(revisions: Sequence[Revision]) -> Fate:
    if not revisions:
        return "no row"
    newest = revisions[-1]
    if newest.op == DELETE:
        return "withdrawn"
    if newest.is_final and newest.revision < FIRST_REVISION:
        return "final"
    return "corrected" if newest.revision > 0 else "early"


def _window(row: Mapping[str, Any], query: WindowQuery) -> TupleWindow:
    own = row["own"]
    keys = {key.clause.text: own[key.name] for key in query.keys}
    if query.grouping_id is not None:
        keys["grouping_id()"] = own[query.grouping_id]
    return TupleWindow(own[_WINDOW]["start"], own[_WINDOW]["end"], keys)


def _json(names: Sequence[str]) -> Column:
    return F.to_json(F.struct(*names), TO_JSON)


def _collected(frame: DataFrame) -> list[dict[str, Any]]:
    """Rows with their JSON read, by the start of the window."""
    rows = [
        {
            name: json.loads(value, parse_float=number) if name in ("own", "told") else value
            for name, value in row.asDict().items()
        }
        for row in frame.collect()
    ]
    # those of a window in the order of their keys: of grouping sets the ID is the last one
    return sorted(rows, key=lambda row: (str(row["own"][_WINDOW]["start"]), str(row["own"])))
