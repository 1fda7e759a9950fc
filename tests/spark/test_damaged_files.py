"""Damaged Parquet files: every row group that can be read is answered once, every other one is told, nothing stops.

`PENSTOCK_CHAOS=full` flips 120 pages of pyarrow's files and 40 of Spark's, which have checksums.
"""

from __future__ import annotations

import contextlib
import os
import random
import resource
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, TimestampType

from engine_cases import COLUMNS, orders, rows, script, write_orders
from penstock.errors import StreamFailedError
from penstock.spark.engine import Engine
from penstock.spark.run import Run
from penstock.spark.sources import parquet_source
from penstock.spark.sources.parquet_rescue import rescue
from penstock.spark.sources.parquet_source import ParquetSource
from penstock.spark.sources.source import BoundBatch
from penstock.spark.tasks.parquet_files import (
    RowGroup,
    Stamp,
    is_fault_of_file,
    open_settled,
    reason_of,
    row_groups,
)
from penstock.spark.tasks.worker import TaskContextData, TaskReport

pytestmark = pytest.mark.spark

FLIPS = 20 if os.environ.get("PENSTOCK_CHAOS") == "full" else 2
ROWS, GROUPS = 4_500, 3
#: every row group has matches, so that every column is needed
SELECTIONS = {
    "most": "SELECT * FROM orders WHERE amount > 10 OR amount IS NULL",
    "north": "SELECT id FROM orders WHERE name LIKE 'nor%' AND price < 50 AND seen > TIMESTAMP '2026-01-01'",
}
DERIVED = {"long_name": "SELECT * FROM orders WHERE length(name) > 4 AND amount < 200"}
Place = tuple[str, int | None, int | None]


def _write(folder: Path, files: int, compression: str, seed: int) -> list[Path]:
    folder.mkdir(parents=True)
    paths = [folder / f"{number:03d}.parquet" for number in range(files)]
    for number, path in enumerate(paths):
        table = orders(ROWS, seed + number, number * ROWS)
        pq.write_table(
            table, path, row_group_size=ROWS // GROUPS, compression=compression, data_page_size=2_048
        )
    return paths


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


def _run(engine: Engine, output: Path) -> Run:
    run = engine.start(output, available_now=True)
    run.await_termination()
    run.stop()
    return run


def _places(run: Run) -> set[Place]:
    told = [place for event in run.events("rows_set_aside") for place in event["places"]]
    assert len({(place["path"], place["row_group"]) for place in told}) == len(told)
    return {(Path(place["path"]).name, place["row_group"], place["rows"]) for place in told}


def _quarantined(output: Path) -> list[dict[str, object]]:
    return [row for path in output.glob("quarantine/*/*.parquet") for row in pq.read_table(path).to_pylist()]


@pytest.mark.timeout(1_800)
@pytest.mark.parametrize("compression", ["snappy", "gzip", "zstd"])
@pytest.mark.parametrize("behind", [False, True], ids=["in_scan", "behind"])
def test_flipped_pages(spark: SparkSession, tmp_path: Path, compression: str, behind: bool) -> None:
    rng = random.Random(f"{compression} {behind}")
    views = {**SELECTIONS, **(DERIVED if behind else {})}
    paths = _write(tmp_path / "in", FLIPS + 1, compression, 11)
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
    run = _run(engine, tmp_path / "out")
    tuples.createOrReplaceTempView("orders")
    for name, text in views.items():
        assert _bag(run.results(name)) == _bag(spark.sql(text)), name
    assert _places(run) == bad
    status = run.status()["orders"]
    assert status["tuples"] == kept
    assert status["rows_set_aside"] == sum(lost or 0 for *_, lost in bad)
    origins = {str(row["origin"]).rpartition("/")[2] for row in _quarantined(tmp_path / "out")}
    assert origins == {f"{name}#{group} ({count:,} rows)" for name, group, count in bad}


def test_an_index_beyond_the_dictionary(spark: SparkSession, tmp_path: Path) -> None:
    """Spark looks values up behind the reader that names the file; beside it a page that this reader cannot read."""
    paths = _write(tmp_path / "in", 8, "none", 3)
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
    run = _run(Engine(spark).execute(script(tmp_path / "in", DERIVED)), tmp_path / "out")
    size = ROWS // GROUPS
    assert _places(run) == {(path.name, 1, size) for path in paths[2:5]} | {(paths[6].name, 2, size)}
    answered = run.results("long_name").select("id").collect()
    good = [group for path in paths for group in _readable(path)[0]]
    tuples = spark.createDataFrame(pa.concat_tables(good))
    tuples.createOrReplaceTempView("orders")
    assert Counter(answered) == Counter(spark.sql(DERIVED["long_name"]).select("id").collect())
    assert run.status()["orders"]["tuples"] == (8 * GROUPS - 4) * size
    assert not run.events("stream_retried")


def test_windows_hold_nothing_of_a_row_group_that_is_set_aside(spark: SparkSession, tmp_path: Path) -> None:
    """The bad page is the last one of a column that is decoded only for matches, and those come late."""
    folder = tmp_path / "in"
    (path,) = _write(folder, 1, "snappy", 5)
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
    run = _run(Engine(spark, batch_rows=1_024).execute(text), tmp_path / "out")
    assert _places(run) == {(path.name, 1, ROWS // GROUPS)}
    size = ROWS // GROUPS
    assert sorted(row.id for row in run.results("late").collect()) == list(range(2 * size, ROWS))
    counted = run.results("counted").collect()
    assert sum(row.n for row in counted) == ROWS - size
    assert sum(row.ids for row in counted) == sum(range(size)) + sum(range(2 * size, ROWS))
    assert run.status()["orders"]["tuples"] == ROWS - size


@pytest.mark.parametrize("change", ["cut_off", "deleted", "replaced"])
def test_a_file_that_changes_between_plan_and_read(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    folder = tmp_path / "in"
    write_orders(folder, files=3, rows=900)
    victim = folder / "001.parquet"
    real = parquet_source.run_in_scan

    def changed(
        session: SparkSession, splits: list[list[RowGroup]], context: TaskContextData
    ) -> list[TaskReport]:
        if change == "cut_off":
            os.truncate(victim, victim.stat().st_size // 2)
        elif change == "deleted":
            victim.unlink()
        else:
            pq.write_table(orders(900, 99, 5_000), tmp_path / "other.parquet", row_group_size=300)
            (tmp_path / "other.parquet").replace(victim)
        return real(session, splits, context)

    monkeypatch.setattr(parquet_source, "run_in_scan", changed)
    run = _run(Engine(spark).execute(script(folder, {"all_of": "SELECT id FROM orders"})), tmp_path / "out")
    assert _places(run) == {("001.parquet", group, 300) for group in range(3)}
    assert sorted(row.id for row in run.results("all_of").collect()) == [*range(900), *range(1800, 2700)]


def test_a_file_that_is_gone_before_its_batch_stops_the_stream(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "in"
    write_orders(folder, files=3, rows=900)
    victim, away = folder / "001.parquet", tmp_path / "away.parquet"
    real = ParquetSource.run

    def run_later(source: ParquetSource, df: DataFrame, batch: BoundBatch) -> list[TaskReport]:
        if victim.exists():
            victim.rename(away)
        return real(source, df, batch)

    text = script(folder, {"all_of": "SELECT id FROM orders"})
    with monkeypatch.context() as patched:
        patched.setattr(ParquetSource, "run", run_later)
        run = Engine(spark, retry_attempts=0).execute(text).start(tmp_path / "out", available_now=True)
        with pytest.raises(StreamFailedError, match=r"file or folder is gone.*001\.parquet"):
            run.await_termination()
        run.stop()
    away.rename(victim)
    run = _run(Engine(spark).execute(text), tmp_path / "out")
    assert sorted(row.id for row in run.results("all_of").collect()) == list(range(2_700))


def test_a_view_that_raises_is_no_fault_of_the_files(spark: SparkSession, tmp_path: Path) -> None:
    write_orders(tmp_path / "in", files=2, rows=100)

    def broken(_: pa.Array) -> pa.Array:
        raise ZeroDivisionError("a bug of the user's")

    engine = Engine(spark).function("broken", broken, "BIGINT")
    engine.execute(script(tmp_path / "in", {"never": "SELECT id FROM orders WHERE broken(id) > 1"}))
    run = engine.start(tmp_path / "out", available_now=True)
    with pytest.raises(Exception, match="stream orders stopped"):
        run.await_termination()
    run.stop()
    assert not run.events("rows_set_aside")
    assert not _quarantined(tmp_path / "out")


@pytest.mark.parametrize("behind", [False, True], ids=["in_scan", "behind"])
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
    run = _run(engine, tmp_path / "out")
    told = {(name, group) for name, group, _ in _places(run)}
    # a flip in a header may make it unreadable, or change what nobody looks at
    assert told >= bad
    assert len(bad) >= FLIPS // 2
    tuples.createOrReplaceTempView("orders")
    assert told == bad
    for name, text in views.items():
        assert _bag(run.results(name)) == _bag(spark.sql(text)), name
    assert set(run.status()["orders"]["quarantined"]) <= {"unreadable row group", "unreadable Parquet file"}


@pytest.mark.parametrize("behind", [False, True], ids=["in_scan", "behind"])
def test_a_fault_of_the_system_costs_no_row(spark: SparkSession, tmp_path: Path, behind: bool) -> None:
    """A link to itself cannot be opened, though its folder can be listed: the batch is tried again."""
    folder = tmp_path / "in"
    write_orders(folder, files=3, rows=300)
    victim, aside = folder / "001.parquet", tmp_path / "aside.parquet"
    real = parquet_source.open_settled
    asked: list[str] = []

    def planned(uri: str, settle_seconds: float) -> tuple[Stamp | None, pq.ParquetFile] | None:
        asked.append(uri)
        if len(asked) == 1:
            victim.rename(aside)
            victim.symlink_to(victim)
        try:
            return real(uri, settle_seconds)
        except OSError:
            aside.replace(victim)
            raise

    views = {"all_of": "SELECT id FROM orders", **(DERIVED if behind else {})}
    engine = Engine(spark, retry_seconds=0.1).execute(script(folder, views))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parquet_source, "open_settled", planned)
        run = _run(engine, tmp_path / "out")
    assert sorted(row.id for row in run.results("all_of").collect()) == list(range(900))
    assert not run.events("rows_set_aside")
    assert {event["cause"] for event in run.events("stream_retried")} == {"storage_failed"}


def test_what_the_system_does_not_give_is_no_fault_of_a_file(tmp_path: Path) -> None:
    (path,) = _write(tmp_path / "in", 1, "zstd", 3)
    opened = open_settled(str(path), 0)
    assert opened is not None
    group = row_groups(str(path), opened[0], opened[1].metadata)[0]
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    held = []
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(list(Path("/proc/self/fd").iterdir())) + 20, before[1]))
    try:
        with contextlib.suppress(OSError):
            while True:
                held.append(path.open("rb"))
        for read in (lambda: reason_of(group, ["id"]), lambda: open_settled(str(path), 0)):
            with pytest.raises(OSError, match="Too many open files"):
                read()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
        for file in held:
            file.close()
    assert reason_of(group, ["id"]) is None
    path.unlink()
    path.symlink_to(path)
    with pytest.raises(OSError, match="symbolic links"):
        reason_of(group, ["id"])
    with pytest.raises(OSError, match="symbolic links"):
        rescue(str(path), "any", ["id"], tmp_path)
    assert not is_fault_of_file(pa.ArrowMemoryError("malloc of size 64 failed"))


@pytest.mark.parametrize("kind", ["csv", "json", "parquet"])
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
        "CREATE VIEW v AS SELECT id, part FROM t WHERE length(name) = 36;"
    )
    run = _run(Engine(spark).execute(text), tmp_path / "out")
    answered = sorted((row.id, row.part) for row in run.results("v").collect())
    assert answered == [(number, number // 2_000) for number in (*range(2_000), *range(4_000, 6_000))]
    (place,) = (place for event in run.events("rows_set_aside") for place in event["places"])
    assert Path(place["path"]).name == victim.name
    assert place["reason"].lower().startswith(f"unreadable {kind} file: ")
    status = run.status()["t"]
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
        "computed": "SELECT id FROM orders WHERE length(name) >= 0 OR id >= 0",
    }
    engine = Engine(spark).execute(script(folder, views))
    run = _run(engine, tmp_path / "out")
    assert [row.id for row in run.results("computed").orderBy("id").collect()] == list(range(40))
    assert [row.id for row in run.results("plain").orderBy("id").collect()] == list(range(40))
    assert not run.events("rows_set_aside")


def test_an_error_that_has_passed_and_a_folder_that_is_gone(tmp_path: Path) -> None:
    (path,) = _write(tmp_path / "in", 1, "zstd", 3)
    opened = open_settled(str(path), 0)
    assert opened is not None
    groups = row_groups(str(path), opened[0], opened[1].metadata)
    assert [reason_of(group, ["id", "name"]) for group in groups] == [None] * GROUPS
    other = [RowGroup(group.path, group.number, group.rows, Stamp(1, 1)) for group in groups]
    assert "changed" in (reason_of(other[0], ["id"]) or "")
    path.parent.rename(tmp_path / "elsewhere")
    with pytest.raises(FileNotFoundError):
        reason_of(groups[0], ["id"])


def test_a_file_that_is_being_written_is_waited_for(tmp_path: Path) -> None:
    from threading import Timer

    (whole,) = _write(tmp_path / "in", 1, "zstd", 3)
    content = whole.read_bytes()
    path = tmp_path / "growing.parquet"
    path.write_bytes(content[:1000])
    timers = [
        Timer(0.3, lambda: path.write_bytes(content[: len(content) // 2])),
        Timer(0.7, lambda: path.write_bytes(content)),
    ]
    for timer in timers:
        timer.start()
    opened = open_settled(str(path), 5.0)
    assert opened is not None
    assert opened[1].metadata.num_rows == ROWS
    path.write_bytes(content[:1000])
    assert open_settled(str(path), 0.3) is None
