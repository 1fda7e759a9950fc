"""The ingest query's end of the log where a put fails after the entry is there: nothing is passed over."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.operators.windows.shard import KeyedProgram
from penstock.settings import Settings
from penstock.spark.log.ingest_log import IngestLog
from penstock.spark.log.stream_log import LogReader
from penstock.spark.storage import files
from penstock.spark.storage.events import EventLog
from penstock.spark.storage.layout import Layout

OTHERS: dict[str, Callable[[IngestLog], object]] = {
    "idle": lambda log: log.put_idle(20),
    "all": lambda log: log.put_all(),
    "end": lambda log: log.put_end(),
    "whole": lambda log: log.put_whole((0,), {"partials": ["w"]}, 5),
    "batch": lambda log: put(log, 1),
}


def put(log: IngestLog, batch: int) -> None:
    log.put_batch(batch, 0, batch, batch, batch, batch, {"partials": [f"{batch}.parquet"]})


@pytest.mark.parametrize("other", OTHERS)
def test_a_batch_is_in_the_log_whatever_put_failed_before_it(
    other: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    layout = Layout.of(tmp_path / "out", None)
    layout.open()
    log = IngestLog(layout, "s", Settings(), EventLog(layout.events))
    log.store_program(KeyedProgram(0, (), 0, 0), is_read=True)
    put(log, 0)

    def refuse(folder: Path) -> None:
        raise OSError(errno.EIO, "Input/output error", str(folder))

    with monkeypatch.context() as patched:
        patched.setattr(files, "sync_folder", refuse)
        with pytest.raises(OSError, match="Input/output error"):
            OTHERS[other](log)
    put(log, 1)
    put(log, 2)
    log.close()
    reader = LogReader(layout.log("s"))
    newest = reader.newest()
    assert newest is not None
    named = [name for entry in reader.between(-1, newest.number) for name in entry.files.get("partials", ())]
    assert [name for name in named if name != "w"] == ["0.parquet", "1.parquet", "2.parquet"]
