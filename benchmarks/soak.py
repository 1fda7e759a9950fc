"""Weeks in an hour: very many small batches, and whether the last ones cost what the first ones did.

One stream that always has a next batch of 200 tuples, so that as many batches pass as the machine can answer; 1 % of
the tuples are up to five minutes late, and 1 in 10,007 later than the history reaches back. Fifty selections, two window views,
and one of each that comes and goes. What ages a run is turned up: a batch is five seconds of event time, the
history keeps a minute, events turn early.

The run has ten stretches of the same length and four processes: 1 | 2 to 5 | 6 to 9 | 10. The first, the third and the last are killed
with everything they have started (kill -9), the second ends by a word; before 4 and 8 the run in the process is ended and begun
again. So 2 and 10 are alike, both the first stretch of a process, and so are 3 and 7, 4 and 8, 5 and 9. Starts are measured
thrice after the first stretch and thrice after the last one, each after a kill; the best counts.

Measured from outside: processor time a batch of the driver, the JVM and the workers (the machine may be shared, so this is
judged and the clock is told), leaving out the first hundred batches of a process; their memory (proportional set size) and, after a
collection, what is alive in the JVM's heap; files and bytes by kind. At the end the answers are compared with DuckDB's.

Expected, or the exit code is 1: the last stretch no dearer a batch than the second by more than 10 %; no memory more than 10 %
above that of the second stretch in the last one, nor in 9 above 7 of the same process; files and bytes of each kind but
results and definitions no more than half above the second stretch's; a start after it no dearer than after the first
stretch by more than 10 %; the log has lost its beginning; no event tells of a failure; every answer right; no process is left.

    python benchmarks/soak.py [--batches 100000] [--minutes 60] [--short] [--output out/bench/soak]

A stretch ends after a tenth of the batches or of the minutes, whatever comes first. `--short` is two processes, the first one killed,
whose answers, end and log are judged alone: it is too short to age.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import matplotlib as mpl
import numpy as np
from rich.console import Console
from rich.table import Table

mpl.use("Agg")
from matplotlib import pyplot as plt

from penstock.spark.log.stream_log import LogReader
from penstock.spark.storage.layout import Layout
from soak_answers import Answers
from soak_lives import STRETCHES, Life, Plan, Soak
from soak_measures import BOUNDED, PARTS, RESULTS
from soak_stream import STREAM, Pace

ROOT = Path(__file__).resolve().parent.parent
LONG = Plan(
    Pace(25_000, 60.0, 250),
    (Life((1,), True), Life((2, 3, 4, 5), False), Life((6, 7, 8, 9), True), Life((10,), True)),
    begins_again=(4, 8),
    look_seconds=5.0,
    starts=3,
)
SHORT = Plan(
    Pace(400_000, 2.0, 50, is_brief=True),
    (Life((1, 2, 3, 4), True), Life((5, 6, 7, 8, 9, 10), False)),
    begins_again=(8,),
    look_seconds=0.5,
)
MEGA = 1 << 20
PROCESSOR = "processor, ms a batch"
#: the most that the last stretch may have of what the second one had
PROCESSOR_LIMIT, MEMORY_LIMIT, FILES_LIMIT, START_LIMIT = 1.1, 1.1, 1.5, 1.1


def figures(soak: Soak) -> dict[str, list[float]]:
    """By name a figure of each stretch."""
    costs = [soak.cost(stretch) for stretch in STRETCHES]
    rows = {
        "batches": [float(soak.batches(stretch)) for stretch in STRETCHES],
        "clock, ms a batch": [cost["clock"] * 1e3 for cost in costs],
        PROCESSOR: [sum(cost[part] for part in PARTS) * 1e3 for cost in costs],
        **{f"  {part}": [cost[part] * 1e3 for cost in costs] for part in PARTS},
        "ingest batch, ms": [soak.median_seconds("batch", stretch) * 1e3 for stretch in STRETCHES],
        "windows batch, ms": [soak.median_seconds("windows", stretch) * 1e3 for stretch in STRETCHES],
        **{f"{part}, MB": [soak.held(n, part) / MEGA for n in STRETCHES] for part in PARTS},
        "alive in the heap, MB": [soak.heap(stretch) / MEGA for stretch in STRETCHES],
    }
    for kind in (*BOUNDED, RESULTS):
        found = [soak.kept(stretch, kind) for stretch in STRETCHES]
        rows[f"{kind}, files"] = [files for files, _ in found]
        rows[f"{kind}, MB"] = [size / MEGA for _, size in found]
    return rows


def aged(soak: Soak, rows: dict[str, list[float]]) -> list[tuple[bool, str]]:
    """What was expected of a run that is long enough to age: whether it held, and the figure."""
    told = []

    def judge(name: str, later: int, sooner: int, limit: float) -> None:
        one, other = rows[name][later - 1], rows[name][sooner - 1]
        ratio = one / other if other else float("nan")
        told.append(
            (
                ratio <= limit,
                f"{name}: {one:.4g} in stretch {later}, {other:.4g} in {sooner}: {ratio:.2f} times, allowed {limit}",
            )
        )

    judge(PROCESSOR, 10, 2, PROCESSOR_LIMIT)
    for name in (*(f"{part}, MB" for part in PARTS), "alive in the heap, MB"):
        judge(name, 10, 2, MEMORY_LIMIT)
        judge(name, 9, 7, MEMORY_LIMIT)
    for kind in BOUNDED:
        judge(f"{kind}, files", 10, 2, FILES_LIMIT)
        judge(f"{kind}, MB", 10, 2, FILES_LIMIT)
    sooner, later = soak.starts_after(1), soak.starts_after(10)
    one, other = min(each.processor for each in later), min(each.processor for each in sooner)
    told.append(
        (
            one <= START_LIMIT * other,
            f"a start: {one:.1f} s of a processor after the last stretch, {other:.1f} s after the first: "
            f"{one / other:.2f} times, allowed {START_LIMIT}; by the clock {min(each.seconds for each in later):.1f} "
            f"and {min(each.seconds for each in sooner):.1f} s",
        )
    )
    return told


def table_of(soak: Soak, rows: dict[str, list[float]]) -> Table:
    """The figures of all stretches."""
    table = Table("stretch", *map(str, STRETCHES), "10 / 2")
    for name, values in rows.items():
        digits = 0 if values[1] >= 100 or name.endswith(("files", "batches")) else 1 if values[1] >= 10 else 2
        ratio = values[9] / values[1] if values[1] else float("nan")
        table.add_row(name, *(f"{value:,.{digits}f}" for value in values), f"{ratio:.2f}")
    starts = ", ".join(
        f"{each.after}: {each.seconds:.1f} ({each.processor:.1f} of a processor)" for each in soak.starts
    )
    table.caption = (
        f"{soak.newest + 1:,} batches in {soak.minutes:.1f} minutes, {len(soak.starts)} starts of a process, "
        f"{soak.kills} of them after a kill -9. Start to first batch, s, after stretch {starts}"
    )
    return table


def draw(soak: Soak, rows: dict[str, list[float]], path: Path) -> None:
    """Processor time, batches, memory and files over the run."""
    figure, grid = plt.subplots(2, 2, figsize=(14, 8))
    bottom = np.zeros(len(STRETCHES))
    for part in PARTS:
        values = np.nan_to_num(rows[f"  {part}"])
        grid[0, 0].bar(list(STRETCHES), values, bottom=bottom, label=part)
        bottom += values
    grid[0, 0].set(title=PROCESSOR, xlabel="stretch")
    for kind, label in (("batch", "ingest"), ("windows", "windows")):
        numbers, seconds = soak.seconds(kind)
        grid[0, 1].plot(numbers, np.array(seconds) * 1e3, ",", label=label)
    grid[0, 1].set(title="clock, ms a batch", xlabel="batch of its query", yscale="log")
    minutes = [each.at / 60 for each in soak.samples]
    for part in PARTS:
        held = [each.spent.memory[part] / MEGA for each in soak.samples]
        grid[1, 0].plot(minutes, held, label=part)
    grid[1, 0].set(title="memory, MB", xlabel="minutes")
    for kind in (*BOUNDED, RESULTS):
        grid[1, 1].plot(minutes, [each.kept[kind][0] for each in soak.samples], label=kind)
    grid[1, 1].set(title="files", xlabel="minutes")
    for axes in grid.flat:
        axes.set_ylim(bottom=None if axes.get_yscale() == "log" else 0)
        axes.legend()
    figure.tight_layout()
    figure.savefig(path, dpi=120)


def main() -> int:
    """Runs, measures, compares; 1 where something did not hold."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--batches", type=int, help="100,000, or 300 of a short one")
    parser.add_argument("--minutes", type=float, default=24 * 60)
    parser.add_argument("--short", action="store_true")
    parser.add_argument("--output", type=Path, default=ROOT / "out" / "bench" / "soak")
    given = parser.parse_args()
    plan = SHORT if given.short else LONG
    batches = given.batches or (300 if given.short else 100_000)
    soak = Soak(given.output, plan, batches, given.minutes * 60)
    soak.run()
    rows = figures(soak)
    console = Console(width=180)
    console.print(table_of(soak, rows))
    draw(soak, rows, given.output / "soak.png")
    judged = [] if given.short else aged(soak, rows)
    log = LogReader(Layout.of(soak.out, None).log(STREAM))
    newest = log.newest()
    assert newest is not None, "batches were answered"
    judged.append(
        (log.first > 0, f"the log begins with entry {log.first:,}, its last one is {newest.number:,}")
    )
    judged.append((not soak.failures, f"events that tell of a failure: {len(soak.failures)}"))
    answers = Answers(soak.out, plan.pace.step)
    wrong = answers.wrong()
    finals = ", ".join(f"{count:,} of {view}" for view, count in answers.finals.items())
    judged.append(
        (
            not wrong,
            f"answers equal DuckDB's: {answers.matches:,} matches, final rows {finals}; of very late tuples "
            f"{answers.aside:,} were set aside and {answers.strays:,} not",
        )
    )
    for each in [*soak.failures, *wrong]:
        console.print(f"WRONG: {each}", highlight=False)
    for holds, text in judged:
        console.print(f"{'held    ' if holds else 'NOT HELD'} {text}", highlight=False)
    if soak.newest + 1 < batches:
        console.print(f"{soak.newest + 1:,} of {batches:,} batches: the time was over", highlight=False)
    return 0 if all(holds for holds, _ in judged) else 1


if __name__ == "__main__":
    sys.exit(main())
