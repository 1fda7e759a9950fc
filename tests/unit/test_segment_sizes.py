"""The small files of a segment become one that fits into memory; those beyond that stay as they are."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from log_places import log_at
from penstock.operators.routing.routers import HashRouter
from penstock.operators.runs.run import RunPlan
from penstock.operators.windows.shard import PARTIALS, Envelope
from penstock.spark.log.entries import Entry
from penstock.spark.log.envelopes import EnvelopeReader, envelope_bytes, write_envelopes
from penstock.spark.log.run_files import RunFiles
from penstock.spark.log.run_levels import run_name
from penstock.spark.log.runs import write_run_file
from penstock.spark.log.segments import Segments
from penstock.spark.log.stream_log import SEGMENT, StreamLog
from penstock.spark.storage.layout import PARTIALS_FILES

MB, SHARDS = 1 << 20, 2
TUPLES = "tuples/0"


def test_envelopes_that_are_small_on_disk_alone_are_not_all_merged(tmp_path: Path) -> None:
    log = StreamLog(log_at(tmp_path))
    log.path(PARTIALS_FILES, "").mkdir(parents=True)
    payloads = [bytes([number]) * MB for number in range(SEGMENT)]
    for number, payload in enumerate(payloads):
        names = (f"{number}.parquet", f"{number}-more.parquet")
        for name in names:
            envelopes = [(shard, Envelope(0, PARTIALS, payload)) for shard in range(SHARDS)]
            write_envelopes(envelopes, log.path(PARTIALS_FILES, name))
        assert log.append(Entry(number, number, 0, number, files={PARTIALS_FILES: names}))
    assert log.append(Entry(SEGMENT, SEGMENT, 0, SEGMENT))
    log.put_mark("reader", SEGMENT)
    Segments(log_at(tmp_path), 1e12, 1 << 40).tidy()
    merged = log.path(PARTIALS_FILES, f"segment-{0:010d}.parquet")
    assert 60 * MB < envelope_bytes(merged) <= 64 * MB
    with pq.ParquetFile(merged) as file:
        assert file.num_row_groups >= 60, "they are written little by little"
    assert len(list(log.path(PARTIALS_FILES, "").iterdir())) > 2 * SEGMENT - 64 / SHARDS
    for shard in range(SHARDS):
        reader = EnvelopeReader(log, shard)
        for number, payload in enumerate(payloads):
            assert [each.payload for each in reader.of(log.entry(number))] == [payload] * 2


def test_no_run_of_a_segment_is_larger_than_those_of_the_levels_above(tmp_path: Path) -> None:
    log, plan = StreamLog(log_at(tmp_path)), RunPlan(("k",), "ts", HashRouter(("k",), 1))
    log.path(TUPLES, "").mkdir(parents=True)
    for number in range(SEGMENT):
        tuples = pa.table({"k": [number], "ts": pa.array([number], pa.timestamp("us")), "v": ["v" * 50_000]})
        write_run_file(log.path(TUPLES, f"{number}.arrow"), tuples, plan)
        assert log.append(Entry(number, number, 0, number, files={TUPLES: (f"{number}.arrow",)}))
    assert log.append(Entry(SEGMENT, SEGMENT, 0, SEGMENT))
    log.put_mark("reader", SEGMENT)
    Segments(log_at(tmp_path), 1e12, 16 * MB).tidy()
    assert 0.9 * MB < log.path(TUPLES, run_name(0, 0)).stat().st_size < 1.05 * MB
    found = []
    for opened in RunFiles(log, 0).find(-1, SEGMENT - 1).open():
        part = opened.run.part(0)
        assert part is not None
        rows = part.rows_of(opened.after, opened.until)
        found += part.tuples.filter(pa.array([True] if rows is None else rows)).column("k").to_pylist()
    assert sorted(found) == list(range(SEGMENT))
