"""What the conditions of a join say, and how it is joined by them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from penstock.errors import UnsupportedError
from penstock.sql.joins.conjuncts import Conjunct, conjuncts, equality
from penstock.sql.joins.inputs import Input, KeptColumns, row_text
from penstock.sql.joins.lookups import inner_ones, refuse_filled
from penstock.sql.joins.memberships import refuse_unknown
from penstock.sql.joins.query import AS_OF, EXISTENCE, JoinQuery, JoinWord
from penstock.sql.joins.scope import Scope
from penstock.sql.text.lexing import enclosed


@dataclass(frozen=True, slots=True)
class Said:
    """What a join's conditions say.

    Attributes:
        scope: what the SELECT list sees.
        inner: what ON and USING of inner joins say.
        last: what those of an outer one say.
        where: what WHERE says, and inner joins behind outer ones of inputs that may be filled with NULL.
        looked_up: what those of lookups say, by number.
    """

    scope: Scope
    inner: list[Conjunct]
    last: list[Conjunct]
    where: list[Conjunct]
    looked_up: dict[int, list[Conjunct]]

    @property
    def joining(self) -> list[Conjunct]:
        """All that ON and USING say, of inner joins before outer ones."""
        return [*self.inner, *self.last, *(each for own in self.looked_up.values() for each in own)]


def said_conditions(
    query: JoinQuery, inputs: Sequence[Input], compared: Conjunct | None, match: Conjunct | None
) -> Said:
    """What is said where.

    Raises:
        UnsupportedError: NOT IN may be unknown, or an outer join compares columns of a lookup.
    """
    named = {each.source.alias: each for each in inputs}
    first = named[query.sources[0].alias]
    scope = Scope([first.source.alias], [first.columns], first.columns)
    inner: list[Conjunct] = []
    last: list[Conjunct] = []
    looked_up: dict[int, list[Conjunct]] = {}
    for source in query.sources[1:]:
        each = named[source.alias]
        right = Scope([source.alias], [each.columns], each.columns)
        on = [equality(name, scope.expression(name), right.expression(name)) for name in source.using]
        is_right = source.word is JoinWord.RIGHT
        scope = scope.joined(source.alias, each.columns, source.using, keeps_right=is_right)
        if source.on is not None:
            on += conjuncts(source.on, scope.within() if source.is_tested else scope)
        if source.word in EXISTENCE:
            scope = scope.before(each.columns, source.word)
        if source.alias in query.looked_up:
            looked_up[inputs.index(each)] = on
        elif source.word is JoinWord.INNER:
            inner += on
        else:
            last += on
    where = conjuncts(query.where, scope) if query.where is not None else []
    if compared is not None:
        if query.outer is not None and query.outer.word is JoinWord.ANTI:
            refuse_unknown(compared, last, [*inner, *where])
        last = [compared, *last]
    if match is not None:
        last = [match, *last]
    if query.outer is not None:
        base = len(inputs) - len(looked_up)
        refuse_filled(query.outer.word, last, inputs, base)
        filled = frozenset(range(base - 1, len(inputs)))
        where = [*(each for each in inner if each.inputs & filled), *where]
        inner = [each for each in inner if not each.inputs & filled]
    return Said(scope, inner, last, where, looked_up)


def parted(
    query: JoinQuery,
    said: Said,
    where: list[Conjunct],
    kept: KeptColumns,
    base: int,
) -> tuple[JoinWord, list[Conjunct], list[Conjunct], list[Conjunct] | None]:
    """How it is joined, the conditions on every row, those by which an optional input matches, those judged after the outer join.

    The last is None for an inner join, as which an outer join is read whose condition after WHERE is true of no row that
    it fills with NULL.

    Raises:
        UnsupportedError: an outer join whose rows without a partner would be those of a static table.
    """
    inner, last = said.inner, said.last
    number, filled = base - 1, frozenset(range(base - 1, len(kept.inputs)))
    outer = query.outer
    if outer is None:
        return JoinWord.INNER, [*inner, *last, *where], [], None
    word = outer.word
    if word is JoinWord.FULL and any(_rejects_null(each, 0, kept) for each in where):
        word = JoinWord.LEFT
    after = [each for each in where if each.inputs & filled]
    before = [each for each in where if not each.inputs & filled]
    if word in AS_OF.values():
        # what WHERE says of the newest row does not choose it
        if any(_rejects_null(each, number, kept) for each in after):
            word = JoinWord.AS_OF
        return word, [*inner, *before], last, after
    # a condition of a FULL JOIN that no row of the first input alone satisfies is judged afterwards
    if word is not JoinWord.FULL and any(_rejects_null(each, number, kept) for each in after):
        return JoinWord.INNER, [*inner, *last, *where], [], None
    _refuse_static(word, kept.inputs[:base])
    if word is JoinWord.FULL:
        return word, [], last, where
    return word, [*inner, *before], last, after


def inner_now(
    query: JoinQuery, word: JoinWord, said: Said, where: Sequence[Conjunct], kept: KeptColumns, base: int
) -> list[str]:
    """Aliases of what WHERE makes inner joins: lookups, or what is joined beneath some."""
    if not query.looked_up or query.outer is None or word is JoinWord.FULL:
        return []
    if word is JoinWord.INNER:
        return [query.outer.alias]
    rejected = [
        number for number in said.looked_up if any(_rejects_null(each, number, kept) for each in where)
    ]
    return [kept.inputs[each].source.alias for each in inner_ones(said.looked_up, range(base - 1), rejected)]


def _refuse_static(word: JoinWord, inputs: Sequence[Input]) -> None:
    """Makes sure that rows without a partner are those of a stream, or find none in a static table."""
    preserved, optional = inputs[:-1], inputs[-1]
    static = next((each for each in inputs if each.relation.is_static), None)
    if word is JoinWord.FULL and static is not None:
        alias, clause = static.source.alias, static.source.clause
        message = (
            f"FULL JOIN with static table {alias} is not supported: a row of {alias} would wait for its partner until the stream "
            "ends. Write LEFT JOIN or RIGHT JOIN, so that rows of the stream alone may have no partner."
        )
        raise clause.error(UnsupportedError, message)
    if optional.relation.is_static or not all(each.relation.is_static for each in preserved):
        return
    refused = preserved[0].source
    place, side = ("end with", "behind") if word is JoinWord.RIGHT else ("start with", "before")
    message = (
        f"{word} cannot {place} static table {refused.alias}, because a stream never ends. Put a stream {side} the "
        f"{word}."
    )
    raise refused.clause.error(UnsupportedError, message)


def _rejects_null(conjunct: Conjunct, optional: int, kept: KeptColumns) -> bool:
    """Whether a condition is known not to be true where all columns of the optional input are NULL."""
    if conjunct.inputs == {optional}:
        (is_untrue,) = kept.host.null_on_nulls(
            [f"CASE WHEN {enclosed(conjunct.text(row_text))} THEN TRUE END"]
        )
        return is_untrue
    sides = [operand.text(row_text) for operand in conjunct.operands if operand.inputs == {optional}]
    return conjunct.operator is not None and any(kept.host.null_on_nulls(sides))
