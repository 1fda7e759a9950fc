"""Joined rows judged by users' functions, one after the other: a row that one turns away, the next ones never see.

A function takes arrays, so that the one value at which it raises costs the whole call: the rows are then tried in halves, until
those that raise stand alone. Such a row is no match, and counted.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import FunctionRaisedError
from penstock.operators.selection.selector import SelectionPlan, Selector

Places = npt.NDArray[np.int64]
#: rows that a function is given at once, as many as Spark gives it
CALL_ROWS = 10_000


@dataclass(frozen=True, slots=True, eq=False)
class PredicateProgram:
    """A predicate to be run; it can be pickled.

    Attributes:
        function: takes an array an argument and returns one of as many values; raises `FunctionRaisedError`.
        arguments: names of columns, or constants.
        argument_types: the types it is given them in.
        type: the type of its values.
        selection: satisfied by the values for which a row matches; None: those that are true.
    """

    function: Callable[..., pa.Array | pa.ChunkedArray]
    arguments: tuple[str | pa.Scalar, ...]
    argument_types: tuple[pa.DataType, ...]
    type: pa.DataType
    selection: SelectionPlan | None


@dataclass(slots=True)
class PredicateMeasure:
    """What a predicate did.

    Attributes:
        tuples: joined rows that came.
        passed: those it let through.
        raised: those at which it raised.
        seconds: it took; what it waited for counts too.
    """

    tuples: int = 0
    passed: int = 0
    raised: int = 0
    seconds: float = 0.0


class UserPredicates:
    """Judges joined rows.

    Args:
        programs: in the order they are run in.
    """

    def __init__(self, programs: Sequence[PredicateProgram]) -> None:
        #: what each of the programs did so far
        self.measures = tuple(PredicateMeasure() for _ in programs)
        self._judges = [_Judge(*each) for each in zip(programs, self.measures, strict=True)]

    def matching(self, column: Callable[[str], pa.Array], rows: int) -> Places:
        """The rows that satisfy all predicates, ascending.

        Args:
            column: gives the values of a column, `rows` each.
            rows: how many there are.

        Raises:
            FunctionFailedError: a function returned something else than it is registered to return.
        """
        places = np.arange(rows)
        for judge in self._judges:
            if len(places):
                places = judge.matching(column, rows, places)
        return places


class _Judge:
    def __init__(self, program: PredicateProgram, measure: PredicateMeasure) -> None:
        self._program, self._measure = program, measure
        self._selector = None if program.selection is None else Selector(program.selection)

    def matching(self, column: Callable[[str], pa.Array], rows: int, places: Places) -> Places:
        began = time.perf_counter()
        taken = [each if isinstance(each, pa.Scalar) else column(each) for each in self._program.arguments]
        found = [
            places[first:][self._judged(taken, rows, places[first : first + CALL_ROWS])]
            for first in range(0, len(places), CALL_ROWS)
        ]
        matching = np.concatenate(found)
        self._measure.tuples += len(places)
        self._measure.passed += len(matching)
        self._measure.seconds += time.perf_counter() - began
        return matching

    def _judged(self, taken: Sequence[pa.Array | pa.Scalar], rows: int, places: Places) -> Places:
        """Which of some rows match, as places among them."""
        chosen = None if len(places) == rows else pa.array(places)
        given = []
        for each, kind in zip(taken, self._program.argument_types, strict=True):
            if isinstance(each, pa.Scalar):
                array = pa.repeat(each, len(places))
            else:
                array = each if chosen is None else each.take(chosen)
            given.append(array if array.type == kind else array.cast(kind))
        found = [first + self._satisfying(values) for first, values in self._values(given, 0, len(places))]
        return np.concatenate([np.zeros(0, np.int64), *found])

    def _values(self, given: Sequence[pa.Array], first: int, rows: int) -> Iterator[tuple[int, pa.Array]]:
        """The function's values from a row on, of those rows at which it does not raise."""
        try:
            values = self._program.function(*(each.slice(first, rows) for each in given))
        except FunctionRaisedError:
            if rows == 1:
                self._measure.raised += 1
                return
            half = rows // 2
            yield from self._values(given, first, half)
            yield from self._values(given, first + half, rows - half)
            return
        if isinstance(values, pa.ChunkedArray):
            values = values.combine_chunks()
        yield first, values if values.type == self._program.type else values.cast(self._program.type)

    def _satisfying(self, values: pa.Array) -> Places:
        if self._selector is None:
            return np.flatnonzero(pc.fill_null(values, False).to_numpy(zero_copy_only=False))
        columns = [values] * len(self._selector.plan.columns)
        return np.flatnonzero(np.diff(self._selector.match(columns, len(values)).offsets))
