"""UNION ALL views as they are declared: their branches bound to streams, with types in common."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import DataType, StructType

from penstock.errors import TypeMismatchError
from penstock.monitor.figures import counted
from penstock.operators.routing.routers import HashRouter
from penstock.spark.analysis.catalyst import empty_frame
from penstock.spark.analysis.expressions import SparkExpressionHost
from penstock.spark.analysis.schemas import arrow_schema
from penstock.spark.declaring.declared import Declared
from penstock.spark.declaring.definitions import (
    check_expressions,
    check_projections,
    column_names,
    identity_of,
    refuse_reserved,
)
from penstock.spark.ingest.tuple_demands import compile_demands, only
from penstock.spark.recovery.messages import quoted
from penstock.spark.storage.demands import TupleDemand
from penstock.spark.storage.unions import UnionBranch, UnionDefinition, UnitedColumn, column_name
from penstock.sql.script.views import flatten
from penstock.sql.text.clauses import Clause
from penstock.sql.text.query import Output, SelectQuery
from penstock.sql.unions.query import UnionQuery

#: the event time that runs have a column of, where the view has none
_TIME = "time"
#: of a stream without one
_NO_TIME = "timestamp_micros(0)"


@dataclass(frozen=True, slots=True)
class _United:
    """Selections on streams with the same columns.

    Attributes:
        selections: each with its stream; the names in their SELECT lists are those of the columns.
        columns: the columns.
    """

    selections: tuple[tuple[str, SelectQuery], ...]
    columns: StructType


class Uniter:
    """Binds the branches of UNION ALL views.

    Args:
        spark: the session.
        declared: what is declared; it is not changed.
    """

    def __init__(self, spark: SparkSession, declared: Declared) -> None:
        self._spark = spark
        self._declared = declared

    def define(
        self, name: str, text: str, flat: UnionQuery, below: tuple[tuple[str, str], ...]
    ) -> tuple[UnionDefinition, list[tuple[str, SelectQuery]]]:
        """The definition of a UNION ALL view, and its selections, each with its stream.

        Args:
            name: the view's name.
            text: its query as written.
            flat: the query over streams.
            below: (name, text) of the views it selects from, directly or through others.

        Raises:
            SqlError: a mistake in the query.
            InputError: a stream cannot be asked for its tuples.
        """
        united = self._united(flat)
        fields = arrow_schema(united.columns)
        times = [self._times(stream, selection) for stream, selection in united.selections]
        outputs = tuple(
            UnitedColumn(field.name, field.type, all(number in own for own in times))
            for number, field in enumerate(fields)
        )
        refuse_reserved(name, united.columns.fieldNames())
        branches = tuple(
            UnionBranch(stream, self._demand(stream, selection, own))
            for (stream, selection), own in zip(united.selections, times, strict=True)
        )
        kinds = tuple((each.name, str(each.type)) for each in outputs)
        demands = tuple((each.stream, each.demand.condition, each.demand.columns) for each in branches)
        identity = identity_of(name, text, below, kinds, demands)
        return UnionDefinition(name, identity, text, branches, outputs, below), list(united.selections)

    def _united(self, union: UnionQuery) -> _United:
        """The selections of a UNION ALL, those over it among them."""
        parts = [
            self._united(branch)
            if isinstance(branch, UnionQuery)
            else self._selection(branch, is_first=not number)
            for number, branch in enumerate(union.branches)
        ]
        places = [_place(branch) for branch in union.branches]
        first = parts[0].columns
        for part, place in zip(parts[1:], places[1:], strict=True):
            if len(part.columns) != len(first):
                message = (
                    f"This branch has {counted(len(part.columns), 'column')}, the first one has {len(first)}. "
                    "Select as many in each branch of a UNION ALL."
                )
                raise place.error(TypeMismatchError, message)
        columns = self._common(parts, places)
        selections = [
            (stream, _cast(selection, part.columns, columns))
            for part in parts
            for stream, selection in part.selections
        ]
        united = _United(tuple(selections), columns)
        for selected in union.selected:
            united = self._selected(united, selected)
        return united

    def _selection(self, branch: SelectQuery, *, is_first: bool) -> _United:
        """A branch on a stream; names of its columns matter in the first branch alone."""
        stream = self._declared.stream_name(branch)
        host, columns = self._host(stream), self._declared.streams[stream].source.schema
        if is_first:
            check_projections([branch], columns.fieldNames(), host)
        else:
            check_expressions([branch], host)
        return _United(((stream, _named(branch, columns, host)),), _columns(branch, columns, host))

    def _selected(self, united: _United, selected: SelectQuery) -> _United:
        """A selection over what branches put out, computed in each of them."""
        host = SparkExpressionHost(self._spark, united.columns, declaring=True)
        check_projections([selected], united.columns.fieldNames(), host)
        source = selected.source.upper()
        over = _named(selected, united.columns, host)
        selections = [(stream, flatten(over, {source: selection})) for stream, selection in united.selections]
        flat = tuple((stream, each) for stream, each in selections if isinstance(each, SelectQuery))
        return _United(flat, _columns(selected, united.columns, host))

    def _common(self, parts: Sequence[_United], places: Sequence[Clause]) -> StructType:
        """The columns of the view, of the types that Spark gives them."""
        try:
            return self._schema([part.columns for part in parts])
        except AnalysisException:
            for number, (part, place) in enumerate(zip(parts, places, strict=True)):
                self._check_types([each.columns for each in parts[:number]], part.columns, place)
            raise

    def _check_types(self, before: Sequence[StructType], columns: StructType, place: Clause) -> None:
        """Makes sure that each column of a branch has a type in common with those of the branches before.

        Raises:
            TypeMismatchError: one has none.
        """
        for number, field in enumerate(columns if before else ()):
            alone = [StructType([each[number]]) for each in before]
            try:
                self._schema([*alone, StructType([field])])
            except AnalysisException:
                known = self._schema(alone)[0].dataType.simpleString().upper()
                message = (
                    f"Column {number + 1} of this branch is {field.dataType.simpleString().upper()}, that of the branches before is "
                    f"{known}. Cast one of them."
                )
                raise place.error(TypeMismatchError, message) from None

    def _schema(self, columns: Sequence[StructType]) -> StructType:
        frames = [empty_frame(self._spark, _nullable(each)) for each in columns]
        return _nullable(reduce(DataFrame.unionAll, frames).schema)

    def _times(self, stream: str, selection: SelectQuery) -> set[int]:
        """The numbers of the columns that are the stream's event time."""
        time = self._declared.streams[stream].source.event_time
        outputs = enumerate(selection.projection or ())
        return {
            number
            for number, output in outputs
            if time is not None and output.is_name and output.expression.strip("`").upper() == time.upper()
        }

    def _demand(self, stream: str, selection: SelectQuery, times: set[int]) -> TupleDemand:
        """What a stream is asked for, for a branch."""
        source = self._declared.streams[stream].source
        outputs = selection.projection or ()
        columns = [(output.expression, column_name(number)) for number, output in enumerate(outputs)]
        time = _TIME
        if times:
            time = column_name(min(times))
        else:
            columns.append((_NO_TIME if source.event_time is None else quoted(source.event_time), _TIME))
        demand = TupleDemand(
            condition=selection.where,
            columns=tuple(columns),
            key=(),
            time=time,
            router=HashRouter((), 1).document(),
            or_null=tuple(column_name(number) for number in range(len(outputs))),
        )
        compile_demands(only(demand), arrow_schema(source.schema), self._host(stream))
        return demand

    def _host(self, stream: str) -> SparkExpressionHost:
        return self._declared.streams[stream].host


def _named(query: SelectQuery, columns: StructType, host: SparkExpressionHost) -> SelectQuery:
    """The query with a name for each column of its SELECT list, `*` written out."""
    if query.projection is None:
        outputs = [Output(quoted(name), name, Clause.alone(quoted(name))) for name in columns.fieldNames()]
        return replace(query, projection=tuple(outputs))
    (names,) = column_names([query], columns.fieldNames(), host)
    found: list[Output] = []
    for output, own in zip(query.projection, names, strict=True):
        if output.is_star:
            found += [Output(quoted(name), name, Clause.alone(quoted(name))) for name in own]
        else:
            found.append(Output(output.expression, own[0], output.clause))
    return replace(query, projection=tuple(found))


def _columns(query: SelectQuery, columns: StructType, host: SparkExpressionHost) -> StructType:
    """The columns that a query puts out."""
    outputs = _named(query, columns, host).projection or ()
    kinds = host.spark_types([output.expression for output in outputs])
    found = StructType()
    for output, kind in zip(outputs, kinds, strict=True):
        found.add(output.name or "", kind)
    return found


def _cast(selection: SelectQuery, before: StructType, columns: StructType) -> SelectQuery:
    """The selection with the names of columns and, where they are others, their types."""
    outputs = []
    for output, known, wanted in zip(selection.projection or (), before, columns, strict=True):
        text = output.expression
        if known.dataType.simpleString() != wanted.dataType.simpleString():
            text = f"CAST(({text}\n) AS {_written(wanted.dataType)})"
        outputs.append(
            Output(text, wanted.name, output.clause if text == output.expression else Clause.alone(text))
        )
    return replace(selection, projection=tuple(outputs))


def _written(kind: DataType) -> str:
    """A type as Spark SQL reads it, names of fields quoted."""
    if isinstance(kind, StructType):
        return f"STRUCT<{', '.join(f'{quoted(field.name)}: {_written(field.dataType)}' for field in kind)}>"
    return kind.simpleString()


def _nullable(columns: StructType) -> StructType:
    """The columns as ones that may be NULL."""
    found = StructType()
    for field in columns:
        found.add(field.name, field.dataType)
    return found


def _place(branch: SelectQuery | UnionQuery) -> Clause:
    """What is underlined of a branch."""
    if isinstance(branch, UnionQuery):
        return branch.clause
    if not branch.projection:
        return branch.source_clause
    first, last = branch.projection[0].clause, branch.projection[-1].clause
    end = last.start + len(last.text)
    return Clause(first.script[first.start : end], first.script, first.start)
