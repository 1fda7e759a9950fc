"""Sorted runs: how fast they are written, merged, mapped and probed, beside what this machine and others do.

    python benchmarks/runs.py [--quick]

All on one thread, and seconds are processor time, so that what else the machine does counts little; of the disk they are
seconds by the clock. Writing stands beside pyarrow's sorting and writing of the same table, merging beside writing, and a windowed join
of two runs, mapping and decoding included, beside the same join by DuckDB and by pandas from tables in memory. The exit code is 1 where an expectation does not hold.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa
from rich.console import Console
from rich.table import Table

from penstock.operators.routing.routers import Dimension, Grid, GridRouter
from penstock.operators.runs.run import Run, RunPlan
from penstock.spark.log.runs import merge_run_files, open_run, write_run_file

#: event time of the tuples and how far apart partners may be, microseconds
SPAN, WITHIN = 10_000_000, 50_000
CELLS = 2
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Figure:
    """A measurement beside another.

    Attributes:
        work: what was done.
        seconds: how long it took.
        beside: what it is measured by.
        its_seconds: how long that took.
        expected: it takes at least so many times as long.
        size: bytes that were written, if any.
    """

    work: str
    seconds: float
    beside: str
    its_seconds: float
    expected: float
    size: int | None = None

    @property
    def times(self) -> float:
        """How many times as long the other took."""
        return self.its_seconds / self.seconds

    @property
    def holds(self) -> bool:
        """Whether it is as fast as expected."""
        return self.times >= self.expected


def stream(rows: int, keys: int, seed: int, kind: str) -> pa.Table:
    """Tuples of a stream: a key, a time in disorder, two columns more."""
    rng = np.random.default_rng(seed)
    numbers = rng.integers(0, keys, rows)
    return pa.table(
        {
            "k": pa.array(numbers) if kind == "int" else pa.array(np.char.add("key-", numbers.astype(str))),
            "ts": pa.array(rng.integers(0, SPAN, rows), pa.timestamp("us")),
            "x": rng.random(rows),
            "n": rng.integers(0, 1_000, rows, np.int32),
        }
    )


def plan(kind: str) -> RunPlan:
    """One key, dealt out to two cells."""
    grid = Grid((Dimension("k", ("int64" if kind == "int" else "string",), CELLS),))
    return RunPlan(("k",), "ts", GridRouter(grid, (("k",),)))


def seconds(
    act: Callable[[], object], rounds: int = 5, clock: Callable[[], float] = time.process_time
) -> float:
    """The best of some rounds."""
    best = float("inf")
    for _ in range(rounds):
        began = clock()
        act()
        best = min(best, clock() - began)
    return best


def joined(left: Run, right: Run) -> tuple[int, float]:
    """Pairs of equal keys within `WITHIN` of each other, and a sum over a column of each: columns are decoded last."""
    pairs, total = 0, 0.0
    for cell in range(CELLS):
        for one in left.cell(cell):
            for other in right.cell(cell):
                rows, partners = pairs_within(one.keys, one.times, other.keys, other.times)
                if not (left.is_exact and right.is_exact):
                    same = one.tuples.column("k").take(pa.array(rows))
                    found = other.tuples.column("k").take(pa.array(partners))
                    equal = pa.compute.equal(same, found).to_numpy(zero_copy_only=False)
                    rows, partners = rows[equal], partners[equal]
                pairs += len(rows)
                total += float(
                    one.tuples.column("x").to_numpy()[rows] @ other.tuples.column("n").to_numpy()[partners]
                )
    return pairs, total


def pairs_within(keys: Ints, times: Ints, other_keys: Ints, other_times: Ints) -> tuple[Ints, Ints]:
    """Places of the rows of one part and of their partners in another: two searches in (key, time), no table is built."""
    low = int(min(times.min(), other_times.min())) - WITHIN
    width = int(max(times.max(), other_times.max())) + WITHIN - low + 1
    probe = keys.astype(np.int64) * width
    base = other_keys.astype(np.int64) * width + (other_times - low)
    first = np.searchsorted(base, probe + (times - low - WITHIN), "left")
    end = np.searchsorted(base, probe + (times - low + WITHIN), "right")
    counts = end - first
    rows = np.repeat(np.arange(len(keys)), counts)
    partners = np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts - first, counts)
    return rows, partners


def joined_by_duckdb(left: pa.Table, right: pa.Table) -> tuple[int, float]:
    """The same by DuckDB."""
    with duckdb.connect(config={"threads": 1}) as connection:
        connection.register("l", left)
        connection.register("r", right)
        found = connection.execute(
            f"SELECT count(*), sum(l.x * r.n) FROM l JOIN r ON l.k = r.k "
            f"AND epoch_us(r.ts) BETWEEN epoch_us(l.ts) - {WITHIN} AND epoch_us(l.ts) + {WITHIN}"
        ).fetchone()
    assert found is not None
    return int(found[0]), float(found[1])


def joined_by_pandas(left: pa.Table, right: pa.Table) -> tuple[int, float]:
    """The same by pandas: all pairs of a key, then those in time."""
    one, other = (
        table.set_column(1, "ts", table.column("ts").cast(pa.int64())).to_pandas() for table in (left, right)
    )
    found = one.merge(other, on="k")
    found = found[(found.ts_y - found.ts_x).abs() <= WITHIN]
    return len(found), float(found.x_x @ found.n_y)


def written_plainly(table: pa.Table, path: Path) -> None:
    """Sorted by pyarrow and written, one batch, synced."""
    table = table.sort_by([("k", "ascending"), ("ts", "ascending")])
    with pa.ipc.new_file(os.fspath(path), table.schema) as writer:
        writer.write_table(table)
    synced(path)


def copied(data: bytes, path: Path) -> None:
    """As many bytes written and synced: what the disk gives."""
    path.write_bytes(data)
    synced(path)


def synced(path: Path) -> None:
    """Waits until a file lasts."""
    descriptor = os.open(path, os.O_RDONLY)
    os.fsync(descriptor)
    os.close(descriptor)


def measured(folder: Path, rows: int, kind: str) -> list[Figure]:
    """All figures for one type of key."""
    one, other = (stream(rows, rows // 10, seed, kind) for seed in (1, 2))
    layout = plan(kind)
    left, right, merged = (folder / f"{name}.arrow" for name in ("left", "right", "merged"))
    # compiles what is compiled
    write_run_file(left, one.slice(0, 1_000), layout)
    write_run_file(right, other, layout)
    own = seconds(lambda: write_run_file(left, one, layout))
    size = left.stat().st_size
    data = left.read_bytes()
    plain = seconds(lambda: written_plainly(one, folder / "plain.arrow"))
    by_clock = seconds(lambda: write_run_file(left, one, layout), clock=time.perf_counter)
    disk = seconds(lambda: copied(data, folder / "copy"), clock=time.perf_counter)
    found = [
        Figure("write", own, "pyarrow: sort, write", plain, 1.0, size),
        Figure("write, by the clock", by_clock, "as many bytes, synced", disk, 0.05, size),
    ]

    pieces = [(piece, folder / f"{piece}.arrow") for piece in range(16)]
    for piece, path in pieces:
        write_run_file(path, one.slice(piece * rows // 16, rows // 16), layout)
    merging = seconds(lambda: merge_run_files(pieces, merged))
    assert open_run(merged).rows == rows // 16 * 16
    found.append(Figure("merge of 16", merging, "write of all", own, 0.6, merged.stat().st_size))

    def probe() -> tuple[int, float]:
        return joined(open_run(left), open_run(right))

    pairs, total = probe()
    probing = seconds(probe)
    for by, beside, expected in ((joined_by_duckdb, "DuckDB", 2.0), (joined_by_pandas, "pandas", 4.0)):
        its_pairs, its_total = by(one, other)
        assert pairs == its_pairs, f"{pairs} pairs, by {beside} {its_pairs}"
        assert abs(total - its_total) < 1e-6 * abs(its_total)
        theirs = seconds(lambda by=by: by(one, other), 3)  # type: ignore[misc]
        found.append(Figure(f"map and join, {pairs:,} pairs", probing, beside, theirs, expected))
    mapping = seconds(lambda: [part.keys for cell in range(CELLS) for part in open_run(left).cell(cell)])
    found.append(Figure("map alone", mapping, "join", probing, 20.0 if rows > 500_000 else 2.0))
    return found


def main() -> int:
    """Measures, prints and judges."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true", help="a tenth of the tuples")
    rows = 100_000 if parser.parse_args().quick else 1_000_000
    pa.set_cpu_count(1)
    shown = Table("key", "work", "ms", "M rows/s", "MB/s", "beside", "ms", "times", "expected", "")
    holds = True
    for kind in ("int", "string"):
        with tempfile.TemporaryDirectory() as name:
            for each in measured(Path(name), rows, kind):
                holds = holds and each.holds
                rate = "" if each.size is None else f"{each.size / each.seconds / 1e6:,.0f}"
                shown.add_row(
                    kind, each.work, f"{each.seconds * 1e3:.1f}", f"{rows / each.seconds / 1e6:,.1f}", rate,
                    each.beside, f"{each.its_seconds * 1e3:.1f}", f"{each.times:.2f}", f"{each.expected:g}",
                    "" if each.holds else "does not hold",
                )  # fmt: skip
    Console(width=140).print(shown)
    return 0 if holds else 1


if __name__ == "__main__":
    sys.exit(main())
