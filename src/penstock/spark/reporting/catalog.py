"""The streams and views of a results folder, for its readers; needs no JVM."""

from __future__ import annotations

from typing import Any

from penstock.errors import DamagedError, InputError, UnknownNameError
from penstock.spark.reporting.definitions import all_definitions, is_selection, number_of
from penstock.spark.storage.bases import Bases
from penstock.spark.storage.documents import encoded_object
from penstock.spark.storage.formats import BASE_NUMBER, CATALOG, DROPPED, EITHER_CATALOG
from penstock.spark.storage.layout import Layout

#: of the catalog: by stream the folder or the topics that it reads
PARTS = "parts"


def known_catalog(layout: Layout) -> dict[str, Any] | None:
    """The streams and views of a results folder; None where none has been told of yet.

    Raises:
        DamagedError: it is damaged, or missing beside results.
    """
    layout.refuse_lost_ledger()
    catalog = EITHER_CATALOG.read(layout.catalog)
    if catalog is None:
        if layout.queries():
            raise DamagedError(str(layout.catalog), f"({CATALOG.kind}) is missing")
        return None
    try:
        views = catalog_bases(layout).views(catalog, layout.catalog)
    except DamagedError:
        # a run may have written a newer base meanwhile, and removed this one
        now = EITHER_CATALOG.read(layout.catalog)
        if now is None or now.get(BASE_NUMBER) == catalog.get(BASE_NUMBER):
            raise
        return known_catalog(layout)
    others = {name: value for name, value in catalog.items() if name not in (BASE_NUMBER, DROPPED)}
    return {**others, "views": views}


def catalog_bases(layout: Layout) -> Bases[str, dict[str, Any]]:
    """What the catalogs of a results folder are stored as the difference from."""
    return Bases(
        layout.catalog_bases,
        lambda texts: {"views": encoded_object(texts.values())},
        lambda document: dict(document["views"]),
    )


def read_catalog(layout: Layout) -> dict[str, Any]:
    """The streams and views of a results folder.

    Raises:
        InputError: it is not one, or is damaged.
    """
    catalog = known_catalog(layout)
    if catalog is None:
        raise InputError(f"{layout.output} is not a results folder of Penstock: it has no catalog.")
    return catalog


def find_view(
    layout: Layout, view: str, revisions: bool = False, definition: int | None = None
) -> tuple[str, dict[str, Any]]:
    """A view's name as declared and its entry in the catalog.

    Args:
        layout: the results folder.
        view: its name in any case.
        revisions: whether it must be one whose rows have revisions.
        definition: the number of one of its definitions; None: the one it has now.

    Raises:
        UnknownNameError: there is no such view or definition, or it is a selection or a join whose rows never change.
    """
    known: dict[str, dict[str, Any]] = read_catalog(layout)["views"]
    found = [each for each in known if each.upper() == view.upper()]
    name = min(found, key=lambda each: (each != view, "dropped" in known[each]), default=None)
    if name is None:
        raise UnknownNameError.among("View", view, sorted(known), "Existing views", most=20)
    entry = known[name]
    if definition is not None:
        entry = _of_number(name, entry, definition)
    for mark, kind in (("projection", "selection"), ("lanes", "join view")):
        if revisions and mark in entry and not entry.get("withdraws"):
            raise UnknownNameError(
                f"View {name} is a {kind}. Its rows never change, so it has no revisions. Read the rows with "
                f"results('{name}') or `penstock results DIR {name}`."
            )
    return name, entry


def find_rows(
    layout: Layout, view: str, definition: int | None, all_definitions: bool, final_only: bool
) -> tuple[str, dict[str, Any]]:
    """A view's name as declared and its entry in the catalog, where the rows that are asked for can be shown.

    Args:
        layout: the results folder.
        view: its name in any case.
        definition, all_definitions, final_only: see `results.read.results`.

    Raises:
        UnknownNameError: there is no such view or definition.
        InputError: all definitions of a view that is no selection, or of one definition; final rows of a view without windows.
    """
    name, entry = find_view(layout, view, definition=definition)
    if all_definitions:
        _refuse_all(name, entry, definition)
    if final_only and (is_selection(entry) or "lanes" in entry):
        raise InputError(f"{name} is not a window view: its rows are neither early nor final")
    return name, entry


def _refuse_all(view: str, entry: dict[str, Any], definition: int | None) -> None:
    """Makes sure that the rows of all definitions of a view can be shown together."""
    if definition is not None:
        raise InputError(f"{view}: choose either definition {definition} or all definitions")
    if not is_selection(entry):
        raise InputError(
            f"{view} is not a selection: its definitions have different columns. Choose one definition by its number"
        )


def _of_number(view: str, entry: dict[str, Any], number: int) -> dict[str, Any]:
    by_number = {number_of(each): each for each in all_definitions(entry)}
    if number not in by_number:
        existing = ", ".join(map(str, sorted(by_number)))
        raise UnknownNameError(f"{view} has no definition {number}. Existing definitions: {existing}")
    return by_number[number]
