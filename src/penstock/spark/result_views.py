"""What must be known of the window views to write and to read their results.

Their definitions lie in the checkpoint, for the tasks and the driver; the schemas of their results lie in the
output folder, for its readers. Both are put before any batch is bound to the operator.
"""

from __future__ import annotations

import pickle
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_type
from pyspark.sql.types import StructType

from penstock.errors import CheckpointError
from penstock.spark.files import numbered, put_json_if_absent, read_json
from penstock.spark.layout import LAYOUT_VERSION, Layout
from penstock.spark.publish import read_manifests, results_of

if TYPE_CHECKING:
    from penstock.spark.bindings import RegisteredWindow
    from penstock.sql.bind_windows import BoundWindow

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
#: the last column, a struct of the window's `start` and `end` and the keys `k0`, `k1` ...: which row this is
ROW = "_row"
#: values of OP
UPSERT, DELETE = "upsert", "delete"

_PLAIN = re.compile(r"_w|_w\.(?:start|end)|_[ka]\d+")


@dataclass(frozen=True, slots=True)
class ReadableView:
    """A window view as readers of the output know it.

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
            whole.add(mark.name, spark_type(mark.type))
        return whole.add(ROW, self.row)


def store_views(
    layout: Layout,
    stream: str,
    operator: int,
    views: Sequence[BoundWindow],
    registered: Mapping[str, RegisteredWindow] | None = None,
) -> None:
    """Stores the views of an operator, durable on return.

    Args:
        layout: output and checkpoint folders.
        stream: the stream's name.
        operator: the number in their `OperatorPlan`.
        views: all of its views.
        registered: the views as they are registered, by name.
    """
    put_json_if_absent(
        layout.keyed(stream) / f"operator-{operator}.json", {"views": pickle.dumps(tuple(views)).hex()}
    )
    described = {
        view.plan.name: {
            "columns": spark_schema(own_schema(view)).jsonValue(),
            "row": spark_type(row_type(view)).jsonValue(),
            **_registration((registered or {}).get(view.plan.name)),
        }
        for view in views
    }
    put_json_if_absent(layout.result_views(stream) / f"{operator}.json", described)


def _registration(window: RegisteredWindow | None) -> dict[str, Any]:
    if window is None:
        return {"definition": None, "floor": None}
    floor = window.beginning.floor if window.beginning is not None else None
    return {"definition": window.definition.id, "floor": floor}


def earlier_operators(
    layout: Layout, stream: str, view: str, definition: str
) -> list[tuple[int, int | None]]:
    """The operators that have answered a view of a definition, with their floors; the newest is the last."""
    found = []
    for operator in numbered(layout.result_views(stream)):
        document: dict[str, Any] = read_json(layout.result_views(stream) / f"{operator}.json") or {}
        if view in document and document[view]["definition"] == definition:
            found.append((operator, document[view]["floor"]))
    return found


def stored_views(layout: Layout, stream: str, operator: int) -> dict[str, BoundWindow]:
    """The views of an operator by name.

    Raises:
        CheckpointError: they cannot be read.
    """
    document = read_json(layout.keyed(stream) / f"operator-{operator}.json")
    if document is None:
        raise CheckpointError(
            f"stream {stream}: the window views of operator {operator} are missing in {layout.keyed(stream)}; "
            "put the checkpoint folder back from a copy, or start with a new checkpoint and a new output folder"
        )
    try:
        views: tuple[BoundWindow, ...] = pickle.loads(bytes.fromhex(document["views"]))
    except (AttributeError, ImportError, TypeError, ValueError) as error:
        raise CheckpointError(
            f"the window views of operator {operator} were stored by another version of Penstock; "
            "start with a new checkpoint and a new output folder"
        ) from error
    return {view.plan.name: view for view in views}


def readable_view(layout: Layout, stream: str, view: str) -> ReadableView | None:
    """A window view by its newest definition; None where the stream never had it.

    Raises:
        CheckpointError: the folder was written by an older version.
    """
    for operator in reversed(numbered(layout.result_views(stream))):
        document: dict[str, Any] = read_json(layout.result_views(stream) / f"{operator}.json") or {}
        if view in document:
            if "definition" not in document[view]:
                identity = read_json(layout.output / "_penstock" / "identity.json") or {}
                raise CheckpointError(
                    f"the results folder {layout.output} has layout {identity.get('layout')}, this version reads "
                    f"layout {LAYOUT_VERSION}; read view {view} with the version of Penstock that wrote it, or "
                    "answer it anew with a new checkpoint and a new output folder"
                )
            columns, row = (StructType.fromJson(document[view][part]) for part in ("columns", "row"))
            definition = document[view]["definition"]
            if definition is None:
                return ReadableView(operator, columns, row, ((operator, None),))
            own = earlier_operators(layout, stream, view, definition)
            return ReadableView(operator, columns, row, tuple(own))
    return None


def result_parts(layout: Layout, stream: str, readable: ReadableView) -> list[tuple[int, int | None]]:
    """The operators whose rows make up the results, each with the end of the last window that counts, if any."""
    several = len(readable.operators) > 1
    whole = whole_operators(read_manifests(layout, results_of(stream))) if several else set()
    found: list[tuple[int, int | None]] = []
    until: int | None = None
    for operator, floor in reversed(readable.operators):
        found.append((operator, until))
        if floor is None:
            break
        if operator in whole:
            until = floor if until is None else min(until, floor)
    return found


def whole_operators(manifests: Iterable[Mapping[str, Any]]) -> set[int]:
    """The operators that have been given the tuples of the batches before their first one, by the results' manifests."""
    return {each for manifest in manifests for figures in manifest["batches"] for each in figures["whole"]}


def own_schema(view: BoundWindow) -> pa.Schema:
    """A view's own columns."""
    return pa.schema([(output.name, output.type) for output in view.outputs])


def row_type(view: BoundWindow) -> pa.StructType:
    """The type of ROW."""
    keys = [(f"k{number}", kind) for number, (_, kind) in enumerate(view.plan.keys)]
    return pa.struct([*((part.name, part.type) for part in view.window_type), *keys])


def is_plain(view: BoundWindow) -> bool:
    """Whether its outputs are columns of the groups, all of which are kept: no Spark is needed."""
    return view.having is None and all(_PLAIN.fullmatch(output.expression) for output in view.outputs)


def spark_schema(schema: pa.Schema) -> StructType:
    """Arrow's columns as Spark's."""
    whole = StructType()
    for field in schema:
        whole.add(field.name, spark_type(field.type))
    return whole


def spark_type(kind: pa.DataType) -> Any:
    """Arrow's type as Spark's; timestamps without time zone are TIMESTAMP_NTZ."""
    return from_arrow_type(kind, prefer_timestamp_ntz=True)
