"""The status of a results folder from its files alone, on a run that goes on or has ended; needs neither Spark nor Java."""

from __future__ import annotations

import socket
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

from penstock.errors import DamagedError, InputError, UnknownNameError
from penstock.monitor.book import Document, StatusBook, stream_state
from penstock.spark.log.stream_log import LogReader
from penstock.spark.publication.kinds import results_of
from penstock.spark.publication.manifests import read_published
from penstock.spark.reporting.catalog import known_catalog
from penstock.spark.reporting.definitions import IS_RUNNING, counted_as, is_running_view, number_of
from penstock.spark.reporting.starting import read_status
from penstock.spark.reporting.status_file import catch_up, catch_up_lane, untold_events
from penstock.spark.results.joined_rows import BRANCHES, LANES, REFRESH_SECONDS, TABLES, lanes_of
from penstock.spark.storage.deadlines import DEADLINES_NAME
from penstock.spark.storage.formats import MANIFEST
from penstock.spark.storage.layout import Layout
from penstock.spark.storage.ledger_documents import StoredDocument
from penstock.spark.storage.offsets import planned_after
from penstock.spark.storage.store_paths import StorePath, by_time, modified_at, opened, store_path
from penstock.stores.ledger import Writer
from penstock.stores.processes import is_running

#: quarantined records of a stream that are looked through for samples, the newest
_LOOKED_THROUGH = 1000
#: what cuts count of a join view; `beyond_ttl` with STATE_TTL only, `withdrawn` of a LEFT JOIN with a stream
_JOIN_COUNTS = ("rows", "raised", "untimed", "beyond_history", "beyond_ttl", "withdrawn")
#: states in which a run left its folder on purpose
_LEFT = ("ended", "stopped", "failed", "refused")


def folder_layout(folder: str | StorePath) -> Layout:
    """The layout of a results folder.

    Raises:
        InputError: there is none, or it is not Penstock's.
    """
    place = store_path(folder)
    if not place.is_dir():
        raise InputError(f"Results folder {folder} does not exist. A run creates it when it starts.")
    if not (place / "_penstock").is_dir():
        raise InputError(f"{folder} is not a results folder of Penstock: it has no folder _penstock.")
    return Layout.of(place, None)


def folder_status(folder: str | StorePath, catalog: Document | None = None) -> Document:
    """All that the files of a results folder say of its runs.

    Args:
        folder: the results folder.
        catalog: its catalog, where the caller has read it; None: it is read.

    Returns:
        JSON values: `state` (`running`, `starting`, `ended`, `stopped`, `failed`, `refused`, `dead`, `never started`), `reason`, `pid`,
        `streams`, `views` in the order of their declaration, `news`; see docs/operations.md.

    Raises:
        InputError: it is no results folder.
    """
    layout = folder_layout(folder)
    if catalog is None:
        catalog = known_catalog(layout) or {"streams": {}, "views": {}}
    written = read_status(layout)
    book = StatusBook(written)
    pairs = {stream: catch_up(book, layout, stream).view_pairs for stream in catalog["streams"]}
    joins = {name: view for name, view in catalog["views"].items() if LANES in view}
    for view in joins.values():
        for _, lane in lanes_of(view):
            catch_up_lane(book, layout, lane)
    derived = {
        name: results_of(view["stream"])
        for name, view in catalog["views"].items()
        if name not in joins and view["stream"] not in catalog["streams"]
    }
    for lane in dict.fromkeys(derived.values()):
        catch_up_lane(book, layout, lane)
    for event in untold_events(layout, written):
        book.note(event)
    document = book.document()
    document.pop("at_time", None)
    document["output"] = str(layout.output)
    _judge(document, layout.ledger.owner())
    for name in catalog["streams"]:
        stream = document["streams"].setdefault(name, {})
        _of_stream(layout, document, name, stream)
        _rank(catalog, name, stream, pairs[name])
    for name, view in joins.items():
        document["views"][name] = _of_join(document, layout, name, view)
    for name, view in catalog["views"].items():
        if "projection" not in view and name not in joins:
            shown = document["views"].setdefault(name, {"stream": view["stream"]})
            if is_running_view(view):
                shown[IS_RUNNING] = True
            if view["stream"] == DEADLINES_NAME:
                shown.setdefault("released", 0)
            if name in derived:
                lane = document.get("lanes", {}).get(derived[name], {})
                shown.update(lane.get("views", {}).get(name, {}))
                shown["behind_seconds"] = lane.get("behind_seconds")
            else:
                stream = document["streams"].get(view["stream"], {})
                shown["behind_seconds"] = stream.get("windows_seconds")
            if view.get("dropped"):
                shown["dropped"] = view["dropped"]
            missing = _missing(document["streams"].get(view["stream"], {}))
            if missing and not view.get("dropped"):
                shown["not_answered"] = missing
                shown["waiting_seconds"] = _since_published(layout.manifests(view["stream"])[missing[0]])
    order = dict.fromkeys([*catalog["views"], *document["views"]])
    document["views"] = {name: document["views"][name] for name in order if name in document["views"]}
    return document


def _of_join(document: Document, layout: Layout, name: str, view: Mapping[str, Any]) -> Document:
    """What lanes have come to with a join view, and how far its lane is behind its streams."""
    lanes = [document["lanes"].get(lane, {}) for _, lane in lanes_of(view)]
    counts = [lane.get("views", {}).get(name, {}) for lane in lanes]
    shown: Document = {
        "streams": view["streams"],
        **{what: sum(each.get(what, 0) for each in counts) for what in _JOIN_COUNTS},
        "cut": lanes[-1].get("cut"),
    }
    if view.get("dropped"):
        return {**shown, "dropped": view["dropped"]}
    if BRANCHES in view:
        shown[BRANCHES] = view[BRANCHES]
    if REFRESH_SECONDS in view:
        shown |= {REFRESH_SECONDS: view[REFRESH_SECONDS], "answer": lanes[-1].get("answer")}
    shown |= {
        name: lanes[-1].get(name) for name in ("standing", "switched", "switches", "tables", "behind_seconds")
    }
    reach = lanes[-1].get("streams") or {}
    whole = Layout.of(layout.output, document.get("checkpoint"))
    logs = {stream: LogReader(whole.log(stream)) for stream in view["streams"] if stream in reach}
    newest = {stream: log.newest() for stream, log in logs.items()}
    behind = {stream: entry.number - reach[stream] for stream, entry in newest.items() if entry is not None}
    ages = [
        _age(logs[stream].entry(reach[stream] + 1).clock / 1e6)
        for stream, entries in behind.items()
        if entries > 0
    ]
    return {**shown, "backlog": behind, "waiting_seconds": max(ages, default=None)}


def quarantined_stream(layout: Layout, stream: str | None) -> str:
    """The stream, or static table, whose quarantined records are asked for: the only stream where none is named.

    Raises:
        UnknownNameError: there is no such stream, or none is named and there is not exactly one.
    """
    streams, tables = _quarantines(layout)
    existing = f"Existing streams: {', '.join(streams) or 'none'}"
    if tables:
        existing += f"; static tables: {', '.join(tables)}"
    if stream is None:
        if len(streams) != 1:
            raise UnknownNameError(f"Name a stream. {existing}")
        return streams[0]
    if stream not in (*streams, *tables):
        raise UnknownNameError.among("Stream", stream, (*streams, *tables), rest=existing)
    return stream


def _quarantines(layout: Layout) -> tuple[list[str], list[str]]:
    """The streams of a folder, and the static tables that its join views join or have joined."""
    catalog = known_catalog(layout) or {"streams": {}, "views": {}}
    tables = [table for view in catalog["views"].values() for table in view.get(TABLES, ())]
    return list(catalog["streams"]), [
        each for each in dict.fromkeys(tables) if each not in catalog["streams"]
    ]


def is_static_table(layout: Layout, name: str) -> bool:
    """Whether a name is that of a static table, and of no stream."""
    return name in _quarantines(layout)[1]


def quarantined_records(layout: Layout, stream: str, most: int) -> Iterator[dict[str, Any]]:
    """Quarantined records, those of the newest files first.

    Args:
        layout: of the results folder.
        stream: the stream's name, or a static table's.
        most: how many; 0: all.

    Yields:
        `number` (1: the newest, as of `penstock why --quarantined`), `batch` (text; a range where batches have been merged; of a static table
        its version), `time` (ISO, when it was set aside; None where batches have been merged), `reason`, `origin`, `record` (text, as it
        stands where it is UTF-8, otherwise with replacement characters).

    Raises:
        UnknownNameError: there is no such stream.
        DamagedError: a file of them cannot be read.
    """
    quarantined_stream(layout, stream)
    yield from _records(layout, stream, most, is_static=is_static_table(layout, stream))


def _records(layout: Layout, stream: str, most: int, *, is_static: bool) -> Iterator[dict[str, Any]]:
    folder = layout.quarantine(stream)
    if is_static:
        files = [(each.stem, each) for each in by_time(folder, "*.parquet")]
    else:
        listed = reversed(
            [each for each in read_published(layout, stream).files if each.kind == "quarantine"]
        )
        files = [
            (str(each.first) if each.first == each.last else f"{each.first}-{each.last}", folder / each.name)
            for each in listed
        ]
    # pyarrow takes longer to load than all the rest
    import pyarrow.parquet as pq

    given = 0
    for batch, path in files:
        try:
            with opened(path) as local:
                rows = pq.ParquetFile(local).read()
            written = datetime.fromtimestamp(modified_at(path), UTC).isoformat(timespec="seconds")
        except FileNotFoundError:  # cleaned up, or merged just now
            continue
        except (OSError, ValueError) as error:
            raise DamagedError(str(path), f"(quarantined records) cannot be read: {error}") from error
        for row in reversed(rows.to_pylist()):
            given += 1
            yield {
                "number": given,
                "batch": batch,
                "time": None if "-" in batch and not is_static else written,
                "reason": row["reason"],
                "origin": row["origin"],
                "record": _text(row["record"]),
            }
            if given == most:
                return


def _text(record: bytes | str | None) -> str | None:
    return record.decode("utf-8", "replace") if isinstance(record, bytes) else record


def _judge(document: Document, owner: Writer | None) -> None:
    """What the run is doing: what it said last, and whether its process is still there.

    Args:
        document: takes it in.
        owner: who has the ledger open for writing; one of another host may have ended.
    """
    said = document["state"]
    starting = document.pop("starting", None)
    if owner is not None:
        if starting is not None or document.get("pid") != owner.process or said == "unknown":
            document.update(state="starting", reason=None)
        if starting is not None:
            document["started"] = starting["time"]
        document["pid"] = owner.process
    elif starting is not None:
        document.update(_starting(starting))
    elif said == "running":
        document["state"] = "dead"
        document["reason"] = (
            f"process {document.get('pid', '')} ended without a report (killed, out of memory, or the machine stopped). "
            "Run the same command again to continue"
        )
    elif said not in _LEFT:
        document["state"] = "never started"


def _starting(starting: Mapping[str, Any]) -> Document:
    """What is told of a run that has begun and has not opened the ledger yet.

    Args:
        starting: its `pid`, `host` and `time`.
    """
    told = {"pid": starting["pid"], "started": starting["time"]}
    begun = datetime.fromisoformat(starting["time"]).timestamp()
    if starting.get("host", socket.gethostname()) != socket.gethostname() or is_running(
        starting["pid"], begun
    ):
        return {**told, "state": "starting", "reason": None}
    reason = (
        f"process {starting['pid']} ended while it was starting (killed, out of memory, or the machine stopped). "
        "Run the same command again to continue"
    )
    return {**told, "state": "dead", "reason": reason}


def _of_stream(layout: Layout, document: Document, name: str, stream: Document) -> None:
    stream["state"] = stream_state(stream, run=document["state"])
    whole = Layout.of(layout.output, document.get("checkpoint"))
    at_hand = planned_after(whole.spark(name), stream.get("batch", -1))
    if at_hand is not None:
        age = round(datetime.now(UTC).timestamp() - at_hand.pop("planned"), 3)
        stream["at_hand"] = {**at_hand, "age_seconds": age}
    newest = stream.get("newest_event_time_us")
    if newest is not None:
        stream["newest_event_age_seconds"] = round(datetime.now(UTC).timestamp() - newest / 1e6, 3)
    if stream.get("quarantined"):
        stream["samples"] = _samples(layout, name, stream["quarantined"])


def _rank(catalog: Document, name: str, stream: Document, pairs: Mapping[str, int]) -> None:
    """The selections of a stream by how often tuples satisfied their present definition; None where nothing has counted them."""
    views = {
        view: counted_as(view, number_of(each))
        for view, each in catalog["views"].items()
        if each.get("stream") == name and "projection" in each and not each.get("dropped")
    }
    counts = ((view, pairs.get(present, 0)) for view, present in views.items())
    stream["selections"] = dict(sorted(counts, key=lambda each: -each[1]))


def _samples(layout: Layout, stream: str, counted: Collection[str]) -> dict[str, dict[str, Any]]:
    """One quarantined record for each reason that is counted, the newest."""
    found: dict[str, dict[str, Any]] = {}
    with suppress(
        DamagedError
    ):  # the other figures are right; `penstock quarantine` and `verify` name the file
        for record in _records(layout, stream, _LOOKED_THROUGH, is_static=False):
            reason = record["reason"]
            # places of files are counted without the details
            found.setdefault(reason if reason in counted else reason.partition(":")[0], record)
    return found


def _since_published(manifest: StoredDocument) -> float | None:
    """The seconds since a batch was published; None where its files were merged with others."""
    document = MANIFEST.read(manifest)
    return _age(document["published"]) if document is not None and "published" in document else None


def _age(moment: float) -> float:
    """The seconds since a moment, seconds since the epoch."""
    return round(max(0.0, time.time() - moment), 3)


def _missing(stream: Document) -> list[int] | None:
    """The first and the last published batch of a stream that its windows have not taken in."""
    answered, published = stream.get("windows_answered"), stream.get("batch", -1)
    answered = -1 if answered is None else answered
    return [answered + 1, published] if answered < published else None
