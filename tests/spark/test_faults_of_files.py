"""Files that change, go or cannot be opened for a while: what is the file's fault is set aside, anything else is tried again."""

from __future__ import annotations

import contextlib
import os
import resource
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession

from damage_cases import DERIVED, GROUPS, ROWS, places, quarantined, run_on, write_pages
from engine_cases import orders, script, write_orders
from forms import thinned
from penstock.errors import StreamFailedError
from penstock.spark.engine import Engine
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
from penstock.trigger import Trigger

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("change", thinned(["cut_off", "deleted", "replaced"], 2))
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
    run = run_on(Engine(spark).execute(script(folder, {"all_of": "SELECT id FROM orders"})), tmp_path / "out")
    assert places(run) == {("001.parquet", group, 300) for group in range(3)}
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
        run = (
            Engine(spark, retry_attempts=0)
            .execute(text)
            .start(tmp_path / "out", trigger=Trigger.available_now())
        )
        with pytest.raises(StreamFailedError, match=r"file or folder does not exist any more.*001\.parquet"):
            run.await_termination()
        run.stop()
    away.rename(victim)
    run = run_on(Engine(spark).execute(text), tmp_path / "out")
    assert sorted(row.id for row in run.results("all_of").collect()) == list(range(2_700))


def test_a_function_that_raises_is_no_fault_of_the_files(spark: SparkSession, tmp_path: Path) -> None:
    write_orders(tmp_path / "in", files=2, rows=100)

    def broken(_: pa.Array) -> pa.Array:
        raise ZeroDivisionError("a bug of the user's")

    engine = Engine(spark).function("broken", broken, "BIGINT")
    engine.execute(script(tmp_path / "in", {"never": "SELECT id FROM orders WHERE broken(id) > 1"}))
    run = run_on(engine, tmp_path / "out")
    assert not run.events("rows_set_aside")
    assert {row["reason"] for row in quarantined(tmp_path / "out")} == {
        "function broken raised: ZeroDivisionError: a bug of the user's"
    }


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
        run = run_on(engine, tmp_path / "out")
    assert sorted(row.id for row in run.results("all_of").collect()) == list(range(900))
    assert not run.events("rows_set_aside")
    assert {event["cause"] for event in run.events("stream_retried")} == {"storage_failed"}


def test_what_the_system_does_not_give_is_no_fault_of_a_file(tmp_path: Path) -> None:
    (path,) = write_pages(tmp_path / "in", 1, "zstd", 3)
    opened = open_settled(str(path), 0)
    assert opened is not None
    group = row_groups(str(path), opened[0], opened[1].metadata)[0]
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    held = []
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(list(Path("/proc/self/fd").iterdir())) + 20, before[1]))

    def refused(read: Callable[[], object]) -> str:
        """What is raised once no descriptor is left; other threads may give some back meanwhile."""
        for _ in range(100):
            with contextlib.suppress(OSError):
                while True:
                    held.append(path.open("rb"))
            try:
                read()
            except OSError as error:
                return str(error)
        return "nothing"

    try:
        for read in (lambda: reason_of(group, ["id"]), lambda: open_settled(str(path), 0)):
            assert "Too many open files" in refused(read)
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


def test_an_error_that_has_passed_and_a_folder_that_is_gone(tmp_path: Path) -> None:
    (path,) = write_pages(tmp_path / "in", 1, "zstd", 3)
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

    (whole,) = write_pages(tmp_path / "in", 1, "zstd", 3)
    content = whole.read_bytes()
    path = tmp_path / "growing.parquet"
    path.write_bytes(content[:1000])
    timers = [
        Timer(0.3, lambda: path.write_bytes(content[: len(content) // 2])),
        Timer(0.7, lambda: path.write_bytes(content)),
    ]
    for timer in timers:
        timer.start()
    opened = open_settled(str(path), 30.0)
    assert opened is not None
    assert opened[1].metadata.num_rows == ROWS
    path.write_bytes(content[:1000])
    assert open_settled(str(path), 0.3) is None
