"""Tuples that only views with a deadline read wait a little for others, so that a batch has more of them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from penstock.spark.ingest.query import resting_seconds
from penstock.spark.lanes.asking import Asked, ask


@pytest.mark.parametrize(
    ("took", "most", "rest"),
    [
        (0.1, 0.0, 0.0),  # nobody waits
        (0.1, 0.4, 0.3),  # three times as long as the batch took
        (0.05, 1.0, 0.15),
        (0.3, 0.4, 0.1),  # a tuple that came as the batch began has waited as long as it may
        (0.5, 0.4, 0.0),  # a batch that takes longer gathers by itself
    ],
)
def test_a_batch_rests_by_what_it_took_and_no_longer_than_tuples_may_wait(
    took: float, most: float, rest: float
) -> None:
    assert resting_seconds(took, most) == pytest.approx(rest)


@pytest.mark.parametrize(("asked", "patience"), [([], 0.0), ([0.4, 0.2], 0.2), ([0.4, 0.0], 0.0)])
def test_tuples_wait_as_long_as_the_least_patient_reader_lets_them(
    asked: list[float], patience: float
) -> None:
    plans: Any = SimpleNamespace(demands=(), patience=None, demanding=None, demand_all=list)
    log: Any = None
    ask(log, plans, [Asked("lane", f"v{number}", (), False, each) for number, each in enumerate(asked)])
    assert plans.patience == patience
