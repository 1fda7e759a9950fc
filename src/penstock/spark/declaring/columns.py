"""The columns of what is declared, for messages about names that nothing has."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.errors import InputError, UngroupedError, UnknownNameError
from penstock.spark.declaring.declared import Declared, View
from penstock.spark.storage.joins import JoinDefinition
from penstock.spark.storage.refreshed import RefreshedDefinition
from penstock.spark.storage.unions import UnionDefinition
from penstock.sql.text.query import SelectQuery
from penstock.sql.windows.query import WindowQuery


def with_columns(declared: Declared, error: InputError) -> InputError:
    """Return what is wrong with a column that is not grouped: that it, or one in GROUP BY, does not exist, where that is so.

    Any other mistake is returned as it is.

    Args:
        declared: what is declared.
        error: the mistake.
    """
    if not isinstance(error, UngroupedError):
        return error
    columns = _columns(declared, error.source)
    known = {each.upper() for each in columns}
    named = [(error.column, 0, error.end - error.start), *error.keys]
    for name, start, end in named if known else ():
        if name.upper() not in known:
            listed = f"Existing columns of {error.source}"
            unknown = UnknownNameError.among("Column", name, columns, listed)
            return unknown.at(error.text, error.start + start, error.start + end)
    return error


def _columns(declared: Declared, source: str) -> Sequence[str]:
    """The columns of a table, stream or view; () where they are not known."""
    name = source.upper()
    for stream, known in declared.streams.items():
        if stream.upper() == name:
            return known.source.schema.fieldNames()
    for table, static in declared.statics.items():
        if table.upper() == name:
            return static.schema.fieldNames()
    spelled = declared.spelled.get(name)
    return () if spelled is None else _columns_of_view(declared, declared.views[spelled])


def _columns_of_view(declared: Declared, view: View) -> Sequence[str]:
    definition, query = view.definition, view.query
    if isinstance(definition, UnionDefinition | RefreshedDefinition):
        return [each.name for each in definition.outputs]
    if isinstance(definition, JoinDefinition):
        return [each.name for each in definition.plan.outputs]
    if isinstance(query, WindowQuery):
        return [each.name for each in query.outputs if each.name is not None]
    if not isinstance(query, SelectQuery):
        return ()
    found: list[str] = []
    for each in query.projection or ():
        found += _columns(declared, query.source) if each.is_star else [each.name] if each.name else []
    return _columns(declared, query.source) if query.projection is None else found
