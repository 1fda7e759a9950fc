"""Join views with conditions or outputs that are computed: by workers where these can, else the cells' joined rows go through a DataFrame.

What raises is computed in its try form, as in the ingest: a joined row whose condition raises is no match, and counted; an output
that raises is NULL.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import astuple
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from penstock.operators.joins.changes import DELETE, OP
from penstock.operators.joins.computed_rows import ComputedRows
from penstock.operators.joins.user_predicates import PredicateMeasure, UserPredicates
from penstock.optimizer.join_measures import StepCount, Work
from penstock.plan.joins import JoinPlan
from penstock.spark.analysis.expressions import SparkExpressionHost
from penstock.spark.analysis.gate import tried
from penstock.spark.analysis.schemas import spark_schema
from penstock.spark.lanes.joins.balance import Place
from penstock.spark.lanes.joins.task import CellReport, CellTask, RowStage, matching
from penstock.spark.publication.staged import StagedFile
from penstock.spark.recovery.messages import quoted
from penstock.spark.results.joined_rows import MARKS

#: whether a joined row is a match: these, or 0
_MATCH, _RAISED = 1, -1
_VERDICT = "_verdict"
_REPORT = (
    "partition INT, name STRING, rows BIGINT, size BIGINT, crc BIGINT, raised BIGINT, "
    "withdrawn BIGINT, told STRING"
)


def is_computed(plan: JoinPlan) -> bool:
    """Whether Spark has to compute something of a join."""
    return bool(plan.residual or plan.filters) or any(each.column is None for each in plan.outputs)


def computed_rows(spark: SparkSession, plan: JoinPlan) -> ComputedRows | None:
    """How workers compute what is computed of a join; None where nothing is, or Spark has to compute something."""
    if not is_computed(plan):
        return None
    columns = pa.schema([(column.name, column.type) for each in plan.relations for column in each.columns])
    host = SparkExpressionHost(spark, spark_schema(columns))
    condition = _all_of((*plan.residual, *plan.filters))
    lasting = _all_of([text for text in plan.filters if not _reads_a_table(plan, text)])
    texts = {each.text for each in plan.outputs if each.column is None} | {condition, lasting} - {None}
    named = sorted(str(text) for text in texts)
    trees = dict(zip(named, host.trees(named), strict=True))
    if None in trees.values():
        return None
    outputs = tuple(None if each.column is not None else trees[each.text] for each in plan.outputs)
    return ComputedRows(trees.get(condition or ""), trees.get(lasting or ""), outputs)


def needed_columns(plan: JoinPlan) -> tuple[str, ...]:
    """The inputs' columns that conditions and outputs are computed from, and perhaps some more; one at least."""
    texts = [*plan.residual, *plan.filters, *(each.text for each in plan.outputs if each.column is None)]
    plain = {each.column for each in plan.outputs} | set(_argument_columns(plan))
    names = [column.name for each in plan.relations for column in each.columns]
    needed = [name for name in names if name in plain or any(quoted(name)[1:-1] in text for text in texts)]
    return tuple(needed or names[:1])


def computed_frame(spark: SparkSession, task: CellTask, places: Sequence[Place]) -> DataFrame:
    """The job of a cut, whose rows `reports_of` reads.

    Args:
        spark: the session.
        task: joins a cell, or a stripe of it.
        places: a task each, whose number is its place among them.
    """
    plan = task.plan
    types = {column.name: column.type for each in plan.relations for column in each.columns}

    def join(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from task.batches(places[number], partial(_leave, _beside(task)))

    marks = MARKS if plan.withdraws else ()
    schema = spark_schema(pa.schema([*((name, types[name]) for name in task.columns), *marks]))
    joined = spark.range(0, len(places), 1, len(places)).mapInArrow(join, schema)
    judged = joined.select("*", _verdict(spark, plan, task.has_changed).alias(_VERDICT)).where(
        F.col(_VERDICT) != 0
    )
    # mapInArrow looks columns up by name and does not quote
    outputs = [
        (F.col(quoted(each.column)) if each.column is not None else tried(spark, each.text)).alias(
            str(number)
        )
        for number, each in enumerate(plan.outputs)
    ]
    told = [F.col(mark.name) for mark in marks]
    given = [F.col(quoted(name)).alias(f"a{number}") for number, name in enumerate(_argument_columns(plan))]
    return judged.select(_VERDICT, *outputs, *told, *given).mapInArrow(_stager(task), _REPORT)


def reports_of(task: CellTask, frame: DataFrame) -> list[CellReport]:
    """Runs the job of a cut."""
    found = []
    for row in frame.collect():
        files = [] if row.name is None else [StagedFile(task.kind, row.name, row.rows, 0, row.size, row.crc)]
        told = json.loads(row.told)
        steps = [StepCount(*each) for each in told["steps"]]
        work = [Work(*each) for each in told["work"]]
        judged = [PredicateMeasure(*each) for each in told["judged"]]
        found.append(
            CellReport(
                task.number,
                row.partition,
                files,
                row.raised,
                row.withdrawn,
                steps,
                work,
                judged,
                told["seconds"],
                told["beyond"],
            )
        )
    return found


def _beside(task: CellTask) -> Path:
    """Where the join of a task leaves what it did for the staging of the same task, which is another process."""
    context = TaskContext.get()
    assert context is not None, "it runs in a task"
    return task.store.local / f"{context.taskAttemptId()}.json"


def _leave(path: Path, steps: Sequence[StepCount], work: Sequence[Work], seconds: float, beyond: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    told = {
        "steps": [astuple(each) for each in steps],
        "work": [astuple(each) for each in work],
        "seconds": seconds,
        "beyond": beyond,
    }
    path.write_text(json.dumps(told))


def _verdict(spark: SparkSession, plan: JoinPlan, has_changed: bool) -> Column:
    """Whether joined rows are matches.

    A row is withdrawn by its name, whatever WHERE says of a static table that has changed: as it was before, it may have been published.
    """
    verdict = _judged(spark, (*plan.residual, *plan.filters))
    if not has_changed:
        return verdict
    lasting = _judged(spark, [text for text in plan.filters if not _reads_a_table(plan, text)])
    return F.when(F.col(OP) == DELETE, lasting).otherwise(verdict)


def _reads_a_table(plan: JoinPlan, text: str) -> bool:
    tables = (each for each in plan.relations if each.is_static)
    return any(quoted(column.name)[1:-1] in text for each in tables for column in each.columns)


def _judged(spark: SparkSession, conditions: Sequence[str]) -> Column:
    condition = _all_of(conditions)
    if condition is None:
        return F.lit(_MATCH)
    return F.coalesce(tried(spark, f"coalesce(CAST(({condition}) AS INT), 0)"), F.lit(_RAISED))


def _all_of(conditions: Sequence[str]) -> str | None:
    return " AND ".join(f"({each}\n)" for each in conditions) if conditions else None


def _argument_columns(plan: JoinPlan) -> list[str]:
    """The inputs' columns that user predicates are given, each once."""
    every = (each.column for predicate in plan.predicates for each in predicate.arguments)
    return list(dict.fromkeys(name for name in every if name is not None))


def _stager(task: CellTask) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def stage(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        assert context is not None, "it runs in a task"
        began = time.thread_time()
        rows = RowStage(task.plan, task.kind, task.store)
        users, given = UserPredicates(task.predicates), _argument_columns(task.plan)
        raised = 0
        for batch in batches:
            verdicts = batch.column(0)
            matches = batch.filter(pc.equal(verdicts, _MATCH))
            raised += batch.num_rows - matches.num_rows
            arguments = dict(zip(given, matches.columns[1 + len(rows.schema) :], strict=True))
            matches = matching(users, matches, arguments.__getitem__)
            columns = [
                column.cast(field.type)
                for column, field in zip(matches.columns[1:], rows.schema, strict=False)
            ]
            rows.add(pa.RecordBatch.from_arrays(columns, schema=rows.schema))
        told = json.loads(_beside(task).read_bytes())
        told["judged"] = [astuple(each) for each in users.measures]
        files = rows.close(task.number, context.partitionId())
        told["seconds"] += time.thread_time() - began
        name = files[0].name if files else None
        yield pa.record_batch(
            {
                "partition": pa.array([context.partitionId()], pa.int32()),
                "name": pa.array([name], pa.string()),
                "rows": pa.array([sum(file.rows for file in files)], pa.int64()),
                "size": pa.array([sum(file.size for file in files)], pa.int64()),
                "crc": pa.array([sum(file.crc for file in files)], pa.int64()),
                "raised": pa.array([raised + sum(each.raised for each in users.measures)], pa.int64()),
                "withdrawn": pa.array([rows.withdrawn], pa.int64()),
                "told": pa.array([json.dumps(told)], pa.string()),
            }
        )

    return stage
