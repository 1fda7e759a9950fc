"""Sums of event times and lengths of time: what a comparison of two of them says of a difference of event times."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache

from sqlglot.tokenizer_core import TokenType

from penstock.sql.joins.conjuncts import Conjunct
from penstock.sql.joins.scope import Column, Expression
from penstock.sql.text.intervals import UNIT_MICROSECONDS, microseconds_of
from penstock.sql.text.lexing import NESTING, in_parentheses, token_kinds, tokenize
from penstock.sql.text.literals import time_zone

_DAY = UNIT_MICROSECONDS["day"]
#: a sign after one of these belongs to the number behind it
_BEFORE_SIGNS = (TokenType.PLUS, TokenType.DASH, TokenType.STAR, TokenType.SLASH, TokenType.INTERVAL)
_INTERVAL = re.compile(r"INTERVAL\s+([^'\"]*('[^'\"]*')?[^'\"]*)", re.IGNORECASE)
#: more than the days of so many months may differ from that many times the average, ends of months included
_MONTH_SLACK = 6


@dataclass(frozen=True, slots=True)
class Length:
    """A length of time in microseconds, from `low` to `high`: what months are is not known before the day is."""

    low: int
    high: int

    @classmethod
    def of_months(cls, months: int) -> Length:
        """All that so many months may be."""
        average = round(months * 365.2425 / 12 * _DAY)
        slack = _MONTH_SLACK * _DAY if months else 0
        return cls(average - slack, average + slack)


@dataclass(frozen=True, slots=True)
class Difference:
    """What a conjunct says: (event time of `later`) - (event time of `earlier`) <= `most` microseconds.

    Attributes:
        earlier, later: numbers of two inputs.
        most: inclusive.
        is_exact: whether that is all it says; else it says more.
    """

    earlier: int
    later: int
    most: int
    is_exact: bool


@dataclass(frozen=True, slots=True)
class _Sum:
    """Event times with their signs, and a length."""

    signs: Mapping[int, int]
    length: Length

    @property
    def is_time(self) -> bool:
        return sum(self.signs.values()) != 0

    def plus(self, other: _Sum, sign: int, widening: int) -> _Sum:
        signs = dict(self.signs)
        for stream, own in other.signs.items():
            signs[stream] = signs.get(stream, 0) + sign * own
        ends = sorted((sign * other.length.low, sign * other.length.high))
        length = Length(self.length.low + ends[0] - widening, self.length.high + ends[1] + widening)
        return _Sum({stream: own for stream, own in signs.items() if own}, length)


class EventTimes:
    """Reads comparisons of event times.

    Sums of timestamps and lengths of a day or more, and differences of timestamps, are counted on the local clock in
    Spark: where the session's time zone shifts its clock, they are known up to that shift only.

    Args:
        local: by column that is an event time whether it is a TIMESTAMP_NTZ, without a time zone.
        zone: the session's time zone.
        constant: what an expression without columns is, None for what is no length of time.
    """

    def __init__(
        self, local: Mapping[Column, bool], zone: str, constant: Callable[[str], Length | None]
    ) -> None:
        self._inputs = {column.input: is_local for column, is_local in local.items()}
        self._columns = frozenset(local)
        self._zone = zone
        self._constant = constant

    def differences(self, conjunct: Conjunct) -> list[Difference]:
        """What a comparison says of two streams' event times; [] for nothing."""
        if conjunct.operator in (None, "<>"):
            return []
        left, right = (self._sum(operand) for operand in conjunct.operands)
        if left is None or right is None or left.is_time != right.is_time:
            return []
        both = left.plus(right, -1, self._apart(left, right) if left.is_time else 0)
        if sorted(both.signs.values()) != [-1, 1]:
            return []
        later, earlier = sorted(both.signs, key=lambda stream: -both.signs[stream])
        is_exact = both.length.low == both.length.high
        strict = conjunct.operator in ("<", ">")
        found = []
        if conjunct.operator in ("<", "<=", "="):
            found.append(Difference(earlier, later, -both.length.low - strict, is_exact))
        if conjunct.operator in (">", ">=", "="):
            found.append(Difference(later, earlier, both.length.high - strict, is_exact))
        return found

    def _sum(self, expression: Expression) -> _Sum | None:
        tokens = tokenize(expression.clause.text)
        if not expression.references:
            text = expression.clause.text.strip()
            length = length_of(text) or self._constant(text)
            return None if length is None else _Sum({}, length)
        if (column := expression.column) is not None:
            return _Sum({column.input: 1}, Length(0, 0)) if column in self._columns else None
        kinds = token_kinds(tokens)
        depth, operator = 0, None
        for position, kind in enumerate(kinds):
            depth += NESTING.get(kind, 0)
            if depth == 0 and position and kind in (TokenType.PLUS, TokenType.DASH):
                operator = operator if kinds[position - 1] in _BEFORE_SIGNS else position
        if operator is None:
            inside = tokens[0].end + 1, tokens[-1].start
            return self._sum(expression.part(*inside)) if in_parentheses(tokens) else None
        left = self._sum(expression.part(0, tokens[operator].start))
        right = self._sum(expression.part(tokens[operator].end + 1, len(expression.clause.text)))
        if left is None or right is None:
            return None
        return left.plus(right, 1 if kinds[operator] is TokenType.PLUS else -1, self._widening(left, right))

    def _widening(self, left: _Sum, right: _Sum) -> int:
        """By how much a sum may miss the sum of its microseconds."""
        if left.is_time and right.is_time:
            return max(self._apart(left, right), self._shift(left), self._shift(right))
        if not (left.is_time or right.is_time):
            return 0
        time, length = (left, right.length) if left.is_time else (right, left.length)
        is_short = length.low == length.high and abs(length.low) < _DAY
        return 0 if is_short else self._shift(time)

    def _shift(self, time: _Sum) -> int:
        """By how much the clock of a timestamp shifts, microseconds."""
        if all(self._inputs[stream] for stream in time.signs):
            return 0
        least, most = offsets(self._zone)
        return most - least

    def _apart(self, left: _Sum, right: _Sum) -> int:
        """By how much timestamps with and without a time zone differ in microseconds when Spark takes them as equal."""
        if len({self._inputs[stream] for each in (left, right) for stream in each.signs}) == 1:
            return 0
        least, most = offsets(self._zone)
        return max(abs(least), abs(most)) + most - least


def length_of(text: str) -> Length | None:
    """The length that an interval literal of weeks to microseconds spells; None for anything else."""
    match = _INTERVAL.fullmatch(text)
    found = microseconds_of("'" + match[1].replace("'", " ") + "'") if match else None
    return None if found is None else Length(found, found)


@lru_cache(maxsize=16)
def offsets(zone: str) -> tuple[int, int]:
    """The least and the greatest offset from UTC that the clock of a time zone ever had, microseconds.

    Raises:
        ValueError: it is no time zone.
    """
    clock = time_zone(zone)
    moments = (datetime(1840, 1, 1, tzinfo=UTC) + timedelta(days=day) for day in range(0, 200 * 366, 2))
    found = {moment.astimezone(clock).utcoffset() or timedelta() for moment in moments}
    return min(found) // timedelta(microseconds=1), max(found) // timedelta(microseconds=1)
