"""The hints by which a query tells Penstock what answers it needs; Spark ignores them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from sqlglot.tokenizer_core import Token, TokenType

from penstock.errors import SqlError, meant
from penstock.plan.deadlines import LossConstraint
from penstock.plan.slack import SLACK_POLICIES, SlackChoice
from penstock.plan.windows import ErrorBound
from penstock.sql.text.intervals import microseconds_of
from penstock.sql.text.lexing import arguments as arguments_of
from penstock.sql.text.lexing import tokenize
from penstock.sql.text.literals import number, string

_SECOND = 1_000_000
#: of LOSS: the account of a view holds the newest m windows
_MOST_WINDOWS = 1_000
#: hints that change how Spark plans a query, never what it answers
_SPARKS = frozenset(
    {"BROADCAST", "BROADCASTJOIN", "MAPJOIN", "MERGE", "MERGEJOIN", "SHUFFLE_MERGE", "SHUFFLE_HASH"}
    | {"SHUFFLE_REPLICATE_NL", "COALESCE", "REPARTITION", "REPARTITION_BY_RANGE", "REBALANCE", "SKEW"}
)
_INSTEAD_OF_COUNTS = (
    "Windows of so many rows depend on the order of arrival. By event time, number the rows in FROM, and group by the number: SELECT "
    "/*+ REFRESH('1 minute') */ k, n, count(*) FROM (SELECT k, ceil(row_number() OVER (PARTITION BY k ORDER BY t) / 100) AS n FROM s) "
    "GROUP BY k, n."
)
#: what to write instead of hints of other systems, some of which call windows of so many rows otherwise
_INSTEAD = {
    **dict.fromkeys(("COUNT_WINDOW", "COUNT", "TUMBLE_COUNT", "ROWS"), _INSTEAD_OF_COUNTS),
    "OPTIONS": "Write options where the table is declared: CREATE TABLE name USING source OPTIONS (key 'value').",
}
#: a remark, and blanks with remarks among them
_REMARK = re.compile(r"--[^\n]*|/\*.*?\*/", re.DOTALL)
_BLANK = re.compile(r"(?:\s|--[^\n]*|/\*.*?\*/)*", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Loss:
    """`LOSS(k, m[, 'late' or 'approximate'])`.

    Attributes:
        constraint: at most k of any m consecutive windows miss their deadline.
        is_late: whether the exact answer of a window that was lost or approximated still comes, as a correction marked so.
        is_approximate: whether a window that would be shed may be answered by a sample.
    """

    constraint: LossConstraint
    is_late: bool = False
    is_approximate: bool = False


@dataclass(frozen=True, slots=True)
class Hints:
    """Penstock's hints of one query.

    Attributes:
        max_error: bound on early answers, or None.
        deadline_seconds: firm deadline, counted from a window's creation, or None.
        loss: losses allowed, or None.
        start, end: place of the hint comment in the script.
        backfill: whether the windows before the view's first batch are answered too.
        slack: the policy that MAX_ERROR names, or None.
        state_ttl: how long a group stays in the state of a running view, in event time, microseconds; None: for good.
        places: of each hint, by its name, in the script.
        refresh_seconds: the least time between two answers of a refreshed view, or None.
        cumulate: length of the largest of the windows that begin together, microseconds, or None.
    """

    max_error: ErrorBound | None = None
    deadline_seconds: float | None = None
    loss: Loss | None = None
    start: int = 0
    end: int = 0
    backfill: bool = False
    slack: SlackChoice | None = None
    state_ttl: int | None = None
    places: Mapping[str, tuple[int, int]] = field(default_factory=dict, repr=False, compare=False)
    refresh_seconds: float | None = None
    cumulate: int | None = None

    def __bool__(self) -> bool:
        named = (self.max_error, self.deadline_seconds, self.loss, self.state_ttl, self.cumulate)
        return self.backfill or any(each is not None for each in named)


def parse_hints(script: str, token: Token) -> Hints:
    """Reads the hints in a comment `/*+ ... */`; Spark's own are left to Spark.

    Raises:
        SqlError: no such hint, or wrong arguments, underlined.
    """
    found: dict[str, Any] = {}
    places: dict[str, tuple[int, int]] = {}
    for name, given, start, end in _calls(script, token.start, token.end + 1):
        if name not in _READERS:
            raise SqlError(_unknown(name), script, start, end)
        if name in places:
            raise SqlError(f"{name} is given twice.", script, start, end)
        try:
            found |= _READERS[name](given)
        except ValueError as error:
            raise SqlError(f"{name}: {error}", script, start, end) from None
        places[name] = start, end
    return Hints(**found, start=token.start, end=token.end + 1, places=places)


def refuse_misplaced_hints(script: str, tokens: Sequence[Token]) -> None:
    """Refuses a hint that is not behind SELECT: for the tokenizer it is a remark, so that nothing would read it.

    Args:
        script: the text the tokens come from.
        tokens: those of a statement or query, at least one.

    Raises:
        SqlError: there is one that is none of Spark's.
    """
    if script.find("/*+", tokens[0].end) < 0:
        return
    behind = _BLANK.match(script, tokens[-1].end + 1)
    ends = [*(token.start for token in tokens[1:]), behind.end() if behind else len(script)]
    for token, end in zip(tokens, ends, strict=True):
        for remark in _REMARK.finditer(script, token.end + 1, end):
            if not remark[0].startswith("/*+"):
                continue
            for name, _, first, last in _calls(script, *remark.span()):
                misplaced = f"Hint {name} is not behind SELECT. Write SELECT /*+ {script[first:last]} */ ..."
                raise SqlError(misplaced if name in _READERS else _unknown(name), script, first, last)


def _calls(script: str, begin: int, until: int) -> Iterator[tuple[str, list[str], int, int]]:
    """The hints in a comment, Spark's own left out: the name, the arguments and the place of each."""
    offset = begin + 3
    text = script[offset : until - 2]
    tokens = tokenize(text, offset, script)
    position = 0
    while position < len(tokens):
        name = tokens[position].text.upper()
        first = position
        position += 1
        given: list[str] = []
        if position < len(tokens) and tokens[position].token_type is TokenType.L_PAREN:
            ranges, position = arguments_of(tokens, position)
            given = [text[tokens[start].start : tokens[end - 1].end + 1] for start, end in ranges]
        if name not in _SPARKS:
            yield name, given, offset + tokens[first].start, offset + tokens[position - 1].end + 1
        if position < len(tokens) and tokens[position].token_type is TokenType.COMMA:
            position += 1


def _unknown(name: str) -> str:
    """What is said of a hint that does not exist."""
    instead = _INSTEAD.get(name, f"Allowed: {', '.join(_READERS)}.")
    return f"Hint {name} does not exist{meant(name, _READERS)} {instead}"


def _max_error(arguments: list[str]) -> dict[str, Any]:
    if len(arguments) not in (2, 3, 4):
        raise ValueError("expected (epsilon, delta[, 'absolute'][, 'slack policy']).")
    absolute = arguments[2:] != [] and _word(arguments[2]) == "absolute"
    policies = arguments[3 if absolute else 2 :]
    if len(policies) > 1:
        raise ValueError(f"expected one slack policy; got {', '.join(policies)}.")
    epsilon, delta = _real(arguments[0]), _real(arguments[1])
    if absolute and not epsilon > 0:
        raise ValueError(f"an absolute epsilon must be above 0; got {arguments[0]}.")
    if not absolute and not 0 < epsilon < 1:
        raise ValueError(f"epsilon must be above 0 and below 1; got {arguments[0]}.")
    if not 0 < delta < 1:
        raise ValueError(f"delta must be above 0 and below 1; got {arguments[1]}.")
    slack = _slack_policy(policies[0]) if policies else None
    return {"max_error": ErrorBound(epsilon, delta, absolute), "slack": slack}


def _slack_policy(argument: str) -> SlackChoice:
    """The policy in a string such as 'pd' or 'fixed 30 seconds'."""
    name, _, length = _word(argument).partition(" ")
    if name not in SLACK_POLICIES:
        allowed = f"allowed: 'absolute', {', '.join(SLACK_POLICIES[:-1])}, fixed with a length"
        raise ValueError(f"slack policy {argument} does not exist{meant(name, SLACK_POLICIES)} ({allowed})")
    if name != "fixed":
        if length:
            raise ValueError(
                f"slack policy {name} has no length; got {argument}. Only 'fixed 30 seconds' has one."
            )
        return SlackChoice(name)
    slack = microseconds_of(f"'{length}'") if length else None
    if slack is None or slack < 0:
        raise ValueError(f"slack policy fixed needs a length, such as 'fixed 30 seconds'; got {argument}.")
    return SlackChoice(name, slack)


def _word(argument: str) -> str:
    """What a string literal says, in lower case; nothing where it is none."""
    return " ".join(string(argument).lower().split()) if argument[0] in "'\"" else ""


def _length(arguments: list[str]) -> float:
    """A length of time, seconds."""
    given = ", ".join(arguments)
    is_string = len(arguments) == 1 and given[0] in "'\""
    length = microseconds_of(given) if is_string else None
    if length is None:
        allowed = "a length of time, in days to microseconds, such as '3 seconds' or '1 minute 30 seconds'"
        raise ValueError(f"expected {allowed}; got {given or 'nothing'}.")
    if length <= 0:
        raise ValueError(f"the length of time must be above 0; got {given}.")
    return length / _SECOND


def _loss(arguments: list[str]) -> dict[str, Any]:
    given = ", ".join(arguments)
    counts = [number(argument) for argument in arguments[:2]]
    k, m = (each.value if each is not None else None for each in counts) if len(counts) == 2 else (None, None)
    if not (isinstance(k, int) and isinstance(m, int)) or len(arguments) > 3:
        allowed = "(k, m), (k, m, 'late') or (k, m, 'approximate'), k and m whole numbers: at most k of any m consecutive windows may miss"
        raise ValueError(f"expected {allowed}; got ({given}).")
    if m < 1:
        raise ValueError(f"m, the number of consecutive windows, must be at least 1; got ({given}).")
    if m > _MOST_WINDOWS:
        raise ValueError(
            f"m, the number of consecutive windows, must be at most {_MOST_WINDOWS:,}; got ({given})."
        )
    if k < 0:
        raise ValueError(f"k, the number of windows that may miss, must be at least 0; got ({given}).")
    if k > m:
        raise ValueError(f"k, the number of windows that may miss, must be at most m; got ({given}).")
    third = _third(arguments, "late", "approximate")
    return {"loss": Loss(LossConstraint(k, m), third is not None, third == "approximate")}


def _backfill(arguments: list[str]) -> dict[str, Any]:
    if arguments:
        raise ValueError("expected no arguments.")
    return {"backfill": True}


def _third(arguments: list[str], *words: str) -> str | None:
    """The third argument, one of some words; None: it is absent."""
    if len(arguments) < 3:
        return None
    word = _word(arguments[2])
    if word not in words:
        allowed = " or ".join(f"'{each}'" for each in words)
        raise ValueError(f"the third argument must be {allowed}, or absent; got {arguments[2]}.")
    return word


def _real(text: str) -> float:
    literal = number(text)
    if literal is None:
        raise ValueError(f"expected a number, got {text}.")
    assert isinstance(literal.value, int | float | Decimal)
    return float(literal.value)


#: how the arguments of each hint become fields of `Hints`
_READERS: dict[str, Callable[[list[str]], dict[str, Any]]] = {
    "MAX_ERROR": _max_error,
    "DEADLINE": lambda given: {"deadline_seconds": _length(given)},
    "LOSS": _loss,
    "BACKFILL": _backfill,
    "REFRESH": lambda given: {"refresh_seconds": _length(given)},
    "STATE_TTL": lambda given: {"state_ttl": round(_length(given) * _SECOND)},
    "CUMULATE": lambda given: {"cumulate": round(_length(given) * _SECOND)},
}
