"""A lane for tests, and logs for it that need no ingest query.

`PairLane` is like a join lane: it counts the pairs of tuples of its streams that fall into the same slot with the
same key. What a cut adds is joined with what the logs hold below it, so that the sum over all cuts is the count over
all tuples, whatever the cuts are. With one stream it counts the tuples.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from engine_cases import names
from penstock.operators.windows.aggregates import ROWS
from penstock.operators.windows.panes import PANE
from penstock.operators.windows.shard import PARTIALS
from penstock.settings import Settings
from penstock.spark.lanes.cut_lane import CutAnswer, CutLane
from penstock.spark.lanes.cuts import Cut, Reach
from penstock.spark.lanes.lane import LaneContext
from penstock.spark.log.appended import Appended
from penstock.spark.log.entries import Entry
from penstock.spark.log.envelopes import EnvelopeReader
from penstock.spark.log.row_log import RowLogs
from penstock.spark.log.stream_log import LogReader, StreamLog
from penstock.spark.publication.kinds import view_kind
from penstock.spark.publication.manifests import published_paths
from penstock.spark.publication.staged import BatchFiles
from penstock.spark.results.window_rows import MadeResults
from penstock.spark.results.window_staging import written
from penstock.spark.storage.events import EventLog
from penstock.spark.storage.layout import Layout
from penstock.spark.storage.stored_log import StoredLog
from penstock.trigger import Trigger
from publishing import shown

#: kind of the files that `Feed` writes
TALLIES = "tallies"
VIEW = "pairs"
KIND = view_kind(0, VIEW)
SCHEMA = pa.schema([("slot", pa.int64()), ("key", pa.string()), ("n", pa.int64())])

#: gives (slot, key, n) of the tuples of some entries
Tally = Callable[[LogReader, Sequence[Entry]], pa.Table]


def tallies(reader: LogReader, entries: Sequence[Entry]) -> pa.Table:
    """Of the files that `Feed` writes."""
    files = [reader.path(TALLIES, name) for entry in entries for name in entry.files.get(TALLIES, ())]
    return pa.concat_tables([SCHEMA.empty_table(), *(pq.read_table(file) for file in files)])


class PairLane(CutLane):
    """Counts pairs of tuples, by slot and key.

    Args:
        tally: reads entries.
        seconds: an answer takes so long, at least.
    """

    def __init__(
        self,
        name: str,
        context: LaneContext,
        streams: Sequence[Any],
        entries_per_cut: int = 64,
        tally: Tally = tallies,
        seconds: float = 0.0,
    ) -> None:
        super().__init__(name, context, streams, entries_per_cut)
        # one stream needs nothing of what was before
        self.reads_again = len(streams) > 1
        self._tally = tally
        self._seconds = seconds
        #: cleared, it waits before it answers
        self.goes_on = threading.Event()
        self.goes_on.set()
        #: cuts answered by this object, with those that were repeated
        self.answered: list[Cut] = []
        #: what `orders` gives next
        self.order = 0

    def answer(self, cut: Cut, store: BatchFiles) -> CutAnswer:
        self.goes_on.wait()
        time.sleep(self._seconds)
        rows = added_pairs(cut, self.readers, self._tally)
        self.answered.append(cut)
        return CutAnswer([MadeResults(0, 0, store.put(0, 0, [written(KIND, rows)]))], {"rows": rows.num_rows})

    def orders(self, until: Mapping[str, Reach]) -> Mapping[str, Any]:  # noqa: ARG002
        return {"order": self.order}

    def stop(self) -> None:
        self.goes_on.set()
        super().stop()


class PartialsLane(PairLane):
    """Counts pairs of the tuples that window views aggregate, by stateless jobs, a task a shard.

    Args:
        shards: how many the streams have, all of them.
        operators: those of the views whose partials are read, by stream; they have one key of type string.
    """

    def __init__(
        self,
        name: str,
        context: LaneContext,
        streams: Sequence[Any],
        shards: int,
        operators: Mapping[str, int],
    ) -> None:
        super().__init__(name, context, streams)
        self._shards = shards
        self._operators = operators

    def answer(self, cut: Cut, store: BatchFiles) -> CutAnswer:
        self.goes_on.wait()
        task = _ShardPairs(
            cut, store, {name: reader.log for name, reader in self.readers.items()}, self._operators
        )
        made = self.jobs.run(task, range(self._shards))
        self.answered.append(cut)
        return CutAnswer(made, {"rows": sum(file.rows for each in made for file in each.files)})


@dataclass(frozen=True)
class _ShardPairs:
    """What a task of `PartialsLane` does: the pairs of one shard."""

    cut: Cut
    store: BatchFiles
    logs: Mapping[str, StoredLog]
    operators: Mapping[str, int]

    def __call__(self, shard: int) -> MadeResults:
        readers = {name: LogReader(log) for name, log in self.logs.items()}

        def tally(reader: LogReader, entries: Sequence[Entry]) -> pa.Table:
            operator = next(self.operators[name] for name, each in readers.items() if each is reader)
            envelopes = EnvelopeReader(reader, shard)
            found = [
                pa.ipc.open_stream(each.payload).read_all()
                for entry in entries
                for each in envelopes.of(entry)
                if each.kind == PARTIALS and each.operator == operator
            ]
            rows = [
                table.select([PANE, "_k0", ROWS]).rename_columns(SCHEMA.names).cast(SCHEMA) for table in found
            ]
            return pa.concat_tables([SCHEMA.empty_table(), *rows])

        pairs = added_pairs(self.cut, readers, tally)
        return MadeResults(0, shard, self.store.put(0, shard, [written(KIND, pairs)]))


class Feed:
    """Writes the log of one stream without an ingest query.

    Args:
        layout: where.
        stream: its name.
        rng: makes the tuples.
    """

    def __init__(self, layout: Layout, stream: str, rng: np.random.Generator) -> None:
        self.stream = stream
        self._rng = rng
        self._log = StreamLog(layout.log(stream))
        self._log.path(TALLIES, "").mkdir(parents=True, exist_ok=True)
        self.tuples = SCHEMA.empty_table()
        #: by entry how many tuples there are up to it
        self._sizes: list[int] = []
        self.entries = 0
        self._ahead = 0

    def put(self, entries: int, size: int = 20, seconds: float = 0.0) -> None:
        """Puts entries of so many tuples, as if each were put so long after the one before."""
        for _ in range(entries):
            rows = pa.table(
                {
                    "slot": self._rng.integers(0, 5, size),
                    "key": self._rng.choice(["north", "south", "east"], size),
                    "n": np.ones(size, np.int64),
                },
                schema=SCHEMA,
            )
            self.tuples = pa.concat_tables([self.tuples, rows])
            self._sizes.append(self.tuples.num_rows)
            name = f"{self.entries}.parquet"
            pq.write_table(rows, self._log.path(TALLIES, name))
            assert self._log.append(
                Entry(self.entries, self.entries, 0, self.clock(), files={TALLIES: (name,)})
            )
            self.entries += 1
            self._ahead += int(seconds * 1e6)

    def of(self, first: int, last: int) -> pa.Table:
        """The tuples of the entries from one to another."""
        begin, end = (self._sizes[entry] if entry >= 0 else 0 for entry in (first - 1, last))
        return self.tuples.slice(begin, max(0, end - begin))

    def clock(self) -> int:
        """The time, ahead of the clock by what was played so far, microseconds since the epoch."""
        return time.time_ns() // 1_000 + self._ahead

    def keeper(self) -> Any:
        """What stands for the log's keeper; `active` and `is_complete` are the test's to set."""
        ingest = SimpleNamespace(stream=self.stream)
        return SimpleNamespace(stream=self.stream, ingest=ingest, active=True, is_complete=False)


def end(*keepers: Any) -> None:
    """Says that the logs are complete."""
    for keeper in keepers:
        keeper.is_complete, keeper.active = True, False


def lane_context(
    layout: Layout,
    spark: Any = None,
    trigger: Trigger = Trigger(),  # noqa: B008, frozen
    **settings: Any,
) -> LaneContext:
    """The context of a lane without a run."""
    events, appended = EventLog(layout.events), Appended()
    return LaneContext(
        spark,
        layout,
        events,
        Settings(**{"retry_seconds": 0.01, **settings}),
        trigger,
        "penstock",
        Appended(),
        appended,
        RowLogs(layout, events, appended.tell),
    )


def wanted(*feeds: Feed) -> dict[tuple[int, str], int]:
    """The pairs of all tuples, by DuckDB."""
    tables = {f"t{place}": feed.tuples for place, feed in enumerate(feeds)}
    joins = " ".join(f"JOIN {name} USING (slot, key)" for name in list(tables)[1:])
    with duckdb.connect() as connection:
        for name, table in tables.items():
            connection.register(name, table)
        found = connection.sql(f"SELECT slot, key, count(*) FROM t0 {joins} GROUP BY ALL").fetchall()
    return {(slot, key): count for slot, key, count in found}


def published(layout: Layout, lane: str) -> dict[tuple[int, str], int]:
    """The pairs that a lane which has ended has published, by its manifests; the plain folder must have the same files beside replaced ones."""
    paths = list(published_paths(layout, lane, KIND))
    own = [
        path for path in shown(layout, lane, layout.results(VIEW)) if path.name.endswith(f".{lane}.parquet")
    ]
    assert names(paths) == names(own)
    return so_far(layout, lane)


def so_far(layout: Layout, lane: str) -> dict[tuple[int, str], int]:
    """The pairs that a lane has published, by its manifests."""
    paths = published_paths(layout, lane, KIND)
    rows = _summed(pa.concat_tables([SCHEMA.empty_table(), *map(pq.read_table, paths)]))
    return {(row["slot"], row["key"]): row["n"] for row in rows.to_pylist()}


def added_pairs(cut: Cut, readers: Mapping[str, LogReader], tally: Tally) -> pa.Table:
    """What a cut adds: for each stream its new tuples, with the old ones of those before and all of those behind."""

    def between(stream: str, after: int, until: int) -> pa.Table:
        reader = readers[stream]
        return _summed(tally(reader, reader.between(after, until)))

    new = {name: between(name, cut.before[name].entry, cut.until[name].entry) for name in readers}
    old = {name: between(name, since.entry - 1, cut.before[name].entry) for name, since in cut.since.items()}
    found = []
    for place, name in enumerate(readers):
        joined = new[name]
        for other in list(readers)[:place]:
            joined = _joined(joined, old[other])
        for other in list(readers)[place + 1 :]:
            joined = _joined(joined, pa.concat_tables([old[other], new[other]]))
        found.append(joined)
    return _summed(pa.concat_tables(found))


def _joined(one: pa.Table, other: pa.Table) -> pa.Table:
    pairs = one.join(other, ["slot", "key"], join_type="inner", right_suffix="_other")
    return _summed(
        pa.table(
            {
                "slot": pairs.column("slot"),
                "key": pairs.column("key"),
                "n": pa.array(pairs.column("n").to_numpy() * pairs.column("n_other").to_numpy(), pa.int64()),
            },
            schema=SCHEMA,
        )
    )


def _summed(rows: pa.Table) -> pa.Table:
    summed = rows.group_by(["slot", "key"], use_threads=False).aggregate([("n", "sum")])
    return summed.rename_columns({"n_sum": "n"}).select(SCHEMA.names).cast(SCHEMA).sort_by("slot")
