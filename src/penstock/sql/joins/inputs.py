"""The inputs of a join as the binder sees them, and the columns that are kept of each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from penstock.errors import UnknownNameError, UnsupportedError
from penstock.plan.expressions import CommonType, ExpressionHost, JoinHost, SourceColumn
from penstock.plan.joins import JoinColumn
from penstock.sql.joins.query import JoinQuery, JoinSource
from penstock.sql.joins.scope import Column, Expression
from penstock.sql.text.lexing import enclosed, ended, name_of, quote, tokenize


@dataclass(frozen=True, slots=True)
class Relation:
    """A stream or static table that inputs may be taken from.

    Attributes:
        name: as it was declared.
        columns: the names of its columns.
        time: its event time column; None for a static table, and for a stream that has none.
        is_static: whether it is a static table.
    """

    name: str
    columns: tuple[str, ...]
    time: str | None
    is_static: bool = False


@dataclass(frozen=True, slots=True)
class Input:
    """An input.

    Attributes:
        source: as it was written.
        relation: what it is taken from.
        columns: what it shows to the query.
        time: the event time, among these or not; None for a static table.
    """

    source: JoinSource
    relation: Relation
    columns: tuple[Column, ...]
    time: Column | None

    @property
    def shows_time(self) -> bool:
        """Whether the query can speak of the event time."""
        return self.time in self.columns


def read_inputs(query: JoinQuery, relations: Mapping[str, Relation], host: JoinHost) -> tuple[Input, ...]:
    """The inputs of a join.

    Args:
        query: the join; views among its inputs are flattened. Inputs are numbered as in its plan.
        relations: streams and static tables, by name in upper case.
        host: Spark's analysis.

    Raises:
        UnknownNameError: an input that is none of these.
        UnsupportedError: a stream without an event time, or no stream at all.
    """
    inputs = tuple(_input(number, source, relations, host) for number, source in enumerate(query.numbered))
    if all(each.relation.is_static for each in inputs):
        clause = query.sources[0].clause
        message = "A join view needs at least one stream; all of its inputs are static tables."
        raise clause.error(UnsupportedError, message)
    return inputs


def _input(number: int, source: JoinSource, relations: Mapping[str, Relation], host: JoinHost) -> Input:
    relation = relations.get(source.relation.upper())
    if relation is None:
        known = [each.name for each in relations.values()]
        raise source.clause.at(
            UnknownNameError.among("Stream or static table", source.relation, known, "Existing ones")
        )
    if relation.time is None and not relation.is_static:
        message = (
            f"Stream {relation.name} has no event time, and a join needs one. Set the table option event_time 'column'. If "
            "the column is a number or text, also set event_time_format, such as 'millis'."
        )
        raise source.clause.error(UnsupportedError, message)
    own = {name.upper(): quote(name) for name in relation.columns}
    columns = tuple(
        Column(number, name, own.get(_single_name(text) or "", text))
        for name, text in _shown(source, relation, host)
    )
    if relation.time is None:
        return Input(source, relation, columns, None)
    text = own[relation.time.upper()]
    time = next((column for column in columns if column.text == text), Column(number, "", text))
    return Input(source, relation, columns, time)


def _shown(source: JoinSource, relation: Relation, host: JoinHost) -> Sequence[tuple[str, str]]:
    """The name and the text, over the relation, of each column that an input shows."""
    whole = [quote(name) for name in relation.columns]
    if source.below is None or source.below.projection is None:
        return list(zip(relation.columns, whole, strict=True))
    outputs = [
        (text, None if output.is_star else output.name)
        for output in source.below.projection
        for text in (whole if output.is_star else [output.expression])
    ]
    selected = ", ".join(
        text if name is None else f"{ended(text)} AS {quote(name)}" for text, name in outputs
    )
    names = host.schema_of(f"SELECT {selected} FROM {host.name_of(relation.name)}").names
    return [(name, text) for name, (text, _) in zip(names, outputs, strict=True)]


def _single_name(text: str) -> str | None:
    tokens = tokenize(text)
    name = name_of(tokens[0]) if len(tokens) == 1 else None
    return None if name is None else name.upper()


def row_name(column: Column) -> str:
    """A column's name among joined rows."""
    return f"_{column.input}_{column.name}"


def row_text(column: Column) -> str:
    """A column over joined rows, to stand in an expression."""
    return quote(row_name(column))


def own_text(column: Column) -> str:
    """A column over its relation, to stand in an expression."""
    return column.text if _single_name(column.text) else enclosed(column.text)


@dataclass(slots=True)
class KeptColumns:
    """What is kept of the tuples of each input, as it is asked for.

    Attributes:
        inputs: the inputs.
        host: Spark's analysis over joined rows that have every column of the query by its `row_name`.
    """

    inputs: tuple[Input, ...]
    host: ExpressionHost
    _kept: dict[tuple[int, str], JoinColumn] = field(default_factory=dict)

    def of(self, number: int) -> tuple[JoinColumn, ...]:
        """What is kept of an input so far."""
        return tuple(column for (owner, _), column in self._kept.items() if owner == number)

    def column(self, column: Column) -> str:
        """Keeps a column; its name."""
        if (column.input, column.text) not in self._kept:
            (kind,) = self.host.types([row_text(column)])
            self._keep(column.input, JoinColumn(row_name(column), column.text, kind))
        return self._kept[column.input, column.text].name

    def text(self, column: Column) -> str:
        """Keeps a column; its name in backquotes, to stand in an expression over joined rows."""
        return quote(self.column(column))

    def computed(self, expression: Expression, cast: CommonType | None = None) -> str:
        """Keeps what is computed from the columns of one input; its name.

        Args:
            expression: over the columns of one input.
            cast: the type to which it is to be brought, None for its own.
        """
        if expression.column is not None and cast is None:
            return self.column(expression.column)
        (number,) = expression.inputs
        text = cast_text(expression.text(own_text), cast)
        if (number, text) in self._kept:
            return self._kept[number, text].name
        return self.added(
            number, text, self.host.types([expression.text(row_text)])[0] if cast is None else cast.type
        )

    def added(self, number: int, text: str, kind: pa.DataType) -> str:
        """Keeps a column of an input that is computed; its name.

        Args:
            number: of the input.
            text: Spark SQL over its relation.
            kind: its type.
        """
        if (number, text) not in self._kept:
            count = sum(1 for column in self.of(number) if column.name.startswith(f"_{number}x"))
            self._keep(number, JoinColumn(f"_{number}x{count}", text, kind))
        return self._kept[number, text].name

    def _keep(self, number: int, column: JoinColumn) -> None:
        self._kept[number, column.text] = column


def cast_text(text: str, cast: CommonType | None) -> str:
    """An expression brought to a type."""
    return text if cast is None else f"CAST({ended(text)} AS {cast.sql})"


def hosted(inputs: tuple[Input, ...], columns: Sequence[Column], host: JoinHost) -> ExpressionHost:
    """Spark's analysis over joined rows that have some columns by their `row_name`."""
    named = {
        row_name(column): SourceColumn(inputs[column.input].relation.name, column.text) for column in columns
    }
    return host.over(named)
