"""The hints by which a query tells Penstock what answers it needs; Spark ignores them."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal

from sqlglot.tokenizer_core import Token, TokenType

from penstock.errors import SqlError
from penstock.plan.windows import ErrorBound
from penstock.sql.text.lexing import tokenize
from penstock.sql.text.literals import number, string

_UNIT_SECONDS = {
    "millisecond": 0.001,
    "second": 1.0,
    "minute": 60.0,
    "hour": 3600.0,
    "day": 86400.0,
}
#: hints that change how Spark plans a query, never what it answers
_SPARKS = frozenset(
    {"BROADCAST", "BROADCASTJOIN", "MAPJOIN", "MERGE", "MERGEJOIN", "SHUFFLE_MERGE", "SHUFFLE_HASH"}
    | {"SHUFFLE_REPLICATE_NL", "COALESCE", "REPARTITION", "REPARTITION_BY_RANGE", "REBALANCE", "SKEW"}
)
_INTERVAL_PART = re.compile(
    rf"\s*(\d+(?:\.\d+)?)\s*({'|'.join(_UNIT_SECONDS)})s?\b", re.IGNORECASE | re.ASCII
)


@dataclass(frozen=True, slots=True)
class Loss:
    """`LOSS(k, m)`: at most k deadlines missed in any m consecutive windows; 0 <= k <= m, m >= 1."""

    misses: int
    windows: int


@dataclass(frozen=True, slots=True)
class Hints:
    """Penstock's hints of one query.

    Attributes:
        max_error: bound on early answers, or None.
        deadline_seconds: firm deadline after a window's end, or None.
        loss: losses allowed, or None.
        start, end: place of the hint comment in the script.
        backfill: whether the windows before the view's first batch are answered too.
    """

    max_error: ErrorBound | None = None
    deadline_seconds: float | None = None
    loss: Loss | None = None
    start: int = 0
    end: int = 0
    backfill: bool = False

    def __bool__(self) -> bool:
        return self.backfill or (self.max_error, self.deadline_seconds, self.loss) != (None, None, None)


def parse_hints(script: str, token: Token) -> Hints:
    """Reads the hints in a comment `/*+ ... */`; Spark's own are left to Spark.

    Raises:
        SqlError: no such hint, or wrong arguments, underlined.
    """
    offset = token.start + 3
    text = script[offset : token.end - 1]
    tokens = tokenize(text, offset, script)
    found: dict[str, ErrorBound | float | Loss | bool] = {}
    position = 0
    while position < len(tokens):
        name = tokens[position].text.upper()
        first = position
        position += 1
        arguments: list[str] = []
        if position < len(tokens) and tokens[position].token_type is TokenType.L_PAREN:
            arguments, position = _arguments(text, tokens, position)
        if name not in _SPARKS:
            start, end = offset + tokens[first].start, offset + tokens[position - 1].end + 1
            if name not in _READERS:
                known = ", ".join(_READERS)
                raise SqlError(f"There is no hint {name}; allowed: {known}.", script, start, end)
            if name in found:
                raise SqlError(f"{name} is given twice.", script, start, end)
            try:
                found[name] = _READERS[name](arguments)
            except ValueError as error:
                raise SqlError(f"{name}: {error}", script, start, end) from None
        if position < len(tokens) and tokens[position].token_type is TokenType.COMMA:
            position += 1
    max_error, deadline, loss, backfill = (found.get(name) for name in _READERS)
    return Hints(
        max_error if isinstance(max_error, ErrorBound) else None,
        deadline if isinstance(deadline, float) else None,
        loss if isinstance(loss, Loss) else None,
        token.start,
        token.end + 1,
        backfill is not None,
    )


def _arguments(text: str, tokens: list[Token], opening: int) -> tuple[list[str], int]:
    """The texts between commas in parentheses, and the position after them."""
    arguments: list[str] = []
    depth = 0
    begun = opening + 1
    for position in range(opening, len(tokens)):
        kind = tokens[position].token_type
        depth += (kind is TokenType.L_PAREN) - (kind is TokenType.R_PAREN)
        if depth == 0 or (depth == 1 and kind is TokenType.COMMA):
            if begun < position:
                arguments.append(text[tokens[begun].start : tokens[position - 1].end + 1])
            begun = position + 1
        if depth == 0:
            return arguments, position + 1
    return arguments, len(tokens)


def _max_error(arguments: list[str]) -> ErrorBound:
    if len(arguments) not in (2, 3):
        raise ValueError("expected (epsilon, delta) or (epsilon, delta, 'absolute').")
    absolute = len(arguments) == 3
    if absolute and (arguments[2][0] not in "'\"" or string(arguments[2]).lower() != "absolute"):
        raise ValueError(f"the third argument is 'absolute' or nothing, not {arguments[2]}.")
    epsilon, delta = _real(arguments[0]), _real(arguments[1])
    if absolute and not epsilon > 0:
        raise ValueError(f"an absolute epsilon is greater than 0, not {arguments[0]}.")
    if not absolute and not 0 < epsilon < 1:
        raise ValueError(f"epsilon lies between 0 and 1, both excluded; got {arguments[0]}.")
    if not 0 < delta < 1:
        raise ValueError(f"delta lies between 0 and 1, both excluded; got {arguments[1]}.")
    return ErrorBound(epsilon, delta, absolute)


def _deadline(arguments: list[str]) -> float:
    allowed = f"an interval of {', '.join(unit + 's' for unit in _UNIT_SECONDS)} such as '3 seconds'"
    if len(arguments) != 1 or arguments[0][0] not in "'\"":
        raise ValueError(f"expected {allowed}.")
    rest = re.sub(r"^\s*interval\b", "", string(arguments[0]), flags=re.IGNORECASE)
    seconds, position = 0.0, 0
    while match := _INTERVAL_PART.match(rest, position):
        seconds += float(match[1]) * _UNIT_SECONDS[match[2].lower()]
        position = match.end()
    if rest[position:].strip() or not position:
        raise ValueError(f"expected {allowed}, got {arguments[0]}.")
    if seconds <= 0:
        raise ValueError(f"the interval is positive; got {arguments[0]}.")
    return seconds


def _loss(arguments: list[str]) -> Loss:
    if len(arguments) != 2 or not all(argument.isascii() and argument.isdigit() for argument in arguments):
        raise ValueError("expected two integers (misses, windows), as in LOSS(1, 4).")
    misses, windows = map(int, arguments)
    if windows < 1 or misses > windows:
        raise ValueError(f"expected 0 <= misses <= windows and windows >= 1; got ({misses}, {windows}).")
    return Loss(misses, windows)


def _backfill(arguments: list[str]) -> bool:
    if arguments:
        raise ValueError("expected no arguments.")
    return True


def _real(text: str) -> float:
    literal = number(text)
    if literal is None:
        raise ValueError(f"expected a number, got {text}.")
    assert isinstance(literal.value, int | float | Decimal)
    return float(literal.value)


_READERS: dict[str, Callable[[list[str]], ErrorBound | float | Loss | bool]] = {
    "MAX_ERROR": _max_error,
    "DEADLINE": _deadline,
    "LOSS": _loss,
    "BACKFILL": _backfill,
}
