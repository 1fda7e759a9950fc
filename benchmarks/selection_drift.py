"""An abrupt change of the data on Spark: how soon the evaluations a tuple are near-optimal again.

D1 and D2 of `selection_paper`, their first 10 attributes, in Parquet files that are a batch each; D2
begins in the middle of a file. The recomputation period lambda is one file's rows, the matcher is held to
the ASC side and to Hybrid sequences, mu is the default. The controller works beside the stream, so the next file arrives when
the controller has had PAUSE seconds after its sample of the file before: the figure is in periods. Queries: Q1 of seed 11, 20 conjunctions of 5 to 7 ranges of 10 to 40
values. The optimum for D2 is the cheaper of the best fixed order (exhaustive) and a Hybrid sequence found
at leisure, both on D2's own tuples. Everything shown is read from the run's `events.jsonl`.
"""

from __future__ import annotations

import json
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession
from rich.console import Console
from rich.table import Table

from expectations import Expectations
from penstock.kernels.asc import Codes
from penstock.operators.coding.encode import ColumnEncoder
from penstock.operators.selection.asc import AscIndex
from penstock.optimizer.sequences import arrange
from penstock.spark.engine import Engine
from penstock_lab.simulate.baselines import extreme_orders
from selection_paper import anywhere, non_uniform, uniform

mpl.use("Agg")
from matplotlib import pyplot as plt

ATTRIBUTES = 10
QUERIES = 20
QUERY_SEED = 11
#: tuples of a period when a sequence is found at leisure
LEISURE = 10_000
#: seconds between a batch's sample and the next file
PAUSE = 2.0
#: cost may exceed the optimum by so much, within so many recomputation periods
TOLERANCE, PERIODS = 0.1, 2


@dataclass(frozen=True, slots=True)
class DriftScale:
    """Size of a run.

    Attributes:
        file_rows: rows of a file, of a batch and of lambda.
        files: how many; the middle one changes half way.
        sample_tuples: sampled tuples a task; a batch's are enough for a Hybrid sequence.
    """

    file_rows: int
    files: int
    sample_tuples: int


FULL = DriftScale(200_000, 13, 10_000)
SMALL = DriftScale(60_000, 7, 20_000)


def queries() -> dict[str, str]:
    """The conditions of Q1."""
    rng = np.random.default_rng(QUERY_SEED)
    ranges = anywhere(10, 40)
    found = {}
    for number in range(QUERIES):
        used = np.sort(rng.choice(ATTRIBUTES, rng.integers(5, 8), replace=False))
        bounds = [(int(attribute), *ranges(rng, int(attribute))) for attribute in used]
        found[f"q{number}"] = " AND ".join(f"a{a} BETWEEN {low} AND {high}" for a, low, high in bounds)
    return found


def write_stream(folder: Path, scale: DriftScale) -> npt.NDArray[np.int64]:
    """Writes the files, D1 first; returns D2's tuples, int64[attributes, tuples]."""
    rows = scale.file_rows * scale.files
    before = np.stack(uniform(rows // 2)[:ATTRIBUTES])
    after = np.stack(non_uniform(rows - rows // 2)[:ATTRIBUTES])
    values = np.concatenate([before, after], axis=1)
    for number in range(scale.files):
        part = values[:, number * scale.file_rows : (number + 1) * scale.file_rows]
        table = pa.table({f"a{a}": column for a, column in enumerate(part)})
        pq.write_table(table, folder / f"{number:03d}.parquet", row_group_size=scale.file_rows // 4)
    return after


def optimum(index: AscIndex, codes: Codes) -> tuple[float, float]:
    """Evaluations a tuple of the best fixed order and of a Hybrid sequence found at leisure."""
    tuples = codes.shape[1]
    best, _ = extreme_orders(index, codes)
    starts = range(0, tuples - LEISURE + 1, LEISURE)
    settled = arrange(index, (np.ascontiguousarray(codes[:, start : start + LEISURE]) for start in starts))
    return best.evaluations / tuples, index.evaluate(codes, settled).evaluations / tuples


def run_drift(spark: SparkSession, output: Path, small: bool, expect: Expectations) -> None:
    """Runs the stream, prints what `events.jsonl` says of it and whether it is what is expected, and draws the picture."""
    scale = SMALL if small else FULL
    with tempfile.TemporaryDirectory(dir=output) as name:
        folder = Path(name)
        for part in ("stored", "in"):
            (folder / part).mkdir()
        after = write_stream(folder / "stored", scale)
        columns = ", ".join(f"a{a} BIGINT" for a in range(ATTRIBUTES))
        engine = Engine(
            spark,
            strategy="asc",
            sequence="hybrid",
            recomputation_period_tuples=scale.file_rows,
            sample_tuples=scale.sample_tuples,
        )
        engine.execute(
            f"CREATE TABLE tuples ({columns}) "
            f"USING parquet OPTIONS (path '{folder / 'in'}', max_files_per_trigger '1');"
        )
        engine.add_views({name: f"SELECT * FROM tuples WHERE {sql}" for name, sql in queries().items()})
        run = engine.start(folder / "out")
        for number, stored in enumerate(sorted((folder / "stored").iterdir())):
            stored.rename(folder / "in" / stored.name)
            while len(run.events("sequence_sampled")) <= number:
                if not run.active:
                    run.await_termination()
                time.sleep(0.1)
            time.sleep(PAUSE)
        ingest = run._execution.queries["tuples"]
        coded = ingest.plans.compiled(0).program.plan.coded
        run.stop()
        lines = (folder / "out" / "events.jsonl").read_text().splitlines()
    events = [json.loads(line) for line in lines]
    index = AscIndex(coded)
    # the plan orders p-attributes as the queries name them
    columns_of = [int(coding.name.removeprefix("a")) for coding in coded.codings]
    encoders = [ColumnEncoder(coding, np.uint32) for coding in coded.codings]
    codes = index.stack(
        [encoder.encode(pa.array(after[a])) for encoder, a in zip(encoders, columns_of, strict=True)]
    )
    best, settled = optimum(index, codes)
    report(scale, events, best, settled, output, expect)


def report(
    scale: DriftScale,
    events: list[dict[str, Any]],
    best: float,
    settled: float,
    output: Path,
    expect: Expectations,
) -> None:
    """Batch by batch: what a tuple cost and what was decided after it."""
    least = min(best, settled)
    batches = [event for event in events if event["kind"] == "batch"]
    costs = [event["evaluations"] / event["asc_tuples"] for event in batches]
    decided: dict[int, list[str]] = {}
    for event in events:
        if event["kind"] == "decision":
            decided.setdefault(event["batch"], []).append(f"{event['action']}: {event['reason']}")
    table = Table("batch", "data", "evaluations a tuple", "over the optimum", "decided after it")
    middle = scale.files // 2
    for number, cost in enumerate(costs):
        data = "D1" if number < middle else "D2" if number > middle else "D1, then D2"
        over = f"{cost / least - 1:+.1%}" if number > middle else ""
        table.add_row(str(number), data, f"{cost:.3f}", over, "\n".join(decided.get(number, [])))
    Console(width=160).print(table)
    change = scale.file_rows * scale.files // 2
    near = [cost <= (1 + TOLERANCE) * least for cost in costs]
    recovered = next((n for n in range(middle + 1, scale.files) if all(near[n:])), None)
    print(
        f"optimum for D2: best fixed order {best:.3f}, Hybrid found at leisure {settled:.3f} evaluations a tuple"
    )
    aim = f"drift: within {TOLERANCE:.0%} of the optimum within {PERIODS} recomputation periods of {scale.file_rows:,} tuples"
    if recovered is None:
        expect.hold(aim, False, "never for good in this run")
    else:
        periods = (recovered * scale.file_rows - change) / scale.file_rows
        expect.hold(aim, periods <= PERIODS, f"took {periods:g}")
    figure, axes = plt.subplots(figsize=(8, 4))
    axes.step(
        np.arange(len(costs) + 1) * scale.file_rows, [*costs, costs[-1]], where="post", label="Penstock"
    )
    axes.axhline(least, linestyle="--", color="grey", label="optimum for D2")
    axes.axvline(change, linestyle=":", color="black", label="D2 begins")
    axes.set(xlabel="tuples", ylabel="evaluations a tuple", title="Abrupt drift on Spark", ylim=(0, None))
    axes.legend()
    figure.tight_layout()
    path = output / "selection_drift_spark.png"
    figure.savefig(path, dpi=120)
    plt.close(figure)
    print(f"picture: {path}")
