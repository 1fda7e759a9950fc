"""From tokens to a ranking: `QUALIFY`, or a condition on the place that a query in FROM computes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from sqlglot.tokenizer_core import Token, TokenType

from penstock.errors import SqlError, UnknownNameError, UnsupportedError
from penstock.plan.rankings import ROW_NUMBER
from penstock.plan.windows import ALL_TIME
from penstock.sql.conditions.operands import BARE_FUNCTIONS
from penstock.sql.text.clauses import Clause
from penstock.sql.text.hints import Hints
from penstock.sql.text.lexing import (
    enclosed,
    outer,
    own_name,
    query_in_from,
    quote,
    spelling,
    tokenize,
)
from penstock.sql.text.parts import UNSUPPORTED, Item, Parts, split_query, unqualified
from penstock.sql.text.query import parse_input
from penstock.sql.unions.parsing import named_in_from
from penstock.sql.windows.aggregate_calls import is_aggregate
from penstock.sql.windows.group_expressions import Column, columns_of
from penstock.sql.windows.query import (
    GroupExpression,
    Key,
    RankingClause,
    WindowQuery,
    key_name,
)
from penstock.sql.windows.ranking import STAR, KeptColumns
from penstock.sql.windows.ranking_bounds import limit_of, unbounded
from penstock.sql.windows.ranking_calls import (
    ALLOWED_RANKING,
    PLACE,
    RankingCall,
    refused,
    without_calls,
)

#: hints that are about windows
_OF_WINDOWS = ("MAX_ERROR", "DEADLINE", "LOSS", "CUMULATE")
#: said of GROUP BY in the query that ranks
_GROUPED = (
    "GROUP BY in the query that ranks is not supported yet. Group in its FROM: "
    "SELECT ..., ROW_NUMBER() OVER (...) AS place FROM (SELECT keys, aggregates FROM ... GROUP BY keys)."
)
#: name of the query in FROM, if it has no other
_RANKED = "__penstock_ranked"


def is_ranking(tokens: Sequence[Token]) -> bool:
    """Whether a query ranks tuples by itself, or has a query in FROM that does."""
    if any(token.token_type is TokenType.QUALIFY for _, token in outer(tokens)):
        return True
    place = query_in_from(tokens)
    if place is None:
        return False
    kinds = {token.token_type for _, token in outer(tokens[place[0] + 1 : place[1]])}
    return TokenType.OVER in kinds and TokenType.QUALIFY not in kinds


def parse_ranking(script: str, tokens: Sequence[Token]) -> WindowQuery:
    """Reads a query for which `is_ranking` holds.

    Raises:
        UnsupportedError: what no ranking may have, such as no bound of the place.
        SqlError: what is no query of Spark, or hints that do not go with it.
    """
    place = query_in_from(tokens)
    if place is None or any(token.token_type is TokenType.QUALIFY for _, token in outer(tokens)):
        return _Qualified(script, tokens).query()
    return _Nested(script, tokens, place).query()


class _Ranking:
    """What both forms have in common: one call, columns that are kept, and a condition on the place.

    Args:
        script: the text the tokens come from.
    """

    def __init__(self, script: str) -> None:
        self.script = script
        self.call: RankingCall | None = None

    def without_calls(self, clause: Clause) -> tuple[Clause, bool]:
        """A clause with `PLACE` for its calls, which are all one, and whether it has any."""
        text, calls = without_calls(clause)
        for call in calls:
            self.call = self.call or call
            if call.spelled != self.call.spelled:
                raise refused(
                    call.clause, "Several rankings in one view are not supported yet. Make each a view."
                )
        return text, bool(calls)

    def made(
        self,
        parts: Parts,
        hints: Hints,
        lists: tuple[Sequence[Item], Sequence[Clause] | None],
        condition: Clause,
        scope: _Scope,
    ) -> WindowQuery:
        """The query.

        Args:
            parts: the clauses of the query that has the stream.
            hints: those of the whole.
            lists: the SELECT list of the whole; and that of the query in FROM.
            condition: the one on the place.
            scope: what names stand for in both.
        """
        call = self.call
        if call is None:
            raise refused(condition, "QUALIFY needs a ranking, such as ROW_NUMBER() OVER (...) <= 10.")
        keys = _keys(call)
        kept = KeptColumns(keys)
        having = _over_tuples(condition, scope, kept)
        limit, is_bound = limit_of(having, condition)
        if call.function == ROW_NUMBER:
            # the place is the key by which rows are told apart
            name = key_name(len(keys)) if limit > 1 else None
        else:
            name, is_bound = None, False
        outputs: list[GroupExpression] = []
        for item in lists[0]:
            outputs += _outputs(item, scope, kept)
        texts = [*(output.expression for output in outputs), having]
        if name is None and any(PLACE in text for text in texts):
            name = kept.place(call.function, call.clause)
        outputs = [replace(each, expression=each.expression.replace(PLACE, name or "")) for each in outputs]
        conditions = GroupExpression(having.replace(PLACE, name or ""), None, condition)
        _check_hints(
            hints, self.script, is_one_row=call.function == ROW_NUMBER and limit == 1, has_keys=bool(keys)
        )
        return WindowQuery(
            source=parts.source,
            source_clause=parts.source_clause,
            time="",
            time_clause=call.clause,
            windows=ALL_TIME,
            window_clause=call.clause,
            group_by=(),
            grouped=(),
            keys=keys,
            aggregates=kept.calls,
            outputs=tuple(outputs),
            having=() if is_bound else (conditions,),
            conditions=() if parts.where is None else (parts.where,),
            ranking=RankingClause(
                call.function,
                call.order,
                limit,
                tuple(item.clause for item in lists[0]),
                None if lists[1] is None else tuple(lists[1]),
                scope.used_in(condition) if lists[1] is None else (),
                None if lists[1] is None else condition,
            ),
            hints=hints,
            inner=parse_input(self.script, parts.within) if parts.within else None,
        )


class _Nested(_Ranking):
    """`SELECT ... FROM (SELECT ..., ROW_NUMBER() OVER (...) AS place FROM stream) WHERE place <= 10`."""

    def __init__(self, script: str, tokens: Sequence[Token], place: tuple[int, int]) -> None:
        super().__init__(script)
        own = tokens[place[0] + 1 : place[1]]
        _refuse_join(script, own)
        self._inner = split_query(script, own)
        self._outer = split_query(script, named_in_from(script, tokens, place, lambda _: _RANKED))

    def query(self) -> WindowQuery:
        inner, outer = self._inner, self._outer
        _refuse_groups(inner)
        _refuse_groups(
            outer,
            "Groups of a ranking in one text are not supported yet. Make the ranking a view, and group its rows.",
        )
        items = []
        for item in inner.items:
            text, is_called = self.without_calls(item.expression)
            if is_called and (text.text.strip() != PLACE or item.alias is None):
                raise refused(
                    item.clause, "A place needs a name of its own, and nothing around it: AS place."
                )
            items.append((item, text))
        scope = _Scope.of_inner(items)
        if outer.where is None:
            raise unbounded(self.call.clause if self.call else outer.source_clause)
        written = [
            Clause(f"1 AS {quote(item.alias or '')}", item.clause.script, item.clause.start)
            if text.text.strip() == PLACE
            else item.clause
            for item, text in items
        ]
        if outer.hints and inner.hints:
            message = "Hints are given twice. Write them behind the first SELECT."
            raise SqlError(message, self.script, inner.hints.start, inner.hints.end)
        hints = outer.hints or inner.hints
        return self.made(inner, hints, (outer.items, written), outer.where, scope)


class _Qualified(_Ranking):
    """`SELECT ... FROM stream QUALIFY ROW_NUMBER() OVER (...) <= 10`."""

    def __init__(self, script: str, tokens: Sequence[Token]) -> None:
        super().__init__(script)
        places = [number for number, token in enumerate(tokens) if token.token_type is TokenType.QUALIFY]
        self._place = tokens[places[0]]
        _refuse_join(script, tokens)
        self._parts = split_query(script, tokens[: places[0]])
        self._condition = tokens[places[0] + 1 :]
        for _, token in outer(self._condition):
            if token.token_type in UNSUPPORTED:
                message = f"{UNSUPPORTED[token.token_type]} is not supported yet. {ALLOWED_RANKING}"
                raise UnsupportedError(message, script, token.start, token.end + 1)
        if not self._condition:
            raise SqlError("Expected a condition here.", script, self._place.start, self._place.end + 1)

    def query(self) -> WindowQuery:
        parts = self._parts
        _refuse_groups(parts)
        items, written = [], []
        for item in parts.items:
            text, is_called = self.without_calls(item.expression)
            if is_called and item.alias is None:
                raise refused(item.clause, "A place needs a name: AS place.")
            items.append(replace(item, expression=text))
            named = (
                f"{text.text.replace(PLACE, '1')} AS {quote(item.alias or '')}"
                if is_called
                else item.clause.text
            )
            written.append(Clause(named, item.clause.script, item.clause.start))
        condition, _ = self.without_calls(unqualified(self.script, self._condition, parts.qualifier))
        aliases = {
            item.alias.upper(): f"({item.expression.text.strip()})"
            for item in items
            if item.alias is not None and item.expression.text.strip().upper() != item.alias.upper()
        }
        scope = _Scope(aliases, is_open=True)
        listed = [replace(item, clause=clause) for item, clause in zip(items, written, strict=True)]
        return self.made(parts, parts.hints, (listed, None), condition, scope)


@dataclass(frozen=True, slots=True)
class _Scope:
    """What names stand for.

    Attributes:
        names: names in upper case, and expressions over the source's columns or the place.
        is_open: whether other names are the source's columns.
        stars: the SELECT list beneath, for `*`: (expression, name) pairs; None: `*` is that of the source.
    """

    names: Mapping[str, str]
    is_open: bool
    stars: tuple[tuple[str, str | None], ...] | None = None

    @classmethod
    def of_inner(cls, items: Sequence[tuple[Item, Clause]]) -> _Scope:
        """Of what a query in FROM puts out."""
        names, stars = {}, list[tuple[str, str | None]]()
        for item, text in items:
            own = item.alias or own_name(tokenize(item.expression.text))
            expression = text.text.strip()
            stars.append((expression, own))
            if own is not None:
                names[own.upper()] = expression if expression.isidentifier() else enclosed(expression)
        return cls(names, any(text == STAR for text, _ in stars), tuple(stars))

    def used_in(self, clause: Clause) -> tuple[Clause, ...]:
        """The names that stand for something else, where they are written."""
        columns = columns_of(clause, ALLOWED_RANKING)
        return tuple(
            clause.part(start, each.end) for start, each in columns.items() if self._stands_for_other(each)
        )

    def _stands_for_other(self, column: Column) -> bool:
        # with the source's name before it, it is no alias of the same list
        is_alias = self.stars is not None or not column.is_qualified
        return is_alias and column.name.upper() in self.names

    def resolved(self, clause: Clause) -> str:
        """An expression over the source's columns and the place.

        Raises:
            UnknownNameError: a name that the query in FROM does not put out.
        """
        text = clause.text
        for start, column in sorted(columns_of(clause, ALLOWED_RANKING).items(), reverse=True):
            own = column.name.upper()
            if self._stands_for_other(column):
                text = text[:start] + self.names[own] + text[column.end :]
            elif not self.is_open and own not in BARE_FUNCTIONS:
                known = [name.lower() for name in self.names]
                error = UnknownNameError.among("Column", column.name, known, "Existing columns")
                raise clause.at(error, start, column.end)
        return text.strip()


def _outputs(item: Item, scope: _Scope, kept: KeptColumns) -> list[GroupExpression]:
    """The columns that an item of the SELECT list is."""
    if item.expression.text.strip() == STAR:
        if scope.stars is None:
            return [GroupExpression(STAR, None, item.clause)]
        return [
            GroupExpression(
                text if text in (STAR, PLACE) else kept.name(text, item.clause), name, item.clause
            )
            for text, name in scope.stars
        ]
    for position in range(len(tokens := tokenize(item.expression.text))):
        if is_aggregate(tokens, position):
            raise refused(item.clause, "An aggregate over a ranking is not supported yet.")
    # an alias is not visible in the list that makes it
    visible = scope if scope.stars is not None else _Scope({}, is_open=True)
    name = item.alias or own_name(tokenize(item.expression.text))
    return [GroupExpression(_over_tuples(item.expression, visible, kept), name, item.clause)]


def _over_tuples(clause: Clause, scope: _Scope, kept: KeptColumns) -> str:
    """An expression over kept tuples and the place: one without the place is computed as a whole when a tuple arrives."""
    text = scope.resolved(clause)
    if PLACE not in text:
        return kept.name(text, clause)
    place = Clause.alone(text)
    for start, column in sorted(columns_of(place, ALLOWED_RANKING).items(), reverse=True):
        if column.name != PLACE and column.name.upper() not in BARE_FUNCTIONS:
            text = text[:start] + kept.name(text[start : column.end], clause) + text[column.end :]
    inner = text.strip()
    while inner.startswith("(") and inner.endswith(")") and inner.strip("() ") == PLACE:
        inner = inner[1:-1].strip()
    return inner


def _keys(call: RankingCall) -> tuple[Key, ...]:
    for entry in call.order:
        if not columns_of(entry.clause, ALLOWED_RANKING):
            raise refused(entry.clause, "ORDER BY needs a column; remove this.")
    found: dict[tuple[str, ...], Key] = {}
    for clause in call.partition:
        if not columns_of(clause, ALLOWED_RANKING):
            raise refused(clause, "PARTITION BY needs a column; remove this.")
        text = clause.text.strip()
        found.setdefault(spelling(tokenize(text)), Key(text, key_name(len(found)), clause))
    return tuple(found.values())


def _check_hints(hints: Hints, script: str, *, is_one_row: bool, has_keys: bool) -> None:
    for name, place in hints.places.items():
        if name in _OF_WINDOWS:
            message = f"{name} needs a window in GROUP BY; a ranking has none. {ALLOWED_RANKING}"
        elif name == "STATE_TTL" and not has_keys:
            message = "STATE_TTL is for partitions; this ranking has none. Remove the hint."
        elif name == "STATE_TTL" and not is_one_row:
            message = (
                "STATE_TTL is for one row of each partition (ROW_NUMBER() ... <= 1): of several rows, those of before would remain "
                "among those of after. Remove the hint."
            )
        else:
            continue
        raise SqlError(message, script, *place)


def _refuse_groups(parts: Parts, message: str = _GROUPED) -> None:
    if parts.distinct is not None:
        distinct = "DISTINCT in a ranking is not supported. Remove it, or add the hint REFRESH('1 minute')."
        raise refused(parts.distinct, distinct)
    for clause in (parts.group_by_keyword, parts.having):
        if clause is not None:
            raise refused(clause, message)


def _refuse_join(script: str, tokens: Sequence[Token]) -> None:
    for _, token in outer(tokens):
        if token.token_type is TokenType.JOIN:
            message = f"A ranking of a join in one text is not supported yet. Make the join a view, and rank its rows. {ALLOWED_RANKING}"
            raise UnsupportedError(message, script, token.start, token.end + 1)
