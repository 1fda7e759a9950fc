"""What a lane of deadlines settles is published beside its thread, in order; and where the lane goes on from it."""

from __future__ import annotations

import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.settings import Settings
from penstock.spark.lanes.cuts import Reach
from penstock.spark.lanes.deadlines.ledger import RELEASED, Instance, Outcome
from penstock.spark.lanes.deadlines.publication_times import PublicationTimes
from penstock.spark.lanes.deadlines.publications import Publications
from penstock.spark.lanes.deadlines.publishing import (
    Judged,
    OutcomePublication,
    Settled,
    marks_of,
    outcome_publisher,
    resumed_from,
)
from penstock.spark.log.stream_log import LogReader
from penstock.spark.publication.retention import FOREVER
from penstock.spark.storage.layout import Layout

LANE = "deadlines.0.results"


def _settled(number: int, *, until: int = -1) -> Settled:
    instance = Instance(0, 0, number, 0, 0.0, 0.0, 1.0)
    outcome = Outcome(instance, RELEASED, {"k'": 0, "m'": 1, "rho": 1.0})
    return Settled(Judged([outcome]), float(number), {"s": Reach(number)}, {}, {"s": (until, until)}, {})


def test_the_lane_goes_on_behind_what_is_published(tmp_path: Path) -> None:
    layout = Layout.of(tmp_path / "out", None)
    layout.open()
    context: Any = SimpleNamespace(layout=layout, settings=Settings(), retention=FOREVER)
    readers = {"s": LogReader(layout.log("s"))}
    publisher = outcome_publisher(LANE, context, ())
    assert resumed_from(LANE, readers, None).reach == {"s": Reach(-1)}
    publication = OutcomePublication(LANE, publisher, {}, context, 0)
    settled = Settled(Judged(), 0.0, {"s": Reach(-1)}, {}, {"s": (-1, -1)}, {})
    publication.publish(settled, marks_of(LANE, readers, {}, settled))
    assert publication.number == 1
    assert resumed_from(LANE, readers, publisher.published(0)).reach == {"s": Reach(-1)}


def test_what_is_settled_during_a_publication_is_published_together() -> None:
    published: list[Settled] = []
    begun, goes_on = threading.Event(), threading.Event()

    def publish(settled: Settled) -> None:
        published.append(settled)
        begun.set()
        assert goes_on.wait(10)

    publications = Publications(SimpleNamespace(number=0), publish, lambda: None)  # type: ignore[arg-type]
    publications.put(_settled(0))
    assert begun.wait(10)
    publications.put(_settled(1))
    publications.put(_settled(2, until=2))
    assert not publications.is_idle
    goes_on.set()
    publications.close()
    assert publications.is_idle
    first, second = published
    assert [each.instance.end for each in first.judged.outcomes] == [0]
    assert [each.instance.end for each in second.judged.outcomes] == [1, 2]
    assert (second.began, second.reach, second.left) == (1.0, {"s": Reach(2)}, {"s": (2, 2)})


def test_what_a_publication_raises_is_raised_in_the_lane_and_nothing_follows() -> None:
    published: list[Settled] = []

    def publish(settled: Settled) -> None:
        published.append(settled)
        raise OSError("full")

    failed = threading.Event()
    publications = Publications(SimpleNamespace(number=0), publish, failed.set)  # type: ignore[arg-type]
    publications.check()
    publications.put(_settled(0))
    publications.close()
    publications.put(_settled(1))
    with pytest.raises(OSError, match="full"):
        publications.check()
    assert len(published) == 1


def test_a_publication_of_a_backlog_does_not_slow_the_prediction_of_small_ones() -> None:
    times = PublicationTimes()
    assert times.expected(20) == 0.05
    times.learn(3_250, 9.2)
    assert times.expected(4_000) == pytest.approx((0.05 + 9.2) / 2)
    assert times.expected(20) < 0.1, "its share of the only one that is known"
    times.learn(20, 0.4)
    times.learn(20, 0.2)
    assert times.expected(20) == times.expected(200) == pytest.approx(0.3)
    assert times.expected(1) == 0.05
    assert times.expected(0) == times.expected(1)
    assert times.expected(4_000) > 4
    times.learn(1, 0.1)
    times.learn(1, 0.01)
    assert times.expected(3) == pytest.approx(0.055)
    for _ in range(6):
        times.learn(20, 0.01)
    assert times.expected(4_000) < 1, "the large one was long ago"
