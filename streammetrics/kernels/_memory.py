"""What a kernel asks of memory: scratch on its stack, and rows that it will want soon."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic
from numba.np.arrayobj import populate_array

from ._jit import inline

LINE = 64  # bytes that come together


def _scratch(_: Any, shape: Any, dtype: Any) -> Any:
    sizes = [size.literal_value for size in getattr(shape, "types", [shape])]
    array = types.Array(dtype.dtype, len(sizes), "C")

    def generate(context: Any, builder: Any, _: Any, __: Any) -> Any:
        item = context.get_data_type(dtype.dtype)
        width = context.get_abi_sizeof(item)
        with builder.goto_entry_block():
            memory = builder.alloca(ir.ArrayType(item, math.prod(sizes)))
            memory.align = LINE
        made = context.make_array(array)(context, builder)
        populate_array(  # type: ignore[no-untyped-call]
            made,
            data=builder.bitcast(memory, item.as_pointer()),
            shape=[context.get_constant(types.intp, n) for n in sizes],
            strides=[context.get_constant(types.intp, width * math.prod(sizes[i + 1 :])) for i in range(len(sizes))],
            itemsize=context.get_constant(types.intp, width),
            meminfo=None,
        )
        return made._getvalue()

    return array(shape, dtype), generate


def _fetch_line(_: Any, address: Any) -> Any:
    def generate(context: Any, builder: Any, _: Any, values: Any) -> Any:
        byte, number = ir.IntType(8).as_pointer(), ir.IntType(32)
        prefetch = builder.module.declare_intrinsic(
            "llvm.prefetch", (byte,), ir.FunctionType(ir.VoidType(), [byte, number, number, number])
        )
        read, keep, data = number(0), number(3), number(1)
        builder.call(prefetch, [builder.inttoptr(values[0], byte), read, keep, data])
        return context.get_dummy_value()

    return types.void(types.uintp), generate


scratch: Any = intrinsic(prefer_literal=True)(_scratch)
"""Make an array of a constant shape and a dtype on the stack of the kernel, at a multiple of 64 bytes; not cleared."""

fetch_line: Any = intrinsic(_fetch_line)
"""Ask for the line of memory at an address: a hint, which may be wrong."""


@inline
def fetch(values: Any, first: Any, count: Any) -> None:
    """Ask for some values of a contiguous array, which may lie beyond its end.

    A kernel that computes longer on a block than its rows take to come leaves the processor's own prefetching behind.
    """
    start = values.ctypes.data + first * values.itemsize
    for j in range(0, count * values.itemsize, LINE):
        fetch_line(np.uint64(start + j))
