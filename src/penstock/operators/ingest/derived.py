"""How derived columns travel from Spark to the worker: booleans and error flags packed into words.

An Arrow column costs Spark far more than the boolean in it, so 32 of them share one `BIGINT`, two
bits each: FALSE, TRUE, NULL, or RAISED where the expression raised.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.plan.expressions import Derived

FALSE, TRUE, NULL, RAISED = range(4)
WORD_CODES = 32
_BYTE_CODES = 4


@dataclass(frozen=True, slots=True)
class DerivedLayout:
    """Where each derived column is found.

    Attributes:
        booleans: derived booleans, each with its error flag; they fill the first words.
        scalars: the others, a column each.
        raising: those of `scalars` that may raise; their error flags fill the remaining words.
    """

    booleans: tuple[Derived, ...]
    scalars: tuple[Derived, ...]
    raising: tuple[Derived, ...]

    @classmethod
    def of(cls, derived: Sequence[Derived]) -> DerivedLayout:
        """The layout of a set of derived columns; the driver and the workers arrive at the same."""
        scalars = tuple(each for each in derived if not pa.types.is_boolean(each.type))
        return cls(
            booleans=tuple(each for each in derived if pa.types.is_boolean(each.type)),
            scalars=scalars,
            raising=tuple(each for each in scalars if each.error_column is not None),
        )

    @property
    def boolean_words(self) -> list[str]:
        """Names of the words that hold the booleans."""
        return _names("boolean", len(self.booleans))

    @property
    def error_words(self) -> list[str]:
        """Names of the words that hold the scalars' error flags."""
        return _names("error", len(self.raising))

    @property
    def columns(self) -> int:
        """Columns that Spark hands over for all of them."""
        return len(self.scalars) + len(self.boolean_words) + len(self.error_words)

    def unpack(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Replaces the words by the columns packed into them.

        Args:
            batch: the tuple's columns, the scalars and the words.

        Returns:
            The tuple's columns, the scalars, the booleans and the error columns; the error columns
            hold no NULL.
        """
        words = [*self.boolean_words, *self.error_words]
        if not words:
            return batch
        arrays = dict(zip(batch.schema.names, batch.columns, strict=True))
        bytes_of = {word: _bytes(arrays.pop(word)) for word in words}
        for number, each in enumerate(self.booleans):
            codes = _codes(bytes_of[self.boolean_words[number // WORD_CODES]], number % WORD_CODES)
            arrays[each.name] = _boolean(codes == TRUE, codes < NULL)
            if each.error_column is not None:
                arrays[each.error_column] = _boolean(codes == RAISED)
        for number, each in enumerate(self.raising):
            codes = _codes(bytes_of[self.error_words[number // WORD_CODES]], number % WORD_CODES)
            assert each.error_column is not None
            arrays[each.error_column] = _boolean(codes == RAISED)
        return pa.RecordBatch.from_arrays(list(arrays.values()), names=list(arrays))


def _names(kind: str, codes: int) -> list[str]:
    return [f"__penstock_{kind}_{number}" for number in range(-(-codes // WORD_CODES))]


def _bytes(word: pa.Int64Array) -> npt.NDArray[np.uint8]:
    """uint8[8, rows]: each byte of the words as a row of its own, lowest first."""
    values = word.to_numpy(zero_copy_only=True).astype("<i8", copy=False)
    return np.ascontiguousarray(values.view(np.uint8).reshape(-1, 8).T)


def _codes(word: npt.NDArray[np.uint8], number: int) -> npt.NDArray[np.uint8]:
    codes: npt.NDArray[np.uint8] = np.bitwise_and(
        word[number // _BYTE_CODES] >> np.uint8(2 * (number % _BYTE_CODES)), np.uint8(3)
    )
    return codes


def _boolean(values: npt.NDArray[np.bool_], valid: npt.NDArray[np.bool_] | None = None) -> pa.BooleanArray:
    validity = None if valid is None else pa.py_buffer(np.packbits(valid, bitorder="little"))
    bits = pa.py_buffer(np.packbits(values, bitorder="little"))
    return pa.Array.from_buffers(pa.bool_(), len(values), [validity, bits])
