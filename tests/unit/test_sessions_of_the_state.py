"""Which sessions are final, which leave the state, and which tuples are left out because theirs has."""

from __future__ import annotations

import pytest

from session_cases import SessionShard


def test_final_sessions_are_corrected_and_leave_after_their_time() -> None:
    own = SessionShard(10, 100)
    said = own.published
    own.put(0, ("a", 0, 1), ("b", 5, 1))
    assert not said.final
    own.put(1, ("a", 100, 1))
    assert said.final == {("a", 0, 10), ("b", 5, 15)}
    # one is corrected, the other grows
    own.put(2, ("a", 0, 3), ("b", 14, 2))
    assert said.rows["a", 0, 10][:2] == (2, 4)
    assert said.rows["b", 5, 24][:2] == (2, 3)
    assert said.final == {("a", 0, 10), ("b", 5, 24)}
    # a late tuple makes one of a final and an open session
    own.put(3, ("c", 85, 1), ("c", 105, 1))
    assert ("c", 85, 95) in said.final
    own.put(4, ("c", 95, 1))
    assert {name for name in said.rows if name[0] == "c"} == {("c", 85, 115)}
    assert ("c", 85, 115) not in said.final
    assert not own.left_out
    rows = own.shard.rows
    own.put(300, ("a", 400, 1))
    own.put(600, ("a", 800, 1))
    assert own.shard.rows < rows
    own.put(601, ("a", 0, 3), ("a", 799, 1))
    assert own.left_out == 1
    assert said.rows["a", 0, 10][:2] == (2, 4), "what was final is left as it is"
    assert said.rows["a", 799, 810][:2] == (2, 2)


def test_what_a_session_said_is_withdrawn_before_what_it_says_now() -> None:
    own = SessionShard(10, 10**15)
    own.put(0, ("a", 0, 1), ("b", 50, 1))
    own.put(1, ("b", 100, 1))
    own.put(2, ("a", 9, 1), ("b", 105, 1))
    told = [(row["_k0"], row["session_end"], each) for each in own.answers for row in each.rows.to_pylist()]
    assert [(key, end, each.withdrawn, each.final) for key, end, each in told] == [
        ("b", 110, True, False),
        ("a", 10, True, True),
        ("b", 115, False, False),
        ("a", 19, False, True),
    ], "a withdrawn row is final if what was told of it was"


def test_tuples_within_a_session_of_the_state_are_no_tuples_of_one_that_has_left() -> None:
    """One session stays open while event time goes on, and what was final longer than that ago has left."""
    own = SessionShard(10, 100)
    for time in range(0, 480, 8):
        own.put(time, ("open", time, 1), ("short", time, 1) if time == 40 else ("open", time, 1))
    assert own.left_until > 200
    assert own.left_out == 0
    own.put(481, ("open", 103, 1), ("short", 40, 1), ("new", 100, 1))
    assert own.left_out == 2
    spans = set(own.published.rows)
    assert spans == {("open", 0, 482), ("short", 40, 50)}
    assert own.published.rows["open", 0, 482][0] == 120


def test_tuples_that_may_join_a_session_with_one_that_has_left_are_left_out() -> None:
    own = SessionShard(10, 20)
    own.put(0, ("a", 0, 1))
    own.put(1, ("a", 12, 1), ("a", 22, 1), ("a", 32, 1), ("b", 40, 1))
    own.put(31, ("b", 45, 1))
    assert own.left_until == 30
    before = dict(own.published.rows)
    own.put(32, ("a", 3, 1))
    assert own.left_out == 1
    assert own.published.rows == before, "it would join sessions, of which one is known no more"


def test_no_session_leaves_before_event_time_has_passed_it() -> None:
    """The end of the stream makes sessions final that the next tuple extends."""
    own = SessionShard(10, 100)
    own.put(0, ("a", 0, 1), ("a", 5, 1), ended=True)
    assert own.published.final == {("a", 0, 15)}
    own.put(500, ("a", 7, 1))
    assert own.published.rows.keys() == {("a", 0, 17)}
    own.put(1000, ("a", 7, 1))
    assert own.left_out == 0


def test_a_session_that_was_final_early_leaves_once_event_time_has_passed_it() -> None:
    own = SessionShard(10, 100)
    own.put(0, ("a", 500, 1), ended=True)
    own.put(500, ("b", 505, 1))
    own.put(600, ("a", 508, 1))
    assert own.published.rows.keys() == {("a", 500, 518), ("b", 505, 515)}
    for time in range(600, 2000, 100):
        own.put(time, ("b", time, 1))
    assert own.shard.rows < 15
    own.put(2001, ("a", 500, 1))
    assert own.left_out == 1


@pytest.mark.parametrize("ended", [False, True])
def test_nothing_is_final_and_nothing_leaves_before_the_operator_is_whole(ended: bool) -> None:
    own = SessionShard(10, 20, lacks_past=True)
    for time in range(0, 1000, 50):
        own.put(time, ("a", time, 1), delays=[0])
    own.put(2000, ended=ended)
    assert not own.published.final
    for _ in range(2):
        # the log may have it twice
        own.put(2000, ("a", -5, 1), ("a", 60, 1), ("a", 102, 1), makes_whole=True, ended=ended)
    assert own.left_out == 0
    rows = own.published.rows
    assert {name[1:]: rows[name][0] for name in rows if name[1] < 160} == {
        (-5, 10): 2,
        (50, 70): 2,
        (100, 112): 2,
        (150, 160): 1,
    }
    assert ("a", -5, 10) in own.published.final
    assert (own.published.final == rows.keys()) == ended
    own.put(3000, ("a", 1000, 1))
    assert own.shard.rows < 10
    own.put(3001, ("a", -5, 1))
    assert own.left_out == 1
