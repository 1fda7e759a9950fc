"""What is written lasts: data before the names that list it, one owner a file, and a full disk stops nothing."""

from __future__ import annotations

import errno
import json
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from engine_cases import names
from penstock.errors import CheckpointError
from penstock.spark.publication import compaction, publish
from penstock.spark.publication.kinds import results_of, view_kind
from penstock.spark.publication.manifests import published_paths
from penstock.spark.publication.merging import merge
from penstock.spark.publication.publish import Publisher
from penstock.spark.results.window_rows import MadeResults
from penstock.spark.results.window_staging import written
from penstock.spark.storage.events import EventLog
from penstock.spark.storage.layout import Layout
from penstock.spark.storage.offsets import PlannedBatches, offsets_digest
from penstock.stores import durable
from penstock.stores.files import Content
from penstock.stores.keys import Key
from penstock.stores.local_files import LocalFiles
from penstock.stores.sqlite_ledger import SqliteLedger

STREAM = "s"


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """(what, path) of every sync, rename and removal, in order."""
    found: list[tuple[str, str]] = []
    sync, replace, unlink, commit = os.fsync, Path.replace, Path.unlink, SqliteLedger.commit

    def fsync(descriptor: int) -> None:
        found.append(("sync", str(Path(f"/proc/self/fd/{descriptor}").readlink())))
        sync(descriptor)

    def renamed(path: Path, target: Path) -> Path:
        found.append(("name", str(target)))
        return replace(path, target)

    def unlinked(path: Path, missing_ok: bool = False) -> None:
        found.append(("remove", str(path)))
        unlink(path, missing_ok=missing_ok)

    def committed(
        self: SqliteLedger, puts: Mapping[Key, bytes] | None = None, *rest: object, **named: Any
    ) -> None:
        commit(self, puts, *rest, **named)  # type: ignore[arg-type]
        found.extend(("commit", f"{'/'.join(map(str, key))} in {self._path}") for key in puts or {})

    monkeypatch.setattr(SqliteLedger, "commit", committed)
    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(Path, "replace", renamed)
    monkeypatch.setattr(Path, "unlink", unlinked)
    return found


def _layout(folder: Path) -> Layout:
    layout = Layout(folder / "out", folder / "checkpoint")
    layout.open()
    return layout


def _publish(publisher: Publisher, batch: int, kinds: tuple[str, ...] = ("matches",)) -> None:
    files = publisher.begin(batch)
    made = [
        files.put(number, 0, [written(kind, pa.table({"batch": [batch]}))])
        for number, kind in enumerate(kinds)
    ]
    publisher.publish(
        batch, [MadeResults(number, 0, each) for number, each in enumerate(made)], {"batch": batch}
    )


def test_data_and_folders_are_synced_before_the_manifest_that_lists_them(
    tmp_path: Path, calls: list[tuple[str, str]]
) -> None:
    layout = _layout(tmp_path)
    publisher = Publisher(layout, STREAM)
    calls.clear()
    _publish(publisher, 0)
    folder, manifest = layout.matches(STREAM), layout.manifests(STREAM)[0]
    (path,) = published_paths(layout, STREAM)
    assert re.fullmatch(r"0000000000-0-00000-[0-9a-f]{8}\.parquet", path.name)
    wanted = [("name", str(path)), ("sync", str(folder)), ("commit", str(manifest))]
    assert [call for call in calls if call in wanted] == wanted
    first = next(each for what, each in calls if what == "sync" and Path(each).parent == folder)
    assert calls.index(("sync", first)) < calls.index(wanted[0]), "the content before the name"
    assert sum(call == ("sync", str(folder)) for call in calls) == 1, "a folder is synced once a batch"


def test_a_merged_file_is_synced_and_listed_before_anything_is_removed(
    tmp_path: Path, calls: list[tuple[str, str]]
) -> None:
    layout = _layout(tmp_path)
    publisher = Publisher(layout, STREAM)
    for batch in range(3):
        _publish(publisher, batch)
    calls.clear()
    replaced = next(published_paths(layout, STREAM))
    assert publisher.compact(1) == (0, 1)
    folder, manifests = layout.matches(STREAM), layout.manifests(STREAM)
    merged = next(published_paths(layout, STREAM))
    assert merged.name.startswith("0000000000-to-0000000001-")
    wanted = [
        ("name", str(merged)),
        ("sync", str(folder)),
        ("commit", str(manifests["merged"])),
        ("remove", str(replaced)),
    ]
    assert [call for call in calls if call in wanted] == wanted
    first_removed = next(number for number, (what, _) in enumerate(calls) if what == "remove")
    assert first_removed == calls.index(wanted[-1])


def test_a_new_folder_lasts_with_all_above_it(tmp_path: Path, calls: list[tuple[str, str]]) -> None:
    durable.make_folder(tmp_path / "a" / "b" / "c")
    assert [path for what, path in calls if what == "sync"] == [
        str(folder) for folder in (tmp_path, tmp_path / "a", tmp_path / "a" / "b")
    ]
    calls.clear()
    durable.make_folder(tmp_path / "a" / "b" / "c")
    assert not calls


def test_two_queries_that_publish_results_of_one_view_leave_each_others_files_alone(tmp_path: Path) -> None:
    layout = _layout(tmp_path)
    kind, streams = view_kind(0, "v"), ("b", "a.b")

    def publishers() -> dict[str, Publisher]:
        return {stream: Publisher(layout, results_of(stream), (), owner=stream) for stream in streams}

    for batch in range(4):
        for publisher in publishers().values():
            _publish(publisher, batch, (kind,))
    for stream, publisher in publishers().items():
        assert publisher.compact(2) == (0, 2)
        assert len(list(published_paths(layout, results_of(stream), kind))) == 2
    publishers()
    listed = [path for stream in streams for path in published_paths(layout, results_of(stream), kind)]
    assert names(listed) == names(layout.results("v").glob("*.parquet"))
    rows = [row for path in listed for row in pq.read_table(path)["batch"].to_pylist()]
    assert sorted(rows) == sorted([*range(4), *range(4)])


def test_a_batch_is_still_known_to_be_published_once_its_files_are_merged(tmp_path: Path) -> None:
    layout = _layout(tmp_path)
    publisher = Publisher(layout, STREAM)
    for batch in range(3):
        _publish(publisher, batch)
    publisher.compact(1)
    for each in (publisher, Publisher(layout, STREAM)):
        merged, single, none = (each.published(batch) for batch in (1, 2, 3))
        assert merged is not None
        assert (merged.figures, merged.files) == ({"batch": 1}, None)
        assert single is not None
        assert single.files is not None
        assert none is None


def test_a_compaction_that_fails_leaves_what_is_published_and_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    layout = _layout(tmp_path)
    publisher = Publisher(layout, STREAM)
    for batch in range(3):
        _publish(publisher, batch, ("matches", "quarantine"))
    published = sorted(layout.output.rglob("*.parquet"))
    put_all = LocalFiles.put_all

    def full(self: LocalFiles, contents: Mapping[str, Content]) -> None:
        if any(name.startswith("quarantine") for name in contents):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        put_all(self, contents)

    with monkeypatch.context() as patched:
        patched.setattr(LocalFiles, "put_all", full)
        with pytest.raises(OSError, match="No space left"):
            publisher.compact(2)
    assert sorted(layout.output.rglob("*.parquet")) == published
    assert publisher.compact(2) == (0, 2)


@pytest.mark.parametrize("damaged", ["matches", "manifest"])
def test_a_compaction_that_meets_a_damaged_file_is_told_and_ends_nothing(
    damaged: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # however long the writing takes
    monkeypatch.setattr(publish, "PATIENCE_SECONDS", None)
    layout = _layout(tmp_path)
    publisher, events = Publisher(layout, STREAM), EventLog(layout.events)
    for batch in range(5):
        _publish(publisher, batch)
    manifest, path = layout.manifests(STREAM)[1], list(published_paths(layout, STREAM))[1]
    document, whole = manifest.get(), path.read_bytes()
    assert document is not None
    if damaged == "manifest":
        manifest.replace(b"torn")
    else:
        path.write_bytes(b"torn")
    assert [publisher.compact_if_due(batch, 2, events) for batch in range(3)] == [None] * 3
    assert [(each["kind"], each["stream"], each["batch"]) for each in events.recent] == [
        ("compaction_failed", STREAM, 2)
    ]
    path.write_bytes(whole)
    manifest.replace(document)
    assert publisher.compact_if_due(3, 2, events) is None
    assert publisher.compact_if_due(4, 0, events) is None
    assert publisher.compact_if_due(4, 2, events) == (0, 3)


def test_batches_do_not_wait_for_files_that_take_long_to_merge(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    layout = _layout(tmp_path)
    publisher, events, may_end = Publisher(layout, STREAM), EventLog(layout.events), threading.Event()

    def slowly(sources: Sequence[Path], target: Path) -> None:
        assert may_end.wait(60)
        merge(sources, target)

    monkeypatch.setattr(compaction, "merge", slowly)
    for batch in range(4):
        _publish(publisher, batch)
        assert publisher.compact_if_due(batch, 2, events) is None
    assert len(list(published_paths(layout, STREAM))) == 4
    may_end.set()
    publisher.close()
    assert len(list(published_paths(layout, STREAM))) == 3, "what was being merged is listed"
    may_end.clear()
    threading.Timer(0.2, may_end.set).start()
    _publish(publisher, 4)
    assert publisher.compact_if_due(6, 2, events) is None
    _publish(publisher, 5)
    _publish(publisher, 6)
    merged, until = publisher.compact_if_due(8, 2, events), time.monotonic() + 60
    while merged is None and time.monotonic() < until:
        merged = publisher.compact_if_due(9, 2, events)
    assert merged == (5, 6), "one after the other"
    assert publisher.published(4).files is None
    assert len(list(published_paths(layout, STREAM))) == 3
    assert not events.recent


_FILLS_ITS_DISK = """
import resource, signal, sys
from pathlib import Path
from penstock.spark.storage.events import EventLog

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
path = Path(sys.argv[1])
log = EventLog(path)
log.record("before")
whole = path.stat().st_size
resource.setrlimit(resource.RLIMIT_FSIZE, (whole + 10, resource.RLIM_INFINITY))
for number in range(20):
    log.record("while_full", number=number)
assert path.stat().st_size == whole + 10
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
log.record("after")
assert len(log.recent) == 23, log.recent
log.close()
"""


def test_events_that_do_not_fit_the_disk_are_told_and_written_later(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    command = [sys.executable, "-c", _FILLS_ITS_DISK, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count(str(path)) == 1, "told once"
    events = [json.loads(line) for line in path.read_text().splitlines()]
    kinds = [event["kind"] for event in events]
    assert kinds == ["before", *["while_full"] * 20, "events_delayed", "after"]
    assert [event["number"] for event in events[1:21]] == list(range(20))
    assert os.strerror(errno.EFBIG) in events[21]["error"]


def test_what_spark_planned_is_synced_with_its_sums_and_the_folders_that_name_it(
    tmp_path: Path, calls: list[tuple[str, str]]
) -> None:
    checkpoint = tmp_path / "checkpoint" / STREAM / "spark"
    for folder in ("offsets", "commits", "sources/0", "sources/1"):
        (checkpoint / folder).mkdir(parents=True)
    (checkpoint / "metadata").write_text("{}")
    (checkpoint / "sources" / "1" / "0").write_text("kafka")
    planned = PlannedBatches(checkpoint)

    def plan(batch: int, *logged: str) -> list[str]:
        end = max(int(name.partition(".")[0]) for name in logged)
        offsets = f'v1\n{{}}\n{{"logOffset":{end}}}\n{{"orders":{{"0":{batch}}}}}'
        (checkpoint / "offsets" / str(batch)).write_text(offsets)
        for name in logged:
            (checkpoint / "sources" / "0" / name).write_text("v1")
            (checkpoint / "sources" / "0" / f".{name}.crc").write_text("sum")
        calls.clear()
        planned.sync(batch)
        (checkpoint / "commits" / str(batch)).write_text("v1")
        return [str(Path(path).relative_to(tmp_path)) for what, path in calls if what == "sync"]

    own = f"checkpoint/{STREAM}/spark"
    first = plan(0, "0")
    assert {f"{own}/{name}" for name in ("offsets/0", "sources/0/.0.crc", "sources/1/0", "metadata")} < set(
        first
    )
    folders = {f"{own}/{name}" for name in ("offsets", "sources/0", "sources/1", "sources")}
    assert folders | {own, f"checkpoint/{STREAM}", "checkpoint"} < set(first)
    assert first.index(f"{own}/sources/0/0") < first.index(f"{own}/sources/0"), "data before names"
    second = plan(1, "1", "2.compact")
    read = ("0/1", "0/.1.crc", "0/2.compact", "0/.2.compact.crc")
    wanted = {f"{own}/{name}" for name in ("offsets/1", "commits/0", *(f"sources/{each}" for each in read))}
    assert wanted < set(second)
    assert plan(2, "3") == [
        f"{own}/{name}"
        for name in (
            "offsets/2",
            "commits/1",
            "sources/0/3",
            "sources/0/.3.crc",
            "offsets",
            "commits",
            "sources/0",
        )
    ]


def test_batches_with_the_same_files_have_the_same_digest_whatever_spark_calls_them(tmp_path: Path) -> None:
    def checkpoint(name: str, offsets: list[int], log: dict[str, list[str]], clock: int) -> Path:
        folder = tmp_path / name
        (folder / "offsets").mkdir(parents=True)
        (folder / "sources" / "0").mkdir(parents=True)
        for batch, end in enumerate(offsets):
            head = json.dumps({"batchTimestampMs": clock + batch})
            (folder / "offsets" / str(batch)).write_text(f'v1\n{head}\n{{"logOffset":{end}}}')
        for number, listed in log.items():
            entries = [
                f'{{"path":"file:///{path}","timestamp":1,"batchId":{batch}}}'
                for batch, path in (each.split() for each in listed)
            ]
            (folder / "sources" / "0" / number).write_text("\n".join(["v1", *entries]))
        return folder

    one = checkpoint("one", [0, 1], {"0": ["0 a"], "1": ["1 b", "1 c"]}, 10)
    split = checkpoint("split", [0, 2], {"0": ["0 a"], "1": ["1 b"], "2.compact": ["0 a", "1 b", "2 c"]}, 20)
    more = checkpoint("more", [0, 2], {"0": ["0 a"], "1": ["1 b", "1 c"], "2": ["2 d"]}, 10)
    first, second = (offsets_digest(one, batch) for batch in (0, 1))
    assert None not in (first, second)
    assert first != second
    assert [offsets_digest(split, batch) for batch in (0, 1)] == [first, second]
    assert offsets_digest(more, 0) == first
    assert offsets_digest(more, 1) != second
    assert offsets_digest(one, 2) is None
    (one / "sources" / "0" / "1").unlink()
    with pytest.raises(CheckpointError, match="sources/0/1 is missing"):
        offsets_digest(one, 1)


def _rows(layout: Layout) -> list[int]:
    tables = (pq.read_table(path)["batch"].to_pylist() for path in published_paths(layout, STREAM))
    return sorted(row for rows in tables for row in rows)


def test_files_that_could_not_be_listed_are_merged_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    layout = _layout(tmp_path)
    publisher = Publisher(layout, STREAM)
    for batch in range(3):
        _publish(publisher, batch)
    manifests, commit = layout.manifests(STREAM), compaction.commit

    def failing_once(*_: Any) -> None:
        monkeypatch.setattr(compaction, "commit", commit)
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(compaction, "commit", failing_once)
    with pytest.raises(OSError, match="Input/output error"):
        publisher.compact(1)
    assert _rows(layout) == [0, 1, 2]
    for batch in range(3, 6):
        _publish(publisher, batch)
    publisher.compact(4)
    assert _rows(layout) == [0, 1, 2, 3, 4, 5]
    assert (manifests.numbers(), manifests.names()) == ([5], ["merged"])
    Publisher(layout, STREAM)
    left = {path.name for path in layout.matches(STREAM).glob("*.parquet")}
    assert left == {path.name for path in published_paths(layout, STREAM)}, "the next start deletes the rest"
