"""Damaged Parquet files: every row group that can be read is answered once, every other one is told, nothing stops.

The long form flips 120 pages of pyarrow's files and 40 of Spark's, which have checksums.
"""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, TimestampType

from damage_cases import DERIVED, GROUPS, ROWS, Place, places, quarantined, run_on, write_pages
from engine_cases import COLUMNS, orders, rows, script
from forms import ALL
from penstock.spark.engine import Engine

pytestmark = pytest.mark.spark

FLIPS = 20 if ALL else 2
#: every row group has matches, so that every column is needed
SELECTIONS = {
    "most": "SELECT * FROM orders WHERE amount > 10 OR amount IS NULL",
    "north": "SELECT id FROM orders WHERE name LIKE 'nor%' AND price < 50 AND seen > TIMESTAMP '2026-01-01'",
}


def _flip(path: Path, rng: random.Random, group: int | None = None) -> None:
    """Flips one bit of a random page."""
    metadata = pq.read_metadata(path)
    group = rng.randrange(GROUPS) if group is None else group
    column = metadata.row_group(group).column(rng.randrange(metadata.num_columns))
    start = column.dictionary_page_offset or column.data_page_offset
    content = bytearray(path.read_bytes())
    content[start + rng.randrange(column.total_compressed_size)] ^= 1 << rng.randrange(8)
    path.write_bytes(content)


def _readable(path: Path) -> tuple[list[pa.Table], set[Place]]:
    """What pyarrow reads of each row group, and those it cannot read."""
    good, bad = [], set()
    file = pq.ParquetFile(path)
    for number in range(GROUPS):
        try:
            good.append(file.read_row_group(number))
        except (OSError, pa.ArrowException):
            bad.add((path.name, number, ROWS // GROUPS))
    return good, bad


def _reads_as(path: Path, group: int, expected: pa.Table) -> bool:
    """Whether a row group has no damage that a reader without checksums, or one with, would notice."""
    for is_verified in (False, True):
        try:
            table = pq.ParquetFile(path, page_checksum_verification=is_verified).read_row_group(group)
        except (OSError, pa.ArrowException):
            return False
    return all(str(table[name].to_pylist()) == str(expected[name].to_pylist()) for name in table.column_names)


def _spark_reads(spark: SparkSession, path: Path) -> bool:
    try:
        spark.read.schema(COLUMNS).parquet(str(path)).write.format("noop").mode("overwrite").save()
    except Exception:
        return False
    return True


def _bag(frame: DataFrame) -> Counter[tuple[object, ...]]:
    """The rows of a frame, with times and texts that Python does not know as numbers and bytes."""
    plain = [
        F.unix_micros(field.name)
        if isinstance(field.dataType, TimestampType)
        else F.col(field.name).cast("binary")
        if isinstance(field.dataType, StringType)
        else F.col(field.name)
        for field in frame.schema
    ]
    return rows(frame.select(*plain))


@pytest.mark.parametrize(
    "compression", ["snappy", *(pytest.param(each, marks=pytest.mark.long) for each in ("gzip", "zstd"))]
)
@pytest.mark.parametrize("behind", [False, True], ids=["in_scan", "behind"])
def test_flipped_pages(spark: SparkSession, tmp_path: Path, compression: str, behind: bool) -> None:
    rng = random.Random(f"{compression} {behind}")
    views = {**SELECTIONS, **(DERIVED if behind else {})}
    paths = write_pages(tmp_path / "in", FLIPS + 1, compression, 11)
    good: list[DataFrame] = []
    bad: set[Place] = set()
    kept = 0
    for number, path in enumerate(paths):
        if number:
            _flip(path, rng)
        if behind and _spark_reads(spark, path):
            good.append(spark.read.schema(COLUMNS).parquet(str(path)))
            kept += ROWS
            continue
        tables, lost = _readable(path)
        bad |= lost
        kept += sum(table.num_rows for table in tables)
        for group, table in enumerate(tables):
            copy = tmp_path / "good" / f"{number}-{group}.parquet"
            copy.parent.mkdir(exist_ok=True)
            pq.write_table(table, copy)
            good.append(spark.read.schema(COLUMNS).parquet(str(copy)))
    tuples = good[0]
    for further in good[1:]:
        tuples = tuples.union(further)
    engine = Engine(spark, batch_rows=1_024, settle_seconds=0).execute(script(tmp_path / "in", views))
    run = run_on(engine, tmp_path / "out")
    tuples.createOrReplaceTempView("orders")
    for name, text in views.items():
        assert _bag(run.results(name)) == _bag(spark.sql(text)), name
    assert places(run) == bad
    status = run.status().streams["orders"].to_dict()
    assert status["tuples"] == kept
    assert status["rows_set_aside"] == sum(lost or 0 for *_, lost in bad)
    origins = {str(row["origin"]).rpartition("/")[2] for row in quarantined(tmp_path / "out")}
    assert origins == {f"{name}#{group} ({count:,} rows)" for name, group, count in bad}


@pytest.mark.long
def test_an_index_beyond_the_dictionary(spark: SparkSession, tmp_path: Path) -> None:
    """Spark looks values up behind the reader that names the file; beside it a page that this reader cannot read."""
    paths = write_pages(tmp_path / "in", 8, "none", 3)
    for path in paths[2:5]:
        chunk = pq.read_metadata(path).row_group(1).column(3)
        content = bytearray(path.read_bytes())
        # five names are numbers of three bits; these are all 7
        end = chunk.dictionary_page_offset + chunk.total_compressed_size
        content[end - 30 : end] = b"\xff" * 30
        path.write_bytes(content)
    content = bytearray(paths[6].read_bytes())
    content[pq.read_metadata(paths[6]).row_group(2).column(0).data_page_offset] ^= 0xFF
    paths[6].write_bytes(content)
    run = run_on(Engine(spark).execute(script(tmp_path / "in", DERIVED)), tmp_path / "out")
    size = ROWS // GROUPS
    assert places(run) == {(path.name, 1, size) for path in paths[2:5]} | {(paths[6].name, 2, size)}
    answered = run.results("long_name").select("id").collect()
    good = [group for path in paths for group in _readable(path)[0]]
    tuples = spark.createDataFrame(pa.concat_tables(good))
    tuples.createOrReplaceTempView("orders")
    assert Counter(answered) == Counter(spark.sql(DERIVED["long_name"]).select("id").collect())
    assert run.status().streams["orders"].tuples == (8 * GROUPS - 4) * size
    assert not run.events("stream_retried")


def test_windows_hold_nothing_of_a_row_group_that_is_set_aside(spark: SparkSession, tmp_path: Path) -> None:
    """The bad page is the last one of a column that is decoded only for matches, and those come late."""
    folder = tmp_path / "in"
    (path,) = write_pages(folder, 1, "snappy", 5)
    chunk = pq.read_metadata(path).row_group(1).column(3)
    content = bytearray(path.read_bytes())
    end = (chunk.dictionary_page_offset or chunk.data_page_offset) + chunk.total_compressed_size
    content[end - 300 : end] = b"\xff" * 300
    path.write_bytes(content)
    late = ROWS // GROUPS * 2 - 10
    text = script(
        folder,
        {
            "late": f"SELECT * FROM orders WHERE id >= {late}",
            "counted": "SELECT window(seen, '1 hour') AS w, count(*) AS n, sum(id) AS ids FROM orders GROUP BY w",
        },
    )
    run = run_on(Engine(spark, batch_rows=1_024).execute(text), tmp_path / "out")
    assert places(run) == {(path.name, 1, ROWS // GROUPS)}
    size = ROWS // GROUPS
    assert sorted(row.id for row in run.results("late").collect()) == list(range(2 * size, ROWS))
    counted = run.results("counted").collect()
    assert sum(row.n for row in counted) == ROWS - size
    assert sum(row.ids for row in counted) == sum(range(size)) + sum(range(2 * size, ROWS))
    assert run.status().streams["orders"].tuples == ROWS - size


@pytest.mark.long
@pytest.mark.parametrize(
    "behind", [False, pytest.param(True, marks=pytest.mark.long)], ids=["in_scan", "behind"]
)
def test_flipped_pages_with_checksums(spark: SparkSession, tmp_path: Path, behind: bool) -> None:
    """No value but those that were written is answered: a flip is told, unless it is in a header and changes none."""
    rng = random.Random(f"checksums {behind}")
    views = {"all_of": "SELECT * FROM orders", **(DERIVED if behind else {})}
    folder = tmp_path / "in"
    folder.mkdir()
    spark.conf.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
    whole = [orders(ROWS, 31 + number, number * ROWS) for number in range(FLIPS + 1)]
    written: list[Path] = []
    for number, table in enumerate(whole):
        frame = (
            spark.createDataFrame(table)
            .coalesce(1)
            .write.options(
                **{
                    "parquet.block.size": "40000",
                    "parquet.page.size": "2048",
                    "parquet.enable.dictionary": "false",
                }
            )
        )
        frame.parquet(str(tmp_path / "spark" / str(number)), compression="snappy")
        (part,) = (tmp_path / "spark" / str(number)).glob("*.parquet")
        written.append(part.rename(folder / f"{number:03d}.parquet"))
    good: list[DataFrame] = []
    bad: set[tuple[str, int]] = set()
    for number, (path, table) in enumerate(zip(written, whole, strict=True)):
        metadata = pq.read_metadata(path)
        lost = rng.randrange(metadata.num_row_groups)
        if number:
            _flip(path, rng, lost)
        first = 0
        for group in range(metadata.num_row_groups):
            rows_of = metadata.row_group(group).num_rows
            expect = table.slice(first, rows_of)
            first += rows_of
            if number and group == lost and not _reads_as(path, group, expect):
                bad.add((path.name, group))
                continue
            good.append(spark.createDataFrame(expect))
    tuples = good[0]
    for further in good[1:]:
        tuples = tuples.union(further)
    engine = Engine(spark, batch_rows=1_024, settle_seconds=0).execute(script(folder, views))
    run = run_on(engine, tmp_path / "out")
    told = {(name, group) for name, group, _ in places(run)}
    # a flip in a header may make it unreadable, or change what nobody looks at
    assert told >= bad
    assert len(bad) >= FLIPS // 2
    tuples.createOrReplaceTempView("orders")
    assert told == bad
    for name, text in views.items():
        assert _bag(run.results(name)) == _bag(spark.sql(text)), name
    assert set(run.status().streams["orders"].quarantined) <= {
        "unreadable row group",
        "unreadable Parquet file",
    }


@pytest.mark.parametrize(
    "kind", ["csv", *(pytest.param(kind, marks=pytest.mark.long) for kind in ("json", "parquet"))]
)
def test_a_file_that_only_spark_reads_is_set_aside_whole(
    spark: SparkSession, tmp_path: Path, kind: str
) -> None:
    """Compressed texts that are cut off, damaged files in partition folders: the others are answered once."""
    folder = tmp_path / "in"
    for number in range(3):
        frame = spark.range(number * 2_000, number * 2_000 + 2_000).selectExpr("id", "uuid() AS name")
        writer = frame.coalesce(1).write.format(kind)
        writer = writer.option("compression", "gzip") if kind in ("csv", "json") else writer
        writer.save(str(folder / f"part={number}"))
    (victim,) = (folder / "part=1").glob("part-*")
    content = bytearray(victim.read_bytes())
    if kind in ("csv", "json"):
        content = content[: len(content) // 2]
    else:
        middle = len(content) // 2
        content[middle : middle + 400] = bytes(range(200)) * 2
    victim.write_bytes(content)
    (victim.parent / f".{victim.name}.crc").unlink(missing_ok=True)
    text = (
        f"CREATE TABLE t (id BIGINT, name STRING, part INT) USING {kind} OPTIONS (path '{folder}');"
        "CREATE VIEW v AS SELECT id, part FROM t WHERE octet_length(name) = 36;"
    )
    run = run_on(Engine(spark).execute(text), tmp_path / "out")
    answered = sorted((row.id, row.part) for row in run.results("v").collect())
    assert answered == [(number, number // 2_000) for number in (*range(2_000), *range(4_000, 6_000))]
    (place,) = (place for event in run.events("rows_set_aside") for place in event["places"])
    assert Path(place["path"]).name == victim.name
    assert place["reason"].lower().startswith(f"unreadable {kind} file: ")
    status = run.status().streams["t"].to_dict()
    assert {name.lower(): count for name, count in status["quarantined"].items()} == {
        f"unreadable {kind} file": 1
    }
    assert not run.events("stream_retried")


def test_names_that_look_like_patterns_and_escapes(spark: SparkSession, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    for number, name in enumerate(("a[1].parquet", "b%20c#3.parquet", "d?{e}.parquet", "f g.parquet")):
        pq.write_table(orders(10, number, number * 10), folder / name)
    views = {
        "plain": "SELECT id FROM orders",
        "computed": "SELECT id FROM orders WHERE octet_length(name) >= 0 OR id >= 0",
    }
    engine = Engine(spark).execute(script(folder, views))
    run = run_on(engine, tmp_path / "out")
    assert [row.id for row in run.results("computed").orderBy("id").collect()] == list(range(40))
    assert [row.id for row in run.results("plain").orderBy("id").collect()] == list(range(40))
    assert not run.events("rows_set_aside")
