"""Results of window views on the driver: those that only Spark can make, and reading them."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import reduce

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from penstock.plan.names import free_name
from penstock.spark.analysis.gate import tried
from penstock.spark.analysis.schemas import spark_schema
from penstock.spark.publication.staged import BatchFiles, StagedFile, WrittenFile
from penstock.spark.recovery.messages import quoted
from penstock.spark.results.frames import published_frame
from penstock.spark.results.revisions import parts_of, standing_frame
from penstock.spark.results.window_schemas import (
    BEFORE,
    CORRECTED,
    DELETE,
    FINAL,
    FIRST_REVISION,
    MARKS,
    OP,
    REVISION,
    ROW,
    ReadableView,
    mark_names,
    require_readable,
    result_schema,
    row_type,
)
from penstock.spark.results.window_staging import StagedResults, raw_schema, written
from penstock.spark.storage.layout import Layout
from penstock.sql.windows.bind import BoundWindow

_PASSES = "__penstock_passes"
#: of a group of a view with HAVING: whether it passed in the revision before, and 1, 0 or -1 by how it changes the number of results
_PASSED = "__penstock_passed"
_CHANGE = "__penstock_change"


@dataclass(frozen=True, slots=True)
class MadeResults:
    """The results of one view that Spark made.

    Attributes:
        job: its operator.
        partition: 0, as there is one file.
        files: the file, if it is stored; none where no row was left.
        view: the view, if it has HAVING.
        more: of a view with HAVING, by how many rows its results grow.
        left: the file, if it is left in a scratch folder.
    """

    job: int
    partition: int
    files: Sequence[StagedFile]
    view: str = ""
    more: int = 0
    left: Sequence[WrittenFile] = ()


def make_results(
    spark: SparkSession,
    raw: Sequence[StagedResults],
    view: Callable[[StagedResults], BoundWindow],
    store: BatchFiles | None,
) -> list[MadeResults]:
    """Makes the results of raw files: one Spark job, one task a view.

    An expression that raises for a group gives NULL there; a condition on groups that raises is not met.

    Args:
        spark: the session whose settings the views were bound under.
        raw: staged raw files.
        view: gives the view of a file.
        store: stores the files; None: they are left beside the raw files.
    """
    by_view: dict[tuple[int, str], list[StagedResults]] = {}
    for staged in raw:
        by_view.setdefault((staged.operator, staged.view), []).append(staged)
    frames = []
    for (operator, _), files in by_view.items():
        bound = view(files[0])
        frame = published_frame(
            spark, spark_schema(raw_schema(bound)), [file.path for each in files for file in each.left]
        )
        results = _results(spark, bound, frame.coalesce(1))
        revision = mark_names([output.name for output in bound.outputs])[REVISION]
        has_having = bound.having is not None
        stage = _stager(operator, files[0], result_schema(bound), store, revision, has_having=has_having)
        frames.append(results.mapInArrow(stage, "made BINARY"))
    if not frames:
        return []
    return [pickle.loads(row.made) for row in reduce(DataFrame.union, frames).collect()]


def window_results(
    spark: SparkSession,
    layout: Layout,
    stream: str,
    view: str,
    definition: str,
    final_only: bool = False,
) -> DataFrame:
    """The newest revision of each row of a window view, those withdrawn left out, with the view's own columns; see `parts_of`.

    Args:
        spark: the session.
        layout: the results folder.
        stream: the view's stream.
        view: its name.
        definition: the id of one of its definitions.
        final_only: whether only final rows are wanted, with CORRECTED.

    Raises:
        UnknownNameError: by that definition the view has answered nothing yet.
    """
    readable = require_readable(layout, stream, view, definition)
    every = [
        part.own_frame(published_frame(spark, readable.schema, part.files), readable)
        for part in parts_of(layout, stream, view, readable)
    ]
    kept, marks = standing_frame(reduce(DataFrame.union, every), readable), readable.marks
    own = [F.col(quoted(name)) for name in readable.columns.names]
    if not final_only:
        return kept.select(*own)
    is_corrected = F.col(marks[REVISION]) >= FIRST_REVISION
    corrected = free_name(CORRECTED, readable.columns.names)
    return kept.where(F.col(marks[FINAL])).select(*own, is_corrected.alias(corrected))


def window_changes(spark: SparkSession, layout: Layout, stream: str, view: str, definition: str) -> DataFrame:
    """Every revision of every row of a window view: its own columns and the marks; see `window_results`."""
    readable = require_readable(layout, stream, view, definition)
    return window_revisions(spark, layout, stream, view, readable).drop(ROW)


def window_revisions(
    spark: SparkSession, layout: Layout, stream: str, view: str, readable: ReadableView
) -> DataFrame:
    """Every revision that the newest operator of a window view has published: its own columns, the marks and ROW."""
    newest, *_ = parts_of(layout, stream, view, readable)
    return published_frame(spark, readable.schema, newest.files)


def _results(spark: SparkSession, view: BoundWindow, raw: DataFrame) -> DataFrame:
    if view.having is not None:
        raw = _kept(spark, view, view.having, raw)
    own = [tried(spark, output.expression).alias(output.name) for output in view.outputs]
    parts = [f"_w.{part.name}" for part in view.window_type]
    parts += [f"_k{number}" for number in range(len(view.plan.keys))]
    names = [part.name for part in row_type(view)]
    row = F.struct(*(F.col(part).alias(name) for part, name in zip(parts, names, strict=True)))
    marks = mark_names([output.name for output in view.outputs])
    change = [F.col(_CHANGE)] if view.having is not None else []
    return raw.select(
        *own, *(F.col(name).alias(marks[name]) for name in MARKS.names), row.alias(ROW), *change
    )


def _kept(spark: SparkSession, view: BoundWindow, having: str, raw: DataFrame) -> DataFrame:
    """The groups that pass, and with what they were the groups that passed in the revision before only, with _CHANGE."""

    def passes() -> Column:
        return F.coalesce(tried(spark, having), F.lit(False))

    names = [f"_a{number}" for number in range(len(view.plan.aggregates))]
    others = [name for name in raw.columns if name not in names]
    then = [F.col(f"{BEFORE}.{name}").alias(name) for name in names]
    now = [F.col(name).alias(f"{name}_now") for name in names]
    judged = raw.select(*others, *then, *now).withColumn(_PASSED, F.col(BEFORE).isNotNull() & passes())
    now = [F.col(f"{name}_now").alias(name) for name in names]
    is_estimated = any(each.function == "approx_percentile" for each in view.plan.aggregates)
    # of a large group a second estimate differs: what the first one was, and whether it passed, is not known any more
    may_be_told = F.lit(is_estimated) & (F.col(OP) == DELETE)
    told = (
        judged.select(*others, _PASSED, *now)
        .withColumn(_PASSES, passes())
        .where(F.col(_PASSES) | F.col(BEFORE).isNotNull() | may_be_told)
    )
    aggregates = [
        F.when(F.col(_PASSES), F.col(name)).otherwise(F.col(f"{BEFORE}.{name}")).alias(name) for name in names
    ]
    keys = [f"_k{number}" for number in range(len(view.plan.keys))]
    marks = [name for name in MARKS.names if name != OP]
    op = F.when(F.col(_PASSES), F.col(OP)).otherwise(F.lit(DELETE)).alias(OP)
    more = F.when(F.col(OP) == DELETE, -1).otherwise(1) * F.col(_PASSES).cast("int")
    change = (more - F.col(_PASSED).cast("int")).alias(_CHANGE)
    changed = told.select("_w", *keys, *aggregates, *marks, op, change)
    if is_estimated:
        return changed
    return changed.withColumn(_PASSES, passes()).where(F.col(_PASSES))


def _stager(
    operator: int,
    staged: StagedResults,
    schema: pa.Schema,
    store: BatchFiles | None,
    revision: str,
    *,
    has_having: bool,
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    (raw,) = staged.left

    def stage(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        tables = [pa.Table.from_batches([batch]) for batch in batches]
        more = sum(pc.sum(table.column(_CHANGE)).as_py() or 0 for table in tables if has_having)
        own = [table.select(range(len(schema))).rename_columns(schema.names).cast(schema) for table in tables]
        # Spark reads large files first, and readers take the last row of a key for the newest
        rows = pa.concat_tables([schema.empty_table(), *own]).sort_by(revision)
        made = MadeResults(operator, 0, (), staged.view if has_having else "", more)
        if rows.num_rows:
            file = written(raw.kind, rows)
            if store is None:
                made = replace(made, left=[file.left(raw.path.parent)])
            else:
                made = replace(made, files=store.put(operator, 0, [file]))
        yield pa.record_batch({"made": pa.array([pickle.dumps(made)], pa.binary())})

    return stage
