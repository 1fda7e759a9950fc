"""What joins the inputs: that a condition does, and that event times of streams are bound to one another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import pyarrow as pa

from penstock.errors import SqlError, UnsupportedError
from penstock.plan.expressions import ExpressionHost
from penstock.plan.joins import TimeBound
from penstock.plan.times import BEFORE_ALL
from penstock.sql.joins.as_of import not_by_time
from penstock.sql.joins.bounds import DifferenceBounds
from penstock.sql.joins.conjuncts import Conjunct
from penstock.sql.joins.inputs import Input, row_text
from penstock.sql.joins.times import Difference, EventTimes, Length
from penstock.sql.text.hints import Hints
from penstock.sql.text.intervals import length_text
from penstock.sql.text.lexing import quote


@dataclass(frozen=True, slots=True)
class BoundStreams:
    """Bounds between event times.

    Attributes:
        bounds: of every two streams.
        exact: the conjuncts that say no more than these bounds do.
        wider: where the hint STATE_TTL bounds the only two inputs, the bound with twice its length, if it differs.
    """

    bounds: tuple[TimeBound, ...]
    exact: tuple[Conjunct, ...]
    wider: tuple[TimeBound, ...] = ()


def refuse_unjoined(inputs: Sequence[Input], conjuncts: Sequence[Conjunct]) -> None:
    """Makes sure that conditions join all inputs.

    Raises:
        UnsupportedError: one is joined with those before it by none.
    """
    joined = {0}
    grown = True
    while grown:
        grown = False
        for conjunct in conjuncts:
            if conjunct.inputs & joined and not conjunct.inputs <= joined:
                joined |= conjunct.inputs
                grown = True
    for number, each in enumerate(inputs):
        if number not in joined:
            raise unjoined(each)


def unjoined(each: Input) -> UnsupportedError:
    """The mistake that no condition joins an input."""
    alias = each.source.alias
    message = (
        f"No condition joins {alias} with the other inputs. A cross join is not supported: compare a column of "
        f"{alias} with one of another input."
    )
    return each.source.clause.error(UnsupportedError, message)


def bound_streams(
    inputs: Sequence[Input],
    conjuncts: Sequence[Conjunct],
    matching: Sequence[Conjunct] | None,
    host: ExpressionHost,
    zone: str,
    hints: Hints,
    match: Conjunct | None = None,
    behind: Sequence[Conjunct] = (),
) -> BoundStreams:
    """The bounds that conditions set to the event times of every two streams.

    Args:
        inputs: of the join.
        conjuncts: its conditions on every row.
        matching: those by which an optional stream, the last input, matches: they bind no others to one another. None: there is
            no such stream.
        host: Spark's analysis over joined rows.
        zone: the session's time zone.
        hints: with STATE_TTL event times of two streams are at most so far apart where no condition says how far.
        match: which rows of an optional stream may be the newest one; without STATE_TTL they may have any age.
        behind: the conditions of selections over the join. STATE_TTL bounds the join that they select from, so with it
            they only narrow what the other conditions and the hint allow.

    Raises:
        UnsupportedError: two streams without one, with the bound to add; or `match` does not compare their event times.
        SqlError: bounds that contradict one another or STATE_TTL, or STATE_TTL where there is nothing to bound.
    """
    ttl = hints.state_ttl
    streams = [number for number, each in enumerate(inputs) if not each.relation.is_static]
    shown = [each.time for each in inputs if each.time is not None and each.shows_time]
    types = host.types([row_text(column) for column in shown])
    local = {column: kind.tz is None for column, kind in zip(shown, types, strict=True)}
    times = EventTimes(local, zone, lambda text: _length(text, host))
    optional = None if matching is None else len(inputs) - 1
    found = [
        (each, times.differences(each))
        for each in (*conjuncts, *(each for each in matching or () if optional in each.inputs))
    ]
    exact = [
        each
        for each, own in found
        if own and each.operator != "=" and all(difference.is_exact for difference in own)
    ]
    before = [difference for each, own in found if ttl is None or each not in behind for difference in own]
    after = [difference for each, own in found if ttl is not None and each in behind for difference in own]
    inner = _noted([number for number in streams if number != optional], before)
    bounds = _noted(streams, before)
    if match is not None and optional is not None:
        if not any(each.later == optional for each in times.differences(match)) or match.operator == "=":
            raise not_by_time(match, inputs)
        for stream in streams:
            if ttl is None and stream != optional and bounds.most(optional, stream) is None:
                bounds.add(optional, stream, -BEFORE_ALL)
    lacking = [
        each
        for pair in combinations(streams, 2)
        for each in (pair, pair[::-1])
        if (bounds if optional in pair else inner).most(*each) is None
    ]
    if ttl is None and lacking:
        first, second = sorted(lacking[0])
        raise _unbound(inputs[first], inputs[second], bounds if second == optional else inner)
    if _noted(streams, [*before, *after]).is_contradictory:
        clause = inputs[streams[-1]].source.clause
        raise clause.error(SqlError, "The bounds on event times contradict each other; no rows can match.")
    wider: tuple[TimeBound, ...] = ()
    if ttl is not None:
        if not lacking:
            message = (
                "Every two streams have a bound on event time, so STATE_TTL has no effect. Remove the hint."
            )
            raise _of_hint(message, inputs, hints)
        filled = [Difference(*pair, ttl, is_exact=True) for pair in lacking]
        for known in (inner, bounds):
            _note(known, [*filled, *after])
        if bounds.is_contradictory:
            message = (
                f"STATE_TTL keeps event times at most {length_text(ttl)} apart, which contradicts the bounds of the conditions; "
                "no rows can match. Write a longer time."
            )
            raise _of_hint(message, inputs, hints)
        if len(inputs) == 2 and match is None:
            twice = [Difference(*pair, 2 * ttl, is_exact=True) for pair in lacking]
            wider = _noted(streams, [*before, *twice, *after]).bounds()
    outer = tuple(each for each in bounds.bounds() if each.right == optional)
    every = (*inner.bounds(), *outer)
    return BoundStreams(every, tuple(exact), wider if wider != every else ())


def _noted(streams: Sequence[int], differences: Sequence[Difference]) -> DifferenceBounds:
    bounds = DifferenceBounds(streams)
    _note(bounds, differences)
    return bounds


def _note(bounds: DifferenceBounds, differences: Sequence[Difference]) -> None:
    for each in differences:
        if bounds.has(each.earlier) and bounds.has(each.later):
            bounds.add(each.earlier, each.later, each.most)


def _of_hint(message: str, inputs: Sequence[Input], hints: Hints) -> SqlError:
    return SqlError(message, inputs[0].source.clause.script, *hints.places["STATE_TTL"])


def _length(text: str, host: ExpressionHost) -> Length | None:
    """The length of time that a constant is."""
    (kind,) = host.types([text])
    if pa.types.is_duration(kind):
        (value,) = host.constants([text])
        return Length(value, value) if isinstance(value, int) else None
    if kind == pa.month_day_nano_interval():
        try:
            (months,) = host.constants([f"CAST(CAST(({text}\n) AS INTERVAL MONTH) AS INT)"])
        except SqlError:
            return None
        return Length.of_months(months) if isinstance(months, int) else None
    return None


def _unbound(first: Input, second: Input, bounds: DifferenceBounds) -> UnsupportedError:
    """That two streams have no bound, and how to write one."""
    one, other = first.source, second.source
    clause = other.clause
    hidden = next((each for each in (first, second) if not each.shows_time), None)
    if hidden is not None:
        message = (
            f"Streams {one.alias} and {other.alias} are joined without a bound on event time. View {hidden.source.source} "
            f"does not select its event time: add {hidden.relation.time} to its SELECT list, then a bound to the condition."
        )
        return clause.error(UnsupportedError, message)
    assert first.time is not None
    assert second.time is not None
    number, last = first.time.input, second.time.input
    earlier, later = _named(one.alias, first.time.name), _named(other.alias, second.time.name)
    low, high = f"{earlier} - INTERVAL 1 HOUR", f"{earlier} + INTERVAL 1 HOUR"
    if bounds.most(number, last) is not None:
        bound, which = f"{later} >= {low}", "a lower bound"
    elif bounds.most(last, number) is not None:
        bound, which = f"{later} <= {high}", "an upper bound"
    else:
        bound, which = f"{later} BETWEEN {low} AND {high}", "a bound"
    place, word = "the condition", "AND"
    if other.member is not None:
        place, word = "the query in IN", "WHERE" if other.on is None else "AND"
    message = (
        f"Streams {one.alias} and {other.alias} are joined without {which} on event time, so Penstock could "
        f"never delete old tuples. Add a bound to {place}, such as: {word} {bound}. Or add the hint /*+ STATE_TTL('1 hour') */ behind "
        "SELECT, to join rows whose event times are at most an hour apart."
    )
    return clause.error(UnsupportedError, message)


def _named(alias: str, column: str) -> str:
    return ".".join(name if name.isidentifier() else quote(name) for name in (alias, column))
