"""Windows are told once they are closed, each once, with the places of their tuples; those that wait miss what their bound allows."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from disordered import Disordered, few_late, growing
from forms import examples
from penstock.operators.deadlines.creation import Brought, CreatedWindow, CreationState, WindowCreation
from penstock.operators.deadlines.instances import Tuples
from penstock.operators.deadlines.learned_slack import LearnedSlack
from penstock.plan.deadlines import WindowSpan
from penstock.plan.times import BEFORE_ALL
from penstock.plan.windows import Aggregate, ErrorBound, WindowPlan, Windows
from penstock.spark.storage.codec import Codec

KEYS = (("k", pa.string()),)
COUNT = (Aggregate("count", None, pa.int64()),)
MEAN = (Aggregate("avg", "x", pa.float64()),)


@dataclass
class Fed:
    """A view's windows and the entries that it is given."""

    creation: WindowCreation
    entry: int = -1
    told: list[CreatedWindow] = field(default_factory=list)

    def close(
        self, times: Sequence[int], newest: int | None, *, silent_to: int | None = None, every: bool = False
    ) -> list[tuple[int, WindowSpan]]:
        self.entry += 1
        own = np.array(times, np.int64)
        tuples = Tuples(pa.table({}), own, np.full(len(own), self.entry))
        moment = newest if silent_to is None else silent_to
        found = self.creation.take_in(Brought(self.entry, tuples, newest, moment, every=every))
        self.told += [window for window, _ in found]
        return [(window.end, span) for window, span in found]

    def state(self) -> CreationState:
        return _through_json(self.creation.state([]))


def _through_json(state: CreationState) -> CreationState:
    codec = Codec(CreationState)
    found = codec.value(json.loads(json.dumps(codec.document(state))))
    assert found == state
    return found


def _made(windows: Windows, closed: int = BEFORE_ALL, floor: int = BEFORE_ALL) -> Fed:
    return Fed(WindowCreation(windows, CreationState(-1, floor, closed)))


def test_a_window_is_told_once_it_is_closed() -> None:
    fed = _made(Windows(4, 2))
    assert fed.close([1, 3, 3, 6], 1) == []
    assert fed.close([], 4) == [(2, WindowSpan(0, 1)), (4, WindowSpan(0, 3))]
    assert fed.told == [CreatedWindow(2, 1, 2, None, 2), CreatedWindow(4, 1, 0, None, 4)]
    assert fed.close([], 4) == []
    assert fed.close([2, 7], 8) == [(6, WindowSpan(1, 4)), (8, WindowSpan(4, 6))]


def test_what_was_settled_and_what_began_before_is_not_told() -> None:
    fed = _made(Windows(4, 2), closed=4, floor=4)
    assert [end for end, _ in fed.close([1, 3, 5, 9], 100)] == [8, 10, 12]


def test_windows_without_tuples_are_none() -> None:
    fed = _made(Windows(2, 2))
    assert [end for end, _ in fed.close([0, 1_000_000_001], 2_000_000_000)] == [2, 1_000_000_002]


def test_a_stream_that_is_taken_to_have_ended_goes_on() -> None:
    fed = _made(Windows(10, 10))
    assert [end for end, _ in fed.close([5, 3_600], 5, every=True)] == [10, 3_610]
    assert fed.state().beforehand == (10, 3_610)
    assert [end for end, _ in fed.close([7, 12, 25], 25)] == [20], "the first one has been told"
    later = Fed(WindowCreation(Windows(10, 10), fed.state()), fed.entry)
    assert [end for end, _ in later.close([25, 3_605], 4_000)] == [30], "one told far ahead holds no other up"
    assert later.state().beforehand == ()


def test_silence_creates_the_windows_that_are_open_and_closes_none() -> None:
    fed = _made(Windows(10, 10))
    assert fed.close([5, 12], 12) == [(10, WindowSpan(0, 1))]
    assert fed.close([], 12, silent_to=62) == [(20, WindowSpan(1, 2))]
    assert fed.close([], 12, silent_to=92) == []
    assert fed.told[-1] == CreatedWindow(20, 1, 42, None, 20)
    assert fed.state().closed == 12
    assert fed.state().beforehand == (20,)
    later = Fed(WindowCreation(Windows(10, 10), fed.state()), fed.entry)
    assert later.close([15, 25, 35, 45, 55], 55) == [
        (end, WindowSpan(first, first + 1)) for first, end in enumerate((30, 40, 50), 1)
    ], "what held nothing is created when it is passed, what was created is not again"
    assert later.state().beforehand == ()
    assert [end for end, _ in later.close([61], 61)] == [60]


def test_a_window_far_ahead_is_created_by_silence_before_those_that_come_after_it() -> None:
    fed = _made(Windows(10, 5))
    assert [end for end, _ in fed.close([102, 3], 3, silent_to=110)] == [5, 10, 105, 110]
    assert fed.close([11], 11, silent_to=11) == []
    assert [end for end, _ in fed.close([21], 21)] == [15, 20]
    assert fed.state().beforehand == (105, 110)


@pytest.mark.parametrize("batches", [1, 4])
@given(data=st.data())
def test_every_window_is_told_once_with_the_tuples_that_had_come(batches: int, data: st.DataObject) -> None:
    size = data.draw(st.integers(1, 12))
    windows = Windows(size, slide := data.draw(st.integers(1, size)), data.draw(st.integers(0, slide - 1)))
    fed = _made(windows)
    seen: list[int] = []
    told: dict[int, WindowSpan] = {}
    reached = -(10**6)
    for _ in range(batches):
        times = data.draw(st.lists(st.integers(-40, 40), max_size=12))
        seen += times
        reached = max([reached, *times])
        for end, span in fed.close(times, reached):
            assert end not in told
            assert end <= reached
            assert span.tuples == sum(end - size <= time < end for time in seen)
            assert span.first == sum(time < end - size for time in seen)
            told[end] = span
    assert sorted(told) == list(told)
    if batches == 1:
        ends = {end for time in seen for end in windows.ends(time)}
        assert set(told) == {end for end in ends if end <= reached}


def _waiting(plan: WindowPlan, state: CreationState | None = None) -> WindowCreation:
    state = state or CreationState(-1, BEFORE_ALL)
    return WindowCreation(plan.windows, state, LearnedSlack(plan, state.floor, 10**9, 0))


def _plan(aggregates: tuple[Aggregate, ...], bound: ErrorBound, windows: Windows) -> WindowPlan:
    return WindowPlan("v", "ts", windows, KEYS, aggregates, bound)


def _off(plan: WindowPlan, brought: Iterable[Brought], told: Iterable[CreatedWindow]) -> float:
    """Share of the groups of windows whose answer is off by epsilon or more."""
    every = list(brought)
    times = np.concatenate([each.tuples.times for each in every])
    entries = np.concatenate([each.tuples.entries for each in every])
    rows = pa.concat_tables([each.tuples.columns for each in every])
    keys, values = (rows.column(name).to_numpy() for name in ("k", "x"))
    off = []
    for window in told:
        inside = (times >= window.end - plan.windows.size) & (times < window.end)
        for key in ("a", "b"):
            whole = inside & (keys == key)
            if not whole.any():
                continue
            had = whole & (entries <= window.entry)
            if not had.any():
                off.append(True)
                continue
            early, final = (
                (values[each].mean() if plan.aggregates == MEAN else each.sum()) for each in (had, whole)
            )
            off.append(abs(early - final) >= plan.bound.epsilon * abs(final))
    return sum(off) / len(off)


@pytest.mark.parametrize(("delay", "allowed"), [(few_late, 0.1), (growing, 0.15)])
@pytest.mark.parametrize("aggregates", [COUNT, MEAN, ()], ids=["count", "avg", "the user's"])
def test_windows_that_wait_keep_their_bound(
    aggregates: tuple[Aggregate, ...],
    delay: Callable[[np.random.Generator, int], np.ndarray],
    allowed: float,
) -> None:
    """The bound holds where the disorder is one; while it grows it is known a horizon late."""
    bound = ErrorBound(0.02, 0.1)
    plan = _plan(aggregates, bound, Windows(200, 50))
    stream = Disordered.drawn(3, 400, 25, delay)
    at_once = WindowCreation(plan.windows, CreationState(-1, BEFORE_ALL))
    waiting = _waiting(plan)
    hasty = [window for each in stream.brought for window, _ in at_once.take_in(each)]
    told = [window for each in stream.brought for window, _ in waiting.take_in(each)]
    assert waiting.slack is not None
    assert waiting.slack.promised
    assert len(told) > 150
    assert _off(plan, stream.brought, told) <= allowed
    assert _off(plan, stream.brought, hasty) > 1.25 * allowed
    assert told[0].coverage is None
    assert told[-1].coverage is not None
    assert all(window.slack >= 0 for window in told)
    # no longer than all would have to wait for the last tuple
    assert np.mean([window.slack for window in told]) < max(max(each.delays) for each in stream.brought) + 25


def test_what_is_created_beforehand_claims_no_coverage() -> None:
    plan = _plan(COUNT, ErrorBound(0.02, 0.1), Windows(200, 50))
    *stream, last = Disordered.drawn(3, 350, 25, few_late).brought
    waiting, cut_off = _waiting(plan), _waiting(plan)
    for each in stream:
        assert waiting.take_in(each) == cut_off.take_in(each)
    due = waiting.take_in(last)
    every = cut_off.take_in(replace(last, every=True))
    assert due == every[: len(due)]
    assert all(window.coverage is not None for window, _ in due)
    beforehand = [window for window, _ in every[len(due) :]]
    assert any(window.slack > 0 for window in beforehand), "their end has been reached, but not waited beyond"
    assert {window.coverage for window in beforehand} == {None}


def test_silence_promises_nothing_and_teaches_nothing() -> None:
    """What is created after it is what would have been without it, with the same slack and coverage."""
    plan = _plan(COUNT, ErrorBound(0.02, 0.1), Windows(200, 50))
    stream = Disordered.drawn(3, 400, 25, few_late).brought
    nothing = _nothing(stream[0].tuples)
    going_on, interrupted = _waiting(plan), _waiting(plan)
    wanted, told, cut_off = list[CreatedWindow](), list[CreatedWindow](), list[CreatedWindow]()
    for number, each in enumerate(stream):
        here = replace(each, entry=2 * number)
        wanted += [window for window, _ in going_on.take_in(here)]
        told += [window for window, _ in interrupted.take_in(here)]
        assert each.newest is not None
        moment = each.newest + (10**9 if number in (5, 350) else 0)
        silent = Brought(2 * number + 1, nothing, each.newest, moment)
        wanted += [window for window, _ in going_on.take_in(replace(silent, moment=each.newest))]
        # with an entry without tuples windows close too, where less is waited than before
        for window, _ in interrupted.take_in(silent):
            (told if window.slack < 10**8 else cut_off).append(window)
    assert len(cut_off) > 8
    assert {window.coverage for window in cut_off} == {None}
    ends = {window.end for window in cut_off}
    assert told == [window for window in wanted if window.end not in ends]
    assert told[-1].coverage is not None


def test_a_view_without_keys_and_columns_waits() -> None:
    plan = WindowPlan("v", "ts", Windows(200, 50), (), COUNT, ErrorBound(0.02, 0.1))
    waiting = _waiting(plan)
    for each in Disordered.drawn(3, 200, 25, few_late).brought:
        bare = pa.table({}), each.tuples.times, each.tuples.entries
        waiting.take_in(replace(each, tuples=Tuples(*bare)))
    assert waiting.slack is not None
    assert waiting.slack.promised
    assert waiting.slack.slack > 0


@settings(deadline=None, max_examples=examples(15))
@given(data=st.data())
def test_whoever_goes_on_creates_the_same_windows(data: st.DataObject) -> None:
    """Wherever a run ends, the next one reads the log again from the first entry that is needed, and goes on alike."""
    size = data.draw(st.integers(1, 60))
    windows = Windows(size, slide := data.draw(st.integers(1, size)), data.draw(st.integers(0, slide - 1)))
    plan = _plan(data.draw(st.sampled_from([COUNT, MEAN, ()])), ErrorBound(0.1, 0.25), windows)
    delay = data.draw(st.sampled_from([few_late, growing]))
    stream = Disordered.drawn(data.draw(st.integers(0, 5)), 70, 5, delay).brought
    for number in data.draw(st.lists(st.integers(0, 69), max_size=3)):
        stream[number] = replace(stream[number], every=True)
    for number in data.draw(st.lists(st.integers(0, 69), max_size=3)):
        # a silence; it is told behind the tuples, which here is the same
        newest = stream[number].newest
        assert newest is not None
        stream[number] = replace(stream[number], moment=newest + data.draw(st.integers(1, 200)))
    whole = _waiting(plan)
    wanted = [(window, span.tuples) for each in stream for window, span in whole.take_in(each)]
    creation, unsettled = _waiting(plan), dict[int, CreatedWindow]()
    found: dict[int, tuple[CreatedWindow, int]] = {}
    ends = data.draw(st.lists(st.integers(0, 69), max_size=4).map(sorted))
    first = 0
    for until in [*ends, 69]:
        for each in stream[first : until + 1]:
            for window, span in creation.take_in(each):
                assert found.setdefault(window.end, (window, span.tuples)) == (window, span.tuples)
                unsettled[window.end] = window
            for end in (
                data.draw(st.lists(st.sampled_from(sorted(unsettled)), max_size=2)) if unsettled else ()
            ):
                unsettled.pop(end, None)
        state, needed = _through_json(creation.state(unsettled.values())), creation.needed(unsettled)
        reached = [
            max(int(own.tuples.times.max()) for own in stream[: number + 1]) for number in range(until + 1)
        ]
        first = max(0, int(np.searchsorted(reached, needed)) - 1)
        creation = _waiting(plan, state)
        again: dict[int, CreatedWindow] = {}
        for each in stream[first : until + 1]:
            # it may end here too
            assert creation.state(again.values()) == state
            assert creation.needed(again) == needed
            for window, span in creation.take_in(each):
                assert (window, span.tuples) == found[window.end]
                assert again.setdefault(window.end, window) is window
        assert again == unsettled, "what nothing has become of is told again"
        first = until + 1
    assert list(found.values()) == wanted


def _nothing(like: Tuples) -> Tuples:
    return Tuples(like.columns.slice(0, 0), like.times[:0], like.entries[:0])
