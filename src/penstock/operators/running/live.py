"""The live rows of a view beneath in one shard, and what their changes change of a view over them.

Every row is kept once, by what identifies it, with the columns that the view above needs: a newer one replaces it, or says that it is
gone. What is answered follows from the rows of the touched groups, as they were and as they are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.operators.hashing import key_hashes
from penstock.operators.running.groups import answer_of, nothing_of, of_groups, results_of
from penstock.operators.running.kept import KeptRows
from penstock.operators.windows.aggregates import Parts, lift_values
from penstock.operators.windows.answers import Answer
from penstock.operators.windows.content import Content
from penstock.operators.windows.grouping import group_codes, shared_codes
from penstock.operators.windows.pane import PaneTable
from penstock.operators.windows.required_slack import ARRIVAL
from penstock.operators.windows.rows import differences
from penstock.operators.windows.shard import RunningPlan
from penstock.plan.windows import WindowPlan

#: whether a row is there
LIVE = "_live"
_ALL = ""


class LiveRows:
    """The rows that one operator is over.

    Args:
        plan: the operator; its keys and arguments are columns of the rows.
        ids: (name, type) of the columns that identify a row.
        pieces: what is stored of them, as `take_change` gave it; none: there are none.
        known: tables of pieces that are decoded already, see `pieces`.
        has_begun: whether it has answered before.
    """

    def __init__(
        self,
        plan: RunningPlan,
        ids: Sequence[tuple[str, pa.DataType]],
        pieces: Sequence[bytes] = (),
        known: Mapping[bytes, PaneTable] = MappingProxyType({}),
        *,
        has_begun: bool = False,
    ) -> None:
        self.plan = plan
        self.has_begun = has_begun
        self._ids = [name for name, _ in ids]
        self._none = changes_schema(plan, ids).empty_table()
        self._newest = _Newest()
        self._kept = KeptRows(pieces, known)

    @property
    def rows(self) -> int:
        """Rows of the state: live ones, those that lie in several levels more than once, and some that are gone."""
        return self._kept.rows

    def take_in(self, changes: pa.Table, revision: int, *, whole: bool, ended: bool) -> list[Answer]:
        """Takes in what has changed of the rows, and says what that changes of the view.

        Args:
            changes: ids, keys, arguments and LIVE, a row for each id that has changed; gone ones may be of another shard.
            revision: of what changes, larger than those before.
            whole: whether rows that are not in `changes` are gone.
            ended: whether the stream has ended: all results are final.

        Returns:
            The rows that are withdrawn, then those that differ from what was said before; final ones whether they do or not.
        """
        plan, ids = self.plan, self._ids
        live = changes.filter(changes.column(LIVE))
        known = self._live() if whole else self._of_ids(changes)
        gone = known.filter(pa.array(~_is_in(known, live, ids)))
        changed = pa.concat_tables([live, known])
        if not (changed.num_rows or whole or ended):
            return []
        old = self._live() if whole or ended or not plan.keys else self._of_keys(changed)
        now = pa.concat_tables([old.filter(pa.array(~_is_in(old, changed, ids))), live])
        answers: list[Answer] = []
        for view in plan.views:
            rows = self._results(view, now)
            told = self._results(view, old) if self.has_begun else rows.slice(0, 0)
            names = [name for name, _ in view.keys]
            lost = told.filter(pa.array(~_is_in(told, rows, names)))
            differing, replaced = (
                (rows, of_groups(told, rows, names)) if ended else differences(told, rows, names)
            )
            answers += [
                answer_of(view.name, revision, lost, lost.slice(0, 0), withdrawn=True),
                answer_of(view.name, revision, differing, replaced, is_final=ended),
            ]
        self.has_begun = True
        self._keep(live, gone, revision)
        return [answer for answer in answers if answer.rows.num_rows]

    @property
    def pieces(self) -> Mapping[bytes, PaneTable]:
        """The tables of the stored pieces by the digests of these, with their indexes."""
        return self._kept.pieces

    def take_change(self) -> tuple[int, list[bytes]] | None:
        """What to store since the last call: how many pieces stay, and those that follow them; None: nothing has changed."""
        return self._kept.take_change(self._newest, self._ids)

    def _results(self, view: WindowPlan, rows: pa.Table) -> pa.Table:
        """What a view says of some rows."""
        plan, keys = self.plan, self.plan.keys
        if not isinstance(plan.parts, Parts):
            return results_of(view, Content(plan.parts.lift(rows, keys), {}))
        # sums of doubles depend on the order: what was told once has to be found again, whatever came in between
        rows = rows.take(pa.array(np.argsort(key_hashes(rows, self._ids), kind="stable")))
        if not (keys or rows.num_rows):
            return results_of(view, nothing_of(plan, plan.parts))
        if keys:
            values = {name: lift_values(rows, keys, name) for name in plan.parts.values}
            return results_of(view, Content(plan.parts.lift(rows, keys), values))
        # what is grouped by nothing needs a constant key
        rows = rows.append_column(_ALL, pa.array(np.zeros(rows.num_rows, np.int64)))
        values = {name: lift_values(rows, [_ALL], name).drop_columns([_ALL]) for name in plan.parts.values}
        return results_of(view, Content(plan.parts.lift(rows, [_ALL]).drop_columns([_ALL]), values))

    def _live(self) -> pa.Table:
        content = self._kept.content
        return self._none if content is None else self._there(content.partials)

    def _of_ids(self, wanted: pa.Table) -> pa.Table:
        """The live rows with some ids."""
        found = self._kept.of_groups(wanted, self._ids)
        return self._none if found is None else self._there(of_groups(found.partials, wanted, self._ids))

    def _of_keys(self, groups: pa.Table) -> pa.Table:
        """The live rows of some groups: those that once were of one may be of another now."""
        found = self._kept.of_groups(groups, self.plan.keys)
        if found is None:
            return self._none
        # of most rows each is looked up for more than reading all costs
        has_most = 2 * found.partials.num_rows > self._kept.rows
        rows = self._live() if has_most else self._of_ids(found.partials)
        return of_groups(rows, groups, self.plan.keys)

    def _there(self, versions: pa.Table) -> pa.Table:
        """The newest version of each row, in order, without those that are gone."""
        newest = self._newest.merge(versions, self._ids)
        return newest.filter(newest.column(LIVE))

    def _keep(self, live: pa.Table, gone: pa.Table, revision: int) -> None:
        place = gone.schema.get_field_index(LIVE)
        dead = gone.set_column(place, LIVE, pa.array(np.zeros(gone.num_rows, np.bool_)))
        changed = pa.concat_tables([live, dead])
        if changed.num_rows:
            self._kept.append(Content(changed, {}), revision, self._newest, self._ids, self._merged)

    def _merged(self, levels: Content) -> Content:
        """Levels as one; once it is the only one, rows that are gone are forgotten."""
        rows = self._newest.merge(levels.partials.drop_columns([ARRIVAL]), self._ids)
        live = rows.filter(rows.column(LIVE))
        is_all = levels.partials.num_rows == self._kept.rows
        return Content(live if is_all and live.num_rows else rows, {})


def changes_schema(plan: RunningPlan, ids: Sequence[tuple[str, pa.DataType]]) -> pa.Schema:
    """The columns of changes, see `LiveRows`."""
    return pa.schema([*ids, *plan.views[0].grouping, *plan.arguments, (LIVE, pa.bool_())])


class _Newest:
    """Merges versions of rows: the last one counts."""

    def merge(self, partials: pa.Table, keys: Sequence[str]) -> pa.Table:
        """The last row of each key, in order of first occurrence."""
        codes = group_codes(partials, keys)
        last = np.zeros(int(codes.max(initial=-1)) + 1, np.int64)
        # of several rows of a number the last one that is written is kept
        last[codes] = np.arange(len(codes))
        return partials.take(pa.array(last))


def _is_in(rows: pa.Table, others: pa.Table, keys: Sequence[str]) -> npt.NDArray[np.bool_]:
    """bool[rows]: which have the keys of some others."""
    own, theirs = shared_codes([rows, others], keys)
    found: npt.NDArray[np.bool_] = np.isin(own, theirs)
    return found
