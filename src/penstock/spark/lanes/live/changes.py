"""What a cut changes of the rows of a running view, as a view over it needs them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from penstock.operators.hashing import canonical_columns
from penstock.operators.running.live import LIVE, changes_schema
from penstock.operators.windows.flattening import flattened
from penstock.operators.windows.grouping import shared_codes
from penstock.operators.windows.shard import RunningPlan
from penstock.spark.analysis.schemas import arrow_schema
from penstock.spark.ingest.window_views import operator_of
from penstock.spark.lanes.derived.groups import usable_rows
from penstock.spark.results.frames import published_frame
from penstock.spark.results.revisions import newest_rows, without_withdrawn
from penstock.spark.results.window_schemas import COVERAGE, FINAL, ROW, ReadableView, marks_in
from penstock.spark.results.window_staging import written
from penstock.spark.storage.store_paths import StorePath
from penstock.sql.windows.bind import BoundWindow

#: (name, type) of columns that identify a row
Ids = tuple[tuple[str, pa.DataType], ...]


@dataclass(frozen=True, slots=True, eq=False)
class LiveView:
    """A view over a running view, with what its state has of each row.

    Attributes:
        bound: the view.
        readable: the rows of the view beneath.
        plan: the operator: keys and arguments are columns of the state.
        columns: the columns of the rows that these are, by name.
        ids: what identifies a row in the state.
    """

    bound: BoundWindow
    readable: ReadableView
    plan: RunningPlan
    columns: dict[str, str]
    ids: Ids

    @classmethod
    def of(cls, operator: int, bound: BoundWindow, readable: ReadableView) -> LiveView:
        """The view as an operator answers it."""
        rows = arrow_schema(readable.schema)
        types = {field.name: field.type for field in rows} | {each.name: each.type for each in bound.derived}
        pane, views = operator_of(operator, [bound], (), types, None)
        arguments = tuple((each.name, each.type) for each in pane.arguments)
        plan = RunningPlan(operator, tuple(views), pane.parts, arguments)
        columns = {each.name: each.column for each in (*pane.keys, *pane.arguments)}
        ids = tuple((field.name, field.type) for field in _ids(rows.empty_table()).schema)
        return cls(bound, readable, plan, columns, ids)

    def changes(self, spark: SparkSession, rows: pa.Table, scratch: StorePath) -> pa.Table:
        """What rows change, see `LiveRows`: rows that the view's condition does not keep are gone.

        Args:
            spark: the session whose settings the view was bound under.
            rows: published ones of the view beneath, of each row any number of revisions.
            scratch: a folder for what Spark reads.
        """
        newest = newest_rows(rows)
        there = self._used(spark, _living(newest), scratch)
        live = pa.table(
            [
                *_ids(there).columns,
                *(there.column(self.columns[name]) for name in self.columns),
                pa.repeat(pa.scalar(True), there.num_rows),
            ],
            names=[*(name for name, _ in self.ids), *self.columns, LIVE],
        )
        schema = changes_schema(self.plan, self.ids)
        live = canonical_columns(live.select(schema.names).cast(schema), self.plan.keys)
        every = _ids(newest)
        gone = every.filter(_lacks(every, live.select(every.column_names)))
        columns = [
            gone.column(field.name)
            if field.name in gone.column_names
            else pa.repeat(pa.scalar(False), gone.num_rows)
            if field.name == LIVE
            else pa.nulls(gone.num_rows, field.type)
            for field in schema
        ]
        return pa.concat_tables([live, pa.table(columns, schema=schema)]).combine_chunks()

    def _used(self, spark: SparkSession, rows: pa.Table, scratch: StorePath) -> pa.Table:
        """The rows that the view selects, with the columns that its plan names."""
        bound, readable = self.bound, self.readable
        names = list(dict.fromkeys([*self.columns.values(), ROW]))
        if bound.condition is None and not bound.derived:
            return rows.select(names)
        columns = StructType([*readable.columns.fields]).add(ROW, readable.row)
        path = written("", rows.select(columns.names)).left(scratch).path
        frame = usable_rows(spark, bound, published_frame(spark, columns, [path]).coalesce(1), [ROW])
        kinds = {field.name: field.type for field in arrow_schema(columns)}
        kinds |= {each.name: each.type for each in bound.derived}
        return frame.toArrow().select(names).cast(pa.schema([(name, kinds[name]) for name in names]))


def _ids(rows: pa.Table) -> pa.Table:
    """What identifies some rows: columns whose values have codes."""
    flat = flattened(rows.select([ROW]))
    return flat.rename_columns([f"_r{number}" for number in range(flat.num_columns)])


def _living(newest: pa.Table) -> pa.Table:
    """The rows that were not withdrawn, and whose groups have not left the state."""
    rows, marks = without_withdrawn(newest), marks_in(newest.column_names)
    has_left = pc.and_(rows.column(marks[FINAL]), pc.is_null(rows.column(marks[COVERAGE])))
    return rows.filter(pc.invert(has_left))


def _lacks(rows: pa.Table, others: pa.Table) -> pa.Array:
    """Which rows are not among some others."""
    own, theirs = shared_codes([rows, others], rows.column_names)
    return pc.invert(pc.is_in(pa.array(own), pa.array(theirs)))


def of_operator(names: Sequence[str], operator: int) -> list[str]:
    """The files that an operator has published, by their names."""
    return [name for name in names if int(name.rpartition("/")[2].split("-")[1]) == operator]
