"""Event times at the ends of 64 bits: no window holds them, joins do, and nothing stops or is answered wrongly."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from penstock.spark.engine import Engine
from penstock.spark.tasks.worker import TOO_LATE
from whole_runs import run_to_end

pytestmark = pytest.mark.spark

LEAST, MOST = -(2**63), 2**63 - 1
YEAR_0, YEAR_10000 = -62_167_219_200_000_001, 253_402_300_800_000_000
EARLY = [LEAST, LEAST + 1, -(2**62) - 1, -(2**62), -(2**61) - 1]
FUTURE = [YEAR_10000, 2**61 + 1, 2**62 - 1, 2**62, MOST - 1, MOST]
FARTHEST = [*EARLY, YEAR_0, *FUTURE]
BEGIN, SECOND, FILES, ROWS = 1_700_000_000_000_000, 1_000_000, 4, 60
VIEWS = """
CREATE VIEW every AS SELECT * FROM s WHERE at IS NOT NULL;
CREATE VIEW w AS SELECT k, window(at, '10 seconds') AS w, count(*) AS n, max(at) AS newest FROM s GROUP BY k, w;
CREATE VIEW slid AS SELECT /*+ MAX_ERROR(0.1, 0.1) */ window(at, '1 minute', '7 seconds') AS w, count(*) AS n FROM s GROUP BY w;
CREATE VIEW due AS SELECT /*+ MAX_ERROR(0.1, 0.1), DEADLINE('1 hour') */ k, window(at, '10 seconds') AS w, count(*) AS n FROM s GROUP BY k, w;
CREATE VIEW near AS SELECT s.at AS at, o.at AS other FROM s JOIN o ON s.k = o.k AND s.at BETWEEN o.at - INTERVAL 10 SECONDS AND o.at + INTERVAL 10 SECONDS;
CREATE VIEW early AS SELECT s.at AS at, o.at AS other FROM s LEFT JOIN o ON s.k = o.k AND o.at BETWEEN s.at AND s.at + INTERVAL 10 SECONDS;
CREATE VIEW over AS SELECT window(at, '1 minute') AS w, count(*) AS n FROM near GROUP BY w;
"""


def written(folder: Path, odd: Sequence[int]) -> list[tuple[int, int]]:
    """Files, some of which hold the farthest moments; their tuples (at, k)."""
    folder.mkdir()
    every = []
    for number in range(FILES):
        times = [BEGIN + (number * ROWS + row) * SECOND for row in range(ROWS)]
        times += FARTHEST if number in odd else []
        keys = [row % 2 for row in range(len(times))]
        table = pa.table({"at": pa.array(times, pa.int64()).cast(pa.timestamp("us", "UTC")), "k": keys})
        path = folder / f"{number}.parquet"
        pq.write_table(table, path)
        # Spark reads files in the order of their times
        os.utime(path, (1_700_000_000 + number,) * 2)
        every += list(zip(times, keys, strict=True))
    return every


@pytest.mark.long
def test_the_farthest_moments_stop_nothing(spark: SparkSession, tmp_path: Path) -> None:
    tuples, others = (written(tmp_path / name, odd) for name, odd in (("s", (1, 2)), ("o", (1, 3))))
    tables = "".join(
        f"CREATE TABLE {name} (at TIMESTAMP, k BIGINT) USING parquet "
        f"OPTIONS (path '{tmp_path / name}', event_time 'at', max_files_per_trigger '1');"
        for name in ("s", "o")
    )
    run = run_to_end(Engine(spark).execute(tables + VIEWS), tmp_path / "out", seconds=None)
    status = run.status().streams["s"].to_dict()
    assert status["unusable_times"] == 2 * len(FUTURE)
    assert status["quarantined"] == {TOO_LATE: 2 * len(EARLY)}

    def found(view: str, *columns: str) -> Counter[tuple[int, ...]]:
        frame = run.results(view).select(*columns).toArrow()
        numbers = [
            values.cast(pa.int64()).to_pylist() if pa.types.is_timestamp(values.type) else values.to_pylist()
            for values in frame.columns
        ]
        return Counter(zip(*numbers, strict=True))

    assert found("every", "at", "k") == Counter(tuples)
    kept = [each for each in tuples if each[0] not in (*EARLY, *FUTURE)]
    assert found("w", "w.start", "k", "n") == windows(kept, 10, 10, by_key=True)
    assert found("slid", "w.start", "n") == windows(kept, 60, 7, by_key=False)
    punctual = [each for each in kept if each[0] >= BEGIN]
    assert found("due", "w.start", "k", "n") == windows(punctual, 10, 10, by_key=True)
    left, right = ([each for each in side if each[0] not in FUTURE] for side in (tuples, others))
    pairs = [(a, b) for a, k in left for b, other in right if k == other and abs(a - b) <= 10 * SECOND]
    assert found("near", "at", "other") == Counter(pairs)
    ahead = Counter((a, b) for a, b in pairs if b >= a)
    alone = Counter((a, None) for a, _ in left if not any(a == first for first, _ in ahead))
    assert found("early", "at", "other") == ahead + alone
    in_windows = [(a, 0) for a, _ in pairs if a not in EARLY]
    assert found("over", "w.start", "n") == windows(in_windows, 60, 60, by_key=False)
    quarantine = pq.read_table(next((tmp_path / "out" / "quarantine").glob("**/*.parquet")))
    assert f"event time {LEAST}" in quarantine.column("origin").to_pylist()
    assert any(
        f'{{"at": {LEAST}, "k": 0}}'.encode() == record for record in quarantine.column("record").to_pylist()
    )


def windows(
    tuples: list[tuple[int, int]], size: int, slide: int, *, by_key: bool
) -> Counter[tuple[int, ...]]:
    """(start, key, count) of each window and key, or without the key."""
    counts: Counter[tuple[int, ...]] = Counter()
    for at, key in tuples:
        last = at // (slide * SECOND) * slide * SECOND
        for start in range(last, at - size * SECOND, -slide * SECOND):
            counts[(start, key) if by_key else (start,)] += 1
    return Counter((*group, count) for group, count in counts.items())
