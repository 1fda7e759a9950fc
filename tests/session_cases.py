"""An operator of sessions without a lane: what map tasks send it, what it should say, and what it says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from penstock.operators.running.sessions import Moment, RunningSessions
from penstock.operators.running.shard import RunningRecord, RunningShard
from penstock.operators.windows.aggregates import Parts
from penstock.operators.windows.answers import Answer
from penstock.operators.windows.event_times import event_times
from penstock.operators.windows.pane_plan import PaneColumn, PanePlan, PaneProgram
from penstock.operators.windows.pane_stage import PaneStage
from penstock.operators.windows.satisfied import Satisfied
from penstock.operators.windows.shard import Envelope, RunningPlan, SessionPlan, WindowProgram
from penstock.operators.windows.spans import SPAN
from penstock.plan.windows import ALL_TIME, Aggregate, ErrorBound, WindowPlan

FOREVER = 10**15
AGGREGATES = (
    Aggregate("count", None, pa.int64()),
    Aggregate("sum", "_x0", pa.int64()),
    Aggregate("max", "_x0", pa.int64()),
    Aggregate("count_distinct", "_x0", pa.int64()),
    Aggregate("percentile", "_x0", pa.float64(), 0.5),
)
PARTS = Parts.of(AGGREGATES)
KEY = PaneColumn("key", "_k0", pa.string())
#: key, start, end -> the aggregates
Rows = dict[tuple[str | None, int, int], tuple[object, ...]]
Tuple = tuple[str | None, int | None, int | None]


def program(
    gap: int, *, keyed: bool = True, history: int = FOREVER, lacks_past: bool = False
) -> WindowProgram:
    keys = ((KEY.name, KEY.type),) if keyed else ()
    view = WindowPlan("v", "ts", ALL_TIME, keys, AGGREGATES, ErrorBound(0.1, 0.1), gap=gap)
    plan = RunningPlan(
        3, (view,), PARTS, (("_x0", pa.int64()),), session=SessionPlan(gap, history, lacks_past)
    )
    return WindowProgram(0, (), 0, 0, running=(plan,))


def envelopes(gap: int, own: Sequence[Tuple], keyed: bool) -> list[Envelope]:
    """As a map task makes them."""
    plan = PanePlan(
        id=3,
        selections=(),
        keys=(KEY,) if keyed else (),
        arguments=(PaneColumn("value", "_x0", pa.int64()),),
        raising=(),
        parts=PARTS,
        pane=ALL_TIME.pane,
        offset=0,
        gap=gap,
    )
    stage = PaneStage(PaneProgram("ts", (plan,), 1))
    for part in (own[: len(own) // 2], own[len(own) // 2 :]):
        key, time, value = zip(*part, strict=True) if part else [()] * 3
        columns = {"key": pa.array(key, pa.string()), "ts": pa.array(time, pa.timestamp("us", "UTC"))}
        batch = pa.record_batch({**columns, "value": pa.array(value, pa.int64())})
        stage.add(batch, event_times(batch.column("ts"), FOREVER), Satisfied.none(batch.num_rows))
    return [envelope for _, envelope in stage.envelopes()]


def wanted(all_: Sequence[Tuple], gap: int, keyed: bool) -> Rows:
    """The sessions of tuples, one after the other."""
    found: Rows = {}
    own = sorted((each for each in all_ if each[1] is not None), key=lambda each: each[1] or 0)
    for key in {key if keyed else None for key, _, _ in own}:
        sessions: list[list[Tuple]] = []
        for each in own:
            if keyed and each[0] != key:
                continue
            if sessions and each[1] - sessions[-1][-1][1] <= gap:  # type: ignore[operator]
                sessions[-1].append(each)
            else:
                sessions.append([each])
        for session in sessions:
            values = sorted(value for _, _, value in session if value is not None)
            middle = (values[(len(values) - 1) // 2] + values[len(values) // 2]) / 2 if values else None
            said = (
                len(session),
                sum(values) if values else None,
                max(values, default=None),
                len(set(values)),
                middle,
            )
            found[key, session[0][1], session[-1][1] + gap] = said  # type: ignore[operator, index]
    return found


@dataclass(slots=True)
class Published:
    """What the answers of a view say."""

    rows: Rows = field(default_factory=dict)
    final: set[tuple[str | None, int, int]] = field(default_factory=set)

    def take(self, answers: Sequence[Answer]) -> None:
        seen = set()
        for answer in answers:
            for row in answer.rows.to_pylist():
                name = row.get(KEY.name), row[SPAN[0]], row[SPAN[1]]
                assert name not in seen, "a row is told once a cut"
                seen.add(name)
                said = tuple(row[f"_a{number}"] for number in range(len(AGGREGATES)))
                self.final.discard(name)
                if answer.withdrawn:
                    assert self.rows.pop(name) == said, "as it was published"
                    continue
                self.rows[name] = said
                if answer.final:
                    self.final.add(name)


def restored(
    shard: RunningShard, views: WindowProgram, stored: dict[tuple[int, int], list[bytes]]
) -> RunningShard:
    """A shard as it is read again after its changes were stored."""
    for operator, place, kept, pieces in shard.take_changes():
        stored[operator, place] = [*stored.get((operator, place), [])[:kept], *pieces]
    own: Mapping[tuple[int, int], Sequence[bytes]] = {place: each for place, each in stored.items() if each}
    return RunningShard.restored(0, shard.scalars(), own, views)


class SessionShard:
    """A shard with one operator that takes in an entry at a time.

    Args:
        gap, history, lacks_past: see `SessionPlan`.

    Attributes:
        published: what it has said.
        answers: of the newest entry.
    """

    def __init__(self, gap: int, history: int, *, lacks_past: bool = False) -> None:
        self._views = program(gap, history=history, lacks_past=lacks_past)
        self._gap = gap
        self._newest: int | None = None
        self._number = 0
        self._stored: dict[tuple[int, int], list[bytes]] = {}
        self.shard = RunningShard(0)
        self.published = Published()
        self.answers: list[Answer] = []

    def put(
        self,
        clock: int,
        *own: Tuple,
        delays: Sequence[int] = (0,),
        ended: bool = False,
        makes_whole: bool = False,
    ) -> None:
        """Puts an entry at a time by the clock."""
        moments = []
        if not makes_whole:
            times = [time for _, time, _ in own if time is not None]
            self._newest = max([*times, *([] if self._newest is None else [self._newest])], default=None)
            moments = [Moment(self._newest, delays if own else ())]
        record = RunningRecord(
            self._number,
            self._newest,
            ended,
            envelopes(self._gap, own, True),
            moments,
            clock,
            whole=(3,) if makes_whole else (),
        )
        self._number += 1
        self.answers = [answer for _, answer in self.shard.process(self._views, [record])]
        self.published.take(self.answers)

    def restart(self) -> None:
        """Stores the state, and reads it again."""
        self.shard = restored(self.shard, self._views, self._stored)

    @property
    def left_until(self) -> int:
        """Sessions that end by then have left the state, microseconds."""
        (operator,) = self.shard._operators.values()
        assert isinstance(operator, RunningSessions)
        return operator.state.left_until

    @property
    def left_out(self) -> int:
        """Tuples that were left out since the last look."""
        return self.shard.take_left_out().get(3, 0)
