"""How long the rows of declared views and tables are kept: where it is written, and where it cannot be (docs/decisions/0087)."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from penstock.errors import SqlError, UnsupportedError
from penstock.monitor.figures import counted
from penstock.spark.declaring.declared import Declared
from penstock.spark.publication.kinds import is_of_view
from penstock.spark.publication.manifests import read_published
from penstock.spark.publication.retention import owner_of
from penstock.spark.storage.bindings import ViewDefinition
from penstock.spark.storage.layout import Layout
from penstock.spark.storage.refreshed import RefreshedDefinition
from penstock.sql.script.statements import CreateTable, CreateView, Retain


def retain_table(staged: Declared, table: CreateTable) -> None:
    """Note how long the matches of a table's stream are kept, by its option `retain`.

    Raises:
        SqlError: it is no length of time above 0.
    """
    if (length := table.options.get("retain")) is not None:
        staged.retained[table.name] = Retain.of(length, *table.at("retain"))


def retain_views(staged: Declared, views: Iterable[CreateView]) -> None:
    """Note how long rows of declared views are kept.

    Raises:
        SqlError: a selection or a refreshed view has a retention, or a view whose rows another view reads.
    """
    for view in views:
        name = staged.view_name(view.name)
        if view.retain is None:
            staged.retained.pop(name, None)
            continue
        if isinstance(staged.views[name].definition, ViewDefinition):
            stream = staged.views[name].stream
            message = (
                f"View {name} is a selection: its rows are in the files of stream {stream}, with those of other selections. Set the "
                f"option retain of table {stream} instead."
            )
            raise SqlError(message, view.retain.text, view.retain.start, view.retain.end)
        if isinstance(staged.views[name].definition, RefreshedDefinition):
            message = f"View {name} is refreshed: its next answer is compared with all of its rows, which must remain. Remove retain."
            raise SqlError(message, view.retain.text, view.retain.start, view.retain.end)
        staged.retained[name] = view.retain
    if not any(name in staged.views for name in staged.retained):
        return
    read = [(beneath, next(iter(above)), "aggregates") for (_, beneath), above in staged.derived.items()]
    for name, known in staged.views.items():
        if isinstance(known.definition, RefreshedDefinition):
            read += [(each.view, name, "reads") for each in known.definition.views]
    for beneath, above, what in read:
        retain = staged.retained.get(beneath)
        if retain is not None:
            message = f"View {beneath} has retain, and view {above} {what} its rows: all of them must remain. Remove retain, or the view over it."
            raise SqlError(message, retain.text, retain.start, retain.end)


def refuse_over_removed(layout: Layout, beneath: Collection[tuple[str, str]]) -> None:
    """Make sure that no row of views that others aggregate has left the results folder.

    Args:
        layout: output and checkpoint folders.
        beneath: the stream and the name of each such view.

    Raises:
        UnsupportedError: one has.
    """
    if not beneath:
        return
    views = {view for _, view in beneath}
    for query in layout.queries():
        for kind, rows in read_published(layout, query).all_removed.items():
            view = owner_of(query, kind)
            if rows and view in views and is_of_view(kind, view):
                raise UnsupportedError(
                    f"{counted(rows, 'row')} of view {view} have left the results folder by retention or `penstock prune`: a view that "
                    "aggregates its rows would lack them. Declare the lower view under another name, or start with a new output folder."
                )


def retained_seconds(staged: Declared) -> dict[str, float]:
    """How long rows are kept, seconds by stream or view."""
    return {name: each.seconds for name, each in staged.retained.items()}
