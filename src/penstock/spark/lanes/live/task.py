"""One shard of a live lane in one cut: takes in what has changed of the rows beneath, stores results and its state.

What it does depends on its arguments alone; see `lanes/running/shard_task.py`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from time import perf_counter

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.operators.hashing import key_hashes
from penstock.operators.running.live import LIVE, LiveRows, changes_schema
from penstock.operators.windows.shard import RunningPlan
from penstock.operators.windows.stored import packed, unpacked
from penstock.spark.lanes.live.changes import Ids
from penstock.spark.lanes.windows.shard_state import StateFile, StateFiles, StoredChange
from penstock.spark.lanes.windows.shard_task import ShardCell
from penstock.spark.lanes.windows.state_report import StateReport
from penstock.spark.publication.staged import BatchFiles
from penstock.spark.results.published_rows import all_rows
from penstock.spark.results.window_staging import ResultStage
from penstock.spark.storage.layout import Layout
from penstock.spark.storage.store_paths import StorePath
from penstock.sql.windows.bind import BoundWindow

_KEPT_SHARDS = 64
_BEGUN = "begun"


@dataclass(frozen=True, slots=True)
class Work:
    """What a cut does with one operator.

    Attributes:
        plan: the operator.
        ids: what identifies a row.
        bound: its view.
        changes: a file of changes, see `LiveRows`; None: nothing is answered.
        whole, ended: see `LiveRows.take_in`.
    """

    plan: RunningPlan
    ids: Ids
    bound: BoundWindow
    changes: StorePath | None = None
    whole: bool = False
    ended: bool = False

    def of_shard(self, number: int, shards: int) -> pa.Table | None:
        """The changes; rows of other shards are gone. None: the shard has nothing to do."""
        if self.changes is None or (number and not self.plan.keys):
            return None
        schema = changes_schema(self.plan, self.ids)
        rows = all_rows([self.changes], schema).combine_chunks()
        if not self.plan.keys:
            return rows
        own = key_hashes(rows, self.plan.keys) % np.uint64(shards) == number
        live = pc.and_(rows.column(LIVE), pa.array(own))
        return rows.set_column(schema.get_field_index(LIVE), LIVE, live)


@dataclass(slots=True)
class _Held:
    """A shard that a worker has decoded, with the files of its state, and the panes that these have or had."""

    state: tuple[StateFile, ...]
    operators: dict[int, LiveRows]
    places: Set[tuple[int, int]]


#: (folder of states, shard) -> as this worker had it last
_held: dict[tuple[str, int], _Held] = {}


@dataclass(frozen=True, slots=True)
class LiveTask:
    """Takes in what a cut changes.

    Attributes:
        layout: output and checkpoint folders.
        place: the name that the state is under.
        cut: number of the cut.
        shards: how many there are.
        works: by operator; the state of others is dropped.
        store: stores the results.
    """

    layout: Layout
    place: str
    cut: int
    shards: int
    works: Mapping[int, Work]
    store: BatchFiles

    def __call__(self, cell: ShardCell) -> StateReport:
        """Takes in the changes for one shard."""
        began = perf_counter()
        folder = self.layout.window_states(self.place)
        states = StateFiles(self.layout.log_store, self.layout.checkpoint, folder)
        key = str(folder), cell.number
        # taken out, so that a failure leaves nothing half done
        held = _held.pop(key, None)
        is_restored = held is None or held.state != cell.state
        if held is None or is_restored:
            held = self._restored(cell, states, {} if held is None else held.operators)
        operators = {id_: rows for id_, rows in held.operators.items() if id_ in self.works}
        stage = ResultStage(self.store, self.store.scratch, cell.number, self._views)
        for id_, work in self.works.items():
            changes = work.of_shard(cell.number, self.shards)
            if changes is None:
                continue
            rows = operators.setdefault(id_, LiveRows(work.plan, work.ids))
            for answer in rows.take_in(changes, self.cut, whole=work.whole, ended=work.ended):
                stage.add(id_, answer)
        results = stage.close()
        changed = {place: StoredChange(0, ()) for place in held.places if place[0] not in operators}
        for id_, rows in operators.items():
            if (change := rows.take_change()) is not None:
                changed[id_, 0] = StoredChange(*change)
        begun = sorted(id_ for id_, rows in operators.items() if rows.has_begun)
        scalars = packed({}, rest=json.dumps({_BEGUN: begun}).encode())
        state = states.write(cell.state, f"{self.cut:010d}-{cell.number:05d}", changed, scalars)
        if len(_held) >= _KEPT_SHARDS:
            _held.pop(next(iter(_held)))
        places = {place for place in held.places | changed.keys() if place[0] in operators}
        _held[key] = _Held(tuple(state), operators, places)
        return StateReport(
            results=results,
            state=state,
            state_bytes=state[-1].size,
            rows=sum(rows.rows for rows in operators.values()),
            restored=is_restored and bool(cell.state),
            seconds=perf_counter() - began,
        )

    def _views(self, operator: int) -> Mapping[str, BoundWindow]:
        bound = self.works[operator].bound
        return {bound.plan.name: bound}

    def _restored(self, cell: ShardCell, states: StateFiles, older: Mapping[int, LiveRows]) -> _Held:
        """The shard before the cut; pieces that the worker has decoded before are taken over."""
        if not cell.state:
            return _Held(cell.state, {}, frozenset())
        pieces = states.panes(cell.state, states.places(cell.state))
        begun: Sequence[int] = json.loads(unpacked(states.scalars(cell.state[-1])).rest)[_BEGUN]
        operators = {
            id_: LiveRows(
                work.plan,
                work.ids,
                pieces.get((id_, 0), ()),
                older[id_].pieces if id_ in older else {},
                has_begun=True,
            )
            for id_, work in self.works.items()
            if id_ in begun
        }
        return _Held(cell.state, operators, pieces.keys())
