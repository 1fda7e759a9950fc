"""Values where they lie in memory: how kernels read the buffers of many mapped parts without a copy of them."""

# ruff: noqa: ARG001 -- numba passes what an intrinsic needs and what it does not
from __future__ import annotations

from typing import Any

from numba import types
from numba.extending import intrinsic

# numba's own types leave the typing context among the arguments of a call
_intrinsic: Any = intrinsic


@_intrinsic
def load(typing: Any, address: Any, like: Any) -> Any:
    """The value at a place in memory (uint64), of the type of `like`; it need not be aligned and is not checked."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        pointer = builder.inttoptr(arguments[0], context.get_data_type(like).as_pointer())
        value = builder.load(pointer)
        value.align = 1
        return value

    return like(types.uint64, like), generate


@_intrinsic
def store(typing: Any, address: Any, value: Any) -> Any:
    """Writes a value to a place in memory (uint64); it need not be aligned and is not checked."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        pointer = builder.inttoptr(arguments[0], arguments[1].type.as_pointer())
        builder.store(arguments[1], pointer, align=1)
        return context.get_dummy_value()

    return types.void(types.uint64, value), generate
