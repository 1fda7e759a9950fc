"""Tuples and partials that an ingest task holds for one window operator, until it ends.

Tuples are held until they are worth a group-by, partials until they are worth a merge.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.operators.hashing import canonical_columns
from penstock.operators.text.known_sets import KnownSets
from penstock.operators.windows.aggregates import SELECTION, Parts, lift_values, merge_values
from penstock.operators.windows.arrival_steps import STEP, Steps
from penstock.operators.windows.content import Content
from penstock.operators.windows.event_times import Rows
from penstock.operators.windows.grouping_sets import by_sets
from penstock.operators.windows.pane_plan import PanePlan
from penstock.operators.windows.panes import PANE
from penstock.operators.windows.satisfied import Part, Satisfied
from penstock.operators.windows.shard import PARTIALS, VALUES
from penstock.operators.windows.spans import SPAN, longs, united, with_sessions
from penstock.operators.windows.spreading import SET, spread, spread_values

#: tuples that are grouped at a time
_HELD_ROWS = 1 << 20
_HELD_BYTES = 64 << 20
#: partials are merged when they are twice as many as after the last time, and at least so many
_LOOSE_ROWS = 1 << 20
#: sets of conditions are forgotten, and their partials spread, when they take so much
_SETS_BYTES = 32 << 20
#: tables of what was spread that are held before they are merged
_MOST_SPREAD = 8
#: column of the event times of tuples whose sessions are asked for, microseconds
_TIME = "time"
#: in the place of a set's number: nobody has asked for it
_UNNUMBERED = np.uint32(2**32 - 1)


class Held:
    """One operator's tuples and partials."""

    def __init__(self, plan: PanePlan, *, has_steps: bool) -> None:
        self.plan = plan
        self._has_steps = has_steps
        own = [key.name for key in plan.keys]
        #: what tells groups apart, the grouping ID too
        self.keys = [*own, plan.set_key] if plan.sets else own
        self._columns = {each.name: each for each in (*plan.keys, *plan.arguments)}
        self._grouping = self._by(own)
        self._exact = {*own, *plan.parts.values}
        self._tuples: list[pa.Table] = []
        self._rows = self._bytes = 0
        self._partials: list[pa.Table] = []
        self._values: dict[str, list[pa.Table]] = {name: [] for name in plan.parts.values}
        self._loose = 0
        self._settled = 0
        self.set_tuples = self.set_partials = 0

    def select(self, satisfied: Satisfied) -> Iterator[Rows | None]:
        """The rows of a batch that satisfy the condition, ascending; None: all. They are to be added before the next are asked for."""
        if not self.plan.selections:
            yield None
            return
        (condition,) = self.plan.selections
        rows = satisfied.rows_of(condition)
        if len(rows):
            yield rows

    def count(self, rows: Rows | None, chosen: npt.NDArray[np.bool_]) -> npt.NDArray[np.int64]:
        """int64[selections]: how many of the rows that were selected last are chosen."""
        return np.array([np.count_nonzero(chosen if rows is None else chosen[rows])])

    def add(self, batch: pa.RecordBatch, times: Rows, rows: Rows | None, steps: Steps | None) -> None:
        """Takes in rows of the batch whose rows were selected last; None: all."""
        plan = self.plan
        own = times if rows is None else times[rows]
        if not len(own):
            return
        if plan.is_running:
            panes = np.zeros(len(own), np.int64)
        else:
            panes = (own - plan.offset) // plan.pane * plan.pane + plan.offset
        columns = {PANE: pa.array(panes)}
        if self._has_steps:
            assert steps is not None, "all tuples of a task have steps, or none"
            columns[STEP] = pa.array(steps if rows is None else steps[rows])
        places = None if rows is None else pa.array(rows)
        for name, each in self._columns.items():
            values = batch.column(each.column)
            if values.type != each.type:
                values = values.cast(each.type)
            columns[name] = values if places is None else values.take(places)
        table = self._labelled(pa.table(columns), rows, own)
        self._tuples.append(table)
        self._rows += len(own)
        self._bytes += table.nbytes
        if self._rows >= _HELD_ROWS or self._bytes >= _HELD_BYTES:
            self._lift()

    def tables(self) -> dict[str, pa.Table]:
        """All partials by kind of envelope; nothing where no tuple came."""
        self._lift()
        if not self._partials:
            return {}
        self._merge()
        groups = Content(self._partials[0], {name: tables[0] for name, tables in self._values.items()})
        if self.plan.sets:
            groups = by_sets(groups, self.plan.sets, self.keys[:-1], self.plan.set_key, self._together)
        return {PARTIALS: groups.partials} | {VALUES + name: table for name, table in groups.values.items()}

    def _by(self, keys: Sequence[str]) -> list[str]:
        """The columns that make a group by some keys."""
        return [PANE, *keys, *([STEP] if self._has_steps else [])]

    def _labelled(self, tuples: pa.Table, rows: Rows | None, times: Rows) -> pa.Table:  # noqa: ARG002
        """Tuples with what is kept of their rows in the batch or of their event times."""
        return tuples

    def _grouped(self, tuples: pa.Table) -> pa.Table:
        """Tuples that are lifted together, with all that tells their groups apart."""
        return tuples

    def _lift(self) -> None:
        if not self._tuples:
            return
        tuples = self._grouped(canonical_columns(pa.concat_tables(self._tuples), self._exact))
        self._tuples, self._rows, self._bytes = [], 0, 0
        lifted = self.plan.parts.lift(tuples, self._grouping)
        self._partials.append(lifted)
        self._loose += lifted.num_rows
        for name, tables in self._values.items():
            tables.append(lift_values(tuples, self._grouping, name))
            self._loose += tables[-1].num_rows
        if self._loose > max(_LOOSE_ROWS, self._settled):
            self._merge()

    def _merge(self) -> None:
        if len(self._partials) > 1:
            tables = {name: pa.concat_tables(tables) for name, tables in self._values.items()}
            content = Content(pa.concat_tables(self._partials), tables)
            merged = self._together(content, [key.name for key in self.plan.keys])
            self._partials = [merged.partials]
            self._values = {name: [table] for name, table in merged.values.items()}
        self._settled = self._partials[0].num_rows + sum(each[0].num_rows for each in self._values.values())
        self._loose = 0

    def _together(self, content: Content, keys: Sequence[str]) -> Content:
        """A row for each group by some keys."""
        return content.merged(self.plan.parts, self._by(keys))


class HeldSessions(Held):
    """The tuples of one task for an operator of sessions, grouped by its keys and by the sessions that these tuples form.

    Args:
        plan: the operator.
        gap: of its sessions, microseconds.
    """

    def __init__(self, plan: PanePlan, gap: int) -> None:
        super().__init__(plan, has_steps=False)
        self._gap = gap

    def _by(self, keys: Sequence[str]) -> list[str]:
        return [*super()._by(keys), *SPAN]

    def _labelled(self, tuples: pa.Table, rows: Rows | None, times: Rows) -> pa.Table:  # noqa: ARG002
        return tuples.append_column(_TIME, pa.array(times))

    def _grouped(self, tuples: pa.Table) -> pa.Table:
        times = longs(tuples, _TIME)
        keys = [key.name for key in self.plan.keys]
        return with_sessions(tuples.drop_columns([_TIME]), keys, times, self._gap)

    def _together(self, content: Content, keys: Sequence[str]) -> Content:
        assert isinstance(self.plan.parts, Parts), "sessions are not ranked"
        return united(content, self.plan.parts, super()._by(keys))


class HeldBySets(Held):
    """The like of an operator with several conditions: by the set of those that a tuple satisfies, until the task ends."""

    def __init__(self, plan: PanePlan, *, has_steps: bool) -> None:
        super().__init__(plan, has_steps=has_steps)
        #: what makes a group once it is spread
        self._groups = super()._by(self.keys)
        self._selections = np.array([-1 if each is None else each for each in plan.selections], np.int32)
        self._sets = KnownSets()
        #: for each family of classes what `_signatures` gives
        self._families: dict[object, npt.NDArray[np.uint32]] = {}
        self._numbers = np.zeros(0, np.uint32)
        self._spread: dict[str, list[pa.Table]] = {}

    def _by(self, keys: Sequence[str]) -> list[str]:
        return [SET, *super()._by(keys)]

    def select(self, satisfied: Satisfied) -> Iterator[Rows | None]:
        """The rows of a batch that satisfy some of the conditions, ascending, those of each part once."""
        self._places = satisfied.places(self._selections)
        for part in satisfied.parts:
            if self._sets.nbytes > _SETS_BYTES:
                self._spread_all()
            self._part, self._numbers = part, part.of_rows(self._signatures(part))
            rows = np.flatnonzero(self._numbers)
            if len(rows):
                yield rows

    def _signatures(self, part: Part) -> npt.NDArray[np.uint32]:
        """uint32[classes]: the number of the set of each class with rows and 1, 0 where it satisfies nothing."""
        found = np.full(len(part.offsets) - 1, _UNNUMBERED, np.uint32)
        known = self._families.get(part.family, found[:0])
        found[: len(known)] = known
        fresh = part.occurring() & (found == _UNNUMBERED)
        if fresh.any():
            found[fresh] = 0
            classes, selections = part.pairs(fresh, self._places)
            self._sets.number(selections, classes, found)
        if part.family is not None:
            self._families[part.family] = found
        return found

    def count(self, rows: Rows | None, chosen: npt.NDArray[np.bool_]) -> npt.NDArray[np.int64]:
        """int64[selections]: how many of the rows that were selected last are chosen."""
        part = self._part
        classes, selections = part.pairs(part.occurring(), self._places)
        own = np.flatnonzero(chosen) if rows is None else rows[chosen[rows]]
        of_classes = own if part.classes is None else part.classes[own]
        times = np.bincount(of_classes, minlength=len(part.offsets) - 1)[classes]
        return np.bincount(selections, times, len(self.plan.selections)).astype(np.int64)

    def tables(self) -> dict[str, pa.Table]:
        """All partials by kind of envelope; nothing where no tuple came."""
        self._spread_all()
        return {kind: self._merged(kind, tables) for kind, tables in self._spread.items()}

    def _merged(self, kind: str, tables: Sequence[pa.Table]) -> pa.Table:
        """What was spread at different times as one table."""
        groups = [SELECTION, *self._groups]
        table = pa.concat_tables(tables)
        if len(tables) == 1:
            return table
        return self.plan.parts.merge(table, groups) if kind == PARTIALS else merge_values(table, groups)

    def _labelled(self, tuples: pa.Table, rows: Rows | None, times: Rows) -> pa.Table:  # noqa: ARG002
        self.set_tuples += tuples.num_rows
        return tuples.append_column(SET, pa.array(self._numbers[rows].astype(np.int32) - 1))

    def _spread_all(self) -> None:
        """Spreads what is held over the conditions, and forgets the sets."""
        for kind, table in super().tables().items():
            if kind == PARTIALS:
                self.set_partials += table.num_rows
                assert isinstance(self.plan.parts, Parts), "rankings have one condition"
                own = spread(self.plan.parts, table, self._sets, self._groups)
            else:
                own = spread_values(table, self._sets, self._groups)
            tables = self._spread.setdefault(kind, [])
            tables.append(own)
            if len(tables) > _MOST_SPREAD:
                self._spread[kind] = [self._merged(kind, tables)]
        self._partials, self._settled = [], 0
        self._values = {name: [] for name in self._values}
        self._sets, self._families = KnownSets(), {}
