"""One shard of a running lane in one cut: takes in the cut's entries, stores results and its state.

What it does depends on its arguments alone. The worker keeps the shard decoded for the next cut; another worker reads it, and decodes the
pieces that it does not know.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from time import perf_counter

from penstock.operators.running.sessions import Moment
from penstock.operators.running.shard import RunningRecord, RunningShard
from penstock.operators.windows.shard import Envelope, WindowProgram
from penstock.spark.lanes.windows.programs import SentProgram
from penstock.spark.lanes.windows.shard_state import StateFile, StateFiles, StoredChange
from penstock.spark.lanes.windows.shard_task import ShardCell
from penstock.spark.lanes.windows.state_report import StateReport
from penstock.spark.log.entries import Entry
from penstock.spark.log.envelopes import EnvelopeReader
from penstock.spark.log.stream_log import LogReader
from penstock.spark.publication.staged import BatchFiles
from penstock.spark.results.window_staging import ResultStage
from penstock.spark.storage.layout import Layout

_KEPT_SHARDS = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningReport(StateReport):
    """What a shard did in one cut.

    Attributes:
        left_out: by operator the tuples whose sessions have left the state.
    """

    left_out: Mapping[int, int]


@dataclass(slots=True)
class _Held:
    """A shard that a worker has decoded, with the files of its state, and the panes that these have or had."""

    state: tuple[StateFile, ...]
    shard: RunningShard
    places: Set[tuple[int, int]]


#: (folder of states, shard) -> as this worker had it last
_held: dict[tuple[str, int], _Held] = {}


@dataclass(frozen=True, slots=True)
class RunningTask:
    """Takes in the entries of a cut.

    Attributes:
        layout: output and checkpoint folders.
        stream: the stream's name.
        place: the name that the state is under.
        cut: number of the cut.
        entries: its entries, in order; at least one.
        program: the views of the last one's plan version.
        store: stores the results.
    """

    layout: Layout
    stream: str
    place: str
    cut: int
    entries: Sequence[Entry]
    program: SentProgram
    store: BatchFiles

    def __call__(self, cell: ShardCell) -> RunningReport:
        """Takes in the entries for one shard."""
        began = perf_counter()
        program = self.program.value
        folder = self.layout.window_states(self.place)
        states = StateFiles(self.layout.log_store, self.layout.checkpoint, folder)
        key = str(folder), cell.number
        # taken out, so that a failure leaves nothing half done
        held = _held.pop(key, None)
        is_restored = held is None or held.state != cell.state
        if held is None or is_restored:
            shard, before = _restored(cell, states, program.program, held)
        else:
            shard, before = held.shard, held.places
        reader = EnvelopeReader(LogReader(self.layout.log(self.stream)), cell.number)
        records = [_record(entry, reader.of(entry)) for entry in self.entries]
        stage = ResultStage(self.store, self.store.scratch, cell.number, program.views.__getitem__)
        for operator, answer in shard.process(program.program, records):
            stage.add(operator, answer)
        results = stage.close()
        changes = {place: StoredChange(0, ()) for place in before if place[0] not in shard.operators}
        for operator, pane, kept, pieces in shard.take_changes():
            changes[operator, pane] = StoredChange(kept, pieces)
        stem = f"{self.cut:010d}-{cell.number:05d}"
        state = states.write(cell.state, stem, changes, shard.scalars())
        if len(_held) >= _KEPT_SHARDS:
            _held.pop(next(iter(_held)))
        places = {place for place in before | changes.keys() if place[0] in shard.operators}
        _held[key] = _Held(tuple(state), shard, places)
        return RunningReport(
            results=results,
            state=state,
            state_bytes=state[-1].size,
            rows=shard.rows,
            restored=is_restored and bool(cell.state),
            left_out=shard.take_left_out(),
            seconds=perf_counter() - began,
        )


def _record(entry: Entry, envelopes: Sequence[Envelope]) -> RunningRecord:
    """What an entry brings to a shard; late partials of earlier batches say nothing of time."""
    steps = entry.steps or (entry,)
    moments = [Moment(each.newest, each.delays) for each in steps]
    return RunningRecord(
        entry.number, entry.newest, entry.ended, envelopes, moments, entry.clock, entry.whole
    )


def _restored(
    cell: ShardCell, states: StateFiles, program: WindowProgram, held: _Held | None
) -> tuple[RunningShard, Set[tuple[int, int]]]:
    """The shard before the cut, and the operators and panes that its files have: also those that are gone from the program.

    What the worker has decoded of it before is taken over, piece by piece.
    """
    if not cell.state:
        return RunningShard(cell.number), frozenset()
    places = states.places(cell.state)
    pieces = states.panes(cell.state, places)
    older = None if held is None else held.shard
    shard = RunningShard.restored(cell.number, states.scalars(cell.state[-1]), pieces, program, older)
    return shard, pieces.keys()
