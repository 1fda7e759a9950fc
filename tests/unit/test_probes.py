"""What a folder holds and no batch has been given is told from Spark's log of files."""

from __future__ import annotations

import json
from pathlib import Path
from urllib.parse import quote

import pytest

from penstock.spark.sources.probes import FolderProbe, SourceGoneError


def _write(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()


def _log(checkpoint: Path, name: str, *paths: Path) -> None:
    log = checkpoint / "sources" / "0"
    log.mkdir(parents=True, exist_ok=True)
    entries = [
        json.dumps({"path": f"file://{quote(str(path))}", "timestamp": 1, "batchId": 0}) for path in paths
    ]
    (log / name).write_text("\n".join(["v1", *entries]))


def test_files_that_no_batch_was_given_are_counted(tmp_path: Path) -> None:
    folder, checkpoint = tmp_path / "in", tmp_path / "spark"
    _write(folder, "a", "b c", "day=1/d", "_hidden", ".hidden", "_hidden_folder/e")
    probe = FolderProbe(folder)
    assert probe.backlog(checkpoint) == 3
    _log(checkpoint, "0", folder / "a", folder / "b c")
    assert probe.backlog(checkpoint) == 1
    _log(checkpoint, "9.compact", folder / "a", folder / "b c", folder / "day=1" / "d")
    assert probe.backlog(checkpoint) == 0
    (folder / "a").unlink()
    _write(folder, "f")
    assert probe.backlog(checkpoint) == 1
    assert probe.backlog(tmp_path / "another") == 3


def test_a_folder_that_is_gone_is_out_of_reach(tmp_path: Path) -> None:
    with pytest.raises(SourceGoneError, match="No such file or directory"):
        FolderProbe(tmp_path / "nowhere").backlog(tmp_path)


def test_what_spark_passes_over_is_no_backlog(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    _write(folder, "a", "b._COPYING_", "_SUCCESS", ".b.crc", "_temporary/0/c", "nested/d")
    assert FolderProbe(folder).backlog(tmp_path) == 1
    assert FolderProbe(folder, is_recursive=True).backlog(tmp_path) == 2
    assert FolderProbe(folder, is_selected=True).backlog(tmp_path) is None
    _write(folder, "_day=1/e", "_day=1/_f", "_day=1/g._COPYING_", "_metadata")
    assert FolderProbe(folder).backlog(tmp_path) == 4
    assert FolderProbe(folder / "a").backlog(tmp_path) == 1
