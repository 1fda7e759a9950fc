"""Scalar expressions in Spark SQL text: who answers for them, and what is computed from them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from penstock.plan.scalar_trees import Scalar


@dataclass(frozen=True, slots=True)
class Derived:
    """A column computed before any condition is judged: by Spark, or by the worker where it can compute all columns of a plan.

    Attributes:
        name: the column's name in the batches handed to operators.
        expression: the Spark SQL text that computes it, over the stream's own columns.
        type: its Arrow type, as `ExpressionHost.types` gives it.
        error_column: name of a boolean column, never NULL, that tells for which rows the expression
            raised; the value is NULL there. None where the expression cannot raise.
    """

    name: str
    expression: str
    type: pa.DataType
    error_column: str | None = None


@dataclass(frozen=True, slots=True)
class Raised:
    """Stands for the value of a constant expression that raises when it is computed."""

    message: str


@dataclass(frozen=True, slots=True)
class Aggregated:
    """What Spark makes of a call of an aggregate function.

    Attributes:
        result: the type of its result.
        argument: the type its first argument is cast to, or has already.
        argument_sql: the same in Spark SQL.
    """

    result: pa.DataType
    argument: pa.DataType
    argument_sql: str


@dataclass(frozen=True, slots=True)
class CommonType:
    """The type to which Spark brings both sides of a comparison.

    Attributes:
        type: as `ExpressionHost.types` gives it.
        sql: the same in Spark SQL.
        is_plain: see `ExpressionHost.plain`.
    """

    type: pa.DataType
    sql: str
    is_plain: bool


class ExpressionHost(Protocol):
    """Answers questions about expressions over the columns of one stream.

    Methods that take several expressions answer in their order.
    """

    #: the name by which the queries given to `schema_of` call the stream
    stream: str

    @property
    def java(self) -> int:
        """The version of Java that runs Spark, such as 17."""
        ...

    def built_in(self, functions: Sequence[str]) -> list[bool]:
        """Whether each function, named without a qualifier, is Spark's own and works as it does by default.

        False where the session registered another by that name.
        """
        ...

    def types(self, expressions: Sequence[str]) -> list[pa.DataType]:
        """The Arrow type of each expression.

        Timestamps are `timestamp("us", "UTC")`, timestamps without time zone `timestamp("us")`.
        Intervals of months and calendar intervals are `month_day_nano_interval()`.

        Raises:
            UnknownNameError: a column or function does not exist.
            TypeMismatchError: operands of types that do not go together.
            UnsupportedError: an aggregate, a window function, a generator or a subquery, or a value
                that differs from one evaluation to the next (`rand()`, `current_timestamp()`).
            SqlError: anything else that is no expression. In all four, `text` is the expression.
        """
        ...

    def plain(self, expressions: Sequence[str]) -> list[bool]:
        """Whether values of each expression's type compare as `penstock.plan.selection.Domain` says.

        False for strings with a collation other than binary, nested types, intervals of months
        and variants: comparisons of those are left to Spark, whichever side they are on.
        Raises what `types` raises.
        """
        ...

    def constants(self, expressions: Sequence[str]) -> list[object]:
        """The exact value of each constant expression, or a `Raised` in its place.

        bool, int, float, str, bytes and `decimal.Decimal` stand for themselves and None for NULL.
        A date is an int of days since 1970-01-01; a timestamp an int of microseconds since then
        (in UTC; of its own wall clock where it has no time zone); a time of day an int of
        nanoseconds; a day-time interval an int of microseconds. Raises what `types` raises.
        """
        ...

    def may_raise(self, expressions: Sequence[str]) -> list[bool]:
        """False where no row can make the expression raise; True where that is not known.

        Raises what `types` raises.
        """
        ...

    def null_on_nulls(self, expressions: Sequence[str]) -> list[bool]:
        """Whether each expression is NULL where all columns are.

        False where it raises there, and where it calls a user's function, which is not run to know. Raises what `types` raises.
        """
        ...

    def trees(self, expressions: Sequence[str]) -> list[Scalar | None]:
        """Each expression as a tree that a worker computes to the same value; None where Spark has to compute it.

        Raises what `types` raises.
        """
        ...

    def equivalent(self, pairs: Sequence[tuple[str, str]]) -> list[bool]:
        """Whether both expressions of each pair resolve to the same computation.

        False where one of them cannot be resolved.
        """
        ...

    def common_types(self, pairs: Sequence[tuple[str, str]]) -> list[CommonType | None]:
        """The type in which Spark compares both expressions of each pair.

        None where it compares them in another way. Raises what `types` raises; `text` is `(left) = (right)`.
        """
        ...

    def aggregates(self, calls: Sequence[str]) -> list[Aggregated]:
        """What Spark makes of calls of aggregate functions such as `sum(DISTINCT x)`.

        Raises what `types` raises.
        """
        ...

    def trees_over(self, columns: pa.Schema, expressions: Sequence[str]) -> list[Scalar | None]:
        """Expressions over other columns than the stream's, as `trees` gives them.

        Raises what `types` raises where an expression is new.
        """
        ...

    def schema_of(self, query: str) -> pa.Schema:
        """The columns a SELECT on `stream` has, its types as `types` gives them.

        Raises:
            UnsupportedError: a value that differs from one evaluation to the next, a subquery in an
                expression, a window function or a generator.
            SqlError: as `types`; `text` is the query.
        """
        ...


@dataclass(frozen=True, slots=True)
class SourceColumn:
    """An expression over the columns of one stream or table: the name of that, and Spark SQL."""

    relation: str
    text: str


class JoinHost(Protocol):
    """Answers questions about queries over several streams and tables."""

    #: the session's time zone
    time_zone: str

    def name_of(self, relation: str) -> str:
        """The name by which the queries given to `schema_of` call a stream or table."""
        ...

    def schema_of(self, query: str) -> pa.Schema:
        """The columns that a SELECT on streams and tables has; see `ExpressionHost.schema_of`."""
        ...

    def over(self, columns: Mapping[str, SourceColumn]) -> ExpressionHost:
        """Answers questions about expressions over rows that were joined.

        Args:
            columns: by name in these rows what each column is.

        Raises what `ExpressionHost.types` raises.
        """
        ...
