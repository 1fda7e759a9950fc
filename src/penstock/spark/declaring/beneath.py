"""The columns of the rows of a view, as views over it see them."""

from __future__ import annotations

from pyspark.sql.types import StructType

from penstock.spark.analysis.schemas import spark_schema
from penstock.spark.declaring.declared import Declared
from penstock.spark.declaring.definitions import joined_columns, rows_schema
from penstock.spark.publication.kinds import running_of
from penstock.spark.storage.joins import JOINS, JoinDefinition
from penstock.spark.storage.unions import UNIONS, UnionDefinition
from penstock.sql.script.views import flatten
from penstock.sql.windows.query import WindowQuery


def columns_beneath(declared: Declared, source: str) -> tuple[str, StructType]:
    """The columns of the rows of a window or join view or a UNION ALL, as a view over it sees them, with the stream of that view.

    Args:
        declared: what is declared.
        source: the view's name.

    Returns:
        The stream, of a running view as `running_of` names it, `JOINS.name` of a join view, `UNIONS.name` of a UNION ALL, and the columns.
    """
    view = declared.views[source]
    if isinstance(view.definition, UnionDefinition):
        return UNIONS.name, spark_schema(view.definition.schema)
    inner = flatten(view.query, declared.queries)
    if isinstance(inner, WindowQuery):
        stream = declared.streams[view.stream]
        place = running_of(view.stream) if inner.is_running else view.stream
        return place, rows_schema(inner, source, stream.source, stream.host)
    assert isinstance(view.definition, JoinDefinition), "it is a window or join view"
    return JOINS.name, joined_columns(view.definition)
