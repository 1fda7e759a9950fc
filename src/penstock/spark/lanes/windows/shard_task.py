"""One shard of a window lane in one cut: takes in the cut's entries, stores results and its state.

What it does depends on its arguments alone. The worker keeps the shard decoded for the next cut; another worker reads what has
changed since it had the shard, or all of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from time import perf_counter

import numpy as np

from penstock.operators.windows.answers import LateCounts, Progress, Standing
from penstock.operators.windows.history import Beyond
from penstock.operators.windows.shard import LogRecord, Shard, WindowProgram
from penstock.plan.times import BEFORE_ALL
from penstock.spark.lanes.windows.programs import SentProgram
from penstock.spark.lanes.windows.shard_state import Place, StateFile, StateFiles, StoredChange
from penstock.spark.log.entries import Entry
from penstock.spark.log.envelopes import EnvelopeReader
from penstock.spark.log.stream_log import LogReader
from penstock.spark.publication.staged import BatchFiles
from penstock.spark.results.window_staging import ResultStage, StagedResults
from penstock.spark.storage.layout import Layout

_KEPT_SHARDS = 64


@dataclass(frozen=True, slots=True)
class ShardReport:
    """What a shard did in one cut.

    Attributes:
        shard: which.
        results: what it staged.
        beyond: final windows that got tuples, for the history to correct.
        beyond_history: how many such windows are not corrected: the history may lack tuples of theirs.
        late: late tuples it took in.
        standing: how far each view has come.
        progress: how far the windows of each view are answered.
        restored: panes read from the state.
        seconds: wall time.
        state: the files of its state.
        state_bytes: bytes of the state file that it wrote.
    """

    shard: int
    results: list[StagedResults]
    beyond: list[Beyond]
    beyond_history: list[tuple[int, str, int]]
    late: LateCounts
    standing: dict[str, Standing]
    progress: dict[str, Progress]
    restored: int
    seconds: float
    state: list[StateFile]
    state_bytes: int


@dataclass(frozen=True, slots=True)
class ShardCell:
    """A shard before a cut.

    Attributes:
        number: which.
        state: the files of its state, the oldest first; none before its first cut.
    """

    number: int
    state: tuple[StateFile, ...]


@dataclass(slots=True)
class _Held:
    """A shard that a worker has decoded, and the state that it has.

    Attributes:
        cut: after which, published or not; -1: none.
        state: the files.
        shard: the shard.
        places: its panes.
    """

    cut: int
    state: tuple[StateFile, ...]
    shard: Shard
    places: set[Place]


#: (folder of states, shard) -> as this worker had it last
_held: dict[tuple[str, int], _Held] = {}


@dataclass(frozen=True, slots=True)
class ShardTask:
    """Takes in the entries of a cut.

    Attributes:
        layout: output and checkpoint folders.
        stream: the stream's name.
        cut: number of the cut.
        entries: its entries, in order.
        programs: the views of their plan versions, and of that of the state.
        store: stores the results.
    """

    layout: Layout
    stream: str
    cut: int
    entries: Sequence[Entry]
    programs: Mapping[int, SentProgram]
    store: BatchFiles

    def __call__(self, cell: ShardCell) -> ShardReport:
        """Takes in the entries for one shard."""
        began = perf_counter()
        programs = {version: each.value for version, each in self.programs.items()}
        views = {operator: each for own in programs.values() for operator, each in own.views.items()}
        states = StateFiles(
            self.layout.log_store, self.layout.checkpoint, self.layout.window_states(self.stream)
        )
        key = str(self.layout.window_states(self.stream)), cell.number
        # taken out, so that a failure leaves nothing half done
        held, restored = _restored(
            cell, self.cut, states, _held.pop(key, None), lambda version: programs[version].program
        )
        reader = EnvelopeReader(LogReader(self.layout.log(self.stream)), cell.number)
        stage = ResultStage(self.store, self.store.scratch, cell.number, views.__getitem__)
        shard = held.shard
        beyond: dict[tuple[int, str, int], int] = {}
        beyond_history: list[tuple[int, str, int]] = []
        for entry in self.entries:
            program = programs[entry.plan].program
            windows = {
                (plan.id, view.name): view.windows for plan in program.operators for view in plan.views
            }
            for window in _take_in(shard, program, reader, entry, stage):
                own = windows[window[:2]]
                begin = own.begin(window[2] + own.size)
                if begin >= (BEFORE_ALL if entry.kept_before is None else entry.kept_before):
                    beyond.setdefault(window, entry.number)
                else:
                    beyond_history.append(window)
        results = stage.close()
        late = shard.take_late()
        changes = _changes(shard, held.places)
        state = states.write(cell.state, f"{self.cut:010d}-{cell.number:05d}", changes, shard.scalars())
        held.cut, held.state = self.cut, tuple(state)
        if len(_held) >= _KEPT_SHARDS:
            _held.pop(next(iter(_held)))
        _held[key] = held
        return ShardReport(
            shard=cell.number,
            results=results,
            beyond=[Beyond(*window, entry) for window, entry in beyond.items()],
            beyond_history=beyond_history,
            late=late,
            standing=shard.standing(),
            progress=shard.progress(),
            restored=restored,
            seconds=perf_counter() - began,
            state=state,
            state_bytes=state[-1].size,
        )


def _restored(
    cell: ShardCell,
    cut: int,
    states: StateFiles,
    held: _Held | None,
    programs: Callable[[int], WindowProgram],
) -> tuple[_Held, int]:
    """The shard before the cut, and how many panes were read.

    Panes that a worker has decoded are taken over unless a file that it does not know has them. What it has of an attempt at this cut
    has the cut's tuples.
    """
    if not cell.state:
        return _Held(-1, (), Shard(), set()), 0
    if held is not None and held.state == cell.state:
        return held, 0
    if held is None or held.cut >= cut or held.state[:1] != cell.state[:1]:
        held = _Held(-1, (), Shard(), set())
    known = set(held.state)
    changed = states.places(file for file in cell.state if file not in known)
    unchanged = held.places - changed
    panes = states.panes(cell.state, changed)
    shard = Shard.restored(states.scalars(cell.state[-1]), panes, programs, held.shard, unchanged)
    return _Held(cut - 1, cell.state, shard, unchanged | panes.keys()), len(panes)


def _take_in(
    shard: Shard, program: WindowProgram, reader: EnvelopeReader, entry: Entry, stage: ResultStage
) -> list[tuple[int, str, int]]:
    """Takes in an entry; the final windows that got tuples."""
    record = LogRecord(
        program=program,
        newest=entry.newest,
        delays=np.array(entry.delays, np.int64),
        ended=entry.ended,
        envelopes=reader.of(entry),
        flush=entry.flush,
        whole=entry.whole,
        reached=entry.reached,
        answer_all=entry.answer_all,
        steps=entry.steps,
    )
    operators = {view.name: plan.id for plan in program.operators for view in plan.views}
    for answer in shard.process(record):
        stage.add(operators[answer.view], answer)
    return shard.take_beyond()


def _changes(shard: Shard, places: set[Place]) -> dict[Place, StoredChange]:
    """What the state files have to say of panes since the last cut; brings `places` up to it."""
    dropped = shard.take_dropped()
    found = {place: StoredChange(0, ()) for place in places if place[0] in dropped} if dropped else {}
    for operator, start, kept, pieces in shard.take_changes():
        found[operator, start] = StoredChange(kept, pieces)
    for place, change in found.items():
        if change.kept or change.pieces:
            places.add(place)
        else:
            places.discard(place)
    return found
