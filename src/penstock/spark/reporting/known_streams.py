"""What the catalog of earlier runs says of a stream, beside what the stream reads now."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql.types import StructType

from penstock.errors import CheckpointError
from penstock.operators.selection.matches import queries_name
from penstock.spark.analysis.gate import stored_schema
from penstock.spark.reporting.catalog import PARTS, known_catalog
from penstock.spark.storage.layout import Layout


def refuse_another_source(layout: Layout, stream: str, parts: Sequence[str]) -> None:
    """Refuses a stream whose checkpoint has positions in what it does not read any more.

    Args:
        layout: the folder.
        stream: its name.
        parts: the folder or the topics that it reads; none where nobody can tell.

    Raises:
        CheckpointError: it reads another folder, or a topic less.
    """
    known = (known_catalog(layout) or {}).get(PARTS, {}).get(stream, ())
    gone = [each for each in known if each not in parts]
    has_begun = any(True for _ in layout.bindings(stream).numbers())
    if parts and gone and has_begun:
        raise CheckpointError(
            f"stream {stream} reads {', '.join(parts)}; the checkpoint {layout.checkpoint} continues with {', '.join(gone)}, "
            "which the stream does not read any more. Put that back, or start with a new output folder and checkpoint"
        )


def added_columns(layout: Layout, stream: str, schema: StructType) -> list[str]:
    """The columns that were added to a stream since its results were last written to; earlier rows have NULL there.

    Raises:
        CheckpointError: a column that the results have is gone, or is of another type, or one is added whose name a column of ours
            has in them.
    """
    document = (known_catalog(layout) or {"streams": {}})["streams"].get(stream)
    if document is None:
        return []
    known = _columns(stored_schema(document))
    now = _columns(schema)
    lost = [
        f"column {name} was {kind} and is {now.get(name, 'gone')}"
        for name, kind in known.items()
        if now.get(name) != kind
    ]
    if lost:
        raise CheckpointError(
            f"stream {stream}: {'; '.join(lost)}. The results in {layout.output} have the columns "
            f"{', '.join(f'{name} {kind}' for name, kind in known.items())}: columns may be added, not dropped, renamed "
            "or given another type. Put them back, or start with a new output folder and checkpoint"
        )
    added = [name for name in now if name not in known]
    ours = queries_name(known)
    if queries_name(now) != ours:
        raise CheckpointError(
            f"stream {stream}: the results in {layout.output} have a column {ours}, the names of queries, and the stream now has "
            "a column of that name too: start with a new output folder and checkpoint"
        )
    return added


def _columns(schema: StructType) -> dict[str, str]:
    return {field.name: field.dataType.simpleString() for field in schema}
