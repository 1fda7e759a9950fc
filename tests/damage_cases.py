"""Parquet files with pages to damage, and what a run says of them."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq

from engine_cases import orders
from penstock.spark.engine import Engine
from penstock.spark.run import Run
from whole_runs import run_to_end

ROWS, GROUPS = 4_500, 3
DERIVED = {"long_name": "SELECT * FROM orders WHERE octet_length(name) > 4 AND amount < 200"}
#: name of a file, row group, rows in it
Place = tuple[str, int | None, int | None]


def write_pages(folder: Path, files: int, compression: str, seed: int) -> list[Path]:
    """Parquet files of orders, of several row groups and many pages."""
    folder.mkdir(parents=True)
    paths = [folder / f"{number:03d}.parquet" for number in range(files)]
    for number, path in enumerate(paths):
        table = orders(ROWS, seed + number, number * ROWS)
        pq.write_table(
            table, path, row_group_size=ROWS // GROUPS, compression=compression, data_page_size=2_048
        )
    return paths


def run_on(engine: Engine, output: Path) -> Run:
    """Answers what is there."""
    return run_to_end(engine, output, seconds=None)


def places(run: Run) -> set[Place]:
    """The row groups that the events tell of as set aside, each once."""
    told = [place for event in run.events("rows_set_aside") for place in event["places"]]
    assert len({(place["path"], place["row_group"]) for place in told}) == len(told)
    return {(Path(place["path"]).name, place["row_group"], place["rows"]) for place in told}


def quarantined(output: Path) -> list[dict[str, object]]:
    """The records that were set aside."""
    return [row for path in output.glob("quarantine/*/*.parquet") for row in pq.read_table(path).to_pylist()]
