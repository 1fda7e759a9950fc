"""Algorithm 1: trees without cross products, static rewrites, the search and the baseline."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.optimizer.join_trees import (
    PlacedOperator,
    Tree,
    TreeQuery,
    cardinality_tree,
    every_tree,
    plan_tree,
)
from penstock.optimizer.operator_order import UnaryOperator
from penstock.optimizer.printed_rates import Form, WindowJoin
from penstock.plan.joins import Method

CHAIN = TreeQuery((10.0, 20.0, 30.0), {(0, 1): 0.01, (1, 2): 0.02}, 2.0)


def clique(streams: int, selectivity: float = 0.01) -> TreeQuery:
    pairs = dict.fromkeys(combinations(range(streams), 2), selectivity)
    return TreeQuery(tuple(10.0 + stream for stream in range(streams)), pairs, 1.0)


@st.composite
def queries(draw: st.DrawFn) -> TreeQuery:
    streams = draw(st.integers(2, 5))
    pairs = list(combinations(range(streams), 2))
    linked = draw(st.sets(st.sampled_from(pairs))) | {(n, n + 1) for n in range(streams - 1)}
    share = st.floats(1e-4, 0.5)
    return TreeQuery(
        tuple(draw(st.floats(1, 500)) for _ in range(streams)),
        {pair: draw(share) for pair in sorted(linked)},
        draw(st.floats(0.5, 10)),
        tuple(
            PlacedOperator(UnaryOperator("o", draw(st.floats(0, 0.01)), draw(share)), frozenset({number}))
            for number in range(draw(st.integers(0, streams)))
        ),
        draw(st.floats(1e-7, 1e-4)),
        draw(st.floats(1e-7, 1e-4)),
        draw(st.integers(1, 200)),
        draw(st.sampled_from(Form)),
    )


@pytest.mark.parametrize(("streams", "count"), [(2, 1), (3, 3), (4, 15), (5, 105), (6, 945)])
def test_there_are_as_many_trees_as_pairings(streams: int, count: int) -> None:
    assert len({str(tree) for tree in every_tree(clique(streams))}) == count


def test_cross_products_are_no_trees() -> None:
    assert {str(tree) for tree in every_tree(CHAIN)} == {"(0 (1 2))", "((0 1) 2)"}
    apart = TreeQuery((1.0, 1.0, 1.0), {(0, 1): 0.1}, 1.0)
    for plan in (plan_tree, cardinality_tree, every_tree):
        with pytest.raises(ValueError, match="only by a cross product"):
            plan(apart)


def test_a_join_puts_out_what_the_next_one_takes_in() -> None:
    tree = next(tree for tree in every_tree(CHAIN) if str(tree) == "((0 1) 2)")
    assert tree.left is not None
    # 2 T s rA rB: 8 rows a second, then 2 * 2 * 0.02 * 8 * 30
    assert tree.left.output_rate == pytest.approx(8)
    assert tree.output_rate == pytest.approx(19.2)
    assert tree.cardinalities == pytest.approx(8 + 19.2)
    upper = WindowJoin((8.0, 30.0), 2.0, 0.02, 1e-6, 2e-6, (64, 64))
    assert tree.seconds == pytest.approx(tree.left.seconds + upper.seconds())


def test_selections_and_projections_stand_as_low_as_they_can() -> None:
    low = PlacedOperator(UnaryOperator("low", 0.001, 0.5), frozenset({1}))
    inner = PlacedOperator(UnaryOperator("inner", 0.001, 0.5), frozenset({0, 1}))
    top = PlacedOperator(UnaryOperator("top", 0.001, is_projection=True), frozenset({0, 2}))
    trees = every_tree(replace(CHAIN, operators=(top, inner, low)))

    def where(tree: Tree | None, name: str) -> str | None:
        if tree is None:
            return None
        if name in [operator.name for operator in tree.operators]:
            return str(tree)
        return where(tree.left, name) or where(tree.right, name)

    for tree in trees:
        assert where(tree, "low") == "1"
        assert where(tree, "top") == str(tree)
        assert where(tree, "inner") == ("(0 1)" if "(0 1)" in str(tree) else str(tree))


def test_a_group_is_ordered_by_what_it_drops_for_its_time_the_baseline_by_selectivity() -> None:
    dear = PlacedOperator(UnaryOperator("dear", 0.010, 0.1), frozenset({0}))
    cheap = PlacedOperator(UnaryOperator("cheap", 0.001, 0.2), frozenset({0}))
    query = replace(CHAIN, operators=(dear, cheap))

    def group(tree: Tree) -> list[str]:
        if tree.left is None or tree.right is None:
            return [operator.name for operator in tree.operators]
        return group(tree.left) + group(tree.right)

    assert group(plan_tree(query).tree) == ["cheap", "dear"]
    assert group(cardinality_tree(query)) == ["dear", "cheap"]


@settings(deadline=None)
@given(queries())
def test_no_tree_has_a_larger_output_rate(query: TreeQuery) -> None:
    chosen = plan_tree(query).tree
    for tree in every_tree(query):
        assert tree.output_rate <= chosen.output_rate * (1 + 1e-8)
        if tree.output_rate == pytest.approx(chosen.output_rate, rel=1e-12, abs=0):
            assert tree.seconds >= chosen.seconds * (1 - 1e-9)


@settings(deadline=None)
@given(queries())
def test_the_baseline_has_the_least_cardinalities(query: TreeQuery) -> None:
    least = min(tree.cardinalities for tree in every_tree(query))
    assert cardinality_tree(query).cardinalities == pytest.approx(least, rel=1e-9)


def test_the_baseline_may_put_out_less() -> None:
    """It does not see that its hash joins search many tuples for those that expire."""
    query = TreeQuery((2.0, 400.0), {(0, 1): 0.1}, 10.0, nested_seconds=1e-4, hash_seconds=1e-4, buckets=4)
    chosen, baseline = plan_tree(query).tree, cardinality_tree(query)
    assert chosen.methods is not None
    assert Method.NESTED in chosen.methods
    assert chosen.output_rate > 2 * baseline.output_rate


def test_past_the_limit_the_search_says_so() -> None:
    assert plan_tree(clique(6)).search == "all 945 trees"
    chain = TreeQuery((10.0,) * 8, {(n, n + 1): 0.01 for n in range(7)}, 1.0)
    found = plan_tree(chain)
    assert found.search.startswith("dynamic programming: more than 6 streams")
    best = min(every_tree(chain), key=lambda tree: tree.seconds)
    assert found.tree.output_rate == pytest.approx(best.output_rate)
    assert found.tree.seconds == pytest.approx(best.seconds)
