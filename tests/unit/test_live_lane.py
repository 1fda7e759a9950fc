"""The live lane over the log of a running view's rows, without Spark: what it reads, and what it goes on with."""

from __future__ import annotations

import numpy as np
import pytest

from penstock.spark.publication.manifests import read_published
from penstock.spark.storage.layout import Layout
from plain_live import LIVE_LANE, answer_both, finished, first_of, live_now, live_told, live_view
from plain_running import RunningStream, random_tuples, running_lane, running_plan, told

pytestmark = pytest.mark.usefixtures("own_commits")
MINUTE = 60_000_000


@pytest.mark.parametrize(("limit", "entries"), [(1, 1), (3, 4)])
def test_the_first_rows_follow(layout: Layout, limit: int, entries: int) -> None:
    stream, rng = RunningStream(layout), np.random.default_rng(entries)
    stream.views(running_plan())
    for number in range(4):
        for each in range(3):
            stream.put(*random_tuples(rng, 60, 40), ended=number == 3 and each == 2)
        answer_both(layout, limit, entries)
        assert live_now(layout) == first_of(stream.wanted(), limit)
    newest = [row for row in live_told(layout).to_pylist() if row["is_final"]]
    assert len(newest) == len(live_now(layout)), "at the end all rows are final"


def test_a_view_that_begins_later_or_returns_reads_all_rows(layout: Layout) -> None:
    stream, rng = RunningStream(layout), np.random.default_rng(5)
    stream.views(running_plan())
    view, other = live_view(2), live_view(1, "of another one")
    for views in ([], [view], [], [view], [other]):
        stream.put(*random_tuples(rng, 60, 40))
        answer_both(layout, 2, views=views)
    assert live_now(layout, 2) == first_of(stream.wanted(), 1)
    stream.put(*random_tuples(rng, 60, 40))
    answer_both(layout, 2, views=[other])
    assert live_now(layout, 2) == first_of(stream.wanted(), 1)
    # the view that was dropped and declared again did not go on with a state that had left
    assert {int(kind.partition("/")[0]) for kind in _kinds(layout)} == {0, 1, 2}


def test_a_view_that_begins_while_nothing_comes_reads_all_rows(layout: Layout) -> None:
    stream, rng = RunningStream(layout), np.random.default_rng(7)
    stream.views(running_plan())
    stream.put(*random_tuples(rng, 60, 40))
    finished(running_lane(layout))
    answer_both(layout, 2)
    assert live_now(layout) == first_of(stream.wanted(), 2)


def test_groups_that_leave_the_state_beneath_are_not_ranked(layout: Layout) -> None:
    stream = RunningStream(layout)
    stream.views(running_plan(ttl=10 * MINUTE))
    stream.put([1, 1, 1, 2], [7, 7, 7, 7], [0, 0, 0, 9 * MINUTE])
    stream.put([3], [7], [5 * MINUTE])
    answer_both(layout, 2)
    assert live_now(layout) == [(1, 1, 3, 1), (1, 2, 1, 2)]
    stream.put([3], [7], [16 * MINUTE])
    answer_both(layout, 2)
    final = [row["k"] for row in told(layout).to_pylist() if row["is_final"] and row["coverage"] is None]
    assert final == [1], "its row remains in the view beneath"
    assert live_now(layout) == [(1, 2, 1, 2), (1, 3, 2, 1)]


def _kinds(layout: Layout) -> set[str]:
    return {file.kind for file in read_published(layout, LIVE_LANE).files}
