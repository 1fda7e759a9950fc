"""The events of Nexmark: how many of each kind, what they name, in which order they arrive."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from penstock.sql.script.script import parse_script
from penstock_lab.generators.nexmark import (
    EVENT_TIME,
    STREAMS,
    Nexmark,
    json_records,
    nexmark_tables,
    nexmark_topics,
    write_nexmark,
)

EVENTS = 20_000


def test_of_fifty_events_one_is_a_person_three_are_auctions() -> None:
    tables = Nexmark(EVENTS).tables()
    assert [tables[stream].num_rows for stream in STREAMS] == [
        EVENTS // 50,
        EVENTS * 3 // 50,
        EVENTS * 46 // 50,
    ]
    for stream in ("person", "auction"):
        ids = tables[stream].column("id").to_numpy()
        assert ids.tolist() == list(range(1_000, 1_000 + len(ids)))


def test_bids_name_auctions_and_people_that_are_about() -> None:
    tables = Nexmark(EVENTS).tables()
    auctions, people = tables["auction"].num_rows, tables["person"].num_rows
    named = tables["bid"].column("auction").to_numpy() - 1_000
    # ten ids ahead of those that exist may be named
    assert named.min() >= 0
    assert named.max() < auctions + 10
    bidders = tables["bid"].column("bidder").to_numpy() - 1_000
    assert bidders.min() >= 0
    assert bidders.max() < people + 11
    assert np.mean(named % 100 == 0) == pytest.approx(0.5, abs=0.05), "half of the bids go to a hot auction"
    assert pc.all(
        pc.greater(tables["auction"].column("expires"), tables["auction"].column(EVENT_TIME))
    ).as_py()


def test_a_seed_gives_the_same_events_and_another_one_others() -> None:
    first, again, other = (Nexmark(2_000, seed=seed).tables() for seed in (3, 3, 4))
    assert all(first[stream].equals(again[stream]) for stream in STREAMS)
    assert not first["bid"].equals(other["bid"])


def test_disorder_is_as_large_as_it_is_said() -> None:
    ordered = Nexmark(EVENTS).tables()["bid"].column(EVENT_TIME).to_numpy()
    assert (np.diff(ordered) >= np.timedelta64(0)).all()
    late = Nexmark(EVENTS, disorder_seconds=0.5).tables()["bid"].column(EVENT_TIME).to_numpy()
    behind = np.maximum.accumulate(late) - late
    assert np.timedelta64(0, "us") < behind.max() <= np.timedelta64(500_000, "us")
    assert sorted(late.tolist()) == ordered.tolist()


def test_files_and_records_have_all_events(tmp_path: Path) -> None:
    generated = Nexmark(5_000, disorder_seconds=0.1)
    tables = generated.tables()
    written = write_nexmark(tmp_path, generated, files=3)
    for stream in STREAMS:
        assert len(written[stream]) == 3
        rows = sum(pq.read_metadata(path).num_rows for path in written[stream])
        assert rows == tables[stream].num_rows
    records = [json.loads(each) for each in json_records(tables["bid"])]
    assert [each["price"] for each in records] == tables["bid"].column("price").to_pylist()
    assert "arrives" not in records[0]
    assert {table.name for table in parse_script(nexmark_tables(tmp_path)).tables} == {*STREAMS, "side_input"}
    topics = parse_script(nexmark_topics("127.0.0.1:9092", "nexmark-")).tables
    assert [table.options["subscribe"] for table in topics] == [f"nexmark-{stream}" for stream in STREAMS]
