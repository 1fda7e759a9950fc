"""Documents on disk of another version are refused by name, with what to do; docs/reference/files.md lists them all."""

from __future__ import annotations

import json
import pickle
import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import StructType

from penstock.errors import CheckpointError, DamagedError
from penstock.operators.windows.shard import WindowProgram
from penstock.operators.windows.shard_state import read_state
from penstock.plan.windows import ErrorBound, WindowPlan, Windows
from penstock.spark.lanes.cuts import Cut, Cuts
from penstock.spark.lanes.history.corrections import ToCorrect
from penstock.spark.log.entries import Entry
from penstock.spark.log.listed_runs import ListedRun, listed_runs
from penstock.spark.log.programs import store_program, stored_program
from penstock.spark.log.segments import Segments
from penstock.spark.log.shards import fixed_shards
from penstock.spark.log.stream_log import SEGMENT, LogReader, StreamLog
from penstock.spark.publication.manifests import MERGED, read_published
from penstock.spark.publication.publish import Publisher
from penstock.spark.reporting.catalog import read_catalog
from penstock.spark.results.bound_views import store_views, stored_views
from penstock.spark.results.cataloguing import CatalogWriter
from penstock.spark.results.window_schemas import readable_view
from penstock.spark.sessions.zone import keep_zone, kept_zone, require_zone
from penstock.spark.sources.file_watch import FileWatch
from penstock.spark.storage import formats
from penstock.spark.storage.bindings import PlanLog, RegisteredWindow, ViewDefinition, WindowDefinition
from penstock.spark.storage.deadlines import DeadlineRegister, read_deadlines, store_deadlines
from penstock.spark.storage.documents import CHECKSUM, Place
from penstock.spark.storage.events import EventLog
from penstock.spark.storage.formats import (
    BACKFILL,
    BASE_NUMBER,
    CALL_STATISTICS,
    LANE,
    LOG_RUN,
    NETWORK,
    PLAN_STATISTICS,
    REPLACED,
    SCHEDULE,
    SINK,
    STATIC,
    TO_CORRECT,
    TOPICS,
    VERSION,
    WAITING_ROWS,
    WINDOW_STATE,
    Format,
)
from penstock.spark.storage.joins import JOINS
from penstock.spark.storage.lane_views import LaneViewsRegister
from penstock.spark.storage.layout import LAYOUT_VERSION, Layout
from penstock.spark.storage.ledger_documents import StoredDocument
from penstock.sql.windows.bind import BoundWindow

VIEW = BoundWindow(
    WindowPlan("v", "ts", Windows(10, 10), (), (), ErrorBound(0.1, 0.1)),
    (),
    None,
    pa.struct({"start": pa.timestamp("us", "UTC"), "end": pa.timestamp("us", "UTC")}),
    (),
    None,
)


REGISTERED = RegisteredWindow(WindowDefinition("v", "of v", ""), 0)


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    found = Layout.of(tmp_path / "out", tmp_path / "kept")
    found.open()
    return found


def _log(layout: Layout) -> LogReader:
    return LogReader(layout.log("s"))


def _segment(layout: Layout, history_seconds: float) -> None:
    """A log with one segment, made and kept so long."""
    log = StreamLog(layout.log("s"))
    for number in range(SEGMENT + 1):
        log.append(Entry(number, number, 0, 0))
    log.put_mark("r", SEGMENT)
    Segments(layout.log("s"), history_seconds, 10**9).tidy()


def _watch(layout: Layout) -> FileWatch:
    logs = layout.spark("s") / "sources"
    (logs / "0").mkdir(parents=True, exist_ok=True)
    entry = {"path": "file:///x", "timestamp": 1, "batchId": 0}
    (logs / "0" / "0").write_text(f"v1\n{json.dumps(entry)}")
    return FileWatch("s", logs, layout.read_files("s"), EventLog(layout.events))


def _merged(layout: Layout) -> None:
    publisher = Publisher(layout, "s")
    for batch in range(2):
        publisher.publish(batch, [], {"batch": batch})
    publisher.compact(1)


def _in_zone(name: str) -> Any:
    """What stands for a session in a time zone."""
    return SimpleNamespace(conf=SimpleNamespace(get=lambda _: name))


def _many_views() -> dict[str, ViewDefinition]:
    """As many as are stored by difference from a base."""
    return {f"v{number}": ViewDefinition(f"v{number}", "1", "", "TRUE", None) for number in range(300)}


#: what writes each kind of document, what reads it, and where it is
TO_BE_CORRECTED = {
    **{"windows": [[0, 1, "v", 20, 7]], "entry": 7},
    **{"plan": 0, "reached": {"v": None}, "since": 3},
}
KINDS: dict[str, tuple[Callable[[Layout], object], Callable[[Layout], object], Callable[[Layout], Place]]] = {
    "SESSION": (
        lambda layout: keep_zone(_in_zone("UTC"), layout),
        lambda layout: kept_zone(layout),
        lambda layout: layout.session,
    ),
    "PLAN": (
        lambda layout: PlanLog(layout, "s").store(3, {}),
        lambda layout: PlanLog(layout, "s").load(3),
        lambda layout: layout.plans("s")[3],
    ),
    "PLAN_DIFFERENCE": (
        lambda layout: PlanLog(layout, "s").store(3, _many_views()),
        lambda layout: PlanLog(layout, "s").load(3),
        lambda layout: layout.plans("s")[3],
    ),
    "BASE": (
        lambda layout: PlanLog(layout, "s").store(3, _many_views()),
        lambda layout: PlanLog(layout, "s").load(3),
        lambda layout: layout.plan_bases("s")[3],
    ),
    "BINDING": (
        lambda layout: PlanLog(layout, "s").bind(7, 3),
        lambda layout: PlanLog(layout, "s").bound(7),
        lambda layout: layout.bindings("s")[7],
    ),
    "PROGRAM": (
        lambda layout: store_program(layout, "s", WindowProgram(3, (), 1, 1)),
        lambda layout: stored_program(layout, "s", 3),
        lambda layout: layout.programs("s")[3],
    ),
    "OPERATOR_VIEWS": (
        lambda layout: store_views(layout, "s", 0, [VIEW], {"v": REGISTERED}),
        lambda layout: stored_views(layout, "s", 0),
        lambda layout: layout.operators("s")[0],
    ),
    "RESULT_VIEWS": (
        lambda layout: store_views(layout, "s", 0, [VIEW], {"v": REGISTERED}),
        lambda layout: readable_view(layout, "s", "v"),
        lambda layout: layout.result_views("s")[0],
    ),
    "SHARDS": (
        lambda layout: fixed_shards(layout, "s", 2, None),
        lambda layout: fixed_shards(layout, "s", 2, None),
        lambda layout: layout.shards("s"),
    ),
    "MANIFEST": (
        lambda layout: Publisher(layout, "s").publish(0, [], {"batch": 0}),
        lambda layout: read_published(layout, "s"),
        lambda layout: layout.manifests("s")[0],
    ),
    "MERGED_MANIFEST": (
        _merged,
        lambda layout: read_published(layout, "s"),
        lambda layout: layout.manifests("s")[MERGED],
    ),
    "CATALOG": (
        lambda layout: CatalogWriter(layout).write({"s": StructType()}, {}),
        lambda layout: read_catalog(layout),
        lambda layout: layout.catalog,
    ),
    "CATALOG_DIFFERENCE": (
        lambda layout: CatalogWriter(layout).write({"s": StructType()}, {"s": _many_views()}),
        lambda layout: read_catalog(layout),
        lambda layout: layout.catalog,
    ),
    "LOG_ENTRY": (
        lambda layout: StreamLog(layout.log("s")).append(Entry(0, 0, 0, 0)),
        lambda layout: _log(layout).entry(0),
        lambda layout: layout.log("s").entries[0],
    ),
    "LOG_SEGMENT": (
        lambda layout: _segment(layout, 1e12),
        lambda layout: Segments(layout.log("s"), 1e12, 10**9).tidy(),
        lambda layout: layout.log("s").segments[0],
    ),
    "LOG_RUN": (
        lambda layout: LOG_RUN.put(layout.log("s").runs(0)[63], ListedRun(0, 0, 63).document()),
        lambda layout: list(listed_runs(layout.log("s"), 0)),
        lambda layout: layout.log("s").runs(0)[63],
    ),
    "REPLACED": (
        lambda layout: REPLACED.put(layout.replaced("s")[0], {"replaced": 1e12, "files": []}),
        lambda layout: Publisher(layout, "s"),
        lambda layout: layout.replaced("s")[0],
    ),
    "LOG_KEPT": (
        lambda layout: _segment(layout, 0),
        lambda layout: _log(layout).kept(),
        lambda layout: layout.log("s").kept,
    ),
    "LOG_READER": (
        lambda layout: _log(layout).put_mark("r", 3),
        lambda layout: _log(layout).marks(),
        lambda layout: layout.log("s").readers["r"],
    ),
    "READ_FILES": (
        lambda layout: _watch(layout).answered({}),
        lambda layout: _watch(layout),
        lambda layout: layout.read_files("s"),
    ),
    "STATIC": (
        lambda layout: STATIC.put(layout.static_versions("l")[1], {"version": "v", "files": []}),
        lambda layout: STATIC.read(layout.static_versions("l")[1]),
        lambda layout: layout.static_versions("l")[1],
    ),
    "CUT": (
        lambda layout: Cuts(layout.cuts("l")).put(Cut(0, {}, {})),
        lambda layout: Cuts(layout.cuts("l")).oldest(),
        lambda layout: layout.cuts("l")[0],
    ),
    "WINDOW_STATE": (
        lambda layout: WINDOW_STATE.put(
            layout.window_state("s"), {"cut": 0, "plan": None, "shards": [], "progress": {}}
        ),
        lambda layout: WINDOW_STATE.read(layout.window_state("s")),
        lambda layout: layout.window_state("s"),
    ),
    "TO_CORRECT": (
        lambda layout: TO_CORRECT.put(layout.corrections("s")[0], TO_BE_CORRECTED),
        lambda layout: ToCorrect.read(layout.corrections("s")),
        lambda layout: layout.corrections("s")[0],
    ),
    "WAITING_ROWS": (
        lambda layout: WAITING_ROWS.put(layout.waiting("l"), {"views": []}),
        lambda layout: WAITING_ROWS.read(layout.waiting("l")),
        lambda layout: layout.waiting("l"),
    ),
    "LANE_VIEWS": (
        lambda layout: JOINS.store(layout, LaneViewsRegister(JOINS.name)),
        lambda layout: JOINS.read(layout),
        lambda layout: layout.lane_views(JOINS.name),
    ),
    "DEADLINES": (
        lambda layout: store_deadlines(layout, DeadlineRegister()),
        lambda layout: read_deadlines(layout),
        lambda layout: layout.deadlines,
    ),
    # read and written where Kafka, a replay and a backfill are
    "TOPICS": (
        lambda layout: TOPICS.replace(layout.topics("s"), {"ids": {}}),
        lambda layout: TOPICS.read(layout.topics("s")),
        lambda layout: layout.topics("s"),
    ),
    "SCHEDULE": (
        lambda layout: SCHEDULE.replace(layout.replay("s") / "schedule.json", {"due_seconds": []}),
        lambda layout: SCHEDULE.read(layout.replay("s") / "schedule.json"),
        lambda layout: layout.replay("s") / "schedule.json",
    ),
    "NETWORK": (
        lambda layout: NETWORK.replace(layout.replay("s") / "network.json", {"nodes": 50}),
        lambda layout: NETWORK.read(layout.replay("s") / "network.json"),
        lambda layout: layout.replay("s") / "network.json",
    ),
    "BACKFILL": (
        lambda layout: BACKFILL.put(layout.backfilled("s")[0], {"impossible": None}),
        lambda layout: BACKFILL.read(layout.backfilled("s")[0]),
        lambda layout: layout.backfilled("s")[0],
    ),
    "SINK": (
        lambda layout: SINK.put(
            layout.sinks["s"], {"id": "a", "since": 1, "delivered": -1, "feeds": [], "planned": None}
        ),
        lambda layout: SINK.read(layout.sinks["s"]),
        lambda layout: layout.sinks["s"],
    ),
    "CALL_STATISTICS": (
        lambda layout: CALL_STATISTICS.put(
            layout.call_statistics("s"),
            {"order": [], "best": [], "tuples": 0, "seconds": [0, 0], "totals": {}, "sums": []},
        ),
        lambda layout: CALL_STATISTICS.read(layout.call_statistics("s")),
        lambda layout: layout.call_statistics("s"),
    ),
    "PLAN_STATISTICS": (
        lambda layout: PLAN_STATISTICS.put(layout.plan_statistics["l"], {"join": {}, "predicates": {}}),
        lambda layout: PLAN_STATISTICS.read(layout.plan_statistics["l"]),
        lambda layout: layout.plan_statistics["l"],
    ),
    "LANE": (
        lambda layout: LANE.put(layout.lanes["l"], {}),
        lambda layout: LANE.read(layout.lanes["l"]),
        lambda layout: layout.lanes["l"],
    ),
}
KNOWN = {name: value for name, value in vars(formats).items() if isinstance(value, Format)}


def _content(place: Place) -> bytes:
    found = place.get() if isinstance(place, StoredDocument) else place.read_bytes()
    assert found is not None
    return found


def _write(place: Place, content: bytes) -> None:
    place.replace(content) if isinstance(place, StoredDocument) else place.write_bytes(content)


def _restamped(place: Place, version: int | None) -> None:
    first, *lines = _content(place).splitlines()
    document: dict[str, Any] = json.loads(first)
    has_checksum = document.pop(CHECKSUM, None) is not None
    assert has_checksum != isinstance(place, StoredDocument), "the ledger has checksums of its own"
    assert document.pop(VERSION) >= 1, "every document says its version"
    stamp = {} if version is None else {VERSION: version}
    _write(place, b"\n".join([json.dumps({**stamp, **document}).encode(), *lines]))


@pytest.mark.parametrize("name", KINDS)
def test_a_document_of_a_newer_version_is_refused_by_name(layout: Layout, name: str) -> None:
    write, read, where = KINDS[name]
    write(layout)
    read(layout)
    _restamped(where(layout), KNOWN[name].version + 1)
    said = (
        rf"^{re.escape(str(where(layout)))}, {KNOWN[name].kind}, was written by a newer version of Penstock: it has format "
        rf"{KNOWN[name].version + 1}, this version reads format {KNOWN[name].version}; continue with that version"
    )
    with pytest.raises(CheckpointError, match=said):
        read(layout)


@pytest.mark.parametrize("name", sorted(KINDS.keys() - {"READ_FILES"}))
def test_a_document_of_before_versions_is_refused_by_name(layout: Layout, name: str) -> None:
    write, read, where = KINDS[name]
    write(layout)
    _restamped(where(layout), None)
    said = r"was written by an older version of Penstock: it has no format version, .* start with a new checkpoint"
    with pytest.raises(CheckpointError, match=said):
        read(layout)


@pytest.mark.parametrize("name", sorted(KINDS.keys() - {"READ_FILES"}))
def test_a_damaged_document_is_refused_by_name(layout: Layout, name: str) -> None:
    write, read, where = KINDS[name]
    write(layout)
    path = where(layout)
    content = _content(path)
    few = {VERSION: KNOWN[name].version, **{each: 0 for each in KNOWN[name].members if each == BASE_NUMBER}}
    lacking = [json.dumps(few).encode()] if KNOWN[name].members else []
    places = () if isinstance(path, StoredDocument) else range(0, len(content), max(1, len(content) // 40))
    flips = [_flipped(content, place) for place in places]
    for damaged in (b"", b"[1,2]", b"\x00\xff", content[: len(content) // 2], *flips, *lacking):
        _write(path, damaged)
        with pytest.raises(
            DamagedError, match=rf"^{re.escape(str(path))} \({KNOWN[name].kind}\) is damaged: .*; restore it"
        ):
            KNOWN[name].read(path)
        with pytest.raises(DamagedError, match=re.escape(str(path))):
            read(layout)
    _write(path, content)
    read(layout)


def _flipped(content: bytes, place: int) -> bytes:
    return content[:place] + bytes([content[place] ^ 0x04]) + content[place + 1 :]


@pytest.mark.parametrize(
    ("version", "said"),
    [
        (LAYOUT_VERSION - 1, "an older version of Penstock: it has layout {}, .*continue with the version"),
        (LAYOUT_VERSION + 1, "a newer version of Penstock: it has layout {}, .*continue with that version"),
    ],
)
def test_folders_of_another_layout_are_refused(layout: Layout, version: int, said: str) -> None:
    for what, folder in (("checkpoint", layout.checkpoint), ("output", layout.output / "_penstock")):
        identity = folder / "identity.json"
        before = identity.read_text()
        identity.write_text(json.dumps(json.loads(before) | {"layout": version}))
        with pytest.raises(CheckpointError, match=rf"^the {what} .* {said.format(version)}"):
            layout.check()
        identity.write_text(before)
    layout.check()


@pytest.mark.parametrize(
    ("stored", "said"),
    [
        (pickle.dumps((4, {})), "was stored by another version of Penstock; start with a new checkpoint"),
        (
            b'{"format": 8, "tables": []}\n',
            "has version 8, this program reads 7; start with a new checkpoint",
        ),
    ],
    ids=["of before versions", "newer"],
)
def test_a_state_of_another_version_is_refused(stored: bytes, said: str) -> None:
    with pytest.raises(CheckpointError, match=f"the state of the windows {said}"):
        read_state(stored)


def test_the_page_lists_every_format() -> None:
    assert KNOWN.keys() == KINDS.keys()
    page = (Path(__file__).parents[2] / "docs" / "reference" / "files.md").read_text()
    listed = {
        tuple(cell.strip() for cell in line.split("|")[1:4])
        for line in page.splitlines()
        if line.startswith("|")
    }
    missing = [
        each
        for each in KNOWN.values()
        if not any((each.kind, str(each.version)) == row[1:] for row in listed)
    ]
    assert missing == []
    assert ("`identity.json`", "the layout of both folders", str(LAYOUT_VERSION)) in listed


def test_the_first_start_decides_on_the_time_zone(layout: Layout) -> None:
    assert kept_zone(layout) is None
    require_zone(_in_zone("Asia/Tokyo"), layout)
    assert kept_zone(layout) is None, "to look at it keeps nothing"
    for name in ("Europe/Kyiv", "UTC"):
        keep_zone(_in_zone(name), layout)
        assert kept_zone(layout) == "Europe/Kyiv"
