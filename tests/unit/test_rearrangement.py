"""The rearrangement policy and the controller around it."""

from __future__ import annotations

import json

import numpy as np
import pytest

from penstock.control.actions import KeepSequence, SampleTuples, SwapSequence
from penstock.control.controller import Controller
from penstock.control.events import SelectionsBound, StatisticsReported
from penstock.control.policies.rearrangement import LEAST_GAIN, RearrangementPolicy, RearrangementSettings
from penstock.kernels.asc import Codes
from penstock.operators.coding.regions import code_selections
from penstock.operators.selection.asc import AscIndex
from penstock.plan.arrangement import ArrangementKind
from penstock.plan.selection import Query, SelectionSet, Term
from penstock_lab.simulate.baselines import extreme_orders
from penstock_lab.simulate.selection import run_adaptive
from selection_cases import at_least, at_most, between, encode, integer_attributes

#: Two queries over three attributes: who drops a tuple first depends on the data alone.
SELECTIONS = code_selections(
    SelectionSet(
        integer_attributes(3),
        (
            Query("q0", (Term(((0, at_most(9)), (1, at_least(90)), (2, between(40, 60)))),)),
            Query("q1", (Term(((0, at_most(19)), (1, at_least(80)), (2, between(40, 60)))),)),
        ),
    )
)
INDEX = AscIndex(SELECTIONS)


def tuples_passing(shares: tuple[float, float, float], rows: int, seed: int) -> Codes:
    """Tuples that pass q0's predicate on each attribute with the given probabilities."""
    rng = np.random.default_rng(seed)
    passing, failing = np.array([[5], [95], [50]]), np.array([[50], [50], [5]])
    chosen = rng.random((3, rows)) < np.array(shares)[:, None]
    return encode(SELECTIONS, np.where(chosen, passing, failing))


def report(sample: Codes, version: int = 1, tuples: int | None = None) -> StatisticsReported:
    return StatisticsReported("s", version, tuples or sample.shape[1], sample)


def controller(**settings: object) -> Controller:
    defaults = {"kind": ArrangementKind.MACRO, "recomputation_tuples": 1000, "period_tuples": 200}
    policy = RearrangementPolicy(RearrangementSettings(**{**defaults, **settings}))
    made = Controller([policy], clock=lambda: 12.0)
    assert [type(a) for a in made.handle(SelectionsBound("s", 1, INDEX))] == [SampleTuples]
    return made


def test_first_sequence_takes_one_period_less_than_ascs() -> None:
    made = controller()
    assert made.handle(report(tuples_passing((0.9, 0.5, 0.1), 399, 1))) == []
    (swap,) = made.handle(report(tuples_passing((0.9, 0.5, 0.1), 1, 2)))
    assert isinstance(swap, SwapSequence)
    assert swap.arrangement.order == (2, 1, 0)
    assert swap.figures["evaluations"] < swap.figures["evaluations_before"]


def test_the_runner_up_of_a_sequence_is_its_closest_other_choice() -> None:
    made = controller()
    (swap,) = made.handle(report(tuples_passing((0.9, 0.2, 0.1), 400, 1)))
    assert swap.arrangement.order == (2, 1, 0)
    assert swap.runner_up.order == (1, 2, 0)
    told = swap.fields()["runner_up"]
    assert (told["order"], told["kind"]) == ([1, 2, 0], "macro")
    evaluations, lost = swap.figures["evaluations"], swap.figures["runner_up_evaluations"]
    assert evaluations < lost < swap.figures["evaluations_before"]
    assert f"; the runner-up {lost:.4g}. The cost falls by " in swap.reason
    before = swap.fields()["before"]
    assert (before["order"], before["kind"]) == ([0, 1, 2], "fixed")


def test_an_order_that_saves_less_than_the_least_gain_is_not_taken() -> None:
    """What two samples differ by would otherwise change the order to and fro."""
    made = controller()
    (kept,) = made.handle(report(tuples_passing((0.995, 0.995, 0.99), 400, 1)))
    assert isinstance(kept, KeepSequence)
    assert kept.arrangement.order == (0, 1, 2)
    assert kept.figures["gain"] < LEAST_GAIN
    assert kept.figures["evaluations"] == kept.figures["evaluations_before"]
    assert kept.reason.endswith("No order that was found saves 1 % of the cost.")


def test_the_gain_of_an_order_is_in_the_cost_of_its_columns() -> None:
    """The new order checks more columns, of which the dear one comes last."""
    made = controller()
    passing = tuples_passing((0.1, 0.6, 0.6), 400, 1)
    dear = np.array([2000.0, 2.0, 2.0])
    swap = made.handle(StatisticsReported("s", 1, passing.shape[1], passing, dear))[-1]
    assert isinstance(swap, SwapSequence)
    assert swap.arrangement.order[-1] == 0
    assert swap.figures["evaluations"] > swap.figures["evaluations_before"]
    assert swap.figures["gain"] > LEAST_GAIN


def test_steady_data_is_left_alone_and_drift_of_the_dropping_ratio_is_named() -> None:
    made = controller(threshold=0.2)
    made.handle(report(tuples_passing((0.9, 0.5, 0.1), 400, 1)))
    assert made.handle(report(tuples_passing((0.9, 0.5, 0.1), 1000, 2))) == []
    asked, swap = made.handle(report(tuples_passing((0.9, 0.5, 0.9), 1000, 3)))
    assert isinstance(asked, SampleTuples)
    assert "share of rows without a match" in asked.figures["trigger"]
    assert isinstance(swap, SwapSequence)
    assert swap.arrangement.order == (1, 0, 2)


def test_drift_that_keeps_the_dropping_ratio_is_seen_by_the_evaluations() -> None:
    made = controller(threshold=0.2)
    made.handle(report(tuples_passing((0.9, 0.5, 0.1), 400, 1)))
    asked, swap = made.handle(report(tuples_passing((0.1, 0.5, 0.9), 1000, 3)))
    assert asked.figures["trigger"] == "checks a row"
    assert swap.arrangement.order == (0, 1, 2)


def test_a_column_that_is_dear_to_code_comes_later() -> None:
    made = controller(threshold=0.2)
    passing = tuples_passing((0.9, 0.5, 0.1), 400, 1)
    told = StatisticsReported("s", 1, passing.shape[1], passing, np.array([2.0, 2.0, 200.0]))
    swap = made.handle(told)[-1]
    assert isinstance(swap, SwapSequence)
    assert swap.arrangement.order == (1, 0, 2)


def test_threshold_zero_measures_every_period_and_keeps_the_same_sequence() -> None:
    made = controller(threshold=0.0)
    made.handle(report(tuples_passing((0.9, 0.5, 0.1), 400, 1)))
    for seed in range(3):
        asked, kept = made.handle(report(tuples_passing((0.9, 0.5, 0.1), 1000, seed)))
        assert isinstance(asked, SampleTuples)
        assert isinstance(kept, KeepSequence)


def test_nothing_dropped_at_first_is_no_division_by_zero() -> None:
    made = controller(threshold=0.5)
    made.handle(report(tuples_passing((1, 1, 1), 400, 1)))
    assert made.handle(report(tuples_passing((1, 1, 1), 1000, 2))) == []
    asked, _ = made.handle(report(tuples_passing((1, 1, 0.5), 1000, 3)))
    assert "share of rows without a match" in asked.figures["trigger"]


def test_sparse_samples_count_the_streams_tuples_and_wait_for_enough_samples() -> None:
    made = controller(threshold=0.0)
    made.handle(report(tuples_passing((0.9, 0.5, 0.1), 400, 1)))
    (sparse,) = [tuples_passing((0.5, 0.9, 0.1), 20, 2)]
    assert made.handle(report(sparse, tuples=999)) == []
    assert len(made.handle(report(sparse, tuples=1))) == 2


def test_reports_of_another_version_or_stream_are_ignored() -> None:
    made = controller()
    assert made.handle(report(tuples_passing((0.9, 0.5, 0.1), 5000, 1), version=2)) == []
    stray = StatisticsReported("other", 1, 10, tuples_passing((0.9, 0.5, 0.1), 10, 1))
    assert made.handle(stray) == []


def test_story_tells_cause_time_and_figures_in_json() -> None:
    made = controller()
    made.handle(report(tuples_passing((0.9, 0.5, 0.1), 400, 1)))
    bound, swapped = (json.loads(json.dumps(decision.fields())) for decision in made.story("s"))
    assert (bound["cause"], bound["action"], bound["time"]) == ("SelectionsBound", "SampleTuples", 12.0)
    assert (swapped["cause"], swapped["action"]) == ("StatisticsReported", "SwapSequence")
    assert swapped["arrangement"] == {"kind": "macro", "order": [2, 1, 0], "micro_arrows": 0}
    assert made.story("other") == []


@pytest.mark.parametrize("settings", [{"threshold": -0.1}, {"period_tuples": 0}, {"recomputation_tuples": 0}])
def test_senseless_settings_are_refused(settings: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="got"):
        RearrangementSettings(**settings)


@pytest.mark.parametrize("kind", [ArrangementKind.MACRO, ArrangementKind.HYBRID])
@pytest.mark.parametrize("offset", [0, 600])
def test_cost_returns_within_two_recomputation_periods_of_a_drift(kind: ArrangementKind, offset: int) -> None:
    before = tuples_passing((0.9, 0.5, 0.05), 20_000 + offset, 1)
    after = tuples_passing((0.05, 0.5, 0.9), 20_000, 2)
    settings = RearrangementSettings(kind, recomputation_tuples=2000, period_tuples=200, threshold=0.1)
    run = run_adaptive(INDEX, np.concatenate([before, after], axis=1), settings, batch=500)
    settled = run.counts[before.shape[1] + 2 * 2000 + 500 :].mean()
    best, worst = extreme_orders(INDEX, after)
    assert settled <= 1.1 * best.evaluations / after.shape[1]
    assert worst.evaluations > 1.5 * best.evaluations
