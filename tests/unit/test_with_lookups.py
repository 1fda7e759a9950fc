"""Which LEFT JOINs of a text are lookups, and how inputs are numbered then."""

from __future__ import annotations

import pytest

from penstock.errors import UnsupportedError
from penstock.sql.joins.inputs import Relation
from penstock.sql.joins.lookups import with_lookups
from penstock.sql.joins.query import JoinQuery
from penstock.sql.script.queries import parse_query

#: streams s, r, q and static tables t0 to t8
RELATIONS = {name.upper(): Relation(name, ("k",), "at") for name in "srq"} | {
    f"T{number}": Relation(f"t{number}", ("k",), None, is_static=True) for number in range(9)
}


def found(joins: str) -> tuple[tuple[str, ...], str]:
    """The lookups, and all inputs as they are numbered."""
    query = parse_query(f"SELECT s.k FROM s {joins}")
    assert isinstance(query, JoinQuery)
    query = with_lookups(query, RELATIONS)
    return query.looked_up, " ".join(each.alias for each in query.numbered)


def on(*names: str, word: str = "LEFT JOIN") -> str:
    return " ".join(f"{word} {name} ON s.k = {name}.k" for name in names)


@pytest.mark.parametrize(
    ("joins", "lookups", "numbered"),
    [
        (on("t0"), (), "s t0"),
        (on("r"), (), "s r"),
        (on("t0", "t1", "t2"), ("t1", "t2"), "s t0 t1 t2"),
        (on("t0", "r", "t1"), ("t0", "t1"), "s r t0 t1"),
        (f"{on('t0', 't1')} {on('r', word='JOIN')}", ("t1",), "s r t0 t1"),
        (f"{on('r', word='RIGHT JOIN')} {on('t0')}", ("t0",), "r s t0"),
        (f"{on('r', word='FULL JOIN')} {on('t0', 't1')}", ("t0", "t1"), "s r t0 t1"),
        (f"{on('t0')} {on('t1', word='ANTI JOIN')}", ("t0",), "s t1 t0"),
        (
            on(*(f"t{number}" for number in range(9))),
            tuple(f"t{number}" for number in range(1, 9)),
            "s t0 t1 t2 t3 t4 t5 t6 t7 t8",
        ),
    ],
)
def test_all_left_joins_with_tables_but_one_are_lookups(
    joins: str, lookups: tuple[str, ...], numbered: str
) -> None:
    assert found(joins) == (lookups, numbered)


@pytest.mark.parametrize(
    ("joins", "told"),
    [
        (on("r", "t0", "q"), "A LEFT JOIN with r and a LEFT JOIN with q in one view"),
        (f"{on('r')} {on('q', word='ANTI JOIN')}", "A LEFT JOIN with r and a LEFT ANTI JOIN with q"),
        (f"{on('t0', 't1', 't2', 't3', 't4', word='JOIN')} {on('t5')}", "more than 6 inputs"),
    ],
)
def test_what_would_wait_for_two_streams_is_refused(joins: str, told: str) -> None:
    with pytest.raises(UnsupportedError, match=told):
        found(joins)
