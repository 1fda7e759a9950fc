"""The window views of each operator as they were bound, in the checkpoint: for the tasks and the driver."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from penstock.errors import DamagedError
from penstock.spark.results.window_schemas import describe_views
from penstock.spark.storage.bindings import RegisteredWindow
from penstock.spark.storage.codec import Codec
from penstock.spark.storage.formats import OPERATOR_VIEWS
from penstock.spark.storage.layout import Layout
from penstock.sql.windows.bind import BoundWindow

_VIEWS = Codec(tuple[BoundWindow, ...])


def store_views(
    layout: Layout,
    stream: str,
    operator: int,
    views: Sequence[BoundWindow],
    registered: Mapping[str, RegisteredWindow],
) -> None:
    """Stores the views of an operator, for readers of the output too; durable on return.

    To be called before any batch is bound to the operator.

    Args:
        layout: output and checkpoint folders.
        stream: the stream's name.
        operator: the number in their `OperatorPlan`.
        views: all of its views.
        registered: the views as they are registered, by name.
    """
    OPERATOR_VIEWS.put(layout.operators(stream)[operator], {"views": _VIEWS.document(tuple(views))})
    describe_views(layout, stream, operator, views, registered)


def stored_views(layout: Layout, stream: str, operator: int) -> dict[str, BoundWindow]:
    """The views of an operator by name.

    Raises:
        DamagedError: they are missing or damaged.
    """
    path = layout.operators(stream)[operator]
    document = OPERATOR_VIEWS.read(path)
    if document is None:
        raise DamagedError(str(path), f"({OPERATOR_VIEWS.kind}) is missing")
    try:
        views = _VIEWS.value(document["views"])
    except ValueError as error:
        raise DamagedError(str(path), f"({OPERATOR_VIEWS.kind}) is damaged: {error}") from error
    return {view.plan.name: view for view in views}
