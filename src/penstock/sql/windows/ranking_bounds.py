"""Bounds of the place in the condition of a ranking."""

from __future__ import annotations

from sqlglot import exp

from penstock.errors import UnsupportedError
from penstock.sql.text.clauses import Clause
from penstock.sql.text.lexing import parse_expression
from penstock.sql.windows.ranking_calls import PLACE, refused

_LARGEST = 2**31 - 1


def limit_of(condition: str, written: Clause) -> tuple[int, bool]:
    """The largest place that a condition keeps, and whether it says nothing else.

    Raises:
        UnsupportedError: it keeps any.
    """
    tree = parse_expression(condition)
    parts = list(tree.flatten()) if isinstance(tree, exp.And) else [tree]
    bounds = [(bound, part) for part in parts if (bound := _bound(part)) is not None]
    if not bounds:
        raise _without_a_number(written) if any(map(_compares_otherwise, parts)) else unbounded(written)
    limit = min(bound for bound, _ in bounds)
    if limit < 1:
        raise refused(written, "Places begin with 1: no row has such a place.")
    is_bound = len(bounds) == len(parts) and all(
        isinstance(part.unnest(), exp.LT | exp.LTE | exp.GT | exp.GTE)
        or (isinstance(part.unnest(), exp.EQ) and bound == 1)
        for bound, part in bounds
    )
    return limit, is_bound


def _bound(part: exp.Expr) -> int | None:
    """The largest place that a condition keeps; None: any."""
    part = part.unnest()
    if isinstance(part, exp.Between):
        return _whole(part.args["high"]) if _is_place(part.this) else None
    if isinstance(part, exp.In):
        found = [_whole(each) for each in part.expressions]
        known = [each for each in found if each is not None]
        return max(known) if _is_place(part.this) and known and len(known) == len(found) else None
    if not isinstance(part, exp.LT | exp.LTE | exp.GT | exp.GTE | exp.EQ):
        return None
    place, other = part.this, part.expression
    is_turned = not _is_place(place)
    if is_turned:
        place, other = other, place
    value = _whole(other)
    if not _is_place(place) or value is None:
        return None
    if isinstance(part, exp.EQ):
        return value
    if isinstance(part, (exp.GT, exp.GTE) if is_turned else (exp.LT, exp.LTE)):
        return value - isinstance(part, exp.LT | exp.GT)
    return None


def _is_place(node: exp.Expr) -> bool:
    node = node.unnest()
    return isinstance(node, exp.Column) and node.name == PLACE


def _whole(node: exp.Expr) -> int | None:
    node = node.unnest()
    if isinstance(node, exp.Neg):
        value = _whole(node.this)
        return None if value is None else -value
    is_number = isinstance(node, exp.Literal) and not node.is_string and node.name.isdigit()
    return int(node.name) if is_number and int(node.name) <= _LARGEST else None


def _compares_otherwise(part: exp.Expr) -> bool:
    """Whether a condition may bound the place, but not by a whole number."""
    part = part.unnest()
    if isinstance(part, exp.Not):
        return any(_is_place(each) for each in part.find_all(exp.Column))
    if isinstance(part, exp.Between | exp.In):
        return _is_place(part.this)
    if isinstance(part, exp.LT | exp.LTE | exp.EQ | exp.GT | exp.GTE):
        place, other = part.this, part.expression
        is_turned = not _is_place(place)
        if is_turned:
            place, other = other, place
        is_lower = isinstance(part, (exp.LT, exp.LTE) if is_turned else (exp.GT, exp.GTE))
        return _is_place(place) and not is_lower
    return False


def _without_a_number(clause: Clause) -> UnsupportedError:
    message = f"Compare the place with a whole number from 1 to {_LARGEST}, such as place <= 10."
    return refused(clause, message)


def unbounded(clause: Clause) -> UnsupportedError:
    """The refusal of a ranking that keeps every tuple."""
    return refused(
        clause,
        "A ranking needs a bound of its place, because without one the state is the whole stream. Add a condition such as place <= 10.",
    )
