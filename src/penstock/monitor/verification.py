"""Whether all that a results folder and its checkpoint hold is there, and is what was written; needs neither Spark nor Java.

Readers and each start look at what is cheap: documents, gaps between them, the sizes of files. This reads every byte.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from penstock.errors import CheckpointError, DamagedError
from penstock.monitor.figures import counted
from penstock.monitor.folder import folder_layout
from penstock.spark.ingest.continuity import refuse_lost
from penstock.spark.lanes.windows.shard_state import StateFile, check_state
from penstock.spark.log.listed_runs import listed_runs
from penstock.spark.log.programs import refuse_lost_program
from penstock.spark.log.runs import check_run
from penstock.spark.log.stream_log import LogReader
from penstock.spark.publication.kinds import folder_of, is_required, running_of
from penstock.spark.publication.manifests import ListedFile, located, read_published
from penstock.spark.reporting.catalog import known_catalog
from penstock.spark.reporting.starting import read_status
from penstock.spark.storage.bindings import PlanLog
from penstock.spark.storage.columns import batches_of, metadata_of
from penstock.spark.storage.deadlines import read_deadlines
from penstock.spark.storage.documents import read_json, unsealed
from penstock.spark.storage.formats import (
    BACKFILL,
    BASE,
    BINDING,
    CALL_STATISTICS,
    CUT,
    EITHER_PLAN,
    LANE,
    LOG_ENTRY,
    LOG_KEPT,
    LOG_READER,
    LOG_RUN,
    LOG_SEGMENT,
    NETWORK,
    OPERATOR_VIEWS,
    PLAN_STATISTICS,
    PROGRAM,
    READ_FILES,
    REPLACED,
    RESULT_VIEWS,
    SCHEDULE,
    SESSION,
    SHARDS,
    SINK,
    STATIC,
    TO_CORRECT,
    TOPICS,
    WINDOW_STATE,
    EitherFormat,
    Format,
)
from penstock.spark.storage.joins import JOINS
from penstock.spark.storage.layout import IDENTITY, STATUS, TUPLES_FILES, Layout
from penstock.spark.storage.ledger_documents import StoredDocument
from penstock.spark.storage.refreshed import REFRESHED
from penstock.spark.storage.spark_checksums import check_summed, missing_batches, summed_files
from penstock.spark.storage.spark_files import numbered
from penstock.spark.storage.store_paths import StorePath, opened, size_of, store_path
from penstock.spark.storage.unions import UNIONS
from penstock.stores.durable import checksum_of
from penstock.stores.sqlite_ledger import SqliteView

_Found = TypeVar("_Found")
#: documents of the ledger by the first part of their keys; those of registers are read by what knows more of them
_LEDGER: Mapping[str, Format | EitherFormat] = {
    "plan": EITHER_PLAN,
    "plan_base": BASE,
    "binding": BINDING,
    "program": PROGRAM,
    "operator": OPERATOR_VIEWS,
    "shards": SHARDS,
    "window_state": WINDOW_STATE,
    "correction": TO_CORRECT,
    "backfilled": BACKFILL,
    "session": SESSION,
    "topics": TOPICS,
    "lane": LANE,
    "plan_statistics": PLAN_STATISTICS,
    "call_statistics": CALL_STATISTICS,
    "sink": SINK,
    "cut": CUT,
    "log": LOG_KEPT,
    "entry": LOG_ENTRY,
    "segment": LOG_SEGMENT,
    "run": LOG_RUN,
    "replaced": REPLACED,
    "replaced_log": REPLACED,
    "reader": LOG_READER,
    "catalog_base": BASE,
    "result_views": RESULT_VIEWS,
}
#: documents of the checkpoint; those of manifests and entries are read by what knows more of them
_DOCUMENTS: tuple[tuple[str, Format], ...] = (
    ("*/replay/schedule.json", SCHEDULE),
    ("*/replay/network.json", NETWORK),
)


@dataclass(frozen=True, slots=True)
class Fault:
    """What is wrong with a file.

    Attributes:
        path: the file.
        fault: the rest of a sentence that begins with it.
    """

    path: str
    fault: str


@dataclass(slots=True)
class Findings:
    """What was looked at, and what is wrong with it.

    Attributes:
        output, checkpoint: the folders.
        writer: the process that writes to them; the checkpoint is not looked at then. None: nobody does.
        files: how many were read.
        bytes: of them.
    """

    output: StorePath
    checkpoint: StorePath
    writer: int | None = None
    files: int = 0
    bytes: int = 0
    _faults: dict[str, Fault] = field(init=False, default_factory=dict)

    @property
    def faults(self) -> list[Fault]:
        """What is wrong, each file once, in the order found."""
        return list(self._faults.values())

    def note(self, path: str, fault: str) -> None:
        """Takes in what is wrong with a file; of several faults the first."""
        self._faults.setdefault(path, Fault(path, fault))

    def look(self, path: object, check: Callable[[], _Found]) -> _Found | None:
        """What a check gives; None where it found something wrong.

        Args:
            path: what is checked, or where it is, for what does not say that itself.
            check: raises what is wrong.
        """
        try:
            return check()
        except DamagedError as error:
            self.note(error.path, error.fault)
        except CheckpointError as error:
            self.note(str(path), f"cannot be used: {error}")
        except OSError as error:
            self.note(str(error.filename or path), f"cannot be read: {error.strerror or error}")
        except NotImplementedError as error:
            # a damaged footer may name a codec or type that pyarrow has not got
            self.note(str(path), f"cannot be read: {error}")
        except (KeyError, TypeError, ValueError, IndexError) as error:
            # what can be parsed, but is not what Penstock writes
            self.note(str(path), f"is damaged: {error!r}")
        return None

    def read(self, path: StorePath, check: Callable[[], object]) -> None:
        """Counts a file that is there, and looks at it."""
        if path.exists():
            self.files += 1
            self.bytes += size_of(path)
        self.look(path, check)


def whole_layout(folder: str | StorePath) -> Layout:
    """The layout of a results folder, with the checkpoint that its newest run used.

    Raises:
        InputError: there is no such folder, or it is not Penstock's.
    """
    layout = folder_layout(folder)
    checkpoint = store_path(read_status(layout).get("checkpoint") or layout.checkpoint)
    # a folder that was copied or moved with its checkpoint inside still names where that was
    if str(checkpoint).split("/")[-2:] == str(layout.checkpoint).split("/")[-2:]:
        checkpoint = layout.checkpoint
    return Layout(layout.output, checkpoint)


def verify(folder: str | StorePath) -> Findings:
    """Reads all documents and files of a results folder and its checkpoint.

    Args:
        folder: the results folder.

    Raises:
        InputError: there is none, or it is not Penstock's.
    """
    layout = whole_layout(folder)
    found = Findings(layout.output, layout.checkpoint)
    owner = found.look(layout.ledger.path, layout.ledger.owner)
    found.writer = None if owner is None else owner.process
    _output(layout, found)
    if found.writer is None:
        _checkpoint(layout, found)
    return found


def _output(layout: Layout, found: Findings) -> None:
    own = layout.output / "_penstock"
    found.read(own / "identity.json", lambda: _check_identity(own / "identity.json"))
    found.read(layout.status, lambda: read_json(layout.status, STATUS))
    _ledger(layout, found)
    found.look(layout.catalog, lambda: known_catalog(layout))
    for name in found.look(layout.ledger, layout.queries) or ():
        published = found.look(layout.manifests(name), lambda name=name: read_published(layout, name))  # type: ignore[misc]
        for file in published.files if published is not None else ():
            _published(layout, name, file, found)


def _published(layout: Layout, name: str, file: ListedFile, found: Findings) -> None:
    where = folder_of(layout, name, file.kind) / file.name
    if not is_required(file.kind) and not where.exists():
        # whoever has seen to quarantined records may remove them; the log says what of its files is there
        return
    path = found.look(where, lambda: located(layout, name, file))
    if path is None:
        return
    found.read(path, lambda: _check_listed(path, file))
    stream, _, _ = name.rpartition(".results")
    operator, _, _ = file.kind.partition("/")
    if stream and operator.isdigit() and not layout.result_views(stream)[int(operator)].exists():
        found.note(str(layout.result_views(stream)[int(operator)]), f"({RESULT_VIEWS.kind}) is missing")


def _check_listed(path: StorePath, file: ListedFile) -> None:
    with opened(path) as local:
        crc = checksum_of(local)
    if crc != file.crc:
        raise DamagedError(str(path), "is damaged: its content differs from what Penstock published")
    if path.name.endswith(".parquet") and metadata_of(path).num_rows != file.rows:
        raise DamagedError(
            str(path), f"is damaged: it does not have the {counted(file.rows, 'row')} that Penstock published"
        )


def _checkpoint(layout: Layout, found: Findings) -> None:
    root = layout.checkpoint
    found.read(root / "identity.json", lambda: _check_identity(root / "identity.json"))
    found.look(root / "identity.json", layout.check)
    if isinstance(root, Path):
        for pattern, format_ in _DOCUMENTS:
            _documents(root, pattern, format_, found)
    found.look(layout.lane_views(JOINS.name), lambda: JOINS.read(layout))
    found.look(layout.lane_views(REFRESHED.name), lambda: REFRESHED.read(layout))
    found.look(layout.lane_views(UNIONS.name), lambda: UNIONS.read(layout))
    found.look(layout.deadlines, lambda: read_deadlines(layout))
    streams = found.look(layout.ledger, layout.planned) or ()
    for stream in streams:
        _plans(layout, stream, found)
        _continuity(layout, stream, found)
        ledger = layout.read_files(stream)
        if ledger.exists():
            found.read(ledger, lambda ledger=ledger: _check_ledger(ledger))  # type: ignore[misc]
        if layout.window_state(stream).exists() and not layout.shards(stream).exists():
            found.note(str(layout.shards(stream)), f"({SHARDS.kind}) is missing")
        _window_states(layout, stream, found)
        _window_states(layout, running_of(stream), found)
    for name in found.look(layout.ledger, layout.logs) or ():
        _log(LogReader(layout.log(name)), found)
        if name not in streams:
            _window_states(layout, name, found)
    for lane in found.look(layout.ledger, layout.lanes.names) or ():
        versions = found.look(layout.static_versions(lane), lambda lane=lane: _static_files(layout, lane))  # type: ignore[misc]
        for name in versions or ():
            found.read(root / name, lambda name=name: check_run(root / name))  # type: ignore[misc]
    for path in sorted(root.glob("*/replay/**/*.parquet")) if isinstance(root, Path) else ():
        found.read(path, lambda path=path: _read_parquet(path))  # type: ignore[misc]
    folders: list[StorePath] = [*root.glob("*/spark")]
    for folder in sorted(folders, key=str):
        for path in summed_files(folder):
            found.read(path, lambda path=path: check_summed(path))  # type: ignore[misc]
        for missing in missing_batches(folder):
            found.note(str(missing), "(of Spark's checkpoint) is missing")


def _ledger(layout: Layout, found: Findings) -> None:
    """Every document of the ledger is what was committed."""
    path = layout.ledger.path
    reader = found.look(path, lambda: layout.ledger.reader)
    if reader is None:
        return
    found.files += 1
    found.bytes += path.stat().st_size if isinstance(path, Path) else 0
    with reader.snapshot() as view:
        if isinstance(view, SqliteView):
            found.look(path, view.check_sums)
    for key, _ in found.look(path, lambda: list(reader.scan())) or ():
        document = StoredDocument(layout.ledger, key)
        if isinstance(key[0], str) and key[0] in _LEDGER:
            found.look(document, lambda key=key, document=document: _LEDGER[key[0]].read(document))  # type: ignore[misc]


def _plans(layout: Layout, stream: str, found: Findings) -> None:
    log = PlanLog(layout, stream)
    for version in layout.plans(stream).numbers():
        found.look(layout.plans(stream)[version], lambda version=version: log.check(version))  # type: ignore[misc]
    found.look(layout.plans(stream), log.newest)


def _check_identity(path: StorePath) -> None:
    if read_json(path, IDENTITY) is None:
        raise DamagedError(str(path), f"({IDENTITY}) is missing")


def _documents(root: Path, pattern: str, format_: Format, found: Findings) -> None:
    for path in sorted(root.glob(pattern)):
        if not path.name.startswith("."):
            found.read(path, lambda path=path: format_.read(path))  # type: ignore[misc]


def _continuity(layout: Layout, stream: str, found: Findings) -> None:
    """What Spark has committed is published, and what is published is in the log."""
    found.look(layout.spark(stream), lambda: refuse_lost(layout, stream))
    published = found.look(layout.manifests(stream), lambda: read_published(layout, stream))
    committed = max(numbered(layout.spark(stream) / "commits", ""), default=-1)
    bound = layout.bindings(stream).numbers()
    # those of merged batches are removed
    first = committed if published is None else published.merged.last + 1
    for batch in range(first, committed + 1):
        if batch not in bound:
            found.note(str(layout.bindings(stream)[batch]), f"({BINDING.kind}) is missing")
    log = LogReader(layout.log(stream))
    newest = found.look(log.log, log.newest)
    if newest is not None:
        found.look(log.log, lambda: refuse_lost_program(layout, stream, newest.plan))


def _window_states(layout: Layout, stream: str, found: Findings) -> None:
    document = layout.window_state(stream)
    state = found.look(document, lambda: WINDOW_STATE.read(document)) or {"shards": ()}
    for file in (StateFile(*file) for own in state["shards"] for file in own):
        path = layout.window_states(stream) / file.name
        found.read(path, lambda path=path, file=file: check_state(path, file))  # type: ignore[misc]


def _static_files(layout: Layout, lane: str) -> list[str]:
    documents = layout.static_versions(lane)
    found = (STATIC.opened(each, documents[number]) for number, each in documents.all(STATIC.kind).items())
    return [name for document in found for name in document["files"]]


def _check_ledger(ledger: Path) -> None:
    for line in ledger.read_bytes().splitlines():
        unsealed(line, ledger, READ_FILES.kind) if line else None


def _log(log: LogReader, found: Findings) -> None:
    newest, kept = found.look(log.log, log.newest), found.look(log.log.kept, log.kept)
    if newest is None or kept is None:
        return
    for reader, mark in (found.look(log.log.readers, log.marks) or {}).items():
        if mark > newest.number:
            missing = log.log.entries[newest.number + 1]
            found.note(str(missing), f"({LOG_ENTRY.kind}) is missing: {reader} has read up to entry {mark}")
    named: dict[tuple[str, str], None] = {}
    for number in range(kept.first, newest.number + 1):
        entry = found.look(log.log.entries[number], lambda number=number: log.entry(number))  # type: ignore[misc]
        for kind, names in entry.files.items() if entry is not None else ():
            named.update(dict.fromkeys((kind, name) for name in names))
    for path in _runs(log, named, found):
        found.read(path, lambda path=path: check_run(path))  # type: ignore[misc]
    for kind, name in named:
        if not _is_run(kind):
            path = log.path(kind, name)
            found.read(path, lambda path=path: _read_parquet(path))  # type: ignore[misc]


def _is_run(kind: str) -> bool:
    return kind.partition("/")[0] == TUPLES_FILES


def _runs(log: LogReader, named: dict[tuple[str, str], None], found: Findings) -> Iterator[StorePath]:
    """The runs that entries name or the ledger lists, each once, and all others there are."""
    paths = [log.path(kind, name) for kind, name in named if _is_run(kind)]
    for demand in found.look(log.log, log.log.demands) or ():
        listed = found.look(log.log, lambda demand=demand: list(listed_runs(log.log, demand)))  # type: ignore[misc]
        paths += [log.log.files / run.path for run in listed or () if run.path is not None]
    others: list[StorePath] = list(log.path(TUPLES_FILES, "").glob("*/[!.]*.arrow"))
    yield from dict.fromkeys([*paths, *sorted(others, key=str)])


def _read_parquet(path: StorePath) -> None:
    for _ in batches_of(path):
        pass
