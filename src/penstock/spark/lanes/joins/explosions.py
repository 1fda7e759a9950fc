"""Cuts of a join that put out far more rows than tuples came: told to the user, with the keys that most tuples have."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import asdict

from penstock.operators.joins.hot_keys import hottest
from penstock.operators.joins.tuples import InputRuns
from penstock.plan.joins import JoinPlan
from penstock.spark.lanes.joins.grid import KeptRuns
from penstock.spark.lanes.joins.task import StreamRuns, TableRuns
from penstock.spark.storage.events import EventLog

_log = logging.getLogger(__name__)
#: a cut is told to explode that puts out at least so many rows, and so many for each of its tuples
EXPLODED_ROWS, EXPLODED_ROWS_A_TUPLE = 10_000_000, 100


class Explosions:
    """Tells of them.

    Args:
        plan: the join.
        lane, view: their names.
        events: where it is told.
    """

    def __init__(self, plan: JoinPlan, lane: str, view: str, events: EventLog) -> None:
        self._plan, self._lane, self._view, self._events = plan, lane, view, events

    def note(self, cut: int, read: Sequence[StreamRuns | TableRuns], rows: int) -> None:
        """Takes in a cut; that telling of it fails costs no results.

        Args:
            cut: its number.
            read: the runs of all inputs that it read.
            rows: joined rows it put out.
        """
        if rows < EXPLODED_ROWS:
            return
        try:
            self._tell(cut, [(each.runs, each.open()) for each in read], rows)
        except Exception:
            _log.exception("cannot find out why join view %s produced %d rows", self._view, rows)

    def _tell(self, cut: int, read: Sequence[tuple[KeptRuns, InputRuns]], rows: int) -> None:
        # an input that is searched by two keys has all of its tuples twice
        each_once = {runs.input: own for runs, own in read}
        tuples = sum(each.rows() for own in each_once.values() for each in own.new)
        if rows < EXPLODED_ROWS_A_TUPLE * tuples:
            return
        hot = []
        for runs, own in read:
            found = hottest((*own.new, *own.old))
            if found is not None:
                asked = self._plan.inputs[runs.input]
                written = [each.text for each in asked.columns if each.name in found.columns]
                hot.append({**asdict(found), "input": asked.alias, "columns": written})
        self._events.record(
            "join_exploded",
            lane=self._lane,
            view=self._view,
            cut=cut,
            tuples=tuples,
            rows=rows,
            hot=hot,
        )
