"""The feeds of a view, and the view's rows in a stretch of one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from penstock.errors import UnknownNameError
from penstock.spark.analysis.gate import stored_schema
from penstock.spark.analysis.schemas import arrow_schema
from penstock.spark.publication.kinds import results_of, view_kind
from penstock.spark.reporting.catalog import find_view, read_catalog
from penstock.spark.reporting.definitions import all_definitions, is_selection, number_of
from penstock.spark.results.frames import published_frame
from penstock.spark.results.joined_rows import LANES, joined_schema, lanes_of, marks_of, withdraws
from penstock.spark.results.read import BATCH, ORDINAL, SINK_DEFINITION, project, read_matches
from penstock.spark.results.read_plain import Chosen, FieldPath, places_of
from penstock.spark.results.stored_rows import Ints, Part, StoredRows
from penstock.spark.results.window_schemas import (
    FINAL,
    OP,
    REVISION,
    ROW,
    is_running_row,
    readable_definition,
    readable_operator,
)
from penstock.spark.sinks.published import Feed, Stretch
from penstock.spark.sinks.shared_files import SHARED, SMALL_ROWS
from penstock.spark.storage.columns import conform
from penstock.spark.storage.layout import Layout

_NUMBER = "__penstock_row_number"
#: a delivery of more rows reads large files for itself
_FEW_ROWS = 2_000


@dataclass(frozen=True, slots=True, eq=False)
class ToldRows:
    """Rows of a selection, by whatever definition.

    Attributes:
        numbers: int64[rows], of each in the feed.
        definitions: int32[rows], the number of the definition that each is a row of.
        rows: the rows as the newest definition has them; None where they were not read.
    """

    numbers: Ints
    definitions: npt.NDArray[np.int32]
    rows: pa.Table | None


@dataclass(frozen=True, slots=True)
class MarkColumns:
    """The columns of a view's rows that say what became of a row; None: its rows have no such column.

    Attributes:
        op: what is done with the row; of rows that never change, None.
        is_final: whether the row is final, and only another final row replaces it.
        told_final: whether the row is final, or withdraws a final one; of running views, whose final rows may change again, too.
        revision: of the row.
        all: the names of these and all others that are no columns of the view's own.
    """

    op: str | None = None
    is_final: str | None = None
    told_final: str | None = None
    revision: str | None = None
    all: tuple[str, ...] = ()


@dataclass(frozen=True)
class ViewFeed(ABC):
    """One feed of a view.

    Attributes:
        feed: its files.
        layout: output and checkpoint folders.
        view: the view's name.
    """

    feed: Feed
    layout: Layout = field(repr=False)
    view: str
    #: which columns say what became of a row
    marks: MarkColumns = MarkColumns()

    @property
    @abstractmethod
    def columns(self) -> pa.Schema | None:
        """The columns of its rows; None where only Spark knows them."""

    @property
    def prefix(self) -> str:
        """What the ordinals of its rows begin with: the number of its operator or lane."""
        number, slash, _ = self.feed.kind.partition("/")
        return f"{number}-" if slash else ""

    def known(self, definition: int | None) -> ViewFeed:
        """Likewise, with its rows as one definition of a selection has them."""
        assert definition is None, "it is no selection"
        return self

    def table(self, spark: SparkSession, stretch: Stretch) -> tuple[pa.Table, Ints]:  # noqa: ARG002
        """The view's rows in a stretch, and the number of each in the feed."""
        return self._read(self._stored(stretch), stretch)

    def frame(self, spark: SparkSession, stretch: Stretch, batch: int) -> DataFrame:
        """The same rows for Spark, with BATCH, which is given, and ORDINAL."""
        ordinal = F.concat(F.lit(self.prefix), F.col(_NUMBER).cast("string"))
        placed = self._frame(spark, stretch).withColumn(ORDINAL, ordinal).withColumn(BATCH, F.lit(batch))
        return placed.drop(_NUMBER)

    @abstractmethod
    def _stored(self, stretch: Stretch) -> StoredRows: ...

    @abstractmethod
    def _frame(self, spark: SparkSession, stretch: Stretch) -> DataFrame: ...

    def _read(self, stored: StoredRows, stretch: Stretch) -> tuple[pa.Table, Ints]:
        begin, end = stretch.begin.rows - stretch.first, stretch.end.rows - stretch.first
        kept = _kept_parts(stored, begin, end)
        parts = stored.parts(begin) if kept is None else kept
        rows, numbers = [], []
        for part in parts:
            first, last = np.searchsorted(part.numbers, (begin, end)).tolist()
            rows.append(part.rows.slice(first, last - first))
            numbers.append(part.numbers[first:last] + stretch.first)
            if part.end >= end:
                break
        table = pa.Table.from_batches(rows, stored.schema)
        return table, np.concatenate(numbers) if numbers else np.zeros(0, np.int64)

    def _numbered(self, frame: DataFrame, stretch: Stretch) -> DataFrame:
        """The rows of the stretch among those of its files, with the number of each."""
        firsts, first = [], stretch.first
        for path, rows in stretch.files:
            firsts += [F.lit(path.name), F.lit(first).cast("bigint")]
            first += rows
        if not firsts:
            return frame.withColumn(_NUMBER, F.lit(0).cast("bigint"))
        name, row = F.col("_metadata.file_name"), F.col("_metadata.row_index")
        number: Column = F.create_map(*firsts)[name] + row
        return frame.withColumn(_NUMBER, number).where(
            F.col(_NUMBER).between(stretch.begin.rows, stretch.end.rows - 1)
        )


def _kept_parts(stored: StoredRows, begin: int, end: int) -> Iterable[Part] | None:
    """The rows of a view between two places, in what others read too or the next delivery does; None where nothing of it is kept."""
    if end - begin > _FEW_ROWS and any(rows > SMALL_ROWS for _, rows in stored.files):
        return None
    parts, first = [], 0
    for path, rows in stored.files:
        kept = SHARED.between(path, rows, begin - first, end - first)
        if kept is None:
            return None
        for place, batches in kept:
            at = first + place
            for batch in batches:
                cut = max(begin - at, 0), min(end - at, batch.num_rows)
                if cut[0] < cut[1]:
                    numbers, own = stored.pick(conform(batch.slice(cut[0], cut[1] - cut[0]), stored.stored))
                    parts.append(Part(own, numbers + at + cut[0], at + cut[1]))
                at += batch.num_rows
        first += rows
    return parts


def _whole(schema: pa.Schema, dropped: str | None) -> pa.Schema:
    return schema if dropped is None else schema.remove(schema.get_field_index(dropped))


@dataclass(frozen=True)
class PlainFeed(ViewFeed):
    """A feed whose files hold rows of this view alone, as they are: of a window view or a join view.

    Attributes:
        schema: the columns of the files.
        dropped: the column that only tells rows apart.
    """

    schema: StructType = field(default_factory=StructType)
    dropped: str | None = None

    @property
    def columns(self) -> pa.Schema:
        """All but the dropped one."""
        return _whole(arrow_schema(self.schema), self.dropped)

    def _stored(self, stretch: Stretch) -> StoredRows:
        columns = self.columns
        return StoredRows(columns, stretch.files, columns, lambda batch: (np.arange(batch.num_rows), batch))

    def _frame(self, spark: SparkSession, stretch: Stretch) -> DataFrame:
        frame = self._numbered(
            published_frame(spark, self.schema, [path for path, _ in stretch.files]), stretch
        )
        return frame if self.dropped is None else frame.drop(self.dropped)


@dataclass(frozen=True)
class SelectionFeed(ViewFeed):
    """A feed of matches, which holds rows of all selections on a stream.

    Attributes:
        entry: the selection in the catalog, by the definition that it has now.
        source: the columns of the stream.
        definition: the number of the definition whose rows are read; None: any.
        held: rows that were read before, and their numbers: of the one stretch that the feed is asked for; None: none.
    """

    entry: Mapping[str, Any] = field(default_factory=dict)
    source: StructType = field(default_factory=StructType)
    definition: int | None = None
    held: tuple[pa.Table, Ints] | None = field(default=None, repr=False, compare=False)

    @property
    def columns(self) -> pa.Schema | None:
        """None where an item of the SELECT list is computed."""
        if self._places is None:
            return None
        return Chosen(self.view, 1).schema(self._own, self._places)

    def known(self, definition: int | None) -> SelectionFeed:
        entries = {number_of(each): each for each in all_definitions(self.entry)}
        if definition not in entries:
            raise UnknownNameError(f"view {self.view} has no definition {definition}")
        return SelectionFeed(
            self.feed, self.layout, self.view, self.marks, entries[definition], self.source, definition
        )

    def told(self, stretch: Stretch, *, with_rows: bool) -> ToldRows:
        """The view's rows in a stretch, whatever the definition, read once.

        Args:
            stretch: the stretch.
            with_rows: whether more than numbers is wanted, if pyarrow can read it.
        """
        places = self._places if with_rows else None
        stored = Chosen(self.view, None).stored(stretch.files, self._own, places or {})
        table, numbers = self._read(stored, stretch)
        rows = None if places is None else table.select(range(len(places)))
        return ToldRows(numbers, table.column(len(places or ())).to_numpy(), rows)

    def holding(self, definition: int, told: ToldRows, count: int) -> SelectionFeed:
        """The feed of one definition, for the stretch of the first rows of those that were read.

        Args:
            definition: its number; all these rows are by it.
            told: what was read.
            count: how many of the rows.
        """
        found = self.known(definition)
        if told.rows is None or definition != number_of(self.entry):
            return found
        return replace(found, held=(told.rows.slice(0, count), told.numbers[:count]))

    def table(self, spark: SparkSession, stretch: Stretch) -> tuple[pa.Table, Ints]:
        if self.held is not None:
            return self.held
        if self._places is not None:
            return super().table(spark, stretch)
        rows = self._frame(spark, stretch).orderBy(_NUMBER).toArrow()
        numbers = rows.column(_NUMBER).to_numpy()
        return rows.drop_columns([_NUMBER]), numbers

    def frame(self, spark: SparkSession, stretch: Stretch, batch: int) -> DataFrame:
        return super().frame(spark, stretch, batch).withColumn(SINK_DEFINITION, F.lit(self.definition))

    def knows(self, definition: int) -> bool:
        """Whether the catalog has had a definition of the view when the feed was opened."""
        return any(number_of(each) == definition for each in all_definitions(self.entry))

    @cached_property
    def _own(self) -> pa.Schema:
        return arrow_schema(self.source)

    @cached_property
    def _places(self) -> Mapping[str, FieldPath] | None:
        return places_of(self.entry["projection"], self._own)

    def _stored(self, stretch: Stretch) -> StoredRows:
        assert self._places is not None, "Spark reads it"
        return Chosen(self.view, self.definition).stored(stretch.files, self._own, self._places)

    def _frame(self, spark: SparkSession, stretch: Stretch) -> DataFrame:
        frame = read_matches(spark, self.source, [path for path, _ in stretch.files])
        return project(self._numbered(frame, stretch), self.view, self.entry["projection"], [_NUMBER])


class CurrentFeeds:
    """The feeds of a view as it is defined now.

    Args:
        layout: output and checkpoint folders.
        view: the view's name.

    Raises:
        UnknownNameError: the catalog has no such view yet.
    """

    def __init__(self, layout: Layout, view: str) -> None:
        self._layout = layout
        self._name, self._entry = find_view(layout, view)
        #: the number of the definition
        self.number = number_of(self._entry)
        #: the newest operator of the stream when it was asked for, and the feeds by then
        self._known: tuple[int, Sequence[Feed]] | None = None

    def list(self) -> Sequence[Feed]:
        """The feeds in order; a window view gets one with each operator that answers it."""
        entry, name = self._entry, self._name
        if LANES in entry:
            return [Feed(lane, view_kind(number, name)) for number, lane in lanes_of(entry)]
        if is_selection(entry):
            return [Feed(entry["stream"], "matches")]
        newest = self._layout.result_views(entry["stream"]).last
        if self._known is None or self._known[0] != newest:
            readable = readable_definition(self._layout, entry["stream"], name, entry["id"])
            operators = () if readable is None else readable.operators
            query = results_of(entry["stream"])
            self._known = newest, [Feed(query, view_kind(each, name)) for each, _ in operators]
        return self._known[1]


def open_feed(layout: Layout, view: str, feed: Feed) -> ViewFeed:
    """What reads a feed of a view.

    Raises:
        UnknownNameError: the catalog has no view that has it.
    """
    name, entry = find_view(layout, view)
    if feed.kind == "matches":
        source = stored_schema(read_catalog(layout)["streams"][feed.query])
        own = next(each for each in all_definitions(entry) if each.get("stream") == feed.query)
        whole = entry if entry.get("stream") == feed.query else own
        return SelectionFeed(feed, layout, name, MarkColumns(), whole, source)
    number = int(feed.kind.partition("/")[0])
    for each in all_definitions(entry):
        if LANES in each and feed.query in (lane for _, lane in lanes_of(each)):
            return _join_feed(layout, name, feed, each)
    stream = feed.query.removesuffix(results_of(""))
    readable = readable_operator(layout, stream, name, number)
    names = readable.marks
    # rows of running views are final for a time only: the last one counts
    final = None if is_running_row(readable.row.names) else names[FINAL]
    marks = MarkColumns(names[OP], final, names[FINAL], names[REVISION], tuple(names.values()))
    return PlainFeed(feed, layout, name, marks, readable.schema, ROW)


def _join_feed(layout: Layout, view: str, feed: Feed, entry: Mapping[str, Any]) -> PlainFeed:
    schema = joined_schema(entry)
    if not withdraws(entry):
        return PlainFeed(feed, layout, view, MarkColumns(), schema)
    op, row = marks_of(schema.fieldNames()).names
    for name, kind in ((op, "string"), (row, "binary")):
        schema = schema.add(name, kind)
    return PlainFeed(feed, layout, view, MarkColumns(op, all=(op,)), schema, row)
