"""Which way of matching answers sooner, and what the order of the ASCs is worth: nanoseconds a tuple of each side, in turns.

Tuples: D1 (uniform) and D2 (normal) of `selection_paper`, 10 BIGINT columns, batches of 65,536. Queries: Q1 (20 conjunctions of 5 to 7
ranges of 10 to 40 values), `selective` (5 conjunctions of 3 ranges of 5 values), `gate` (20 conjunctions of all 10 columns, of which one
passes 5 % of the tuples and each other one 70 %), and 100 and 1,000 conjunctions of 4 ranges of 20 values. Sides: the index;
the ASCs by the order found from samples, by that order backwards, and with micro-arrows; `auto` once it has settled.
From Arrow columns to `Matches`, the processor time of one thread, the least of the repetitions.

The exit code is 1 where `auto` takes more than 1.25 times the cheaper of index and ASCs.

Run: python benchmarks/selection_sides.py [--small]
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parent))

from expectations import Expectations
from penstock.operators.coding.regions import code_selections
from penstock.operators.selection.asc import AscIndex
from penstock.operators.selection.selector import SelectionPlan, Selector
from penstock.plan.arrangement import Arrangement, ArrangementKind
from penstock.plan.selection import Attribute, Query, SelectionSet, Term
from penstock.plan.value_sets import Interval, ValueSet
from selection_paper import anywhere, encode, first_sequence, non_uniform, query_set, uniform

ROWS = 1 << 16
ATTRIBUTES = 10
TAU = 2_000
#: processor time that `auto` is given before it is timed: it tries the ASCs after half a second
SETTLING_SECONDS = 1.5
#: `auto` may take so many times what the cheaper side takes
AUTO_AT_MOST = 1.25


def conjunctions(number: int, attributes: int, width: int, seed: int) -> AscIndex:
    """Conjunctions of ranges of so many values of [0, 99] over some of the columns."""
    rng = np.random.default_rng(seed)
    queries = []
    for name in range(number):
        used = np.sort(rng.choice(ATTRIBUTES, attributes, replace=False)).tolist()
        lows = rng.integers(0, 101 - width, attributes).tolist()
        ranges = [ValueSet((Interval(low, low + width - 1),)) for low in lows]
        queries.append(Query(f"q{name}", (Term(tuple(zip(used, ranges, strict=True))),)))
    return _index(queries)


def behind_a_gate(number: int, gate: int, seed: int) -> AscIndex:
    """Conjunctions of all columns: the same narrow range of one of them, wide ones of the others."""
    rng = np.random.default_rng(seed)
    queries = []
    for name in range(number):
        lows = rng.integers(0, 31, ATTRIBUTES).tolist()
        ranges = [(low, low + 69) for low in lows]
        ranges[gate] = (40, 44)
        term = Term(tuple((a, ValueSet((Interval(*bounds),))) for a, bounds in enumerate(ranges)))
        queries.append(Query(f"q{name}", (term,)))
    return _index(queries)


def _index(queries: Sequence[Query]) -> AscIndex:
    names = tuple(Attribute(f"a{a}", pa.int64(), f"a{a}") for a in range(20))
    return AscIndex(code_selections(SelectionSet(names, tuple(queries))))


SETTINGS: dict[str, tuple[Callable[[int], Sequence[np.ndarray]], AscIndex]] = {
    "D1, Q1": (uniform, query_set(ATTRIBUTES, (5, 7), anywhere(10, 40), 11, 20)),
    "D2, Q1": (non_uniform, query_set(ATTRIBUTES, (5, 7), anywhere(10, 40), 11, 20)),
    "D1, selective": (uniform, conjunctions(5, 3, 5, 3)),
    "D1, gate": (uniform, behind_a_gate(20, 7, 4)),
    "D1, 100": (uniform, conjunctions(100, 4, 20, 5)),
    "D1, 1,000": (uniform, conjunctions(1_000, 4, 20, 6)),
}


def main() -> None:
    small = "--small" in sys.argv
    tuples, repetitions = (131_072, 3) if small else (1 << 20, 9)
    expect = Expectations(judged=not small)
    table = Table(
        *("setting", "index", "ASCs", "backwards", "micro-arrows", "auto", "auto's side"),
        *("evaluations", "backwards"),
        title="ns a tuple, regions included",
    )
    for name, (data, index) in SETTINGS.items():
        columns = data(tuples)
        arrow = [pa.array(column) for column in columns]
        codes = encode(index, columns)
        macro = first_sequence(index, codes[:, :60_000], ArrangementKind.MACRO, TAU)
        hybrid = first_sequence(index, codes[:, :60_000], ArrangementKind.HYBRID, TAU)
        backwards = Arrangement(ArrangementKind.FIXED, macro.order[::-1])
        plan = SelectionPlan(index.coded)
        sides = {
            "index": Selector(plan, "index"),
            "asc": Selector(plan, "asc", macro),
            "backwards": Selector(plan, "asc", backwards),
            "hybrid": Selector(plan, "asc", hybrid),
            "auto": Selector(plan, "auto", macro),
        }
        settled = time.thread_time() + SETTLING_SECONDS
        while time.thread_time() < settled:
            sides["auto"].match([column.slice(0, ROWS) for column in arrow], ROWS)
        least = dict.fromkeys(sides, float("inf"))
        pairs = set()
        for repetition in range(repetitions + 1):
            for side, selector in sides.items():
                begun, found = time.thread_time_ns(), 0
                for start in range(0, tuples, ROWS):
                    batch = [column.slice(start, ROWS) for column in arrow]
                    found += len(selector.match(batch, len(batch[0])).queries)
                spent = (time.thread_time_ns() - begun) / tuples
                pairs.add(found)
                if repetition:
                    least[side] = min(least[side], spent)
        figures = sides["auto"].figures
        assert figures is not None, "it has just answered"
        evaluations = [index.evaluate(codes, each).evaluations / tuples for each in (macro, backwards)]
        table.add_row(
            name,
            *(f"{ns:.1f}" for ns in least.values()),
            figures.strategy,
            *(f"{each:.2f}" for each in evaluations),
        )
        expect.hold(f"{name}: all sides find the same", len(pairs) == 1, str(sorted(pairs)), always=True)
        cheaper = min(least["index"], least["asc"])
        expect.at_most(f"{name}: auto over the cheaper side", least["auto"] / cheaper, AUTO_AT_MOST)
    Console(width=140).print(table)
    sys.exit(expect.exit_code)


if __name__ == "__main__":
    main()
