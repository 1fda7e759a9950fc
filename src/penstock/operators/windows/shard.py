"""A shard of window views: its operators, their state, and the log they are a function of.

Who drives the shard (the window lane on Spark, the virtual-time runner) hands over the log's
records in order and stores what changed; nothing else decides what the answers are.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.operators.windows.aggregates import Parts
from penstock.operators.windows.answers import Answer, LateCounts, Progress, Standing
from penstock.operators.windows.arrival_steps import ArrivalStep, by_step, without_steps
from penstock.operators.windows.content import Content
from penstock.operators.windows.history import Beyond, FinalWindows
from penstock.operators.windows.operator import PaneBatch, WindowOperator
from penstock.operators.windows.rankings import RankedParts
from penstock.operators.windows.shard_state import ShardState, read_state, stored_state
from penstock.operators.windows.slack_policies import policy_of
from penstock.plan.rankings import RankedPlan
from penstock.plan.times import AFTER_ALL
from penstock.plan.windows import WindowPlan

#: kind of an envelope with partials; one with kept values is of the kind "values:" and the argument
PARTIALS = "partials"
VALUES = "values:"


@dataclass(frozen=True, slots=True)
class OperatorPlan:
    """Window views answered by one operator.

    Attributes:
        id: names its state; never used again for other views.
        views: those that share event time and keys, and conditions or panes and aggregates, that were declared together and are
            not dropped.
        parts: what envelopes hold of each group, that of dropped views included.
        pane: length of their panes, microseconds.
        since, floors: see `WindowOperator`; floors as (view, time) pairs.
    """

    id: int
    views: tuple[WindowPlan, ...]
    parts: Parts
    pane: int
    since: int | None = None
    floors: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class SessionPlan:
    """What is kept of the sessions of running views by sessions, microseconds.

    Attributes:
        gap: how long after its newest tuple a session ends.
        history: how long final sessions stay in the state, by the clock.
        lacks_past: whether the operator gets the tuples of the batches before its first one later (BACKFILL).
    """

    gap: int
    history: int
    lacks_past: bool = False


@dataclass(frozen=True, slots=True)
class RunningPlan:
    """Running views answered by one operator.

    Attributes:
        id: names its state; never used again for other views.
        views: those that share keys and condition, were declared together and are not dropped; rankings are all alike.
        parts: what envelopes hold of each group, that of dropped views included.
        arguments: (name, type) of the columns of the parts.
        time: the argument whose largest value is when a group was touched last; None: groups stay for good.
        ttl: how far behind the newest event time a group leaves the state, microseconds.
        session: the sessions that the rows are; None: the rows are groups.
    """

    id: int
    views: tuple[RankedPlan | WindowPlan, ...]
    parts: RankedParts | Parts
    arguments: tuple[tuple[str, pa.DataType], ...]
    time: str | None = None
    ttl: int | None = None
    session: SessionPlan | None = None

    @property
    def keys(self) -> list[str]:
        """The grouping columns."""
        return [name for name, _ in self.views[0].grouping]


@dataclass(frozen=True, slots=True)
class WindowProgram:
    """The window views and running views of one plan version.

    Attributes:
        version: the plan version.
        operators: those of window views, in any order.
        gamma: see `WindowOperator`, microseconds.
        least_horizon: see `WindowOperator`, microseconds.
        most_delay: see `WindowOperator`, microseconds.
        running: the operators of running views.
    """

    version: int
    operators: tuple[OperatorPlan, ...]
    gamma: int
    least_horizon: int
    most_delay: int = AFTER_ALL
    running: tuple[RunningPlan, ...] = ()

    @property
    def every(self) -> tuple[OperatorPlan | RunningPlan, ...]:
        """All operators."""
        return (*self.operators, *self.running)

    @property
    def ids(self) -> frozenset[int]:
        """Those of all operators."""
        return frozenset(plan.id for plan in self.every)


@dataclass(frozen=True, slots=True)
class Envelope:
    """Rows of one batch for one operator of one shard.

    Attributes:
        operator: whose.
        kind: PARTIALS, or VALUES and an argument.
        payload: an Arrow IPC stream.
    """

    operator: int
    kind: str
    payload: bytes


@dataclass(frozen=True, slots=True, eq=False)
class LogRecord:
    """One entry of the log, the same for every shard but for the envelopes.

    Attributes:
        program: the views the batch is bound to.
        newest: largest event time seen up to here, microseconds, or None.
        delays: int64, delays of some tuples, the largest among them.
        ended: whether the stream has ended, so that every window is final.
        envelopes: the shard's.
        flush, reached, answer_all: see `PaneBatch`.
        whole: operators whose envelopes are those of all batches before their first one.
        steps: the arrival steps of the batch, ascending; none where all of it came at once.
    """

    program: WindowProgram
    newest: int | None
    delays: npt.NDArray[np.int64]
    ended: bool
    envelopes: Sequence[Envelope]
    flush: bool = False
    whole: Collection[int] = ()
    reached: int | None = None
    answer_all: bool = False
    steps: Sequence[ArrivalStep] = ()


class Shard:
    """The operators of one shard."""

    def __init__(self) -> None:
        self._version: int | None = None
        self._operators: dict[int, WindowOperator] = {}
        self._dropped: set[int] = set()

    @classmethod
    def of(cls, program: WindowProgram) -> Shard:
        """A shard with the views of a program that has taken in nothing."""
        shard = cls()
        shard._follow(program)
        return shard

    @classmethod
    def restored(
        cls,
        scalars: bytes,
        panes: Mapping[tuple[int, int], Sequence[bytes]],
        programs: Callable[[int], WindowProgram],
        older: Shard | None = None,
        unchanged: Iterable[tuple[int, int]] = (),
    ) -> Shard:
        """A shard as it was stored.

        Args:
            scalars: see `scalars`.
            panes: stored pieces of panes by (operator, start of the pane), in order.
            programs: gives that of a plan version.
            older: the shard as it was stored before.
            unchanged: further panes, which are as they are in `older`.

        Raises:
            CheckpointError: another version of Penstock stored it.
        """
        shard, state = cls(), read_state(scalars)
        if state.version is None:
            return shard
        program = programs(state.version)
        for plan in program.operators:
            shard._begin(program, plan).restore(state.operators[plan.id])
        shard._version = state.version
        operators = shard._operators
        for (operator, start), pieces in panes.items():
            operators[operator].panes.put(start, [Content.loaded(piece) for piece in pieces])
        for operator, start in unchanged:
            assert older is not None, "unchanged since something"
            operators[operator].panes.take_over(start, older._operators[operator].panes)
        return shard

    def process(self, record: LogRecord) -> list[Answer]:
        """Takes in the next record of the log."""
        program = record.program
        self._follow(program)
        answers = []
        envelopes: dict[int, list[Envelope]] = {}
        for envelope in record.envelopes:
            envelopes.setdefault(envelope.operator, []).append(envelope)
        for id_, operator in self._operators.items():
            for batch in _pane_batches(envelopes.get(id_, []), record, makes_whole=id_ in record.whole):
                answers += operator.process(batch)
            if record.ended:
                answers += operator.finish()
        return answers

    def scalars(self) -> bytes:
        """Everything but the panes, and what is taken after each batch."""
        operators = {id_: operator.snapshot() for id_, operator in self._operators.items()}
        return stored_state(ShardState(self._version, operators))

    def take_changes(self) -> Iterator[tuple[int, int, int, list[bytes]]]:
        """The panes to store since the last call: (operator, start, pieces that stay, those that follow them);
        no pieces at all: the pane is gone."""
        for id_, operator in self._operators.items():
            for start, change in operator.panes.take_changes().items():
                yield id_, start, change.kept, [piece.stored() for piece in change.pieces]

    def take_dropped(self) -> set[int]:
        """Operators whose views are all gone since the last call; their panes are to be removed."""
        dropped, self._dropped = self._dropped, set()
        return dropped

    def take_beyond(self) -> list[tuple[int, str, int]]:
        """(operator, view, start) of final windows that got tuples since the last call: for the history."""
        found = []
        for id_, operator in self._operators.items():
            found += [(id_, view, start) for view, start in sorted(operator.beyond)]
            operator.beyond.clear()
        return found

    def take_late(self) -> LateCounts:
        """The late tuples since the last call."""
        late = LateCounts()
        for operator in self._operators.values():
            late.add(operator.late)
            operator.late = LateCounts()
        return late

    def standing(self) -> dict[str, Standing]:
        """How far each view has come."""
        return {name: found for own in self._operators.values() for name, found in own.standing().items()}

    def progress(self) -> dict[str, Progress]:
        """How far the windows of each view are answered."""
        return {
            name: replace(found, operator=id_)
            for id_, own in self._operators.items()
            for name, found in own.progress().items()
        }

    def final_windows(self, windows: Iterable[Beyond]) -> dict[int, FinalWindows]:
        """Final windows that are to be answered again, by operator; those of views that are gone are left out."""
        by_operator: dict[int, list[Beyond]] = {}
        for window in windows:
            if window.operator in self._operators:
                by_operator.setdefault(window.operator, []).append(window)
        return {id_: FinalWindows(self._operators[id_], own) for id_, own in by_operator.items()}

    def _follow(self, program: WindowProgram) -> None:
        """Creates the operators of new views and drops views that are gone."""
        if program.version == self._version:
            return
        self._version = program.version
        wanted = {plan.id: plan for plan in program.operators}
        for id_ in [each for each in self._operators if each not in wanted]:
            del self._operators[id_]
            self._dropped.add(id_)
        for id_, plan in wanted.items():
            operator = self._operators.get(id_)
            if operator is None:
                self._begin(program, plan)
                continue
            operator.keep({view.name for view in plan.views})
            operator.adjust(program.gamma, program.least_horizon, program.most_delay)
            for view in plan.views:
                if view.slack_policy != operator.views[view.name].plan.slack_policy:
                    operator.choose(view.name, view, policy_of(view))

    def _begin(self, program: WindowProgram, plan: OperatorPlan) -> WindowOperator:
        """An operator without state."""
        operator = WindowOperator(
            [(view, policy_of(view)) for view in plan.views],
            program.gamma,
            program.least_horizon,
            program.most_delay,
            plan.parts,
            plan.pane,
            plan.since,
            dict(plan.floors),
        )
        self._operators[plan.id] = operator
        return operator


def pane_batch(
    envelopes: Sequence[Envelope],
    newest: int | None,
    delays: npt.NDArray[np.int64],
    flush: bool = False,
    makes_whole: bool = False,
) -> PaneBatch:
    """One operator's envelopes of a batch, those of all map tasks together, whatever their steps."""
    tables = {kind: [without_steps(each) for each in own] for kind, own in _tables(envelopes).items()}
    return PaneBatch(*_rows(tables), newest, delays, flush, makes_whole)


def _pane_batches(envelopes: Sequence[Envelope], record: LogRecord, *, makes_whole: bool) -> list[PaneBatch]:
    """One operator's envelopes of a record, those of each arrival step together."""
    if not record.steps or makes_whole:
        whole = pane_batch(envelopes, record.newest, record.delays, record.flush, makes_whole)
        return [replace(whole, reached=record.reached, answer_all=record.answer_all)]
    numbers = [step.number for step in record.steps]
    tables = {kind: [by_step(each, numbers) for each in own] for kind, own in _tables(envelopes).items()}
    batches = []
    for place, step in enumerate(record.steps):
        own = {kind: [parts[place] for parts in every] for kind, every in tables.items()}
        delays = np.array(step.delays, np.int64)
        batches.append(PaneBatch(*_rows(own), step.newest, delays, goes_on=step is not record.steps[-1]))
    batches[-1] = replace(
        batches[-1], flush=record.flush, reached=record.reached, answer_all=record.answer_all
    )
    return batches


def _tables(envelopes: Sequence[Envelope]) -> dict[str, list[pa.Table]]:
    tables: dict[str, list[pa.Table]] = {}
    for envelope in envelopes:
        tables.setdefault(envelope.kind, []).append(pa.ipc.open_stream(envelope.payload).read_all())
    return tables


def _rows(tables: Mapping[str, Sequence[pa.Table]]) -> tuple[pa.Table | None, dict[str, pa.Table]]:
    """Partials, None where there are none, and values by argument."""
    together = {kind: pa.concat_tables(parts) for kind, parts in tables.items()}
    partials = together.get(PARTIALS)
    if partials is None or not partials.num_rows:
        return None, {}
    return partials, {
        kind.removeprefix(VALUES): table for kind, table in together.items() if kind.startswith(VALUES)
    }
