"""What a worker keeps from batch to batch: layouts and learned costs outlive a swap of the evaluation sequence."""

from __future__ import annotations

import pickle
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.operators.ingest.map_stage import MapStage
from penstock.operators.ingest.outcomes import Outcomes
from penstock.operators.ingest.stream_program import StreamProgram
from penstock.operators.selection.selector import compile_selections
from penstock.plan import trees
from penstock.plan.arrangement import Arrangement, ArrangementKind
from penstock.plan.patterns import TextPattern
from penstock.plan.selection import Attribute, Query, SelectionSet, Term
from penstock.plan.value_sets import Interval, ValueSet
from penstock.settings import Settings
from penstock.spark.publication.staged import BatchFiles
from penstock.spark.storage.layout import Layout
from penstock.spark.tasks.worker import SentSequence, TaskContextData, stage_for

ROWS = 1_000

#: nothing is stored
STORE = BatchFiles.of(Layout.of("nowhere", None), "s", None, 0)


def _program() -> StreamProgram:
    attributes = tuple(Attribute(name, pa.int64(), f"`{name}`") for name in ("a", "b"))
    narrow, wide = ValueSet((Interval(0, 9),)), ValueSet((Interval(0, 989),))
    query = Query("q", (Term(((0, wide), (1, narrow))),))
    plan = compile_selections(SelectionSet(attributes, (query,)))
    return StreamProgram("s", 0, plan, Outcomes.numbered(1), ("a", "b"), None, None, Settings(strategy="asc"))


def test_a_sequence_is_installed_in_the_stage_that_is_there() -> None:
    shipped: Any = SimpleNamespace(value=pickle.dumps(_program()))
    rng = np.random.default_rng(1)
    batch = pa.record_batch({name: rng.integers(0, 1_000, ROWS) for name in ("a", "b")})

    def run(revision: int, order: tuple[int, ...]) -> tuple[Any, int, int]:
        arrangement = pickle.dumps(Arrangement(ArrangementKind.MACRO, order))
        sequence = SentSequence(revision, arrangement) if revision else None
        context = TaskContextData(
            ("test_worker_stages", 0), shipped, sequence, STORE, 0, 2**62, -(2**62), 0, -(2**62)
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


def _text(pattern: str) -> trees.Test:
    return trees.Test(0, trees.TextSet(TextPattern("like", pattern)))


def _versions() -> list[tuple[str, ...]]:
    """The queries of each version: numbers are added, text of one column is added, one of the first leaves, the first again."""
    first = ("few", "many", "words")
    return [first, (*first, "more"), (*first, "more", "other words"), ("many", "words", "other words"), first]


def test_a_stage_takes_over_what_an_earlier_version_has_in_common_with_it() -> None:
    attributes = (
        Attribute("s", pa.string(), "`s`"),
        Attribute("a", pa.int64(), "`a`"),
        Attribute("b", pa.int64(), "`b`"),
    )
    queries = {
        "few": Query("few", (Term(((1, ValueSet((Interval(0, 9),))),)),)),
        "many": Query("many", (Term(((2, ValueSet((Interval(5, 900),))),)),)),
        "more": Query("more", (Term(((1, ValueSet((Interval(7, 70),))),)),)),
        "words": Query("words", (), trees.Some((_text("%1%"), _text("%77")))),
        "other words": Query(
            "other words", (), trees.Some((_text("%3_5%"), trees.Test(1, ValueSet((Interval(3, 4),)))))
        ),
    }
    rng = np.random.default_rng(1)
    numbers = {name: pa.array(rng.integers(0, 1_000, ROWS)) for name in ("a", "b")}
    batch = pa.record_batch({"s": pa.array(rng.integers(0, 999, ROWS).astype(str)), **numbers})

    def program(version: int, names: tuple[str, ...]) -> StreamProgram:
        plan = compile_selections(SelectionSet(attributes, tuple(queries[name] for name in names)))
        views = Outcomes.numbered(len(names))
        return StreamProgram("s", version, plan, views, ("s", "a", "b"), None, None, Settings())

    stages = []
    for version, names in enumerate(_versions()):
        shipped: Any = SimpleNamespace(value=pickle.dumps(program(version, names)))
        context = TaskContextData(
            ("taking_over", version), shipped, None, STORE, 0, 2**62, -(2**62), 0, -(2**62)
        )
        stages.append(stage_for(context))
        found = [each.to_pylist() for each in stages[-1].process(batch)[1:]]
        assert found == [each.to_pylist() for each in MapStage(program(version, names)).process(batch)[1:]]
    encoders = [{each.coding.name: each for each in stage.encoders} for stage in stages]
    assert encoders[1]["b"] is encoders[0]["b"]
    assert encoders[1]["a"] is not encoders[0]["a"], "it has other constants"
    coders = [stage._selector._rules._coders[0] for stage in stages]  # type: ignore[union-attr]
    assert coders[1].signature_encoder is coders[0].signature_encoder
    assert coders[2].signature_encoder is not coders[1].signature_encoder
