"""Binding of LISTAGG: its calls become collected values, joined over groups."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from penstock.errors import SqlError, UnsupportedError
from penstock.plan.expressions import ExpressionHost
from penstock.sql.text.lexing import ended, spelled, tokenize
from penstock.sql.windows.aggregate_calls import AggregateCall
from penstock.sql.windows.listing import Listing, Operand, collected
from penstock.sql.windows.operand_types import uncompared
from penstock.sql.windows.query import GroupExpression, WindowQuery, aggregate_name


def listed(query: WindowQuery, host: ExpressionHost) -> WindowQuery:
    """The query without LISTAGG: it collects values, and its outputs and conditions on groups join them.

    Args:
        query: a window view, flattened; its calls of LISTAGG keep their numbers.
        host: Spark's analysis of its source's expressions.

    Raises:
        SqlError: what Spark refuses.
        UnsupportedError: a key of ORDER BY of a type that Penstock does not compare as Spark does, or keys of two directions.
    """
    calls, texts = list(query.aggregates), dict[str, str]()
    for number, call in enumerate(calls):
        if call.listing is None:
            continue
        name = aggregate_name(number)
        own, texts[name] = _collected(call, call.listing, host, name)
        calls[number] = replace(call, arguments=(own,), listing=None)
    if not texts:
        return query
    return replace(
        query,
        aggregates=tuple(calls),
        outputs=_replaced(query.outputs, texts),
        having=_replaced(query.having, texts),
    )


def _collected(call: AggregateCall, listing: Listing, host: ExpressionHost, group: str) -> tuple[str, str]:
    """What is collected, and what a group with that column says."""
    try:
        kinds = host.types(call.arguments)
        host.aggregates([call.sql])
    except SqlError as error:
        raise call.clause.locating(error, error.text) from None
    value, *keys = map(Operand, map(ended, call.arguments), kinds, host.plain(call.arguments))
    if keys and not value.is_floating and _is_same(value.text, keys[0].text, host):
        # further keys tell nothing apart
        keys, listing = [], replace(listing, directions=listing.directions[:1])
    if (value.is_text and not value.is_compared) or (
        listing.directions and not keys and not value.is_ordered
    ):
        raise uncompared(call.clause, value.type, "The argument")
    for key in keys:
        if not key.is_ordered:
            raise uncompared(call.clause, key.type, "A key of ORDER BY")
    if len({is_descending for is_descending, _ in listing.directions}) > 1:
        message = "The keys of ORDER BY in LISTAGG must all be ascending, or all be descending, here."
        raise call.clause.error(UnsupportedError, message)
    return collected(value, keys, listing, group)


def _is_same(one: str, other: str, host: ExpressionHost) -> bool:
    return spelled(one) == spelled(other) or host.equivalent([(one, other)])[0]


def _replaced(
    expressions: Sequence[GroupExpression], texts: Mapping[str, str]
) -> tuple[GroupExpression, ...]:
    """Expressions over groups with texts in the place of columns."""
    found = []
    for each in expressions:
        text = each.expression
        for token in reversed(tokenize(text)):
            if token.text in texts and text[token.start : token.end + 1] == token.text:
                text = text[: token.start] + texts[token.text] + text[token.end + 1 :]
        found.append(replace(each, expression=text))
    return tuple(found)
