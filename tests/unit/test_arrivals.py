"""When tuples arrived: what tasks report, what entries say, and from when a deadline counts."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest

from penstock.operators.ingest import arrivals
from penstock.operators.ingest.arrivals import (
    CLOCK,
    FILE,
    MOST,
    PLANNED,
    RECORD,
    Arrival,
    arrivals_in,
    arrivals_told,
    merged_arrivals,
)
from penstock.spark.ingest import arrived
from penstock.spark.ingest.arrived import ArrivalClock
from penstock.spark.log.entries import Entry
from penstock.spark.tasks.json_stage import TIMESTAMP, _take_in


def test_arrivals_are_what_had_come_by_each_moment() -> None:
    rng = np.random.default_rng(0)
    times, moments = rng.integers(0, 1_000, 500), rng.integers(0, 400, 500)
    parts = [arrivals_in(times[part::3], moments[part::3]) for part in range(3)]
    told = arrivals_told(merged_arrivals(merged_arrivals(parts[0], parts[1]), parts[2]))
    assert len(told) <= MOST
    for wanted in range(0, 1_000, 7):
        reached = moments[times >= wanted]
        found = next((each.moment for each in told if each.newest >= wanted), None)
        assert (found is None) == (not len(reached))
        assert found is None or found <= reached.min(), "never later than the tuple"


def test_arrivals_are_exact_where_they_are_few() -> None:
    told = arrivals_told(arrivals_in(np.array([3, 9, 5]), np.array([20, 30, 10])))
    assert told == (Arrival(10, 5), Arrival(30, 9))
    assert arrivals_in(np.array([3, 9]), 7) == {7: 9}
    assert arrivals_in(np.zeros(0, np.int64), 7) == {}


def test_many_arrivals_are_merged_to_the_earliest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrivals, "MOST", 2)
    assert arrivals_told({10: 1, 20: 2, 30: 3, 40: 4}) == (Arrival(10, 2), Arrival(30, 4))


def test_an_entry_says_which_tuple_closed_a_window() -> None:
    entry = Entry(0, 0, 0, 500, newest=9, arrivals=(Arrival(10, 5), Arrival(30, 9)), arrived_by=FILE)
    assert Entry.of(json.loads(json.dumps(entry.document())), Path("e")) == entry
    assert entry.arrival_of(4) == (10, FILE)
    assert entry.arrival_of(5) == (10, FILE)
    assert entry.arrival_of(6) == (30, FILE)
    assert entry.arrival_of(10) == (500, CLOCK), "silence closed it"
    plain = Entry(0, 0, 0, 500, newest=9)
    assert "arrivals" not in plain.document()
    assert Entry.of(plain.document(), Path("e")).arrival_of(4) == (500, CLOCK)


def _of(monkeypatch: pytest.MonkeyPatch, found: dict[int, int], newest: int | None, **batch: object):  # type: ignore[no-untyped-def]
    monkeypatch.setattr(arrived, "_now", lambda: 1_000_000)
    monkeypatch.setattr(arrived, "planned_at", lambda *_: 2_000)
    monkeypatch.setattr(arrived, "times_of_batch", lambda *_: batch.get("files"))
    program = SimpleNamespace(tuples=batch.get("tuples", "asked for"))
    bound = SimpleNamespace(checkpoint="c", number=0, program=program, arrived_by=batch.get("by", PLANNED))
    counts = SimpleNamespace(arrivals=found, newest_event_time=newest)
    return ArrivalClock().of(bound, counts)  # type: ignore[arg-type]


def test_what_was_there_before_the_run_arrives_as_its_batch_is_planned(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = _of(monkeypatch, {999_999: 7, 1_500_000: 9}, 9, by=FILE)
    assert (found.moments, found.by) == ((Arrival(1_500_000, 9),), FILE)
    found = _of(monkeypatch, {999_999: 7}, 7, by=FILE)
    assert (found.moments, found.by) == ((Arrival(2_000_000, 7),), PLANNED)


def test_other_clocks_that_are_ahead_are_not_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    found = _of(monkeypatch, {1_500_000: 7, 9_000_000: 9}, 9, by=RECORD)
    assert (found.moments, found.by) == ((Arrival(1_500_000, 7), Arrival(2_000_000, 9)), RECORD)


def test_tuples_of_unknown_files_arrive_with_the_earliest_file(monkeypatch: pytest.MonkeyPatch) -> None:
    found = _of(monkeypatch, {}, 7, by=FILE, files={"a": 1_700, "b": 1_600})
    assert (found.moments, found.by) == ((Arrival(1_600_000, 7),), FILE)
    found = _of(monkeypatch, {}, 7)
    assert (found.moments, found.by) == ((Arrival(2_000_000, 7),), PLANNED)
    assert _of(monkeypatch, {}, None).moments == ()
    assert _of(monkeypatch, {}, 7, tuples=None).moments == (), "nobody reads them"


def test_records_of_kafka_arrive_by_their_own_time() -> None:
    seen = []
    values = pa.array([b"1", b"2"], pa.binary())
    stamps = pa.array([20, 10], pa.timestamp("us", "UTC"))
    places = {"partition": pa.array([0, 0], pa.int32()), "offset": pa.array([0, 1], pa.int64())}
    batch = pa.record_batch({"value": values, **places, TIMESTAMP: stamps})
    decoded = SimpleNamespace(decode=lambda _: (batch.slice(1), None, np.array([False, True])))
    task = SimpleNamespace(refused=[], process=lambda *_, **named: seen.append(named["arrived"].tolist()))
    _take_in(task, batch, decoded, None)  # type: ignore[arg-type]
    assert seen == [[10]], "those that the worker decodes"
