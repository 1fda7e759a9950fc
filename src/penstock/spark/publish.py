"""Publication: staged files become visible under names fixed by batch, job and partition.

Order: every file, synced by the task that wrote it, takes its final name by atomic replace, surplus files of the
batch are removed, the folders are synced, and the batch's manifest is written last. A batch whose manifest exists is
published: a replay of it changes nothing. Compaction replaces the files of a closed range of batches by one file and
one manifest, synced before anything is removed; what a crash leaves half done is finished at the next start.

Several queries may publish into the folder of a view that has moved between streams: the files of window results
end in their stream's name, and each query looks after its own alone.
"""

from __future__ import annotations

import json
import logging
import re
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.spark.events import EventLog
from penstock.spark.failpoints import failpoint
from penstock.spark.files import make_folder, read_json, replace_json, sync_file, sync_folder
from penstock.spark.layout import ENVELOPES, Layout

if TYPE_CHECKING:
    from penstock.spark.worker import StagedFile

_log = logging.getLogger(__name__)
#: what the names of merged files begin with, and what ends them until they are whole
_MERGED, _MERGING = r"\d+-to-\d+(?:-\d+)?", ".merging"


class Staged(Protocol):
    """Files a task staged, and what names them for good.

    Attributes:
        job, partition: unique within the batch, and the same when it is repeated.
        files: one a kind.
    """

    @property
    def job(self) -> int: ...
    @property
    def partition(self) -> int: ...
    @property
    def files(self) -> Sequence[StagedFile]: ...


@dataclass(frozen=True, slots=True)
class PublishedFile:
    """A file of the results folder, as a manifest lists it.

    Attributes:
        kind: `matches`, `quarantine`, `envelopes`, or an operator and a window view.
        name: file name inside the folder of its kind.
        rows, pairs, size: rows, (tuple, view) pairs, bytes.
    """

    kind: str
    name: str
    rows: int
    pairs: int
    size: int


@dataclass(frozen=True, slots=True)
class Published:
    """What is known of a published batch.

    Attributes:
        figures: what its manifest says of it.
        files: its files, as its manifest lists them; None where they were merged with those of other batches.
    """

    figures: dict[str, Any]
    files: list[dict[str, Any]] | None


class Publisher:
    """Publishes the batches of one query into the results folder.

    Args:
        layout: output and checkpoint folders.
        name: the query's name among the manifests; a stream's for its ingest.
        kinds: the kinds of files it always looks after; others are known once one was staged.
        owner: ends the names of its files, where other queries may publish into the same folders.
    """

    def __init__(
        self,
        layout: Layout,
        name: str,
        kinds: Sequence[str] = ("matches", "quarantine"),
        owner: str | None = None,
    ) -> None:
        self._layout = layout
        self._name = name
        self._prefix = "" if "matches" in kinds else "keyed_"
        self._ending = ".parquet" if owner is None else f".{owner}.parquet"
        self._manifests = layout.manifests(name)
        make_folder(self._manifests)
        self._folders: dict[str, Path] = {}
        listed = (file["kind"] for document in _manifests(self._manifests) for file in document["files"])
        for kind in (*kinds, *listed):
            self._follow(kind)
        if "matches" in kinds:
            make_folder(self._folders["matches"])
        self._compacted_to = -1
        #: a range that stands in place of batches of which something may still be there
        self._replacing: dict[str, Any] | None = None
        self._recover()

    def published(self, batch: int) -> Published | None:
        """What is known of a batch that Spark may repeat, or None where it is not published."""
        document: dict[str, Any] | None = read_json(self._manifests / f"{batch}.json")
        if document is not None:
            return Published(document["batches"][0], document["files"])
        if batch <= self._compacted_to:
            for merged in _manifests(self._manifests, batch - 1):
                for figures in merged["batches"]:
                    if figures["batch"] == batch:
                        return Published(figures, None)
        return None

    def publish(self, batch: int, reports: Sequence[Staged], figures: dict[str, Any]) -> list[dict[str, Any]]:
        """Makes a batch visible.

        Args:
            batch: its number.
            reports: what its tasks staged.
            figures: what else the manifest says of the batch.

        Returns:
            The published files, as the manifest lists them (fields of PublishedFile).
        """
        files: list[PublishedFile] = []
        for kind in sorted({staged.kind for report in reports for staged in report.files}):
            self._follow(kind)
            make_folder(self._folders[kind])
        for report in sorted(reports, key=lambda each: (each.job, each.partition)):
            for staged in report.files:
                name = f"{batch:010d}-{report.job}-{report.partition:05d}{self._ending}"
                Path(staged.path).replace(self._folders[staged.kind] / name)
                if not files:
                    failpoint(f"{self._prefix}half_published", batch)
                files.append(PublishedFile(staged.kind, name, staged.rows, staged.pairs, staged.size))
        for folder in set(self._folders.values()):
            keep = {file.name for file in files if self._folders[file.kind] == folder}
            found = self._own(folder, rf"{batch:010d}-\d+-\d+")
            for surplus in found:
                if surplus.name not in keep:
                    surplus.unlink()
            if keep or found:
                sync_folder(folder)
        listed = [asdict(file) for file in files]
        replace_json(
            self._manifests / f"{batch}.json",
            {"first": batch, "last": batch, "files": listed, "batches": [figures]},
        )
        for staging in (
            self._layout.staging(self._name, batch),
            self._layout.staged_envelopes(self._name, batch),
        ):
            shutil.rmtree(staging, ignore_errors=True)
        return listed

    def compact(self, last: int) -> tuple[int, int] | None:
        """Replaces the files of all uncompacted batches up to `last` by one file a kind.

        Returns:
            The range of batches compacted, or None where there was nothing to gain.

        Raises:
            OSError: a file could not be written or removed, as on a full disk; what was published is as it was,
                and the next call tries again.
        """
        if self._replacing is not None:
            self._remove_replaced(self._replacing)
        documents = [
            document
            for document in _manifests(self._manifests)
            if self._compacted_to < document["first"] and document["last"] <= last
        ]
        if len(documents) < 2:
            return None
        first, last = documents[0]["first"], documents[-1]["last"]
        batches = [figures for document in documents for figures in document["batches"]]
        manifest: dict[str, Any] = {"first": first, "last": last, "files": [], "batches": batches}
        named = self._manifests / f"{first}-to-{last}.json"
        merged: list[Path] = []
        try:
            for kind, folder in self._folders.items():
                members = [
                    file for document in documents for file in document["files"] if file["kind"] == kind
                ]
                if kind == ENVELOPES or not members:
                    continue
                target = folder / f"{first:010d}-to-{last:010d}{_label(kind)}{self._ending}"
                merged.append(target)
                size = _merge([folder / file["name"] for file in members], _merging(target))
                rows, pairs = (sum(file[count] for file in members) for count in ("rows", "pairs"))
                manifest["files"].append(asdict(PublishedFile(kind, target.name, rows, pairs, size)))
            for target in merged:
                _merging(target).replace(target)
            for folder in {target.parent for target in merged}:
                sync_folder(folder)
            replace_json(named, manifest)
        except BaseException:
            if named.exists():
                # readers see it from now on: merged with more, its rows would be there twice
                self._replacing, self._compacted_to = manifest, last
            else:
                for target in merged:
                    _merging(target).unlink(missing_ok=True)
                    target.unlink(missing_ok=True)
            raise
        self._remove_replaced(manifest, is_synced=True)
        return first, last

    def _follow(self, kind: str) -> None:
        self._folders[kind] = folder_of(self._layout, self._name, kind)

    def _own(self, folder: Path, stem: str, ending: str = "") -> list[Path]:
        """The files of this query whose names are a pattern and its ending."""
        pattern = re.compile(stem + re.escape(self._ending + ending))
        return [path for path in folder.glob(f"*{ending}") if pattern.fullmatch(path.name)]

    def _recover(self) -> None:
        for folder in self._folders.values():
            for unfinished in self._own(folder, _MERGED, _MERGING):
                unfinished.unlink()
        for document in _manifests(self._manifests):
            if document["last"] > document["first"]:
                self._remove_replaced(document)
        listed = {file["name"] for document in _manifests(self._manifests) for file in document["files"]}
        for folder in self._folders.values():
            for merged in self._own(folder, _MERGED):
                if merged.name not in listed:
                    merged.unlink()

    def _remove_replaced(self, manifest: dict[str, Any], *, is_synced: bool = False) -> None:
        first, last = manifest["first"], manifest["last"]
        self._replacing, self._compacted_to = manifest, max(self._compacted_to, last)
        replaced = [path for n in range(first, last + 1) if (path := self._manifests / f"{n}.json").exists()]
        if replaced and not is_synced:
            # what made the range may have ended before its name was sure to last
            sync_folder(self._manifests)
        for path in replaced:
            for file in json.loads(path.read_bytes())["files"]:
                if file["kind"] != ENVELOPES:
                    (self._folders[file["kind"]] / file["name"]).unlink(missing_ok=True)
            path.unlink()
        self._replacing = None


def _manifests(folder: Path, after: int = -1) -> list[dict[str, Any]]:
    """The valid manifests of a folder by batch: a compacted range hides the batches and ranges that it replaces."""
    # a range is written before what it replaces is removed: read last, it is there for all that is gone
    paths = [path for path in folder.glob("*.json") if path.stem.isdigit() and int(path.stem) > after]
    singles = [document for path in paths if (document := read_json(path))]
    merged = [path for path in folder.glob("*-to-*.json") if int(path.stem.rpartition("-")[2]) > after]
    found = [document for path in merged if (document := read_json(path))]
    ranges: list[dict[str, Any]] = []
    for document in sorted(found, key=lambda each: (each["first"], -each["last"])):
        if not ranges or document["last"] > ranges[-1]["last"]:
            ranges.append(document)
    hidden = {batch for document in ranges for batch in range(document["first"], document["last"] + 1)}
    shown = [document for document in singles if document["first"] not in hidden]
    return sorted(ranges + shown, key=lambda document: document["first"])


def read_manifests(layout: Layout, stream: str, after: int = -1) -> list[dict[str, Any]]:
    """The manifests of a stream with batches behind one, in order of batch: `first`, `last`, `files`, `batches`."""
    return _manifests(layout.manifests(stream), after)


def published_paths(layout: Layout, name: str, kind: str = "matches") -> Iterator[Path]:
    """The files a reader that follows manifests reads, in order of batch."""
    folder = folder_of(layout, name, kind)
    for document in read_manifests(layout, name):
        for file in document["files"]:
            if file["kind"] == kind:
                yield folder / file["name"]


def results_of(stream: str) -> str:
    """The name of a stream's keyed query among the manifests."""
    return f"{stream}.results"


def view_kind(operator: int, view: str) -> str:
    """The kind of a window view's files; redefined, the view has another operator."""
    return f"{operator}/{view}"


def folder_of(layout: Layout, name: str, kind: str) -> Path:
    """Where published files of a kind lie."""
    match kind:
        case "matches":
            return layout.matches(name)
        case "quarantine":
            return layout.quarantine(name)
        case "envelopes":
            return layout.envelopes(name)
        case _:
            return layout.results(kind.partition("/")[2])


def _label(kind: str) -> str:
    """Tells compacted files of two kinds apart that share a folder."""
    operator, slash, _ = kind.partition("/")
    return f"-{operator}" if slash else ""


def _merge(sources: Sequence[Path], target: Path) -> int:
    with pq.ParquetWriter(
        target, pq.read_schema(sources[0]), compression="zstd", compression_level=1
    ) as writer:
        for source in sources:
            file = pq.ParquetFile(source)
            for batch in file.iter_batches():
                writer.write_table(pa.Table.from_batches([batch]).cast(writer.schema))
    sync_file(target)
    return target.stat().st_size


def _merging(target: Path) -> Path:
    """Where a merged file is written before it takes its name."""
    return target.with_name(target.name + _MERGING)


def tell_compaction_failed(events: EventLog, stream: str, batch: int, error: OSError) -> None:
    """Says that files could not be merged: nothing that is published is touched, and it is tried again later."""
    _log.warning("the files of %s could not be merged at batch %s: %s", stream, batch, error)
    events.record("compaction_failed", stream=stream, batch=batch, error=str(error))
