"""Window views over a window view without Spark: which windows are due, what is told of them, and the log of rows."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.types import StructType

from forms import examples
from penstock.errors import CheckpointError
from penstock.operators.windows.answers import Progress
from penstock.operators.windows.lifecycle import ends_of
from penstock.plan.joins import JoinInput, JoinPlan, TimeBound
from penstock.plan.times import AFTER_ALL, BEFORE_ALL
from penstock.plan.windows import Windows
from penstock.settings import Settings
from penstock.spark.lanes.derived.beneath import LaneRows, LaneSource, WindowRows, WindowSource
from penstock.spark.lanes.derived.revisions import Worth, revised, revised_whole, worth_of
from penstock.spark.lanes.derived.views import Answered, JoinTime
from penstock.spark.lanes.joins.progress import STREAMS, followed, progress_of
from penstock.spark.log.entries import Entry
from penstock.spark.log.row_log import RowLog, held_rows
from penstock.spark.log.stream_log import LogReader
from penstock.spark.publication.publish import Publisher
from penstock.spark.results.published_rows import PublishedRows, joined
from penstock.spark.results.revisions import newest_rows
from penstock.spark.results.window_schemas import (
    COVERAGE,
    FINAL,
    MARKS,
    OP,
    REVISION,
    ROW,
    SLACK,
    UPSERT,
    ReadableView,
)
from penstock.spark.results.window_staging import written
from penstock.spark.storage.events import EventLog
from penstock.spark.storage.joins import JoinDefinition
from penstock.spark.storage.lane_views import RegisteredView
from penstock.spark.storage.layout import ROWS_FILES, Layout
from penstock.sql.windows.query import Beneath
from publishing import stored

MOMENT = pa.timestamp("us", "UTC")
ROW_TYPE = pa.struct([("start", MOMENT), ("end", MOMENT), ("k0", pa.string())])
OWN = pa.schema(
    [("x", pa.float64()), ("parts", pa.list_(pa.int64())), ("at", pa.struct([("a", pa.int32())]))]
)
NOW = OWN.append(pa.field(ROW, ROW_TYPE))
TOLD = pa.schema([*OWN, *MARKS, pa.field(ROW, ROW_TYPE)])
SIZE = 10
VIEW = "fares"
LANE = "rides.results"


def row(end: int, key: str | None) -> dict[str, Any]:
    return {"start": end - SIZE, "end": end, "k0": key}


groups = st.dictionaries(
    st.tuples(st.sampled_from([10, 20, 30]), st.sampled_from(["a", "b", None])),
    st.tuples(
        st.sampled_from([None, 0.0, 1.5, float("nan")]),
        st.sampled_from([None, [], [1], [1, 2]]),
        st.sampled_from([None, {"a": None}, {"a": 1}]),
    ),
)


@settings(deadline=None)
@given(st.lists(st.tuples(groups, st.sampled_from([0, 10, 20, 30])), min_size=1, max_size=6))
def test_the_newest_of_what_is_told_is_what_there_is(steps: list[tuple[dict[Any, Any], int]]) -> None:
    """Whatever comes and goes; a window that is final says so of all its rows, and stays so."""
    told, final_until, results = TOLD.empty_table(), 0, 0
    for cut, (content, final) in enumerate(steps):
        final_until = max(final_until, final)
        now = pa.Table.from_pylist(
            [{"x": x, "parts": p, "at": at, ROW: row(*place)} for place, (x, p, at) in content.items()], NOW
        )
        finals = {end for end in (10, 20, 30) if end <= final_until}
        rows, counts = revised(now, told, {20: Worth(0.5, 27)}, finals, cut)
        assert counts.rows == rows.num_rows
        results += counts.rows - counts.revised_rows
        assert results == now.num_rows
        again, _ = revised(now, pa.concat_tables([told, rows]), {}, finals, cut + 1)
        assert again.num_rows == 0, "what was told is not told again"
        told = pa.concat_tables([told, rows])
        newest = newest_rows(told)
        kept = newest.filter(pc.equal(newest.column(OP), UPSERT))
        # by its text, NaN is NaN
        assert sorted(map(repr, kept.select(NOW.names).to_pylist())) == sorted(map(repr, now.to_pylist()))
        for each in kept.to_pylist():
            is_final = each[ROW]["end"].timestamp() * 1e6 <= final_until
            assert each[FINAL] == is_final
            assert is_final == (each[COVERAGE] == 1.0)


def test_what_a_row_says_of_its_window() -> None:
    now = pa.Table.from_pylist([{"x": 1.0, ROW: row(20, "a")}, {"x": 2.0, ROW: row(30, "a")}], NOW)
    rows, counts = revised(now, TOLD.empty_table(), {20: Worth(0.5, 27), 30: Worth(None, 29)}, set(), 0)
    assert [(each[REVISION], each[COVERAGE], each[SLACK]) for each in rows.to_pylist()] == [
        (0, 0.5, 7e-6),
        (0, None, -1e-6),
    ]
    assert (counts.early, counts.corrected, counts.final) == (2, 0, 0)
    more, counts = revised(now, rows, {20: Worth(0.9, 31)}, {20}, 1)
    assert [(each[REVISION], each[COVERAGE], each[SLACK], each[FINAL]) for each in more.to_pylist()] == [
        (1, 1.0, 11e-6, True)
    ]
    assert (counts.early, counts.corrected, counts.final) == (0, 0, 1)
    late = pa.Table.from_pylist([{"x": 9.0, ROW: row(20, "a")}], NOW)
    more, counts = revised(late, pa.concat_tables([rows, more]), {20: Worth(0.9, 31)}, {20}, 7)
    assert [(each[REVISION], each[OP], each[FINAL]) for each in more.to_pylist()] == [
        (1_000_007, "upsert", True),
        (1, "delete", False),
    ]
    assert counts.final_corrected == 1


def test_withdrawn_rows_of_a_running_view_come_first() -> None:
    before = pa.Table.from_pylist([{"x": 1.0, ROW: row(20, "a")}], NOW)
    told, _ = revised_whole(before, TOLD.empty_table(), 0, is_final=False, tells_all=False)
    now = pa.Table.from_pylist([{"x": 1.0, ROW: row(20, "b")}], NOW)
    rows, counts = revised_whole(now, told, 1, is_final=False, tells_all=False)
    assert [(each[ROW], each[OP]) for each in rows.to_pylist()] == [
        (told.to_pylist()[0][ROW], "delete"),
        (now.to_pylist()[0][ROW], "upsert"),
    ]
    assert counts.rows == 2


def test_a_window_is_worth_what_the_least_of_its_rows_is() -> None:
    beneath = pa.Table.from_pylist(
        [
            {COVERAGE: coverage, SLACK: slack, ROW: row(end, key)}
            for coverage, slack, end, key in [
                (0.5, 3e-6, 10, "a"),
                (0.9, 5e-6, 10, "b"),
                (None, -1e-6, 20, "a"),
                (1.0, 4e-6, 30, "a"),
            ]
        ],
        pa.schema([*MARKS, pa.field(ROW, ROW_TYPE)]),
    )
    ends = {10: range(100, 101), 20: range(200, 201), 30: range(100, 201, 100)}
    assert worth_of(beneath, ends) == {100: Worth(0.5, 34), 200: Worth(None, 34)}


@pytest.mark.parametrize("moment", ["start", "end", "last"])
def test_rows_before_a_time_are_those_of_windows_that_are_told(tmp_path: Path, moment: str) -> None:
    windows = Windows(10, 4, 3)
    source = WindowSource(Layout(tmp_path, tmp_path), "rides", VIEW)
    nothing = ReadableView(0, StructType(), StructType())
    rows = WindowRows(source, nothing, Beneath(windows, moment), PublishedRows())
    every = range(windows.start + windows.size - 40, 120, windows.slide)
    time = {end: {"start": end - 10, "end": end, "last": end - 1}[moment] for end in every}
    for closed in range(-20, 60):
        known = rows.told(Progress(closed, AFTER_ALL, BEFORE_ALL), windows)
        assert (known.beforehand, known.final) == (AFTER_ALL, BEFORE_ALL)
        for end in every:
            assert (time[end] < known.closed) == (end <= closed)


@given(
    st.integers(1, 30),
    st.integers(1, 30),
    st.integers(0, 29),
    st.lists(st.integers(-100, 100), max_size=20),
)
def test_windows_that_hold_some_moments(size: int, slide: int, start: int, moments: list[int]) -> None:
    windows = Windows(max(size, slide), slide, start % slide)
    found = ends_of(windows, np.array(moments, np.int64)).tolist()
    assert found == sorted({end for moment in moments for end in windows.ends(moment)})


def entry(newest: int | None, *delays: int, **said: Any) -> Entry:
    return Entry(0, 0, 0, 0, newest=newest, delays=delays, **said)


def test_a_join_is_told_as_far_as_the_last_of_its_streams_has_come() -> None:
    settings_ = Settings(max_delay_seconds=1, least_horizon_seconds=0.0001)
    flights = followed(None, [entry(1_000, 0), entry(4_000, 400, 2_000_000)], settings_)
    weather = followed(None, [entry(5_000, 0), entry(5_100, 8), entry(5_100, reached=7_000)], settings_)
    assert progress_of([flights, weather], 3) == Progress(4_000, 4_000, 3_500, 3)
    assert progress_of([weather], 3) == Progress(5_100, 7_000, 5_000, 3)
    assert progress_of([weather, followed(None, [], settings_)], 3) == Progress(operator=3)
    flights = followed(flights, [entry(4_000, answer_all=True)], settings_)
    assert progress_of([flights, weather], 3) == Progress(4_000, 7_000, 3_500, 3)
    begun = followed(flights, [entry(4_000)], settings_)
    assert progress_of([begun, weather], 3).beforehand == 4_000, "another run goes on with it"
    flights = followed(flights, [entry(4_000, ended=True)], settings_)
    assert progress_of([flights, weather], 3) == Progress(5_100, 7_000, 5_000, 3)
    assert progress_of([flights], 3) == Progress(4_000, AFTER_ALL, AFTER_ALL, 3)
    assert STREAMS.value(STREAMS.document({"flights": flights})) == {"flights": flights}


def test_rows_of_a_join_are_known_once_their_last_partner_is(tmp_path: Path) -> None:
    inputs = tuple(JoinInput(name, name, False, None, (), f"{name}_t") for name in "abc")
    bounds = (TimeBound(0, 1, -5, 20), TimeBound(0, 2, -70, -30), TimeBound(1, 2, -90, -25))
    plan = JoinPlan("j", inputs, (), bounds, (), (), ())
    assert [plan.ahead_of(number) for number in range(3)] == [20, 5, 90]
    joined_view = RegisteredView("joins", 4, JoinDefinition("j", "j:1", "", plan), before=(2,))
    source = LaneSource(Layout(tmp_path, tmp_path), joined_view)
    view = Answered("over", 0, "j:1", JoinTime("at", 20))
    assert Answered.of(view.document()) == view
    assert source.rows(view, Progress(operator=3), PublishedRows()) is None, "another lane's"
    rows = source.rows(view, Progress(1_000, 1_500, 900, 4), PublishedRows())
    assert isinstance(rows, LaneRows)
    assert rows.told(Progress(1_000, 1_500, 900), Windows(10, 10)) == Progress(980, 1_480, 880)
    assert rows.told(Progress(1_000, AFTER_ALL, 900), Windows(300, 10)) == Progress(980, AFTER_ALL, 680)
    assert rows.told(Progress(1_000, 5, AFTER_ALL), Windows(300, 10)).final == AFTER_ALL
    assert rows.told(Progress(), Windows(300, 10)) == Progress()


def test_stretches_are_joined() -> None:
    assert joined([(5, 5), (7, 9), (1, 3), (3, 4), (2, 3)]) == [(1, 4), (7, 9)]


@given(st.lists(st.lists(st.integers(-50, 50), min_size=1, max_size=20), max_size=4), st.data())
@settings(deadline=None, max_examples=examples(30))
def test_rows_are_read_by_stretches(
    tmp_path_factory: Any, files: list[list[int]], data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("rows")
    schema = pa.schema([("n", pa.int64()), (ROW, ROW_TYPE)])
    paths = []
    for ends in files:
        table = pa.Table.from_pylist([{"n": end, ROW: row(end, None)} for end in ends], schema)
        paths.append(written("", table).left(folder).path)
    spans = joined(data.draw(st.lists(st.tuples(st.integers(-60, 60), st.integers(-60, 60)), max_size=4)))
    side, back = data.draw(st.sampled_from([("end", 0), ("start", SIZE)]))
    found = PublishedRows().read(paths, schema, f"{ROW}.{side}", spans).column("n").to_pylist()
    wanted = [end for ends in files for end in ends if any(a <= end - back < b for a, b in spans)]
    assert found == wanted


class Lane:
    """Publishes rows of a view, and keeps their log."""

    def __init__(self, folder: Path) -> None:
        self.layout = Layout(folder / "out", folder / "checkpoint")
        self.layout.open()
        self.publisher = Publisher(self.layout, LANE, (), owner="rides", held=lambda: held_rows(self.layout))
        self.published = 0
        self.log: RowLog | None = None

    def begin(self) -> None:
        self.log = RowLog(self.layout, "rides.fares", LANE, VIEW, EventLog(self.layout.events), lambda: None)

    def publish(self, *, put: bool = True) -> None:
        number = self.published
        table = pa.Table.from_pylist([{ROW: row(10 * number, None)}], pa.schema([(ROW, ROW_TYPE)]))
        kinds = (f"3/{VIEW}", "3/other")
        made = [stored(self.layout, LANE, number, kind, table, job=3, owner="rides") for kind in kinds]
        progress = asdict(Progress(number, number, number))
        figures = {"batch": number, "progress": {VIEW: progress}}
        files = self.publisher.publish(number, made, figures)
        self.published += 1
        if put and self.log is not None:
            self.log.put(number, files, progress)

    def entries(self) -> list[tuple[int, bool, int, list[int]]]:
        """(publication, whether rows are missing before it, progress, numbers of its rows) of those there are."""
        reader = LogReader(self.layout.log("rides.fares"))
        found = []
        newest = reader.newest()
        for entry in reader.between(reader.first - 1, -1 if newest is None else newest.number):
            names = entry.files.get(ROWS_FILES, ())
            rows = [
                int(
                    np.asarray(
                        PublishedRows()
                        .read(
                            [reader.path(ROWS_FILES, name)],
                            pa.schema([(ROW, ROW_TYPE)]),
                            f"{ROW}.end",
                            [(-(2**62), 2**62)],
                        )
                        .column(ROW)
                        .combine_chunks()
                        .field("end")
                        .cast(pa.int64())
                    )[0]
                )
                // 10
                for name in names
            ]
            assert entry.progress is not None
            found.append((entry.batch, entry.answer_all, entry.progress.closed, rows))
        return found


def test_each_publication_is_an_entry_whose_rows_outlive_a_compaction(tmp_path: Path) -> None:
    lane = Lane(tmp_path)
    lane.begin()
    for _ in range(3):
        lane.publish()
    lane.publisher.compact(1)
    assert lane.entries() == [
        (-1, True, BEFORE_ALL, []),
        (0, False, 0, [0]),
        (1, False, 1, [1]),
        (2, False, 2, [2]),
    ]
    assert lane.log is not None
    lane.log.put(1, None, None)
    assert len(lane.entries()) == 4


def test_what_was_published_and_not_put_is_put_at_the_next_start(tmp_path: Path) -> None:
    lane = Lane(tmp_path)
    lane.begin()
    lane.publish()
    lane.publish(put=False)
    lane.publish(put=False)
    lane.begin()
    assert lane.entries()[1:] == [(0, False, 0, [0]), (1, False, 1, [1]), (2, False, 2, [2])]


def test_what_was_merged_before_it_was_put_is_said_to_be_missing(tmp_path: Path) -> None:
    lane = Lane(tmp_path)
    lane.publish()
    lane.begin()
    lane.publish()
    for _ in range(3):
        lane.publish(put=False)
    lane.publisher.compact(3)
    lane.begin()
    lane.publish()
    lane.publish(put=False)
    lane.publish()
    assert lane.entries() == [
        (0, True, 0, []),
        (1, False, 1, [1]),
        (4, True, 4, []),
        (5, False, 5, [5]),
        (7, True, 7, []),
    ]


def test_entries_go_once_they_are_left_behind(tmp_path: Path) -> None:
    lane = Lane(tmp_path)
    lane.begin()
    reader = LogReader(lane.layout.log("rides.fares"))
    reader.put_mark("reader", -1)
    for number in range(200):
        lane.publish()
        if number == 150:
            reader.put_mark("reader", 140)
    assert [publication for publication, *_ in lane.entries()] == list(range(127, 200))
    assert len(held_rows(lane.layout)) == 200 - 127


def test_results_that_were_set_back_are_told(tmp_path: Path) -> None:
    lane = Lane(tmp_path)
    lane.begin()
    lane.publish()
    lane.layout.manifests(LANE)[0].remove()
    with pytest.raises(
        CheckpointError,
        match=r"ends with publication 0 of rides.results, but the results folder ends with -1",
    ):
        lane.begin()
