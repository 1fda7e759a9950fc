"""A view that is redefined shows the rows of the definition it has; those of others by their number."""

from __future__ import annotations

import csv
import io
import os
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession

from penstock.cli.results import Asked, Format, _print_computed, results
from penstock.errors import InputError, UnknownNameError
from penstock.spark.engine import Engine
from penstock.spark.results.read_plain import plain_rows
from penstock.spark.run import Run
from penstock.spark.storage.layout import Layout
from whole_runs import run_to_end

pytestmark = pytest.mark.spark

OTHER = "SELECT * FROM t WHERE id >= 0"
HOURS = "SELECT window(at, '1 hour') AS w, count(*) AS n FROM t WHERE id > {} GROUP BY w"
#: of `rule`, one after the other: the last is the first again
CONDITIONS = ["id > 1", "id>2 AND id < 40", "id  >  1 -- as before\n"]
#: what each definition has answered
ROWS = {1: [2, 3, 21, 22, 23], 2: [11, 12, 13]}


class Story:
    """A stream of files of one tuple each, and views that are redefined between them."""

    def __init__(self, spark: SparkSession, folder: Path, merged_every: int) -> None:
        self._spark = spark
        self._merged_every = merged_every
        self.folder = folder
        self.files = 0
        self.taken: list[tuple[int, int]] = []
        (folder / "in").mkdir()

    def add(self, *ids: int) -> None:
        """Adds a file for each tuple."""
        for each in ids:
            line = f"{each},2026-01-01T{self.files:02}:00:00\n"
            (self.folder / "in" / f".{self.files}").write_text(line)
            # Spark takes files by their times, which may be the same where they are made at once
            os.utime(self.folder / "in" / f".{self.files}", (1_700_000_000 + self.files,) * 2)
            (self.folder / "in" / f".{self.files}").rename(self.folder / "in" / f"{self.files}.csv")
            self.files += 1

    def engine(self, **views: str) -> Engine:
        table = (
            f"CREATE TABLE t (id INT, at TIMESTAMP) USING csv OPTIONS (path '{self.folder / 'in'}', event_time 'at', "
            "max_files_per_trigger '1')"
        )
        engine = Engine(self._spark, compact_every_batches=self._merged_every).execute(table)
        return engine.add_views({**views, "other": OTHER}).sink("rule", self._take)

    def run(self, **views: str) -> Run:
        """Answers what is there with these views, and stops."""
        return run_to_end(self.engine(**views), self.folder / "out")

    def _take(self, rows: DataFrame, _: int) -> None:
        self.taken += [(row.id, row.penstock_definition) for row in rows.collect()]


@pytest.fixture(scope="module")
def told(_session: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> tuple[Story, Run]:
    """Three definitions, two of them different, and files of matches that were merged across them."""
    story = Story(_session, tmp_path_factory.mktemp("redefined"), merged_every=2)
    for number, condition in enumerate(CONDITIONS):
        story.add(*(10 * number + each for each in (1, 2, 3)))
        computed = f"SELECT id * 10 AS ten, '' AS definition FROM t WHERE {condition}"
        windows = {"hours": HOURS.format(number)} if number < 2 else {}
        run = story.run(rule=f"SELECT id FROM t WHERE {condition}", computed=computed, **windows)
    return story, run


def ids(frame: DataFrame) -> list[int]:
    return sorted(row[0] for row in frame.collect())


@pytest.mark.long
def test_results_are_those_of_the_definition_now(told: tuple[Story, Run]) -> None:
    _, run = told
    assert run.status().streams["t"].state == "ended"
    assert ids(run.results("rule")) == ROWS[1], "a definition that comes back is the one that it was"
    for number, rows in ROWS.items():
        assert ids(run.results("rule", definition=number)) == rows
    every = run.results("rule", all_definitions=True)
    assert every.columns == ["id", "definition"]
    assert sorted(map(tuple, every.collect())) == sorted(
        (each, number) for number, rows in ROWS.items() for each in rows
    )
    with pytest.raises(UnknownNameError, match=r"rule has no definition 4\. Existing definitions: 1, 2"):
        run.results("rule", definition=4)
    with pytest.raises(InputError, match="rule: choose either definition 1 or all definitions"):
        run.results("rule", 1, all_definitions=True)


def test_matches_and_sinks_know_the_definition(told: tuple[Story, Run]) -> None:
    story, run = told
    now = {row.id: sorted(row.queries) for row in run.matches("t").collect()}
    assert now[1] == ["other"]
    assert now[2] == ["computed", "other", "rule"]
    assert now[11] == ["other"], "only the second definition selected it"
    assert run.matches("t").columns == ["id", "at", "queries"]
    every = run.matches("t", all_definitions=True).where("id IN (1, 2, 11)").collect()
    numbers = {row.id: dict(zip(row.queries, row["__penstock_definitions"], strict=True)) for row in every}
    assert [numbers[each].get("rule") for each in (1, 2, 11)] == [None, 1, 2]
    assert set(story.taken) == {(each, number) for number, rows in ROWS.items() for each in rows}


def test_a_plain_reader_of_merged_files_can_tell(told: tuple[Story, Run]) -> None:
    found: dict[int, int] = {}
    across = 0
    for path in (told[0].folder / "out" / "matches" / "t").glob("*-to-*.parquet"):
        own = {
            row["id"]: (row.get("__penstock_definitions") or [1] * len(row["queries"]))[
                row["queries"].index("rule")
            ]
            for row in pq.read_table(path).to_pylist()
            if "rule" in row["queries"]
        }
        across += len(set(own.values())) > 1
        found |= own
    assert across, "files of several definitions have been merged"
    assert {2: 1, 3: 1, 11: 2, 12: 2, 13: 2}.items() <= found.items()


def test_the_command_line_says_which_definition_it_shows(
    told: tuple[Story, Run], capfd: pytest.CaptureFixture[str]
) -> None:
    out = told[0].folder / "out"
    results(out, "rule")
    assert "definition 1 of rule; rows of others: --definition 2\n" in capfd.readouterr().out
    results(out, "other")
    assert "definition" not in capfd.readouterr().out
    for limit in (0, 20):
        results(out, "rule", definition=2, limit=limit, output_format=Format.CSV)
        assert sorted(capfd.readouterr().out.split()) == ['"id"', "11", "12", "13"]
        results(out, "rule", all_definitions=True, limit=limit, output_format=Format.CSV)
        header, *lines = csv.reader(io.StringIO(capfd.readouterr().out))
        assert header == ["id", "definition"]
        assert sorted((int(number), int(each)) for each, number in lines) == sorted(
            (number, each) for number, rows in ROWS.items() for each in rows
        )
    for refused, message in (
        ({"all_definitions": True, "changes": True}, "--all and --changes exclude each other"),
        ({"definition": 1, "misses": True}, "--definition and --misses exclude each other"),
        ({"definition": 0}, "no definition 0"),
    ):
        with pytest.raises(InputError, match=message):
            results(out, "rule", **refused)
    _print_computed(out, Asked("computed", definition=2), Format.TABLE)
    assert "definition 2 of computed; rows of others: --definition 1\n" in capfd.readouterr().out
    _print_computed(out, Asked("computed", all_definitions=True), Format.CSV)
    header, *lines = csv.reader(io.StringIO(capfd.readouterr().out))
    assert header == ["ten", "definition", "_definition"]
    assert ["110", "", "2"] in lines


def test_definitions_of_window_views_are_told_apart(told: tuple[Story, Run]) -> None:
    run, out = told[1], told[0].folder / "out"
    for number, tuples in ((1, 3), (2, 3)):
        plain = plain_rows(Layout(out, out), "hours", 0, definition=number)
        assert plain is not None
        assert sum(plain.rows["n"].to_pylist()) >= tuples
        assert run.results("hours", definition=number).count() == plain.count
        assert run.changes("hours", definition=number).count() >= plain.count
    with pytest.raises(InputError, match="hours is not a selection: its definitions have different columns"):
        run.results("hours", all_definitions=True)


def test_a_view_that_runs_is_redefined(spark: SparkSession, tmp_path: Path) -> None:
    story = Story(spark, tmp_path, merged_every=64)
    story.add(1, 2, 3)
    engine = story.engine(rule="SELECT id FROM t WHERE id > 1")
    run = engine.start(tmp_path / "out")
    try:
        while run.status().streams["t"].tuples < 3:
            run.await_termination(0.2)
        engine.view("rule", "SELECT id, 1 AS more FROM t WHERE id > 2")
        assert ids(run.results("rule")) == [], "a row that only another definition selected is none"
        story.add(1, 2, 3)
        while run.status().streams["t"].tuples < 6:
            run.await_termination(0.2)
        assert [tuple(row) for row in run.results("rule").collect()] == [(3, 1)]
        engine.drop("rule").view("rule", "SELECT id, id AS same FROM t WHERE id > 1")
        assert [tuple(row) for row in run.results("rule").orderBy("id").collect()] == [(2, 2), (3, 3)]
        assert ids(run.results("rule", definition=2)) == [3]
        assert run.status().streams["t"].state == "running"
    finally:
        run.stop()
    assert run.status().streams["t"].state == "stopped"
