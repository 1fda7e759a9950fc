"""Publication: staged files become visible under names fixed by batch, job and partition.

Order: every file takes its final name by atomic replace, surplus files of the batch are removed,
and the batch's manifest is written last. A batch whose manifest exists is published: a replay of
it changes nothing. Compaction replaces the files of a closed range of batches by one file and one
manifest; what a crash leaves half done is finished at the next start.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.spark.failpoints import failpoint
from penstock.spark.files import read_json, replace_json
from penstock.spark.layout import Layout

if TYPE_CHECKING:
    from penstock.spark.worker import StagedFile

#: kind of the files that the log names; they are left alone once they are published
ENVELOPES = "envelopes"


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


class Publisher:
    """Publishes the batches of one query into the results folder.

    Args:
        layout: output and checkpoint folders.
        name: the query's name among the manifests; a stream's for its ingest.
        kinds: the kinds of files it always looks after; others are known once one was staged.
    """

    def __init__(self, layout: Layout, name: str, kinds: Sequence[str] = ("matches", "quarantine")) -> None:
        self._layout = layout
        self._name = name
        self._prefix = "" if "matches" in kinds else "keyed_"
        self._manifests = layout.manifests(name)
        self._manifests.mkdir(parents=True, exist_ok=True)
        self._folders: dict[str, Path] = {}
        listed = (file["kind"] for document in _manifests(self._manifests) for file in document["files"])
        for kind in (*kinds, *listed):
            self._follow(kind)
        if "matches" in kinds:
            self._folders["matches"].mkdir(parents=True, exist_ok=True)
        self._compacted_to = -1
        self._recover()

    def published(self, batch: int) -> dict[str, Any] | None:
        """The manifest of a batch that Spark may repeat, or None where it is not published."""
        document: dict[str, Any] | None = read_json(self._manifests / f"{batch}.json")
        return document

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
            self._folders[kind].mkdir(parents=True, exist_ok=True)
        for report in sorted(reports, key=lambda each: (each.job, each.partition)):
            for staged in report.files:
                name = f"{batch:010d}-{report.job}-{report.partition:05d}.parquet"
                Path(staged.path).replace(self._folders[staged.kind] / name)
                if not files:
                    failpoint(f"{self._prefix}half_published", batch)
                files.append(PublishedFile(staged.kind, name, staged.rows, staged.pairs, staged.size))
        for folder in set(self._folders.values()):
            keep = {file.name for file in files if self._folders[file.kind] == folder}
            for surplus in folder.glob(f"{batch:010d}-*.parquet"):
                if surplus.name not in keep:
                    surplus.unlink()
        listed = [asdict(file) for file in files]
        replace_json(
            self._manifests / f"{batch}.json",
            {"first": batch, "last": batch, "files": listed, "batches": [figures]},
        )
        shutil.rmtree(self._layout.staging(self._name, batch), ignore_errors=True)
        return listed

    def compact(self, last: int) -> tuple[int, int] | None:
        """Replaces the files of all uncompacted batches up to `last` by one file a kind.

        Returns:
            The range of batches compacted, or None where there was nothing to gain.
        """
        documents = [
            document
            for document in _manifests(self._manifests)
            if self._compacted_to < document["first"] and document["last"] <= last
        ]
        if len(documents) < 2:
            return None
        first, last = documents[0]["first"], documents[-1]["last"]
        files = []
        for kind, folder in self._folders.items():
            if kind == ENVELOPES:
                continue
            members = [file for document in documents for file in document["files"] if file["kind"] == kind]
            if members:
                name = f"{first:010d}-to-{last:010d}{_label(kind)}.parquet"
                size = _merge([folder / file["name"] for file in members], folder / name)
                rows, pairs = (sum(file[count] for file in members) for count in ("rows", "pairs"))
                files.append(asdict(PublishedFile(kind, name, rows, pairs, size)))
        batches = [figures for document in documents for figures in document["batches"]]
        manifest = {"first": first, "last": last, "files": files, "batches": batches}
        replace_json(self._manifests / f"{first}-to-{last}.json", manifest)
        self._remove_replaced(manifest)
        return first, last

    def _follow(self, kind: str) -> None:
        self._folders[kind] = folder_of(self._layout, self._name, kind)

    def _recover(self) -> None:
        for folder in self._folders.values():
            for unfinished in folder.glob("*.parquet.merging"):
                unfinished.unlink()
        for document in _manifests(self._manifests):
            if document["last"] > document["first"]:
                self._remove_replaced(document)
        listed = {file["name"] for document in _manifests(self._manifests) for file in document["files"]}
        for folder in self._folders.values():
            for merged in folder.glob("*-to-*.parquet"):
                if merged.name not in listed:
                    merged.unlink()

    def _remove_replaced(self, manifest: dict[str, Any]) -> None:
        first, last = manifest["first"], manifest["last"]
        self._compacted_to = max(self._compacted_to, last)
        for batch in range(first, last + 1):
            replaced = self._manifests / f"{batch}.json"
            document = read_json(replaced)
            if document is not None:
                for file in document["files"]:
                    if file["kind"] != ENVELOPES:
                        (self._folders[file["kind"]] / file["name"]).unlink(missing_ok=True)
                replaced.unlink()


def _manifests(folder: Path, after: int = -1) -> list[dict[str, Any]]:
    """The valid manifests of a folder by batch: a compacted range hides the batches it replaces."""
    # a range is written before what it replaces is removed: read last, it is there for all that is gone
    paths = [path for path in folder.glob("*.json") if path.stem.isdigit() and int(path.stem) > after]
    singles = [document for path in paths if (document := read_json(path))]
    merged = [path for path in folder.glob("*-to-*.json") if int(path.stem.rpartition("-")[2]) > after]
    ranges = [document for path in merged if (document := read_json(path))]
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
    merging = target.with_name(target.name + ".merging")
    with pq.ParquetWriter(
        merging, pq.read_schema(sources[0]), compression="zstd", compression_level=1
    ) as writer:
        for source in sources:
            file = pq.ParquetFile(source)
            for batch in file.iter_batches():
                writer.write_table(pa.Table.from_batches([batch]).cast(writer.schema))
    merging.replace(target)
    return target.stat().st_size
