"""Kinds of published files: how they are called, where they lie, and whose they are."""

from __future__ import annotations

from penstock.spark.storage.layout import TUPLES_FILES, Layout, is_of_log
from penstock.spark.storage.names import on_disk
from penstock.spark.storage.store_paths import StorePath, name_below
from penstock.stores.files import Files

_MISSES = "misses"
_RUNNING = ".running.0"


def results_of(stream: str) -> str:
    """The name of a stream's window lane among the manifests."""
    return f"{stream}.results"


def running_of(stream: str) -> str:
    """The name that the running views of a stream have their results under, and their lane its state."""
    return f"{stream}{_RUNNING}"


def stream_of_running(name: str) -> str:
    """The stream that `running_of` was given."""
    return name.removesuffix(_RUNNING)


def is_running_name(name: str) -> bool:
    """Whether `running_of` gave a name."""
    return name.endswith(_RUNNING)


def rows_of(stream: str, view: str) -> str:
    """The name of the stream that the rows of a view are: of a window view on a stream, or of a join view that a lane answers."""
    return f"{stream}.{view}"


def view_kind(operator: int, view: str) -> str:
    """The kind of a window view's files; redefined, the view has another operator."""
    return f"{operator}/{view}"


def is_of_view(kind: str, view: str) -> bool:
    """Whether a kind is that of a window or join view's rows, by whatever operator or lane."""
    operator, slash, name = kind.partition("/")
    return bool(slash) and operator.isdigit() and name == view


def misses_kind(view: str) -> str:
    """The kind of the files that tell of a view's windows that were not released in time."""
    return f"{_MISSES}/{view}"


def is_required(kind: str) -> bool:
    """Whether a published file of a kind must exist: users may remove quarantined records, and the log has its own retention."""
    return kind != "quarantine" and not is_of_log(kind)


def folder_of(layout: Layout, name: str, kind: str) -> StorePath:
    """The folder of a query's published files of a kind.

    Args:
        layout: output and checkpoint folders.
        name: the query's name among the manifests.
        kind: of the files.
    """
    match kind:
        case "matches":
            return layout.matches(name)
        case "quarantine":
            return layout.quarantine(name)
        case kind if is_of_log(kind):
            return layout.log_files(name, kind)
        case kind if kind.startswith(f"{_MISSES}/"):
            return layout.misses(kind.partition("/")[2])
        case _:
            return layout.results(kind.partition("/")[2])


def store_of(layout: Layout, kind: str) -> Files:
    """The store of the files of a kind."""
    return layout.log_store if is_of_log(kind) else layout.files


def name_of(layout: Layout, name: str, kind: str, file: str) -> str:
    """The name of a query's file in the store of its kind."""
    root = layout.checkpoint if is_of_log(kind) else layout.output
    return name_below(root, folder_of(layout, name, kind) / file)


def ending_of(kind: str, owner: str | None) -> str:
    """What ends the names of a kind's files.

    Args:
        kind: of the files.
        owner: the query, where other queries may publish into the same folders.
    """
    if kind.partition("/")[0] == TUPLES_FILES:
        return ".arrow"
    return ".parquet" if owner is None else f".{on_disk(owner)}.parquet"
