"""What lanes refuse as a whole is answered over the rows of its inner queries, as Spark answers it."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from joined_inputs import multiset
from penstock.errors import InputError, SqlError, UnsupportedError
from penstock.spark.engine import Engine
from penstock.spark.lanes.composed import inputs
from penstock.spark.lanes.composed.inputs import Frame
from penstock.spark.storage.refreshed import RefreshedDefinition
from penstock.trigger import Trigger
from read_results import bag, published
from spark_answers import frames_of, in_one_partition, tuples_of

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

COLUMNS = "id BIGINT, city STRING, qty INT, ts TIMESTAMP"
_WINDOWS = "GROUP BY city, window(ts, '10 minutes')"
COUNTS = f"SELECT city, window(ts, '10 minutes') AS w, count(*) AS n FROM t {_WINDOWS}"
SUMS = f"SELECT city, window(ts, '10 minutes') AS w, sum(qty) AS s FROM t WHERE qty > 1 {_WINDOWS}"
SLIDING = (
    "SELECT city, window(ts, '10 minutes', '5 minutes') AS w, count(*) AS n FROM t "
    "GROUP BY city, window(ts, '10 minutes', '5 minutes')"
)
JOINED = "SELECT l.id, l.city, r.qty, l.ts FROM t l JOIN t r ON l.id = r.id AND l.ts = r.ts"
PER_CITY = "SELECT city, count(*) AS n, max(qty) AS m FROM t GROUP BY city"
#: answered by windows
BY_WINDOW = {
    "windows": f"SELECT a.city, a.n, b.s FROM ({COUNTS}) a JOIN ({SUMS}) b ON a.city = b.city AND a.w = b.w",
    "left": f"WITH a AS ({COUNTS}), b AS ({SUMS}) SELECT a.city, a.w.end AS e, b.s FROM a LEFT JOIN b ON a.city = b.city AND a.w = b.w",
    "anti": f"SELECT a.city, a.n FROM ({COUNTS}) a LEFT ANTI JOIN ({SUMS}) b ON a.city = b.city AND a.w = b.w",
    "most": f"WITH a AS ({SLIDING}) SELECT a.city, a.n, a.w.start AS b FROM a "
    "JOIN (SELECT max(n) AS most, w FROM a GROUP BY w) m ON a.w = m.w AND a.n >= m.most",
    "of_stream": "SELECT t.id, t.qty FROM t JOIN (SELECT max(qty) AS most, window(ts, '10 minutes') AS w FROM t "
    "GROUP BY window(ts, '10 minutes')) m ON t.qty = m.most AND t.ts >= m.w.start AND t.ts < m.w.end",
    "three": f"SELECT a.city, b.s, c.n FROM ({COUNTS}) a JOIN ({SUMS}) b ON a.city = b.city AND a.w = b.w "
    f"LEFT JOIN ({COUNTS}) c ON c.w = b.w AND c.city = 'Basel'",
    "with_static": f"SELECT a.city, a.n, s.people FROM ({COUNTS}) a JOIN s ON a.city = s.city",
    "ranked": "SELECT city, n FROM (SELECT a.*, row_number() OVER (PARTITION BY a.w ORDER BY a.n DESC, a.city) AS r FROM "
    f"({COUNTS}) a JOIN ({SUMS}) b ON a.city = b.city AND a.w = b.w) WHERE r = 1",
}
#: answered as a whole
WHOLE = {
    "running": f"SELECT a.city, a.n, b.m FROM ({PER_CITY}) a JOIN ({PER_CITY}) b ON a.city = b.city AND a.n > b.m",
    "mixed": f"SELECT DISTINCT a.city FROM ({COUNTS}) a JOIN ({PER_CITY}) b ON a.city = b.city AND a.n < b.n",
    "means": f"SELECT avg(n) AS mean FROM (SELECT city, count(*) AS n FROM ({JOINED}) GROUP BY city)",
    "thrice": f"SELECT max(c) AS m FROM (SELECT m, count(*) AS c FROM ({PER_CITY}) GROUP BY m)",
    "of_left": "SELECT city, count(q) AS n FROM (SELECT l.city, r.qty AS q FROM t l LEFT JOIN t r ON l.id = r.id + 1 "
    "AND r.ts BETWEEN l.ts - INTERVAL 2 MINUTES AND l.ts) GROUP BY city",
    "all": f"SELECT city, n FROM ({PER_CITY}) UNION ALL SELECT city, m FROM ({PER_CITY})",
    "exists": f"SELECT a.city FROM ({PER_CITY}) a WHERE EXISTS (SELECT 1 FROM ({PER_CITY}) b WHERE b.n > a.n)",
    "left_of_two": f"SELECT a.city, a.n, c.n AS m, b.s FROM ({COUNTS}) a JOIN ({COUNTS}) c ON a.city = c.city "
    f"LEFT JOIN ({SUMS}) b ON a.w = b.w AND c.w = b.w AND a.city = b.city",
    "anti_of_two": f"SELECT a.city, a.n, c.n AS m FROM ({COUNTS}) a JOIN ({COUNTS}) c ON a.city = c.city "
    f"LEFT ANTI JOIN ({SUMS}) b ON a.w = b.w AND c.w = b.w AND b.s > 4",
    "full": f"SELECT a.n, b.s FROM ({COUNTS}) a FULL JOIN ({SUMS}) b ON a.city = b.city AND a.w = b.w",
}
#: answered by lanes alone
BY_LANES = {
    "grouped": f"SELECT city, count(*) AS n FROM ({JOINED}) GROUP BY city",
    "grouped_by_window": f"SELECT city, window(ts, '10 minutes') AS w, count(*) AS n FROM ({JOINED}) GROUP BY city, w",
    "ranked_join": f"SELECT city, qty FROM (SELECT *, row_number() OVER (PARTITION BY city ORDER BY qty DESC, id) AS r FROM ({JOINED})) "
    "WHERE r <= 2",
    "with_in_with": "WITH a AS (WITH b AS (SELECT id, city FROM t WHERE qty > 1) SELECT * FROM b WHERE id > 4) SELECT city FROM a WHERE id < 50",
    "with_in_from": "SELECT city FROM (WITH b AS (SELECT id, city FROM t WHERE qty > 1) SELECT * FROM b WHERE id > 4) x WHERE id < 50",
    "union_of_with": "WITH a AS (SELECT city FROM t), u AS (SELECT city FROM a UNION ALL SELECT city FROM a) "
    "SELECT city, count(*) AS n FROM u GROUP BY city",
    "groups_of_with": "WITH a AS (SELECT city, qty FROM t WHERE qty > 1), g AS (SELECT city, count(*) AS n FROM a GROUP BY city) "
    "SELECT max(n) AS m FROM g",
}


def write(folder: Path, numbers: range) -> None:
    """A file of twenty tuples a number; those of a file overlap the windows of the file before."""
    folder.mkdir(exist_ok=True)
    for number in numbers:
        ids = range(number * 20, number * 20 + 20)
        table = pa.table(
            {
                "id": pa.array(ids, pa.int64()),
                "city": [
                    None if each % 9 == 0 else ("Rome", "Bern", "Oslo", "Aix")[each % 4] for each in ids
                ],
                "qty": pa.array([each * 7 % 5 for each in ids], pa.int32()),
                "ts": pa.array(
                    [(each - each % 3 * 7) * 60_000_000 for each in ids], pa.timestamp("us", "UTC")
                ),
            }
        )
        pq.write_table(table, folder / f"{number}.parquet")


@pytest.fixture
def engine(spark: SparkSession, tmp_path: Path) -> Engine:
    write(tmp_path / "in", range(3))
    (tmp_path / "s").mkdir()
    (tmp_path / "s" / "s.csv").write_text("Rome,3\nBern,1\n")
    return Engine(spark).execute(
        f"CREATE TABLE t ({COLUMNS}) USING parquet OPTIONS (path '{tmp_path / 'in'}', event_time 'ts', max_files_per_trigger '1');"
        f"CREATE TABLE s (city STRING, people INT) USING csv OPTIONS (path '{tmp_path / 's'}', static 'true');"
    )


def same(
    spark: SparkSession,
    engine: Engine,
    tmp_path: Path,
    views: Mapping[str, str],
    named: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """Runs to the end and compares each view with Spark, to which the views that others name are temporary ones."""
    run = engine.start(tmp_path / "out", trigger=Trigger.available_now(ended=True))
    assert run.await_termination(600)
    run.stop()
    in_one_partition(spark, tuples_of(tmp_path / "in")).createOrReplaceTempView("t")
    people = spark.read.schema("city STRING, people INT").csv(str(tmp_path / "s")).toArrow()
    in_one_partition(spark, people).createOrReplaceTempView("s")
    # each is computed once for all that name it
    frames_of(spark, named, views.values())
    for name, text in views.items():
        wanted = spark.sql(text)
        columns, rows = wanted.columns, multiset(wanted)
        found = [{column: row[column] for column in columns} for row in published(run, name)]
        assert bag(found) == rows, name
        assert rows, name


def test_rows_are_sparks_also_after_a_restart(spark: SparkSession, engine: Engine, tmp_path: Path) -> None:
    views = {**BY_WINDOW, **WHOLE, **BY_LANES}
    engine.add_views(views)
    same(spark, engine, tmp_path, views)
    # later tuples of windows that were final, and windows of their own
    write(tmp_path / "in", range(3, 5))
    again = (
        Engine(spark)
        .execute(
            f"CREATE TABLE t ({COLUMNS}) USING parquet OPTIONS (path '{tmp_path / 'in'}', event_time 'ts', max_files_per_trigger '1');"
            f"CREATE TABLE s (city STRING, people INT) USING csv OPTIONS (path '{tmp_path / 's'}', static 'true');"
        )
        .add_views(views)
    )
    same(spark, again, tmp_path, views)


def test_many_rows_are_divided_or_read_as_they_are_published(
    spark: SparkSession, engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inputs, "_ONE_TASK_ROWS", 8)
    views = {
        **{name: BY_WINDOW[name] for name in ("windows", "most", "of_stream")},
        "joined": f"SELECT a.id, p.n FROM ({JOINED}) a JOIN ({PER_CITY}) p ON a.city = p.city",
    }
    read = list[Frame | None]()
    as_published = inputs.RowsOf._as_published

    def noted(*given: Any) -> Frame | None:
        read.append(as_published(*given))
        return read[-1]

    monkeypatch.setattr(inputs.RowsOf, "_as_published", noted)
    engine.add_views(views)
    same(spark, engine, tmp_path, views)
    assert None in read, "few rows are read by Python"
    assert any(each is not None and each.size for each in read), "Spark read published files"


#: views that others read by their names
NAMED = {
    "counts": COUNTS,
    "sums": SUMS,
    "per_city": PER_CITY,
    "pairs": JOINED,
    "doubled": "SELECT id, city FROM t UNION ALL SELECT id, city FROM t WHERE qty > 2",
    "best": BY_WINDOW["windows"],
    "merged": WHOLE["running"],
    "hourly": "SELECT /*+ REFRESH('1 second') */ city, sum(qty) OVER (PARTITION BY city) AS s FROM t WHERE id < 70",
}
OVER_NAMED = {
    "of_windows": "SELECT a.city, a.n, b.s FROM counts a LEFT JOIN sums b ON a.city = b.city AND a.w = b.w",
    "of_both": f"SELECT a.city, a.n, b.s FROM counts a JOIN ({SUMS}) b ON a.city = b.city AND a.w = b.w WHERE a.n > 1",
    "of_running": "SELECT c.city, c.n, p.n AS all FROM counts c JOIN per_city p ON c.city = p.city",
    "of_pairs": "SELECT j.id, p.m FROM pairs j JOIN per_city p ON j.city = p.city AND j.qty = p.m",
    "united": "SELECT city, n FROM counts UNION ALL SELECT city, m FROM per_city",
    "with_static": "SELECT d.id, s.people FROM doubled d LEFT JOIN s ON d.city = s.city",
    "some": "SELECT city, s FROM best WHERE n > 2",
    "per_best": "SELECT city, max(s) AS most, count(*) AS n FROM best GROUP BY city",
    "per_merged": "SELECT count(*) AS n FROM merged",
    "of_all": "SELECT b.city, p.n, h.s FROM best b JOIN per_city p ON b.city = p.city LEFT JOIN hourly h ON h.city = b.city AND h.s > b.s",
    "above": "SELECT city, most - n AS d FROM per_best WHERE n > 0",
}


def test_views_are_read_by_their_names(spark: SparkSession, engine: Engine, tmp_path: Path) -> None:
    engine.add_views({**NAMED, **OVER_NAMED})
    for name in OVER_NAMED:
        found = definition(engine, name)
        assert isinstance(found, RefreshedDefinition), name
        assert bool(found.by_window) == (name in ("of_windows", "of_both")), name
        assert found.views, "it is over rows"
        assert not found.inputs, "no tuples are kept for it"
    for numbers in (range(3), range(3, 5)):
        # then later tuples of windows that were final, and windows of their own
        write(tmp_path / "in", numbers)
        # some of those over them are named too
        same(spark, engine, tmp_path, OVER_NAMED, {**NAMED, **OVER_NAMED})


def test_a_named_view_is_replaced_with_those_over_it_and_not_dropped_beneath_them(engine: Engine) -> None:
    engine.add_views({**NAMED, **OVER_NAMED})
    with pytest.raises(InputError, match=r"selects from counts\. Drop"):
        engine.drop("counts")
    before = definition(engine, "of_windows")
    engine.view("counts", COUNTS.replace("FROM t", "FROM t WHERE qty > 2"))
    after = definition(engine, "of_windows")
    assert isinstance(before, RefreshedDefinition)
    assert isinstance(after, RefreshedDefinition)
    assert before.views[0].id != after.views[0].id


def test_views_with_a_deadline_have_no_rows_to_be_read(engine: Engine) -> None:
    engine.view("below", COUNTS.replace("SELECT", "SELECT /*+ DEADLINE('3 seconds') */"))
    with pytest.raises(UnsupportedError, match=r"below is a .* view; a join view cannot read it yet"):
        engine.view("above", "SELECT a.n, b.n AS m FROM below a JOIN below b ON a.w = b.w")


def definition(engine: Engine, name: str) -> object:
    """What answers a view."""
    return engine._declared.views[name].definition


def test_which_are_answered_by_windows(engine: Engine) -> None:
    engine.add_views({**BY_WINDOW, **WHOLE, **BY_LANES})
    for name in (*BY_WINDOW, *WHOLE):
        found = definition(engine, name)
        assert isinstance(found, RefreshedDefinition), name
        assert bool(found.by_window) == (name in BY_WINDOW), name
    for name in BY_LANES:
        assert not isinstance(definition(engine, name), RefreshedDefinition), name


def test_inner_views_are_shared_and_leave_with_the_last_reader(engine: Engine) -> None:
    engine.view("a", BY_WINDOW["windows"])
    inner = set(engine._declared.views) - {"a"}
    assert len(inner) == 2
    engine.view("b", BY_WINDOW["left"])
    assert set(engine._declared.views) == inner | {"a", "b"}
    engine.drop("a")
    assert set(engine._declared.views) == inner | {"b"}
    engine.drop("b")
    assert not engine._declared.views


def test_a_view_is_added_and_dropped_while_the_run_goes_on(engine: Engine, tmp_path: Path) -> None:
    engine.view("kept", "SELECT id FROM t WHERE qty > 2")
    run = engine.start(tmp_path / "out")
    try:
        engine.view("a", BY_WINDOW["windows"].replace("SELECT city", "SELECT /*+ BACKFILL */ city"))
        write(tmp_path / "in", range(3, 6))
        until = time.monotonic() + 300
        while not run.results("a").count():
            assert time.monotonic() < until, run.explain()
            time.sleep(1)
        engine.drop("a")
        assert set(engine._declared.views) == {"kept"}
        assert "view a:" not in run.explain()
    finally:
        run.stop()


@pytest.mark.parametrize(
    ("marked", "message"),
    [
        (
            f"SELECT a.city FROM ({COUNTS}) a JOIN (SELECT town, window(ts, '10 minutes') AS w, count(*) AS n FROM t "
            "GROUP BY «town», window(ts, '10 minutes')) b ON a.w = b.w",
            "Column town does not exist",
        ),
        (f"SELECT a.city, «b.x» FROM ({COUNTS}) a JOIN ({SUMS}) b ON a.w = b.w", "Column b.x does not exist"),
        (
            f"WITH a AS ({COUNTS}), b AS ({SUMS}) SELECT a.city, «b.x» FROM a JOIN b ON a.w = b.w",
            "Column b.x does not exist",
        ),
        (f"SELECT a.city FROM ({COUNTS}) a JOIN «nowhere» b ON a.w = b.w", "nowhere does not exist"),
        # a stream beside windows that do not bound it
        (
            "SELECT t.id FROM t JOIN (SELECT city, window(ts, '10 minutes') AS w, count(*) AS n FROM t «GROUP BY» city, "
            "window(ts, '10 minutes')) m ON t.city = m.city",
            "A query that aggregates is not supported here yet",
        ),
    ],
)
def test_mistakes_are_where_they_were_written(engine: Engine, marked: str, message: str) -> None:
    with pytest.raises(InputError, match=message) as raised:
        engine.view("v", marked.replace("«", "").replace("»", ""))
    error = raised.value
    assert isinstance(error, SqlError)
    found = f"{error.text[: error.start]}«{error.text[error.start : error.end]}»{error.text[error.end :]}"
    assert found == marked
    assert not engine._declared.views
