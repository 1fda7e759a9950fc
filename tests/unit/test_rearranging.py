"""The driver looks at samples where they decide on the order of the ASCs, and at no others."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from penstock.operators.coding.regions import code_selections
from penstock.operators.ingest.stage_counts import StageCounts
from penstock.operators.selection.asc import AscIndex
from penstock.plan.selection import Query, SelectionSet, Term
from penstock.settings import Settings
from penstock.spark.ingest.answering import BatchDone
from penstock.spark.ingest.rearranging import Rearranging
from penstock.spark.storage.events import EventLog
from selection_cases import at_least, at_most, encode, integer_attributes

SELECTIONS = code_selections(
    SelectionSet(integer_attributes(2), (Query("q", (Term(((0, at_most(9)), (1, at_least(90)))),)),))
)
TUPLES = 500


class Followed:
    """A stream whose batches are reported one by one."""

    def __init__(self, folder: Path) -> None:
        self._events = EventLog(folder / "events.jsonl")
        plan = SimpleNamespace(
            program=SimpleNamespace(plan=SimpleNamespace(coded=SELECTIONS)),
            bound=SimpleNamespace(shown=("a", "error in a / b")),
        )
        first = AscIndex(SELECTIONS).given_order()
        #: plan versions that were asked for
        self.asked: list[int] = []
        plans: Any = SimpleNamespace(
            compiled=lambda version: self.asked.append(version) or plan,
            begin_sequence=lambda _: first,
            swap_sequence=lambda *_: None,
        )
        settings = Settings(
            recomputation_period_tuples=1, monitoring_period_tuples=200, rearrangement_threshold=0.02
        )
        self._rearranging = Rearranging(settings, self._events, lambda _: plans)
        self._batch = 0

    def order(self) -> str | None:
        """The sequence that the batches follow, for readers."""
        return self._rearranging.running("s").text

    def report(self, share: float, asc_tried: int, plan: int = 0) -> list[str]:
        """Reports a batch of which a share of the tuples passes the second attribute; what was noted of it."""
        rng = np.random.default_rng(self._batch)
        values = np.array([np.full(TUPLES, 5), np.where(rng.random(TUPLES) < share, 95, 5)])
        counts = StageCounts(tuples=TUPLES, matched=int(share * TUPLES), asc_tried=asc_tried)
        sample = encode(SELECTIONS, values).astype(np.uint32)
        self._rearranging.report(BatchDone("s", self._batch, plan, counts, sample))
        self._rearranging.settle()
        noted = [each for each in self._events.recent if each.get("batch") == self._batch]
        self._batch += 1
        return [str(each.get("action", each["kind"])) for each in noted]


@pytest.fixture
def followed(tmp_path: Path) -> Followed:
    return Followed(tmp_path)


def test_samples_of_batches_that_the_index_answers_are_looked_at_until_an_order_is_found(
    followed: Followed,
) -> None:
    assert "SampleTuples" in (first := followed.report(0.1, 0))
    assert "sequence_sampled" in first
    assert {"SwapSequence", "KeepSequence"} & {*first, *followed.report(0.1, 0)}
    assert str(followed.order()).startswith("error in a / b > a")
    for _ in range(5):
        assert followed.report(0.9, 0) == [], "the index answers: the sample decides nothing"


def test_a_drift_is_found_once_the_ascs_are_tried_again(followed: Followed) -> None:
    for _ in range(2):
        followed.report(0.1, 0)
    followed.report(0.9, 0)
    noted = followed.report(0.9, 100)
    assert noted[0] == "sequence_sampled"
    assert "SampleTuples" in noted


def test_plan_versions_that_change_with_each_batch_are_not_followed(followed: Followed) -> None:
    followed.report(0.1, 0)
    for version in range(1, 5):
        assert followed.report(0.1, 0, version) == []
    assert set(followed.asked) == {0}
    followed.report(0.1, 100, 5)
    assert 5 in followed.asked, "its ASCs were tried"
