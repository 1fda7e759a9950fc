"""Parsing the text of one query: a selection, an aggregation, a join, or a UNION ALL."""

from __future__ import annotations

from collections.abc import Collection, Container, Sequence
from dataclasses import replace
from functools import partial

from sqlglot.tokenizer_core import Token, TokenType

from penstock.errors import MisplacedAggregateError, SqlError, UnsupportedError
from penstock.sql.joins.parsing import is_join, joined_in_from, parse_join_query
from penstock.sql.joins.query import joined_name
from penstock.sql.refreshed.composing import composed_query
from penstock.sql.refreshed.parsing import is_refreshed, parse_refreshed_query
from penstock.sql.refreshed.query import RefreshedQuery
from penstock.sql.script.common_tables import with_inlined
from penstock.sql.script.dialects import refuse_other_dialects
from penstock.sql.script.foreign_forms import refuse_foreign_forms
from penstock.sql.script.shapes import SelectionShapes
from penstock.sql.script.statements import Query
from penstock.sql.text.hints import refuse_misplaced_hints
from penstock.sql.text.lexing import refuse_unpaired, tokenize
from penstock.sql.text.parts import Parts, split_query
from penstock.sql.text.query import SelectQuery, parse_input, parse_selection
from penstock.sql.text.written import written
from penstock.sql.unions.parsing import is_union, named_in_from, parse_union, union_in_from, whole
from penstock.sql.windows.aggregate_calls import is_aggregate, is_users_aggregate
from penstock.sql.windows.parsing import parse_window_query
from penstock.sql.windows.query import WindowQuery, groups_name
from penstock.sql.windows.ranking_calls import groups_in_from
from penstock.sql.windows.ranking_parsing import is_ranking, parse_ranking

#: how a view calls an aggregate of the user's
_FORM = "SELECT /*+ DEADLINE('3 seconds') */ ... GROUP BY window(time, 'size')"
_NEEDED = f"Allowed: {_FORM}."


def parse_query(text: str, aggregates: Collection[str] = (), shapes: SelectionShapes | None = None) -> Query:
    """Parses the text of one query.

    Args:
        text: the query.
        aggregates: names of the user's aggregates.
        shapes: of selections that were parsed with the same aggregates; this one is added.

    Raises:
        SqlError: as `parse_script`.
    """
    place = len(text) - len(text.lstrip()), len(text.rstrip())
    if shapes is not None and (known := shapes.find(text, *place)) is not None:
        return known
    tokens = tokenize(text)
    while tokens and tokens[-1].token_type is TokenType.SEMICOLON:
        tokens.pop()
    if not tokens:
        raise SqlError("The query is missing.", text, 0, len(text))
    refuse_misplaced_hints(text, tokens)
    query = parse_tokens(text, tokens, aggregates)
    if shapes is not None and isinstance(query, SelectQuery):
        shapes.learn(text, *place, query)
    return query


def parse_tokens(script: str, tokens: Sequence[Token], aggregates: Collection[str]) -> Query:
    """Parses the tokens of one query of a script; raises as `parse_query`."""
    refuse_unpaired(script, tokens)
    refuse_foreign_forms(script, tokens)
    if is_refreshed(tokens):
        return parse_refreshed_query(script, tokens)
    tokens = with_inlined(script, tokens, partial(parse_tokens, script, aggregates=aggregates))
    refuse_other_dialects(script, tokens)
    parse = partial(_parsed, script, aggregates=aggregates)
    try:
        return parse(tokens)
    except UnsupportedError as error:
        composed = composed_query(script, tokens, parse, error)
        if composed is None:
            raise
        return composed


def _parsed(script: str, tokens: Sequence[Token], aggregates: Collection[str]) -> Query:
    """Parses the tokens of a query without WITH that lanes answer as a whole."""
    if is_union(tokens):
        return parse_union(script, tokens, partial(_parsed, aggregates=aggregates))
    if not is_join(tokens) and (place := union_in_from(tokens)) is not None:
        own = tokens[place[0] + 1 : place[1]]
        union = parse_union(script, own, partial(_parsed, aggregates=aggregates))
        query = _parsed(script, named_in_from(script, tokens, place), aggregates)
        if isinstance(query, SelectQuery):
            return replace(union, clause=whole(script, tokens), selected=(*union.selected, query))
        assert isinstance(query, WindowQuery), "joins are read without it"
        return replace(query, inner=union, inner_text=written(script, own).text)
    if not is_join(tokens) and (place := groups_in_from(tokens)) is not None:
        over_groups = _over_groups(script, tokens, place, aggregates)
        if over_groups is not None:
            return over_groups
    if not is_join(tokens) and (place := joined_in_from(tokens)) is not None:
        over_join = _parsed(script, named_in_from(script, tokens, place, joined_name), aggregates)
        if isinstance(over_join, WindowQuery):
            own = tokens[place[0] + 1 : place[1]]
            inner = parse_join_query(script, own)
            return replace(over_join, inner=inner, inner_text=written(script, own).text)
    if is_ranking(tokens):
        return parse_ranking(script, tokens)
    users = {name.upper() for name in aggregates}
    if is_join(tokens):
        _refuse_aggregates(script, tokens, users, _NEEDED)
        return parse_join_query(script, tokens)
    parts = split_query(script, tokens)
    if parts.where is not None:
        end = parts.where.start + len(parts.where.text)
        _refuse_in_where(script, [each for each in tokens if parts.where.start <= each.start < end], users)
    if parts.group_by is None and not _is_aggregation(parts):
        _refuse_aggregates(script, tokens, users, _NEEDED)
        selection = parse_selection(parts)
        return (
            replace(selection, inner=_parsed(script, parts.within, aggregates)) if parts.within else selection
        )
    # of LOSS without DEADLINE that is said
    if parts.hints.deadline_seconds is None and parts.hints.loss is None:
        _refuse_aggregates(script, tokens, users, "Add the hint: SELECT /*+ DEADLINE('3 seconds') */ ...")
    aggregation = parse_window_query(parts, users)
    return replace(aggregation, inner=parse_input(script, parts.within)) if parts.within else aggregation


def recomposed(
    script: str,
    start: int,
    text: str,
    aggregates: Collection[str],
    refused: UnsupportedError,
    views: Container[str],
    aggregated: Container[str],
) -> RefreshedQuery | None:
    """A query that was parsed and then refused, over the rows of its inner queries that lanes answer, and of views; None where it has none.

    Args:
        script: the text in which mistakes are shown.
        start: where it has the query.
        text: the query.
        aggregates: names of the user's aggregates.
        refused: why lanes do not answer it.
        views, aggregated: see `composed_query`.
    """
    tokens = tokenize(text, start, script)
    for token in tokens:
        token.start += start
        token.end += start
    while tokens and tokens[-1].token_type is TokenType.SEMICOLON:
        tokens.pop()
    if is_refreshed(tokens):
        return None
    inlined = with_inlined(script, tokens, lambda _: None)
    return composed_query(
        script, inlined, partial(_parsed, script, aggregates=aggregates), refused, views, aggregated
    )


def _over_groups(
    script: str, tokens: Sequence[Token], place: tuple[int, int], aggregates: Collection[str]
) -> WindowQuery | None:
    """A ranking or aggregation that has an aggregation in FROM; None: it is a selection."""
    own = tokens[place[0] + 1 : place[1]]
    text = written(script, own).text
    for token in (*tokens[: place[0]], *tokens[place[1] :]):
        if token.token_type is TokenType.HINT:
            message = "Write hints behind the SELECT that aggregates, in FROM: groups that leave its state leave the other one too."
            raise SqlError(message, script, token.start, token.end + 1)
    query = _parsed(script, named_in_from(script, tokens, place, groups_name), aggregates)
    if not isinstance(query, WindowQuery):
        return None
    inner = _parsed(script, own, aggregates)
    assert isinstance(inner, WindowQuery), "it has GROUP BY"
    return replace(query, inner=inner, inner_text=text)


def _is_aggregation(parts: Parts) -> bool:
    """Whether a query without GROUP BY aggregates all tuples, or tells apart those that differ."""
    if parts.having is not None or parts.distinct is not None:
        return True
    found = False
    for item in parts.items:
        tokens = tokenize(item.expression.text, item.expression.start, item.expression.script)
        if any(each.token_type in (TokenType.OVER, TokenType.SELECT) for each in tokens):
            return False
        found |= any(is_aggregate(tokens, position) for position in range(len(tokens)))
    return found


def _refuse_aggregates(script: str, tokens: Sequence[Token], users: Collection[str], needed: str) -> None:
    for position, token in enumerate(tokens):
        if is_users_aggregate(tokens, position, users):
            message = f"Your aggregate {token.text} needs GROUP BY window(...) and a deadline. {needed}"
            raise MisplacedAggregateError(message, script, token.start, token.end + 1)


def _refuse_in_where(script: str, tokens: Sequence[Token], users: Collection[str]) -> None:
    for position, token in enumerate(tokens):
        message = f"WHERE cannot use an aggregate such as {token.text}"
        if is_aggregate(tokens, position) and not any(each.token_type is TokenType.SELECT for each in tokens):
            message += "; use GROUP BY window(...) and HAVING."
        elif is_users_aggregate(tokens, position, users):
            message += f". Use HAVING: {_FORM} HAVING {token.text}(...) ..."
        else:
            continue
        raise MisplacedAggregateError(message, script, token.start, token.end + 1)
