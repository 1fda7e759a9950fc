"""How soon anything is said: seconds of commands from their start, each beside its limit.

    python benchmarks/startup.py [--quick]

Run it on a quiet machine. Compiled kernels and the class archive are filled by a first, unmeasured round, as after any
first use of an installation. `--quick` leaves out the demo and the 503 views. Of the matcher the first match is measured, in a
process that has imported it. The exit code is 1 where the better of two runs does not hold its limit. Beside them are the seconds of
processor time of the second run with all its processes: a busy machine changes them less.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from rich.console import Console
from rich.table import Table

#: the number of this option of prctl
_PR_SET_CHILD_SUBREAPER = 36
PENSTOCK = [sys.executable, "-m", "penstock.cli.main"]
TABLE = (
    "CREATE TABLE orders (id INT, city STRING, amount DOUBLE) USING csv OPTIONS (path 'in', header 'true');\n"
)
TWO = "CREATE VIEW large AS SELECT id, city FROM orders WHERE amount > 900;\nCREATE VIEW named AS SELECT id FROM orders WHERE length(city) > 3;\n"
MATCH = """
import time
import pyarrow as pa
from penstock import Matcher
Matcher
began = time.perf_counter()
schema = pa.schema({"distance": pa.int32(), "carrier": pa.string()})
matcher = Matcher({"far": "distance > 2000", "ua": "carrier LIKE 'U%'"}, schema)
assert matcher.match(pa.record_batch({"distance": [2500], "carrier": ["UA"]}, schema)).queries.tolist() == [0, 1]
print(time.perf_counter() - began)
"""


def ten_views() -> str:
    """Ten views: compared columns, and three that Spark computes."""
    views = [
        f"CREATE VIEW v{n} AS SELECT id, amount * 2 AS twice FROM orders WHERE amount > {n} AND city <> 'c{n}';"
        for n in range(7)
    ]
    views += [
        f"CREATE VIEW s{n} AS SELECT * FROM orders WHERE length(city) > {n} AND upper(city) LIKE 'B%';"
        for n in range(3)
    ]
    return TABLE + "\n".join(views)


def many_views() -> str:
    """503 views: compared columns, and some that Spark computes."""
    views = [
        f"CREATE VIEW v{n} AS SELECT id, amount * 2 AS twice FROM orders WHERE amount > {n} AND city <> 'c{n}';"
        for n in range(480)
    ]
    views += [
        f"CREATE VIEW s{n} AS SELECT * FROM orders WHERE length(city) > {n} AND upper(city) LIKE 'B%';"
        for n in range(23)
    ]
    return TABLE + "\n".join(views)


def seconds(command: list[str], folder: Path, code: int = 0) -> float:
    """How long a command took that ends with a code."""
    return ended(command, folder, code)[0]


def ended(command: list[str], folder: Path, code: int) -> tuple[float, str]:
    """How long a command took that ends with a code, and what it printed."""
    began = time.perf_counter()
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode != code:
        raise SystemExit(f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}")
    return time.perf_counter() - began, done.stdout


def adopt_orphans() -> None:
    """Makes this process the parent of those whose parent ends before them, as a JVM's does (Linux)."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def processor_seconds() -> float:
    """Seconds of processor time of all child processes so far; waits for those that have not ended."""
    with suppress(ChildProcessError):
        while True:
            os.wait()
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def first_match(folder: Path) -> float:
    """Seconds that the first matcher and its first match take in a process that has imported what it needs."""
    return float(ended([sys.executable, "-c", MATCH], folder, 0)[1])


def first_batch(folder: Path, script: str) -> float:
    """Seconds from the start of a script to its first batch."""
    out = folder / "first"
    shutil.rmtree(out, ignore_errors=True)
    began = time.perf_counter()
    running = subprocess.Popen(
        [*PENSTOCK, "run", script, "--output", out.name],
        cwd=folder,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        while running.poll() is None:
            events = out / "events.jsonl"
            lines = events.read_text().splitlines(keepends=True) if events.exists() else []
            if any(json.loads(line)["kind"] == "batch" for line in lines if line.endswith("\n")):
                return time.perf_counter() - began
            time.sleep(0.05)
        raise SystemExit(f"run {script} ended with {running.returncode}")
    finally:
        running.terminate()
        running.wait()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="without the demo and the 503 views")
    quick = parser.parse_args().quick
    adopt_orphans()
    with tempfile.TemporaryDirectory(prefix="penstock-startup-") as name:
        folder = Path(name)
        (folder / "in").mkdir()
        (folder / "in" / "orders.csv").write_text("id,city,amount\n1,Bern,950\n2,Oslo,20\n")
        (folder / "two.sql").write_text(TABLE + TWO)
        (folder / "ten.sql").write_text(ten_views())
        (folder / "many.sql").write_text(many_views())
        seconds([*PENSTOCK, "check", "two.sql"], folder)
        seconds([*PENSTOCK, "run", "two.sql", "--output", "out", "--available-now"], folder)
        seconds([sys.executable, "-c", MATCH], folder)
        measured: list[tuple[str, float, Callable[[], float]]] = [
            (
                "a slip in an option",
                0.5,
                lambda: seconds([*PENSTOCK, "run", "two.sql", "--outptu", "x"], folder, 2),
            ),
            (
                "results of plain columns",
                1.0,
                lambda: seconds([*PENSTOCK, "results", "out", "large"], folder),
            ),
            ("results, a wrong name", 1.0, lambda: seconds([*PENSTOCK, "results", "out", "huge"], folder, 2)),
            ("a mistake in a script", 1.0, lambda: seconds([*PENSTOCK, "run", "in/orders.csv"], folder, 2)),
            ("Matcher, first match", 1.0, lambda: first_match(folder)),
            ("check of two views", 4.0, lambda: seconds([*PENSTOCK, "check", "two.sql"], folder)),
            ("check of ten views", 4.5, lambda: seconds([*PENSTOCK, "check", "ten.sql"], folder)),
            ("two views, start to first batch", 8.0, lambda: first_batch(folder, "two.sql")),
        ]
        if not quick:
            measured += [
                ("check of 503 views", 20.0, lambda: seconds([*PENSTOCK, "check", "many.sql"], folder)),
                ("503 views, start to first batch", 20.0, lambda: first_batch(folder, "many.sql")),
                ("demo", 35.0, lambda: seconds([*PENSTOCK, "demo", "--output", "demo/out"], folder)),
            ]
        table = Table("what", "seconds", "processor", "limit", "", title="Seconds from start, of two runs")
        held = True
        for what, limit, measure in measured:
            first, before = measure(), processor_seconds()
            runs = first, measure()
            used = processor_seconds() - before
            held &= min(runs) <= limit
            told = ", ".join(f"{each:.2f}" for each in runs)
            table.add_row(what, told, f"{used:.2f}", f"{limit:g}", "" if min(runs) <= limit else "too slow")
        Console(width=100).print(table)
    sys.exit(0 if held else 1)


if __name__ == "__main__":
    main()
