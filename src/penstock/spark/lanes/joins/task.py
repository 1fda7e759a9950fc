"""What a task of a cell does in a cut: opens the runs, joins them, stages the rows."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from penstock.operators.joins.as_of import CellAsOfJoin
from penstock.operators.joins.beyond import pairs_beyond
from penstock.operators.joins.cell import CellJoin
from penstock.operators.joins.changes import DELETE, OP, ROW, Due
from penstock.operators.joins.computed_rows import ComputedRows
from penstock.operators.joins.left import CellLeftJoin
from penstock.operators.joins.lookups import TableLookup
from penstock.operators.joins.tuples import InputRuns, RunSlice
from penstock.operators.joins.user_predicates import PredicateMeasure, PredicateProgram, UserPredicates
from penstock.optimizer.join_measures import StepCount, Work, work_of_step
from penstock.plan.joins import JoinOrder, JoinPlan
from penstock.spark.lanes.joins.balance import Place
from penstock.spark.lanes.joins.grid import KeptRuns
from penstock.spark.log.run_files import FoundRuns
from penstock.spark.log.runs import open_run
from penstock.spark.publication.staged import BatchFiles, StagedFile, WrittenFile
from penstock.spark.results.joined_rows import MARKS, file_schema
from penstock.spark.storage.store_paths import StorePath

#: rows of a row group
_GROUP_ROWS = 1 << 20
#: fewer rows are written faster without a dictionary, and not larger; columns of numbers always
_WORTH_A_DICTIONARY = 10_000


@dataclass(frozen=True, slots=True)
class StreamRuns:
    """Runs of a stream that a cut reads.

    Attributes:
        runs: of which input, by which key.
        new: where the tuples of the cut's entries are.
        old: where those of the entries before them are that are needed; None: of none.
        base: by cell runs with the versions of entries that have left the log, see `VersionBases`.
    """

    runs: KeptRuns
    new: FoundRuns
    old: FoundRuns | None = None
    base: Mapping[int, Sequence[StorePath]] = field(default_factory=dict)

    def open(self, cell: int | None = None) -> InputRuns:
        """Maps them into memory; those of the base are a cell's."""
        old = () if self.old is None else _slices(self.old)
        based = (RunSlice(open_run(path), -1, 0) for path in self.base.get(-1 if cell is None else cell, ()))
        return InputRuns(_slices(self.new), (*old, *based))


@dataclass(frozen=True, slots=True)
class TableRuns:
    """The run of a static table that a cut reads.

    Attributes:
        runs: of which input, by which key.
        path: the file.
    """

    runs: KeptRuns
    path: StorePath

    def open(self, cell: int | None = None) -> InputRuns:  # noqa: ARG002
        """Maps it into memory."""
        return InputRuns((), (RunSlice(open_run(self.path), -1, 0),))


@dataclass(frozen=True, slots=True)
class CellReport:
    """What a task of a cell came to.

    Attributes:
        job: number of the lane.
        partition: number of the task.
        files: what was staged: one file, or none where there are no rows.
        raised: joined rows that were no match because a condition raised.
        withdrawn: how many of the rows in the files say of an earlier one that it is none any more.
        steps: what the steps did.
        work: the same for what their pieces cost.
        judged: what each user predicate did, in the order of the cut.
        seconds: processor time of it all.
        beyond: pairs that the hint STATE_TTL leaves out, as far as they are counted.
    """

    job: int
    partition: int
    files: Sequence[StagedFile] = ()
    raised: int = 0
    withdrawn: int = 0
    steps: Sequence[StepCount] = ()
    work: Sequence[Work] = ()
    judged: Sequence[PredicateMeasure] = ()
    seconds: float = 0.0
    beyond: int = 0

    @property
    def building(self) -> float:
        """Processor time of tables, which each task of a cell makes for itself."""
        return sum(each.seconds for each in self.work if each.built)

    @property
    def rows(self) -> int:
        """By how many the rows of the view have become more."""
        return sum(file.rows for file in self.files) - 2 * self.withdrawn


@dataclass(frozen=True, slots=True)
class CellTask:
    """Joins a cell, or a stripe of it.

    Attributes:
        plan: the join.
        order: by which order.
        inputs: the runs of all inputs.
        number: of the lane.
        kind: of the files.
        store: stores them.
        columns: names of the inputs' and lookups' columns that are put out.
        predicates: what users' functions judge, in order.
        due: of an outer join with a stream which left rows are; None of others.
        turned_due: of a FULL OUTER JOIN which tuples of the second input are.
        lacks_before: tuples of the last input with an event time before this may be gone, microseconds; None: none are.
        lookups: the runs of the tables that joined rows are looked up in.
        has_changed: whether rows may have been published with other versions of static tables.
        computed: what is computed of the rows, where workers do that; None: nothing is, or Spark does it.
    """

    plan: JoinPlan
    order: JoinOrder
    inputs: tuple[StreamRuns | TableRuns, ...]
    number: int
    kind: str
    store: BatchFiles
    columns: tuple[str, ...]
    predicates: tuple[PredicateProgram, ...] = ()
    due: Due | None = None
    turned_due: Due | None = None
    lacks_before: int | None = None
    lookups: tuple[TableRuns, ...] = ()
    has_changed: bool = False
    computed: ComputedRows | None = None

    def __call__(self, place: Place) -> CellReport:
        """Joins what lies at a place and stages the view's rows, of which each output is a column."""
        began = time.thread_time()
        stage = RowStage(self.plan, self.kind, self.store)
        inputs = self._open(place.cell)
        join, batches = self._joined(place, inputs)
        users = UserPredicates(self.predicates)
        marks = (OP, ROW) if self.plan.withdraws else ()
        computed, raised = self.computed or ComputedRows(None, None, (None,) * len(self.plan.outputs)), 0
        for joined in batches:
            rows, lost = computed.matches(joined, has_changed=self.has_changed)
            raised += lost
            batch = matching(users, rows, rows.column)
            columns = computed.columns(batch, self.plan.outputs)
            columns += [batch.column(mark) for mark in marks]
            stage.add(pa.RecordBatch.from_arrays(columns, schema=stage.schema))
        work = tuple(self._work(join, inputs, place.cell))
        return CellReport(
            self.number,
            place.number,
            stage.close(self.number, place.number),
            raised + sum(each.raised for each in users.measures),
            stage.withdrawn,
            _counted(join),
            work,
            users.measures,
            time.thread_time() - began,
            self._beyond(place, inputs),
        )

    def batches(
        self, place: Place, tell: Callable[[Sequence[StepCount], Sequence[Work], float, int], None]
    ) -> Iterator[pa.RecordBatch]:
        """The rows of a place, `columns` of each, where rows may be withdrawn OP and ROW too; user predicates are not judged.

        Args:
            place: which.
            tell: is told at the end what the steps did, the same for what their pieces cost, the processor time of it all, and
                `CellReport.beyond`.
        """
        began = time.thread_time()
        inputs = self._open(place.cell)
        join, batches = self._joined(place, inputs)
        yield from batches
        work, beyond = tuple(self._work(join, inputs, place.cell)), self._beyond(place, inputs)
        tell(_counted(join), work, time.thread_time() - began, beyond)

    def _joined(
        self, place: Place, inputs: Sequence[Mapping[int | None, InputRuns]]
    ) -> tuple[CellJoin | CellLeftJoin, Iterator[pa.RecordBatch]]:
        join: CellJoin | CellLeftJoin
        own = self.plan, self.order, place.cell, inputs, self._beneath
        if self.plan.is_as_of:
            assert self.due is not None, "versions are a stream's"
            join = CellAsOfJoin(
                *own, self.due, self.number, lacks_before=self.lacks_before, stripe=place.stripe
            )
        elif self.plan.optional:
            join = CellLeftJoin(
                *own, self.due, self.number, lacks_before=self.lacks_before, stripe=place.stripe
            )
        else:
            join = CellJoin(*own, stripe=place.stripe)
        return join, self._looked_up(chain(join.batches(), self._turned(place, inputs)))

    @property
    def _beneath(self) -> tuple[str, ...]:
        """The columns of the joined rows before they are looked up."""
        tables = {column.name for each in self.plan.lookups for column in each.input.columns}
        names = [*self.columns, *(name for each in self.plan.lookups for name in each.columns)]
        found = tuple(dict.fromkeys(name for name in names if name not in tables))
        return found or (self.plan.inputs[0].columns[0].name,)

    def _looked_up(self, rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Joined rows with what they are looked up in, `columns` of each and what is done with it."""
        for number, (lookup, table) in enumerate(zip(self.plan.lookups, self.lookups, strict=True)):
            later = {name for each in self.plan.lookups[number + 1 :] for name in each.columns}
            own = [each.name for each in lookup.input.columns if each.name in {*self.columns, *later}]
            rows = TableLookup(lookup, table.open(), own).batches(rows)
        if self.plan.lookups:
            marks = (OP, ROW) if self.plan.withdraws else ()
            rows = (batch.select([*self.columns, *marks]) for batch in rows)
        return rows

    def _turned(
        self, place: Place, inputs: Sequence[Mapping[int | None, InputRuns]]
    ) -> Iterator[pa.RecordBatch]:
        """Of a FULL OUTER JOIN the rows of the second input alone."""
        if self.turned_due is None:
            return
        turned, order = self.plan.turned(), self.order.turned()
        yield from CellLeftJoin(
            turned,
            order,
            place.cell,
            inputs[::-1],
            self._beneath,
            self.turned_due,
            self.number,
            turned=True,
            stripe=place.stripe,
        ).batches()

    def _beyond(self, place: Place, inputs: Sequence[Mapping[int | None, InputRuns]]) -> int:
        return pairs_beyond(self.plan, place.cell, inputs, place.stripe) if self.plan.wider else 0

    def _open(self, cell: int) -> list[dict[int | None, InputRuns]]:
        """The runs of each input, by key."""
        found: list[dict[int | None, InputRuns]] = [{} for _ in self.plan.inputs]
        for each in self.inputs:
            found[each.runs.input][each.runs.key] = each.open(cell)
        return found

    def _work(
        self, join: CellJoin | CellLeftJoin, inputs: Sequence[Mapping[int | None, InputRuns]], cell: int
    ) -> Iterator[Work]:
        """What the steps did; a search is taken to be among all tuples at hand."""
        at_hand = []
        for own in inputs:
            # an input that is searched by two keys has all of its tuples twice
            runs = next(iter(own.values()))
            parts = [part for each in (*runs.new, *runs.old) for part in each.run.cell(cell)]
            at_hand.append(sum(len(part.keys) for part in parts))
        for order in join.orders:
            for step, did in zip(order.steps, join.steps[order.first], strict=True):
                if did.tuples:
                    yield work_of_step(
                        step.method, did.tuples, did.looked, did.pairs, at_hand[step.input], did.seconds
                    )
                if did.built:
                    yield Work(built=did.built, seconds=did.build_seconds)


def matching(
    users: UserPredicates, batch: pa.RecordBatch, column: Callable[[str], pa.Array]
) -> pa.RecordBatch:
    """The rows of a batch that satisfy the user predicates.

    Args:
        users: the predicates.
        batch: the rows.
        column: gives the values of an input's column.
    """
    places = users.matching(column, batch.num_rows)
    return batch if len(places) == batch.num_rows else batch.take(pa.array(places))


def _counted(join: CellJoin | CellLeftJoin) -> tuple[StepCount, ...]:
    """What the steps of a join did so far."""
    return tuple(
        StepCount(
            order.first,
            step.input,
            did.tuples,
            did.looked,
            did.pairs + did.alone,
            did.seconds + did.build_seconds,
        )
        for order in join.orders
        for step, did in zip(order.steps, join.steps[order.first], strict=True)
    )


class RowStage:
    """Writes the rows of a cell as they come; of a file that has none there is nothing.

    Args:
        plan: the join.
        kind: of the file.
        store: stores it.
    """

    def __init__(self, plan: JoinPlan, kind: str, store: BatchFiles) -> None:
        #: the columns of the file
        self.schema = file_schema(plan)
        self._withdraws = plan.withdraws
        self._texts = [field.name for field in self.schema if not pa.types.is_primitive(field.type)]
        #: rows that withdraw another
        self.withdrawn = 0
        self._kind = kind
        self._store = store
        self._path: Path | None = None
        self._writer: pq.ParquetWriter | None = None
        self._held: list[pa.RecordBatch] = []
        self._held_rows = self._rows = 0

    def add(self, rows: pa.RecordBatch) -> None:
        """Takes in rows with the columns of the file."""
        self._held.append(rows)
        self._held_rows += rows.num_rows
        if self._withdraws:
            self.withdrawn += (
                pc.sum(pc.equal(rows.column(rows.num_columns - len(MARKS)), DELETE)).as_py() or 0
            )
        if self._held_rows >= _GROUP_ROWS:
            self._write()

    def close(self, job: int, partition: int) -> list[StagedFile]:
        """Store the file of a task; the list holds it, or nothing where it has no rows."""
        self._write()
        if self._writer is None or self._path is None:
            return []
        self._writer.close()
        return self._store.put(job, partition, [WrittenFile(self._kind, self._path, self._rows)])

    def _write(self) -> None:
        if not self._held_rows:
            return
        if self._writer is None:
            self._path = self._store.staging(self._kind)
            self._writer = pq.ParquetWriter(
                self._path,
                self.schema,
                compression="zstd",
                compression_level=1,
                store_schema=False,
                write_page_checksum=True,
                use_dictionary=self._texts if self._held_rows >= _WORTH_A_DICTIONARY else False,
            )
        self._writer.write_table(pa.Table.from_batches(self._held))
        self._rows += self._held_rows
        self._held, self._held_rows = [], 0


def _slices(found: FoundRuns) -> tuple[RunSlice, ...]:
    return tuple(RunSlice(each.run, each.after, each.until) for each in found.open())
