"""A shard of running views: the groups of each operator, and what of them is stored."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.operators.running.groups import RunningGroups
from penstock.operators.running.sessions import Moment, RunningSessions, SessionState
from penstock.operators.windows.answers import Answer
from penstock.operators.windows.clocks import StreamTime
from penstock.operators.windows.content import Content
from penstock.operators.windows.panes import PANE
from penstock.operators.windows.shard import Envelope, RunningPlan, WindowProgram, pane_batch
from penstock.operators.windows.stored import packed, unpacked

_SWEPT, _SESSIONS = "swept", "sessions"
_NO_DELAYS = np.zeros(0, np.int64)


@dataclass(frozen=True, slots=True)
class RunningRecord:
    """What an entry of the log brings to a shard.

    Attributes:
        number: of the entry.
        newest: largest event time seen up to here, microseconds, or None.
        ended: whether the stream has ended.
        envelopes: the shard's, those of other operators among them.
        moments: what its batch says of time.
        clock: when it was put, microseconds since the epoch.
        whole: operators whose envelopes are those of all batches before their first one.
    """

    number: int
    newest: int | None
    ended: bool
    envelopes: Sequence[Envelope]
    moments: Sequence[Moment] = ()
    clock: int = 0
    whole: Collection[int] = ()


class RunningShard:
    """The operators of one shard.

    Args:
        number: of the shard; the first one has the groups without keys.
    """

    def __init__(self, number: int) -> None:
        self._number = number
        self._operators: dict[int, RunningGroups | RunningSessions] = {}

    @classmethod
    def restored(
        cls,
        number: int,
        scalars: bytes,
        pieces: Mapping[tuple[int, int], Sequence[bytes]],
        program: WindowProgram,
        older: RunningShard | None = None,
    ) -> RunningShard:
        """A shard as it was stored, without the operators that a program has no more.

        Args:
            number: of the shard.
            scalars: see `scalars`.
            pieces: by operator and pane, in order.
            program: the program.
            older: the shard as it was before: pieces that it has need not be decoded.

        Raises:
            CheckpointError: another version of Penstock stored it.
        """
        shard = cls(number)
        stored = json.loads(unpacked(scalars).rest)
        swept, sessions = stored[_SWEPT], stored.get(_SESSIONS, {})
        for plan in program.running:
            own = {pane: each for (operator, pane), each in pieces.items() if operator == plan.id}
            before = None if older is None else older._operators.get(plan.id)
            known = {} if before is None else before.pieces
            if plan.session is not None and str(plan.id) in sessions:
                state = _session_state(sessions[str(plan.id)])
                shard._operators[plan.id] = _sessions(plan, program, own, state, known)
            elif own or str(plan.id) in swept:
                shard._operators[plan.id] = RunningGroups(
                    plan, own.get(0, ()), swept.get(str(plan.id)), known
                )
        return shard

    @property
    def rows(self) -> int:
        """Rows of the state."""
        return sum(groups.rows for groups in self._operators.values())

    def process(
        self, program: WindowProgram, records: Sequence[RunningRecord]
    ) -> Iterator[tuple[int, Answer]]:
        """Takes in the records of a cut, and gives what changes, with the operator of each.

        Operators whose groups leave take in a record at a time, so that what leaves is a function of the log and not of its cuts. The others
        take in all at once.

        Args:
            program: the views after the cut; others are dropped.
            records: in order, at least one.
        """
        wanted = {plan.id: plan for plan in program.running}
        self._operators = {id_: groups for id_, groups in self._operators.items() if id_ in wanted}
        for id_, plan in wanted.items():
            if not plan.keys and self._number:
                continue
            groups = self._operators.get(id_)
            if groups is None:
                groups = RunningGroups(plan) if plan.session is None else _sessions(plan, program)
                self._operators[id_] = groups
            for answer in _taken_in(groups, plan, program, records):
                yield id_, answer

    def scalars(self) -> bytes:
        """Everything but the groups."""
        swept, sessions = {}, {}
        for id_, each in self._operators.items():
            if isinstance(each, RunningSessions):
                sessions[id_] = asdict(each.state)
            else:
                swept[id_] = each.swept
        stored = {_SWEPT: swept, _SESSIONS: sessions} if sessions else {_SWEPT: swept}
        return packed({}, rest=json.dumps(stored).encode())

    def take_changes(self) -> Iterator[tuple[int, int, int, list[bytes]]]:
        """The panes to store since the last call: (operator, pane, pieces that stay, those that follow them)."""
        for id_, each in self._operators.items():
            for change in each.take_changes():
                yield id_, *change

    def take_left_out(self) -> dict[int, int]:
        """By operator the tuples that were left out since the last call, because their sessions have left the state."""
        found = {}
        for id_, each in self._operators.items():
            if isinstance(each, RunningSessions) and each.left_out:
                found[id_], each.left_out = each.left_out, 0
        return found

    @property
    def operators(self) -> set[int]:
        """Those that it has."""
        return set(self._operators)


def _taken_in(
    groups: RunningGroups | RunningSessions,
    plan: RunningPlan,
    program: WindowProgram,
    records: Sequence[RunningRecord],
) -> Iterator[Answer]:
    """What an operator says of the records of a cut; see `RunningShard.process`."""
    last = records[-1]
    if isinstance(groups, RunningSessions):
        groups.adjust(plan, program.most_delay, program.least_horizon)
        # what makes an operator whole counts once, however often the log has it
        own = [record for record in records if plan.id not in record.whole or groups.make_whole()]
        moments = [moment for record in own for moment in record.moments]
        tuples = _tuples(plan.id, own) if own else None
        yield from groups.take_in(tuples, last.number, moments, last.clock, ended=last.ended)
        return
    groups.plan = plan
    for step in [records] if plan.ttl is None else [[record] for record in records]:
        last = step[-1]
        yield from groups.take_in(_tuples(plan.id, step), last.number, last.newest, ended=last.ended)


def _tuples(operator: int, records: Sequence[RunningRecord]) -> Content | None:
    """What records bring to an operator; None: nothing."""
    own = [each for record in records for each in record.envelopes if each.operator == operator]
    batch = pane_batch(own, records[-1].newest, _NO_DELAYS)
    return None if batch.partials is None else _without_panes(batch.partials, batch.values)


def _sessions(plan: RunningPlan, program: WindowProgram, *stored: Any) -> RunningSessions:
    return RunningSessions(plan, program.most_delay, program.least_horizon, *stored)


def _session_state(document: Mapping[str, Any]) -> SessionState:
    settled = [(clock, until) for clock, until in document["settled"]]
    return SessionState(**{**document, "time": StreamTime(**document["time"]), "settled": settled})


def _without_panes(partials: pa.Table, values: Mapping[str, pa.Table]) -> Content:
    tables = {name: table.drop_columns([PANE]) for name, table in values.items()}
    return Content(partials.drop_columns([PANE]), tables)
