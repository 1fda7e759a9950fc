"""`penstock prune`: old rows of a folder that no run uses."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from penstock.cli.main import app
from penstock.errors import CheckpointError, InputError, SqlError, UnknownNameError
from penstock.monitor.published import published_files
from penstock.monitor.verification import verify
from penstock.spark.pruning import prune
from penstock.spark.results.read_plain import plain_rows
from penstock.spark.storage.layout import Layout
from sink_cases import SELECTION, STREAM, WINDOWS, Folder
from sinks_taken import Taken, sink_to

_LONG = 10_000.0


@pytest.fixture
def output(tmp_path: Path) -> Iterator[Path]:
    """A folder whose run has ended: three batches and two cuts, which were published just now."""
    folder = Folder(tmp_path / "out")
    folder.match([1, 2], [3], [4])
    folder.answer([("a", 0, 1, False, False)], [("b", 0, 2, True, False)])
    folder.close()
    return tmp_path / "out"


def _rows(output: Path, view: str) -> int:
    rows = plain_rows(Layout.of(output, None), view, 0)
    assert rows is not None
    return rows.count


def _files(output: Path) -> int:
    return len(list(output.glob("matches/*/*.parquet"))) + len(list(output.glob("results/*/*.parquet")))


def test_all_rows_leave_with_those_of_the_newest_batch(output: Path) -> None:
    layout = Layout.of(output, None)
    assert prune(layout, _LONG) == []
    found = prune(layout, -1, now=True)
    assert [(each.name, each.rows, each.files, each.held) for each in found] == [
        (STREAM, 4, 3, 0),
        (WINDOWS, 2, 2, 0),
    ]
    assert _rows(output, SELECTION) == _rows(output, WINDOWS) == 0
    assert published_files(output) == []
    assert _files(output) == 0
    assert verify(output).faults == []
    assert prune(layout, -1) == []


def test_a_run_goes_on_behind_what_has_left(output: Path) -> None:
    target = Taken()
    folder = Folder(output)
    folder.deliver(sink_to(target))
    folder.close()
    prune(Layout.of(output, None), -1, now=True)
    folder = Folder(output)
    folder.match([5], [6])
    folder.deliver(sink_to(target))
    late = Taken()
    folder.deliver(sink_to(late, "late"))
    assert (target.ids, late.ids) == ([1, 2, 3, 4, 5, 6], [5, 6])
    assert len(set(target.ordinals)) == 6
    folder.close()


def test_files_remain_for_readers_until_the_next_call(output: Path) -> None:
    layout = Layout.of(output, None)
    prune(layout, -1, STREAM)
    assert (_files(output), _rows(output, SELECTION), _rows(output, WINDOWS)) == (5, 0, 2)
    prune(layout, _LONG)
    assert _files(output) == 5
    prune(layout, _LONG, grace_seconds=0)
    assert _files(output) == 2


def test_beside_a_run_it_is_refused(output: Path) -> None:
    layout = Layout.of(output, None)
    ledger = layout.open(lambda: True)
    with pytest.raises(CheckpointError, match="in use by another run"):
        prune(layout, -1)
    ledger.close()
    assert _rows(output, SELECTION) == 4


def test_rows_that_a_sink_lacks_are_named(output: Path) -> None:
    layout, target = Layout.of(output, None), Taken()
    folder = Folder(output)
    folder.deliver(sink_to(target))
    folder.match([5], [6])
    folder.close()
    with pytest.raises(InputError, match=r"Sink taken\.large has not delivered 2 stored rows of orders"):
        prune(layout, -1)
    assert _rows(output, SELECTION) == 6
    assert [each.held for each in prune(layout, -1, WINDOWS)] == [0]
    assert [each.rows for each in prune(layout, -1, past_sinks=True)] == [6]
    folder = Folder(output)
    folder.match([7])
    folder.deliver(sink_to(target))
    assert target.ids == [1, 2, 3, 4, 7]
    assert [each["rows"] for each in folder.events.recent if each["kind"] == "sink_missed"] == [2]
    folder.close()


def test_names_are_checked(output: Path) -> None:
    layout = Layout.of(output, None)
    with pytest.raises(UnknownNameError, match=f"selection.*Name the stream {STREAM}"):
        prune(layout, -1, SELECTION)
    with pytest.raises(UnknownNameError, match=f"x does not exist. Existing names: {WINDOWS}, {STREAM}"):
        prune(layout, -1, "x")


def test_the_command_says_what_it_deletes(output: Path) -> None:
    runner = CliRunner()
    said = runner.invoke(app, ["prune", str(output), "--older-than", "1 day"])
    assert (said.exit_code, said.stdout) == (
        0,
        "No file has only rows that were published more than 1 day ago.\n",
    )
    for wrong in ("1 moon", "0 days", "-1 day"):
        refused = runner.invoke(app, ["prune", str(output), "--older-than", wrong])
        assert isinstance(refused.exception, SqlError)
        assert (
            f"--older-than needs a length of time above 0 in weeks to microseconds, such as '30 days'; got '{wrong}'"
            in str(refused.exception)
        )
    for wrong in ("1 month", "2 years"):
        refused = runner.invoke(app, ["prune", str(output), "--older-than", wrong])
        assert str(refused.exception) == (
            f"--older-than cannot have months or years, whose lengths differ. Write days, such as '30 days'; got '{wrong}'."
        )
    arguments = ["prune", str(output), STREAM, "--older-than", "1 microsecond"]
    tried = runner.invoke(app, [*arguments, "--dry-run"])
    assert tried.stdout.startswith(f"{STREAM}: 4 rows of matches in 3 files, ")
    assert tried.stdout.endswith("would be deleted\n")
    assert _rows(output, SELECTION) == 4
    done = runner.invoke(app, [*arguments, "--format", "json", "--now"])
    assert json.loads(done.stdout)["rows"] == 4
    assert _rows(output, SELECTION) == 0
