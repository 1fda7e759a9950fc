"""Binding of window views: their expressions against a stream's columns, their types as Spark gives them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from penstock.errors import (
    DuplicateNameError,
    SqlError,
    TypeMismatchError,
    UnknownNameError,
    UnsupportedError,
)
from penstock.plan.deadlines import AggregateSignature, UserCall
from penstock.plan.expressions import Aggregated, Derived, ExpressionHost
from penstock.plan.names import free_name
from penstock.plan.rankings import PLACE_TYPE, RankedPlan
from penstock.plan.scalar_trees import Scalar
from penstock.plan.spark_types import spark_name
from penstock.plan.windows import GROUPING_ID_TYPE, PICKING, Aggregate, ErrorBound, WindowPlan
from penstock.sql.text.clauses import Clause
from penstock.sql.text.lexing import single_name
from penstock.sql.text.placed import PlacedText
from penstock.sql.windows.aggregate_calls import DISTINCT, AggregateCall
from penstock.sql.windows.listed import listed
from penstock.sql.windows.operand_types import is_window_type, uncompared, users_result
from penstock.sql.windows.query import WINDOW_NAME, WindowQuery, aggregate_name
from penstock.sql.windows.query_texts import QueryTexts
from penstock.sql.windows.ranking import expanded, kept_types, ordered_by, ranked, row_number_names

#: what the early answers of a view without MAX_ERROR may be off by
DEFAULT_BOUND = ErrorBound(0.05, 0.05)

#: an output that is a column of the group, or a bound of its window
PLAIN_OUTPUT = re.compile(r"_w|_w\.(?:start|end)|_[ka]\d+")

#: how Spark's message begins where HAVING aggregates a column beside grouping sets of sliding windows, at which it fails
_SPARK_LOSES_A_COLUMN = "Resolved attribute(s)"
_NAMED_IN_SELECT = (
    "Spark cannot read an aggregate in HAVING beside grouping sets of sliding windows. Name it in SELECT, and "
    "write the name in HAVING: avg(x) AS m .. HAVING m > 1."
)

#: aggregates that order the values of their argument
_ORDERING = frozenset({"min", "max"})
#: aggregates that tell values of their argument apart
_HASHING = frozenset({"approx_count_distinct", "mode", "collect_set", "collect_list", *DISTINCT})


@dataclass(frozen=True, slots=True)
class BoundOutput:
    """A column of a window view's results.

    Attributes:
        expression: Spark SQL text over the columns of a group: `_w`, a struct of `start` and `end`,
            the keys `_k0`, ... and the aggregates `_a0`, ...
        name: its name, the one Spark gives it where there is no alias.
        type: its type.
        tree: how a worker computes it; None: it is a column, or only Spark can.
    """

    expression: str
    name: str
    type: pa.DataType
    tree: Scalar | None = None


@dataclass(frozen=True, slots=True)
class BoundWindow:
    """A window view over the columns of its stream.

    Attributes:
        plan: the view; its columns are the stream's or those of `derived`.
        derived: the columns that have to be computed for it, each distinct expression once.
        condition: the condition of the selection beneath, None if every tuple is selected.
        window_type: the type of `_w`; of a running view a struct of WHOLE.
        outputs: the columns of the results.
        having: the condition on groups, as `BoundOutput.expression`; None if all are kept.
        having_tree: how a worker judges it; None: there is none, or only Spark can.
    """

    plan: RankedPlan | WindowPlan
    derived: tuple[Derived, ...]
    condition: str | None
    window_type: pa.DataType
    outputs: tuple[BoundOutput, ...]
    having: str | None
    having_tree: Scalar | None = None


def bind_window(query: WindowQuery, name: str, schema: pa.Schema, host: ExpressionHost) -> BoundWindow:
    """Binds one window view; see `WindowBinder` for several on the same stream."""
    return WindowBinder(schema, host).bind(query, name)


class WindowBinder:
    """Binds window views on one stream; an expression that several use is one derived column.

    Args:
        schema: the stream's columns.
        host: Spark's analysis of expressions.
    """

    def __init__(self, schema: pa.Schema, host: ExpressionHost) -> None:
        self._columns = {column.upper(): column for column in schema.names}
        self._host = host
        self._derived: dict[str, Derived] = {}

    def bind(self, query: WindowQuery, name: str) -> BoundWindow:
        """Binds a view without aggregates of the user's; see `bind_calling`."""
        return self.bind_calling(query, name, {})[0]

    def bind_calling(
        self, query: WindowQuery, name: str, users: Mapping[str, AggregateSignature]
    ) -> tuple[BoundWindow, tuple[UserCall, ...]]:
        """Binds a view.

        Args:
            query: a window view on the stream, flattened.
            name: the view's name.
            users: the user's aggregates by name in upper case.

        Returns:
            The view; and its calls of the user's aggregates, which are not among those of its plan.

        Raises:
            UnknownNameError: a column or function that does not exist.
            TypeMismatchError: an event time that is none, or arguments of types a function does not take.
            DuplicateNameError: two outputs of one name.
            UnsupportedError: a grouping key or argument that Penstock does not compare as Spark does.
            SqlError: anything else that Spark refuses. In all cases with the place underlined.
        """
        if query.ranking is not None:
            query = expanded(query, query.columns or list(self._columns.values()))
        else:
            query = listed(query, self._host)
        self._refuse_shadowed(query)
        time = self._time(query) if query.time else None
        # over another view Spark groups, by windows too, but over a running view
        by_spark = query.ranking is not None and query.over is not None and not query.is_over_running
        written = [(key.expression, key.clause) for key in query.keys]
        keys = self._compared(written, "A grouping key", may_be_windows=by_spark)
        arguments = self._arguments(query)
        results = self._results(query, arguments, users)
        order = self._compared(ordered_by(query), "A column of ORDER BY")
        texts = QueryTexts(query, self._host.stream)
        written = self._written(query, texts)
        groups = self._schema_of(texts.over_groups())
        outputs = _outputs(query, written, groups)
        window = groups.field(0).type
        trees = self._trees_over_groups(query, window, keys, results)
        outputs = tuple(_with_tree(each, trees.get(each.expression)) for each in outputs)
        used = [*keys, *(argument for own in arguments for argument in own), *order]
        if time is not None:
            moment = window.field(0).type
            if time.type != moment:
                cast = "TIMESTAMP" if moment.tz is not None else "TIMESTAMP_NTZ"
                time = replace(time, type=moment, cast=cast)
            used.insert(0, time)
        names, derived = self._computed(used)
        called = list(zip(query.aggregates, arguments, results, strict=True))
        grouping_id = [("", GROUPING_ID_TYPE)] if query.sets else []
        plan = WindowPlan(
            name,
            "" if time is None else names[time],
            query.windows,
            (*((names[key], key.type) for key in keys), *grouping_id),
            tuple(
                Aggregate(
                    call.function,
                    names[own[0]] if own else None,
                    result,
                    call.parameter,
                    call.accuracy,
                    names[own[1]] if len(own) == 2 else None,
                )
                for call, own, result in called
                if not call.is_users
            ),
            query.hints.max_error or DEFAULT_BOUND,
            slack=query.hints.slack,
            gap=query.gap,
            sets=query.sets,
        )
        if query.ranking is not None:
            plan = ranked(plan, query.ranking, [names[each] for each in order])
        calls = (
            UserCall(users[call.function].name, tuple(names[each] for each in own), result)
            for call, own, result in called
            if call.is_users
        )
        having = _having(query)
        tree = None if having is None else trees.get(having)
        return BoundWindow(plan, derived, query.where, window, outputs, having, tree), tuple(calls)

    def _refuse_shadowed(self, query: WindowQuery) -> None:
        """Spark groups and qualifies by a column of the source rather than by an alias of the same name."""
        below = query.below or ()
        visible = {output.name.upper() for output in below if output.name is not None}
        if query.below is None or any(output.is_star for output in below):
            visible |= self._columns.keys()
        ranking = query.ranking
        keys = {single_name(key.clause.text) for key in query.keys} if ranking is None else set()
        for entry in query.group_by if ranking is None else ranking.aliases:
            name = single_name(entry.text) if not entry.is_qualified() else None
            if name is not None and name in visible and name not in keys:
                message = (
                    "This is also the name of a source column, and Spark takes that column. Rename the alias."
                )
                raise entry.error(UnsupportedError, message)

    def _time(self, query: WindowQuery) -> _Used:
        (time,) = self._typed([(query.time, query.time_clause)])
        kind = time.type
        if not (pa.types.is_timestamp(kind) or pa.types.is_date(kind) or pa.types.is_string(kind)):
            function = "window" if query.gap is None else "session_window"
            message = f"{function}() needs a TIMESTAMP as its time; this is {spark_name(kind)}. Declare the column TIMESTAMP, or set event_time_format."
            raise query.time_clause.error(TypeMismatchError, message)
        return time

    def _compared(
        self, written: Sequence[tuple[str, Clause]], what: str, *, may_be_windows: bool = False
    ) -> list[_Used]:
        """Expressions whose values are compared as Spark does; `what` names them in messages."""
        typed = self._typed(written)
        plain = self._host.plain([text for text, _ in written])
        for (_, clause), used, compared in zip(written, typed, plain, strict=True):
            if not compared and not (may_be_windows and is_window_type(used.type)):
                raise uncompared(clause, used.type, what)
        return typed

    def _arguments(self, query: WindowQuery) -> list[list[_Used]]:
        """The arguments of the aggregates."""
        written = [(argument, call.clause) for call in query.aggregates for argument in call.arguments]
        typed = iter(self._typed(written))
        plain = iter(self._host.plain([argument for argument, _ in written]))
        found: list[list[_Used]] = []
        for call in query.aggregates:
            found.append([next(typed) for _ in call.arguments])
            for place, argument in enumerate(found[-1]):
                if pa.types.is_null(argument.type) and call.function.startswith("collect"):
                    message = "The argument is NULL in every tuple: CAST it to a type."
                    raise call.clause.error(TypeMismatchError, message)
                is_string = pa.types.is_string(argument.type)
                is_ordered = call.function in _ORDERING or (call.function in PICKING and place == 1)
                if not next(plain) and (call.function in _HASHING or (is_ordered and is_string)):
                    raise uncompared(call.clause, argument.type, "The argument")
        return found

    def _results(
        self, query: WindowQuery, arguments: list[list[_Used]], users: Mapping[str, AggregateSignature]
    ) -> list[pa.DataType]:
        """The types of the aggregates' results; casts the arguments as Spark does."""
        if query.ranking is not None:
            return kept_types(
                [
                    (call, [each.type for each in own])
                    for call, own in zip(query.aggregates, arguments, strict=True)
                ]
            )
        known = iter(self._aggregated([call for call in query.aggregates if not call.is_users]))
        results: list[pa.DataType] = []
        for call, own in zip(query.aggregates, arguments, strict=True):
            if call.is_users:
                results.append(users_result(call, [each.type for each in own], users[call.function]))
                continue
            found = next(known)
            results.append(found.result)
            if pa.types.is_null(found.result):
                message = "The result is NULL for every group: CAST the argument to a type."
                raise call.clause.error(TypeMismatchError, message)
            if call.function in PICKING:
                if found.result == pa.month_day_nano_interval():
                    raise uncompared(call.clause, found.result, "An argument")
                if pa.types.is_null(own[1].type):
                    own[1] = replace(own[1], type=pa.bool_(), cast="BOOLEAN")
                continue
            for position, argument in enumerate(own):
                if pa.types.is_null(found.argument):
                    own[position] = replace(argument, type=pa.bool_(), cast="BOOLEAN")
                elif argument.type != found.argument and not _widened(argument.type, found.argument):
                    own[position] = replace(argument, type=found.argument, cast=found.argument_sql)
        return results

    def _aggregated(self, calls: Sequence[AggregateCall]) -> list[Aggregated]:
        try:
            return self._host.aggregates([call.sql for call in calls])
        except SqlError as error:
            call = next(call for call in calls if call.sql == error.text)
            raise call.clause.locating(error, error.text) from None

    def _typed(self, expressions: Sequence[tuple[str, Clause]]) -> list[_Used]:
        try:
            types = self._host.types([text for text, _ in expressions])
        except SqlError as error:
            clause = next(clause for text, clause in expressions if text == error.text)
            raise clause.locating(error, error.text) from None
        return [_Used(text, kind) for (text, _), kind in zip(expressions, types, strict=True)]

    def _written(self, query: WindowQuery, texts: QueryTexts) -> pa.Schema:
        """The columns that Spark finds in the query as it was written."""
        try:
            return self._schema_of(texts.written())
        except SqlError as error:
            if error.text != query.window_clause.script or error.start != query.window_clause.start:
                raise
            if query.sets and query.having and error.message.startswith(_SPARK_LOSES_A_COLUMN):
                raise query.having[-1].clause.error(SqlError, _NAMED_IN_SELECT) from None
            aliases = {each.name.upper() for each in query.outputs if each.name is not None}
            for place in query.items:
                try:
                    self._host.schema_of(texts.written_alone(place).text)
                except UnknownNameError as alone:
                    # GROUP BY may name the other items
                    if alone.name.upper() not in aliases:
                        raise place.at(alone) from None
                except SqlError as alone:
                    raise place.at(alone) from None
            if query.having:
                place = query.having[-1].clause
                raise place.at(error) from None
            raise

    def _trees_over_groups(
        self, query: WindowQuery, window: pa.DataType, keys: Sequence[_Used], results: Sequence[pa.DataType]
    ) -> dict[str, Scalar | None]:
        """How workers compute what is computed from groups; that Spark can is made sure of."""
        named = [(key.name, used.type) for key, used in zip(query.keys, keys, strict=True)]
        named += [(aggregate_name(number), kind) for number, kind in enumerate(results)]
        named += [(name, PLACE_TYPE) for name in row_number_names(query)]
        named += [(query.grouping_id, GROUPING_ID_TYPE)] if query.grouping_id else []
        expressions = [
            each for each in (*query.outputs, *query.having) if not PLAIN_OUTPUT.fullmatch(each.expression)
        ]
        if not expressions:
            return {}
        texts = [each.expression for each in expressions]
        having = _having(query)
        texts += [having] if having is not None and having not in texts else []
        try:
            trees = self._host.trees_over(pa.schema([(WINDOW_NAME, window), *named]), texts)
        except SqlError as error:
            clause = next(each.clause for each in expressions if each.expression == error.text)
            raise clause.locating(error, error.text) from None
        return dict(zip(texts, trees, strict=True))

    def _schema_of(self, query: PlacedText) -> pa.Schema:
        try:
            return self._host.schema_of(query.text)
        except SqlError as error:
            raise query.placed(error) from None

    def _computed(self, used: Sequence[_Used]) -> tuple[dict[_Used, str], tuple[Derived, ...]]:
        """The column of each expression, and those of them that have to be computed."""
        names: dict[_Used, str] = {}
        needed: dict[str, _Used] = {}
        for each in used:
            column = self._columns.get(single_name(each.expression) or "") if each.cast is None else None
            if column is not None:
                names[each] = column
            else:
                needed[each.sql] = each
        unseen = [text for text in needed if text not in self._derived]
        for text, raises in zip(unseen, self._host.may_raise(unseen), strict=True):
            name = free_name(f"__w{len(self._derived)}", self._columns.keys(), also="_error")
            self._derived[text] = Derived(name, text, needed[text].type, f"{name}_error" if raises else None)
        names.update({each: self._derived[each.sql].name for each in used if each not in names})
        return names, tuple(self._derived[text] for text in needed)


@dataclass(frozen=True, slots=True)
class _Used:
    """An expression that a view needs as a column; `cast` is the type Spark casts it to, if it does."""

    expression: str
    type: pa.DataType
    cast: str | None = None

    @property
    def sql(self) -> str:
        return self.expression if self.cast is None else f"CAST({self.expression} AS {self.cast})"


def _outputs(query: WindowQuery, written: pa.Schema, groups: pa.Schema) -> tuple[BoundOutput, ...]:
    """The outputs, where Spark finds the types in both readings of the query that it should."""
    found: list[BoundOutput] = []
    taken: set[str] = set()
    for number, output in enumerate(query.outputs):
        column, kind = written.field(number), groups.field(number + 1).type
        place = output.clause
        if _bare(column.type) != _bare(kind):
            message = (
                f"Spark gives this type {spark_name(column.type)}, not {spark_name(kind)}. Write keys as in GROUP BY, "
                "and give outputs names that are no columns."
            )
            raise place.error(UnsupportedError, message)
        if column.name.upper() in taken:
            message = f"Two columns have the name {column.name}. Rename one with AS."
            raise place.error(DuplicateNameError, message)
        taken.add(column.name.upper())
        found.append(BoundOutput(output.expression, column.name, column.type))
    for number, condition in enumerate(query.having, len(query.outputs) + 1):
        if not pa.types.is_boolean(kind := groups.field(number).type):
            place = condition.clause
            message = f"A condition must be BOOLEAN; this is {spark_name(kind)}. Compare it with a value."
            raise place.error(TypeMismatchError, message)
    return tuple(found)


def _with_tree(output: BoundOutput, tree: Scalar | None) -> BoundOutput:
    return output if tree is None or tree.type != output.type else replace(output, tree=tree)


def _having(query: WindowQuery) -> str | None:
    """The conditions on groups as one."""
    if len(query.having) < 2:
        return query.having[0].expression if query.having else None
    return " AND ".join(f"({condition.expression})" for condition in query.having)


def _widened(kind: pa.DataType, wider: pa.DataType) -> bool:
    """Whether an argument may stay of its type where Spark makes a DOUBLE of it."""
    numeric = pa.types.is_integer(kind) or pa.types.is_floating(kind)
    return bool(numeric and pa.types.is_float64(wider))


def _bare(kind: pa.DataType) -> str:
    """A type without what it says about NULLs."""
    return str(kind).replace(" not null", "")
