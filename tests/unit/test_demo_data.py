"""The demo's data and queries: the real facts, kept."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from penstock.cli.demo_data import prepare
from penstock.cli.demo_queries import TEMPLATES, FlightValues, create_view, standing_queries


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, Path]:
    return prepare(tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="module")
def flights(folders: tuple[Path, Path, Path]) -> pa.Table:
    return pq.read_table(folders[0])


def test_every_row_is_there_in_several_row_groups(folders: tuple[Path, Path, Path]) -> None:
    flights = pq.ParquetFile(folders[0] / "flights.parquet").metadata
    assert (flights.num_rows, flights.num_row_groups) == (336_776, 7)
    assert pq.ParquetFile(folders[1] / "weather.parquet").metadata.num_rows == 26_115
    assert pq.ParquetFile(folders[2] / "airports.parquet").metadata.num_rows == 1_458


def test_the_files_order_is_kept(flights: pa.Table) -> None:
    months = flights["month"].to_pylist()
    turns = [month for month, before in zip(months, [None, *months], strict=False) if month != before]
    assert turns == [1, 10, 11, 12, 2, 3, 4, 5, 6, 7, 8, 9]


def test_scheduled_departure_is_the_local_time_as_an_instant(flights: pa.Table) -> None:
    zone = ZoneInfo("America/New_York")
    for row in flights.take(list(range(0, flights.num_rows, 1_000))).to_pylist():
        local = datetime(row["year"], row["month"], row["day"], row["hour"], row["minute"], tzinfo=zone)
        assert row["sched_dep"] == local


def test_tuples_arrive_at_departure_and_cancelled_ones_as_scheduled(flights: pa.Table) -> None:
    delays = pc.divide(pc.subtract(flights["arrival"], flights["sched_dep"]).cast(pa.int64()), 60_000_000)
    assert delays.equals(pc.fill_null(flights["dep_delay"], 0).cast(pa.int64()))
    assert flights["dep_delay"].null_count == 8_255


def test_preparing_again_leaves_the_files_alone(folders: tuple[Path, Path, Path]) -> None:
    file = folders[0] / "flights.parquet"
    before = file.stat().st_mtime_ns
    prepare(folders[0].parent)
    assert file.stat().st_mtime_ns == before


@pytest.mark.parametrize("count", [10, 2_000, 5_000])
def test_the_draw_gives_as_many_queries_as_asked_and_the_same_again(flights: pa.Table, count: int) -> None:
    queries = standing_queries(flights, count)
    assert len(queries) == count
    assert list(queries.items()) == list(standing_queries(flights, count).items())
    assert queries != standing_queries(flights, count, seed=1)


def test_templates_never_name_two_queries_alike(flights: pa.Table) -> None:
    values = FlightValues.of(flights)
    names = [name for template, _ in TEMPLATES for name, _ in template(values)]
    assert len(names) == len(set(names))
    assert sum(share for _, share in TEMPLATES) == 100


def test_queries_can_be_asked_and_most_find_flights(flights: pa.Table) -> None:
    queries = list(standing_queries(flights).items())[::20]
    counts = ", ".join(f"count(*) FILTER (WHERE {condition})" for _, condition in queries)
    with duckdb.connect() as connection:
        connection.register("flights", flights)
        (found,) = connection.execute(f"SELECT {counts} FROM flights").fetchall()
    assert sum(count > 0 for count in found) > len(queries) / 2


def test_a_view_is_one_statement() -> None:
    assert create_view("late", "dep_delay > 60") == (
        "CREATE VIEW late AS SELECT * FROM flights WHERE dep_delay > 60;"
    )
