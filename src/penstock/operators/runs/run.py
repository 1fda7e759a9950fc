"""Sorted runs: the tuples that joins and deadlines read, laid out to be mapped into memory and probed as they lie.

A run is an uncompressed Arrow IPC file without dictionaries. A record batch is a part (see `routing.routers`), its rows
sorted by (key, event time); behind them, in any order, the *loose* rows: those whose key or event time is NULL, which no
search by either finds. Where the plan says so, rows without event time are found by their key (`RunPlan.is_untimed`). The schema's metadata is the directory: format, key, event time, router, and of each part its rows and the span of
their event times.

What is searched for is a number a row (`Part.keys`): the key itself where it is one whole number or time, else 32 bits
of its hash, kept in a column of its own. Equal keys have equal numbers; where `Run.is_exact` is False different ones may,
and who joins compares the keys of what it found.

A run of one log entry does not say which: whoever writes it does not know yet. A run merged from several has the
entry of each row (`Part.entries`), so that tuples of entries (a, b] can still be told from the others.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import astuple, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.kernels.radix import radix_order
from penstock.operators.routing.routers import Router, hashes_of, router_of

#: version of the layout
FORMAT = 1
#: columns that a run may have beside those of its tuples
HASH, ENTRY = "penstock.hash", "penstock.entry"
_DIRECTORY = b"penstock.run"
_HASH_FIELD = pa.field(HASH, pa.uint32(), nullable=False)
_ENTRY_FIELD = pa.field(ENTRY, pa.int32(), nullable=False)
_WORD = (1 << 64) - 1
_UNCOMPRESSED = pa.ipc.IpcWriteOptions(compression=None)

Words = npt.NDArray[np.uint64]
Numbers = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class RunPlan:
    """How tuples are laid out.

    Attributes:
        key: the columns they are sorted by; none: by event time alone.
        time: the event time column, a timestamp in microseconds.
        router: deals them out.
        is_untimed: whether rows without event time are no loose ones: nobody searches by it. Theirs counts as 0.
    """

    key: tuple[str, ...]
    time: str
    router: Router
    is_untimed: bool = False


@dataclass(frozen=True, slots=True)
class PartSummary:
    """What the directory of a run says of a part.

    Attributes:
        part: its number.
        rows: number of rows.
        loose: so many of them, the last ones, have no key or no event time.
        oldest, newest: smallest and largest event time, microseconds; None where no row has one.
    """

    part: int
    rows: int
    loose: int
    oldest: int | None
    newest: int | None


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """A part of a run, as it lies in memory; nothing is copied.

    Attributes:
        summary: what the directory says of it.
        tuples: the columns of all its rows.
        keys: a number a row that is not loose, ascending; equal keys have equal ones. Zeros where the run has no key.
        times: event times of those rows, int64 microseconds, ascending among rows of equal `keys`.
        entries: the log entry of each row, loose ones included, less `first_entry`; None where all are of one entry.
        first_entry: the first entry of the run; 0 where `entries` is None.
    """

    summary: PartSummary
    tuples: pa.RecordBatch
    keys: Numbers
    times: npt.NDArray[np.int64]
    entries: npt.NDArray[np.int32] | None
    first_entry: int

    def rows_of(self, after: int, until: int) -> npt.NDArray[np.bool_] | None:
        """Which rows are of the entries behind one and up to another, bool[rows]; None: the part cannot tell."""
        if self.entries is None:
            return None
        return (self.entries > after - self.first_entry) & (self.entries <= until - self.first_entry)


class Run:
    """A sorted run in memory or mapped into it.

    Args:
        buffer: the whole file.

    Raises:
        ValueError: it is no run, not a whole one, or one of another format.
    """

    def __init__(self, buffer: pa.Buffer) -> None:
        try:
            self._reader = pa.ipc.open_file(pa.BufferReader(buffer))
        except pa.ArrowException as error:
            raise ValueError(f"it is not a complete Arrow file: {error}") from None
        schema = self._reader.schema
        text = (schema.metadata or {}).get(_DIRECTORY)
        if text is None:
            raise ValueError("it is an Arrow file without the directory of a run")
        document = json.loads(text)
        if document.get("format") != FORMAT:
            raise ValueError(f"it is a run of format {document.get('format')}, this version reads {FORMAT}")
        try:
            self.plan = RunPlan(
                tuple(document["key"]),
                document["time"],
                router_of(document["router"]),
                document.get("untimed", False),
            )
            self.parts = {part[0]: PartSummary(*part) for part in document["parts"]}
            self.entries: tuple[int, int] | None = (
                None if document["entries"] is None else (document["entries"][0], document["entries"][1])
            )
        except (KeyError, TypeError, IndexError) as error:
            raise ValueError(f"its directory cannot be read: {error!r}") from None
        self._places = {part: place for place, part in enumerate(self.parts)}
        if len(self.parts) != self._reader.num_record_batches:
            raise ValueError(
                f"its directory has {len(self.parts)} parts, it has {self._reader.num_record_batches}"
            )
        #: the columns of the tuples
        self.schema = pa.schema([field for field in schema if field.name not in (HASH, ENTRY)])
        #: whether different keys have different numbers
        self.is_exact = HASH not in schema.names

    @property
    def rows(self) -> int:
        """Number of tuples."""
        return sum(each.rows for each in self.parts.values())

    def part(self, number: int) -> Part | None:
        """A part; None where it has no rows.

        Raises:
            ValueError: it is not what the directory says.
        """
        place = self._places.get(number)
        if place is None:
            return None
        summary, batch = self.parts[number], self._batch(number, place)
        found = summary.rows - summary.loose
        if not self.is_exact:
            keys = _numbers(batch.column(HASH))[:found]
        elif self.plan.key:
            keys = _numbers(batch.column(self.plan.key[0]))[:found]
        else:
            keys = np.zeros(found, np.int8)
        return Part(
            summary,
            batch.select(self.schema.names),
            keys,
            _times(batch.column(self.plan.time), self.plan)[:found],
            None if self.entries is None else _numbers(batch.column(ENTRY)),
            0 if self.entries is None else self.entries[0],
        )

    def whole_part(self, number: int) -> pa.RecordBatch | None:
        """All columns of a part, those of the run beside its tuples' included; None where it has no rows."""
        place = self._places.get(number)
        return None if place is None else self._batch(number, place)

    def cell(self, number: int) -> Iterator[Part]:
        """The parts that lie in a cell and have rows."""
        for part in self.parts:
            if number in self.plan.router.cells_of(part):
                found = self.part(part)
                assert found is not None, "it is in the directory"
                yield found

    def _batch(self, number: int, place: int) -> pa.RecordBatch:
        try:
            batch = self._reader.get_batch(place)
        except (pa.ArrowException, OSError) as error:
            raise ValueError(f"part {number} cannot be read: {error}") from None
        rows = self.parts[number].rows
        if batch.num_rows != rows:
            raise ValueError(f"part {number} has {batch.num_rows} rows, by its directory {rows}")
        return batch


def write_run(table: pa.Table, plan: RunPlan, sink: Any) -> int:
    """Writes tuples, all of one log entry, as a run.

    Args:
        table: the tuples; below 2 GB, as the offsets of its strings allow, without dictionaries.
        plan: how they are laid out.
        sink: a file open for writing, or a path.

    Returns:
        The number of tuples.
    """
    table = table.combine_chunks()
    parts = plan.router.deal(table)
    if plan.key and not is_ordinal(table.schema, plan.key):
        table = table.append_column(_HASH_FIELD, pa.array(hash_numbers(table, plan.key)))
    loose = _loose(table, plan)
    order = _order([*_sort_words(table, plan), _word(parts * 2 + loose)])
    counts = np.bincount(parts, minlength=plan.router.parts)
    times = _times(table.column(plan.time).chunk(0), plan) if table.num_rows else np.zeros(0, np.int64)
    known = np.ones(table.num_rows, np.bool_)
    if not plan.is_untimed:
        known = table.column(plan.time).is_valid().to_numpy()
    sorted_table = table.take(pa.array(order))
    summaries, batches = [], []
    start = 0
    for part in np.flatnonzero(counts).tolist():
        rows = order[start : start + int(counts[part])]
        own = times[rows[known[rows]]]
        summaries.append(
            PartSummary(
                part,
                len(rows),
                int(loose[rows].sum()),
                int(own.min()) if len(own) else None,
                int(own.max()) if len(own) else None,
            )
        )
        batches += sorted_table.slice(start, len(rows)).combine_chunks().to_batches()
        start += len(rows)
    _write(sink, table.schema, plan, None, summaries, iter(batches))
    return int(table.num_rows)


def merge_runs(sources: Sequence[tuple[int, Run]], sink: Any) -> int:
    """Writes the tuples of several runs as one, a part at a time: no more than one is in memory.

    Args:
        sources: of each run the log entry its tuples are of, which counts where it does not know that itself.
        sink: a file open for writing, or a path.

    Returns:
        The number of tuples.

    Raises:
        ValueError: they are not laid out alike.
    """
    runs = [run for _, run in sources]
    first_run = runs[0]
    for run in runs:
        if run.plan != first_run.plan or not run.schema.equals(first_run.schema):
            raise ValueError(
                f"runs of different tuples: {run.plan}, {run.schema}; {first_run.plan}, {first_run.schema}"
            )
    spans = [(entry, entry) if run.entries is None else run.entries for entry, run in sources]
    first, last = min(low for low, _ in spans), max(high for _, high in spans)
    summaries = []
    for part in sorted({part for run in runs for part in run.parts}):
        own = [run.parts[part] for run in runs if part in run.parts]
        summaries.append(
            PartSummary(
                part,
                sum(each.rows for each in own),
                sum(each.loose for each in own),
                min((each.oldest for each in own if each.oldest is not None), default=None),
                max((each.newest for each in own if each.newest is not None), default=None),
            )
        )
    schema = first_run.schema if first_run.is_exact else first_run.schema.append(_HASH_FIELD)
    schema = schema.append(_ENTRY_FIELD)
    plan = first_run.plan

    def batches() -> Iterator[pa.RecordBatch]:
        for summary in summaries:
            pieces = []
            for (low, _), run in zip(spans, runs, strict=True):
                batch = run.whole_part(summary.part)
                if batch is not None:
                    pieces.append(_of_entries(batch, low - first).select(schema.names))
            table = pa.Table.from_batches(pieces, schema).combine_chunks()
            order = _order([*_sort_words(table, plan), _word(_loose(table, plan).astype(np.int64))])
            yield from table.take(pa.array(order)).combine_chunks().to_batches()

    _write(sink, schema, plan, (first, last), summaries, batches())
    return sum(each.rows for each in summaries)


def _of_entries(batch: pa.RecordBatch, offset: int) -> pa.RecordBatch:
    """A part with the entry of each row, less the first one of the merged run."""
    place = batch.schema.get_field_index(ENTRY)
    if place < 0:
        return batch.append_column(_ENTRY_FIELD, pa.array(np.full(batch.num_rows, offset, np.int32)))
    return batch.set_column(place, _ENTRY_FIELD, pa.array(_numbers(batch.column(place)) + np.int32(offset)))


def _write(
    sink: Any,
    schema: pa.Schema,
    plan: RunPlan,
    entries: tuple[int, int] | None,
    summaries: Sequence[PartSummary],
    batches: Iterator[pa.RecordBatch],
) -> None:
    directory = {
        "format": FORMAT,
        "key": plan.key,
        "time": plan.time,
        "router": plan.router.document(),
        "entries": entries,
        "parts": [astuple(summary) for summary in summaries],
    }
    if plan.is_untimed:
        directory["untimed"] = True
    schema = schema.with_metadata({_DIRECTORY: json.dumps(directory, separators=(",", ":"))})
    with pa.ipc.new_file(sink, schema, options=_UNCOMPRESSED) as writer:
        for batch in batches:
            writer.write_batch(batch.replace_schema_metadata(schema.metadata))


def is_ordinal(schema: pa.Schema, key: Sequence[str]) -> bool:
    """Whether a key is one whole number or time, and can be searched for as it is."""
    if len(key) != 1:
        return False
    kind = schema.field(key[0]).type
    return bool(pa.types.is_integer(kind) or (pa.types.is_temporal(kind) and kind.bit_width <= 64))


def hash_numbers(table: pa.Table, key: Sequence[str]) -> npt.NDArray[np.uint32]:
    """What a key that is not ordinal is searched for by: 32 bits of the hash of each row's."""
    # the router takes the hash modulo its cells: what it leaves to tell keys of a cell apart are the upper bits
    return (hashes_of(table, key) >> np.uint64(32)).astype(np.uint32)


def _loose(table: pa.Table, plan: RunPlan) -> npt.NDArray[np.bool_]:
    loose = np.zeros(table.num_rows, np.bool_)
    for name in plan.key if plan.is_untimed else (*plan.key, plan.time):
        if table.column(name).null_count:
            loose |= table.column(name).is_null().to_numpy()
    return loose


def _times(array: pa.Array, plan: RunPlan) -> Numbers:
    """Event times, microseconds, by which rows that are not loose are sorted."""
    times = _numbers(array)
    if plan.is_untimed and array.null_count:
        times = np.where(array.is_valid().to_numpy(zero_copy_only=False), times, 0)
    return times


def _numbers(array: pa.Array) -> Numbers:
    """The values of an array of whole numbers or times as they lie in memory, whatever stands for NULL included."""
    width = array.type.bit_width // 8
    unsigned = pa.types.is_unsigned_integer(array.type)
    values = np.frombuffer(array.buffers()[1], np.dtype(f"{'u' if unsigned else 'i'}{width}"))
    return values[array.offset : array.offset + len(array)]


def _sort_words(table: pa.Table, plan: RunPlan) -> list[tuple[Words, int]]:
    """What rows of a part are sorted by, the least significant first."""
    if not table.num_rows:
        return []
    words = [_word(_times(table.column(plan.time).chunk(0), plan))]
    if HASH in table.schema.names:
        words.append(_word(_numbers(table.column(HASH).chunk(0))))
    elif plan.key:
        words.append(_word(_numbers(table.column(plan.key[0]).chunk(0))))
    return words


def _word(numbers: Numbers) -> tuple[Words, int]:
    """Numbers from 0 in the same order, and how many bits they have."""
    if not len(numbers):
        return np.zeros(0, np.uint64), 0
    low, high = int(numbers.min()), int(numbers.max())
    # modulo 2^64, which the difference of two 64-bit numbers always fits
    words = numbers.astype(np.uint64) - np.uint64(low & _WORD)
    return words, (high - low).bit_length()


def _order(words: Sequence[tuple[Words, int]]) -> npt.NDArray[np.uint32]:
    """The rows in order of some words, the least significant first: as many as fit are sorted by together."""
    order = np.arange(len(words[-1][0]), dtype=np.uint32)
    packed, bits = np.zeros(len(order), np.uint64), 0
    for word, width in words:
        if bits + width > 64:
            order = radix_order(packed, bits, order)
            packed, bits = word, width
        elif width:
            packed = packed | word << np.uint64(bits)
            bits += width
    return radix_order(packed, bits, order)
