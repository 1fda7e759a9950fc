"""The groups of running views in one shard: what tuples change of them, which leave, and what is stored.

The partials of a group lie in the levels of one pane (`Pane`). What a cut brings is merged with the rows of the groups that it touches,
which an index finds, so that its cost is that of these groups.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.operators.running.kept import KeptRows
from penstock.operators.windows.aggregates import ROWS, Parts, extreme_of, lift_values
from penstock.operators.windows.answers import Answer
from penstock.operators.windows.content import Content, together
from penstock.operators.windows.grouping import shared_codes
from penstock.operators.windows.pane import PaneTable
from penstock.operators.windows.rankings import RankedParts, ranked_rows, without_a_row
from penstock.operators.windows.rows import differences, lowered
from penstock.operators.windows.shard import RunningPlan
from penstock.plan.rankings import ROW_NUMBER, RankedPlan
from penstock.plan.windows import WindowPlan

#: groups are looked through for those that leave this often in the time that they stay
_SWEEPS = 8


class RunningGroups:
    """The groups of one operator.

    Args:
        plan: the operator.
        pieces: what is stored of them, as `take_change` gave it; none: there are none.
        swept: the event time of the newest sweep, microseconds; None before the first one.
        known: tables of pieces that are decoded already, see `pieces`.
    """

    def __init__(
        self,
        plan: RunningPlan,
        pieces: Sequence[bytes] = (),
        swept: int | None = None,
        known: Mapping[bytes, PaneTable] = MappingProxyType({}),
    ) -> None:
        self.plan = plan
        self.swept = swept
        self._kept = KeptRows(pieces, known)

    @property
    def rows(self) -> int:
        """Rows of the state: groups, those that lie in several levels more than once."""
        return self._kept.rows

    def take_in(
        self, tuples: Content | None, revision: int, newest: int | None, *, ended: bool
    ) -> list[Answer]:
        """Takes in what some entries bring, and says what that changes.

        Args:
            tuples: partials and values by keys, a group in any number of rows; None: nothing.
            revision: of what changes, larger than those before.
            newest: largest event time of the stream, microseconds, or None.
            ended: whether the stream has ended: all rows are final.

        Returns:
            The rows that differ from what was said before; final ones whether they do or not.
        """
        plan, keys = self.plan, self.plan.keys
        sweeps = self._sweeps(newest)
        if not keys and not self._kept.rows and isinstance(plan.parts, Parts):
            nothing = nothing_of(plan, plan.parts)
            tuples = nothing if tuples is None else together([nothing, tuples])
        new = None if tuples is None else tuples.merged(plan.parts, keys)
        old = self._old(None if ended or sweeps or not keys else new)
        held = [each for each in (old, new) if each is not None]
        if not held:
            return []
        before = None if old is None else old.merged(plan.parts, keys)
        if isinstance(plan.parts, RankedParts) and new is not None:
            known = None if before is None else before.partials
            merged, kept = plan.parts.merge_new(known, new.partials, keys)
            now, new = Content(merged, {}), Content(kept, {})
        else:
            now = together(held).merged(plan.parts, keys)
        gone = self._gone(now, newest) if sweeps else np.zeros(now.partials.num_rows, np.bool_)
        answers = []
        for view in plan.views:
            rows = results_of(view, now)
            told = rows.slice(0, 0) if before is None else results_of(view, before)
            final, rest = (rows, rows.slice(0, 0)) if ended else _parted(rows, gone)
            row = [name for name, _ in view.keys]
            changed, replaced = differences(told, rest, row)
            if isinstance(view, RankedPlan) and view.ranking.function != ROW_NUMBER:
                withdrawn, then = without_a_row(told, rows, view)
                changed = pa.concat_tables([withdrawn, changed])
                replaced = pa.concat_tables([then, replaced])
            answers += [
                answer_of(view.name, revision, changed, replaced, is_final=False),
                answer_of(
                    view.name,
                    revision,
                    final,
                    of_groups(told, final, row),
                    is_final=True,
                    may_return=not ended,
                ),
            ]
        self._keep(now, new, gone, revision)
        return [answer for answer in answers if answer.rows.num_rows]

    @property
    def pieces(self) -> Mapping[bytes, PaneTable]:
        """The tables of the stored pieces by the digests of these, with their indexes."""
        return self._kept.pieces

    def take_changes(self) -> Iterator[tuple[int, int, list[bytes]]]:
        """The panes to store since the last call: (number, pieces that stay, those that follow them)."""
        change = self._kept.take_change(self.plan.parts, self.plan.keys)
        if change is not None:
            yield 0, *change

    def _sweeps(self, newest: int | None) -> bool:
        """Whether groups are looked through for those that leave."""
        ttl = self.plan.ttl
        if ttl is None or newest is None:
            return False
        if self.swept is None:
            self.swept = newest
        if newest - self.swept < max(1, ttl // _SWEEPS):
            return False
        self.swept = newest
        return True

    def _old(self, of: Content | None) -> Content | None:
        """The state's rows, of some groups if they are told; None where there is none."""
        if of is None:
            return self._kept.content
        found = self._kept.of_groups(of.partials, self.plan.keys)
        return None if found is None else where(found, of.partials, self.plan.keys)

    def _gone(self, now: Content, newest: int | None) -> npt.NDArray[np.bool_]:
        """bool[groups]: which leave. A group without any event time stays."""
        assert self.plan.time is not None, "a length of time is with it"
        assert self.plan.ttl is not None, "see above"
        assert newest is not None, "the stream has come somewhere"
        touched = now.partials.column(extreme_of("max", self.plan.time)).cast(pa.int64())
        bound = newest - self.plan.ttl
        gone: npt.NDArray[np.bool_] = touched.fill_null(newest).to_numpy() <= bound
        return gone

    def _keep(self, now: Content, new: Content | None, gone: npt.NDArray[np.bool_], arrival: int) -> None:
        plan, keys = self.plan, self.plan.keys
        if gone.any():
            self._kept.clear()
            staying = now.partials.filter(pa.array(~gone))
            new = where(Content(staying, now.values), staying, keys)
        if new is not None and new.partials.num_rows:
            self._kept.append(new, arrival, plan.parts, keys)


def results_of(view: WindowPlan, groups: Content) -> pa.Table:
    """The rows of a view, given what is kept of each group."""
    if isinstance(view, RankedPlan):
        return ranked_rows(view, groups.partials)
    return lowered(view, groups, [name for name, _ in view.keys])


def nothing_of(plan: RunningPlan, parts: Parts) -> Content:
    """The partials of no tuples, for views without keys: their one row is there before any tuple is."""
    # grouped by a constant: what is grouped by nothing is one row all the same
    tuples = pa.table({"": pa.array([0]), **{name: pa.array([None], kind) for name, kind in plan.arguments}})
    lifted = parts.lift(tuples, [""])
    partials = lifted.set_column(lifted.schema.get_field_index(ROWS), ROWS, pa.array([0])).drop_columns([""])
    values = {name: lift_values(tuples, [""], name).drop_columns([""]) for name in parts.values}
    return Content(partials, values)


def _parted(rows: pa.Table, gone: npt.NDArray[np.bool_]) -> tuple[pa.Table, pa.Table]:
    """The rows that are gone, and the others."""
    return rows.filter(pa.array(gone)), rows.filter(pa.array(~gone))


def of_groups(rows: pa.Table, wanted: pa.Table, keys: Sequence[str]) -> pa.Table:
    """The rows that are of some groups."""
    own, others = shared_codes([rows, wanted], keys)
    return rows.filter(pa.array(np.isin(own, others)))


def where(content: Content, wanted: pa.Table, keys: Sequence[str]) -> Content | None:
    """The rows of a content that are of some groups; None where there are none."""
    partials = of_groups(content.partials, wanted, keys)
    if not partials.num_rows:
        return None
    values: Mapping[str, pa.Table] = {
        name: of_groups(table, wanted, keys) for name, table in content.values.items()
    }
    return Content(partials, values)


def answer_of(
    view: str,
    revision: int,
    rows: pa.Table,
    replaced: pa.Table,
    *,
    is_final: bool = False,
    may_return: bool = False,
    withdrawn: bool = False,
) -> Answer:
    """What a view says of rows without windows.

    Args:
        view: its name.
        revision: of the rows.
        rows: those that it says.
        replaced: what it said of them before.
        is_final: whether they stay.
        may_return: of final ones: whether tuples may still come, that are not part of them.
        withdrawn: whether they are rows no more.
    """
    return Answer(
        view=view,
        start=0,
        end=0,
        revision=revision,
        final=is_final,
        slack=0,
        coverage=1.0 if is_final and not may_return else None,
        promised=False,
        rows=rows,
        replaced=replaced,
        withdrawn=withdrawn,
    )
