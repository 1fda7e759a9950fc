"""Binding of join views: from the text to inputs, keys, bounds on event time and what is left to Spark.

`bind_join` takes what `penstock.sql.script.views.flatten` makes of a view's query, in which inputs are tables or
selections over tables.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

import pyarrow as pa

from penstock.errors import DuplicateNameError, SqlError, UnknownNameError, UnsupportedError
from penstock.plan.expressions import JoinHost
from penstock.plan.joins import JoinInput, JoinOutput, JoinPlan, Lookup, OptionalJoin
from penstock.plan.notes import Note
from penstock.plan.spark_types import spark_name
from penstock.sql.conditions.dropped_escapes import pattern_warnings
from penstock.sql.conditions.parsing import parse_condition
from penstock.sql.joins.as_of import matched, refuse_without_key
from penstock.sql.joins.blame import blamed
from penstock.sql.joins.conditions import JoinConditions
from penstock.sql.joins.conjuncts import Conjunct
from penstock.sql.joins.inputs import Input, KeptColumns, Relation, hosted, read_inputs, row_text
from penstock.sql.joins.lookups import as_inner, bound_lookup, only_spark_computes, with_lookups
from penstock.sql.joins.memberships import comparison, refuse_mixed_types, tested_condition
from penstock.sql.joins.outputs import Output, select_list, selected_outputs
from penstock.sql.joins.query import JoinQuery, JoinWord
from penstock.sql.joins.said import inner_now, parted, said_conditions
from penstock.sql.joins.streams import bound_streams, refuse_unjoined
from penstock.sql.joins.texts import selected_from, written
from penstock.sql.joins.user_predicates import UserPredicates
from penstock.sql.text.intervals import length_text
from penstock.sql.text.lexing import enclosed, quote
from penstock.sql.text.placed import PlacedText

#: what a join tells of its optional input; a RIGHT JOIN is a LEFT one turned round
_KINDS = {
    JoinWord.FULL: OptionalJoin.FULL,
    JoinWord.SEMI: OptionalJoin.SEMI,
    JoinWord.ANTI: OptionalJoin.ANTI,
    JoinWord.AS_OF: OptionalJoin.AS_OF,
    JoinWord.LEFT_AS_OF: OptionalJoin.LEFT_AS_OF,
}


def bind_join(
    query: JoinQuery,
    name: str,
    relations: Mapping[str, Relation],
    host: JoinHost,
    functions: Collection[str] = (),
    *,
    is_judged: bool = False,
) -> tuple[JoinPlan, list[str]]:
    """Binds a join view.

    Args:
        query: the view, flattened.
        name: the view's name.
        relations: the streams and static tables that may be joined, by name in upper case.
        host: Spark's analysis over them.
        functions: names of the users' functions that take arrays and return one.
        is_judged: whether workers judge all that an optional input is joined by: what only Spark computes is refused.

    Returns:
        The plan, and what is allowed in the view and seldom meant, a text each.

    Raises:
        UnknownNameError: an input, a column or a function that does not exist, or a name that several columns have.
        TypeMismatchError: values that Spark does not compare.
        DuplicateNameError: two columns of one name.
        UnsupportedError: streams without a bound between their event times, inputs that no condition joins, or what no
            join view may have.
        SqlError: anything else that Spark refuses. In all cases with the place underlined.
    """
    query = with_lookups(query, relations)
    inputs = read_inputs(query, relations, host)
    base = len(inputs) - len(query.looked_up)
    compared, match = comparison(query, inputs), matched(query, inputs)
    text = written(query, inputs, host, compared, tested_condition(query, inputs))
    try:
        said = said_conditions(query, inputs, compared, match)
        where = said.where
        outputs = select_list(query, said.scope)
        schema = _schema(text, inputs, (*said.joining, *where), outputs, host)
        selected: list[Conjunct] = []
        for selection in query.selected:
            text = selected_from(text, selection)
            outputs, further = selected_outputs(selection, outputs, schema.names)
            where += further
            selected += further
            schema = _schema(text, inputs, (*said.joining, *where), outputs, host)
    except UnknownNameError as error:
        _require_refused(text, host, error)
        raise
    kept = _kept(inputs, (*said.joining, *where), outputs, host)
    _check_outputs(outputs, schema, kept)
    if compared is not None:
        refuse_mixed_types(compared, kept.host)
    word, every, matching, after = parted(query, said, where, kept, base)
    turned = inner_now(query, word, said, where, kept, base)
    if turned:
        return bind_join(as_inner(query, turned), name, relations, host, functions, is_judged=is_judged)
    optional = None if after is None else base - 1
    is_full = word is JoinWord.FULL
    refuse_unjoined(inputs[:optional], every)
    refuse_unjoined(inputs[:base], (*every, *matching))
    times = [None if each.time is None else kept.column(each.time) for each in inputs]
    is_bound = optional is not None and not inputs[optional].relation.is_static
    bounds = bound_streams(
        inputs[:base],
        every,
        matching if is_bound else None,
        kept.host,
        host.time_zone,
        query.hints,
        match,
        selected,
    )
    if match is not None:
        refuse_without_key(matching, inputs[base - 1].source, base - 1)
    users = None if optional is not None else UserPredicates(kept, functions, host.time_zone)
    conditions = JoinConditions(kept, base, optional, users, is_full)
    conditions.add([each for each in every if each not in bounds.exact])
    conditions.add([each for each in matching if each not in bounds.exact], is_outer=True)
    if is_judged and query.outer is not None and conditions.unjudged is not None:
        raise only_spark_computes(query.outer.word, conditions.unjudged)
    keys = conditions.keys()
    filled = {0, optional} if is_full else {optional}
    filled |= set(range(base, len(inputs)))
    lookups = {
        number: bound_lookup(number, own, conditions, filled) for number, own in said.looked_up.items()
    }
    residual, filters = conditions.residual, [each.text(kept.text) for each in after or ()]
    if after is not None:
        residual, filters = conditions.matching, [*conditions.residual, *filters]
    columns = tuple(
        _output(output, field, kept, filled) for output, field in zip(outputs, schema, strict=True)
    )
    read = [*residual, *filters, *(each.text for each in columns)]
    matched_by = {name for key in keys for name in key.columns if name is not None}
    matched_by |= {name for each in conditions.comparisons for name in (each.left, each.right)}
    of_optional = read if is_full else [*read, *map(quote, matched_by)]
    is_untimed = sum(each is not None for each in times) == 1
    found = [
        _input(
            number,
            time,
            kept,
            conditions,
            is_untimed and time is not None,
            None if optional is None else of_optional if number == optional else read,
        )
        for number, time in enumerate(times)
    ]
    plan = JoinPlan(
        name,
        tuple(found[:base]),
        keys,
        bounds.bounds,
        tuple(conditions.comparisons),
        tuple(residual),
        columns,
        () if optional is None else (optional,),
        tuple(filters),
        tuple(users.predicates) if users is not None else (),
        _KINDS.get(word, OptionalJoin.LEFT),
        bounds.wider,
        tuple(
            Lookup(found[number], own.keys, own.comparisons, own.required) for number, own in lookups.items()
        ),
    )
    return plan, [*_left_out(query, plan), *conditions.warnings, *_pattern_warnings(query)]


def _left_out(query: JoinQuery, plan: JoinPlan) -> Iterator[str]:
    """Yield what STATE_TTL leaves out."""
    if query.hints.state_ttl is None:
        return
    length = length_text(query.hints.state_ttl)
    counted = f" Pairs up to {length} further apart are counted (beyond_ttl)." if plan.wider else ""
    yield Note(
        f"STATE_TTL: on the sides that no condition bounds, event times of joined rows are at most {length} apart; other pairs are left out."
        f"{counted}"
    )


def _pattern_warnings(query: JoinQuery) -> Iterator[str]:
    """Yield the warnings of text patterns in the conditions of a join."""
    clauses = [*(each.on for each in query.sources), query.where]
    clauses += [clause for selection in query.selected for clause in selection.conditions]
    for clause in clauses:
        if clause is not None:
            yield from pattern_warnings(clause, parse_condition(clause.text))


def _schema(
    text: PlacedText,
    inputs: tuple[Input, ...],
    conditions: Sequence[Conjunct],
    outputs: Sequence[Output],
    host: JoinHost,
) -> pa.Schema:
    try:
        return host.schema_of(text.text)
    except SqlError as error:
        is_of_all = (error.start, error.end) == (0, len(text.text))
        found = blamed(error, inputs, conditions, outputs, host) if is_of_all else None
        raise found or text.placed(error) from None


def _require_refused(text: PlacedText, host: JoinHost, error: UnknownNameError) -> None:
    """Makes sure that Spark does not know a name either.

    Raises:
        UnsupportedError: it does.
    """
    try:
        host.schema_of(text.text)
    except SqlError:
        return
    message = (
        "This name is ambiguous in a join view. Write columns with the name of their input, such as f.k."
    )
    raise UnsupportedError(message, error.text, error.start, error.end)


def _kept(
    inputs: tuple[Input, ...], conditions: Sequence[Conjunct], outputs: Sequence[Output], host: JoinHost
) -> KeptColumns:
    """The inputs with nothing kept yet, on a host that has been asked for the types of all expressions at once."""
    expressions = [operand for each in conditions for operand in each.operands]
    expressions += [output.expression for output in outputs]
    columns = dict.fromkeys(each.time for each in inputs if each.time is not None)
    columns.update(dict.fromkeys(column for expression in expressions for column in expression.columns))
    over_rows = hosted(inputs, tuple(columns), host)
    over_rows.types([*map(row_text, columns), *(expression.text(row_text) for expression in expressions)])
    return KeptColumns(inputs, over_rows)


def _check_outputs(outputs: Sequence[Output], schema: pa.Schema, kept: KeptColumns) -> None:
    """Makes sure that names and types of the view's columns are those that Spark gives them."""
    types = kept.host.types([output.expression.text(row_text) for output in outputs])
    taken: set[str] = set()
    for output, kind, column in zip(outputs, types, schema, strict=True):
        name = column.name
        if str(kind).replace(" not null", "") != str(column.type).replace(" not null", ""):
            message = f"Spark reads this name differently, as {spark_name(column.type)}. Write columns with the name of their input, such as f.k."
            raise output.clause.error(UnsupportedError, message)
        if name.upper() in taken:
            message = f"Two columns have the name {name}. List the columns to select, and rename one with AS."
            raise output.clause.error(DuplicateNameError, message)
        taken.add(name.upper())


def _input(
    number: int,
    time: str | None,
    kept: KeptColumns,
    conditions: JoinConditions,
    is_untimed: bool,
    read: Sequence[str] | None,
) -> JoinInput:
    """An input.

    Args:
        number: its number.
        time: its event time, a column that is kept.
        kept: what is kept of all of them.
        conditions: what they are joined by.
        is_untimed: whether its event time does not matter.
        read: of an outer join what is told of joined rows, for its optional input also the columns by which it matches: a tuple for
            which anything else raises has no partner, and stays. None: a tuple for which something raises is in no row.
    """
    source, relation = kept.inputs[number].source, kept.inputs[number].relation
    plain = set(map(quote, relation.columns))
    matching = [
        column.name
        for column in kept.of(number)
        if column.text not in plain
        and read is not None
        and not any(quote(column.name) in text for text in read)
    ]
    texts = [clause.text for clause in source.below.conditions] if source.below is not None else []
    texts += conditions.pushed.get(number, ())
    condition = " AND ".join(map(enclosed, texts)) if len(texts) > 1 else None
    return JoinInput(
        source.alias,
        relation.name,
        relation.is_static,
        condition or (texts[0] if texts else None),
        kept.of(number),
        time,
        tuple(matching),
        is_untimed,
    )


def _output(output: Output, field: pa.Field, kept: KeptColumns, filled: Collection[int | None]) -> JoinOutput:
    """A column of the view; computed per tuple where that is the same as per joined row.

    Args:
        output: the item.
        field: its name and type.
        kept: what is kept of the inputs.
        filled: those that may be filled with NULL.
    """
    expression = output.expression
    column: str | None = None
    if expression.column is not None:
        column = kept.column(expression.column)
    elif (
        len(expression.inputs) == 1
        and expression.inputs.isdisjoint(filled)
        and not kept.host.may_raise([expression.text(row_text)])[0]
    ):
        column = kept.computed(expression)
    text = quote(column) if column is not None else expression.text(kept.text)
    return JoinOutput(field.name, text, field.type, column)
