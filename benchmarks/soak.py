"""Weeks in hours: very many small batches, and whether the last ones cost what the first ones did.

One stream that always has a next batch, so that as many batches pass as the machine can answer: a second of event time
each, 200 tuples, 1 % of them up to five minutes late and 1 in 10,000 later than the history reaches back. Selections, two window
views, and one of each that comes and goes; the process ends by a word or by kill -9 and begins again. What ages a
run is turned up: the history keeps a minute, events rotate early.

Beside it, measured from outside: seconds a batch (ingest and windows), memory of the driver, of the JVM and of the
workers (proportional set size), files and bytes that Penstock keeps (what users own, matches and results, apart), and how
long a start takes. At the end the answers are compared with DuckDB's over the same tuples.

Expected, or the exit code is 1: the last tenth of the batches no slower than the second by more than 10 %, memory no
more than 10 % above that of the second tenth, kept files and bytes no more than in the second tenth and half as much
again, the last start no slower than the second by more than 25 % (one start is one measurement), and every answer right.

    python benchmarks/soak.py [--batches 100000] [--minutes 60] [--life 2000] [--short] [--output out/bench/soak]

It ends after so many batches or minutes, whatever comes first, and says which.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import duckdb
import matplotlib as mpl
import numpy as np
from rich.console import Console
from rich.table import Table

mpl.use("Agg")
from matplotlib import pyplot as plt

from penstock.spark.log.stream_log import LogReader
from penstock.spark.publication.kinds import results_of, view_kind
from penstock.spark.publication.manifests import published_paths, read_published
from penstock.spark.results.window_schemas import readable_view
from penstock.spark.storage.layout import Layout

ROOT = Path(__file__).resolve().parent.parent
ROWS = 200
#: event time of value 0, and between two values, microseconds
BEGIN, STEP = 1_700_000_000_000_000, 5_000
#: lateness of a value, microseconds, by a hash that Spark and DuckDB compute alike
LATENESS = (
    "CASE WHEN value * 7919 % 10007 = 0 THEN 7200000000 "
    "WHEN value * 104729 % 9973 < 100 THEN (value * 31 % 300) * 1000000 ELSE 0 END"
)
COLUMNS = {
    "id": "value",
    "ts": f"timestamp_micros({BEGIN} + value * {STEP} - {LATENESS})",
    "device": "CAST(value * 2654435761 % 10 AS INT)",
    "amount": "CAST(value * 48271 % 1000 AS INT)",
}
SELECTIONS = {
    f"band_{n}": f"SELECT * FROM readings WHERE amount = {n * 19} AND device < 3" for n in range(50)
}
WINDOWS = {
    "by_minute": "SELECT device, window(ts, '1 minute') AS w, count(*) AS n, sum(amount) AS s FROM readings GROUP BY device, w",
    "sliding": "SELECT window(ts, '10 minutes', '2 minutes') AS w, count(*) AS n, max(amount) AS m FROM readings GROUP BY w",
}
PASSING = {
    "passing_band": "SELECT id FROM readings WHERE amount < 3",
    "passing_window": "SELECT window(ts, '1 minute') AS w, count(*) AS n FROM readings WHERE device = 1 GROUP BY w",
}
#: what ages a run, turned up
TUNE = {
    "history_seconds": 60.0,
    "events_bytes": 1 << 20,
    "events_files": 3,
    "max_delay_seconds": 600.0,
    "idle_seconds": 0,
    "watch_seconds": 0,
}
#: batches between two changes of the views
VIEWS_EVERY = 150
SAMPLE_SECONDS = 5.0


def live(output: Path, until: int) -> None:
    """One process: runs until it is killed or told to end, and writes a line a batch."""
    from penstock.settings import Settings
    from penstock.spark.engine import Engine
    from penstock.spark.sessions.build import build_session

    began = time.time()
    conf = {
        "spark.driver.memory": "1g",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
        "spark.ui.enabled": "false",
    }
    spark = build_session("local[2]", conf, "soak")
    source = (
        spark.readStream.format("rate-micro-batch").option("rowsPerBatch", ROWS).option("numPartitions", 1)
    )
    frame = source.load().selectExpr(*(f"{text} AS {name}" for name, text in COLUMNS.items()))
    tune = {name: value for name, value in TUNE.items() if name in Settings.model_fields}
    engine = Engine(spark, shards=2, **tune).stream("readings", frame, event_time="ts")
    engine.views({**SELECTIONS, **WINDOWS})
    run = engine.start(output)
    told = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: told.set())
    passing = False
    seen = {"batch": -1, "windows": -1}
    changed = 0
    with (output.parent / "series.jsonl").open("a", buffering=1) as series:
        while not told.is_set() and run.active and seen["batch"] < until:
            told.wait(1.0)
            for event in run.events():
                kind = event["kind"]
                if kind not in seen or event["batch"] <= seen[kind]:
                    continue
                if kind == "batch" and seen["batch"] < 0:
                    line = {"kind": "start", "seconds": time.time() - began, "batch": event["batch"]}
                    series.write(json.dumps(line) + "\n")
                seen[kind] = event["batch"]
                parts = ("bind", "run", "publish") if kind == "batch" else ("run", "make", "publish")
                spent = sum(event[f"{part}_seconds"] for part in parts)
                series.write(json.dumps({"kind": kind, "batch": event["batch"], "seconds": spent}) + "\n")
            if seen["batch"] - changed >= VIEWS_EVERY:
                changed, passing = seen["batch"], not passing
                if passing:
                    engine.views(PASSING)
                else:
                    engine.drop(*PASSING)
    if not run.active:
        run.await_termination(1.0)
    run.stop()
    spark.stop()


@dataclass
class Lives:
    """What was seen from outside.

    Attributes:
        samples: by time: batch, kilobytes of driver, JVM and workers, kept and owned files and bytes.
        kills: processes that were killed.
    """

    samples: list[dict[str, Any]] = field(default_factory=list)
    kills: int = 0


def soak(work: Path, batches: int, minutes: float, life: int, seed: int = 1) -> Lives:
    """Runs one process after another until so many batches are published or the time is over.

    Args:
        work: emptied; holds `out`, `series.jsonl` and the processes' output.
        batches, minutes: the end.
        life: batches of a process at the most; every second one is killed with SIGKILL before.
        seed: draws when.
    """
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    draw, lives = random.Random(seed), Lives()
    ends_at = time.monotonic() + minutes * 60
    while (done := newest_batch(work)) < batches - 1 and time.monotonic() < ends_at:
        is_killed = len(lives.samples) > 0 and lives.kills * 2 < life_number(work)
        until = min(batches - 1, done + (draw.randint(life // 2, life) if is_killed else life))
        with (work / "process.log").open("ab") as log:
            command = [sys.executable, __file__, "--live", str(work / "out"), str(until)]
            process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, start_new_session=True)
        while process.poll() is None:
            time.sleep(min(SAMPLE_SECONDS, max(0.1, ends_at - time.monotonic())))
            lives.samples.append(sample(work, process.pid))
            if time.monotonic() >= ends_at:
                process.terminate()
                process.wait(120)
            elif is_killed and newest_batch(work) >= until - 1:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                lives.kills += 1
        if process.returncode not in (0, -signal.SIGKILL):
            tail = (work / "process.log").read_text(errors="replace")[-4_000:]
            raise RuntimeError(f"a process ended with {process.returncode}:\n{tail}")
    return lives


def series(work: Path, kind: str) -> list[dict[str, Any]]:
    """The lines of one kind; a batch that was repeated counts as it was last."""
    path = work / "series.jsonl"
    lines = path.read_text().splitlines() if path.exists() else []
    found = {}
    for number, line in enumerate(lines):
        try:
            document = json.loads(line)
        except ValueError:
            continue
        if document["kind"] == kind:
            found[number if kind == "start" else document["batch"]] = document
    return list(found.values())


def newest_batch(work: Path) -> int:
    """The newest batch that was told; -1 before any."""
    return max((each["batch"] for each in series(work, "batch")), default=-1)


def life_number(work: Path) -> int:
    """How many processes have answered a batch."""
    return len(series(work, "start"))


def sample(work: Path, leader: int) -> dict[str, Any]:
    """Memory of a process and what it started, in kB, and files and bytes on the disk."""
    memory = {"driver": 0, "jvm": 0, "workers": 0}
    for process in Path("/proc").iterdir():
        if not process.name.isdigit():
            continue
        try:
            if os.getsid(int(process.name)) != leader:
                continue
            rollup = (process / "smaps_rollup").read_text()
            command = (process / "cmdline").read_bytes()
        except (OSError, ProcessLookupError):
            continue
        kilobytes = int(rollup.partition("\nPss:")[2].split()[0])
        java = b"java" in command.partition(b"\0")[0]
        memory["jvm" if java else "driver" if int(process.name) == leader else "workers"] += kilobytes
    kept, owned = [0, 0], [0, 0]
    for folder, _, names in os.walk(work / "out"):
        parts = Path(folder).relative_to(work / "out").parts
        where = owned if parts[:1] in (("matches",), ("results",), ("quarantine",)) else kept
        for name in names:
            try:
                size = Path(folder, name).stat().st_size
            except FileNotFoundError:
                continue
            where[0] += 1
            where[1] += size
    return {
        "batch": newest_batch(work),
        **memory,
        "kept_files": kept[0],
        "kept_bytes": kept[1],
        "owned_files": owned[0],
        "owned_bytes": owned[1],
    }


def wrong_answers(work: Path) -> list[str]:
    """How the answers differ from DuckDB's over the same tuples; nothing where they are the same.

    Matches of all published batches, and final windows of those that the windows have been given. Tuples that were set
    aside as later than the history reaches are left out of the windows; no others may be in the quarantine.
    """
    layout, told = Layout.of(work / "out", None), []
    db = duckdb.connect()
    db.execute("SET TimeZone = 'UTC'")
    columns = ", ".join(f"{_duckdb(text)} AS {name}" for name, text in COLUMNS.items())
    published = (newest(layout, "readings")["batch"] + 1) * ROWS
    db.execute(f"CREATE TABLE readings AS SELECT {columns} FROM range({published}) t(value)")
    db.execute(f"CREATE VIEW matches AS SELECT id, queries FROM {_files(layout, 'readings', 'matches')}")
    for name, text in SELECTIONS.items():
        condition = text.partition(" WHERE ")[2]
        wanted = db.execute(f"SELECT count(*), sum(id) FROM readings WHERE {condition}").fetchone()
        found = db.execute(
            f"SELECT count(*), sum(id) FROM matches WHERE list_contains(queries, '{name}')"
        ).fetchone()
        if wanted != found:
            told.append(f"{name}: (tuples, sum of ids) {found}, DuckDB says {wanted}")
    entry = newest(layout, results_of("readings"))["entry"]
    given = (LogReader(layout.log("readings")).entry(entry).batch + 1) * ROWS
    late = sorted(set_aside(layout))
    db.execute(
        f"CREATE TABLE windowed AS SELECT * FROM readings WHERE id < {given} AND id NOT IN (SELECT unnest(?))",
        [late],
    )
    strangers = _one(
        db, f"SELECT count(*) FROM (SELECT unnest({late!r}::BIGINT[]) AS id) WHERE id * 7919 % 10007 <> 0"
    )
    if strangers:
        told.append(f"{strangers} tuples that are not very late are in the quarantine")
    for view, (key, value, wanted_rows) in _WANTED.items():
        operator = readable_view(layout, "readings", view)
        assert operator is not None, view
        files = _files(layout, results_of("readings"), view_kind(operator.operator, view))
        db.execute(
            f"CREATE TABLE {view} AS SELECT w.start AS start, {key} AS device, n, {value} AS v, is_final FROM {files} "
            f"QUALIFY row_number() OVER (PARTITION BY w.start, {key} ORDER BY revision DESC) = 1"
        )
        finals = _one(db, f"SELECT count(*) FROM {view} WHERE is_final")
        differ = _one(
            db,
            f"SELECT count(*) FROM {view} AS o LEFT JOIN ({wanted_rows}) AS d ON o.start = d.start "
            "AND o.device IS NOT DISTINCT FROM d.device "
            "WHERE o.is_final AND (o.n IS DISTINCT FROM d.n OR o.v IS DISTINCT FROM d.v)",
        )
        missing = _one(
            db,
            f"SELECT count(*) FROM ({wanted_rows}) AS d WHERE d.start < (SELECT max(start) FROM {view} WHERE is_final) "
            f"AND NOT EXISTS (FROM {view} AS o WHERE o.start = d.start AND o.device IS NOT DISTINCT FROM d.device)",
        )
        if not finals or differ or missing:
            told.append(
                f"{view}: of {finals:,} final rows {differ} differ from DuckDB's, {missing} are missing"
            )
    return told


#: by view its key and value, and its rows as DuckDB has them
_WANTED = {
    "by_minute": (
        "device",
        "s",
        "SELECT time_bucket(INTERVAL 1 MINUTE, ts) AS start, device, count(*) AS n, sum(amount) AS v FROM windowed GROUP BY ALL",
    ),
    "sliding": (
        "NULL::INT",
        "m",
        "SELECT start, NULL::INT AS device, count(*) AS n, max(amount) AS v FROM (SELECT unnest(generate_series("
        "time_bucket(INTERVAL 2 MINUTE, ts) - INTERVAL 8 MINUTE, time_bucket(INTERVAL 2 MINUTE, ts), "
        "INTERVAL 2 MINUTE)) AS start, amount FROM windowed) GROUP BY ALL",
    ),
}


def newest(layout: Layout, name: str) -> dict[str, Any]:
    """What the newest manifest says of its last batch."""
    figures: dict[str, Any] = read_published(layout, name).batches[-1]
    return figures


def set_aside(layout: Layout) -> set[int]:
    """Ids of the tuples that were too late for the history."""
    files = [str(path) for path in published_paths(layout, "readings", "quarantine")]
    rows = duckdb.execute("SELECT record FROM read_parquet(?)", [files]).fetchall() if files else []
    return {int(json.loads(record)["id"]) for (record,) in rows}


def _files(layout: Layout, name: str, kind: str) -> str:
    return f"read_parquet({[str(path) for path in published_paths(layout, name, kind)]!r})"


def _one(db: duckdb.DuckDBPyConnection, query: str) -> int:
    (found,) = db.execute(query).fetchall()[0]
    return int(found)


def _duckdb(text: str) -> str:
    return text.replace("timestamp_micros(", "make_timestamptz(").replace("AS INT)", "AS INTEGER)")


def tenths(rows: list[dict[str, Any]], column: str) -> list[float]:
    """Medians of a column over ten parts of the run, by batch."""
    if not rows:
        return [float("nan")] * 10
    last = max(row["batch"] for row in rows) + 1
    parts: list[list[float]] = [[] for _ in range(10)]
    for row in rows:
        if row["batch"] >= 0:
            parts[min(9, row["batch"] * 10 // last)].append(row[column])
    return [float(np.median(part)) if part else float("nan") for part in parts]


def judge(work: Path, lives: Lives) -> tuple[Table, list[str]]:
    """The table by tenths, and what did not hold."""
    ingest, windows, starts = (series(work, kind) for kind in ("batch", "windows", "start"))
    rows = {
        "ingest batch, s": tenths(ingest, "seconds"),
        "windows batch, s": tenths(windows, "seconds"),
        **{
            f"{part}, MB": [kb / 1024 for kb in tenths(lives.samples, part)]
            for part in ("driver", "jvm", "workers")
        },
        "kept files": tenths(lives.samples, "kept_files"),
        "kept MB": [size / 2**20 for size in tenths(lives.samples, "kept_bytes")],
        "owned files": tenths(lives.samples, "owned_files"),
    }
    limits = {
        "ingest batch, s": 1.1,
        "windows batch, s": 1.1,
        "driver, MB": 1.1,
        "jvm, MB": 1.1,
        "workers, MB": 1.1,
    }
    limits |= {"kept files": 1.5, "kept MB": 1.5, "owned files": 1.5}
    table = Table("of each tenth, the median", *(str(n) for n in range(1, 11)), "10 / 2", "allowed")
    failed = []
    for name, values in rows.items():
        ratio = values[9] / values[1] if values[1] else float("nan")
        digits = 3 if name.endswith(", s") else 0
        table.add_row(name, *(f"{value:.{digits}f}" for value in values), f"{ratio:.2f}", f"{limits[name]}")
        if not ratio <= limits[name]:
            failed.append(f"{name}: {ratio:.2f} times the second tenth, allowed {limits[name]}")
    spent = [start["seconds"] for start in starts]
    if len(spent) > 2 and spent[-1] > 1.25 * spent[1]:
        failed.append(f"the last start took {spent[-1]:.1f} s, the second {spent[1]:.1f} s")
    table.caption = (
        f"{newest_batch(work) + 1:,} batches, {len(starts)} starts ({lives.kills} after kill -9), start to first batch "
        + ", ".join(f"{seconds:.1f}" for seconds in spent[:3])
        + (f" ... {spent[-1]:.1f} s" if len(spent) > 3 else " s")
    )
    return table, failed


def draw(work: Path, lives: Lives, path: Path) -> None:
    """Batches, memory, files over the run."""
    figure, axes = plt.subplots(1, 3, figsize=(15, 4))
    for kind, label in (("batch", "ingest"), ("windows", "windows")):
        rows = series(work, kind)
        axes[0].plot(np.linspace(0, 100, len(rows)), [row["seconds"] for row in rows], ",", label=label)
    axes[0].set(title="seconds a batch", xlabel="% of the run", yscale="log")
    axes[0].legend()
    batches = [each["batch"] for each in lives.samples]
    for part in ("driver", "jvm", "workers"):
        axes[1].plot(batches, [each[part] / 1024 for each in lives.samples], label=part)
    axes[1].set(title="memory, MB", xlabel="batch")
    axes[1].legend()
    for part in ("kept_files", "owned_files"):
        axes[2].plot(batches, [each[part] for each in lives.samples], label=part.replace("_", " "))
    axes[2].set(title="files", xlabel="batch")
    axes[2].legend()
    figure.tight_layout()
    figure.savefig(path, dpi=120)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--batches", type=int, default=100_000)
    parser.add_argument("--minutes", type=float, default=24 * 60)
    parser.add_argument("--life", type=int, default=2_000, help="batches of a process at the most")
    parser.add_argument(
        "--short", action="store_true", help="answers alone are judged: a run too short to age"
    )
    parser.add_argument("--output", type=Path, default=ROOT / "out" / "bench" / "soak")
    parser.add_argument("--live", nargs=2, metavar=("OUT", "UNTIL"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.live:
        live(Path(given.live[0]), int(given.live[1]))
        return 0
    lives = soak(given.output, given.batches, given.minutes, given.life)
    (given.output / "samples.json").write_text(json.dumps(lives.samples))
    table, failed = judge(given.output, lives)
    console = Console(width=170)
    console.print(table)
    draw(given.output, lives, given.output / "soak.png")
    failed = [*([] if given.short else failed), *wrong_answers(given.output)]
    reached = newest_batch(given.output) + 1
    if reached < given.batches:
        console.print(f"{reached:,} of {given.batches:,} batches: the time was over", highlight=False)
    for each in failed:
        console.print(f"NOT HELD: {each}", highlight=False)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
