"""What a worker keeps from batch to batch: layouts and learned costs outlive a swap of the evaluation sequence."""

from __future__ import annotations

import pickle
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.operators.ingest.map_stage import StreamProgram
from penstock.operators.ingest.outcomes import Outcomes
from penstock.operators.selection.selector import compile_selections
from penstock.plan.arrangement import Arrangement, ArrangementKind
from penstock.plan.selection import Attribute, Interval, Query, SelectionSet, Term, ValueSet
from penstock.settings import Settings
from penstock.spark.tasks.worker import SentSequence, TaskContextData, stage_for

ROWS = 1_000


def _program() -> StreamProgram:
    attributes = tuple(Attribute(name, pa.int64(), f"`{name}`") for name in ("a", "b"))
    narrow, wide = ValueSet((Interval(0, 9),)), ValueSet((Interval(0, 989),))
    query = Query("q", (Term(((0, wide), (1, narrow))),))
    plan = compile_selections(SelectionSet(attributes, (query,)))
    return StreamProgram("s", 0, plan, Outcomes.of_views(1), ("a", "b"), None, None, Settings(strategy="asc"))


def test_a_sequence_is_installed_in_the_stage_that_is_there() -> None:
    shipped: Any = SimpleNamespace(value=pickle.dumps(_program()))
    rng = np.random.default_rng(1)
    batch = pa.record_batch({name: rng.integers(0, 1_000, ROWS) for name in ("a", "b")})

    def run(revision: int, order: tuple[int, ...]) -> tuple[Any, int, int]:
        arrangement = pickle.dumps(Arrangement(ArrangementKind.MACRO, order))
        sequence = SentSequence(revision, arrangement) if revision else None
        context = TaskContextData(
            ("test_worker_stages", 0), shipped, sequence, "", "", 0, 2**62, -(2**62), 0, -(2**62)
        )
        stage = stage_for(context)
        stage.process(batch)
        return stage, stage.counts.evaluations, stage.counts.matched

    first, given, matched = run(0, ())
    index = first._selector._asc().index
    swapped, better, same = run(1, (1, 0))
    assert swapped is first
    assert swapped._selector._asc().index is index, "nothing was laid out anew"
    assert better < 0.6 * given
    assert same == matched > 0
    back, worse, _ = run(2, (0, 1))
    assert (back, worse) == (first, given)
