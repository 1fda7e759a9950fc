"""What a results folder has published: the files that readers other than Penstock may open, for lists and for DuckDB."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from penstock.errors import UnknownNameError
from penstock.monitor.folder import folder_layout
from penstock.spark.publication.manifests import located, read_published
from penstock.spark.reporting.catalog import read_catalog
from penstock.spark.storage.layout import Layout, is_of_log
from penstock.spark.storage.store_paths import StorePath

#: kinds of files that are a stream's; those of others end in the name of a view
_OF_STREAM = ("matches", "quarantine")


@dataclass(frozen=True, slots=True)
class ReadableFile:
    """A published file of Parquet.

    Attributes:
        path: where it is; a file that is replaced by a merged one exists for `replaced_seconds` more.
        kind: `matches`, `quarantine`, `results` or `misses`.
        name: the stream of matches and quarantined records, the view of results and misses.
        first, last: numbers of the batches, or cuts, whose rows it has.
        rows, bytes: its size.
    """

    path: StorePath
    kind: str
    name: str
    first: int
    last: int
    rows: int
    bytes: int


def published_files(folder: str | StorePath, name: str | None = None) -> list[ReadableFile]:
    """List the published files of a results folder, in order of batch within a kind and name.

    Args:
        folder: the results folder.
        name: of a stream or view; a selection's rows are in the matches of its stream. None: all.

    Raises:
        InputError: there is no such folder, or it is not Penstock's.
        UnknownNameError: there is no such stream or view.
        DamagedError: a file is missing, or has another size than it was published with.
    """
    layout = folder_layout(folder)
    catalog = read_catalog(layout)
    found = [file for query in layout.queries() for file in _files(layout, query)]
    if name is not None:
        wanted, kinds = _wanted(catalog, name)
        found = [file for file in found if file.name == wanted and file.kind in kinds]
    return sorted(found, key=lambda file: (file.kind, file.name, file.first))


def _files(layout: Layout, query: str) -> Iterator[ReadableFile]:
    for file in read_published(layout, query).files:
        if is_of_log(file.kind):
            continue
        group, _, view = file.kind.partition("/")
        kind = group if group in (*_OF_STREAM, "misses") else "results"
        path = located(layout, query, file)
        yield ReadableFile(path, kind, view or query, file.first, file.last, file.rows, file.size)


def _wanted(catalog: dict[str, Any], name: str) -> tuple[str, tuple[str, ...]]:
    """The name that files of a stream or view have, and their kinds."""
    if name in catalog["streams"]:
        return name, _OF_STREAM
    view = catalog["views"].get(name)
    if view is None:
        known = sorted({*catalog["streams"], *catalog["views"]})
        raise UnknownNameError.among("Stream or view", name, known, "Existing names", most=20)
    return (view["stream"], ("matches",)) if "projection" in view else (name, ("results", "misses"))
