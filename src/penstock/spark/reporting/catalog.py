"""The streams and views of a results folder, for its readers; needs no JVM."""

from __future__ import annotations

from typing import Any

from penstock.errors import DamagedError, InputError, UnknownNameError
from penstock.spark.storage.formats import CATALOG
from penstock.spark.storage.layout import Layout


def known_catalog(layout: Layout) -> dict[str, Any] | None:
    """The streams and views of a results folder; None where none has been told of yet.

    Raises:
        DamagedError: it is damaged, or missing beside results.
    """
    catalog = CATALOG.read(layout.catalog)
    if catalog is None and any(layout.manifests("").glob("*/*.json")):
        raise DamagedError(str(layout.catalog), f"({CATALOG.kind}) is missing")
    return catalog


def read_catalog(layout: Layout) -> dict[str, Any]:
    """The streams and views of a results folder.

    Raises:
        InputError: it is not one, or is damaged.
    """
    catalog = known_catalog(layout)
    if catalog is None:
        raise InputError(f"{layout.output} is not a results folder of Penstock")
    return catalog


def find_view(layout: Layout, view: str, revisions: bool = False) -> tuple[str, dict[str, Any]]:
    """A view's name as declared and its entry in the catalog.

    Args:
        layout: the results folder.
        view: its name in any case.
        revisions: whether it must be one whose rows have revisions.

    Raises:
        UnknownNameError: there is no such view, or it is a selection or a join whose rows never change.
    """
    known: dict[str, dict[str, Any]] = read_catalog(layout)["views"]
    found = [each for each in known if each.upper() == view.upper()]
    name = min(found, key=lambda each: (each != view, "dropped" in known[each]), default=None)
    if name is None:
        names = sorted(known)
        shown = ", ".join(names[:20]) + (f" and {len(names) - 20} more" if len(names) > 20 else "")
        raise UnknownNameError(f"no view {view}; existing views: {shown or 'none'}")
    for mark, kind in (("projection", "selection"), ("lanes", "join")):
        if revisions and mark in known[name] and not known[name].get("withdraws"):
            raise UnknownNameError(f"{name} is a {kind} view; its rows have no revisions")
    return name, known[name]
