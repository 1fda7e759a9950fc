"""What derived expressions cost: rows/s from Parquet to the worker, by the form they travel in.

Expression n is `x * a[i] + a[j] > c` over 90 distinct scalars `x * a[i] + a[j]`; its raising twin
uses the integers `a[i] * (a[j] - 1)`. Uniform data, seed 1. Each figure is the better of two runs after
one that is not counted, so neither analysis nor compilation is in it; `plan s` is the first run less the best.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from time import perf_counter

import matplotlib as mpl
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from rich.console import Console
from rich.table import Table

from penstock.operators.ingest.derived import DerivedLayout
from penstock.plan.expressions import Derived
from penstock.spark.analysis.derive import derive, derive_packed

mpl.use("Agg")
from matplotlib import pyplot as plt

ATTRIBUTES = 10
Worker = Callable[[pa.RecordBatch], int]


def _scalar(number: int) -> str:
    first, gap = number % ATTRIBUTES, 1 + number // ATTRIBUTES % (ATTRIBUTES - 1)
    return f"x * a{first} + a{(first + gap) % ATTRIBUTES}"


def _constant(number: int) -> int:
    return number * 7919 % 15_000


def booleans(count: int, raising: bool) -> list[Derived]:
    """Distinct boolean expressions that cannot or may raise."""
    if raising:
        return [
            Derived(
                f"v{number}",
                f"a{number % ATTRIBUTES} * (a{number * 7 % ATTRIBUTES} - 1) > {_constant(number)}",
                pa.bool_(),
                f"e{number}",
            )
            for number in range(count)
        ]
    return [
        Derived(f"v{number}", f"{_scalar(number)} > {_constant(number)}", pa.bool_())
        for number in range(count)
    ]


def _count(_batch: pa.RecordBatch) -> int:
    return 0


def forms(df: DataFrame, count: int) -> dict[str, tuple[Callable[[], DataFrame], Worker]]:
    """The forms compared: what makes the frame, and what the worker does with each of its batches."""
    safe, raising = booleans(count, raising=False), booleans(count, raising=True)
    scalars = list(dict.fromkeys(_scalar(number) for number in range(count)))
    compared = [(scalars.index(_scalar(number)), _constant(number)) for number in range(count)]

    def compare(batch: pa.RecordBatch) -> int:
        return sum(len(pc.greater(batch[f"s{scalar}"], float(constant))) for scalar, constant in compared)

    def unpack(derived: Sequence[Derived]) -> Worker:
        layout = DerivedLayout.of(derived)
        return lambda batch: layout.unpack(batch).num_rows

    array = F.array(*(F.expr(each.expression) for each in safe)).alias("v")
    computed = [Derived(f"s{number}", text, pa.float64()) for number, text in enumerate(scalars)]
    return {
        "nothing derived": (lambda: df, _count),
        "a column each": (lambda: derive(df, safe), _count),
        "one array column": (lambda: df.select("*", array), _count),
        "packed": (lambda: derive_packed(df, safe), unpack(safe)),
        "packed, raising": (lambda: derive_packed(df, raising), unpack(raising)),
        "scalars, compared in the worker": (lambda: derive(df, computed), compare),
    }


def measure(df: DataFrame, worker: Worker) -> tuple[float, float]:
    """Seconds of the first run and of the best of two more."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            worker(batch)
        yield pa.RecordBatch.from_pydict({"rows": pa.array([0], pa.int64())})

    seconds = []
    for _ in range(3):
        start = perf_counter()
        df.mapInArrow(run, "rows LONG").collect()
        seconds.append(perf_counter() - start)
    return seconds[0], min(seconds[1:])


def write_data(path: Path, rows: int) -> None:
    """Ten integer columns and a double, uniform."""
    rng = np.random.default_rng(1)
    columns = {
        f"a{number}": pa.array(rng.integers(0, 10_000, rows), pa.int32()) for number in range(ATTRIBUTES)
    }
    pq.write_table(pa.table(columns | {"x": rng.random(rows)}), path, row_group_size=max(1, rows // 8))


def main(small: bool = False) -> None:
    """Prints the table and draws it into `out/bench/derived_expressions.png`."""
    sizes = {5: 2_000, 40: 2_000} if small else {100: 400_000, 500: 100_000, 2_000: 25_000}
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.driver.memory", "3g")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.files.maxPartitionBytes", "8m")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("OFF")
    table = Table(
        "expressions", "form", "rows", "rows/s", "ns an expression", "plan s", title="Derived expressions"
    )
    rates: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for count, rows in sizes.items():
            path = Path(folder) / f"{rows}.parquet"
            write_data(path, rows)
            for form, (frame, worker) in forms(spark.read.parquet(str(path)), count).items():
                first, best = measure(frame(), worker)
                rates.setdefault(form, []).append(rows / best)
                cost = f"{best / rows / count * 1e9:.0f}" if form != "nothing derived" else ""
                table.add_row(
                    f"{count:,}", form, f"{rows:,}", f"{rows / best:,.0f}", cost, f"{first - best:.1f}"
                )
                spark.conf.unset("spark.sql.codegen.wholeStage")
    Console(width=120).print(table)
    figure, axes = plt.subplots(figsize=(8, 5))
    for form, values in rates.items():
        axes.loglog(list(sizes), values, marker="o", label=form)
    axes.set(
        xlabel="distinct derived boolean expressions", ylabel="rows/s, 2 cores", title="Parquet to the worker"
    )
    axes.legend()
    target = Path("out/bench/derived_expressions.png")
    target.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(target, dpi=120)


if __name__ == "__main__":
    main("--small" in sys.argv)
