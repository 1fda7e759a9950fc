"""Declaring many views: seconds and memory by their number, from SQL and from Python; one more on a running engine.

    python benchmarks/declaring.py [--sizes 1000 10000 100000] [--profile FOLDER]

Views are drawn with a fixed seed: of ten, six are two ranges of numbers, two an equality of strings beside a range, one a list
of strings, one a LIKE. Each size and way has a process of its own, with one Spark session that has declared a view before. On the
running engine, `one more` and `one dropped` are measured from the call to the plan version being stored and compiled, which is what the next
batch waits for. Memory is the resident memory of the driver's Python that declaring adds, in bytes a view.
Beside wall time is the processor time of the process with all that it started. An expectation holds where either of them does: a
machine that others use too takes longer by the clock. The exit code is 1 where one does not hold.
"""

from __future__ import annotations

import argparse
import cProfile
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from expectations import Expectations
from processes import processor_seconds

COLUMNS = "id BIGINT, distance INT, delay INT, fare DOUBLE, carrier STRING, origin STRING, note STRING"
#: at most so many seconds for 10,000 views; in proportion for others
SECONDS = 8.0
#: at most so many seconds until one view more, or less, can be answered
ONE_SECONDS = 0.5
#: fewer views are not judged in proportion: a call of Spark takes what it takes
LEAST_SECONDS = 1.5
WAYS = ("sql", "python")


def conditions(count: int) -> Iterator[str]:
    """Conditions of the four kinds, in proportion."""
    random_ = random.Random(35)
    for number in range(count):
        low = random_.randrange(0, 9_000)
        match number % 10:
            case 0 | 1 | 2 | 3 | 4 | 5:
                yield f"distance BETWEEN {low} AND {low + random_.randrange(1, 900)} AND delay > {random_.randrange(600)}"
            case 6 | 7:
                yield f"carrier = 'c{random_.randrange(500)}' AND fare < {low / 4}"
            case 8:
                names = ", ".join(f"'o{random_.randrange(3_000)}'" for _ in range(3))
                yield f"origin IN ({names}) AND delay > {low % 700}"
            case _:
                yield f"note LIKE '%w{random_.randrange(100_000)}%'"


def queries(count: int) -> dict[str, str]:
    """The queries by name."""
    return {
        f"v{number}": f"SELECT id, distance FROM flights WHERE {condition}"
        for number, condition in enumerate(conditions(count))
    }


def resident() -> int:
    """Resident memory of this process, bytes."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@contextmanager
def profiled(target: Path | None) -> Iterator[None]:
    """Writes the profile of what it encloses to a file."""
    if target is None:
        yield
        return
    profile = cProfile.Profile()
    with profile:
        yield
    profile.dump_stats(target)


def measure(way: str, count: int, profile: Path | None) -> dict[str, float]:
    """The figures of one size and way, in this process."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from penstock.spark.engine import Engine
    from penstock.spark.sessions.build import build_session

    spark = build_session("local[2]", {"spark.driver.memory": "3g"})
    figures: dict[str, float] = {}

    @contextmanager
    def timed(what: str) -> Iterator[None]:
        used, began = processor_seconds(os.getpid()), time.perf_counter()
        with profiled(None if profile is None else profile / f"{what}-{way}-{count}.prof"):
            yield
        figures[what] = time.perf_counter() - began
        figures[f"{what}, processor"] = processor_seconds(os.getpid()) - used

    with tempfile.TemporaryDirectory(prefix="penstock-declaring-") as name:
        folder = Path(name)
        (folder / "in").mkdir()
        table = f"CREATE TABLE flights ({COLUMNS}) USING parquet OPTIONS (path '{folder / 'in'}');"
        Engine(spark).execute(
            f"{table}CREATE VIEW first AS SELECT id FROM flights WHERE delay > 3 AND note LIKE '%a%';"
        )
        wanted = queries(count)
        script = "\n".join(f"CREATE VIEW {view} AS {query};" for view, query in wanted.items())
        engine = Engine(spark).execute(table)
        before = resident()
        with timed("declaring"):
            if way == "sql":
                engine.execute(script)
                list(engine.warnings)
            else:
                engine.add_views(wanted)
        figures["bytes a view"] = (resident() - before) / count
        if way == "sql":
            spark.stop()
            return figures

        def arrive(number: int) -> None:
            rows = pa.table(
                {
                    "id": pa.array([number]),
                    "distance": pa.array([5], pa.int32()),
                    "delay": pa.array([700], pa.int32()),
                    "fare": [1.0],
                    "carrier": ["c1"],
                    "origin": ["o1"],
                    "note": ["none"],
                }
            )
            pq.write_table(rows, folder / f"{number}.parquet")
            (folder / f"{number}.parquet").rename(folder / "in" / f"{number}.parquet")

        def events(kind: str) -> list[dict[str, object]]:
            lines = (folder / "out" / "events.jsonl").read_text().splitlines(keepends=True)
            found = [json.loads(line) for line in lines if line.endswith("\n")]
            return [each for each in found if each["kind"] == kind]

        def answered(number: int) -> None:
            """Waits until a batch has answered what arrives now."""
            known = len(events("batch"))
            arrive(number)
            while len(events("batch")) == known:
                time.sleep(0.02)

        with timed("start"):
            run = engine.start(folder / "out")
        with timed("first batch"):
            answered(0)
        with timed("next batch"):
            answered(1)
        changes = {
            "one more": lambda: engine.view(
                "more", "SELECT id FROM flights WHERE distance BETWEEN 1 AND 77 AND delay > 5"
            ),
            "one dropped": lambda: engine.drop("v7"),
        }
        plans = engine._execution.queries["flights"].plans  # type: ignore[union-attr]
        for arrival, (what, change) in enumerate(changes.items(), 2):
            with timed(what):
                change()
                plans.begin(1_000_000 + arrival)
            with timed(f"{what}, next batch"):
                answered(arrival)
        run.stop()
    spark.stop()
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sizes", type=int, nargs="+", default=[1_000, 10_000, 100_000])
    parser.add_argument("--ways", nargs="+", default=WAYS, choices=WAYS)
    parser.add_argument("--profile", type=Path, help="folder for the profiles of each part")
    parser.add_argument(
        "--alone", action="store_true", help="one size and way in this process; prints its figures as JSON"
    )
    asked = parser.parse_args()
    if asked.alone:
        print(json.dumps(measure(asked.ways[0], asked.sizes[0], asked.profile)))
        return
    expectations = Expectations(judged=asked.profile is None)
    for count in asked.sizes:
        for way in asked.ways:
            command = [sys.executable, __file__, "--alone", "--sizes", str(count), "--ways", way]
            if asked.profile is not None:
                command += ["--profile", str(asked.profile)]
            done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
            figures = json.loads(done.stdout.splitlines()[-1])
            print(f"{count:,} views by {way}, load average {os.getloadavg()[0]:.1f}", flush=True)
            for what, figure in figures.items():
                if what.endswith(", processor"):
                    continue
                used = figures.get(f"{what}, processor")
                print(
                    f"    {what}: {figure:,.2f}" + ("" if used is None else f" s, processor {used:,.2f} s"),
                    flush=True,
                )
            most = max(SECONDS * count / 10_000, LEAST_SECONDS)
            limits = {"declaring": most, "one more": ONE_SECONDS, "one dropped": ONE_SECONDS}
            for what in limits.keys() & figures.keys():
                least = min(figures[what], figures[f"{what}, processor"])
                expectations.at_most(f"{count:,} views by {way}, {what}, seconds", least, limits[what])
    sys.exit(expectations.exit_code)


if __name__ == "__main__":
    main()
