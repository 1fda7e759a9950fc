"""Runs of tuples among the published files of a batch: several of a task, each under a name of its own."""

from __future__ import annotations

import re

import pytest

from penstock.spark.publication.publish import Publisher
from penstock.spark.publication.staged import BatchFiles, StagedFile, WrittenFile
from penstock.spark.results.window_rows import MadeResults
from penstock.spark.storage.layout import Layout


def staged(store: BatchFiles, kinds: list[str]) -> list[StagedFile]:
    written = [
        WrittenFile(kind, memoryview(f"{kind} {number}".encode()), 1) for number, kind in enumerate(kinds)
    ]
    return store.put(0, 2, written)


def contents(layout: Layout, demand: int) -> list[str]:
    folder = layout.log_files("s", f"tuples/{demand}")
    return sorted(path.read_text() for path in folder.iterdir()) if folder.exists() else []


def test_several_runs_of_a_task_have_names_of_their_own(layout: Layout) -> None:
    publisher = Publisher(layout, "s")
    files = staged(publisher.begin(3), ["tuples/1", "partials", "tuples/1", "tuples/4", "tuples/1"])
    listed = publisher.publish(3, [MadeResults(0, 2, files)], {"batch": 3})
    assert contents(layout, 1) == ["tuples/1 0", "tuples/1 2", "tuples/1 4"]
    assert contents(layout, 4) == ["tuples/4 3"]
    endings = {"partials": "parquet"}
    for file in listed:
        ending = endings.get(file["kind"], "arrow")
        assert re.fullmatch(rf"0000000003-0-00002-[0-9a-f]{{8}}\.{ending}", file["name"])


@pytest.mark.parametrize("is_restarted", [False, True])
def test_what_an_attempt_left_is_removed_by_the_next_one(layout: Layout, is_restarted: bool) -> None:
    publisher = Publisher(layout, "s")
    files = staged(publisher.begin(0), ["tuples/1", "tuples/1", "tuples/1"])
    assert len(files) == len(contents(layout, 1)) == 3
    if is_restarted:
        publisher = Publisher(layout, "s")
    again = staged(publisher.begin(0), ["partials", "tuples/1", "tuples/1"])
    publisher.publish(0, [MadeResults(0, 2, again)], {"batch": 0})
    assert contents(layout, 1) == ["tuples/1 1", "tuples/1 2"]


def test_files_of_an_attempt_cannot_change_published_ones(layout: Layout) -> None:
    publisher = Publisher(layout, "s")
    store = publisher.begin(0)
    late = staged(store, ["matches"])
    publisher.publish(0, [MadeResults(0, 2, staged(store, ["matches"]))], {"batch": 0})
    assert len(list(layout.matches("s").iterdir())) == 2
    late_again = staged(store, ["matches"])
    store.discard(late_again)
    Publisher(layout, "s")
    assert [path.name for path in layout.matches("s").iterdir()] != [late[0].name]
    assert len(list(layout.matches("s").iterdir())) == 1


def test_files_that_a_failed_commit_may_have_published_remain(layout: Layout) -> None:
    publisher = Publisher(layout, "s")
    files = staged(publisher.begin(0), ["matches"])
    # no manifest can be made of this
    with pytest.raises(TypeError):
        publisher.publish(0, [MadeResults(0, 2, files)], {"batch": object()})
    publisher.begin(0)
    assert [path.name for path in layout.matches("s").iterdir()] == [files[0].name]
    Publisher(layout, "s")
    assert not list(layout.matches("s").iterdir())


def test_a_published_batch_that_is_begun_again_keeps_its_files(layout: Layout) -> None:
    """The windows' query does so where Spark has not kept the state after it."""
    publisher = Publisher(layout, "s")
    files = staged(publisher.begin(0), ["matches"])
    publisher.publish(0, [MadeResults(0, 2, files)], {"batch": 0})
    for _ in range(2):
        store = publisher.begin(0)
        store.discard(staged(store, ["matches"]))
    assert [path.name for path in layout.matches("s").iterdir()] == [files[0].name]
