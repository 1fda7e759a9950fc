"""Views with a deadline, end to end: what is released equals Spark's answer, and every window is accounted for once."""

from __future__ import annotations

import re
import signal
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from engine_cases import put_file, put_rides
from forms import ALL
from joined_inputs import multiset, wait
from penstock.control.policies.deadlines.allowance import CurrentConstraint, LossHistory
from penstock.monitor.folder import folder_status
from penstock.plan.deadlines import LossConstraint
from penstock.spark.engine import Engine
from penstock.spark.lanes.deadlines import register
from penstock.spark.publication.manifests import read_published
from penstock.spark.publication.publish import Publisher
from penstock.spark.run import Run
from penstock.spark.storage.layout import Layout
from read_results import bag, published
from whole_runs import run_to_end

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

LANE = "deadlines.0.results"
LOSS = LossConstraint(1, 4)
SECONDS, ROWS = 60, 3_000
#: of a file, where a few windows say as much as many
PARTS = 1 if ALL else 4
TABLE = (
    "CREATE TABLE rides (ts TIMESTAMP, k STRING, x BIGINT) USING parquet OPTIONS (path '{}', event_time 'ts')"
)
SLIDING = "window(ts, '10 seconds', '5 seconds')"


def _users() -> dict[str, Any]:
    """Aggregates as a user's module has them: defined in a function they go to the workers as they are."""

    class Total:
        """The sum, carried from window to window."""

        def __init__(self) -> None:
            self._total = 0

        def add(self, x: pa.Array) -> None:
            self._total += pc.sum(x).as_py() or 0

        def remove(self, x: pa.Array) -> None:
            self._total -= pc.sum(x).as_py() or 0

        def result(self) -> int:
            return self._total

    def spread(x: pa.Array) -> int | None:
        values = x.drop_null().to_numpy()
        return int(values.max() - values.min()) if len(values) else None

    def slowly(x: pa.Array) -> int:
        until = time.monotonic() + 0.4
        while time.monotonic() < until:
            sum(range(1000))
        return len(x)

    def refusing(x: pa.Array) -> int:
        if 7 in x.to_pylist():
            raise ValueError("seven")
        return len(x)

    def hanging(x: pa.Array) -> int:
        if 7 in x.to_pylist():
            # as a call into C that does not come back
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGALRM})
            time.sleep(3_600)
        return len(x)

    class Number:
        """How many tuples there are, carried from window to window."""

        def __init__(self) -> None:
            self._number = 0

        def add(self, x: pa.Array) -> None:
            self._number += len(x)

        def remove(self, x: pa.Array) -> None:
            self._number -= len(x)

        def result(self) -> int:
            return self._number

    return {each.__name__.lower(): each for each in (Total, Number, spread, slowly, refusing, hanging)}


def _engine(spark: SparkSession, folder: Path, tables: str = TABLE, **tune: object) -> Engine:
    place = folder / "rides"
    place.mkdir(exist_ok=True)
    engine = Engine(spark, shards=2, retry_attempts=40, retry_seconds=0.2, **tune)
    for name, each in _users().items():
        engine.aggregate(name, each, "BIGINT")
    return engine.execute(tables.format(place))


def _put(folder: Path, number: int, parts: int = 1) -> pa.Table:
    """A part of the rides, in order of time but within it."""
    seconds = SECONDS / parts
    return put_rides(folder, number, ROWS // parts, 1_700_000_000 + number * seconds, seconds)


def _counts(run: Run, view: str) -> Counter[str]:
    found: Counter[str] = Counter()
    for cut in run.events("cut"):
        found.update(cut["figures"]["views"].get(view, {}))
    return found


def _has_batches(run: Run, number: int) -> bool:
    return len(run.events("batch")) == number


def test_what_is_released_is_what_spark_says(spark: SparkSession, tmp_path: Path) -> None:
    texts = {
        "built_in": f"k, {SLIDING} AS w, count(*) AS n, sum(x) AS s, count(DISTINCT x) AS d, sum(DISTINCT x) AS sd, "
        f"count_if(x > 0) AS c, every(x > -40) AS e, sort_array(collect_list(x)) AS l, sort_array(collect_set(x)) AS u FROM rides GROUP BY k, {SLIDING}",
        "listed": f"k, {SLIDING} AS w, listagg(x, ' ') WITHIN GROUP (ORDER BY x) AS l, listagg(x, ' ') WITHIN GROUP (ORDER BY ts DESC, x DESC) AS t "
        f"FROM rides GROUP BY k, {SLIDING}",
        "computed": "window(ts, '7 seconds') AS w, avg(x) + 1 AS a, max(x) AS m FROM rides WHERE x > -40 GROUP BY 1 HAVING max(x) > 47",
        "picked": f"k, {SLIDING} AS w, max_by(x, struct(ts, x).ts) AS last, max(x) AS m FROM rides GROUP BY k, {SLIDING}",
        "moved": f"k, {SLIDING} AS w, round(corr(x, second(ts)), 9) AS c, round(regr_slope(x, second(ts)), 9) AS s, regr_count(x, second(ts)) AS n, "
        f"round(kurtosis(x), 9) AS q, bit_xor(CAST(x AS INT)) AS b FROM rides GROUP BY k, {SLIDING}",
        "carried": f"k, {SLIDING} AS w, total(x) AS t FROM rides GROUP BY k, {SLIDING}",
        "both_forms": f"{SLIDING} AS w, spread(x) AS d, total(x * 2) AS t FROM rides WHERE k IS NOT NULL GROUP BY {SLIDING}",
    }
    engine = _engine(spark, tmp_path)
    tables = [_put(tmp_path, number, 2) for number in range(6 if ALL else 2)]
    engine.add_views({name: f"SELECT /*+ DEADLINE('1 hour') */ {text}" for name, text in texts.items()})
    run = run_to_end(engine, tmp_path / "out")
    pq.write_table(pa.concat_tables(tables), tmp_path / "all.parquet")
    spark.read.parquet(str(tmp_path / "all.parquet")).createOrReplaceTempView("rides")
    for name, text in texts.items():
        wanted = multiset(spark.sql(f"SELECT {text}"))
        assert wanted
        assert bag(published(run, name)) == wanted, name
        counts = _counts(run, name)
        assert counts["released"] == counts["created"] > 0
        assert run.misses(name).count() == 0


def test_every_window_is_accounted_for_once_over_restarts_and_overload(
    spark: SparkSession, tmp_path: Path
) -> None:
    engine = _engine(spark, tmp_path)
    view = "SELECT /*+ DEADLINE('3 seconds'), LOSS(1, 4) */ window(ts, '2 seconds', '1 second') AS w, slowly(x) AS n FROM rides GROUP BY 1"
    engine.view("v", view)
    created = 0
    told: Counter[str] = Counter()
    for number in range(2):
        _put(tmp_path, number)
        run = run_to_end(engine, tmp_path / "out")
        told += _counts(run, "v")
    created = told["created"]
    # windows that were answered with what was there at the end of the first run are not told again
    assert created == 2 * SECONDS + 1
    assert told["released"] + told["shed"] + told["missed"] + told["failed"] == created
    assert 0 < told["released"] < created
    released = run.results("v").collect()
    missed = run.misses("v").collect()
    assert len(released) == told["released"]
    assert len(missed) == created - told["released"]
    starts = [row.w.start for row in released] + [row.window.start for row in missed]
    assert len(set(starts)) == created
    assert {row.outcome for row in missed} <= {"shed", "missed"}
    assert all(row.reason for row in missed)
    view_status = folder_status(tmp_path / "out")["views"]["v"]
    assert {name: view_status[name] for name in told if name != "rows"} == {
        name: count for name, count in told.items() if name != "rows"
    }
    # the allowance goes on where it stood
    history, constraint = LossHistory(LOSS), CurrentConstraint.of(LOSS)
    for batch in read_published(Layout(tmp_path / "out", tmp_path), LANE).batches:
        for outcome in batch["outcomes"]:
            is_lost = outcome["outcome"] != "released"
            history.add(is_lost)
            constraint = constraint.missed(LOSS) if is_lost else constraint.satisfied(LOSS)
    standing = run.events("cut")[-1]["figures"]["standing"]["v"]
    assert standing["constraint"] == asdict(constraint)
    assert standing["violations"] == history.violations > 0


def test_a_window_that_the_users_code_refuses_is_told_and_the_stream_goes_on(
    spark: SparkSession, tmp_path: Path
) -> None:
    engine = _engine(spark, tmp_path)
    engine.view(
        "v",
        "SELECT /*+ DEADLINE('1 hour') */ k, window(ts, '1 second') AS w, refusing(x) AS n FROM rides GROUP BY 1, 2",
    )
    table = _put(tmp_path, 0, PARTS)
    run = run_to_end(engine, tmp_path / "out")
    hit = pc.floor_temporal(table.filter(pc.equal(table["x"], 7))["ts"], unit="second")
    failed = run.misses("v").collect()
    assert {row.outcome for row in failed} == {"failed"}
    assert len(failed) == len(pc.unique(hit)) > 0
    assert all(
        re.fullmatch(
            r"aggregate refusing raised at test_deadline_lane.py line \d+: ValueError: seven", row.reason
        )
        for row in failed
    )
    assert run.results("v").select("w").distinct().count() == SECONDS // PARTS - len(failed) > 0
    (told,) = run.events("window_failed")
    assert told["reason"] in {row.reason for row in failed}


@pytest.mark.long
def test_what_never_returns_to_python_is_cancelled_and_the_view_goes_on(
    spark: SparkSession, tmp_path: Path
) -> None:
    engine = _engine(spark, tmp_path, idle_seconds=0)
    engine.view(
        "v",
        "SELECT /*+ DEADLINE('10 seconds') */ window(ts, '10 seconds') AS w, hanging(x) AS n FROM rides GROUP BY 1",
    )
    run = engine.start(tmp_path / "out")
    for number in range(60):
        moments = (1_700_000_000 + np.arange(number, number + 2) * 10) * 1_000_000
        ts = pa.array(moments).cast(pa.timestamp("us", "UTC"))
        rides = pa.table({"ts": ts, "k": ["a", "a"], "x": [0 if number else 7, 0]})
        put_file(tmp_path / "rides" / f"{number}.parquet", partial(pq.write_table, rides))
        wait(partial(_is_created, run, number + 1), run)
        if _counts(run, "v")["released"]:
            break
    run.stop()
    # the next ones are given up for what the first took, until it is tried again
    first, *others = run.misses("v").orderBy("window").collect()
    assert first.outcome == "missed"
    assert first.seconds > 10
    assert {each.outcome for each in others} <= {"shed"}
    assert [row.n for row in run.results("v").collect()] == [2]


def _is_created(run: Run, count: int) -> bool:
    return _counts(run, "v")["created"] == count


@pytest.mark.long
def test_a_publication_that_takes_longer_than_it_was_taken_to_is_told(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = _engine(spark, tmp_path)
    engine.view(
        "v",
        "SELECT /*+ DEADLINE('8 seconds') */ window(ts, '1 minute') AS w, count(*) AS n FROM rides GROUP BY 1",
    )
    publish = Publisher.publish

    def slow(publisher: Publisher, *args: Any, **named: Any) -> Any:
        if publisher._name == LANE:
            time.sleep(9)
        return publish(publisher, *args, **named)

    _put(tmp_path, 0)
    monkeypatch.setattr(Publisher, "publish", slow)
    run = run_to_end(engine, tmp_path / "out")
    late = run.events("released_late")
    assert {each["view"] for each in late} == {"v"}
    assert sum(each["windows"] for each in late) == _counts(run, "v")["released"]
    assert all(each["seconds"] > 1 for each in late)


def test_a_deadline_that_no_order_meets_is_warned_of_and_explained(
    spark: SparkSession, tmp_path: Path
) -> None:
    engine = _engine(spark, tmp_path)
    text = "window(ts, '5 seconds') AS w, total(x) AS t FROM rides GROUP BY 1"
    engine.view("hasty", f"SELECT /*+ DEADLINE('1 millisecond'), LOSS(1, 4) */ {text}")
    engine.view("calm", f"SELECT /*+ DEADLINE('1 minute') */ {text}")
    (warning,) = [each for each in engine.warnings if not each.startswith("rides: ")]
    assert warning.startswith("hasty: the deadline of view hasty, 0.001 s, is too short")
    told = engine.explain()
    assert "view hasty on rides with a deadline: windows are answered within 0.001 s" in told
    assert (
        "at most 1 of 4 consecutive windows may be lost; each window continues from the state of the previous one"
        in told
    )


@pytest.mark.long
def test_views_come_and_go_while_running(spark: SparkSession, tmp_path: Path) -> None:
    engine = _engine(spark, tmp_path, idle_seconds=0)
    engine.view(
        "first",
        "SELECT /*+ DEADLINE('60 seconds') */ window(ts, '5 seconds') AS w, count(*) AS n FROM rides GROUP BY 1",
    )
    run = engine.start(tmp_path / "out")
    tables = [_put(tmp_path, 0)]
    wait(lambda: _counts(run, "first")["released"] == 11, run)
    engine.view(
        "second",
        "SELECT /*+ DEADLINE('60 seconds') */ window(ts, '6 seconds') AS w, count(*) AS n FROM rides GROUP BY 1",
    )
    tables.append(_put(tmp_path, 1))
    wait(lambda: _counts(run, "first")["released"] == 23 and _counts(run, "second")["released"] > 0, run)
    engine.drop("first")
    tables.append(_put(tmp_path, 2))
    wait(lambda: _counts(run, "second")["released"] == 19, run)
    engine.drop("second")
    wait(
        lambda: not any("deadlines" in name for name in run.status().streams["rides"].to_dict()["lanes"]), run
    )
    engine.view(
        "third",
        "SELECT /*+ DEADLINE('60 seconds') */ window(ts, '5 seconds') AS w, count(*) AS n FROM rides GROUP BY 1",
    )
    tables.append(_put(tmp_path, 3))
    wait(lambda: _counts(run, "third")["released"] == 11, run)
    run.stop()
    _same(spark, tmp_path, run, tables, "first", "5 seconds", (0, 2 * SECONDS))
    _same(spark, tmp_path, run, tables, "second", "6 seconds", (SECONDS, 3 * SECONDS))
    _same(spark, tmp_path, run, tables, "third", "5 seconds", (3 * SECONDS, 4 * SECONDS))


def test_batches_of_a_stream_that_only_deadlines_read_rest(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # rests are longer than it takes to put the next file, however slow the machine
    monkeypatch.setattr(register, "_MOST_PATIENCE", 10.0)
    engine = _engine(spark, tmp_path, idle_seconds=0)
    engine.view(
        "v",
        "SELECT /*+ DEADLINE('60 seconds') */ window(ts, '5 seconds') AS w, count(*) AS n FROM rides GROUP BY 1",
    )
    run = engine.start(tmp_path / "out")
    plans = run._execution.queries["rides"].plans
    for number in range(3):
        _put(tmp_path, number)
        wait(partial(_has_batches, run, number + 1), run)
    assert plans.gathering_seconds == 10.0
    engine.view("all", "SELECT * FROM rides WHERE x > 0")
    assert plans.gathering_seconds == 0.0
    engine.drop("all")
    assert plans.gathering_seconds == 10.0
    run.stop()
    batches = run.events("batch")
    spent = [sum(each[f"{part}_seconds"] for part in ("bind", "run", "publish")) for each in batches]
    ended = [datetime.fromisoformat(each["time"]).timestamp() for each in batches]
    rests = [min(3 * own, 10.0 - own) for own in spent[:-1]]
    for place, rest in enumerate(rests):
        began = ended[place + 1] - spent[place + 1]
        assert began - ended[place] >= rest - 0.1


def test_a_view_over_a_stream_that_has_run_without_a_log(spark: SparkSession, tmp_path: Path) -> None:
    """Nothing was kept of the tuples before: windows that may have some are not answered."""
    engine = _engine(spark, tmp_path, idle_seconds=0)
    engine.view("all", "SELECT * FROM rides WHERE x > 0")
    run = engine.start(tmp_path / "out")
    tables = [_put(tmp_path, number, 2) for number in range(1)]
    wait(lambda: bool(run.events("batch")), run)
    engine.view(
        "late",
        "SELECT /*+ DEADLINE('60 seconds') */ window(ts, '20 seconds') AS w, count(*) AS n FROM rides GROUP BY 1",
    )
    tables += [_put(tmp_path, 1, 2)]
    wait(lambda: len(run.events("batch")) == 2, run)
    tables += [_put(tmp_path, number, 2) for number in (2, 3)]
    wait(lambda: _counts(run, "late")["released"] > 0, run)
    run.stop()
    rows = run.results("late").collect()
    whole = pa.concat_tables(tables)["ts"].cast(pa.int64()).to_numpy()
    for row in rows:
        start = int(row.w.start.replace(tzinfo=UTC).timestamp() * 1e6)
        assert row.n == int(((whole >= start) & (whole < start + 20_000_000)).sum())


@pytest.mark.long
def test_windows_that_wait_for_late_tuples_keep_their_bound(spark: SparkSession, tmp_path: Path) -> None:
    """Two runs over a disordered stream: what is released lacks no more than was asked for, and more where nothing was."""
    epsilon, delta = 0.02, 0.1
    engine = _engine(spark, tmp_path, tables=DISORDERED)
    text = "{} AS w, {} AS n FROM rides GROUP BY 1"
    window = "window(ts, '4 seconds', '2 seconds')"
    engine.view("hasty", f"SELECT /*+ DEADLINE('1 hour') */ {text.format(window, 'count(*)')}")
    hints = f"/*+ MAX_ERROR({epsilon}, {delta}), DEADLINE('1 hour') */"
    engine.view("counted", f"SELECT {hints} {text.format(window, 'count(*)')}")
    engine.view("carried", f"SELECT {hints} {text.format(window, 'number(x)')}")
    told = engine.explain()
    assert (
        "after the stream's time passes their end + slack, which Penstock learns so that the error is below 0.02 of each"
        in told
    )
    assert "Penstock learns so that the share of missing tuples is below 0.02 for 90 % of the groups" in told
    moments = _disordered(tmp_path, 0, 24)
    run = run_to_end(engine, tmp_path / "out")
    known = folder_status(tmp_path / "out")["views"]["counted"]["standing"]
    assert known["promised"]
    moments = np.append(moments, _disordered(tmp_path, 24, 48))
    run = run_to_end(engine, tmp_path / "out")
    last = moments.max()

    def off(view: str) -> float:
        """Share of the windows that are off by epsilon, those aside that the end of a run has cut off."""
        rows = [(_micros(row.w.start), row.n) for row in run.results(view).collect()]
        whole = {
            start: int(((moments >= start) & (moments < start + 4_000_000)).sum())
            for start, _ in rows
            if not any(start <= end < start + 4_000_000 + LATEST for end in (_end(24), last))
        }
        lacking = [n < (1 - epsilon) * whole[start] for start, n in rows if start in whole]
        assert len(lacking) > 90
        return sum(lacking) / len(lacking)

    assert off("hasty") > 0.5
    assert off("counted") <= 1.5 * delta
    assert off("carried") <= 1.5 * delta
    for view in ("counted", "carried"):
        assert _counts(run, view)["released"] == _counts(run, view)["created"]
        waited = [row.slack for row in run.changes(view).collect() if row.coverage is not None]
        assert len(waited) > 20
        assert 0 < sum(waited) / len(waited) < (LATEST + SPAN) / 1e6
        beforehand = [row for row in run.changes(view).collect() if row.slack < 0]
        assert beforehand
        assert {row.coverage for row in beforehand} == {None}
    assert folder_status(tmp_path / "out")["views"]["counted"]["standing"]["slack"] < LATEST


#: the longest delay of a disordered ride, and the event time that a file of them spans, microseconds
LATEST, SPAN = 6_000_000, 5_000_000
DISORDERED = TABLE.replace("event_time", "max_files_per_trigger '1', event_time")


def _end(files: int) -> int:
    """Until which event time rides without a delay are in so many files."""
    return 1_700_000_000_000_000 + files * SPAN


def _disordered(folder: Path, first: int, last: int) -> np.ndarray:
    """Files of rides, a fifth of which come late; gives the event times of all that come with them."""
    rng = np.random.default_rng(1)
    total = 200 * 60
    due = _end(0) + np.sort(rng.integers(0, 60 * SPAN, total))
    comes = due + np.where(rng.random(total) < 0.2, rng.integers(0, LATEST, total), 0)
    own = []
    for number in range(first, last):
        moments = due[(comes >= _end(number)) & (comes < _end(number + 1))]
        own.append(moments)
        table = pa.table(
            {
                "ts": pa.array(moments).cast(pa.timestamp("us", "UTC")),
                "k": pa.nulls(len(moments), pa.string()),
                "x": pa.array(np.ones(len(moments), np.int64)),
            }
        )
        put_file(folder / "rides" / f"{number:03}.parquet", partial(pq.write_table, table))
    return np.concatenate(own)


def _micros(moment: Any) -> int:
    return round(moment.replace(tzinfo=UTC).timestamp() * 1e6)


def _same(
    spark: SparkSession,
    folder: Path,
    run: Run,
    tables: Sequence[pa.Table],
    view: str,
    size: str,
    seconds: tuple[int, int],
) -> None:
    """Compares a view's windows with Spark's, of those that lie in some seconds all but the last."""
    pq.write_table(pa.concat_tables(tables), folder / "all.parquet")
    spark.read.parquet(str(folder / "all.parquet")).createOrReplaceTempView("rides")
    first, last = (f"timestamp_seconds({1_700_000_000 + each})" for each in seconds)
    wanted = spark.sql(
        f"SELECT window(ts, '{size}') AS w, count(*) AS n FROM rides GROUP BY 1 HAVING w.start >= {first} AND w.end < {last}"
    )
    found = run.results(view).where(f"w.start < {last} AND w.end < {last}")
    assert multiset(found) == multiset(wanted)
    assert wanted.count()


def test_a_deadline_counts_from_the_arrival_of_the_tuple_that_closed_the_window(
    spark: SparkSession, tmp_path: Path
) -> None:
    """The file's time while the run goes on, the batch's planning of what was there before, the clock at the end."""
    engine = _engine(spark, tmp_path, idle_seconds=0)
    text = "window(ts, '1 second') AS w, count(*) AS n FROM rides GROUP BY 1"
    engine.view("v", f"SELECT /*+ DEADLINE('1 minute') */ {text}")
    _put(tmp_path, 0, 10)
    began = time.time()
    run = engine.start(tmp_path / "out")
    wait(lambda: _counts(run, "v")["created"] >= 5, run)
    _put(tmp_path, 1, 10)
    wait(lambda: _counts(run, "v")["created"] >= 11, run)
    run.stop()
    moments = {each.name: each.stat().st_mtime for each in (tmp_path / "rides").glob("*.parquet")}
    outcomes = [
        each
        for batch in read_published(Layout(tmp_path / "out", tmp_path), LANE).batches
        for each in batch["outcomes"]
    ]
    by = {each["arrived_by"] for each in outcomes}
    assert by == {"batch", "file"}
    for each in outcomes:
        assert each["deadline"] == pytest.approx(each["arrived"] + 60)
        assert each["arrived"] < each["noticed"]
        if each["arrived_by"] == "file":
            assert each["arrived"] == pytest.approx(max(moments.values()), abs=0.002)
        else:
            assert each["arrived"] >= began
    standing = run.events("cut")[-1]["figures"]["standing"]["v"]
    assert 0 < standing["notice_seconds"] < 30
    assert standing["processors"] >= 1
    assert "load" in standing, "of windows that were created at one moment there is none"
