"""The answers to SHOW VIEWS and DESCRIBE."""

from __future__ import annotations

from collections.abc import Iterable

from pyspark.sql.types import StructType

from penstock.errors import UnsupportedError
from penstock.spark.analysis.schemas import spark_schema
from penstock.spark.declaring.declared import Declared
from penstock.spark.declaring.insertions import view_of
from penstock.sql.script.mistakes import Mistakes
from penstock.sql.script.statements import Asking, CreateView, Describe, ShowViews


def answered(declared: Declared, asked: Iterable[Asking], mistakes: Mistakes) -> list[str]:
    """Return the answers to what a script asks, each a text of some lines.

    Args:
        declared: all that the script declares.
        asked: what it asks, in order.
        mistakes: takes in names that do not exist, but for those that follow from earlier mistakes.
    """
    answers = []
    for each in asked:
        if isinstance(each, ShowViews):
            answers.append(_views(declared))
        elif not mistakes.follow([each.name], declared.names):
            with mistakes.collected():
                answers.append(_described(declared, each))
    return answers


def _views(declared: Declared) -> str:
    """The names of the views."""
    names = declared.outer_views
    return "\n".join(["views", *(f"  {name}" for name in names)]) if names else "no views"


def _described(declared: Declared, asked: Describe) -> str:
    """The columns of a stream, static table or view, a line each, with the types as Spark writes them."""
    wanted = asked.name.upper()
    waiting = {each.name.upper() for each in declared.waiting if isinstance(each, CreateView)}
    if wanted in waiting:
        return f"view {asked.name}\n  its columns are known once the rules that it reads have no mistakes"
    title, columns = _columns(declared, asked)
    width = max((len(field.name) for field in columns), default=0)
    lines = (f"  {field.name:<{width}}  {field.dataType.simpleString()}" for field in columns)
    return "\n".join([title, *lines])


def _columns(declared: Declared, asked: Describe) -> tuple[str, StructType]:
    """What has a name, and its columns.

    Raises:
        UnknownNameError: there is no stream, static table or view of this name.
        UnsupportedError: it is a table that is only written to.
    """
    wanted = asked.name.upper()
    if (view := declared.spelled.get(wanted)) is not None:
        return f"view {view}", spark_schema(view_of(declared, view).columns)
    for name, stream in declared.streams.items():
        if name.upper() == wanted:
            return f"stream {name}", stream.source.schema
    for name, table in declared.statics.items():
        if name.upper() == wanted:
            return f"static table {name}", table.schema
    for name in declared.tables:
        if name.upper() == wanted:
            message = f"Table {name} is only written to. DESCRIBE the view behind INSERT INTO {name}: its rows have these columns."
            raise UnsupportedError(message, *asked.at())
    raise declared.unknown(asked.name).at(*asked.at())
