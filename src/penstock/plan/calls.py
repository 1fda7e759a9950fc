"""Calls of users' functions in conditions: computed in the worker, of tuples that satisfy everything else."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from penstock.plan.selection import Query
from penstock.plan.trees import Values


@dataclass(frozen=True, slots=True)
class Argument:
    """What a user's function is given.

    Attributes:
        column: name of a column; None: the argument is a constant.
        constant: its Spark SQL; None: it is a column.
    """

    column: str | None
    constant: str | None


@dataclass(frozen=True, slots=True)
class UserCall:
    """A call of a user's function.

    Attributes:
        name: of the column that has its values. An argument may be such a column of another call.
        text: the call as it was first written, for people.
        function: the function's name, in upper case.
        arguments: what it is given.
        type: Arrow type of its values.
        raising: names of boolean columns that are TRUE where an argument raised.
    """

    name: str
    text: str
    function: str
    arguments: tuple[Argument, ...]
    type: pa.DataType
    raising: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Branch:
    """One of the ways to satisfy a query for which functions have to be called.

    Attributes:
        query: everything else that must hold, under the name of the query.
        tests: (name of a call, values one of which it must have) pairs, all of which must hold.
    """

    query: Query
    tests: tuple[tuple[str, Values], ...]
