"""Joins of sorted runs without Spark: input rows a second on one thread, mapping and decoding included, beside DuckDB.

    python benchmarks/joins_kernels.py [--quick] [--method merge|hash] [--profile]

Streams come in cuts of 100,000 rows each, 10 s of event time a cut, partners within 5 s either way; runs are written
before (the ingest does that) and not merged. Each cut joins what is new with what there is, in two cells after each other.
DuckDB joins all of it at once from tables in memory, and its batches are read, too. Seconds are processor time of one
thread. The exit code is 1 where an expectation does not hold.
"""

from __future__ import annotations

import argparse
import cProfile
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
from rich.console import Console
from rich.table import Table

from penstock.operators.joins.cell import CellJoin
from penstock.operators.joins.measures import StepMeasure
from penstock.operators.joins.tuples import InputRuns, RunSlice
from penstock.operators.routing.routers import Dimension, Grid, GridRouter
from penstock.operators.runs.run import RunPlan
from penstock.plan.joins import (
    JoinColumn,
    JoinInput,
    JoinKey,
    JoinOrder,
    JoinPlan,
    Method,
    ProbeOrder,
    ProbeStep,
    TimeBound,
)
from penstock.spark.log.runs import open_run, write_run_file

#: event time of a cut and how far apart partners may be, microseconds
CUT, WITHIN = 10_000_000, 5_000_000
TIME = pa.timestamp("us", "UTC")


@dataclass(frozen=True, slots=True)
class Stream:
    """An input.

    Attributes:
        name: its name and the prefix of its columns `<name>_ts` and `<name>_x`.
        keys: its key columns.
    """

    name: str
    keys: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Work:
    """A join of streams.

    Attributes:
        name: of the work.
        streams: the inputs.
        equal: the keys: by input the column or None.
        keys: number of different keys.
        kind: type of the keys.
        cuts: number of cuts.
        rows: of each stream and cut.
        shares: of the grid by key.
        sql: the same for DuckDB.
        expected: times as fast as DuckDB, at least.
        static: the last input is a table of one row a key.
    """

    name: str
    streams: tuple[Stream, ...]
    equal: tuple[tuple[str | None, ...], ...]
    keys: int
    kind: pa.DataType
    cuts: int
    rows: int
    shares: tuple[int, ...]
    sql: str
    expected: float
    static: bool = False


TWO = (Stream("a", ("a_k",)), Stream("b", ("b_k",)))
THREE = (Stream("a", ("a_k",)), Stream("b", ("b_k", "b_m")), Stream("c", ("c_m",)))
NEAR = "{0}_ts BETWEEN {1}_ts - INTERVAL 5 SECONDS AND {1}_ts + INTERVAL 5 SECONDS"
JOIN_TWO = f"SELECT a_k, a_ts, a_x, b_ts, b_x FROM a JOIN b ON a_k = b_k AND {NEAR.format('b', 'a')}"
JOIN_THREE = (
    f"SELECT a_k, a_ts, a_x, b_m, b_ts, b_x, c_ts, c_x FROM a JOIN b ON a_k = b_k AND {NEAR.format('b', 'a')} "
    f"JOIN c ON b_m = c_m AND {NEAR.format('c', 'b')}"
)
JOIN_STATIC = "SELECT a_k, a_ts, a_x, b_x FROM a JOIN b ON a_k = b_k"


def works(quick: bool) -> list[Work]:
    """What is measured."""
    cuts, rows, part = (4, 50_000, 2) if quick else (12, 100_000, 1)
    few, many = 10_000 // part, 100_000 // part
    two = (("a_k", "b_k"),)
    three = (("a_k", "b_k", None), (None, "b_m", "c_m"))
    whole, text = pa.int64(), pa.string()
    return [
        Work(f"{few:,} keys", TWO, two, few, whole, cuts, rows, (2,), JOIN_TWO, 2.0),
        Work(f"{many:,} keys", TWO, two, many, whole, cuts, rows, (2,), JOIN_TWO, 1.0),
        Work(f"{few:,} keys, strings", TWO, two, few, text, cuts, rows, (2,), JOIN_TWO, 2.0),
        Work(f"{many:,} keys, strings", TWO, two, many, text, cuts, rows, (2,), JOIN_TWO, 1.0),
        Work("a static table", TWO, two, many, whole, cuts, rows, (2,), JOIN_STATIC, 0.5, static=True),
        Work("three streams", THREE, three, few, whole, min(cuts, 4), rows, (1, 2), JOIN_THREE, 2.0),
        Work("three streams, strings", THREE, three, few, text, min(cuts, 4), rows, (1, 2), JOIN_THREE, 1.5),
    ]  # fmt: skip


def tuples(work: Work, number: int, cut: int) -> pa.Table:
    """What comes of a stream with a cut."""
    stream = work.streams[number]
    rng = np.random.default_rng([number, cut])
    is_table = work.static and number == len(work.streams) - 1
    count = work.keys if is_table else work.rows
    columns = {}
    for key in stream.keys:
        drawn = np.arange(count) if is_table else rng.integers(0, work.keys, count)
        columns[key] = (
            pa.array(drawn) if work.kind == pa.int64() else pa.array(np.char.add("key-", drawn.astype(str)))
        )
    times = np.zeros(count, np.int64) if is_table else cut * CUT + rng.integers(0, CUT, count)
    columns[f"{stream.name}_ts"] = pa.array(times, TIME)
    columns[f"{stream.name}_x"] = pa.array(rng.random(count))
    return pa.table(columns)


def plan_of(work: Work) -> JoinPlan:
    """The join."""
    inputs = []
    for number, stream in enumerate(work.streams):
        is_table = work.static and number == len(work.streams) - 1
        columns = (
            *(JoinColumn(key, key, work.kind) for key in stream.keys),
            JoinColumn(f"{stream.name}_ts", "ts", TIME),
            JoinColumn(f"{stream.name}_x", "x", pa.float64()),
        )
        inputs.append(
            JoinInput(
                stream.name, stream.name, is_table, None, columns, None if is_table else f"{stream.name}_ts"
            )
        )
    keys = tuple(JoinKey(columns, work.kind) for columns in work.equal)
    bounds = tuple(
        TimeBound(left, right, -(right - left) * WITHIN, (right - left) * WITHIN)
        for left in range(len(inputs))
        for right in range(left + 1, len(inputs))
        if not inputs[right].is_static
    )
    return JoinPlan(work.name, tuple(inputs), keys, bounds, (), (), ())


def order_of(plan: JoinPlan, method: Method) -> JoinOrder:
    """From each stream to its neighbours."""
    orders = []
    for first, each in enumerate(plan.inputs):
        if each.is_static:
            continue
        steps, joined = [], [first]
        while len(joined) < len(plan.inputs):
            target, key = next(
                (target, key)
                for target in range(len(plan.inputs))
                if target not in joined
                for key, own in enumerate(plan.keys)
                if own.columns[target] and any(own.columns[other] for other in joined)
            )
            steps.append(ProbeStep(target, method, key))
            joined.append(target)
        orders.append(ProbeOrder(first, tuple(steps)))
    return JoinOrder(tuple(orders))


def write(work: Work, plan: JoinPlan, folder: Path) -> dict[tuple[int, int, int], Path]:
    """Runs by input, key and cut."""
    grid = Grid(
        tuple(Dimension(str(place), (str(work.kind),), share) for place, share in enumerate(work.shares))
    )
    found = {}
    for number, stream in enumerate(work.streams):
        router = GridRouter(
            grid, tuple((key.columns[number],) if key.columns[number] else () for key in plan.keys)
        )
        for key, own in enumerate(plan.keys):
            column = own.columns[number]
            for cut in range(1 if plan.inputs[number].is_static else work.cuts) if column else ():
                path = folder / f"{number}-{key}-{cut}.arrow"
                write_run_file(
                    path, tuples(work, number, cut), RunPlan((column,), f"{stream.name}_ts", router)
                )
                found[number, key, cut] = path
    return found


def columns_of(work: Work) -> list[str]:
    """What is told of a pair."""
    return work.sql.removeprefix("SELECT ").partition(" FROM ")[0].split(", ")


def joined(
    work: Work, plan: JoinPlan, order: JoinOrder, paths: dict[tuple[int, int, int], Path]
) -> tuple[int, float, list[CellJoin]]:
    """All cuts: number of joined rows, a sum over a column, and what did it."""
    pairs, total, joins = 0, 0.0, []
    for cut in range(work.cuts):
        inputs: list[dict[int | None, InputRuns]] = [{} for _ in plan.inputs]
        for (number, key, own), path in paths.items():
            if own > cut:
                continue
            runs = inputs[number].get(key, InputRuns((), ()))
            one = (RunSlice(open_run(path), -1, cut),)
            is_new = own == cut and not plan.inputs[number].is_static
            inputs[number][key] = InputRuns(runs.new + one * is_new, runs.old + one * (not is_new))
        for cell in range(2):
            join = CellJoin(plan, order, cell, inputs, columns_of(work))
            joins.append(join)
            for batch in join.batches():
                pairs += batch.num_rows
                total += float(batch.column("b_x").to_numpy().sum())
    return pairs, total, joins


def by_duckdb(work: Work, tables: dict[str, pa.Table]) -> tuple[int, float]:
    """The same by DuckDB."""
    pairs, total = 0, 0.0
    with duckdb.connect(config={"threads": 1}) as connection:
        for name, table in tables.items():
            connection.register(name, table)
        for batch in connection.sql(work.sql).to_arrow_reader(1 << 16):
            pairs += batch.num_rows
            total += float(batch.column("b_x").to_numpy().sum())
    return pairs, total


def timed(act: Callable[[], tuple[int, float]], rounds: int) -> tuple[float, tuple[int, float]]:
    """The best of some rounds, seconds, and the answer."""
    best, answer = float("inf"), (0, 0.0)
    for _ in range(rounds):
        began = time.process_time()
        answer = act()
        best = min(best, time.process_time() - began)
    return best, answer


def steps_of(joins: Sequence[CellJoin]) -> Iterator[StepMeasure]:
    """What every step did."""
    for join in joins:
        for steps in join.steps.values():
            yield from steps


def main() -> int:
    """Measures, prints and judges."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true", help="a sixth of the tuples")
    parser.add_argument("--method", choices=["merge", "hash"], default="merge")
    parser.add_argument("--only", default="", help="works whose name has this in it")
    parser.add_argument("--profile", action="store_true", help="show where the time goes, without DuckDB")
    options = parser.parse_args()
    pa.set_cpu_count(1)
    shown = Table(
        "work",
        "rows in",
        "pairs",
        "s",
        "M rows/s",
        "steps s",
        "decode s",
        "DuckDB s",
        "times",
        "expected",
        "",
    )
    holds = True
    for work in works(options.quick):
        if options.only not in work.name:
            continue
        plan = plan_of(work)
        order = order_of(plan, Method(options.method))
        with tempfile.TemporaryDirectory() as name:
            paths = write(work, plan, Path(name))
            # compiles what is compiled
            joined(work, plan, order, {place: path for place, path in paths.items() if place[2] < 1})
            if options.profile:
                cProfile.runctx("joined(work, plan, order, paths)", globals(), locals(), sort="tottime")
                continue
            joins: list[CellJoin] = []

            def act() -> tuple[int, float]:
                nonlocal joins
                *answer, joins = joined(work, plan, order, paths)  # noqa: B023
                return answer[0], answer[1]

            seconds, answer = timed(act, 3)
        tables = {
            stream.name: pa.concat_tables(
                [
                    tuples(work, number, cut)
                    for cut in range(1 if plan.inputs[number].is_static else work.cuts)
                ]
            )
            for number, stream in enumerate(work.streams)
        }
        its_seconds, its_answer = timed(lambda: by_duckdb(work, tables), 1)  # noqa: B023
        assert answer[0] == its_answer[0], f"{answer}, by DuckDB {its_answer}"
        assert abs(answer[1] - its_answer[1]) <= 1e-6 * abs(its_answer[1])
        rows = sum(table.num_rows for table in tables.values())
        times = its_seconds / seconds
        holds = holds and times >= work.expected
        shown.add_row(
            work.name, f"{rows:,}", f"{answer[0]:,}", f"{seconds:.2f}", f"{rows / seconds / 1e6:.2f}",
            f"{sum(each.seconds + each.build_seconds for each in steps_of(joins)):.2f}",
            f"{sum(each.decoded.seconds for each in joins):.2f}", f"{its_seconds:.2f}", f"{times:.2f}",
            f"{work.expected:g}", "" if times >= work.expected else "does not hold",
        )  # fmt: skip
    Console(width=150).print(shown)
    return 0 if holds else 1


if __name__ == "__main__":
    sys.exit(main())
