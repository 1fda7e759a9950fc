"""Types of fields in Avro and Protobuf: which columns they may become, and how."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.kernels.wire_bytes import DECIMAL_BYTES, copied, decimals

_UTC, _LOCAL = pa.timestamp("us", "UTC"), pa.timestamp("us")
_NUMBERS = (pa.int64(), pa.float32(), pa.float64())
#: of each kind, the columns that it may become, the usual one first
_COLUMNS: dict[str, tuple[pa.DataType, ...]] = {
    "boolean": (pa.bool_(),),
    "int": (pa.int32(), *_NUMBERS),
    "long": _NUMBERS,
    "unsigned": (pa.decimal128(20, 0), pa.int64()),
    "float": (pa.float32(), pa.float64()),
    "double": (pa.float64(),),
    "string": (pa.string(), pa.binary()),
    "bytes": (pa.binary(), pa.string()),
    "fixed": (pa.binary(),),
    "enum": (pa.string(),),
    "date": (pa.date32(), pa.int32()),
    "moment": (_UTC, pa.int64()),
    "local moment": (_LOCAL, pa.int64()),
}
_THOUSAND, _MILLION = 1_000, 1_000_000
#: microseconds that 32 bits of nanoseconds may add
_MARGIN = 2**31 // _THOUSAND
#: symbols of an enum that are looked up by their number
_MOST_SYMBOLS = 1_000


@dataclass(frozen=True, slots=True)
class WireType:
    """The type of a field.

    Attributes:
        kind: a key of the table above, or `decimal`.
        name: as the schema calls it, for messages.
        per_second: of a moment, its units in a second.
        precision, scale: of a decimal.
        symbols: of an enum, by number; its numbers have the texts of the numbers if there is none.
        is_cut: of an int, whether its lowest 32 bits count, as in Protobuf; else a larger number is none.
    """

    kind: str
    name: str
    per_second: int = 0
    precision: int = 0
    scale: int = 0
    symbols: tuple[tuple[int, str], ...] = ()
    is_cut: bool = False

    @property
    def columns(self) -> tuple[pa.DataType, ...]:
        """The columns that it may become, the usual one first."""
        if self.kind == "decimal":
            return (pa.decimal128(self.precision, self.scale), pa.binary())
        return _COLUMNS[self.kind]

    def fits(self, column: pa.DataType) -> bool:
        """Whether a column may have this type."""
        if self.kind == "decimal" and pa.types.is_decimal(column):
            whole = column.precision - column.scale
            return bool(column.scale >= self.scale and whole >= self.precision - self.scale)
        return column in self.columns


@dataclass(frozen=True, slots=True, eq=False)
class Found:
    """What a reader has found of one field in some records.

    Attributes:
        data: uint8[bytes], the records.
        values: int64[records], numbers, bits of reals, or where bytes begin.
        lengths: int32[records], of bytes.
        has_value: bool[records].
        nanos: int64[records], where the values are seconds: nanoseconds that are added; else None.
    """

    data: npt.NDArray[np.uint8]
    values: npt.NDArray[np.int64]
    lengths: npt.NDArray[np.int32]
    has_value: npt.NDArray[np.bool_]
    nanos: npt.NDArray[np.int64] | None = None


def as_column(wire: WireType, column: pa.DataType, found: Found) -> pa.Array:
    """The values of a field as a column that it fits; NULL also where a number is beyond the range of its type or of the column.

    Text is not looked at: `pa.Array.validate(full=True)` says whether it is UTF-8.
    """
    missing = None if found.has_value.all() else ~found.has_value
    if wire.kind in ("string", "bytes", "fixed") or (wire.kind == "decimal" and pa.types.is_binary(column)):
        return _bytes(column, found)
    if wire.kind == "decimal":
        return _decimals(wire, column, found)
    if wire.kind == "enum":
        return _symbols(wire.symbols, found)
    if wire.kind in ("float", "double"):
        bits = found.values.astype(np.uint32) if wire.kind == "float" else found.values
        reals = bits.view(np.float32 if wire.kind == "float" else np.float64)
        return pa.array(reals, mask=missing).cast(column)
    if wire.kind == "unsigned" and pa.types.is_decimal(column):
        return pa.array(found.values.view(np.uint64), mask=missing).cast(column)
    numbers = found.values
    if wire.is_cut:
        numbers = numbers.astype(np.int32).astype(np.int64)
    elif wire.kind in ("int", "date"):
        missing = _either(missing, numbers != numbers.astype(np.int32))
    if wire.kind == "unsigned":
        missing = _either(missing, numbers < 0)
    if found.nanos is not None:
        numbers, missing = _times(numbers, _MILLION, missing, _MARGIN)
        numbers = numbers + found.nanos.astype(np.int32) // _THOUSAND
    if wire.kind in ("moment", "local moment") and pa.types.is_timestamp(column):
        numbers, missing = _microseconds(numbers, wire.per_second, missing)
    if wire.kind == "boolean":
        return pa.array(numbers != 0, mask=missing)
    if pa.types.is_floating(column):
        return pa.array(numbers.astype(np.float64), mask=missing).cast(column)
    if column.bit_width == 32:
        narrow = pa.array(numbers.astype(np.int32), mask=missing)
        return narrow.cast(column)
    return pa.array(numbers, mask=missing).cast(column)


def _microseconds(
    numbers: npt.NDArray[np.int64], per_second: int, missing: npt.NDArray[np.bool_] | None
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_] | None]:
    if per_second == _THOUSAND:
        return _times(numbers, _THOUSAND, missing)
    return numbers // _THOUSAND if per_second == _THOUSAND**3 else numbers, missing


def _times(
    numbers: npt.NDArray[np.int64], factor: int, missing: npt.NDArray[np.bool_] | None, margin: int = 0
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_] | None]:
    """Products, and which are missing: also those beyond int64 less a margin."""
    most = (2**63 - 1 - margin) // factor
    is_far = (numbers > most) | (numbers < -most)
    return np.where(is_far, 0, numbers) * factor, _either(missing, is_far)


def _either(
    missing: npt.NDArray[np.bool_] | None, others: npt.NDArray[np.bool_]
) -> npt.NDArray[np.bool_] | None:
    if not others.any():
        return missing
    return others if missing is None else missing | others


def _bytes(column: pa.DataType, found: Found) -> pa.Array:
    lengths = np.where(found.has_value, found.lengths, 0)
    places = np.zeros(len(lengths) + 1, np.int32)
    np.cumsum(lengths, out=places[1:])
    target = np.empty(int(places[-1]), np.uint8)
    copied(found.data, found.values, places, target)
    buffers = [_bitmap(found.has_value), pa.py_buffer(places), pa.py_buffer(target)]
    return pa.Array.from_buffers(column, len(lengths), buffers)


def _decimals(wire: WireType, column: pa.DataType, found: Found) -> pa.Array:
    target = np.empty(len(found.values) * DECIMAL_BYTES, np.uint8)
    has_value = found.has_value.copy()
    decimals(found.data, found.values, found.lengths, has_value, target)
    whole = pa.Array.from_buffers(
        pa.decimal128(38, wire.scale), len(has_value), [_bitmap(has_value), pa.py_buffer(target)]
    )
    most = pa.scalar(Decimal((0, (9,) * wire.precision, -wire.scale)), whole.type)
    least = pa.scalar(Decimal((1, (9,) * wire.precision, -wire.scale)), whole.type)
    is_within = pc.and_(pc.less_equal(whole, most), pc.greater_equal(whole, least))
    return pc.if_else(is_within, whole, pa.scalar(None, whole.type)).cast(column, safe=False)


def _symbols(symbols: Sequence[tuple[int, str]], found: Found) -> pa.Array:
    names = dict(symbols)
    most = max(names, default=0)
    if min(names, default=0) >= 0 and most < _MOST_SYMBOLS and _within(found.values, most):
        texts, codes = [names.get(each, str(each)) for each in range(most + 1)], found.values
    else:
        numbers, codes = np.unique(found.values, return_inverse=True)
        texts, codes = [names.get(int(each), str(each)) for each in numbers], codes.reshape(-1)
    indices = pa.array(codes.astype(np.int32), mask=None if found.has_value.all() else ~found.has_value)
    return pa.DictionaryArray.from_arrays(
        indices, pa.array(texts, pa.string()), safe=False
    ).dictionary_decode()


def _within(numbers: npt.NDArray[np.int64], most: int) -> bool:
    return not len(numbers) or bool(numbers.min() >= 0 and numbers.max() <= most)


def _bitmap(has_value: npt.NDArray[np.bool_]) -> pa.Buffer | None:
    if has_value.all():
        return None
    return pa.py_buffer(np.packbits(has_value, bitorder="little"))


def texts_valid(text: pa.Array) -> npt.NDArray[np.bool_] | None:
    """Which texts are UTF-8; None where all are."""
    try:
        text.validate(full=True)
    except pa.ArrowInvalid:
        return np.array([_is_text(each) for each in text.cast(pa.binary()).to_pylist()])
    return None


def _is_text(value: bytes | None) -> bool:
    try:
        return value is None or value.decode() is not None
    except UnicodeDecodeError:
        return False


def lost(column: pa.Array, found: Found) -> npt.NDArray[np.bool_] | None:
    """Which values were found and are beyond the column's range; None where all are within."""
    if column.null_count == len(column) - np.count_nonzero(found.has_value):
        return None
    missing: npt.NDArray[np.bool_] = pc.is_null(column).to_numpy(zero_copy_only=False)
    return found.has_value & missing
