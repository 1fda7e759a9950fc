"""Sixty-four values compared at once: the vector step under the batch index.

The step is written in LLVM's vector IR because numba's own loops widen 8- and 16-bit integers and
then do a quarter of the work per instruction. LLVM lowers it to two subtractions and two mask
compares with AVX-512, to packed compares and a mask move with AVX2 and to the like elsewhere.
"""

# ruff: noqa: ARG001 -- numba passes what an intrinsic needs and what it does not
from __future__ import annotations

from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.extending import intrinsic

# numba's own types leave the typing context among the arguments of a call
_intrinsic: Any = intrinsic

#: values compared by one call of `lane_mask`
LANES = 64


@_intrinsic
def lane_mask(typing: Any, column: Any, start: Any, low: Any, width: Any) -> Any:
    """Which of column[start : start + 64] lie in [low, low + width], as bits of a uint64.

    `column` is a C-contiguous 1-D array of unsigned integers with at least start + 64 elements (not
    checked), `low` and `width` are converted to its type. Bit i tells of column[start + i].
    """
    signature = types.uint64(column, types.int64, column.dtype, column.dtype)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array = context.make_array(column)(context, builder, arguments[0])
        element = context.get_data_type(column.dtype)
        vector = ir.VectorType(element, LANES)
        address = builder.gep(array.data, [arguments[1]])
        values = builder.load(builder.bitcast(address, vector.as_pointer()), typ=vector)
        values.align = column.dtype.bitwidth // 8
        distance = builder.sub(values, _splat(builder, vector, arguments[2]))
        inside = builder.icmp_unsigned("<=", distance, _splat(builder, vector, arguments[3]))
        return builder.bitcast(inside, ir.IntType(LANES))

    return signature, generate


@_intrinsic
def lowest_bit(typing: Any, word: Any) -> Any:
    """Position of the lowest 1-bit of a uint64 that is not 0."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 1))

    return types.int64(types.uint64), generate


def _splat(builder: Any, vector: Any, scalar: Any) -> Any:
    lane = builder.insert_element(ir.Constant(vector, ir.Undefined), scalar, ir.Constant(ir.IntType(32), 0))
    zeros = ir.Constant(ir.VectorType(ir.IntType(32), LANES), [0] * LANES)
    return builder.shuffle_vector(lane, ir.Constant(vector, ir.Undefined), zeros)
