"""Pairs of tuple and branch judged by calls of users' functions, one call after the other.

Of each call the tuples of all its pairs are given to the function together: views share what they have in common, and a pair that one
call turns away, the next ones never see.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.operators.functions.caller import FunctionCaller, FunctionProgram, Places
from penstock.operators.selection.selector import SelectionPlan, Selector

#: what is measured of a call: pairs judged, pairs that passed, tuples it was called for, those at which it raised, seconds
PAIRS, PASSED, CALLED, RAISED, SECONDS = range(5)
MEASURES = 5
Measures = npt.NDArray[np.float64]
#: takes an array an argument and returns one of as many values
Function = Callable[..., pa.Array]

_UNKNOWN, _RAISED = -1, -2


@dataclass(frozen=True, slots=True, eq=False)
class CallProgram:
    """A call of a program.

    Attributes:
        name: of the column of its values.
        text: as it was written.
        arguments: names of columns, or constants.
        argument_types: the types it is given them in.
        type: the type of its values.
        raising: names of boolean columns that are TRUE where an argument raised.
        tests: the tests of its values, compiled; None: it is an argument of others alone.
    """

    name: str
    text: str
    arguments: tuple[str | pa.Scalar, ...]
    argument_types: tuple[pa.DataType, ...]
    type: pa.DataType
    raising: tuple[str, ...]
    tests: SelectionPlan | None


@dataclass(frozen=True, slots=True, eq=False)
class CallsProgram:
    """The calls of a compiled plan version; it can be pickled.

    Attributes:
        calls: each behind those that are its arguments.
        functions: the function of each call, pickled by value.
        first: number of the query of the first branch.
        owners: int64[branches], the number of the query that each branch belongs to.
        tested: int32[calls, branches], the test of the call in the branch; -1: none.
    """

    calls: tuple[CallProgram, ...]
    functions: bytes
    first: int
    owners: npt.NDArray[np.int64]
    tested: npt.NDArray[np.int32]

    @property
    def columns(self) -> list[str]:
        """The columns that calls are given."""
        own = {call.name for call in self.calls}
        wanted = [each for call in self.calls for each in (*call.arguments, *call.raising)]
        return list(dict.fromkeys(each for each in wanted if isinstance(each, str) and each not in own))


@dataclass(frozen=True, slots=True)
class RaisedRow:
    """A tuple that a call was not computed for.

    Attributes:
        row: its place in the batch.
        call: the call.
        reason: what the function said, or which argument raised.
    """

    row: int
    call: str
    reason: str


@dataclass(slots=True)
class Judged:
    """What calls decide.

    Attributes:
        offsets, queries: all matches of the batch, see `Matches`, without branches.
        lost: int64[], the queries that tuples were lost for; one entry each.
        raised: tuples at which calls raised.
    """

    offsets: npt.NDArray[np.int64]
    queries: npt.NDArray[np.int32]
    lost: npt.NDArray[np.int64]
    raised: list[RaisedRow] = field(default_factory=list)


class CallJudge:
    """Judges the branches of one program.

    Args:
        program: its calls.
        functions: of each call.
    """

    def __init__(self, program: CallsProgram, functions: Sequence[Function]) -> None:
        self._program = program
        self._calls = [_Call(*each) for each in zip(program.calls, functions, strict=True)]
        self._numbers = {call.name: number for number, call in enumerate(program.calls)}
        self._order = list(range(len(program.calls)))
        self.begin()

    def begin(self) -> None:
        """Starts a new task: nothing is measured yet."""
        #: float64[calls, MEASURES]
        self.measures: Measures = np.zeros((len(self._calls), MEASURES))
        #: int64[branches], pairs that were judged
        self.branch_pairs = np.zeros(len(self._program.owners), np.int64)

    def reorder(self, order: Sequence[int]) -> None:
        """Runs calls in another order.

        Args:
            order: all numbers of calls; (): as in the program.
        """
        self._order = list(order) or list(range(len(self._calls)))

    def judge(
        self,
        offsets: npt.NDArray[np.int64],
        queries: npt.NDArray[np.int32],
        rows: int,
        column: Callable[[str], pa.Array],
    ) -> Judged:
        """Decides what calls decide.

        Args:
            offsets, queries: row i satisfies queries[offsets[i]:offsets[i + 1]], those of branches among them.
            rows: number of tuples.
            column: gives the values of a column, `rows` each.

        Raises:
            FunctionFailedError: a function returned something else than it is registered to return.
        """
        program = self._program
        none = np.zeros(0, np.int64)
        undecided = queries >= program.first
        if not undecided.any():
            return Judged(offsets, queries, none)
        row_of = np.repeat(np.arange(rows), np.diff(offsets))
        sure = _keys(row_of[~undecided], queries[~undecided], program.first)
        own_rows, branches = row_of[undecided], queries[undecided] - program.first
        wanted = _keys(own_rows, program.owners[branches], program.first)
        open_ = ~np.isin(wanted, sure)
        own_rows, branches, wanted = own_rows[open_], branches[open_], wanted[open_]
        self.branch_pairs += np.bincount(branches, minlength=len(self.branch_pairs))
        values = _Values(self._calls, self._numbers, self.measures, column, rows)
        alive = np.ones(len(wanted), np.bool_)
        lost = np.zeros(len(wanted), np.bool_)
        for number in self._order:
            tests = program.tested[number][branches]
            mine = np.flatnonzero(alive & (tests >= 0))
            if not len(mine):
                continue
            began = time.perf_counter()
            passed, raised = values.tested(number, own_rows[mine], tests[mine])
            alive[mine[~passed]] = False
            lost[mine[raised]] = True
            self.measures[number, PAIRS] += len(mine)
            self.measures[number, PASSED] += np.count_nonzero(passed)
            self.measures[number, SECONDS] += time.perf_counter() - began
        every = np.union1d(sure, wanted[alive])
        found = np.zeros(rows + 1, np.int64)
        np.cumsum(np.bincount(every // program.first, minlength=rows), out=found[1:])
        missed = np.setdiff1d(wanted[lost], every)
        return Judged(found, (every % program.first).astype(np.int32), missed % program.first, values.raised)


class _Call:
    def __init__(self, program: CallProgram, function: Function) -> None:
        self.program = program
        self.caller = FunctionCaller(
            FunctionProgram(function, program.arguments, program.argument_types, program.type)
        )
        self._selector = None if program.tests is None else Selector(program.tests)

    def satisfied(self, values: pa.Array) -> npt.NDArray[np.int64]:
        """Which tests values satisfy: place x number of tests + test, ascending."""
        assert self._selector is not None, "a branch tests the call"
        plan = self._selector.plan
        found = self._selector.match([values] * len(plan.columns), len(values))
        places = np.repeat(np.arange(len(values)), np.diff(found.offsets))
        return places * len(plan.names) + found.queries

    @property
    def tests(self) -> int:
        """How many tests there are."""
        return 0 if self._selector is None else len(self._selector.plan.names)


class _Values:
    """The values of calls in one batch, computed when they are wanted."""

    def __init__(
        self,
        calls: Sequence[_Call],
        numbers: dict[str, int],
        measures: Measures,
        column: Callable[[str], pa.Array],
        rows: int,
    ) -> None:
        self.raised: list[RaisedRow] = []
        self._calls, self._numbers, self._measures = calls, numbers, measures
        self._column, self._rows = column, rows
        #: by call: where the value of each row is among the pieces
        self._places: dict[int, npt.NDArray[np.int64]] = {}
        self._pieces: dict[int, list[pa.Array]] = {}

    def tested(
        self, number: int, rows: Places, tests: npt.NDArray[np.int32]
    ) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
        """Which (row, test) pairs pass, and at which rows the call raised, bool[pairs] each."""
        call = self._calls[number]
        distinct = np.unique(rows)
        places = self._known(number, distinct)
        good = distinct[places[distinct] >= 0]
        satisfied = call.satisfied(self._of(number, good))
        raised = places[rows] == _RAISED
        # of a row that raised, a place that is another row's
        keys = np.searchsorted(good, rows) * call.tests + tests
        return np.isin(keys, satisfied) & ~raised, raised

    def _known(self, number: int, rows: Places) -> npt.NDArray[np.int64]:
        """Where the values of rows are, computed unless they have been."""
        places = self._places.setdefault(number, np.full(self._rows, _UNKNOWN))
        pieces = self._pieces.setdefault(number, [])
        fresh = rows[places[rows] == _UNKNOWN]
        if not len(fresh):
            return places
        call = self._calls[number]
        fresh = self._with_arguments(number, fresh, places)
        taken = [
            each if isinstance(each, pa.Scalar) else self._argument(each, fresh)
            for each in call.program.arguments
        ]
        found = call.caller.call(taken, None, len(fresh))
        begin = sum(map(len, pieces))
        pieces += found.values
        places[fresh[found.places]] = begin + np.arange(len(found.places))
        for place, reason in found.raised:
            self._raise(int(fresh[place]), number, reason, places)
        self._measures[number, CALLED] += len(fresh)
        return places

    def _with_arguments(self, number: int, rows: Places, places: npt.NDArray[np.int64]) -> Places:
        """The rows of which all arguments are known; others are noted as raised."""
        program = self._calls[number].program
        for name in program.raising:
            failed = pc.fill_null(self._column(name).take(pa.array(rows)), False).to_numpy(
                zero_copy_only=False
            )
            for row in rows[failed].tolist():
                self._raise(row, number, f"an argument of {program.text} raised", places)
            rows = rows[~failed]
        for each in program.arguments:
            if isinstance(each, str) and each in self._numbers:
                inner = self._known(self._numbers[each], rows)
                # what raised there is noted there
                places[rows[inner[rows] == _RAISED]] = _RAISED
                rows = rows[inner[rows] >= 0]
        return rows

    def _argument(self, name: str, rows: Places) -> pa.Array:
        if name in self._numbers:
            return self._of(self._numbers[name], rows)
        return self._column(name).take(pa.array(rows))

    def _of(self, number: int, rows: Places) -> pa.Array:
        pieces = self._pieces[number]
        kind = self._calls[number].program.type
        whole = pa.concat_arrays(pieces) if pieces else pa.array([], kind)
        return whole.take(pa.array(self._places[number][rows]))

    def _raise(self, row: int, number: int, reason: str, places: npt.NDArray[np.int64]) -> None:
        places[row] = _RAISED
        self.raised.append(RaisedRow(row, self._calls[number].program.text, reason))
        self._measures[number, RAISED] += 1


def _keys(
    rows: npt.NDArray[np.int64], queries: npt.NDArray[np.int64] | npt.NDArray[np.int32], count: int
) -> npt.NDArray[np.int64]:
    """Numbers of (row, query) pairs, in the order of matches."""
    return rows * count + queries
