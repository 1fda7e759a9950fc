"""`ASOF JOIN r MATCH_CONDITION (l.t >= r.t)` and `JOIN r FOR SYSTEM_TIME AS OF l.t`: a row meets the newest row at or before its time."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.errors import SqlError, UnsupportedError
from penstock.sql.joins.conjuncts import Conjunct, conjuncts
from penstock.sql.joins.inputs import Input
from penstock.sql.joins.query import AS_OF, JoinQuery, JoinSource, JoinWord
from penstock.sql.joins.scope import Scope
from penstock.sql.joins.version_clauses import LATERAL, MATCH
from penstock.sql.text.clauses import Clause
from penstock.sql.text.lexing import quote

#: what to do where no join view can answer
INSTEAD = f"With the hint /*+ REFRESH('1 minute') */ behind SELECT, write {LATERAL} instead"


def matched(query: JoinQuery, inputs: Sequence[Input]) -> Conjunct | None:
    """The comparison of event times that a join with the newest row has; None: the query has no such join.

    Raises:
        UnknownNameError: a name that no column has, or several columns.
        UnsupportedError: it is no such comparison, or a join that is not answered.
    """
    if not any(source.word in AS_OF.values() for source in query.sources):
        return None
    named = {each.source.alias: each for each in inputs}
    before = Scope((), (), ())
    for source in query.sources:
        own = named[source.alias]
        if source.word in AS_OF.values():
            _refuse_inputs(own, [each for each in inputs if each is not own])
            right = Scope([source.alias], [own.columns], own.columns)
            if source.moment is not None:
                time = _shown_time(own)
                text = f"{quote(source.alias)}.{quote(time)}"
                written = right.expression(Clause(text, source.moment.script, source.moment.start))
                return Conjunct(source.moment, (before.expression(source.moment), written), ">=")
            assert source.match is not None, "it has one or the other"
            scope = before.joined(source.alias, own.columns, ())
            found = conjuncts(source.match, scope)
            if len(found) != 1 or found[0].operator is None:
                raise not_by_time(
                    found[0], [each for each in inputs if each.source.alias not in query.looked_up]
                )
            return found[0]
        before = before.joined(source.alias, own.columns, source.using)
    return None


def not_by_time(match: Conjunct, inputs: Sequence[Input]) -> UnsupportedError:
    """The mistake that a MATCH_CONDITION does not say what it must."""
    right = inputs[-1]
    left = next(each for each in inputs if not each.relation.is_static)
    one = f"{left.source.alias}.{_name_of_time(left)}"
    other = f"{right.source.alias}.{_name_of_time(right)}"
    message = (
        f"An ASOF JOIN takes the newest row of {right.source.alias} at or before the event time of {left.source.alias}. Write {MATCH} "
        f"({one} >= {other}), or > for the newest one before it. {INSTEAD}."
    )
    return match.clause.error(UnsupportedError, message)


def refuse_without_key(matching: Sequence[Conjunct], source: JoinSource, number: int) -> None:
    """Make sure that versions are those of a key.

    Args:
        matching: the conditions by which the input matches.
        source: the input.
        number: of the input.

    Raises:
        UnsupportedError: no equality compares a column of the input with one of another.
    """
    if any(each.operator == "=" and each.sides is not None and number in each.sides for each in matching):
        return
    message = (
        f"A join with the newest row of {source.alias} needs an equality after ON, such as ON a.key = {source.alias}.key: the newest "
        "row is that of a key."
    )
    clause = source.on or source.clause
    raise clause.error(UnsupportedError, message)


def _refuse_inputs(own: Input, others: Sequence[Input]) -> None:
    """Makes sure that one stream meets the newest row of another one."""
    source = own.source
    if own.relation.is_static:
        message = (
            f"{source.alias} is a static table, of which only its current rows are joined. Declare a stream over its versions, or write "
            f"{'LEFT ' if source.word is JoinWord.LEFT_AS_OF else ''}JOIN. {INSTEAD}."
        )
        raise source.clause.error(UnsupportedError, message)
    streams = [each.source.alias for each in others if not each.relation.is_static]
    if len(streams) != 1:
        found = (
            f"Inputs that are streams: {', '.join(streams)}"
            if streams
            else "All of the other inputs are static tables"
        )
        message = f"A join with the newest row of {source.alias} has one other stream. {found}. {INSTEAD}."
        raise source.clause.error(UnsupportedError, message)


def _shown_time(own: Input) -> str:
    if own.time is not None and own.shows_time:
        return own.time.name
    source = own.source
    message = (
        f"View {source.source} does not select its event time {own.relation.time}, by which the newest row is found. Add it to its "
        "SELECT list."
    )
    raise source.clause.error(SqlError, message)


def _name_of_time(each: Input) -> str:
    return each.time.name if each.time is not None and each.shows_time else str(each.relation.time)
