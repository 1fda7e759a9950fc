"""A shard of running views: the groups of each operator, and what of them is stored."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from penstock.operators.running.groups import RunningGroups
from penstock.operators.windows.answers import Answer
from penstock.operators.windows.content import Content
from penstock.operators.windows.panes import PANE
from penstock.operators.windows.shard import Envelope, WindowProgram, pane_batch
from penstock.operators.windows.stored import packed, unpacked

_SWEPT = "swept"
_NO_DELAYS = np.zeros(0, np.int64)


@dataclass(frozen=True, slots=True)
class RunningRecord:
    """What an entry of the log brings to a shard.

    Attributes:
        number: of the entry.
        newest: largest event time seen up to here, microseconds, or None.
        ended: whether the stream has ended.
        envelopes: the shard's, those of other operators among them.
    """

    number: int
    newest: int | None
    ended: bool
    envelopes: Sequence[Envelope]


class RunningShard:
    """The operators of one shard.

    Args:
        number: of the shard; the first one has the groups without keys.
    """

    def __init__(self, number: int) -> None:
        self._number = number
        self._operators: dict[int, RunningGroups] = {}

    @classmethod
    def restored(
        cls,
        number: int,
        scalars: bytes,
        pieces: Mapping[int, Sequence[bytes]],
        program: WindowProgram,
        older: RunningShard | None = None,
    ) -> RunningShard:
        """A shard as it was stored, without the operators that a program has no more.

        Args:
            number: of the shard.
            scalars: see `scalars`.
            pieces: by operator, in order.
            program: the program.
            older: the shard as it was before: pieces that it has need not be decoded.

        Raises:
            CheckpointError: another version of Penstock stored it.
        """
        shard = cls(number)
        swept = json.loads(unpacked(scalars).rest)[_SWEPT]
        for plan in program.running:
            own, before = pieces.get(plan.id, ()), None if older is None else older._operators.get(plan.id)
            if own or str(plan.id) in swept:
                known = {} if before is None else before.pieces
                shard._operators[plan.id] = RunningGroups(plan, own, swept.get(str(plan.id)), known)
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
            groups = self._operators.setdefault(id_, RunningGroups(plan))
            groups.plan = plan
            steps = [records] if plan.ttl is None else [[record] for record in records]
            for step in steps:
                own = [each for record in step for each in record.envelopes if each.operator == id_]
                last = step[-1]
                batch = pane_batch(own, last.newest, _NO_DELAYS)
                tuples = None if batch.partials is None else _without_panes(batch.partials, batch.values)
                for answer in groups.take_in(tuples, last.number, last.newest, ended=last.ended):
                    yield id_, answer

    def scalars(self) -> bytes:
        """Everything but the groups."""
        swept = {id_: groups.swept for id_, groups in self._operators.items()}
        return packed({}, rest=json.dumps({_SWEPT: swept}).encode())

    def take_changes(self) -> Iterator[tuple[int, int, list[bytes]]]:
        """The operators to store since the last call: (operator, pieces that stay, those that follow them)."""
        for id_, groups in self._operators.items():
            change = groups.take_change()
            if change is not None:
                yield id_, *change

    @property
    def operators(self) -> set[int]:
        """Those that it has."""
        return set(self._operators)


def _without_panes(partials: pa.Table, values: Mapping[str, pa.Table]) -> Content:
    tables = {name: table.drop_columns([PANE]) for name, table in values.items()}
    return Content(partials.drop_columns([PANE]), tables)
