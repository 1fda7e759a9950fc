"""Every stored document and file of a folder with views of all kinds, damaged in turn: told by name, or exact; nothing is deleted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from every_kind import DAMAGES, FILES, SQLITE_ENDINGS, VIEWS, copied, put, rows_of, start, stored_files
from forms import ALL, thinned
from penstock.errors import CheckpointError, PenstockError
from penstock.monitor.verification import verify
from penstock.spark.publication.kinds import folder_of
from penstock.spark.publication.manifests import read_published
from penstock.spark.results.read_plain import plain_rows
from penstock.spark.run import Run
from penstock.spark.storage.layout import Layout

pytestmark = pytest.mark.spark

#: what is found out anew where it is gone
FOUND_ANEW = ("_penstock/status.json", "/files.jsonl")


@pytest.fixture(scope="module")
def made(_session: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with `in` and `out`."""
    root = tmp_path_factory.mktemp("every")
    for number in range(FILES):
        put(root / "in", number)
    start(_session.newSession(), root, root / "out")
    assert verify(root / "out").faults == []
    return root


def _plain(output: Path) -> dict[str, Counter[str] | str]:
    """The rows of each view that need no Spark, or what is told in their place."""
    layout = Layout(output, output)
    found: dict[str, Counter[str] | str] = {}
    for view in VIEWS:
        try:
            rows = plain_rows(layout, view, 0)
            assert rows is not None
            found[view] = Counter(map(repr, rows.rows.to_pylist()))
        except PenstockError as error:
            found[view] = str(error)
    return found


def _contents(output: Path) -> Iterator[tuple[str, int, int]]:
    for path in sorted(output.rglob("*")):
        if path.is_file() and not path.name.endswith(SQLITE_ENDINGS):
            yield str(path), path.stat().st_size, path.stat().st_mtime_ns


def test_readers_and_verify_tell_what_is_damaged_or_are_exact(made: Path) -> None:
    output = made / "out"
    wanted = _plain(output)
    assert all(isinstance(rows, Counter) and rows for rows in wanted.values()), wanted
    wrong = []
    layout = Layout.of(output, None)
    listed = {
        folder_of(layout, name, file.kind) / file.name
        for name in ("s", "s.results", "s.sums.results", "joins.0", "deadlines.0.results")
        for file in read_published(layout, name).files
    }
    for place, name in enumerate(stored_files(output)):
        path = output / name
        if path.parent.parent.parent == output and path not in listed:
            continue  # it was replaced: nobody reads it any more
        content = path.read_bytes()
        for how, damage in DAMAGES.items() if ALL else [list(DAMAGES.items())[place % len(DAMAGES)]]:
            if not content:
                continue
            layout.ledger.close()
            damage(path)
            before = list(_contents(output))
            found, faults = _plain(output), {each.path for each in verify(output).faults}
            if list(_contents(output)) != before:
                wrong.append(f"{how} {name}: files were changed")
            for view, rows in found.items():
                is_told = isinstance(rows, str) and str(path) in rows
                if rows != wanted[view] and not is_told:
                    wrong.append(f"{how} {name}: {view} is {rows if isinstance(rows, str) else 'wrong'}")
            is_found_anew = how in ("gone", "empty") and any(each in f"/{name}" for each in FOUND_ANEW)
            if not (is_found_anew or str(path) in faults):
                wrong.append(f"{how} {name}: verify says {faults}")
            layout.ledger.close()
            path.write_bytes(content)
    assert not wrong, "\n".join(wrong)
    assert verify(output).faults == []


#: what each start looks at before it changes anything
LOOKED_AT = (
    ("gone", "_penstock/ledger.db"),
    ("empty", "_penstock/ledger.db"),
    ("cut", "_penstock/ledger.db"),
    ("empty", "matches/s/*-to-*.parquet"),
    ("cut", "results/sums/*.parquet"),
    *((how, "_penstock/checkpoint/s/spark/metadata") for how in DAMAGES),
    ("flipped", "_penstock/checkpoint/identity.json"),
)


@pytest.mark.parametrize(("how", "pattern"), thinned(LOOKED_AT, 4, 2))
def test_a_start_refuses_what_is_damaged_and_deletes_nothing(
    spark: SparkSession, made: Path, tmp_path: Path, how: str, pattern: str
) -> None:
    output = copied(made / "out", tmp_path / "out")
    path = sorted(output.glob(pattern))[-1]
    DAMAGES[how](path)
    before = set(stored_files(output))
    with pytest.raises(CheckpointError) as told:
        start(spark, made, output)
    assert str(path.relative_to(output)) in str(told.value), told.value
    assert before <= set(stored_files(output)), "nothing is deleted"


def _files_of_rows(output: Path) -> set[str]:
    """The files of tuples and rows."""
    return {each for each in stored_files(output) if each.endswith((".parquet", ".arrow"))}


def _rows_or_error(run: Run) -> dict[str, Counter[str]] | str:
    """The rows of each view, or what Spark says of a file that it cannot read."""
    try:
        return rows_of(run)
    except (PenstockError, PySparkException, Py4JError) as error:
        return str(error)


#: parts of the files, so that several processes share the hundreds of starts
PARTS = 6


@pytest.mark.long
@pytest.mark.timeout(14_400)
@pytest.mark.parametrize("part", range(PARTS))
def test_a_start_over_any_damage_tells_it_or_is_exact(
    spark: SparkSession, made: Path, tmp_path: Path, part: int
) -> None:
    put(made / "in", FILES)
    wanted = rows_of(start(spark, made, copied(made / "out", tmp_path / "whole"), ended=True))
    wrong = []
    for name in list(stored_files(made / "out"))[part::PARTS]:
        for how, damage in DAMAGES.items():
            output = copied(made / "out", tmp_path / "out")
            damage(output / name)
            before = _files_of_rows(output)
            try:
                run = start(spark, made, output, ended=True)
            except PenstockError as error:
                told = f"{error} {error.__cause__}"
                if name not in told and "/spark" not in name:
                    wrong.append(f"{how} {name}: {told[:300]}")
                if gone := before - _files_of_rows(output):
                    wrong.append(f"{how} {name}: {gone} deleted")
                continue
            found = _rows_or_error(run)
            if isinstance(found, str):
                if name not in found:
                    wrong.append(f"{how} {name}: {found[:300]}")
            elif found != wanted and not {each.path for each in verify(output).faults}:
                wrong.append(f"{how} {name}: other rows, and nobody says so")
    assert not wrong, "\n".join(wrong)
