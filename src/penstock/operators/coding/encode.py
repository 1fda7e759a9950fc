"""Arrow columns to region codes, prepared once a column type."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.kernels.encode import encode_bucketed, encode_bytes, encode_direct, order_floats
from penstock.operators.coding.regions import RegionCoding
from penstock.plan.selection import Domain
from penstock.plan.value_sets import Key

Codes = npt.NDArray[np.unsignedinteger[Any]]
#: which rows of a column; None: all
Places = npt.NDArray[np.int32] | None

#: a table of every value's code is kept where the constants span at most this many values
DIRECT_SPAN = 1 << 20
#: buckets of the table that narrows the search elsewhere
BUCKET_BITS = 16
#: a decimal of at most this many digits fits the low 64 bits of its 128
LONG_DIGITS = 18

INT64_MIN, INT64_MAX = -(1 << 63), (1 << 63) - 1
MICROSECONDS = {"s": Fraction(10**6), "ms": Fraction(10**3), "us": Fraction(1), "ns": Fraction(1, 10**3)}
MILLISECONDS_A_DAY = 86_400_000


def code_type(codings: Sequence[RegionCoding]) -> type[np.uint16] | type[np.uint32]:
    """The narrowest unsigned type that holds every code of `codings`."""
    return np.uint16 if all(coding.codes <= 1 << 16 for coding in codings) else np.uint32


_Read = Callable[[pa.Array], npt.NDArray[Any]]


class ColumnEncoder:
    """Codes the columns of one p-attribute.

    Tables are built at the first column of each Arrow type, so columns whose unit, scale or width
    differs from the declared type's are coded exactly as well; those of another family are refused.

    Args:
        coding: the attribute's regions.
        dtype: type of the codes written.
    """

    def __init__(self, coding: RegionCoding, dtype: type[np.uint16] | type[np.uint32] | None = None) -> None:
        self.coding = coding
        self.dtype = dtype or code_type([coding])
        self._coders: dict[pa.DataType, Callable[[pa.Array, Codes, Places], None]] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.coding, self.dtype)

    def encode(
        self,
        column: pa.Array | pa.ChunkedArray,
        out: Codes | None = None,
        rows: npt.NDArray[np.int32] | None = None,
    ) -> Codes:
        """Region codes of a column, or of some of its rows.

        Args:
            column: values of the coding's domain.
            out: unsigned[values] to write to; a new array if None.
            rows: int32[values], the rows to code; all of them if None.

        Returns:
            unsigned[values], NULL as the coding's `null_code`.

        Raises:
            TypeError: the column's type is of another family than the coding's: DECIMAL and integers, dates and
                timestamps, booleans and integers do not stand for one another.
        """
        if out is None:
            out = np.empty(len(column) if rows is None else len(rows), self.dtype)
        if rows is not None:
            if isinstance(column, pa.ChunkedArray):
                column = column.combine_chunks()
            self._encode_chunk(column, out, rows)
            return out
        start = 0
        for chunk in column.chunks if isinstance(column, pa.ChunkedArray) else (column,):
            self._encode_chunk(chunk, out[start : start + len(chunk)])
            start += len(chunk)
        return out

    def _encode_chunk(self, array: pa.Array, out: Codes, rows: Places = None) -> None:
        if isinstance(array, pa.ExtensionArray):
            array = array.storage
        if pa.types.is_null(array.type):
            out[:] = self.coding.null_code
            return
        if pa.types.is_dictionary(array.type):
            self._encode_dictionary(array if rows is None else array.take(pa.array(rows)), out)
            return
        coder = self._coders.get(array.type)
        if coder is None:
            coder = self._coders[array.type] = self._coder(array.type)
        coder(array, out, rows)
        if array.null_count:
            is_null = _is_null(array)
            out[is_null if rows is None else is_null[rows]] = self.coding.null_code

    def _encode_dictionary(self, array: pa.DictionaryArray, out: Codes) -> None:
        codes = np.empty(len(array.dictionary) + 1, self.dtype)
        self._encode_chunk(array.dictionary, codes[:-1])
        codes[-1] = self.coding.null_code
        indices = array.indices
        if indices.null_count:
            indices = indices.cast(pa.int64()).fill_null(len(array.dictionary))
        np.take(codes, _buffer(indices, indices.type.to_pandas_dtype()), out=out, mode="clip")

    def _coder(self, kind: pa.DataType) -> Callable[[pa.Array, Codes, Places], None]:
        constants = self.coding.constants
        if self.coding.domain is Domain.BINARY:
            if not _is_bytes(kind):
                raise TypeError(f"column {self.coding.name!r}: {kind} is not a string or binary type")
            return _BytesCoder([bytes(constant) for constant in constants]).encode  # type: ignore[arg-type]
        if self.coding.domain is Domain.FLOAT:
            if not pa.types.is_floating(kind):
                raise TypeError(f"column {self.coding.name!r}: {kind} is not a floating-point type")
            keys = order_floats(np.asarray(constants, np.float64).view(np.int64)).tolist()
            return _StepCoder(keys, Fraction(1), _doubles, self.dtype).encode
        read, scale = _integer_reader(kind, self.coding)
        if read is None:
            exact = _ExactCoder(constants, scale)
            if pa.types.is_decimal128(kind):
                return _WideCoder(_StepCoder(constants, scale, _low_words, self.dtype), exact).encode
            return exact.encode
        return _StepCoder(constants, scale, read, self.dtype).encode


class _StepCoder:
    """Codes values that are int64 keys, by a direct table or bucketed steps.

    Args:
        constants: ascending constants.
        scale: a column value v stands for the constant v * scale.
        read: takes the keys out of an array.
        dtype: type of the codes.
    """

    def __init__(
        self,
        constants: Sequence[Any],
        scale: Fraction,
        read: _Read,
        dtype: type[np.uint16] | type[np.uint32],
    ) -> None:
        self._read = read
        self._scratch = np.empty(0, np.int64)
        steps: dict[int, int] = {}
        self._below = 0
        for number, constant in enumerate(constants):
            value = constant * scale.denominator
            for start, code in (
                (-(-value // scale.numerator), 2 * number + 1),
                (value // scale.numerator + 1, 2 * number + 2),
            ):
                if start <= INT64_MIN:
                    self._below = code
                elif start <= INT64_MAX:
                    steps[start] = code
        self._starts = np.fromiter(steps.keys(), np.int64, len(steps))
        self._codes: Codes = np.fromiter(steps.values(), dtype, len(steps))
        self._table: Codes | None = None
        if not steps:
            return
        span = int(self._starts[-1]) - int(self._starts[0]) + 1
        if span <= DIRECT_SPAN:
            codes = np.append(dtype(self._below), self._codes)
            self._table = np.repeat(codes, np.concatenate([[1], np.diff(self._starts), [1]]))
            return
        self._shift = max(0, span.bit_length() - BUCKET_BITS)
        distances = self._starts.view(np.uint64) - self._starts.view(np.uint64)[0]
        buckets = np.arange(((span - 1) >> self._shift) + 1, dtype=np.uint64)
        first = np.searchsorted(distances, buckets << np.uint64(self._shift))
        self._first = np.append(first, len(self._starts)).astype(np.int32)

    def encode(self, array: pa.Array, out: Codes, rows: Places) -> None:
        values = self._read(array)
        if rows is not None:
            values = self._taken(values, rows)
        if values.dtype == np.float64:
            values = order_floats(values.view(np.int64))
        values = np.ascontiguousarray(values)
        values.setflags(write=False)  # one array type, so one compilation
        if not len(self._starts):
            out[:] = self._below
        elif self._table is not None:
            encode_direct(values, int(self._starts[0]) - 1, self._table, out)
        else:
            encode_bucketed(values, self._starts, self._codes, self._first, self._shift, self._below, out)

    def _taken(self, values: npt.NDArray[Any], rows: npt.NDArray[np.int32]) -> npt.NDArray[Any]:
        """The values of some rows, in scratch space: a fresh array of this size costs more than filling it."""
        if len(self._scratch) < len(rows) or self._scratch.dtype != values.dtype:
            self._scratch = np.empty(len(values), values.dtype)
        return np.take(values, rows, out=self._scratch[: len(rows)], mode="clip")


class _BytesCoder:
    """Codes strings and binaries: the distinct ones of a batch by search, the rest by look-up."""

    def __init__(self, constants: Sequence[bytes]) -> None:
        self._data = np.frombuffer(b"".join(constants) or b"\0", np.uint8)
        self._offsets = np.zeros(len(constants) + 1, np.int64)
        np.cumsum([len(constant) for constant in constants], out=self._offsets[1:])

    def encode(self, array: pa.Array, out: Codes, rows: Places) -> None:
        encoded = (array if rows is None else array.take(pa.array(rows))).dictionary_encode()
        distinct = encoded.dictionary.cast(pa.large_binary())
        codes = np.zeros(len(distinct) + 1, out.dtype)
        _, offsets, data = distinct.buffers()
        if len(distinct):
            encode_bytes(
                np.frombuffer(data, np.uint8) if data is not None and data.size else self._data,
                np.frombuffer(offsets, np.int64)[distinct.offset : distinct.offset + len(distinct) + 1],
                self._data,
                self._offsets,
                codes[:-1],
            )
        np.take(codes, _buffer(encoded.indices, np.int32), out=out, mode="clip")


class _ExactCoder:
    """Codes integers beyond 64 bits: the distinct ones of a batch one by one, the rest by look-up."""

    def __init__(self, constants: Sequence[Key], scale: Fraction) -> None:
        self._constants = constants
        self._scale = scale

    def encode(self, array: pa.Array, out: Codes, rows: Places) -> None:
        encoded = (array if rows is None else array.take(pa.array(rows))).dictionary_encode()
        codes = np.zeros(len(encoded.dictionary) + 1, out.dtype)
        for number, value in enumerate(_wide_integers(encoded.dictionary)):
            codes[number] = self._code(value * self._scale)
        np.take(codes, _buffer(encoded.indices, np.int32), out=out, mode="clip")

    def _code(self, value: Fraction) -> int:
        position = bisect_left(self._constants, value)
        hit = position < len(self._constants) and self._constants[position] == value
        return 2 * position + (1 if hit else 0)


class _WideCoder:
    """Codes decimals of more digits than 64 bits hold: most columns of them have no such value.

    Args:
        narrow: codes those that fit.
        exact: codes all others.
    """

    def __init__(self, narrow: _StepCoder, exact: _ExactCoder) -> None:
        self._narrow = narrow
        self._exact = exact

    def encode(self, array: pa.Array, out: Codes, rows: Places) -> None:
        words = np.frombuffer(array.buffers()[1] or b"", np.int64)[2 * array.offset :][: 2 * len(array)]
        fits = (words[1::2] == words[::2] >> 63).all()
        (self._narrow if fits else self._exact).encode(array, out, rows)


#: types of the INTEGER domain whose values are told in units of one kind
_FAMILIES = (
    pa.types.is_boolean,
    pa.types.is_integer,
    pa.types.is_date,
    pa.types.is_timestamp,
    pa.types.is_duration,
    pa.types.is_time,
    pa.types.is_decimal,
)


def _integer_reader(kind: pa.DataType, coding: RegionCoding) -> tuple[_Read | None, Fraction]:
    """How to read a column of the INTEGER domain as int32 or int64, and what a unit of it stands for."""
    types = pa.types
    if not any(test(kind) and test(coding.type) for test in _FAMILIES):
        raise TypeError(f"column {coding.name!r}: {kind} does not compare with {coding.type}")
    if types.is_boolean(kind) or types.is_int8(kind) or types.is_int16(kind):
        return _cast_int32, Fraction(1)
    if types.is_unsigned_integer(kind):
        return (None if types.is_uint64(kind) else _cast_int64), Fraction(1)
    if types.is_int32(kind) or types.is_date32(kind):
        return _int32, Fraction(1)
    if types.is_int64(kind):
        return _int64, Fraction(1)
    if types.is_date64(kind):
        return _int64, Fraction(1, MILLISECONDS_A_DAY)
    if types.is_timestamp(kind) or types.is_duration(kind) or types.is_time64(kind):
        return _int64, MICROSECONDS[kind.unit]
    if types.is_decimal(kind):
        declared = coding.type.scale if types.is_decimal(coding.type) else 0
        scale = Fraction(10) ** (declared - kind.scale)
        narrow = types.is_decimal128(kind) and kind.precision <= LONG_DIGITS
        return (_low_words if narrow else None), scale
    raise TypeError(f"column {coding.name!r}: {kind} is not an integer, date, timestamp or decimal type")


def _buffer(array: pa.Array, dtype: Any) -> npt.NDArray[Any]:
    data = array.buffers()[1]
    if data is None:
        return np.zeros(len(array), dtype)
    return np.frombuffer(data, dtype)[array.offset : array.offset + len(array)]


def _int32(array: pa.Array) -> npt.NDArray[np.int32]:
    return _buffer(array, np.int32)


def _int64(array: pa.Array) -> npt.NDArray[np.int64]:
    return _buffer(array, np.int64)


def _cast_int32(array: pa.Array) -> npt.NDArray[np.int32]:
    return _int32(array.cast(pa.int32()))


def _cast_int64(array: pa.Array) -> npt.NDArray[np.int64]:
    return _int64(array.cast(pa.int64()))


def _low_words(array: pa.Array) -> npt.NDArray[np.int64]:
    words = np.frombuffer(array.buffers()[1], np.int64)
    return words[2 * array.offset : 2 * (array.offset + len(array)) : 2]


def _doubles(array: pa.Array) -> npt.NDArray[np.float64]:
    return _buffer(array, array.type.to_pandas_dtype()).astype(np.float64, copy=False)


def _wide_integers(array: pa.Array) -> list[int]:
    """Unsigned 64-bit integers, or unscaled values of decimals of any width, as Python integers."""
    if pa.types.is_uint64(array.type):
        return [value or 0 for value in array.to_pylist()]
    data = array.buffers()[1]
    raw = data.to_pybytes() if data is not None else b""
    width = array.type.bit_width // 8
    bounds = range(width * array.offset, width * (array.offset + len(array)) + 1, width)
    return [int.from_bytes(raw[low:high], "little", signed=True) for low, high in pairwise(bounds)]


def _is_bytes(kind: pa.DataType) -> bool:
    types = pa.types
    return any(
        test(kind)
        for test in (
            types.is_string,
            types.is_large_string,
            types.is_binary,
            types.is_large_binary,
            types.is_string_view,
            types.is_binary_view,
            types.is_fixed_size_binary,
        )
    )


def _is_null(array: pa.Array) -> npt.NDArray[np.bool_]:
    validity = array.buffers()[0]
    bits = np.unpackbits(
        np.frombuffer(validity, np.uint8), count=array.offset + len(array), bitorder="little"
    )
    nulls: npt.NDArray[np.bool_] = bits[array.offset :] == 0
    return nulls
