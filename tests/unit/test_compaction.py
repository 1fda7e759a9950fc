"""Compaction for weeks: files merged in levels, each row once at any moment, and figures of old batches as sums."""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from killing import forked
from penstock.errors import CheckpointError, DamagedError
from penstock.monitor.book import StatusBook
from penstock.spark.publication import compaction
from penstock.spark.publication.history import Stretch, lengthened
from penstock.spark.publication.manifests import ListedFile, published_paths, read_published
from penstock.spark.publication.merging import Levels, Run, merge, runs_of
from penstock.spark.publication.publish import Publisher
from penstock.spark.reporting.status_file import catch_up
from penstock.spark.storage.events import EventLog
from penstock.spark.storage.failpoints import COMPACTION_NAMES
from penstock.spark.storage.layout import Layout
from publishing import stored

STREAM = "s"
LEVELS = Levels(fan_in=4)


def _layout(folder: Path) -> Layout:
    layout = Layout(folder / "out", folder / "checkpoint")
    layout.open()
    return layout


def _figures(batch: int) -> dict[str, Any]:
    """A batch of `batch % 5` tuples, with times of its own."""
    tuples = batch % 5
    times = [batch * 10, batch * 10 + 5, batch * 10 + 5] if tuples else [None] * 3
    named = (f"{which}_event_time_us" for which in ("oldest", "newest", "furthest"))
    return {
        "batch": batch,
        "plan": batch // 100,
        "tuples": tuples,
        "matched": 1,
        "pairs": 2,
        "quarantined": {"malformed": 1} if batch % 7 == 0 else {},
        "errors": {"v": 3} if batch % 11 == 0 else {},
        "null_event_times": 0,
        "timed_tuples": tuples,
        "middle_event_time_us": times[0],
        **dict(zip(named, times, strict=True)),
    }


def _publish(publisher: Publisher, layout: Layout, batch: int, columns: dict[str, Any] | None = None) -> None:
    table = pa.table({"batch": [batch], **(columns or {})})
    publisher.publish(batch, [stored(layout, STREAM, batch, "matches", table)], _figures(batch))


def _rows(layout: Layout) -> list[int]:
    found = [pq.read_table(path)["batch"].to_pylist() for path in published_paths(layout, STREAM)]
    return [row for rows in found for row in rows]


def _names(paths: Iterable[Path]) -> set[str]:
    return {path.name for path in paths}


def _assert_shown(layout: Layout) -> None:
    """Whoever lists the folder sees what the manifests list."""
    assert _names(layout.matches(STREAM).iterdir()) == _names(published_paths(layout, STREAM))


def _run(publisher: Publisher, layout: Layout, batches: range, every: int = 4) -> None:
    for batch in batches:
        _publish(publisher, layout, batch)
        if batch and batch % every == 0:
            publisher.compact(batch - 1)


def test_the_number_of_files_and_manifests_does_not_grow_with_the_batches(tmp_path: Path) -> None:
    layout = _layout(tmp_path)
    publisher = Publisher(layout, STREAM, levels=LEVELS)
    counted = []
    for fifty in range(4):
        _run(publisher, layout, range(fifty * 50, fifty * 50 + 50))
        files = len(list(layout.matches(STREAM).iterdir()))
        manifests = len(list(layout.manifests(STREAM)))
        counted.append((files, manifests))
    assert _rows(layout) == list(range(200)), "each once, in order"
    # 4 levels of 3 files, and the batches since
    assert all(files <= 4 * 3 + 5 and manifests <= 5 for files, manifests in counted), counted
    _assert_shown(layout)


def test_figures_that_pass_are_those_of_the_newest_batches_alone(tmp_path: Path) -> None:
    layout = _layout(tmp_path)
    publisher = Publisher(layout, STREAM, levels=LEVELS, passing=("pairs", "stands"))
    _run(publisher, layout, range(9), every=2)
    *merged, newest = read_published(layout, STREAM).batches
    assert [each["batch"] for each in merged] == list(range(8))
    assert all("pairs" not in each and each["matched"] == 1 for each in merged)
    assert newest["pairs"] == 2
    publisher.compact(7)
    known = publisher.published(8)
    assert known is not None
    assert known.figures["pairs"] == 2


def _size(run: Run) -> int:
    return run.files[-1].last - run.files[0].first + 1


def _file(name: str, first: int, last: int, size: int, level: int = 0) -> ListedFile:
    return ListedFile("m", name, first, last, 0, 0, size, 0, level)


@pytest.mark.parametrize("seed", range(3))
def test_files_of_any_sizes_stay_in_order_and_few_and_are_seldom_written_again(seed: int) -> None:
    chance = random.Random(seed)
    levels = Levels(fan_in=4, most_bytes=1_000)
    files: list[ListedFile] = []
    written = data = 0
    for batch in range(800):
        several = chance.randrange(4)
        sizes = [chance.choice([1, 10, 300, 1_500]) for _ in range(several)]
        data += sum(sizes)
        files += [_file(f"{batch}-{n}", batch, batch, size) for n, size in enumerate(sizes)]
        if batch % 8:
            continue
        runs = levels.arranged(runs_of(files))
        batches = [file.first for run in runs for file in run.files]
        assert batches == sorted(batches)
        assert len({file.name for run in runs for file in run.files}) == len(files), "none is lost"
        files = []
        for run in runs:
            first, last = run.files[0].first, run.files[-1].last
            if len(run.files) == 1 or not levels.fits(run):
                assert len(run.files) == 1 or first == last
                files += [_file(file.name, file.first, file.last, file.size, run.level) for file in run.files]
            else:
                written += run.size
                files.append(_file(f"{first}-to-{last}", first, last, run.size, run.level))
        names = [file.name for file in files]
        assert len(names) == len(set(names))
    assert len(files) < 4 * data / 1_000, "as few as their sizes allow"
    assert written < 6 * data


def test_columns_that_older_files_lack_are_null_there(tmp_path: Path) -> None:
    layout = _layout(tmp_path)
    publisher = Publisher(layout, STREAM)
    _publish(publisher, layout, 0)
    _publish(publisher, layout, 1, {"added": ["x"]})
    assert publisher.compact(1) == (0, 1)
    (path,) = published_paths(layout, STREAM)
    assert pq.read_table(path).to_pylist() == [{"batch": 0, "added": None}, {"batch": 1, "added": "x"}]


def test_small_files_become_row_groups_of_some_size(tmp_path: Path) -> None:
    sources = [tmp_path / f"{number}.parquet" for number in range(50)]
    for number, source in enumerate(sources):
        pq.write_table(pa.table({"batch": [number]}), source)
    merge(sources, tmp_path / "all.parquet")
    found = pq.ParquetFile(tmp_path / "all.parquet")
    assert found.num_row_groups == 1
    assert found.read()["batch"].to_pylist() == list(range(50))


@pytest.mark.parametrize(
    "damage", [lambda content: content[:50], lambda content: b"PAR1" + bytes(200) + content[204:]]
)
def test_a_damaged_file_is_named_and_stops_nothing(tmp_path: Path, damage: Callable[[bytes], bytes]) -> None:
    """Its footer, or what lies before it: what there is stays as it is, and is merged once the file is whole again."""
    layout = _layout(tmp_path)
    publisher = Publisher(layout, STREAM, levels=LEVELS)
    for batch in range(8):
        _publish(publisher, layout, batch, {"text": ["x" * 500]})
    path = next(path for path in published_paths(layout, STREAM) if path.name.startswith("0000000003"))
    content = path.read_bytes()
    path.write_bytes(damage(content))
    before = sorted(layout.matches(STREAM).iterdir())
    for _ in range(2):
        with pytest.raises(DamagedError, match=f"{path} (cannot be read|is damaged)"):
            publisher.compact(6)
        assert sorted(layout.matches(STREAM).iterdir()) == before
    path.write_bytes(content)
    assert publisher.compact(6) == (0, 6)
    assert _rows(layout) == list(range(8))


def test_what_is_being_merged_at_the_end_is_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    layout = _layout(tmp_path)
    publisher = Publisher(layout, STREAM, levels=LEVELS)
    may_merge = threading.Event()

    def slow(sources: Any, path: Path) -> None:
        may_merge.wait()
        merge(sources, path)

    monkeypatch.setattr(compaction, "merge", slow)
    for batch in range(5):
        _publish(publisher, layout, batch)
    assert publisher.compact_if_due(4, 4, EventLog(layout.events)) is None
    may_merge.set()
    publisher.close()
    assert len(list(published_paths(layout, STREAM))) == 2
    assert _rows(layout) == list(range(5))
    _assert_shown(layout)


def test_quarantined_files_that_were_removed_do_not_stop_the_merging_of_the_rest(tmp_path: Path) -> None:
    layout = _layout(tmp_path)
    publisher = Publisher(layout, STREAM)
    for batch in range(4):
        staged = [
            stored(layout, STREAM, batch, kind, pa.table({"batch": [batch]}))
            for kind in ("matches", "quarantine")
        ]
        publisher.publish(batch, staged, _figures(batch))
    for path in list(published_paths(layout, STREAM, "quarantine"))[::2]:
        path.unlink()
    assert publisher.compact(3) == (0, 3)
    (left,) = published_paths(layout, STREAM, "quarantine")
    assert pq.read_table(left)["batch"].to_pylist() == [1, 3]
    assert _rows(layout) == list(range(4))


def test_a_reader_beside_a_compaction_sees_each_row_once(tmp_path: Path) -> None:
    layout = _layout(tmp_path)
    publisher = Publisher(layout, STREAM, levels=Levels(fan_in=2), grace_seconds=600)
    ended = threading.Event()
    published = reads = 0

    def publish() -> None:
        nonlocal published
        try:
            while published < 90 or (reads <= 5 and published < 2_000):
                _run(publisher, layout, range(published, published + 15), every=3)
                published += 15
        finally:
            ended.set()

    thread = threading.Thread(target=publish)
    thread.start()
    while not ended.is_set():
        batches = [file.first for file in read_published(layout, STREAM).files]
        assert len(batches) == len(set(batches))
        rows = _rows(layout)
        assert rows == list(range(len(rows)))
        reads += 1
    thread.join()
    assert reads > 5
    assert _rows(layout) == list(range(published))


def _publish_twenty(folder: Path) -> None:
    layout = _layout(folder)
    _run(Publisher(layout, STREAM, levels=LEVELS), layout, range(20))


@pytest.mark.parametrize("place", COMPACTION_NAMES)
@pytest.mark.parametrize("last", [3, 15])
def test_a_kill_during_a_compaction_loses_and_repeats_nothing(tmp_path: Path, place: str, last: int) -> None:
    assert forked(_publish_twenty, tmp_path, failpoint=f"{place}:{last}") == -9
    layout = _layout(tmp_path)
    assert _rows(layout) == list(range(last + 2)), "before anything is mended"
    publisher = Publisher(layout, STREAM, levels=LEVELS)
    _assert_shown(layout)
    for batch in range(last + 2):
        assert publisher.published(batch) is not None
    _run(publisher, layout, range(last + 2, 22))
    assert _rows(layout) == list(range(22))
    _assert_shown(layout)


def test_figures_of_old_batches_are_sums_that_say_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compaction, "KEPT_BATCHES", 16)
    layout = _layout(tmp_path)
    publisher = Publisher(layout, STREAM, levels=LEVELS)
    _run(publisher, layout, range(130), every=8)
    published = read_published(layout, STREAM)
    assert len(published.batches) <= 16 + 10
    whole, book = StatusBook(), StatusBook()
    whole.catch_up(STREAM, {}, map(_figures, range(130)))
    catch_up(book, layout, STREAM)
    assert book.stream(STREAM) == whole.stream(STREAM)
    behind = StatusBook()
    behind.catch_up(STREAM, {}, map(_figures, range(80)))
    catch_up(behind, layout, STREAM)
    assert behind.stream(STREAM) == whole.stream(STREAM), "also where some batches are counted already"
    batches = [number for each in published.stretches for number in range(each.first, each.last + 1)]
    assert batches == list(range(130))
    assert all(each.first_plan == each.plan for each in published.stretches)
    assert sum((Counter(each.quarantined) for each in published.stretches), Counter())["malformed"] == 19
    with pytest.raises(CheckpointError, match="Spark repeats batch 80 of s"):
        publisher.published(80)
    again = publisher.published(125)
    assert again is not None
    assert again.figures == _figures(125)


def test_a_history_is_bounded_and_says_of_any_end_what_its_batches_say() -> None:
    singles = [Stretch.of(_figures(batch) | {"plan": batch // 3}) for batch in range(5_000)]
    history: list[Stretch] = []
    for batch in singles:
        history = lengthened(history, [batch])
    assert len(history) <= 512
    for number, stretch in enumerate(history):
        own = singles[stretch.first :]
        later = history[number:]
        assert sum(each.tuples for each in later) == sum(each.tuples for each in own)
        for which, best in (("oldest", min), ("newest", max), ("furthest", max)):
            assert best(getattr(each, which) for each in later if getattr(each, which) is not None) == best(
                getattr(each, which) for each in own if getattr(each, which) is not None
            )
    newest = [each for each in history if each.first >= 4_400]
    assert all(each.first_plan == each.plan for each in newest), "plans are kept apart while there is room"
