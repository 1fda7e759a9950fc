"""Kinds of published files: how they are called, where they lie, and whose they are."""

from __future__ import annotations

from pathlib import Path

from penstock.spark.storage.layout import Layout, is_of_log

_MISSES = "misses"


def results_of(stream: str) -> str:
    """The name of a stream's keyed query among the manifests."""
    return f"{stream}.results"


def rows_of(stream: str, view: str) -> str:
    """The name of the stream that the rows of a view are: of a window view on a stream, or of a join view that a lane answers."""
    return f"{stream}.{view}"


def view_kind(operator: int, view: str) -> str:
    """The kind of a window view's files; redefined, the view has another operator."""
    return f"{operator}/{view}"


def misses_kind(view: str) -> str:
    """The kind of the files that tell of a view's windows that were not released in time."""
    return f"{_MISSES}/{view}"


def is_kept(kind: str) -> bool:
    """Whether files of a kind that were replaced are there for a while, and under two names until then."""
    return kind != "quarantine" and not is_of_log(kind)


def folder_of(layout: Layout, name: str, kind: str) -> Path:
    """Where published files of a kind lie under the names that readers of manifests use."""
    shown = shown_folder(layout, name, kind)
    return layout.kept(shown) if is_kept(kind) else shown


def shown_folder(layout: Layout, name: str, kind: str) -> Path:
    """Where they lie for whoever lists a folder; one folder for both where `is_kept` says no."""
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
