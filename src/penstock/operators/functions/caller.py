"""A user's function called for some rows: a row at which it raises costs that row alone.

A function takes arrays, so that the one value at which it raises costs the whole call: the rows are then tried in halves, until
those that raise stand alone. Pieces become shorter where that happens, so that less is called twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.errors import FunctionRaisedError

Places = npt.NDArray[np.int64]
#: rows that a function is given at once at the most, as many as Spark gives it
CALL_ROWS = 10_000
#: rows of the shortest piece
_LEAST_ROWS = 16
#: what a piece is divided by after it raised, and multiplied by after it did not
_SHORTER, _LONGER = 8, 1.25


@dataclass(frozen=True, slots=True, eq=False)
class FunctionProgram:
    """A call to be run; it can be pickled if the function can.

    Attributes:
        function: takes an array an argument and returns one of as many values; raises `FunctionRaisedError`.
        arguments: names of columns, or constants.
        argument_types: the types it is given them in.
        type: the type of its values.
    """

    function: Callable[..., pa.Array | pa.ChunkedArray]
    arguments: tuple[str | pa.Scalar, ...]
    argument_types: tuple[pa.DataType, ...]
    type: pa.DataType


@dataclass(slots=True)
class Called:
    """What a function made of some rows.

    Attributes:
        places: int64[], of those at which it did not raise, as places among the rows that were given, ascending.
        values: of these, in pieces.
        raised: the places at which it raised, with what it said.
    """

    places: Places
    values: list[pa.Array]
    raised: list[tuple[int, str]] = field(default_factory=list)


class FunctionCaller:
    """Calls one function again and again.

    Args:
        program: the call.
    """

    def __init__(self, program: FunctionProgram) -> None:
        self._program = program
        self._piece = float(CALL_ROWS)

    def call(self, taken: Sequence[pa.Array | pa.Scalar], places: Places | None, rows: int) -> Called:
        """Calls the function.

        Args:
            taken: the columns of the arguments, or constants.
            places: int64[], the rows of the columns that are wanted; None: all.
            rows: how many are wanted.

        Raises:
            FunctionFailedError: it returned something else than it is registered to return.
        """
        found = Called(np.zeros(0, np.int64), [])
        parts: list[Places] = []
        first = 0
        while first < rows:
            count = min(rows - first, max(_LEAST_ROWS, int(self._piece)))
            given = self._given(taken, places, first, count)
            raised: list[tuple[int, str]] = []
            for place, values in self._values(given, 0, count, raised):
                parts.append(np.arange(first + place, first + place + len(values)))
                found.values.append(values)
            found.raised += [(first + place, reason) for place, reason in raised]
            has_raised = bool(raised)
            self._piece = self._piece / _SHORTER if has_raised else self._piece * _LONGER
            self._piece = min(max(self._piece, _LEAST_ROWS), CALL_ROWS)
            first += count
        found.places = np.concatenate([found.places, *parts])
        return found

    def _given(
        self, taken: Sequence[pa.Array | pa.Scalar], places: Places | None, first: int, rows: int
    ) -> list[pa.Array]:
        chosen = None if places is None else pa.array(places[first : first + rows])
        given = []
        for each, kind in zip(taken, self._program.argument_types, strict=True):
            if isinstance(each, pa.Scalar):
                array = pa.repeat(each, rows)
            else:
                array = each.slice(first, rows) if chosen is None else each.take(chosen)
            given.append(array if array.type == kind else array.cast(kind))
        return given

    def _values(
        self, given: Sequence[pa.Array], first: int, rows: int, raised: list[tuple[int, str]]
    ) -> Iterator[tuple[int, pa.Array]]:
        """The function's values from a row on, of those rows at which it does not raise."""
        try:
            values = self._program.function(*(each.slice(first, rows) for each in given))
        except FunctionRaisedError as error:
            if rows == 1:
                raised.append((first, str(error)))
                return
            half = rows // 2
            yield from self._values(given, first, half, raised)
            yield from self._values(given, first + half, rows - half, raised)
            return
        if isinstance(values, pa.ChunkedArray):
            values = values.combine_chunks()
        yield first, values if values.type == self._program.type else values.cast(self._program.type)
