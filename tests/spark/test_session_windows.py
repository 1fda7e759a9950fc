"""Session views are their text over the tuples taken in, whatever their order, through restarts and changes of views."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from engine_cases import put_file
from forms import ALL
from order_files import finished, rounded, values
from penstock import Engine
from penstock.errors import UnsupportedError
from penstock.monitor.verification import verify
from penstock.spark.declaring.insertions import view_of
from penstock.spark.results.read_plain import plain_rows
from penstock.spark.storage.layout import Layout
from read_results import published
from spark_answers import frames_of, in_one_partition, tuples_of

pytestmark = pytest.mark.spark

COLUMNS = "id BIGINT, user STRING, amount INT, price DOUBLE, seen TIMESTAMP"
GAP = "session_window(seen, '10 minutes')"
VIEWS = {
    "plain": "SELECT user, count(*) AS n, session_window.start AS begun, session_window.end AS until FROM clicks "
    f"GROUP BY user, {GAP}",
    "wide": f"SELECT user, amount % 2 AS odd, {GAP} AS w, sum(amount) AS s, avg(price) AS mean, min(price) AS least, "
    "max(seen) AS newest, count(DISTINCT amount) AS d, median(price) AS md, stddev(price) AS dev FROM clicks "
    f"WHERE amount > 100 GROUP BY user, amount % 2, {GAP}",
    "all_users": "SELECT session_window(seen, '90 seconds') AS w, count(*) AS n FROM clicks GROUP BY w",
    "large": f"SELECT user, {GAP} AS w, count(*) AS n FROM clicks GROUP BY user, {GAP} HAVING count(*) > 3",
    "computed": f"SELECT upper(user) AS who, session_window.end - session_window.start AS length, sum(amount) / count(*) AS x "
    f"FROM clicks GROUP BY upper(user), {GAP} HAVING sum(amount) / 2 > 700",
    "above": "SELECT user, w.start AS begun, n + 1 AS more FROM large WHERE n > 5",
    "different": f"SELECT DISTINCT amount % 5 AS k, {GAP} AS w FROM clicks",
}
#: Spark judges this condition for each tuple before there are sessions: it leaves none
LONG = (
    "SELECT user, session_window.start AS begun, count(*) AS n FROM clicks "
    f"GROUP BY user, {GAP} HAVING unix_seconds(session_window.end) - unix_seconds(session_window.start) > 1200"
)


def clicks(rows: int, seed: int, hours: float = 10.0) -> pa.Table:
    """Clicks with NULLs in every column, event times too, and in any order."""
    rng = np.random.default_rng(seed)

    def holes() -> np.ndarray:
        return rng.random(rows) < 0.05

    users = np.array(["ann", "ben", "cid", "dan", "eve"])[rng.integers(0, 5, rows)]
    seen = np.datetime64("2026-01-01T00:00:00", "us") + rng.integers(
        0, int(hours * 3600), rows
    ) * np.timedelta64(1, "s")
    return pa.table(
        {
            "id": pa.array(np.arange(rows)),
            "user": pa.array(users, mask=holes()),
            "amount": pa.array(rng.integers(0, 1000, rows).astype(np.int32), mask=holes()),
            "price": pa.array(np.round(rng.uniform(0, 100, rows) * 4) / 4, mask=holes()),
            "seen": pa.array(seen, pa.timestamp("us", "UTC"), mask=holes()),
        }
    )


def write(folder: Path, number: int, table: pa.Table) -> None:
    folder.mkdir(exist_ok=True)
    put_file(folder / f"{number:03d}.parquet", lambda path: pq.write_table(table, path))


def engine(spark: SparkSession, data: Path, views: dict[str, str], files: int = 2) -> Engine:
    script = (
        f"CREATE TABLE clicks ({COLUMNS}) USING parquet OPTIONS (path '{data}', max_files_per_trigger '{files}', "
        "event_time 'seen');"
    )
    return Engine(spark).execute(script).add_views(views)


def expected(spark: SparkSession, data: Path, views: dict[str, str]) -> dict[str, list[tuple[object, ...]]]:
    in_one_partition(spark, tuples_of(data)).createOrReplaceTempView("clicks")
    return {name: values(frame.toArrow().to_pylist()) for name, frame in frames_of(spark, views).items()}


def test_they_are_their_text_over_the_tuples_taken_in(spark: SparkSession, tmp_path: Path) -> None:
    data, out = tmp_path / "data", tmp_path / "out"
    lives = [(range(4), False), (range(4, 6), True), (range(6, 7), False)]
    for files, ended in lives if ALL else lives[:2]:
        for number in files:
            write(data, number, clicks(60, number))
        run = finished(engine(spark, data, {**VIEWS, "long": LONG}), out, ended=ended)
        for name, wanted in expected(spark, data, VIEWS).items():
            found = run.results(name)
            assert found.columns == spark.table(name).columns
            assert values(published(run, name)) == wanted, (name, files)
            if ended:
                rows = published(run, name, final_only=True)
                final = [
                    {key: each for key, each in row.items() if key != "corrected_after_final"} for row in rows
                ]
                assert values(final) == wanted, name
    sessions = run.results("plain").collect()
    long = [
        (row.user, row.begun, row.n) for row in sessions if (row.until - row.begun).total_seconds() > 1200
    ]
    assert long
    assert rounded(run.results("long").collect()) == rounded(long)
    told = run.changes("plain")
    assert {row.op for row in told.select("op").distinct().collect()} == {"upsert", "delete"}
    assert {view.kind for view in run.status().views.values()} == {"running"}
    assert verify(out).faults == []
    plain = plain_rows(Layout.of(out, None), "plain", 0, False)
    assert plain is not None
    assert sorted(plain.rows.column("n").to_pylist()) == sorted(
        row.n for row in run.results("plain").collect()
    )


@pytest.mark.long
def test_views_come_and_go_over_late_tuples(spark: SparkSession, tmp_path: Path) -> None:
    """Three runs of three hours each, with tuples up to 45 minutes late: one view stays, one comes with BACKFILL."""
    data, out = tmp_path / "data", tmp_path / "out"
    users = f"SELECT user, {GAP} AS w, count(*) AS n FROM clicks GROUP BY user, {GAP}"
    later = f"SELECT /*+ BACKFILL */ amount % 3 AS k, {GAP} AS w, max(price) AS m FROM clicks GROUP BY amount % 3, {GAP}"
    for number in range(9):
        views = {"stays": users, **({"comes": later} if number > 5 else {})}
        table = clicks(20, number, 0.5)
        late = np.where(np.random.default_rng(number).random(20) < 0.2, -45, 0)
        shifts = (60 * number + late) * np.timedelta64(60, "s")
        moved = pa.array(table.column("seen").to_numpy() + shifts, pa.timestamp("us", "UTC"))
        write(data, number, table.set_column(4, "seen", moved))
        if number % 3 < 2:
            continue
        made = engine(spark, data, views, files=1)
        got: list[tuple[object, ...]] = []
        made.sink("stays", lambda frame, _, got=got: got.extend(frame.collect()))  # type: ignore[misc]
        run = finished(made, out)
        wanted = expected(spark, data, views)
        assert values(published(run, "stays")) == wanted["stays"], number
        assert got, "sinks get what changed"
    assert values(published(run, "comes")) == wanted["comes"]
    final = run.results("stays", final_only=True).count()
    assert 0 < final < len(wanted["stays"])
    assert made.warnings == []
    assert "history_seconds" in made.explain()
    assert "a session leaves the state 7 days after it is final" in made.explain()
    assert view_of(made._declared, "stays").key == ("user", "w")
    why = made.why("stays", {"user": "ann", "amount": 3})
    assert why.kind == "running"
    assert "extends a session" in " ".join(why.notes)
    assert made.backtest("stays").matches == len(wanted["stays"])
    for name, text in (
        (
            "gaps",
            "SELECT count(*) AS n FROM clicks GROUP BY session_window(seen, concat(amount, ' seconds'))",
        ),
        ("over", f"SELECT count(*) AS n FROM big GROUP BY {GAP}"),
    ):
        views = {"big": "SELECT * FROM clicks UNION ALL SELECT * FROM clicks", name: text}
        with pytest.raises(UnsupportedError, match=r"REFRESH\('1 minute'\)"):
            engine(spark, data, views)
