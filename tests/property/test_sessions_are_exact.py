"""Sessions: whatever the order of tuples, the cuts, the restarts and what is final, the published rows are those of all tuples."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from unittest import mock

from hypothesis import given, settings
from hypothesis import strategies as st

from forms import examples
from penstock.operators.running.sessions import Moment, RunningSessions
from penstock.operators.running.shard import RunningRecord, RunningShard
from penstock.operators.windows import held_partials, pane
from penstock.plan.times import BEFORE_ALL
from session_cases import Published, SessionShard, Tuple, envelopes, program, restored, wanted

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


def cuts(of: Sequence[Batch]) -> Iterator[list[tuple[int, Batch]]]:
    held: list[tuple[int, Batch]] = []
    for number, batch in enumerate(of):
        held.append((number, batch))
        if batch.cut or batch.ended or number == len(of) - 1:
            yield held
            held = []


@given(batches, st.integers(1, 40), st.booleans(), st.sampled_from([10**9, 1, 0]))
@settings(max_examples=examples(150))
def test_published_rows_are_the_sessions_of_all_tuples(
    of: Sequence[Batch], gap: int, keyed: bool, loose: int
) -> None:
    views, shard, published = program(gap, keyed=keyed), RunningShard(0), Published()
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


steps = st.lists(
    st.tuples(
        st.lists(
            st.tuples(st.sampled_from(["a", "a", "b"]), st.integers(-60, 40), st.integers(0, 4)), max_size=4
        ),
        st.integers(0, 40),
        st.sampled_from([False, False, False, False, False, True]),
        st.booleans(),
    ),
    min_size=5,
    max_size=40,
)


@given(steps, st.integers(1, 20), st.sampled_from([0, 5, 30, 200]))
@settings(max_examples=examples(150))
def test_what_leaves_is_final_for_long_and_what_comes_later_is_counted(
    of: Sequence[tuple[Sequence[tuple[str, int, int]], int, bool, bool]], gap: int, history: int
) -> None:
    """Event times are told by how far they are from the newest one; the clock goes on by some time at each step."""
    own = SessionShard(gap, history)
    known: dict[str, list[tuple[int, int, int]]] = {"a": [], "b": []}
    settled: list[tuple[int, int]] = []
    newest, clock, came, left_out, left_until = 0, 0, 0, 0, BEFORE_ALL
    told_left_out = 0
    for tuples_, passed, ended, restart in of:
        clock += passed
        put = [(key, newest + ahead, value) for key, ahead, value in tuples_]
        delays = [max(0, newest - time) for _, time, _ in put]
        newest = max([newest, *(time for _, time, _ in put)])
        came += len(put)
        own.put(clock, *put, delays=delays, ended=ended)
        for key, sessions in known.items():
            for start, end, count in spans((time, time + gap, 1) for each, time, _ in put if each == key):
                within = any(first <= start <= last and last > left_until for first, last, _ in sessions)
                if start > left_until or within:
                    sessions[:] = spans([*sessions, (start, end, count)])
                else:
                    left_out += count
        rows = {name: said[0] for name, said in own.published.rows.items()}
        assert rows == {(key, *span): count for key, all_ in known.items() for *span, count in all_}
        for key in known:
            mine = sorted(name[1:] for name in rows if name[0] == key)
            assert all(end < start for (_, end), (start, _) in pairwise(mine)), "they do not touch"
        told_left_out += own.left_out
        assert told_left_out == left_out
        assert sum(rows.values()) + left_out == came
        (operator,) = own.shard._operators.values()
        assert isinstance(operator, RunningSessions)
        settled.append((clock, operator.state.final_until))
        left_until = operator.state.left_until
        if left_until > BEFORE_ALL:
            assert left_until <= newest - gap, "event time has passed what has left"
            assert any(at <= clock - history and until >= left_until for at, until in settled)
        if restart:
            own.restart()


def spans(of: Iterable[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
    """Spans of one key with their tuples, those that touch each other as one."""
    found: list[tuple[int, int, int]] = []
    for start, end, count in sorted(of):
        if found and start <= found[-1][1]:
            first, last, before = found[-1]
            found[-1] = first, max(last, end), before + count
        else:
            found.append((start, end, count))
    return found
