"""Sessions: whatever the order of tuples, the cuts, the restarts and what is final, the published rows are those of all tuples."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from unittest import mock

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from forms import examples
from penstock.operators.running.sessions import Moment
from penstock.operators.running.shard import RunningRecord, RunningShard
from penstock.operators.windows import held_partials, pane
from penstock.operators.windows.aggregates import Parts
from penstock.operators.windows.answers import Answer
from penstock.operators.windows.event_times import event_times
from penstock.operators.windows.pane_stage import PaneColumn, PanePlan, PaneProgram, PaneStage
from penstock.operators.windows.satisfied import Satisfied
from penstock.operators.windows.shard import RunningPlan, SessionPlan, WindowProgram
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

tuples = st.lists(
    st.tuples(
        st.sampled_from(["a", "b", None]),
        st.one_of(st.none(), st.integers(0, 300)),
        st.one_of(st.none(), st.integers(0, 4)),
    ),
    max_size=12,
)


@dataclass(frozen=True, slots=True)
class Batch:
    """Tuples of one entry; those of a cut end where `cut` is true."""

    tuples: Sequence[Tuple]
    cut: bool
    restart: bool
    ended: bool


batches = st.lists(
    st.builds(Batch, tuples, st.booleans(), st.booleans(), st.sampled_from([False, False, False, True])),
    min_size=1,
    max_size=8,
)


def program(gap: int, keyed: bool, history: int = FOREVER) -> WindowProgram:
    keys = ((KEY.name, KEY.type),) if keyed else ()
    view = WindowPlan("v", "ts", ALL_TIME, keys, AGGREGATES, ErrorBound(0.1, 0.1), gap=gap)
    plan = RunningPlan(3, (view,), PARTS, (("_x0", pa.int64()),), session=SessionPlan(gap, history))
    return WindowProgram(0, (), 0, 0, running=(plan,))


def envelopes(gap: int, own: Sequence[Tuple], keyed: bool) -> list:
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
    stage = PaneStage(PaneProgram("ts", (plan,), 0, 1))
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
            found[key, session[0][1], session[-1][1] + gap] = said  # type: ignore[operator]
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


def cuts(of: Sequence[Batch]) -> Iterator[list[tuple[int, Batch]]]:
    held: list[tuple[int, Batch]] = []
    for number, batch in enumerate(of):
        held.append((number, batch))
        if batch.cut or batch.ended or number == len(of) - 1:
            yield held
            held = []


def restored(
    shard: RunningShard, views: WindowProgram, stored: dict[tuple[int, int], list[bytes]]
) -> RunningShard:
    """A shard as it is read again after its changes were stored."""
    for operator, place, kept, pieces in shard.take_changes():
        stored[operator, place] = [*stored.get((operator, place), [])[:kept], *pieces]
    own: Mapping[tuple[int, int], Sequence[bytes]] = {place: each for place, each in stored.items() if each}
    return RunningShard.restored(0, shard.scalars(), own, views)


@given(batches, st.integers(1, 40), st.booleans(), st.sampled_from([10**9, 1, 0]))
@settings(max_examples=examples(150))
def test_published_rows_are_the_sessions_of_all_tuples(
    of: Sequence[Batch], gap: int, keyed: bool, loose: int
) -> None:
    views, shard, published = program(gap, keyed), RunningShard(0), Published()
    all_: list[Tuple] = []
    stored: dict[tuple[int, int], list[bytes]] = {}
    newest: int | None = None
    # with partials of a task and levels of a pane merged all the time, and never
    with (
        mock.patch.object(held_partials, "_LOOSE_ROWS", loose),
        mock.patch.object(held_partials, "_HELD_ROWS", max(1, loose)),
        mock.patch.object(pane, "_LEAST_ROWS", max(1, loose)),
    ):
        for cut in cuts(of):
            records = []
            for number, batch in cut:
                all_ += batch.tuples
                times = [time for _, time, _ in batch.tuples if time is not None]
                delays = [max(0, newest - time) for time in times] if newest is not None else [0] * len(times)
                newest = max([*times, *([] if newest is None else [newest])], default=None)
                moments = [Moment(newest, delays)]
                own = envelopes(gap, batch.tuples, keyed)
                records.append(RunningRecord(number, newest, batch.ended, own, moments, number))
            published.take([answer for _, answer in shard.process(views, records)])
            assert published.rows == wanted(all_, gap, keyed)
            if cut[-1][1].ended:
                assert published.final == published.rows.keys()
            if cut[-1][1].restart:
                shard = restored(shard, views, stored)
    assert not shard.take_left_out()


def test_final_sessions_are_corrected_and_leave_after_their_time() -> None:
    gap, history = 10, 100
    views, shard, published = program(gap, True, history), RunningShard(0), Published()

    def put(number: int, clock: int, *own: Tuple, delays: Sequence[int] = (0,)) -> None:
        newest = put.newest = max([put.newest, *(time or 0 for _, time, _ in own)])  # type: ignore[attr-defined]
        record = RunningRecord(
            number, newest, False, envelopes(gap, own, True), [Moment(newest, delays)], clock
        )
        published.take([answer for _, answer in shard.process(views, [record])])

    put.newest = 0  # type: ignore[attr-defined]
    put(0, 0, ("a", 0, 1), ("b", 5, 1))
    assert not published.final
    put(1, 1, ("a", 100, 1))
    assert published.final == {("a", 0, 10), ("b", 5, 15)}
    # one is corrected, the other grows
    put(2, 2, ("a", 0, 3), ("b", 14, 2))
    assert published.rows["a", 0, 10][:2] == (2, 4)
    assert published.rows["b", 5, 24][:2] == (2, 3)
    assert published.final == {("a", 0, 10), ("b", 5, 24)}
    # a late tuple makes one of a final and an open session
    put(3, 3, ("c", 85, 1), ("c", 105, 1))
    assert ("c", 85, 95) in published.final
    put(4, 4, ("c", 95, 1))
    assert {name for name in published.rows if name[0] == "c"} == {("c", 85, 115)}
    assert ("c", 85, 115) not in published.final
    assert not shard.take_left_out()
    rows = shard.rows
    put(5, 300, ("a", 400, 1))
    put(6, 600, ("a", 800, 1))
    assert shard.rows < rows
    put(7, 601, ("a", 0, 3), ("a", 799, 1))
    assert shard.take_left_out() == {3: 1}
    assert published.rows["a", 0, 10][:2] == (2, 4), "what was final is left as it is"
    assert published.rows["a", 799, 810][:2] == (2, 2)
