"""Runs of tuples among the published files of a batch: several of a task, each under a name that a repetition gives it too."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pytest

from penstock.spark.publication.publish import Publisher
from penstock.spark.publication.staged import StagedFile, staged_file
from penstock.spark.storage.layout import Layout


@dataclass
class Report:
    job: int
    partition: int
    files: list[StagedFile] = field(default_factory=list)


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    found = Layout(tmp_path / "out", tmp_path / "checkpoint")
    found.open()
    return found


def staged(layout: Layout, kinds: list[str]) -> list[StagedFile]:
    folder = layout.staged_envelopes("s", 3)
    folder.mkdir(parents=True, exist_ok=True)
    files = []
    for number, kind in enumerate(kinds):
        path = folder / f"{number}"
        path.write_text(f"{kind} {number}")
        files.append(staged_file(kind, path, 1, 0))
    return files


def published(layout: Layout, demand: int) -> dict[str, str]:
    folder = layout.log_files("s", f"tuples/{demand}")
    return {path.name: path.read_text() for path in folder.iterdir()} if folder.exists() else {}


def test_several_runs_of_a_task_have_names_of_their_own(layout: Layout) -> None:
    report = Report(0, 2, staged(layout, ["tuples/1", "partials", "tuples/1", "tuples/4", "tuples/1"]))
    listed = Publisher(layout, "s").publish(3, [report], {"batch": 3})
    assert published(layout, 1) == {
        "0000000003-0-00002.arrow": "tuples/1 0",
        "0000000003-0-00002-1.arrow": "tuples/1 2",
        "0000000003-0-00002-2.arrow": "tuples/1 4",
    }
    assert published(layout, 4) == {"0000000003-0-00002.arrow": "tuples/4 3"}
    assert [(file["kind"], file["name"]) for file in listed if file["kind"] == "partials"] == [
        ("partials", "0000000003-0-00002.parquet")
    ]


def test_a_repetition_replaces_them_and_removes_what_it_has_not(layout: Layout) -> None:
    report = Report(0, 0, staged(layout, ["tuples/1", "tuples/1", "tuples/1"]))
    # no manifest can be made of this: the process ends before it is there
    with pytest.raises(TypeError):
        Publisher(layout, "s").publish(3, [report], {"batch": object()})
    assert len(published(layout, 1)) == 3
    again = Report(0, 0, staged(layout, ["partials", "tuples/1", "tuples/1"]))
    Publisher(layout, "s").publish(3, [again], {"batch": 3})
    assert published(layout, 1) == {
        "0000000003-0-00000.arrow": "tuples/1 1",
        "0000000003-0-00000-1.arrow": "tuples/1 2",
    }
