"""Rows leave in the order of their publication, by whole files; readers, sinks and numbers of rows stay right."""

from __future__ import annotations

import random
from pathlib import Path
from types import SimpleNamespace

import pytest

from forms import thinned
from killing import forked
from penstock.monitor.published import published_files
from penstock.monitor.verification import verify
from penstock.spark.publication import publish
from penstock.spark.publication.kinds import results_of
from penstock.spark.publication.manifests import read_published
from penstock.spark.publication.retention import Needed, Retention
from penstock.spark.results.read_plain import plain_rows
from penstock.spark.sinks.published import Limits
from penstock.spark.storage.failpoints import RETENTION_NAMES
from penstock.spark.storage.formats import SINK
from penstock.spark.storage.layout import Layout
from sink_cases import SELECTION, STREAM, WINDOWS, Folder, Revision
from sinks_taken import Taken, sink_to

KEPT = 80.0


class Clock:
    """The time at which batches are published."""

    now = 1_000.0

    def time(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock()
    monkeypatch.setattr(publish, "time", SimpleNamespace(time=found.time))
    return found


def _kept(folder: Path) -> list[int]:
    rows = plain_rows(Layout.of(folder, None), SELECTION, 0)
    assert rows is not None
    assert rows.count == rows.rows.num_rows
    return rows.rows.column("id").to_pylist()  # type: ignore[no-any-return]


def test_rows_leave_when_they_are_older_than_their_retention(tmp_path: Path, clock: Clock) -> None:
    folder = Folder(tmp_path / "out", retention=Retention(KEPT))
    for number in range(6):
        folder.match([number * 10, number * 10 + 1])
        clock.now += 20
    folder.remove_old(clock.now)
    assert _kept(folder.layout.output) == [20, 21, 30, 31, 40, 41, 50, 51]
    folder.remove_old(clock.now + 1_000)
    assert _kept(folder.layout.output) == [50, 51], "the newest batch remains"
    assert [each.rows for each in published_files(folder.layout.output)] == [2]
    assert len(list(folder.layout.matches(STREAM).iterdir())) == 1, "the files are deleted"
    told = [event for event in folder.events.recent if event["kind"] == "rows_removed"]
    assert [(each["stream"], each["rows_of"], each["rows"]) for each in told] == [
        (STREAM, "matches", 4),
        (STREAM, "matches", 6),
    ]
    folder.close()


def test_rows_without_a_retention_remain(tmp_path: Path, clock: Clock) -> None:
    retention = Retention()
    retention.of_names = {WINDOWS: KEPT}
    folder = Folder(tmp_path / "out", retention=retention)
    folder.match([1], [2])
    folder.answer([("a", 0, 1, False, False)], [("a", 0, 2, True, False)])
    folder.remove_old(clock.now + 1_000)
    assert _kept(folder.layout.output) == [1, 2]
    assert read_published(folder.layout, results_of(STREAM)).removed(f"3/{WINDOWS}") == 1
    folder.close()


@pytest.mark.parametrize("seed", thinned(range(6), 3))
def test_readers_and_sinks_see_a_suffix_whatever_is_merged(tmp_path: Path, clock: Clock, seed: int) -> None:
    """Random batches, merges, removals, restarts and deliveries, compared with a list."""
    chance = random.Random(seed)
    retention = Retention(KEPT)
    every, output = chance.choice([0, 2, 3, 5]), tmp_path / "out"
    folder, target = Folder(output, every, retention), Taken()
    sink = sink_to(target, limits=chance.choice([Limits(None, 1), Limits(3, None)]))
    # (time of publication, id) of all rows, those of the other view among them
    rows: list[tuple[float, int]] = []
    gone = 0
    for number in range(60):
        ids = [number * 10 + each if chance.random() < 0.8 else -1 for each in range(chance.randrange(4))]
        folder.match(ids)
        rows += [(clock.now, each) for each in ids]
        gone = read_published(folder.layout, STREAM).removed("matches")
        clock.now += chance.uniform(0, 6)
        if chance.random() < 0.3:
            folder.remove_old(clock.now)
            left = read_published(folder.layout, STREAM).removed("matches")
            assert left >= gone
            gone = left
            assert all(time < clock.now - KEPT for time, _ in rows[:gone]), "none leaves early"
            ripe = sum(time < clock.now - KEPT * (1 + 1 / 8) - 6 * max(1, every) * 2 for time, _ in rows)
            assert gone >= ripe, "none remains much longer"
        assert _kept(output) == [each for _, each in rows[gone:] if each >= 0]
        if chance.random() < 0.1:
            folder.close()
            folder = Folder(output, every, retention)
        if chance.random() < 0.2:
            retention.needed = lambda *_: {}
            folder.deliver(sink)
            assert target.ids == [each for _, each in rows if each >= 0]
            place = _place(folder)
            retention.needed = lambda *_, first=place: {"matches": Needed(first, ("taken",))}  # type: ignore[misc]
        if not number:
            retention.needed = lambda *_: {"matches": Needed(0, ("taken",))}
    folder.deliver(sink)
    assert target.ids == [each for _, each in rows if each >= 0], "what a sink lacks is held"
    assert len(set(target.ordinals)) == len(target.ids)
    late = Taken()
    folder.deliver(sink, sink_to(late, "late"))
    assert late.ids == [each for _, each in rows[gone:] if each >= 0]
    assert late.ordinals == target.ordinals[len(target.ids) - len(late.ids) :]
    folder.close()
    assert verify(output).faults == []


def _place(folder: Folder) -> int:
    mark = SINK.read(folder.layout.sinks["taken.large"])
    assert mark is not None
    return int(mark["feeds"][0]["place"]["rows"])


@pytest.mark.long
def test_the_number_of_files_stays_small(tmp_path: Path, clock: Clock) -> None:
    folder = Folder(tmp_path / "out", 4, Retention(KEPT))
    counts = []
    for number in range(800):
        folder.match([number])
        clock.now += 1
        if number % 10 == 9:
            folder.remove_old(clock.now)
            counts.append(len(published_files(folder.layout.output)))
            kept = _kept(folder.layout.output)
            assert kept == list(range(kept[0], number + 1))
            assert len(kept) <= KEPT * (1 + 1 / 8) + 15
    assert max(counts) <= 9 + 5 + 5
    folder.close()


def test_a_retention_that_ends_leaves_the_order_of_rows(tmp_path: Path, clock: Clock) -> None:
    retention = Retention(KEPT)
    folder = Folder(tmp_path / "out", 2, retention)
    for number in range(300):
        if number == 100:
            retention.needed = lambda *_: {"matches": Needed(0, ("x",))}
            retention._seconds = None
        folder.match([number])
        clock.now += 3
    assert _kept(folder.layout.output) == list(range(300))
    folder.close()


def test_newest_revisions_never_become_older_ones(tmp_path: Path, clock: Clock) -> None:
    folder = Folder(tmp_path / "out", retention=Retention(KEPT))
    cuts: list[list[Revision]] = [
        [("a", 0, 1, False, False), ("b", 0, 5, False, False)],
        [("a", 0, 2, False, False)],
        [("a", 0, 2, False, True)],
        [("c", 60, 7, True, False)],
    ]
    for cut in cuts:
        folder.answer(cut)
        clock.now += 10
    seen = []
    for later in range(0, 60, 10):
        folder.remove_old(clock.now + KEPT - 40 + later)
        found = plain_rows(folder.layout, WINDOWS, 0)
        assert found is not None
        seen.append(found.rows.select(["city", "n"]).to_pylist())
    b, c = {"city": "b", "n": 5}, {"city": "c", "n": 7}
    assert seen[0] == [b, c]
    assert all(each in ([b, c], [c]) for each in seen)
    assert seen[-1] == [c]
    folder.close()


def test_a_sink_that_is_behind_is_told_what_it_missed(tmp_path: Path, clock: Clock) -> None:
    folder, target = Folder(tmp_path / "out", retention=Retention(KEPT)), Taken()
    folder.match([1, 2])
    folder.deliver(sink_to(target))
    folder.match([3, -1], [4], [5])
    folder.remove_old(clock.now + 1_000)
    folder.match([6])
    folder.deliver(sink_to(target))
    assert target.ids == [1, 2, 5, 6]
    missed = [event for event in folder.events.recent if event["kind"] == "sink_missed"]
    assert [(each["sink"], each["rows"]) for each in missed] == [("taken.large", 3)]
    folder.deliver(sink_to(target))
    assert target.ids == [1, 2, 5, 6]
    folder.close()


@pytest.mark.parametrize("kept", [0, 1])
def test_a_planned_delivery_whose_rows_left_uses_up_its_number(
    tmp_path: Path, clock: Clock, kept: int
) -> None:
    """The target may have it: no other rows get its number."""
    folder, target = Folder(tmp_path / "out", 1 - kept, retention=Retention(KEPT)), Taken()
    folder.match([1])
    folder.deliver(sink_to(target))
    target.fails = [ConnectionError("away")] * 100
    folder.match([2], [3])
    followers, _ = folder.followers(lambda: False, is_bounded=False)
    limits = Limits(None, None) if kept else Limits(None, 1)
    followers.set([sink_to(target, limits=limits)])
    followers.start()
    while (SINK.read(folder.layout.sinks["taken.large"]) or {})["planned"] is None:
        pass
    followers.stop()
    clock.now += 50
    folder.match([4])
    if not kept:
        folder.match([5])
    folder.remove_old(clock.now + KEPT - 20)
    target.fails = []
    folder.deliver(sink_to(target, limits=limits))
    assert target.ids[:1] == [1]
    assert target.ids[-1] == (4 if kept else 5)
    assert 2 not in target.ids
    assert target.numbers == [0, 2] if kept else target.numbers[1] >= 2
    folder.close()


@pytest.mark.parametrize("place", RETENTION_NAMES)
@pytest.mark.parametrize("every", [0, 2])
def test_a_kill_loses_no_row_that_is_kept(tmp_path: Path, clock: Clock, place: str, every: int) -> None:
    output = tmp_path / "out"
    folder = Folder(output, every, Retention(KEPT))
    for number in range(9):
        folder.match([number])
        clock.now += 20
    folder.close()

    assert forked(_remove, output, every, clock.now, failpoint=place) == -9
    kept = _kept(output)
    assert kept == list(range(0 if place == "rows_leave" else 9 - len(kept), 9))
    folder = Folder(output, every, Retention(KEPT))
    folder.remove_old(clock.now)
    kept = _kept(output)
    assert kept == list(range(9 - len(kept), 9))
    assert 4 <= len(kept) <= 5
    listed = {each.path for each in published_files(output)}
    assert set(folder.layout.matches(STREAM).iterdir()) == listed, "no file is left behind"
    folder.match([9])
    folder.close()
    assert verify(output).faults == []


def _remove(output: Path, every: int, now: float) -> None:
    Folder(output, every, Retention(KEPT)).remove_old(now)
