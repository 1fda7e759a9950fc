"""LEFT JOINs with static tables beside another outer join: lookups, which are made of the rows that the join beneath makes."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from penstock.errors import UnsupportedError
from penstock.plan.joins import Comparison, JoinKey, Operator
from penstock.sql.joins.as_of import INSTEAD
from penstock.sql.joins.conditions import JoinConditions
from penstock.sql.joins.conjuncts import Conjunct
from penstock.sql.joins.inputs import Input, KeptColumns, Relation, own_text, row_text
from penstock.sql.joins.query import AS_OF, MOST_INPUTS, JoinQuery, JoinSource, JoinWord
from penstock.sql.joins.scope import Expression
from penstock.sql.joins.streams import unjoined
from penstock.sql.text.clauses import Clause
from penstock.sql.text.lexing import enclosed

#: what a script may have written
_WRITTEN = {
    JoinWord.SEMI: "EXISTS, IN or a LEFT SEMI JOIN",
    JoinWord.ANTI: "NOT EXISTS, NOT IN or a LEFT ANTI JOIN",
}


@dataclass(frozen=True, slots=True)
class BoundLookup:
    """What a lookup's ON says, see `plan.joins.Lookup`; conditions on the table alone are pushed into it."""

    keys: tuple[JoinKey, ...]
    comparisons: tuple[Comparison, ...]
    required: tuple[str, ...]


def with_lookups(query: JoinQuery, relations: Mapping[str, Relation]) -> JoinQuery:
    """The join with its lookups named: of several outer joins all LEFT JOINs with static tables but one.

    Args:
        query: the join.
        relations: streams and static tables, by name in upper case.

    Raises:
        UnsupportedError: more than one of the others is an outer join, or there are too many.
    """
    outer = [each for each in query.sources if each.word is not JoinWord.INNER]
    lookups = [each for each in outer if _is_lookup(each, relations)]
    others = [each for each in outer if each not in lookups]
    if len(others) > 1:
        first, second = others[:2]
        if first.word in AS_OF.values() or second.word in AS_OF.values():
            raise second.clause.error(UnsupportedError, _beside_newest(first, second))
        message = (
            f"A{first.word.article} {first.word} with {first.alias} and a{second.word.article} {second.word} with {second.alias} in one "
            f"view are not supported yet: rows would wait for two streams. Beside one such join there may be LEFT JOINs with static "
            f"tables. Make one of the two an inner JOIN."
        )
        raise second.clause.error(UnsupportedError, message)
    chosen = lookups if others else lookups[1:]
    beneath = [each for each in query.sources if each not in chosen]
    if len(beneath) > MOST_INPUTS:
        message = f"A join of more than {MOST_INPUTS} inputs is not supported yet. All LEFT JOINs with static tables but the first are not counted."
        raise beneath[MOST_INPUTS].clause.error(UnsupportedError, message)
    return replace(query, looked_up=tuple(each.alias for each in chosen))


def _beside_newest(first: JoinSource, second: JoinSource) -> str:
    """What is said of two outer joins of which one is with the newest row."""
    return (
        f"A{first.word.article} {first.word} with {first.alias} and a{second.word.article} {second.word} with {second.alias} in one view "
        "are not supported: a join with the newest row of a stream has one other stream. JOINs and LEFT JOINs with static tables may stand "
        f"beside it. {INSTEAD}."
    )


def _is_lookup(source: JoinSource, relations: Mapping[str, Relation]) -> bool:
    relation = relations.get(source.relation.upper())
    return source.word is JoinWord.LEFT and (relation is None or relation.is_static)


def as_inner(query: JoinQuery, aliases: Collection[str]) -> JoinQuery:
    """The join with some of its sources joined by JOIN."""
    sources = [
        replace(each, word=JoinWord.INNER) if each.alias in aliases else each for each in query.sources
    ]
    return replace(query, sources=tuple(sources), looked_up=())


def refuse_filled(word: JoinWord, conjuncts: Sequence[Conjunct], inputs: Sequence[Input], base: int) -> None:
    """Makes sure that the join beneath does not compare columns of lookups.

    Args:
        word: the join's.
        conjuncts: its conditions.
        inputs: all inputs.
        base: how many of them are no lookups.

    Raises:
        UnsupportedError: it does.
    """
    for each in conjuncts:
        for number in each.inputs:
            if number >= base:
                alias = inputs[number].source.alias
                message = (
                    f"The {word} compares {alias}, which a LEFT JOIN before it fills with NULL. This is not supported yet. If every row has "
                    f"a partner in {alias}, write JOIN {inputs[number].source.source} AS {alias}."
                )
                raise each.clause.error(UnsupportedError, message)


def only_spark_computes(word: JoinWord, clause: Clause) -> UnsupportedError:
    """The mistake that only Spark can judge a condition in ON, or of the query in EXISTS or IN."""
    message = (
        f"This condition of {_WRITTEN.get(word, f'a{word.article} {word}')} is not supported yet, because only Spark can compute it. Allowed there: "
        "comparisons (=, <>, <, <=, >, >=, BETWEEN) of an expression of one input with one of the other that cannot "
        "fail, conditions on one input, and AND of these."
    )
    return clause.error(UnsupportedError, message)


def bound_lookup(
    number: int,
    conjuncts: Sequence[Conjunct],
    conditions: JoinConditions,
    filled: Collection[int | None],
) -> BoundLookup:
    """Binds what a lookup's ON says.

    Args:
        number: of the table among the inputs.
        conjuncts: its conditions.
        conditions: those of the join beneath; conditions on the table alone are added to its `pushed`.
        filled: inputs whose columns may be filled with NULL.

    Raises:
        UnsupportedError: no condition joins the table, or only Spark can judge one.
    """
    kept = conditions.kept
    if not any(number in each.inputs and len(each.inputs) > 1 for each in conjuncts):
        raise unjoined(kept.inputs[number])
    types = conditions.common_types(conjuncts)
    keys: list[JoinKey] = []
    comparisons: list[Comparison] = []
    required: list[str] = []
    for place, each in enumerate(conjuncts):
        if each.inputs <= {number}:
            conditions.pushed.setdefault(number, []).append(each.text(own_text))
        elif number not in each.inputs and len(each.inputs) == 1:
            (owner,) = each.inputs
            met = f"CASE WHEN {enclosed(each.text(row_text))} THEN TRUE END"
            _refuse_not_null(each, owner, met, kept, filled)
            met = f"CASE WHEN {enclosed(each.text(own_text))} THEN TRUE END"
            required.append(kept.added(owner, met, pa.bool_()))
        elif number in each.inputs and place in types:
            left, right = conditions.sides(each, types[place])
            for side in (left, right):
                _refuse_not_null(each, side.input, side.expression, kept, filled)
            names = [kept.computed(side.expression, side.cast) for side in (left, right)]
            if each.operator != "=":
                comparisons.append(Comparison(names[0], Operator(each.operator or ""), names[1]))
                continue
            own, other = names if right.input == number else names[::-1]
            keys.append(JoinKey((own, other), types[place].type))
        else:
            raise only_spark_computes(JoinWord.LEFT, each.clause)
    return BoundLookup(tuple(keys), tuple(comparisons), tuple(dict.fromkeys(required)))


def _refuse_not_null(
    conjunct: Conjunct,
    owner: int,
    expression: Expression | str,
    kept: KeptColumns,
    filled: Collection[int | None],
) -> None:
    """Makes sure that what is computed of an input that may be filled with NULL is NULL there."""
    if owner not in filled or (isinstance(expression, Expression) and expression.column is not None):
        return
    text = expression if isinstance(expression, str) else expression.text(row_text)
    if not kept.host.null_on_nulls([text])[0]:
        alias = kept.inputs[owner].source.alias
        message = (
            f"This condition of a LEFT JOIN computes a value of {alias} that is not NULL where {alias} has no partner. This is not "
            f"supported yet: compare a column of {alias}."
        )
        raise conjunct.clause.error(UnsupportedError, message)


def inner_ones(
    conjuncts: Mapping[int, Sequence[Conjunct]], preserved: Collection[int], rejected: Collection[int]
) -> list[int]:
    """The lookups that WHERE makes inner joins, by number.

    Args:
        conjuncts: by number what their ON says.
        preserved: inputs that are never filled with NULL.
        rejected: lookups whose filling makes WHERE untrue.
    """
    return [
        number
        for number, own in conjuncts.items()
        if number in rejected and all(each.inputs <= {*preserved, number} for each in own)
    ]
