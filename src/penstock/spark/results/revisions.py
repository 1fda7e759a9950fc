"""Which published rows of a window view or running view count: of each row the newest revision, unless that withdraws it.

All who read revisions, as Arrow tables or by Spark, ask here which operators' files hold the rows of a view and which revision of a row is the newest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import groupby

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from penstock.operators.windows.flattening import flattened
from penstock.spark.publication.kinds import results_of, view_kind
from penstock.spark.publication.manifests import PublishedBatches, located, read_published
from penstock.spark.results.frames import moment
from penstock.spark.results.published_rows import moments
from penstock.spark.results.window_schemas import (
    FINAL,
    FIRST_REVISION,
    OP,
    REVISION,
    ROW,
    UPSERT,
    MarkNames,
    ReadableView,
    is_running_row,
    marks_in,
    whole_operators,
)
from penstock.spark.storage.columns import batches_of, schema_of
from penstock.spark.storage.layout import Layout
from penstock.spark.storage.store_paths import StorePath

#: where rows of several operators are: which one a row is of
OPERATOR = "__penstock_operator"
_NUMBER = "__penstock_number"
_END = "__penstock_end"


@dataclass(frozen=True, slots=True)
class Part:
    """The rows of one operator among the results of a view.

    Attributes:
        operator: its number.
        until: only windows that end by then count, microseconds; None: all of them.
        files: its published files, in order of batch.
    """

    operator: int
    until: int | None
    files: Sequence[StorePath]

    def own(self, rows: pa.Table) -> pa.Table:
        """Those of some rows of its files that count, with OPERATOR."""
        if self.until is not None:
            rows = rows.filter(pa.array(moments(rows, f"{ROW}.end") <= self.until))
        return rows.append_column(OPERATOR, pa.repeat(pa.scalar(self.operator), rows.num_rows))

    def own_frame(self, rows: DataFrame, readable: ReadableView) -> DataFrame:
        """The same of a frame."""
        counts = F.lit(True) if self.until is None else _ends_by(readable, self.until)
        return rows.where(counts).withColumn(OPERATOR, F.lit(self.operator))


def parts_of(layout: Layout, stream: str, view: str, readable: ReadableView) -> list[Part]:
    """The operators whose rows make up the results of a view, the newest first.

    Of a view that went and came back a row that was final before it went remains until the operator that answers it now
    has the tuples of the batches in between, or has a final row too.

    Args:
        layout: the results folder.
        stream: the view's stream.
        view: its name.
        readable: the view by one of its definitions.
    """
    query = results_of(stream)
    published = read_published(layout, query)
    operators: Sequence[tuple[int, int | None]] = readable.operators[::-1]
    if is_running_row(readable.row.names):
        # one that is declared again begins anew
        operators = [(readable.operator, None)]
    whole = whole_operators(published) if len(operators) > 1 else set()
    found: list[Part] = []
    until: int | None = None
    for operator, floor in operators:
        found.append(Part(operator, until, published.paths(layout, query, view_kind(operator, view))))
        if floor is None:
            break
        if operator in whole:
            until = floor if until is None else min(until, floor)
    return found


def last_final(
    layout: Layout, stream: str, view: str, operator: int, results: PublishedBatches
) -> int | None:
    """End of the last window that an operator called final, microseconds; None: it has called none final.

    Args:
        layout: the results folder.
        stream: the view's stream.
        view: its name.
        operator: the operator's number.
        results: what is published of the stream's window views.
    """
    kind = view_kind(operator, view)
    own = [file for file in results.files if file.kind == kind]
    for _, files in groupby(reversed(own), lambda file: (file.first, file.last)):
        ends: list[pa.Array] = []
        for file in files:
            path = located(layout, results_of(stream), file)
            marks = marks_in(schema_of(path).names)
            for rows in batches_of(path, [ROW, marks[FINAL], marks[REVISION]]):
                is_first = pc.less(rows.column(marks[REVISION]), FIRST_REVISION)
                told = rows.filter(pc.and_(rows.column(marks[FINAL]), is_first))
                ends.append(pc.struct_field(told.column(ROW), "end").cast(pa.int64()))
        last = pc.max(pa.chunked_array(ends, pa.int64()))
        if last.is_valid:
            return int(last.as_py())
    return None


def newest_rows(table: pa.Table) -> pa.Table:
    """The newest revision of each row in order, those withdrawn among them.

    Args:
        table: columns of a view's own, MARKS and ROW, and OPERATOR where rows of several are.
    """
    marks = marks_in(table.column_names)
    flat = pa.Table.from_struct_array(table.column(ROW).combine_chunks())
    order = [name for name in _newest_last(marks, flat.column_names) if name in table.column_names]
    numbered = table.select(order).append_column(_NUMBER, pa.array(np.arange(table.num_rows)))
    revised = _revised(numbered, flat, order)
    flat, numbered = flat.filter(revised), numbered.filter(revised)
    # a window among the keys of a ranking is taken apart
    comparable = flattened(flat) if any(pa.types.is_nested(kind) for kind in flat.schema.types) else flat
    keys = [f"_key{number}" for number in range(comparable.num_columns)]
    for key, values in zip(keys, comparable.columns, strict=True):
        numbered = numbered.append_column(key, values)
    ordered = numbered.sort_by([(name, "ascending") for name in order])
    last = ordered.group_by(keys, use_threads=False).aggregate([(_NUMBER, "last")])
    newest = ~revised.to_numpy(zero_copy_only=False)
    newest[last.column(f"{_NUMBER}_last").to_numpy()] = True
    return table if newest.all() else table.filter(pa.array(newest))


def _revised(rows: pa.Table, flat: pa.Table, order: Sequence[str]) -> pa.BooleanArray:
    """Whether a row's window was told more than once; where it was not, each of its rows is the newest.

    Args:
        rows: their columns of the order.
        flat: the parts of ROW.
        order: the columns by which revisions are older or newer.
    """
    if "end" not in flat.column_names:
        return pa.repeat(True, rows.num_rows)
    ends = flat.column("end").combine_chunks()
    told = (
        rows.append_column(_END, ends)
        .group_by(_END)
        .aggregate([(name, each) for name in order for each in ("min", "max")])
    )
    again = (pc.not_equal(told.column(f"{name}_min"), told.column(f"{name}_max")) for name in order)
    return pc.is_in(ends, told.column(_END).filter(reduce(pc.or_, again)))


def standing_rows(table: pa.Table) -> pa.Table:
    """The same without those withdrawn."""
    return without_withdrawn(newest_rows(table))


def standing_frame(rows: DataFrame, readable: ReadableView) -> DataFrame:
    """The same of a frame, see `Part.own_frame`."""
    order = [F.col(name).desc() for name in _newest_last(readable.marks, readable.row.names)]
    newest = F.row_number().over(Window.partitionBy(ROW).orderBy(*order))
    placed = rows.withColumn(_NUMBER, newest)
    return placed.where((F.col(_NUMBER) == 1) & (F.col(readable.marks[OP]) == UPSERT)).drop(_NUMBER)


def without_withdrawn(newest: pa.Table) -> pa.Table:
    """The rows of newest revisions that are there."""
    return newest.filter(pc.equal(newest.column(marks_in(newest.column_names)[OP]), UPSERT))


def _newest_last(marks: MarkNames, row: Sequence[str]) -> list[str]:
    """The columns by which the newest revision of a row is the last one.

    A final revision is newer than others, and one of a later operator newer than one of an earlier operator. Of a running view
    a final row may change again.

    Args:
        marks: the names of MARKS.
        row: the names of the parts of ROW.
    """
    final = [] if is_running_row(row) else [marks[FINAL]]
    return [*final, OPERATOR, marks[REVISION]]


def _ends_by(readable: ReadableView, until: int) -> Column:
    """Whether a row's window ends by a time in microseconds."""
    return F.col(f"{ROW}.end") <= moment(until, readable.row["end"].dataType)
