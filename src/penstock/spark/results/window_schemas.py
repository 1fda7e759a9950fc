"""What must be known of the window views to write and to read their results.

The schemas of their results lie in the output folder, for its readers; they are put before any batch is bound to the
operator. The definitions lie in the checkpoint, see `bound_views`.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.types import StructType

from penstock.errors import DamagedError, UnknownNameError
from penstock.operators.windows.spans import SESSION_START, SPAN
from penstock.plan.names import free_name
from penstock.spark.analysis.gate import stored_schema
from penstock.spark.analysis.schemas import spark_schema, spark_type
from penstock.spark.publication.kinds import results_of
from penstock.spark.publication.manifests import PublishedBatches, read_published
from penstock.spark.storage.formats import RESULT_VIEWS
from penstock.spark.storage.layout import Layout
from penstock.spark.storage.ledger_documents import StoredDocument
from penstock.sql.windows.query import WHOLE

if TYPE_CHECKING:
    from penstock.spark.storage.bindings import RegisteredWindow
    from penstock.sql.windows.bind import BoundWindow

#: columns that follow a view's own
REVISION, COVERAGE, SLACK, FINAL, OP = "revision", "coverage", "slack", "is_final", "op"
MARKS = pa.schema(
    [
        (REVISION, pa.int32()),
        (COVERAGE, pa.float64()),
        (SLACK, pa.float64()),
        (FINAL, pa.bool_()),
        (OP, pa.string()),
    ]
)
#: how columns of a published file are called, by what they are: behind a view's own, one of which may be called so itself
MarkNames = Mapping[str, str]
#: the last column, a struct of the window's `start` and `end`, of a running view WHOLE or SPAN, and the keys `k0`, `k1` ...: which row
#: this is
ROW = "_row"
#: revisions of final windows begin here, plus the number of the batch that brought late tuples
FIRST_REVISION = 1_000_000
#: of final rows where only these are read: whether a row that was final before has been replaced by this one
CORRECTED = "corrected_after_final"
#: values of OP
UPSERT, DELETE = "upsert", "delete"
#: of a raw file: the aggregates of the revision before, NULL where that did not know the group
BEFORE = "_before"

_PLAIN = re.compile(r"_w|_w\.(?:start|end)|_[ka]\d+")


@dataclass(frozen=True, slots=True)
class ReadableView:
    """A window view or running view as readers of the output know it.

    Attributes:
        operator: the newest operator that answers it.
        columns: the view's own columns.
        row: the type of ROW.
        operators: all that have answered it as it is defined now, with what each leaves to those before it: the
            windows that end by a time in microseconds; None: no window. The newest is the last.
    """

    operator: int
    columns: StructType
    row: StructType
    operators: tuple[tuple[int, int | None], ...] = ()

    @property
    def schema(self) -> StructType:
        """The columns of its files."""
        whole = StructType([*self.columns.fields])
        for mark in MARKS:
            whole.add(self.marks[mark.name], spark_type(mark.type))
        return whole.add(ROW, self.row)

    @property
    def marks(self) -> MarkNames:
        """The names of MARKS in its files."""
        return mark_names(self.columns.names)


def describe_views(
    layout: Layout,
    stream: str,
    operator: int,
    views: Sequence[BoundWindow],
    registered: Mapping[str, RegisteredWindow],
) -> None:
    """Tells readers of the output what the results of an operator's views look like, durable on return.

    Args:
        layout: output and checkpoint folders.
        stream: the stream's name.
        operator: the operator.
        views: all of its views.
        registered: the views as they are registered, by name.
    """
    described = {
        view.plan.name: {
            "columns": spark_schema(own_schema(view)).jsonValue(),
            "row": spark_type(row_type(view)).jsonValue(),
            "marks": mark_names(own_schema(view).names),
            **_registration(registered[view.plan.name]),
        }
        for view in views
    }
    RESULT_VIEWS.put(_described(layout, stream, operator), {"views": described})


def _described(layout: Layout, stream: str, operator: int) -> StoredDocument:
    return layout.result_views(stream)[operator]


def _read_described(layout: Layout, stream: str, operator: int) -> dict[str, Any]:
    document = RESULT_VIEWS.read(_described(layout, stream, operator))
    return {} if document is None else dict(document["views"])


def _registration(window: RegisteredWindow) -> dict[str, Any]:
    floor = window.beginning.floor if window.beginning is not None else None
    return {"definition": window.definition.id, "floor": floor}


def earlier_operators(
    layout: Layout, stream: str, view: str, definition: str
) -> list[tuple[int, int | None]]:
    """The operators that have answered a view of a definition, with their floors; the newest is the last."""
    found = []
    for operator in layout.result_views(stream).numbers():
        views = _read_described(layout, stream, operator)
        if view in views and views[view]["definition"] == definition:
            found.append((operator, views[view]["floor"]))
    return found


def readable_view(layout: Layout, stream: str, view: str) -> ReadableView | None:
    """A window view by its newest definition; None where the stream never had it.

    Raises:
        CheckpointError: the folder was written by another version.
    """
    for operator in reversed(layout.result_views(stream).numbers()):
        views = _read_described(layout, stream, operator)
        if view in views:
            own = earlier_operators(layout, stream, view, views[view]["definition"])
            return _readable(views[view], own, operator)
    return None


def readable_definition(layout: Layout, stream: str, view: str, definition: str) -> ReadableView | None:
    """A window view as one definition of it says; None where that has answered nothing yet."""
    own = earlier_operators(layout, stream, view, definition)
    if not own:
        return None
    operator = own[-1][0]
    return _readable(_read_described(layout, stream, operator)[view], own, operator)


def readable_operator(layout: Layout, stream: str, view: str, operator: int) -> ReadableView:
    """A window view as one operator has answered it.

    Raises:
        DamagedError: what says which columns its rows have is missing.
    """
    views = _read_described(layout, stream, operator)
    if view not in views:
        raise DamagedError(str(_described(layout, stream, operator)), f"({RESULT_VIEWS.kind}) is missing")
    return _readable(views[view], [(operator, None)], operator)


def require_readable(layout: Layout, stream: str, view: str, definition: str) -> ReadableView:
    """A window view as one definition of it says.

    Raises:
        UnknownNameError: that has answered nothing yet.
        DamagedError: what says which columns some of its published rows have is missing.
    """
    files = read_published(layout, results_of(stream)).files
    # what describes an operator is there before its first rows
    described = set(layout.result_views(stream).numbers())
    for file in files:
        operator, _, name = file.kind.partition("/")
        if name == view and operator.isdigit() and int(operator) not in described:
            path = _described(layout, stream, int(operator))
            raise DamagedError(str(path), f"({RESULT_VIEWS.kind}) is missing")
    readable = readable_definition(layout, stream, view, definition)
    if readable is None:
        raise UnknownNameError(
            f"window view {view} of {stream} has no results yet: its current definition has not answered a batch"
        )
    return readable


def _readable(
    described: Mapping[str, Any], operators: Sequence[tuple[int, int | None]], newest: int
) -> ReadableView:
    columns, row = (stored_schema(described[part]) for part in ("columns", "row"))
    return ReadableView(newest, columns, row, tuple(operators))


def whole_operators(results: PublishedBatches) -> set[int]:
    """The operators that have been given the tuples of the batches before their first one, by the published results."""
    newest = {each for figures in results.batches for each in figures["whole"]}
    return newest.union(results.totals.get("whole", ()))


def is_running_row(names: Sequence[str]) -> bool:
    """Whether ROW, by the names of its parts, is that of a running view."""
    return names[0] in (WHOLE, SESSION_START)


def own_schema(view: BoundWindow) -> pa.Schema:
    """A view's own columns."""
    return pa.schema([(output.name, output.type) for output in view.outputs])


def mark_names(columns: Collection[str]) -> dict[str, str]:
    """The names of MARKS behind these columns of a view's own."""
    return {name: free_name(name, columns) for name in MARKS.names}


def marks_in(names: Sequence[str]) -> MarkNames:
    """The names of MARKS among columns of a file: a view's own, MARKS and ROW, maybe others."""
    end = list(names).index(ROW)
    return dict(zip(MARKS.names, names[end - len(MARKS) : end], strict=True))


def result_schema(view: BoundWindow) -> pa.Schema:
    """The columns of a view's files: its own, MARKS and ROW."""
    own = own_schema(view)
    marks = mark_names(own.names)
    return pa.schema(
        [*own, *(mark.with_name(marks[mark.name]) for mark in MARKS), pa.field(ROW, row_type(view))]
    )


def row_type(view: BoundWindow) -> pa.StructType:
    """The type of ROW."""
    keys = [(f"k{number}", kind) for number, (_, kind) in enumerate(view.plan.keys)]
    names = [part.name for part in view.window_type] if view.plan.gap is None else SPAN
    return pa.struct([*zip(names, (part.type for part in view.window_type), strict=True), *keys])


def has_plain_outputs(view: BoundWindow) -> bool:
    """Whether its outputs are columns of the groups, or workers compute them: no Spark is needed."""
    return all(output.tree is not None or _PLAIN.fullmatch(output.expression) for output in view.outputs)
