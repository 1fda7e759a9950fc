"""The worker's side of window results: answers become rows of files.

A view whose outputs and HAVING workers can compute is stored as it is published. Any other is
left in the scratch folder *raw*: `_w`, `_k0` ..., `_a0` ..., the marks and, of a view with HAVING, what the revision before said; Spark
makes its results.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import chain
from threading import BoundedSemaphore
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from penstock.operators.scalars.evaluation import Evaluation, whole_batch
from penstock.operators.windows.answers import Answer
from penstock.operators.windows.grouping import shared_codes
from penstock.operators.windows.rows import OVERFLOWED
from penstock.operators.windows.spans import SPAN
from penstock.spark.publication.kinds import view_kind
from penstock.spark.publication.staged import BatchFiles, StagedFile, WrittenFile
from penstock.spark.results.having import group_condition, is_plain, kept_groups
from penstock.spark.results.window_schemas import (
    BEFORE,
    COVERAGE,
    DELETE,
    FINAL,
    FIRST_REVISION,
    MARKS,
    OP,
    REVISION,
    SLACK,
    UPSERT,
    result_schema,
    row_type,
)
from penstock.spark.storage.store_paths import StorePath
from penstock.sql.windows.bind import BoundWindow

_SECOND = 1_000_000
#: operator and view
_Place = tuple[int, str]
#: rows of several views are made together until there are so many
_ROWS_AT_A_TIME = 1 << 17
#: fewer rows are written faster without, and not larger
_WORTH_A_DICTIONARY = 10_000
#: fewer bytes are written in half the time as they are; merging files compresses them
_WORTH_COMPRESSING = 64 << 10
#: from so many bytes on a file that is a quarter smaller is worth twice the time
_WORTH_MORE = 1 << 20
_PLAIN: dict[str, Any] = {"compression": None}
_FAST: dict[str, Any] = {"compression": "snappy"}
_DENSE: dict[str, Any] = {"compression": "zstd", "compression_level": 1}
#: threads that write and sync files, and how many small files each is given at a time
_WRITERS, _FILES_AT_A_TIME = 8, 16


@dataclass(slots=True)
class ViewCounts:
    """What was said of one view in one batch; a window counts once, however many shards hold groups of it.

    Attributes:
        early: windows answered for the first time.
        corrected: windows with a later revision while they are not final.
        final: windows that became final.
        final_corrected: final windows that were corrected from the history.
        final_corrected_rows: rows that replace some which were final.
        rows: rows of all.
        revised_rows: of these, rows that replace one of an earlier revision. A withdrawn row of a running view counts twice: `rows` less
            `revised_rows` is by how much the results grow.
        slack: sum of the slacks of the early windows, microseconds.
        promised: early windows whose bound could be promised.
        overflowed: rows with a sum or mean that is NULL because it does not fit its type.
    """

    early: int = 0
    corrected: int = 0
    final: int = 0
    final_corrected: int = 0
    final_corrected_rows: int = 0
    rows: int = 0
    revised_rows: int = 0
    slack: int = 0
    promised: int = 0
    overflowed: int = 0


@dataclass(slots=True)
class SaidWindows:
    """The windows of one view that answers of one batch tell of, each by its end.

    Attributes:
        early: slack of the first answer, and whether its bound could be promised.
        corrected, final, final_corrected, final_corrected_rows, rows, revised_rows, overflowed: see `ViewCounts`.
    """

    early: dict[int, tuple[int, bool]] = field(default_factory=dict)
    corrected: set[int] = field(default_factory=set)
    final: set[int] = field(default_factory=set)
    final_corrected: set[int] = field(default_factory=set)
    final_corrected_rows: int = 0
    rows: int = 0
    revised_rows: int = 0
    overflowed: int = 0

    def note(self, answer: Answer) -> None:
        """Takes in an answer; of its rows those that replace earlier ones."""
        self.revised_rows += answer.replaced.num_rows
        if answer.revision >= FIRST_REVISION:
            self.final_corrected.add(answer.end)
            self.final_corrected_rows += answer.rows.num_rows
        elif answer.final:
            self.final.add(answer.end)
        elif answer.revision:
            self.corrected.add(answer.end)
        if not answer.revision:
            self._begin(answer.end, answer.slack, answer.promised)

    def add(self, other: SaidWindows) -> None:
        """Takes in what another shard said."""
        for end, (slack, promised) in other.early.items():
            self._begin(end, slack, promised)
        self.corrected |= other.corrected
        self.final |= other.final
        self.final_corrected |= other.final_corrected
        self.final_corrected_rows += other.final_corrected_rows
        self.rows += other.rows
        self.revised_rows += other.revised_rows
        self.overflowed += other.overflowed

    def judged(self, rows: int, revised_rows: int) -> None:
        """Takes in the rows that HAVING leaves."""
        self.rows, self.revised_rows = rows, revised_rows

    def counts(self) -> ViewCounts:
        """How many they are."""
        return ViewCounts(
            early=len(self.early),
            corrected=len(self.corrected),
            final=len(self.final),
            final_corrected=len(self.final_corrected),
            final_corrected_rows=self.final_corrected_rows,
            rows=self.rows,
            revised_rows=self.revised_rows,
            slack=sum(slack for slack, _ in self.early.values()),
            promised=sum(promised for _, promised in self.early.values()),
            overflowed=self.overflowed,
        )

    def _begin(self, end: int, slack: int, promised: bool) -> None:
        known, all_promised = self.early.get(end, (slack, True))
        self.early[end] = max(known, slack), all_promised and promised


@dataclass(frozen=True, slots=True)
class StagedResults:
    """The results of one view in one shard.

    Attributes:
        operator: who answers it.
        view: its name.
        shard: where.
        raw: whether Spark has yet to make its results.
        file: what was stored, or is left in the scratch folder; None where HAVING leaves no row.
        said: what it says.
    """

    operator: int
    view: str
    shard: int
    raw: bool
    file: StagedFile | WrittenFile | None
    said: SaidWindows

    @property
    def job(self) -> int:
        """The operator: unique among the published files of a view."""
        return self.operator

    @property
    def partition(self) -> int:
        """The shard."""
        return self.shard

    @property
    def files(self) -> Sequence[StagedFile]:
        """The one file, if it is stored."""
        return [self.file] if isinstance(self.file, StagedFile) else []

    @property
    def left(self) -> Sequence[WrittenFile]:
        """The one file, if it is in the scratch folder."""
        return [self.file] if isinstance(self.file, WrittenFile) else []


@dataclass(slots=True)
class ResultStage:
    """Collects the answers of one shard in one batch and stores them.

    Attributes:
        files: stores the batch's files; None: all are left in the scratch folder.
        scratch: that folder.
        shard: which shard.
        views: gives the views of an operator.
    """

    files: BatchFiles | None
    scratch: StorePath
    shard: int
    views: Callable[[int], Mapping[str, BoundWindow]]
    _answers: dict[_Place, list[Answer]] = field(default_factory=dict)

    def add(self, operator: int, answer: Answer) -> None:
        """Takes an answer in."""
        if answer.rows.num_rows:
            self._answers.setdefault((operator, answer.view), []).append(answer)

    def close(self) -> list[StagedResults]:
        """Writes a file for each view: several at a time, for each waits for the disk."""
        with ThreadPoolExecutor(_WRITERS, "penstock-stage") as threads:
            writers = _Writers(threads, self._store)
            begun = [each for view, places in self._alike() for each in self._write(view, places, writers)]
            files = writers.files()
            return [
                StagedResults(*place, self.shard, raw, next(files) if has_file else None, said)
                for place, raw, has_file, said in begun
            ]

    def _store(self, written: Sequence[_Written]) -> list[StagedFile | WrittenFile]:
        """Stores files, or leaves them in the scratch folder; all are raw, or none is."""
        if self.files is None or any(each.raw for each in written):
            return [each.file.left(self.scratch) for each in written]
        return [*self.files.put_all(self.shard, [(each.operator, each.file) for each in written])]

    def _alike(self) -> Iterator[tuple[BoundWindow, list[_Place]]]:
        """Views whose rows are made together, as they differ in neither columns nor aggregates."""
        kinds: dict[Hashable, list[_Place]] = {}
        for place in self._answers:
            view = self._view(place)
            plan = view.plan
            like = view.window_type, plan.keys, plan.aggregates, plan.gap, view.outputs, view.having
            kinds.setdefault(like, []).append(place)
        for every in kinds.values():
            places: list[_Place] = []
            rows = 0
            for place in every:
                if rows >= _ROWS_AT_A_TIME:
                    yield self._view(places[0]), places
                    places, rows = [], 0
                places.append(place)
                rows += sum(answer.rows.num_rows for answer in self._answers[place])
            yield self._view(places[0]), places

    def _view(self, place: _Place) -> BoundWindow:
        operator, name = place
        return self.views(operator)[name]

    def _write(
        self, view: BoundWindow, places: Sequence[_Place], writers: _Writers
    ) -> Iterator[tuple[_Place, bool, bool, SaidWindows]]:
        """Makes the rows of views that are like one, and begins to write the file of each.

        Yields:
            The operator and the view, whether Spark has yet to make its results, whether it has a file, and what is said of it.
        """
        answers = list(chain.from_iterable(self._answers[place] for place in places))
        rows = pa.concat_tables([answer.rows for answer in answers]).combine_chunks()
        table = raw_rows(view, answers, rows)
        raw = not is_plain(view)
        judge = None if raw or view.having is None else group_condition(view)
        kept = None if judge is None else kept_groups(judge, table)
        if not raw:
            table = plain_results(view, table if kept is None else kept.rows)
        row_bytes = table.nbytes / max(1, len(table))
        overflowed = np.append(0, np.cumsum(rows.column(OVERFLOWED).to_numpy())).tolist()
        until = range(len(rows) + 1) if kept is None else np.append(0, np.cumsum(kept.places)).tolist()
        last = 0
        for operator, name in places:
            own = self._answers[operator, name]
            first, last = last, last + sum(answer.rows.num_rows for answer in own)
            begin, count = until[first], until[last] - until[first]
            said = SaidWindows(rows=count, overflowed=overflowed[last] - overflowed[first])
            for answer in own:
                if view.plan.is_running:
                    said.revised_rows += (
                        answer.replaced.num_rows + 2 * answer.withdrawn * answer.rows.num_rows
                    )
                else:
                    said.note(answer)
            if kept is not None:
                said.judged(count, count - int(kept.more[first:last].sum()))
            if count:
                kind = view_kind(operator, name)
                writers.write(operator, kind, table.slice(begin, count), int(row_bytes * count), raw=raw)
            yield (operator, name), raw, count > 0, said


@dataclass(frozen=True, slots=True)
class _Written:
    """A file of an operator that is not stored yet, and whether Spark has yet to make its results."""

    operator: int
    raw: bool
    file: WrittenFile


class _Writers:
    """Threads that store files; whoever gives them another waits while many are to be stored.

    Large tables are encoded by the threads too. Many small ones are encoded faster by one thread, and stored several by one.
    """

    def __init__(
        self,
        threads: ThreadPoolExecutor,
        store: Callable[[Sequence[_Written]], list[StagedFile | WrittenFile]],
    ) -> None:
        self._threads = threads
        self._store = store
        self._places = BoundedSemaphore(2 * _WRITERS)
        self._small: list[_Written] = []
        self._small_bytes = 0
        self._begun: list[Future[list[StagedFile | WrittenFile]]] = []

    def write(self, operator: int, kind: str, table: pa.Table, size: int, *, raw: bool) -> None:
        """Begins to write a file of a table with about so many bytes."""
        if size >= _WORTH_MORE:
            self._write_small()
            self._begin(lambda: self._store([_Written(operator, raw, written(kind, table))]))
            return
        if self._small and self._small[0].raw != raw:
            self._write_small()
        content = _encoded(table, size)
        self._small.append(_Written(operator, raw, WrittenFile(kind, content, table.num_rows)))
        self._small_bytes += len(content)
        if len(self._small) >= _FILES_AT_A_TIME or self._small_bytes >= _WORTH_MORE:
            self._write_small()

    def files(self) -> Iterator[StagedFile | WrittenFile]:
        """What was written, in the order in which it was given."""
        self._write_small()
        for writing in self._begun:
            yield from writing.result()

    def _write_small(self) -> None:
        if self._small:
            small, self._small, self._small_bytes = self._small, [], 0
            self._begin(lambda: self._store(small))

    def _begin(self, write: Callable[[], list[StagedFile | WrittenFile]]) -> None:
        self._places.acquire()
        writing = self._threads.submit(write)
        writing.add_done_callback(lambda _: self._places.release())
        self._begun.append(writing)


def written(kind: str, table: pa.Table, *, is_brief: bool = False) -> WrittenFile:
    """A table as a Parquet file of a kind that is not stored yet.

    Args:
        kind: the kind.
        table: the rows.
        is_brief: it is read once, so it is written fast.
    """
    size = min(table.nbytes, _WORTH_MORE - 1) if is_brief else table.nbytes
    return WrittenFile(kind, _encoded(table, size), table.num_rows)


def _encoded(table: pa.Table, size: int) -> memoryview:
    """The Parquet file of a table, compressed as is worth it for so many bytes."""
    sink = pa.BufferOutputStream()
    pq.write_table(
        table,
        sink,
        **(_PLAIN if size < _WORTH_COMPRESSING else _FAST if size < _WORTH_MORE else _DENSE),
        store_schema=False,
        write_page_checksum=True,
        use_dictionary=table.num_rows >= _WORTH_A_DICTIONARY,
    )
    return memoryview(sink.getvalue())


def raw_rows(view: BoundWindow, answers: Sequence[Answer], rows: pa.Table) -> pa.Table:
    """The rows of answers, one after the other, by the names that the view's expressions use, with the marks."""
    counts = [answer.rows.num_rows for answer in answers]
    places = pa.array(np.repeat(np.arange(len(answers)), counts))

    def of_each(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
        return pa.array(values).cast(kind).take(places)

    keys = rows.column_names[: len(view.plan.keys)]
    told: list[Sequence[Any]] = [[answer.start for answer in answers], [answer.end for answer in answers]]
    if view.plan.is_running:
        told = [[True] * len(answers)]
    if view.plan.gap is None:
        parts = [of_each(values, part.type) for values, part in zip(told, view.window_type, strict=True)]
    else:
        spans = (rows.column(name).combine_chunks() for name in SPAN)
        parts = [span.cast(part.type) for span, part in zip(spans, view.window_type, strict=True)]
    columns = {"_w": pa.StructArray.from_arrays(parts, fields=list(view.window_type))}
    columns |= {f"_k{number}": rows.column(name) for number, name in enumerate(keys)}
    aggregates = [f"_a{number}" for number in range(len(view.plan.aggregates))]
    columns |= {name: rows.column(name) for name in aggregates}
    marks: dict[str, Sequence[Any]] = {
        REVISION: [answer.revision for answer in answers],
        COVERAGE: [answer.coverage for answer in answers],
        SLACK: [answer.slack / _SECOND for answer in answers],
        FINAL: [answer.final for answer in answers],
        OP: [DELETE if answer.withdrawn else UPSERT for answer in answers],
    }
    columns |= {mark.name: of_each(marks[mark.name], mark.type) for mark in MARKS}
    if view.having is not None:
        row = keys if view.plan.gap is None else [*keys, *SPAN]
        columns[BEFORE] = pa.chunked_array([_before(answer, row, aggregates) for answer in answers])
    return pa.table(columns)


def plain_results(view: BoundWindow, raw: pa.Table) -> pa.Table:
    """The results of a view that needs no Spark for them."""
    window = raw.column("_w").combine_chunks()
    moments = {f"_w.{part.name}": window.field(number) for number, part in enumerate(view.window_type)}
    trees = {output.expression: output.tree for output in view.outputs if output.tree is not None}
    evaluation = Evaluation(whole_batch(raw)) if trees else None
    computed = {text: evaluation.column(tree) for text, tree in trees.items()} if evaluation else {}
    named = moments | computed
    own = [
        named[output.expression] if output.expression in named else raw.column(output.expression)
        for output in view.outputs
    ]
    keys = [raw.column(f"_k{number}").combine_chunks() for number in range(len(view.plan.keys))]
    row = pa.StructArray.from_arrays([*moments.values(), *keys], fields=list(row_type(view)))
    return pa.table([*own, *(raw.column(mark.name) for mark in MARKS), row], schema=result_schema(view))


def raw_schema(view: BoundWindow) -> pa.Schema:
    """The columns of a raw file of the view."""
    aggregates = [(f"_a{number}", each.type) for number, each in enumerate(view.plan.aggregates)]
    keys = [(f"_k{number}", kind) for number, (_, kind) in enumerate(view.plan.keys)]
    schema = pa.schema([("_w", view.window_type), *keys, *aggregates, *MARKS])
    return schema if view.having is None else schema.append(pa.field(BEFORE, pa.struct(aggregates)))


def _before(answer: Answer, keys: Sequence[str], aggregates: Sequence[str]) -> pa.Array:
    """For each row what the revision before said of its group."""
    rows, replaced = answer.rows, answer.replaced
    now, then = shared_codes([rows, replaced], keys)
    place = np.full(len(now) + len(then), -1)
    place[then] = np.arange(len(then))
    unknown = place[now] < 0
    taken = replaced.select(aggregates).take(pa.array(place[now], mask=unknown))
    return pa.StructArray.from_arrays(
        [column.combine_chunks() for column in taken.columns], names=list(aggregates), mask=pa.array(unknown)
    )
