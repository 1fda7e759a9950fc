"""What an as-of join keeps of versions whose entries have left the log: for each key the newest one, in files by cell.

Partners of any age would hold the log of the versions forever. So a cut now and then stores the versions of old entries that left rows may
still meet (`operators.joins.standing`), and the log lets these entries go. The commit of that cut lists the base in the ledger;
the orders of the cuts behind it name it, so a cut that is answered again reads the base of before.
"""

from __future__ import annotations

import sys
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from penstock.operators.joins.changes import Due
from penstock.operators.joins.newest import Identities
from penstock.operators.joins.standing import standing
from penstock.operators.joins.tuples import CellTuples
from penstock.operators.runs.run import RunPlan
from penstock.plan.joins import JoinPlan
from penstock.plan.times import BEFORE_ALL
from penstock.spark.lanes.cells import CellJobs
from penstock.spark.lanes.cuts import Cut
from penstock.spark.lanes.joins.beginnings import ViewBeginnings
from penstock.spark.lanes.joins.grid import KeptRuns, grid_of, kept_runs, key_columns, router_of_input
from penstock.spark.lanes.joins.task import StreamRuns
from penstock.spark.log.run_files import RunFiles
from penstock.spark.log.runs import write_run_file
from penstock.spark.log.stream_log import LogReader
from penstock.spark.storage.formats import STATIC
from penstock.spark.storage.layout import Layout
from penstock.spark.storage.ledger_documents import StoredDocument
from penstock.spark.storage.store_paths import StorePath, name_below

#: of a cut's orders: the base, of a join that has one
VERSIONS = "versions"
#: a base is made anew once the entries that have left the log's history since have so many times its versions
_GROWTH = 0.25
#: a file of a base has about so many bytes: offsets of strings have 32 bits
_FILE_BYTES = 256 << 20


@dataclass(frozen=True, slots=True)
class BaseFile:
    """A run of a base; a cell may have several.

    Attributes:
        key: number of the key that it is sorted by; None: by event time alone.
        cell: whose versions it has.
        name: in the checkpoint.
        rows: how many.
    """

    key: int | None
    cell: int
    name: str
    rows: int


@dataclass(frozen=True, slots=True)
class Base:
    """What is kept of the versions of old entries.

    Attributes:
        entry: those up to this one are in it.
        exact_from: left rows with an event time before this, microseconds, may have lost their newest partner.
        files: the runs of each cell and sort order.
    """

    entry: int = -1
    exact_from: int = BEFORE_ALL
    files: tuple[BaseFile, ...] = ()

    @property
    def rows(self) -> int:
        """How many versions it has; an input that is searched by two keys has all of them twice."""
        return sum(each.rows for each in self.files)

    def document(self) -> dict[str, Any]:
        """As JSON."""
        files = [[each.key, each.cell, each.name, each.rows] for each in self.files]
        return {"entry": self.entry, "exact_from": self.exact_from, "files": files}

    @classmethod
    def of(cls, document: Mapping[str, Any] | None) -> Base:
        """The base of a document, as `document` gave it; None: there is none yet."""
        if document is None:
            return cls()
        files = tuple(BaseFile(*each) for each in document["files"])
        return cls(document["entry"], document["exact_from"], files)


def base_of(cut: Cut) -> Base:
    """The base that a cut reads."""
    return Base.of(cut.orders.get(VERSIONS))


@dataclass(frozen=True, slots=True)
class Compacted:
    """What a cut does about the base.

    Attributes:
        puts: documents for its commit.
        done: is called once the commit is visible.
    """

    puts: Mapping[StoredDocument, Mapping[str, Any]] = field(default_factory=dict)
    done: Callable[[], None] = lambda: None


@dataclass(frozen=True, slots=True)
class _Task:
    """Makes the base of a cell."""

    plan: JoinPlan
    shares: tuple[int, ...]
    layout: Layout
    folder: str
    inputs: tuple[StreamRuns, ...]
    until: int

    def __call__(self, cell: int) -> list[BaseFile]:
        right = len(self.plan.inputs) - 1
        time, identities = self.plan.inputs[right].time, Identities(self.plan)
        assert time is not None, "it is a stream"
        keys = [key.columns[right] for key in self.plan.keys]
        names = [name for name in keys if name is not None]
        router = router_of_input(self.plan, grid_of(self.plan, self.shares), right)
        found = []
        for each in self.inputs:
            slots = CellTuples(each.open(cell), each.runs.key, cell).slots
            if not slots:
                continue
            parts = [slot.part.tuples.take(pa.array(slot.rows())) for slot in slots]
            kept = standing(pa.Table.from_batches(parts), names, time, self.until, identities)
            layout = RunPlan(key_columns(self.plan, each.runs), time, router)
            found += [
                BaseFile(each.runs.key, cell, self._stored(own, layout), len(own)) for own in _pieces(kept)
            ]
        return found

    def _stored(self, versions: pa.Table, layout: RunPlan) -> str:
        """Stores a run; its name."""
        store, name = self.layout.log_store, f"{self.folder}/{uuid.uuid4().hex}.arrow"
        path = store.staging(name)
        write_run_file(path, versions, layout)
        store.put_all({name: path})
        return name


def _pieces(versions: pa.Table) -> Iterator[pa.Table]:
    rows = max(1, versions.num_rows * _FILE_BYTES // max(1, versions.nbytes))
    for first in range(0, versions.num_rows, rows):
        yield versions.slice(first, rows)


class VersionBases:
    """The base of a lane, see `JoinPlan.keeps_newest`; its thread owns it. Other joins have none.

    Args:
        plan: the join.
        shares: of its grid.
        layout: output and checkpoint folders.
        lane: the lane's name.
        demands: the numbers of the demands by the runs that they ask for.
        declared: by stream, the newest entry as the view was declared.
    """

    def __init__(
        self,
        plan: JoinPlan,
        shares: tuple[int, ...],
        layout: Layout,
        lane: str,
        demands: Mapping[KeptRuns, int],
        declared: Mapping[str, int],
    ) -> None:
        self._plan, self._shares, self._layout = plan, shares, layout
        self._demands, self._declared = demands, declared.get(plan.inputs[-1].relation, -1)
        self._right = len(plan.inputs) - 1
        #: whether there is one
        self.is_kept = plan.keeps_newest
        #: the last entry that had left the history when too few had for a new base
        self._looked = -1
        self._place = layout.static_versions(lane)[self._right]
        self._folder = name_below(layout.checkpoint, layout.static_tables(lane) / "versions")
        self._runs = tuple(each for each in kept_runs(plan) if each.input == self._right)

    def newest(self) -> Base:
        """The base after the newest published cut."""
        document = STATIC.read(self._place) if self.is_kept else None
        return Base.of(None if document is None else document["base"])

    def held_from(self, stream: str) -> int:
        """The first entry of a stream whose tuples are in no base; one behind all others where none is needed."""
        is_needed = self.is_kept and stream == self._plan.inputs[self._right].relation
        return max(self._declared, self.newest().entry) + 1 if is_needed else sys.maxsize

    def with_lacks(self, base: Base, lacks: dict[int, int]) -> dict[int, int]:
        """By input the event time before which tuples may be gone, microseconds: what is known of the logs, and what follows from a base.

        Rows of the anchor before `Base.exact_from` may lack their partners, and later versions change nothing of them.
        """
        if not self.is_kept or base.exact_from == BEFORE_ALL:
            return lacks
        anchor = self._plan.anchor
        own = max(base.exact_from, lacks.get(anchor, BEFORE_ALL))
        return {**lacks, anchor: own, self._right: base.exact_from + BEFORE_ALL}

    def files(self, base: Base, runs: KeptRuns) -> tuple[dict[int, list[StorePath]], int]:
        """By cell the runs of a base that belong to those of an input, and the last entry that is in it; -1: none is."""
        found: dict[int, list[StorePath]] = {}
        if runs.input != self._right:
            return found, -1
        for each in base.files:
            if each.key == runs.key:
                found.setdefault(each.cell, []).append(self._layout.checkpoint / each.name)
        return found, base.entry

    def compacted(
        self,
        cut: Cut,
        runs: Mapping[KeptRuns, RunFiles],
        logs: Mapping[str, LogReader],
        beginnings: ViewBeginnings,
        dues: Sequence[Due],
        jobs: CellJobs,
    ) -> Compacted:
        """Makes the base anew if enough entries have gone from the history.

        Args:
            cut: which is being answered.
            runs: finds the runs of streams.
            logs: by stream.
            beginnings: says where the view begins.
            dues: of the cut.
            jobs: of the lane.
        """
        if not self.is_kept:
            return Compacted()
        base, stream = base_of(cut), self._plan.inputs[self._right].relation
        last, moment = self._gone(logs[stream], cut.before[stream].entry)
        if last <= max(self._declared, base.entry, self._looked):
            return Compacted()
        first = beginnings.first(stream, max(cut.since[stream].entry - 1, base.entry), last)
        inputs = tuple(
            StreamRuns(each, runs[each].find(first - 1, last), None, self.files(base, each)[0])
            for each in self._runs
        )
        brought = sum(each.run.rows for own in inputs for each in own.open().new)
        if brought < _GROWTH * base.rows:
            self._looked = last
            return Compacted()
        # what is not due is exact, and so is what is as late as the history allows
        exact_from = max(base.exact_from, min(moment, dues[0].until + 1))
        upper = max(each.upper for each in self._plan.bounds if each.right == self._right)
        task = _Task(self._plan, self._shares, self._layout, self._folder, inputs, exact_from + upper)
        made = jobs.run(task, range(grid_of(self._plan, self._shares).cells))
        files = tuple(file for own in made for file in own)
        now = Base(last, exact_from, files)
        document = {"version": str(last), "files": [each.name for each in files], "base": now.document()}
        return Compacted({self._place: STATIC.stamped(document)}, lambda: self._remove_others(now.files))

    def _gone(self, log: LogReader, before: int) -> tuple[int, int]:
        """The last entry that is in the history no more, and the event time before which versions may be gone with it."""
        kept = log.kept()
        moments = (kept.lacks.get(self._demands[each], BEFORE_ALL) for each in self._runs)
        return min(kept.since - 1, before), max(moments)

    def _remove_others(self, files: Sequence[BaseFile]) -> None:
        store, listed = self._layout.log_store, {each.name for each in files}
        store.delete([each.name for each in store.list(self._folder) if each.name not in listed])
