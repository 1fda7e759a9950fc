"""When a left tuple of a LEFT JOIN is due, by what the logs of its streams say, and which older tuples that needs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from log_places import log_at
from penstock.errors import DamagedError
from penstock.operators.joins.changes import Due
from penstock.plan.joins import JoinColumn, JoinInput, JoinPlan, TimeBound
from penstock.plan.times import BEFORE_ALL
from penstock.spark.lanes.cuts import Reach
from penstock.spark.lanes.joins.due import DueTimes
from penstock.spark.lanes.joins.needed import Span, needed_spans, needed_without_partners
from penstock.spark.log.entries import Entry
from penstock.spark.log.stream_log import StreamLog
from penstock.spark.storage.formats import LOG_KEPT
from penstock.spark.storage.ledger_documents import commit
from penstock.stores.ledger import Range

TS = JoinColumn("ts", "ts", pa.timestamp("us", "UTC"))
INPUTS = tuple(JoinInput(name, name, False, None, (TS,), "ts") for name in ("l", "r"))
#: partners are from 10 before to 5 behind a left tuple
PLAN = JoinPlan("j", INPUTS, (), (TimeBound(0, 1, -10, 5),), (), (), (), optional=(1,))
MOST_DELAY = 1_000


@pytest.fixture
def logs(tmp_path: Path) -> dict[str, StreamLog]:
    return {name: StreamLog(log_at(tmp_path / name)) for name in ("l", "r")}


def put(log: StreamLog, number: int, newest: int | None, **said: object) -> None:
    assert log.append(Entry(number, number, 0, number, newest, newest, **said))  # type: ignore[arg-type]


def reach(left: int, right: int) -> dict[str, Reach]:
    return {"l": Reach(left, left), "r": Reach(right, right)}


def test_left_tuples_are_due_when_the_right_stream_and_its_slack_have_passed_them(
    logs: dict[str, StreamLog],
) -> None:
    times = DueTimes(PLAN, logs, MOST_DELAY)
    put(logs["l"], 0, 500)
    put(logs["r"], 0, None)
    assert times.due(BEFORE_ALL, reach(0, -1)) == Due(BEFORE_ALL, BEFORE_ALL)
    assert times.due(BEFORE_ALL, reach(0, 0)) == Due(BEFORE_ALL, BEFORE_ALL)
    put(logs["r"], 1, 100)
    # a right tuple of 100 may still come with the next batch: it is a partner of 95 and later
    assert times.due(BEFORE_ALL, reach(0, 1)) == Due(BEFORE_ALL, 94)
    put(logs["r"], 2, 200, delays=(7, 30))
    assert times.due(94, reach(0, 2)) == Due(94, 164)
    put(logs["r"], 3, 210, delays=(MOST_DELAY + 1, 3))
    assert times.due(164, reach(0, 3)) == Due(164, 174)
    put(logs["r"], 4, 210, reached=400)
    assert times.due(174, reach(0, 4)) == Due(174, 364)
    put(logs["r"], 5, 220, delays=(180,))
    assert times.due(364, reach(0, 5)) == Due(364, 364), "what was told stays told"
    for number in range(6, 70):
        put(logs["r"], number, 600)
    # a lane that is begun again looks at the newest entries too
    for each in (times, DueTimes(PLAN, logs, MOST_DELAY)):
        assert each.due(364, reach(0, 69)) == Due(364, 594)


class LeavingLog(StreamLog):
    """Its first four entries leave as soon as somebody has looked so many times whether they are there."""

    looks = 0

    @property
    def first(self) -> int:
        found = super().first
        self.looks -= 1
        if not self.looks:
            left = LOG_KEPT.stamped(replace(self.kept(), first=4).document())
            commit({self.log.kept: left}, beneath=[Range(self.log.entries.prefix, before=4)])
        return found


@pytest.mark.parametrize("looks", [1, 2])
def test_entries_that_leave_while_delays_are_looked_at_are_no_gap(
    logs: dict[str, StreamLog], tmp_path: Path, looks: int
) -> None:
    put(logs["l"], 0, 500)
    log = LeavingLog(log_at(tmp_path / "r"))
    for number in range(8):
        put(log, number, 200 + number, delays=(number,))
    log.looks = looks
    times = DueTimes(PLAN, {**logs, "r": log}, MOST_DELAY)
    assert times.due(94, reach(0, 7)) == Due(94, 207 - 7 - 6)
    assert log.first == 4
    assert times.due(94, reach(0, 3)) == Due(94, 94), "nothing is known of an entry that has left"
    log.log.entries[6].remove()
    with pytest.raises(DamagedError, match="entry/log/6"):
        DueTimes(PLAN, {**logs, "r": log}, MOST_DELAY).due(94, reach(0, 7))


@pytest.mark.parametrize("mark", ["answer_all", "ended"])
def test_at_the_end_all_left_tuples_there_are_become_due(logs: dict[str, StreamLog], mark: str) -> None:
    times = DueTimes(PLAN, logs, MOST_DELAY)
    put(logs["l"], 0, 500)
    put(logs["l"], 1, 700)
    put(logs["r"], 0, 100)
    put(logs["r"], 1, 100, **{mark: True})
    due = times.due(94, reach(0, 1))
    assert due == Due(94, 500)
    assert times.are_waiting(due, reach(0, 1))
    due = times.due(500, reach(1, 1))
    assert due == Due(500, 700)
    assert not times.are_waiting(times.due(700, reach(1, 1)), reach(1, 1))


def test_what_was_all_there_is_in_an_earlier_run_makes_nothing_due(logs: dict[str, StreamLog]) -> None:
    times = DueTimes(PLAN, logs, MOST_DELAY)
    put(logs["l"], 0, 500)
    put(logs["r"], 0, 100, answer_all=True)
    assert times.due(94, reach(0, 0)) == Due(94, 500)
    put(logs["r"], 1, 100)
    put(logs["l"], 1, 900)
    for right in (0, 1):
        assert times.due(500, reach(1, right)) == Due(500, 500)
    put(logs["r"], 2, 100, answer_all=True)
    assert times.due(500, reach(1, 2)) == Due(500, 900)


def test_one_left_tuple_too_far_ahead_does_not_take_the_others_time_away(logs: dict[str, StreamLog]) -> None:
    times = DueTimes(PLAN, logs, MOST_DELAY)
    for number, newest in enumerate((None, 500)):
        assert logs["l"].append(Entry(number, number, 0, number, newest, furthest=10**9))
    put(logs["r"], 0, 100, answer_all=True)
    assert times.due(94, reach(1, 0)) == Due(94, 500)
    assert times.due(94, reach(0, 0)) == Due(94, 10**9), "there is no other to go by"
    put(logs["r"], 1, 100, ended=True)
    assert times.due(500, reach(1, 1)) == Due(500, 10**9), "no partner comes any more"


def test_what_is_not_due_yet_is_needed_with_its_partners(logs: dict[str, StreamLog]) -> None:
    assert DueTimes(PLAN, logs, MOST_DELAY).needed(94) == {"l": 95, "r": 85}
    itself = replace(PLAN, inputs=(INPUTS[0], INPUTS[0]))
    assert DueTimes(itself, logs, MOST_DELAY).needed(94) == {"l": 85}


def test_a_cut_needs_what_is_due_and_what_new_tuples_meet_with_all_partners() -> None:
    def needed(new: dict[int, Span], due: Due) -> dict[int, Span]:
        return needed_without_partners(PLAN, needed_spans(PLAN, new), due)

    assert needed({}, Due(94, 94)) == {}
    assert needed({}, Due(94, 164)) == {0: Span(95, 164), 1: Span(85, 169)}
    assert needed({0: Span(50, 60)}, Due(94, 94)) == {1: Span(40, 65)}
    # left ones that may be withdrawn, and what they may have met before
    assert needed({1: Span(50, 60)}, Due(94, 94)) == {0: Span(45, 70), 1: Span(35, 75)}
    assert needed({0: Span(200, 200), 1: Span(50, 60)}, Due(94, 100)) == {
        0: Span(45, 100),
        1: Span(35, 205),
    }


def test_behind_other_joins_the_first_stream_says_what_is_due(
    logs: dict[str, StreamLog], tmp_path: Path
) -> None:
    """A static table and a stream between: the latter's tuples are up to 20 behind the first one's."""
    logs = {**logs, "m": StreamLog(log_at(tmp_path / "m"))}
    table = replace(INPUTS[0], relation="t", is_static=True, time=None)
    between = replace(INPUTS[0], relation="m")
    bounds = (TimeBound(1, 2, 0, 20), TimeBound(1, 3, -10, 25), TimeBound(2, 3, -10, 5))
    plan = replace(PLAN, inputs=(table, INPUTS[0], between, INPUTS[1]), bounds=bounds, optional=(3,))
    times = DueTimes(plan, logs, MOST_DELAY)
    put(logs["l"], 0, 500)
    put(logs["r"], 0, 100)
    assert times.due(BEFORE_ALL, reach(0, 0)) == Due(BEFORE_ALL, 74)
    assert times.needed(74) == {"l": 75, "m": 75, "r": 65}

    def needed(new: dict[int, Span], due: Due) -> dict[int, Span]:
        return needed_without_partners(plan, needed_spans(plan, new), due)

    assert needed({}, Due(74, 84)) == {1: Span(75, 84), 2: Span(75, 104), 3: Span(65, 109)}
    assert needed({3: Span(200, 200)}, Due(84, 84)) == {
        1: Span(175, 210),
        2: Span(195, 210),
        3: Span(165, 235),
    }
