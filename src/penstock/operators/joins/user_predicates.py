"""Joined rows judged by users' functions, one after the other: a row that one turns away, the next ones never see.

A row at which a function raises is no match, and counted.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.operators.functions.caller import FunctionCaller, FunctionProgram, Places
from penstock.operators.selection.selector import SelectionPlan, Selector


@dataclass(frozen=True, slots=True, eq=False)
class PredicateProgram:
    """A predicate to be run; it can be pickled.

    Attributes:
        call: the call.
        selection: satisfied by the values for which a row matches; None: those that are true.
    """

    call: FunctionProgram
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
        self._call, self._measure = program.call, measure
        self._caller = FunctionCaller(program.call)
        self._selector = None if program.selection is None else Selector(program.selection)

    def matching(self, column: Callable[[str], pa.Array], rows: int, places: Places) -> Places:
        began = time.perf_counter()
        taken = [each if isinstance(each, pa.Scalar) else column(each) for each in self._call.arguments]
        matching = places[self._judged(taken, rows, places)]
        self._measure.tuples += len(places)
        self._measure.passed += len(matching)
        self._measure.seconds += time.perf_counter() - began
        return matching

    def _judged(self, taken: Sequence[pa.Array | pa.Scalar], rows: int, places: Places) -> Places:
        """Which of some rows match, as places among them."""
        called = self._caller.call(taken, None if len(places) == rows else places, len(places))
        self._measure.raised += len(called.raised)
        found, begin = [np.zeros(0, np.int64)], 0
        for values in called.values:
            found.append(called.places[begin + self._satisfying(values)])
            begin += len(values)
        return np.concatenate(found)

    def _satisfying(self, values: pa.Array) -> Places:
        if self._selector is None:
            return np.flatnonzero(pc.fill_null(values, False).to_numpy(zero_copy_only=False))
        columns = [values] * len(self._selector.plan.columns)
        return np.flatnonzero(np.diff(self._selector.match(columns, len(values)).offsets))
