"""Users' functions in 200 selections: calls and rows/s where the worker calls them last, and where Spark calls them for every row.

View n is `a BETWEEN 50 n AND 50 n + 19 AND f(b, c) > constant`, every fourth with a second function; `a` is uniform below 10,000, and
eight functions in plain Python take some microseconds a row. Spark's side has the same conditions with `+ 0` behind each call,
which only Spark computes: it is what every call was before. How often Spark calls a function is not counted: once for each row. The sides take turns in one session, three times; medians.
Batches are files; the first of each run, with compilation, does not count.

The third side has one row in a thousand at which a function raises. Answers are checked against numpy.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from rich.console import Console
from rich.table import Table

from expectations import Expectations
from penstock import Engine, Trigger, build_session

VIEWS, FUNCTIONS, SPAN, STEP = 200, 8, 20, 50
WIDE = 10_000
TURNS = 3


def function(number: int) -> Callable[[pa.Array, pa.Array], pa.Array]:
    """A function in plain Python, some microseconds a row; the larger its number, the more of them."""

    def score(b: pa.Array, c: pa.Array) -> pa.Array:
        found = []
        for one, other in zip(b.to_pylist(), c.to_pylist(), strict=True):
            if one < 0:
                raise ValueError(f"{one} is negative")
            value = one
            for _ in range(number + 1):
                value = (value * 31 + other) % 1_000
            found.append(value)
        return pa.array(found, pa.int64())

    return score


def value(number: int, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    """The same by numpy."""
    found = b
    for _ in range(number + 1):
        found = (found * 31 + c) % 1_000
    return found


def calls_of(view: int) -> list[tuple[int, int]]:
    """(function, constant) pairs of a view."""
    own = [(view % FUNCTIONS, 700 + view % 200)]
    if view % 4 == 0:
        own.append(((view // 4 + 3) % FUNCTIONS, 300))
    return list(dict(own).items())


def condition(view: int, left_to_spark: bool) -> str:
    """The WHERE clause of a view."""
    behind = " + 0" if left_to_spark else ""
    own = " AND ".join(f"f{number}(b, c){behind} > {constant}" for number, constant in calls_of(view))
    return f"{own} AND a BETWEEN {STEP * view} AND {STEP * view + SPAN - 1}"


def write(folder: Path, files: int, rows: int, raising: bool) -> dict[str, np.ndarray]:
    """Files of tuples, and all of them as arrays."""
    folder.mkdir()
    rng = np.random.default_rng(3)
    whole: dict[str, list[np.ndarray]] = {"a": [], "b": [], "c": []}
    for number in range(files):
        b = rng.integers(0, 1_000, rows)
        if raising:
            b[rng.random(rows) < 1e-3] = -1
        columns = {"a": rng.integers(0, WIDE, rows), "b": b, "c": rng.integers(0, 1_000, rows)}
        pq.write_table(pa.table(columns), folder / f"{number:03d}.parquet")
        for name, each in columns.items():
            whole[name].append(each)
    return {name: np.concatenate(each) for name, each in whole.items()}


def expected(tuples: dict[str, np.ndarray]) -> tuple[dict[str, int], int, int]:
    """Matches by view; the calls that tuples need which satisfy everything else of a view, whatever the order; tuples that raise."""
    a, b, c = tuples["a"], tuples["b"], tuples["c"]
    found, needed = {}, np.zeros((FUNCTIONS, len(a)), np.bool_)
    for view in range(VIEWS):
        within = (a >= STEP * view) & (a < STEP * view + SPAN)
        rows = np.flatnonzero(within)
        own = within[rows] & (b[rows] >= 0)
        for number, constant in calls_of(view):
            needed[number, rows] = True
            own &= value(number, b[rows], c[rows]) > constant
        if own.any():
            found[f"v{view}"] = int(own.sum())
    return found, int(needed.sum()), int((needed.any(axis=0) & (b < 0)).sum())


def run_side(engine: Engine, folder: Path, output: Path, left_to_spark: bool, rows: int) -> dict[str, Any]:
    """One run over all files."""
    views = "\n".join(
        f"CREATE VIEW v{view} AS SELECT * FROM t WHERE {condition(view, left_to_spark)};"
        for view in range(VIEWS)
    )
    engine.execute(
        f"CREATE TABLE t (a BIGINT, b BIGINT, c BIGINT) USING parquet OPTIONS (path '{folder}', maxFilesPerTrigger '1');\n{views}"
    )
    run = engine.start(output, trigger=Trigger.available_now())
    try:
        run.await_termination()
    finally:
        run.stop()
    batches = run.events("batch")
    matched: Counter[str] = Counter()
    frame = run.matches("t").selectExpr("explode(queries) AS q").groupBy("q").count()
    for row in frame.collect():
        matched[row.q] = row["count"]
    quarantined = sum(sum(each["quarantined"].values()) for each in batches)
    return {
        "rate": rows * (len(batches) - 1) / sum(each["run_seconds"] for each in batches[1:]),
        "called": sum(each["function_rows"] for each in batches),
        "matched": dict(matched),
        "quarantined": quarantined,
        "explain": run.explain(),
    }


def main(files: int, rows: int) -> int:
    """Prints the table and what was expected; returns the exit code."""
    spark = build_session("local[2]", {"spark.ui.showConsoleProgress": "false"})
    spark.sparkContext.setLogLevel("OFF")
    expectations = Expectations(judged=rows >= 50_000)
    found: dict[str, list[dict[str, Any]]] = {}
    with tempfile.TemporaryDirectory() as name:
        home = Path(name)
        data = {raising: write(home / f"in-{raising}", files, rows, raising) for raising in (False, True)}
        sides = {
            "Spark, every row": (True, False),
            "worker, last": (False, False),
            "worker, 1 in 1,000 raises": (False, True),
        }
        for turn in range(TURNS):
            for side, (left_to_spark, raising) in sides.items():
                engine = Engine(spark)
                for number in range(FUNCTIONS):
                    engine.function(f"f{number}", function(number), "BIGINT")
                output = home / f"out-{turn}-{side}"
                found.setdefault(side, []).append(
                    run_side(engine, home / f"in-{raising}", output, left_to_spark, rows)
                )
        wanted = {raising: expected(tuples) for raising, tuples in data.items()}
    whole = files * rows
    rate = {side: statistics.median(each["rate"] for each in own) for side, own in found.items()}
    table = Table("side", "rows/s", "calls", "calls a row", "quarantined", title=f"{VIEWS} selections")
    for side, own in found.items():
        called = FUNCTIONS * whole if "Spark" in side else own[-1]["called"]
        table.add_row(
            side, f"{rate[side]:,.0f}", f"{called:,}", f"{called / whole:.3f}", f"{own[-1]['quarantined']:,}"
        )
    Console(width=120).print(table)
    print(found["worker, last"][-1]["explain"].partition("your functions")[2])
    for side, own in found.items():
        matches, _, raised = wanted[sides[side][1]]
        hold = all(each["matched"] == matches for each in own)
        expectations.hold(
            f"{side}: matches are those of numpy", hold, f"{sum(matches.values()):,}", always=True
        )
        # a tuple that an earlier call turned away was not given to the next
        most = max(each["quarantined"] for each in own)
        within = 0 < most <= 2 * raised if raised else most == 0
        expectations.hold(f"{side}: tuples that raise are quarantined", within, f"{most:,}", always=True)
    plain = found["worker, last"]
    expectations.hold(
        "a function is called for tuples that satisfy everything else alone",
        all(0 < each["called"] <= wanted[False][1] for each in plain),
        f"{plain[-1]['called']:,} of at most {wanted[False][1]:,}",
        always=True,
    )
    expectations.at_least(
        "rows times functions (what Spark calls) by calls of the worker",
        FUNCTIONS * whole / plain[-1]["called"],
        10,
    )
    expectations.at_least("rows/s after by rows/s before", rate["worker, last"] / rate["Spark, every row"], 3)
    expectations.at_least(
        "rows/s where 1 in 1,000 raises, by those without",
        rate["worker, 1 in 1,000 raises"] / rate["worker, last"],
        0.6,
    )
    return expectations.exit_code


if __name__ == "__main__":
    small = "--small" in sys.argv
    sys.exit(main(3, 5_000) if small else main(6, 100_000))
