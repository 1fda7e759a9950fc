"""Selections at scale: 1,000 to 100,000 queries over batches of 65,536 tuples, on one core.

Workloads (`selection_workloads`): 10 integer attributes uniform in [0, 9999], 3 predicates a query, each
an equality with probability 1/3 and else a 5 % range; and a skewed one, where 90 % of the queries and
all tuples draw a0 Zipf(1.1) from 1..1000. Seeds are fixed. Ours is timed from Arrow columns to `Matches`,
encoding included: the median of the repetitions. Beside it, on the same tuples in the same process, from
ready columns to unsorted pairs, their best of three: the plain loop (numba, queries one by one, early exit
per tuple, most selective predicate first; on fewer tuples where there are many queries), the same over
16-bit columns in blocks that numba vectorises, and numpy brute force. Every side's matches are compared.
Times are CPU times of the one thread; building is wall-clock. The exit code is 1 where ours is not faster than each loop, or all of it takes
a gigabyte of memory.

Run: python benchmarks/selection_scale.py [--small]
"""

from __future__ import annotations

import argparse
import resource
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import matplotlib as mpl
import numba
import numpy as np
import numpy.typing as npt
import pyarrow as pa

sys.path.insert(0, str(Path(__file__).resolve().parent))

from expectations import Expectations
from penstock.operators.selection.batch_index import BatchIndex
from penstock.operators.selection.matches import Matches
from penstock.operators.selection.selector import SelectionPlan, Selector, compile_selections, warm_up
from selection_workloads import Workload, skewed_workload, uniform_workload

mpl.use("Agg")
import matplotlib.pyplot as plt

SEED = 20261
ROWS = 65_536
BATCHES = 4
#: numpy compares a batch this small, with this many queries at most
NUMPY_ROWS = 4_096
OUTPUT = Path(__file__).resolve().parent.parent / "out" / "bench"
WORKLOADS: dict[str, Callable[[int, int, int, int], Workload]] = {
    "uniform": uniform_workload,
    "skewed": skewed_workload,
}
#: ideas of the index, each with those before it
ABLATION: tuple[tuple[str, frozenset[str]], ...] = (
    ("scan: bytes, 64 a step", frozenset()),
    ("+ probes by code", frozenset({"probe"})),
    ("+ slices of sorted batches", frozenset({"probe", "slice"})),
)


@dataclass(frozen=True, slots=True)
class Result:
    """One row of the table: tuples per second of each side and what ours needed."""

    workload: str
    queries: int
    ours: float
    encode_share: float
    plain: float
    vector: float
    brute: float
    pairs_a_tuple: float
    objects_s: float
    compile_s: float
    first_batch_s: float
    peak_mb: float
    ablation: dict[str, float]


class Bounds(NamedTuple):
    """Queries as the loops take them, the narrowest predicate first: [queries, 3] each."""

    attribute: npt.NDArray[np.int64]
    low: npt.NDArray[np.int64]
    high: npt.NDArray[np.int64]

    @classmethod
    def of(cls, workload: Workload) -> Bounds:
        order = np.argsort(workload.high - workload.low, axis=1, kind="stable")
        parts = (workload.attribute, workload.low, workload.high)
        return cls(*(np.take_along_axis(part, order, 1) for part in parts))


@numba.njit(cache=False, boundscheck=False)
def plain_loop(values: npt.NDArray[np.int64], bounds: Bounds, pairs: npt.NDArray[np.uint64]) -> int:
    """Query by query, tuple by tuple; the first predicate that fails ends a tuple's check."""
    count = 0
    for query in range(len(bounds.low)):
        first = values[bounds.attribute[query, 0]]
        second = values[bounds.attribute[query, 1]]
        third = values[bounds.attribute[query, 2]]
        low_0, high_0 = bounds.low[query, 0], bounds.high[query, 0]
        low_1, high_1 = bounds.low[query, 1], bounds.high[query, 1]
        low_2, high_2 = bounds.low[query, 2], bounds.high[query, 2]
        for row in range(values.shape[1]):
            if first[row] < low_0 or first[row] > high_0:
                continue
            if second[row] < low_1 or second[row] > high_1:
                continue
            if third[row] < low_2 or third[row] > high_2:
                continue
            pairs[count] = (np.uint64(row) << np.uint64(32)) | np.uint64(query)
            count += 1
    return count


@numba.njit(cache=False, boundscheck=False)
def vector_loop(values: npt.NDArray[np.uint16], bounds: Bounds, pairs: npt.NDArray[np.uint64]) -> int:
    """Query by query over 16-bit columns, 256 tuples at a time, left to numba's vectoriser."""
    count = 0
    hits = np.empty(256, np.uint8)
    for query in range(len(bounds.low)):
        first = values[bounds.attribute[query, 0]]
        second = values[bounds.attribute[query, 1]]
        third = values[bounds.attribute[query, 2]]
        low_0 = np.uint16(bounds.low[query, 0])
        width_0 = np.uint16(bounds.high[query, 0] - bounds.low[query, 0])
        low_1 = np.uint16(bounds.low[query, 1])
        width_1 = np.uint16(bounds.high[query, 1] - bounds.low[query, 1])
        low_2 = np.uint16(bounds.low[query, 2])
        width_2 = np.uint16(bounds.high[query, 2] - bounds.low[query, 2])
        for start in range(0, values.shape[1], 256):
            end = min(start + 256, values.shape[1])
            found = np.uint8(0)
            for row in range(start, end):
                found |= np.uint8(np.uint16(first[row] - low_0) <= width_0)
            if found == 0:
                continue
            found = np.uint8(0)
            for row in range(start, end):
                hit = np.uint8(np.uint16(first[row] - low_0) <= width_0)
                hit &= np.uint8(np.uint16(second[row] - low_1) <= width_1)
                hit &= np.uint8(np.uint16(third[row] - low_2) <= width_2)
                hits[row - start] = hit
                found |= hit
            if found == 0:
                continue
            for row in range(start, end):
                if hits[row - start] != 0:
                    pairs[count] = (np.uint64(row) << np.uint64(32)) | np.uint64(query)
                    count += 1
    return count


def brute_force(values: npt.NDArray[np.int64], workload: Workload) -> npt.NDArray[np.uint64]:
    """Every query against a batch by whole-column comparisons in numpy."""
    found = []
    for query, (attribute, low, high) in enumerate(
        zip(workload.attribute, workload.low, workload.high, strict=True)
    ):
        mask = np.ones(values.shape[1], np.bool_)
        for column, least, most in zip(values[attribute], low, high, strict=True):
            mask &= (column >= least) & (column <= most)
        rows = np.flatnonzero(mask).astype(np.uint64)
        found.append((rows << np.uint64(32)) | np.uint64(query))
    return np.concatenate(found)


def pairs_of(matches: Matches) -> npt.NDArray[np.uint64]:
    """Matches as ascending row << 32 | query."""
    rows = np.repeat(np.arange(len(matches.offsets) - 1, dtype=np.uint64), np.diff(matches.offsets))
    return (rows << np.uint64(32)) | matches.queries.astype(np.uint64)


def peak_mb() -> float:
    """Peak resident memory of the process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def timed(run: Callable[[], object]) -> float:
    """CPU seconds of one run in this thread: other load on the machine counts little."""
    begun = time.thread_time()
    run()
    return time.thread_time() - begun


def measure(name: str, queries: int, repetitions: int) -> Result:
    """Builds one workload, checks that all sides agree and times them in turns."""
    workload = WORKLOADS[name](queries, ROWS, BATCHES, SEED)
    begun = time.perf_counter()
    selections = workload.selections()
    built = time.perf_counter()
    plan = compile_selections(selections)
    compiled = time.perf_counter()
    selector = Selector(plan, "index")
    batches = [workload.columns(number) for number in range(BATCHES)]
    first_batch = timed(lambda: selector.match(batches[0], ROWS))
    for columns in batches:
        selector.match(columns, ROWS)
    peak = peak_mb()

    bounds = Bounds.of(workload)
    few_rows = min(ROWS, max(NUMPY_ROWS, ROWS * 1_000 // queries))
    few = np.ascontiguousarray(workload.batches[0][:, :few_rows])
    fewest = np.ascontiguousarray(few[:, :NUMPY_ROWS])
    narrow = workload.batches[0].astype(np.uint16)
    space = np.empty(1 << 22, np.uint64)
    answered = selector.match(batches[0], ROWS)
    pairs = pairs_of(answered)
    for side, loop, values in (("plain", plain_loop, few), ("vector", vector_loop, narrow)):
        found = np.sort(space[: loop(values, bounds, space)])
        expected = pairs[: answered.offsets[values.shape[1]]]
        assert np.array_equal(found, expected), f"the {side} loop and the index differ"
    brute_begun = time.thread_time()
    brute = brute_force(fewest, workload)
    brute_time = time.thread_time() - brute_begun
    expected = pairs[: answered.offsets[NUMPY_ROWS]]
    assert np.array_equal(np.sort(brute), expected), "numpy and the index differ"

    ours, plain, vector = [], [], []
    encode_ns = match_ns = 0
    for repetition in range(repetitions):
        columns = batches[repetition % BATCHES]
        ours.append(timed(lambda columns=columns: selector.match(columns, ROWS)))
        assert selector.figures is not None
        encode_ns += selector.figures.encode_ns
        match_ns += selector.figures.match_ns
        if repetition < 3:
            plain.append(timed(lambda: plain_loop(few, bounds, space)))
            vector.append(timed(lambda: vector_loop(narrow, bounds, space)))
    ablation = {
        label: ROWS / measure_accesses(plan, batches, accesses, max(3, repetitions // 4))
        for label, accesses in ABLATION
    }
    return Result(
        workload=name,
        queries=queries,
        ours=ROWS / float(np.median(ours)),
        encode_share=encode_ns / (encode_ns + match_ns),
        plain=few_rows / min(plain),
        vector=ROWS / min(vector),
        brute=NUMPY_ROWS / brute_time,
        pairs_a_tuple=len(answered.queries) / ROWS,
        objects_s=built - begun,
        compile_s=compiled - built,
        first_batch_s=first_batch,
        peak_mb=peak,
        ablation=ablation,
    )


def measure_accesses(
    plan: SelectionPlan, batches: list[list[pa.Array]], accesses: frozenset[str], repetitions: int
) -> float:
    """Median seconds of a batch with only some accesses allowed; encoding included."""
    selector = Selector(plan, "index", index=BatchIndex(plan.coded, accesses))
    selector.match(batches[0], ROWS)
    return float(
        np.median(
            [
                timed(lambda columns=batches[number % BATCHES]: selector.match(columns, ROWS))
                for number in range(repetitions)
            ]
        )
    )


def report(results: list[Result]) -> None:
    """Prints the tables."""
    print(f"one core, batches of {ROWS:,} tuples, 10 attributes, 3 predicates a query, seed {SEED}")
    print(
        f"{'workload':9}{'queries':>8}{'ours t/s':>12}{'plain loop':>12}{'vectorised':>12}{'numpy':>10}"
        f"{'x plain':>9}{'x vector':>9}{'pairs/t':>9}{'encode':>8}"
        f"{'objects s':>11}{'compile s':>11}{'1st batch s':>13}{'peak MB':>9}"
    )
    for result in results:
        print(
            f"{result.workload:9}{result.queries:>8,}{result.ours:>12,.0f}{result.plain:>12,.0f}{result.vector:>12,.0f}"
            f"{result.brute:>10,.0f}{result.ours / result.plain:>9.1f}{result.ours / result.vector:>9.1f}"
            f"{result.pairs_a_tuple:>9.2f}{result.encode_share:>8.0%}{result.objects_s:>11.2f}"
            f"{result.compile_s:>11.2f}{result.first_batch_s:>13.2f}{result.peak_mb:>9,.0f}"
        )
    print("\nwhich idea gave what, tuples/s")
    print(f"{'workload':9}{'queries':>8}" + "".join(f"{label:>30}" for label, _ in ABLATION))
    for result in results:
        figures = "".join(f"{result.ablation[label]:>30,.0f}" for label, _ in ABLATION)
        print(f"{result.workload:9}{result.queries:>8,}{figures}")


def draw(results: list[Result]) -> Path:
    """Writes throughput over the number of queries as a picture."""
    OUTPUT.mkdir(parents=True, exist_ok=True)
    figure, axes = plt.subplots(1, len(WORKLOADS), figsize=(10, 4), sharey=True)
    for axis, name in zip(axes, WORKLOADS, strict=True):
        own = [result for result in results if result.workload == name]
        queries = [result.queries for result in own]
        for label, side in (
            ("Penstock", "ours"),
            ("plain loop", "plain"),
            ("vectorised loop", "vector"),
            ("numpy", "brute"),
        ):
            axis.loglog(queries, [getattr(result, side) for result in own], marker="o", label=label)
        axis.set(title=f"{name} workload", xlabel="standing queries")
        axis.grid(visible=True, which="both", alpha=0.3)
    axes[0].set_ylabel("tuples per second, one core")
    axes[0].legend()
    figure.tight_layout()
    path = OUTPUT / "selection_scale.png"
    figure.savefig(path, dpi=120)
    plt.close(figure)
    return path


def judge(results: list[Result]) -> int:
    """Prints whether what is expected holds; 1 where it does not."""
    expect = Expectations()
    for result in results:
        what = f"{result.workload}, {result.queries:,} queries: ours, times the faster loop"
        expect.at_least(what, result.ours / max(result.plain, result.vector), 1)
    most = max(results, key=lambda result: result.peak_mb)
    expect.at_most(f"peak MB, up to {most.queries:,} queries", most.peak_mb, 1024)
    return expect.exit_code


def main(small: bool = False) -> int:
    """Runs the benchmark.

    Args:
        small: two small query counts and few repetitions.

    Returns:
        1 where an expectation does not hold.
    """
    numba.set_num_threads(1)
    warm_up()
    counts = (100, 1_000) if small else (1_000, 10_000, 100_000)
    # ascending counts, so that the peak memory printed is that of the largest so far
    results = [measure(name, queries, 8 if small else 32) for queries in counts for name in WORKLOADS]
    results.sort(key=lambda result: list(WORKLOADS).index(result.workload))
    report(results)
    print(f"\npicture: {draw(results)}")
    return judge(results)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--small", action="store_true", help="few queries and repetitions")
    sys.exit(main(parser.parse_args().small))
