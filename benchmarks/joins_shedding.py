"""What it would be worth to leave tuples of a join out under overload: joined rows in half of the time, by the loops of the executor.

Two streams, partners within 5 s, keys drawn by Zipf's law. All tuples are joined first; then as many are left out that joining takes
half of the processor time: at random, or those with the fewest partners in the other stream. How many partners a tuple has is known exactly
here, which is more than a running program can know. The streams are read, sorted and written before, and that is not counted: a tuple
that is left out costs as much there.

A join that cannot keep up gives 50 % of the rows in half of the time without leaving anything out: later. What is above is all that leaving
tuples out wins. Seconds are processor time of one thread. The exit code is 1 where an expectation does not hold.

Run: python benchmarks/joins_shedding.py
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from rich.console import Console
from rich.table import Table

from expectations import Expectations
from joins_kernels import CUT, JOIN_TWO, TIME, TWO, Work, joined, order_of, plan_of
from penstock.operators.routing.routers import Dimension, Grid, GridRouter
from penstock.operators.runs.run import RunPlan
from penstock.plan.joins import Method
from penstock.spark.log.runs import write_run_file

Bools = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]
#: ROWS of each stream and cut
CUTS, ROWS, KEYS, SEED = 4, 50_000, 10_000, 7
ZIPF = (0.0, 0.6, 0.9, 1.05)
#: the share of the time that is left, and how near the time of a try comes to it
LEFT, STEPS = 0.5, 6
#: joined rows in half of the time by the best choice, at most so many times those of joining all tuples later
WORTH = 1.5


@dataclass(frozen=True, slots=True)
class Tuples:
    """The tuples of two streams.

    Attributes:
        cuts: by stream and cut.
        partners: how many partners each tuple has in the other stream, about, likewise.
    """

    cuts: list[list[pa.Table]]
    partners: list[list[Floats]]


def drawn(exponent: float) -> Tuples:
    """Tuples of keys by Zipf's law."""
    rng = np.random.default_rng(SEED)
    weights = np.arange(1, KEYS + 1) ** -exponent
    keys = [[rng.choice(KEYS, ROWS, p=weights / weights.sum()) for _ in range(CUTS)] for _ in TWO]
    counts = [np.bincount(np.concatenate(own), minlength=KEYS) for own in keys]
    cuts = [
        [
            pa.table(
                {
                    f"{stream.name}_k": pa.array(own),
                    f"{stream.name}_ts": pa.array(cut * CUT + rng.integers(0, CUT, ROWS), TIME),
                    f"{stream.name}_x": pa.array(rng.random(ROWS)),
                }
            )
            for cut, own in enumerate(keys[number])
        ]
        for number, stream in enumerate(TWO)
    ]
    partners = [[counts[1 - number][own].astype(float) for own in keys[number]] for number in range(2)]
    return Tuples(cuts, partners)


def measured(work: Work, tuples: Tuples, kept: Callable[[int, int], Bools]) -> tuple[int, float, int]:
    """Joined rows, seconds and tuples, where some are left out."""
    plan = plan_of(work)
    grid = Grid((Dimension("0", (str(work.kind),), work.shares[0]),))
    with tempfile.TemporaryDirectory() as name:
        paths = {}
        count = 0
        for number, stream in enumerate(TWO):
            column = f"{stream.name}_k"
            for cut, table in enumerate(tuples.cuts[number]):
                path = paths[number, 0, cut] = Path(name) / f"{number}-{cut}.arrow"
                left = table.filter(pa.array(kept(number, cut)))
                count += left.num_rows
                write_run_file(
                    path, left, RunPlan((column,), f"{stream.name}_ts", GridRouter(grid, ((column,),)))
                )
        best, rows = float("inf"), 0
        for _ in range(3):
            began = time.process_time()
            rows = joined(work, plan, order_of(plan, Method.MERGE), paths)[0]
            best = min(best, time.process_time() - began)
    return rows, best, count


def in_time(
    work: Work, tuples: Tuples, seconds: float, kept: Callable[[float], Callable[[int, int], Bools]]
) -> tuple[int, float, int]:
    """What is joined of the largest share of the tuples that takes no longer."""
    least, most, found = 0.0, 1.0, (0, 0.0, 0)
    for _ in range(STEPS):
        share = (least + most) / 2
        tried = measured(work, tuples, kept(share))
        if tried[1] <= seconds:
            least, found = share, tried
        else:
            most = share
    return found


def random_ones(every: Sequence[Floats], share: float) -> Callable[[int, int], Bools]:
    """A share of the tuples, by a number between 0 and 1 of each."""
    return lambda number, cut: every[number * CUTS + cut] < share


def valuable_ones(tuples: Tuples, every: Sequence[Floats], share: float) -> Callable[[int, int], Bools]:
    """The share of the tuples that have the most partners, of those with equally many some."""
    ranks = np.sort(np.concatenate([np.concatenate(own) for own in tuples.partners]))
    least = ranks[min(len(ranks) - 1, int((1 - share) * len(ranks)))]
    more = (share - np.mean(ranks > least)) / np.mean(ranks == least)

    def kept(number: int, cut: int) -> Bools:
        own = tuples.partners[number][cut]
        found: Bools = (own > least) | ((own == least) & (every[number * CUTS + cut] < more))
        return found

    return kept


def main() -> int:
    """Measures, prints and judges."""
    pa.set_cpu_count(1)
    expect = Expectations()
    shown = Table(
        "Zipf", "joined rows", "s", "at random: tuples", "rows", "fewest partners: tuples", "rows",
        title="Joined rows in half of the time, of those of all tuples",
    )  # fmt: skip
    work = Work("", TWO, (("a_k", "b_k"),), KEYS, pa.int64(), CUTS, ROWS, (2,), JOIN_TWO, 0.0)
    for exponent in ZIPF:
        tuples = drawn(exponent)
        rng = np.random.default_rng(SEED + 1)
        every = [rng.random(ROWS) for _ in range(2 * CUTS)]
        at_random, by_partners = partial(random_ones, every), partial(valuable_ones, tuples, every)
        measured(work, tuples, at_random(0.1))
        whole, seconds, count = measured(work, tuples, at_random(1.1))
        left = [in_time(work, tuples, LEFT * seconds, how) for how in (at_random, by_partners)]
        cells = [text for found in left for text in (f"{found[2] / count:.0%}", f"{found[0] / whole:.0%}")]
        shown.add_row(f"{exponent:g}", f"{whole:,}", f"{seconds:.2f}", *cells)
        expect.at_most(
            f"keys by Zipf {exponent:g}: rows in half of the time by the fewest partners, times half of all rows",
            left[1][0] / whole / LEFT,
            WORTH,
        )
    Console(width=150).print(shown)
    return expect.exit_code


if __name__ == "__main__":
    sys.exit(main())
