"""Sessions: whatever the order of tuples, the cuts, the restarts and what is final, the published rows are those of all tuples."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from unittest import mock

from hypothesis import given, settings
from hypothesis import strategies as st

from forms import examples
from penstock.operators.running.sessions import Moment
from penstock.operators.running.shard import RunningRecord, RunningShard
from penstock.operators.windows import held_partials, pane
from penstock.operators.windows.shard import WindowProgram
from session_cases import Published, Tuple, envelopes, program, wanted

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
