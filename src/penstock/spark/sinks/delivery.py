"""What a target is given: rows of a view under a number, in the form that the sink's mode asks for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from penstock.errors import CheckpointError, InputError
from penstock.spark.recovery.messages import quoted
from penstock.spark.results.read import BATCH, ORDINAL, SINK_DEFINITION, rows_as_json
from penstock.spark.results.stored_rows import Ints
from penstock.spark.results.window_schemas import DELETE
from penstock.spark.sinks.feeds import MarkColumns, ViewFeed
from penstock.spark.sinks.published import Stretch

Mode = Literal["append", "upsert", "changes"]
#: of upserted rows of a window view: whether the row is final
IS_FINAL = "is_final"
_PLACE, _FINAL = "__penstock_place", "__penstock_final"


@dataclass(frozen=True, slots=True)
class Form:
    """In what form a sink takes rows.

    Attributes:
        mode: `append`, `upsert` or `changes`.
        key: columns that tell rows apart; () of those that need not be told apart.
        final_only: whether early rows of windows and sessions are left out.
    """

    mode: Mode
    key: tuple[str, ...] = ()
    final_only: bool = False


@dataclass(frozen=True, slots=True)
class Upserts:
    """Rows by key: no key is in both tables, and none twice in one.

    Attributes:
        rows: the newest row of each key.
        deleted: keys whose row was withdrawn; the key's columns, of window views `is_final` too.
    """

    rows: pa.Table
    deleted: pa.Table


@dataclass(frozen=True)
class Delivery:
    """Rows of one view, in the order of their publication. A repeated delivery has the same number and the same rows.

    Attributes:
        sink: the identity of the sink in its results folder.
        number: of the delivery, from 0 without gaps.
        view: the view's name.
        batch: the batch that the rows are of; where they are of several, the last one.
        form: the form that the sink takes.
        definition: of a selection, the number of the definition that the rows are of.
    """

    sink: str
    number: int
    view: str
    batch: int
    form: Form
    definition: int | None
    _feed: ViewFeed = field(repr=False)
    _stretch: Stretch = field(repr=False)
    _spark: SparkSession = field(repr=False)

    @cached_property
    def _read(self) -> tuple[pa.Table, Ints]:
        rows, numbers = self._feed.table(self._spark, self._stretch)
        final = self._feed.marks.told_final
        if self.form.final_only and final is not None:
            kept = pc.indices_nonzero(pc.fill_null(rows.column(final), False))
            rows, numbers = rows.take(kept), numbers[kept.to_numpy()]
        return rows, numbers

    @property
    def count(self) -> int:
        """How many rows there are."""
        return int(self._read[0].num_rows)

    @property
    def changes(self) -> pa.Table:
        """Every row with the columns that say what became of it."""
        return self._read[0]

    @cached_property
    def _passed(self) -> tuple[pa.Table, Ints]:
        rows, numbers = self._read
        marks = self._feed.marks
        if self.form.mode == "changes":
            return rows, numbers
        if marks.op is not None:
            kept = pc.indices_nonzero(pc.invert(_is_withdrawn(rows, marks.op)))
            rows, numbers = rows.take(kept), numbers[kept.to_numpy()]
        return _own(rows, marks), numbers

    @property
    def rows(self) -> pa.Table:
        """What the mode passes on row by row: in `append` the view's own columns of rows that exist, else `changes`."""
        return self._passed[0]

    @property
    def ordinals(self) -> list[str]:
        """A text for each row of `rows` that no other row of the view has."""
        prefix = self._feed.prefix
        return [f"{prefix}{number}" for number in self._passed[1].tolist()]

    @property
    def upserts(self) -> Upserts:
        """The rows by the key of the form."""
        return upserts(self.changes, self._feed.marks, self.form.key)

    def frame(self) -> DataFrame:
        """`rows` for Spark, with the columns penstock_batch and penstock_ordinal, of a selection penstock_definition too."""
        frame, marks = self._feed.frame(self._spark, self._stretch, self.batch), self._feed.marks
        if self.form.final_only and marks.told_final is not None:
            frame = frame.where(F.col(quoted(marks.told_final)))
        if self.form.mode == "changes":
            return frame
        if marks.op is not None:
            frame = frame.where(F.col(quoted(marks.op)) != DELETE)
        return frame.drop(*marks.all)

    def json_by_spark(self) -> list[str]:
        """Each of `rows` as a JSON object, as Spark writes it: for types that only Spark can write."""
        # numbers behind one prefix
        frame = self.frame().orderBy(F.length(ORDINAL), ORDINAL)
        own = [name for name in frame.columns if name not in (BATCH, ORDINAL, SINK_DEFINITION)]
        return [row.line for row in rows_as_json(frame.select(*map(quoted, own))).collect()]


def _own(rows: pa.Table, marks: MarkColumns) -> pa.Table:
    return rows.drop_columns([name for name in rows.column_names if name in marks.all])


def _is_withdrawn(rows: pa.Table, op: str) -> pa.ChunkedArray:
    # joins withdraw rows by the same word
    return pc.equal(rows.column(op), DELETE)


def upserts(changes: pa.Table, marks: MarkColumns, key: Sequence[str]) -> Upserts:
    """The last row of each key, a final one before others, and the keys whose last row was withdrawn.

    Args:
        changes: rows in order.
        marks: which columns say what became of a row.
        key: columns that tell rows apart.

    Returns:
        The rows with the view's own columns, of window views `is_final` too.
    """
    final = marks.is_final
    keyed = flat_keys(changes, key)
    names = keyed.column_names
    rank = pa.array(np.zeros(changes.num_rows, np.int8)) if final is None else changes.column(final)
    keyed = keyed.append_column(_FINAL, rank.cast(pa.int8()))
    keyed = keyed.append_column(_PLACE, pa.array(np.arange(changes.num_rows)))
    ordered = keyed.sort_by([(_FINAL, "ascending"), (_PLACE, "ascending")])
    last = ordered.group_by(names, use_threads=False).aggregate([(_PLACE, "last")])
    newest = changes.take(last.column(f"{_PLACE}_last").combine_chunks().sort())
    own = _own(newest, marks)
    if final is not None:
        own = own.append_column(IS_FINAL, newest.column(final))
    if marks.op is None:
        return Upserts(own, own.select(list(key)).slice(0, 0))
    gone = _is_withdrawn(newest, marks.op)
    told = [*key, *([] if final is None else [IS_FINAL])]
    return Upserts(own.filter(pc.invert(gone)), own.filter(gone).select(told))


def flat_keys(rows: pa.Table, key: Sequence[str]) -> pa.Table:
    """The key's columns, a window as its start and end."""
    columns: list[pa.ChunkedArray] = []
    for name in key:
        column = rows.column(name)
        if pa.types.is_struct(column.type):
            columns += [pc.struct_field(column, each.name) for each in column.type]
        else:
            columns.append(column)
    return pa.table(columns, [f"k{place}" for place in range(len(columns))])


def refuse_missing(
    key: Sequence[str], columns: Sequence[str], where: str, option: str = "key"
) -> tuple[str, ...]:
    """The columns that an option names as the view spells them.

    Raises:
        InputError: the view has no such column.
    """
    known = {name.lower(): name for name in columns}
    for name in key:
        if name.lower() not in known:
            raise InputError(
                f"{where}: {option} names column {name}, which does not exist; existing columns: {', '.join(columns)}"
            )
    return tuple(known[name.lower()] for name in key)


def is_taken(delivery: Delivery, known: int | None, target: str) -> bool:
    """Whether a target that stores the number of each delivery has this one; else it has the one before.

    Args:
        delivery: which.
        known: the number of the newest one that the target has; None: none.
        target: names it, for messages.

    Raises:
        CheckpointError: it has a later one, or lacks some before.
    """
    newest = -1 if known is None else known
    if newest > delivery.number:
        raise CheckpointError(
            f"{target} has delivery {newest} of this sink, and the results folder only planned {delivery.number}: the folder was restored "
            "from an older copy"
        )
    if newest < delivery.number - 1:
        raise CheckpointError(
            f"{target} lacks the deliveries {newest + 1} to {delivery.number - 1} of this sink: it was restored from an older copy, or created "
            "again. Restore it, or name another table: a new one gets all rows"
        )
    return newest == delivery.number
