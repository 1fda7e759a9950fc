"""Lines of files that are longer than a record may be are set aside by file and line, and never held whole by the JVM."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from forms import ALL
from penstock.spark.engine import Engine
from whole_runs import run_to_end

pytestmark = pytest.mark.spark


def test_long_lines_are_set_aside_by_line(spark: SparkSession, tmp_path: Path) -> None:
    """Longer than several splits of a file, first and last in it, beside short files, good and malformed records."""
    most = 1 << 20 if ALL else 1 << 16
    texts = {
        "csv": ("{},x\n", "9," + "a" * (5 * most) + ",1\n", "bad\n", "(id INT, note STRING)"),
        "json": (
            '{{"id":{},"note":"x"}}\n',
            '{"id":9,"note":"' + "a" * (5 * most) + '"}\n',
            "bad\n",
            "(id INT, note STRING)",
        ),
        "text": ("{}\n", "9" * (5 * most) + "\n", "", "(value STRING)"),
    }
    script = ""
    for kind, (line, long, bad, columns) in texts.items():
        folder = tmp_path / kind
        folder.mkdir()
        good = "".join(line.format(number) for number in range(3))
        (folder / f"a.{kind}").write_text(long + good + bad + long + line.format(3) + long)
        (folder / f"b*.{kind}").write_text(line.format(4))
        (folder / f"c.{kind}").write_text("".join(line.format(5) for _ in range(2 * most // len(line))))
        script += f"CREATE TABLE {kind} {columns} USING {kind} OPTIONS (path '{folder}');"
        column = columns.split()[0].lstrip("(")
        script += f"CREATE VIEW of_{kind} AS SELECT {column} FROM {kind} WHERE length({column}) > 0;"
    splits = {"spark.sql.files.maxPartitionBytes": str(2 * most), "spark.sql.files.openCostInBytes": "0"}
    before = {name: spark.conf.get(name) for name in splits}
    try:
        for name, value in splits.items():
            spark.conf.set(name, value)
        engine = Engine(spark, retry_attempts=0, max_record_bytes=most).execute(script)
        run = run_to_end(engine, tmp_path / "out", seconds=None)
    finally:
        for name, old in before.items():
            spark.conf.set(name, str(old))
    for kind, (line, long, bad, _) in texts.items():
        ids = [int(row[0]) for row in run.results(f"of_{kind}").collect()]
        assert sorted(set(ids)) == [0, 1, 2, 3, 4, 5]
        assert len(ids) == 5 + 2 * most // len(line)
        aside = [
            row
            for path in (tmp_path / "out" / "quarantine" / kind).glob("*.parquet")
            for row in pq.read_table(path).to_pylist()
        ]
        large = [row for row in aside if row["reason"] == "record too large"]
        lines = [1, 5 + bool(bad), 7 + bool(bad)]
        origin = f"file:{tmp_path}/{kind}/a.{kind}"
        assert sorted(row["origin"].replace("file:///", "file:/") for row in large) == [
            f"{origin}:{number} ({len(long) - 1:,} bytes)" for number in lines
        ]
        assert {row["record"] for row in large} == {long[:1024].encode()}
        others = [row for row in aside if row["reason"] != "record too large"]
        assert [row["origin"] for row in others] == ([f"{origin}:5"] if bad else [])
    assert run.status().streams["csv"].quarantined["record too large"] == 3
