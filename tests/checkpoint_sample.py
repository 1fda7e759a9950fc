"""Samples of checkpoints: `make checkpoint-sample` adds one of the present layout to tests/checkpoints/.

A sample is `<layout>.tar.xz`: the folders of a small run that was started twice, its input, and `sample.json`, which says
what was asked. Paths in Spark's log of files and in ours are absolute: `unpack` writes them anew for the folder the sample
is unpacked into, and drops Spark's checksums of what it has changed.
"""

from __future__ import annotations

import json
import os
import sqlite3
import sys
import tarfile
import tempfile
import zlib
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.trigger import Trigger

FOLDER = Path(__file__).parent / "checkpoints"
ROWS = 40
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
COLUMNS = "ts TIMESTAMP, key BIGINT, name STRING, value DOUBLE, price DECIMAL(10,2), day DATE, place STRUCT<city: STRING>"
FIRST = {
    "large": "SELECT * FROM tuples WHERE value > 0.5",
    "named": "SELECT key, upper(name) AS shouted, place.city FROM tuples WHERE name >= 'b' OR price IS NULL",
    "gone": "SELECT key FROM tuples WHERE key < 3",
    "sums": "SELECT /*+ MAX_ERROR(0.1, 0.1) */ price, window(ts, '20 seconds', '10 seconds') AS w, sum(key) AS s, "
    "count(*) AS n, avg(price) AS p, max(value) AS most FROM tuples WHERE key <> 4 GROUP BY price, w",
    "spread": "SELECT window(ts, '30 seconds') AS w, day, count(DISTINCT name) AS names, median(value) AS middle, "
    "approx_percentile(key, 0.5) AS k, min(name) AS first FROM tuples GROUP BY w, day HAVING count(*) > 2",
    "left": "SELECT window(ts, '20 seconds', '10 seconds') AS w, count(*) AS n FROM tuples GROUP BY w",
}
#: dropped before the second start
DROPPED = ("gone", "left")
#: joins at the second start
LATER = {
    "joined": "SELECT key, window(ts, '1 minute') AS w, count(*) AS n, sum(price) AS s FROM tuples GROUP BY key, w"
}


@dataclass(frozen=True)
class Sample:
    """A sample that was unpacked.

    Attributes:
        folder: where: `input`, and `out` with the checkpoint inside.
        views: texts of the views that the second start had.
        dropped: texts of those that only the first one had, and the number of files that it read.
        later: the views of the second start alone.
        files: number of files of the input.
    """

    folder: Path
    views: dict[str, str]
    dropped: dict[str, str]
    later: list[str]
    files: int

    @property
    def input(self) -> Path:
        """The folder of the stream's files."""
        return self.folder / "input"

    @property
    def out(self) -> Path:
        """The results folder."""
        return self.folder / "out"


def table(folder: Path) -> str:
    """The declaration of the stream."""
    options = f"path '{folder}', event_time 'ts', max_files_per_trigger '1'"
    return f"CREATE TABLE tuples ({COLUMNS}) USING parquet OPTIONS ({options})"


def write(folder: Path, number: int) -> None:
    """Writes a file of the stream; every seventh tuple is late, some of them by much more than a window."""
    rows: list[dict[str, Any]] = []
    for row in range(ROWS):
        place = number * ROWS + row
        late = (0 if place % 7 else 15) + (0 if place % 41 else 70)
        rows.append(
            {
                "ts": NOON + timedelta(seconds=place - late),
                "key": None if place % 17 == 0 else place * 5 % 9,
                "name": "abc"[place % 3],
                "value": place * 31 % 64 / 64,
                "price": None if place % 11 == 0 else Decimal(place % 4) / 4,
                "day": date(2026, 3, 1 + place % 2),
                "place": {"city": f"c{place % 5}"},
            }
        )
    kinds = [
        ("ts", pa.timestamp("us", "UTC")),
        ("key", pa.int64()),
        ("name", pa.string()),
        ("value", pa.float64()),
        ("price", pa.decimal128(10, 2)),
        ("day", pa.date32()),
        ("place", pa.struct({"city": pa.string()})),
    ]
    folder.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(rows, pa.schema(kinds)), folder / f"{number:03d}.parquet")
    # an archive keeps whole seconds
    os.utime(folder / f"{number:03d}.parquet", (NOON.timestamp() + number,) * 2)


def make(root: Path) -> Path:
    """Runs what a sample holds in an empty folder, and packs it."""
    from penstock.spark.engine import Engine
    from penstock.spark.sessions.build import build_session
    from penstock.spark.storage.layout import LAYOUT_VERSION

    spark = build_session("local[2]", {"spark.sql.session.timeZone": "UTC"}, "checkpoint-sample")
    later = {name: text for name, text in FIRST.items() if name not in DROPPED} | LATER
    for views, files in ((FIRST, range(2)), (later, range(2, 4))):
        for number in files:
            write(root / "input", number)
        # few batches are merged, so that the sample has files of both kinds
        run = (
            Engine(spark, compact_every_batches=3)
            .execute(table(root / "input"))
            .add_views(views)
            .start(root / "out", trigger=Trigger.available_now())
        )
        run.await_termination()
        run.stop()
    spark.stop()
    said = {
        "root": str(root),
        "views": later,
        "dropped": {name: FIRST[name] for name in DROPPED},
        "later": list(LATER),
        "files": 4,
    }
    (root / "sample.json").write_text(json.dumps(said, indent=1))
    FOLDER.mkdir(exist_ok=True)
    target = FOLDER / f"{LAYOUT_VERSION}.tar.xz"
    with tarfile.open(target, "w:xz") as archive:
        archive.add(root, ".")
    return target


def unpack(archive: Path, folder: Path) -> Sample:
    """Unpacks a sample into a new folder, and makes its paths those of the folder."""
    assert quote(str(folder)) == str(folder), "in Spark's log paths are URLs"
    with tarfile.open(archive) as packed:
        packed.extractall(folder, filter="data")
    said = json.loads((folder / "sample.json").read_text())
    before, now = said["root"].encode(), str(folder).encode()
    for path in [path for path in folder.rglob("*") if path.is_file() and path.suffix not in (".crc", ".db")]:
        content = path.read_bytes()
        if before in content:
            times = path.stat()
            path.write_bytes(content.replace(before, now))
            os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
            path.with_name(f".{path.name}.crc").unlink(missing_ok=True)
    for path in folder.rglob("ledger.db"):
        _move_ledger(path, before, now)
    return Sample(folder, said["views"], said["dropped"], said["later"], said["files"])


def _move_ledger(path: Path, before: bytes, now: bytes) -> None:
    """Puts another path into the documents of a ledger, with checksums as `SqliteLedger` has them."""
    with closing(sqlite3.connect(path)) as ledger, ledger:
        rows = ledger.execute("SELECT key, crc, document FROM documents").fetchall()
        for key, crc, document in rows:
            content = document if isinstance(document, bytes) else document.encode()
            if before not in content:
                continue
            moved = content.replace(before, now)
            checksum = zlib.crc32(moved, zlib.crc32(key))
            ledger.execute("UPDATE documents SET crc = ?, document = ? WHERE key = ?", (checksum, moved, key))
            ledger.execute("UPDATE writer SET crc_sum = crc_sum + ?", (checksum - crc,))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="penstock-sample-") as folder:
        made = make(Path(folder).resolve())
    print(f"{made}: {made.stat().st_size:,} bytes", file=sys.stderr)
