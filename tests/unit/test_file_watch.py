"""The ledger of files that were read: torn lines and a ledger that cannot be written stop nobody."""

from __future__ import annotations

import json
import os
import socket
from itertools import islice
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.spark.sources.file_watch import FileWatch
from penstock.spark.storage.events import EventLog
from penstock.spark.storage.spark_files import last_lines
from penstock.spark.tasks.parquet_files import (
    RowGroup,
    RowGroupReader,
    UnreadableError,
    open_parquet,
    open_settled,
    other_kind,
    stamp_of,
)
from penstock.spark.tasks.record_lines import with_lines


def _log(folder: Path, batch: int, *files: Path) -> None:
    """A batch of Spark's file log."""
    entries = [
        {
            "path": f"file://{file}",
            "timestamp": file.stat().st_mtime_ns // 1_000_000,
            "batchId": batch,
        }
        for file in files
    ]
    log = folder / "sources" / "0"
    log.mkdir(parents=True, exist_ok=True)
    (log / str(batch)).write_text("\n".join(["v1", *map(json.dumps, entries)]))


def _watch(folder: Path) -> FileWatch:
    return FileWatch("s", folder / "sources", folder / "files.jsonl", EventLog(folder / "events.jsonl"))


def _told(folder: Path) -> list[dict[str, object]]:
    events = [json.loads(line) for line in (folder / "events.jsonl").read_text().splitlines()]
    return [event for event in events if event["kind"] != "files_changed"] + [
        {Path(file["path"]).name: (file["size_then"], file["size_now"]) for file in event["files"]}
        for event in events
        if event["kind"] == "files_changed"
    ]


def test_what_is_no_file_is_told_once_and_never_opened(tmp_path: Path) -> None:
    fifo, good, plain = tmp_path / "a.parquet", tmp_path / "b.parquet", tmp_path / "c.csv"
    os.mkfifo(fifo)
    plain.write_text("1\n")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "s"))
        pq.write_table(pa.table({"id": [1]}), good)
        _log(tmp_path, 0, fifo, plain, tmp_path / "s")
        watch = _watch(tmp_path)
        watch.answered({})
        os.utime(fifo, (1, 1))
        watch.look()
        _watch(tmp_path).answered({})
    told = [json.loads(line) for line in (tmp_path / "events.jsonl").read_text().splitlines()]
    assert [(event["kind"], event["count"]) for event in told] == [("files_passed_over", 2)]
    assert {each["kind"] for each in told[0]["files"]} == {"FIFO", "socket"}
    assert watch.passed_over == 2
    assert other_kind("/dev/null") == "device"
    assert other_kind(f"file:{tmp_path}") == "folder"
    assert [other_kind(uri) for uri in (str(plain), "gone", "s3a://bucket/key")] == [None] * 3
    with pytest.raises(pa.ArrowInvalid, match="a FIFO, not a file"):
        open_parquet(f"file:{fifo}")
    assert open_settled(str(fifo), 0) is None
    # one that takes the place of a file between plan and read
    stamp = stamp_of(str(fifo))
    with pytest.raises(UnreadableError, match="a FIFO"):
        RowGroupReader(RowGroup(str(fifo), 0, 1, stamp))
    origin = f"file:{fifo}"
    assert with_lines(pa.array([origin]), pa.array([b"1"])).to_pylist() == [origin]


def test_a_torn_line_costs_nothing_but_itself(tmp_path: Path) -> None:
    files = [tmp_path / f"{number}.csv" for number in range(3)]
    for file in files:
        file.write_text("a\n")
    _log(tmp_path, 0, files[0])
    _watch(tmp_path).answered({})
    with (tmp_path / "files.jsonl").open("a") as ledger:
        ledger.write('{"path": "torn')
    _log(tmp_path, 1, files[1])
    _watch(tmp_path).answered({})
    _log(tmp_path, 2, files[2])
    watch = _watch(tmp_path)
    watch.answered({})
    for file in files:
        file.write_text("a\nb\n")
    watch.look()
    watch.look()
    _watch(tmp_path).look()
    assert _told(tmp_path) == [{f"{number}.csv": (2, 4) for number in range(3)}]


def test_a_ledger_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    file.write_text("a\n")
    _log(tmp_path, 0, file)
    watch = FileWatch("s", tmp_path / "sources", file / "files.jsonl", EventLog(tmp_path / "events.jsonl"))
    watch.answered({})
    file.write_text("")
    watch.look()
    failed, _, changed = _told(tmp_path)
    assert failed["kind"] == "file_watch_failed"
    assert changed == {"a.csv": (2, 0)}


def test_logs_of_other_sources_are_left_alone(tmp_path: Path) -> None:
    log = tmp_path / "sources" / "0"
    log.mkdir(parents=True)
    (log / "0").write_bytes(b'\0v1\n{"topic":{"0":0}}')
    watch = _watch(tmp_path)
    watch.answered({})
    watch.look()
    assert not (tmp_path / "files.jsonl").exists()


def test_the_newest_files_are_looked_at_and_the_ledger_stays_as_short(tmp_path: Path) -> None:
    files = [tmp_path / f"{number}.csv" for number in range(60)]

    def watch() -> FileWatch:
        events = EventLog(tmp_path / "events.jsonl")
        return FileWatch("s", tmp_path / "sources", tmp_path / "files.jsonl", events, most=10)

    running = watch()
    for number, file in enumerate(files):
        file.write_text("a\n")
        _log(tmp_path, number, file)
        running.answered({})
        assert len((tmp_path / "files.jsonl").read_text().split()) <= 24
        if number % 17 == 0:
            running = watch()
    for file in files[:55]:
        file.write_text("a\nb\n")
    watch().look()
    assert _told(tmp_path) == [{f"{number}.csv": (2, 4) for number in range(50, 55)}]
    again = watch()
    again.answered({})
    again.look()
    assert len(_told(tmp_path)) == 1, "each change is told once, and no file is taken for a new one"


def test_the_end_of_a_long_log_is_read_and_no_more(tmp_path: Path) -> None:
    log = tmp_path / "99.compact"
    entries = [json.dumps({"path": f"file:///{number:050d}", "batchId": number}) for number in range(5_000)]
    log.write_text("\n".join(["v1", *entries]))
    assert [line.decode() for line in last_lines(log)] == ["v1", *entries][::-1]
    found = last_lines(log)
    assert json.loads(next(found))["batchId"] == 4_999
    with log.open("r+b") as file:
        file.write(b"x" * 1_000)
    assert sum(b"x" in line for line in islice(found, 500)) == 0
