"""Low-level functions for kernels: arrays on the stack, views, prefetching, 64-bit loads and fixed-point addition."""

from __future__ import annotations

import math
import sys
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic
from numba.np.arrayobj import populate_array

# The number of bytes in a cache line.
CACHE_LINE = 64
# A fixed-point number consists of two integers ("limbs"): high * 2**-20 + low * 2**-60. LIMB is the number of bits in
# the second limb.
LIMB = 40


def _scratch(_: Any, shape: Any, dtype: Any) -> Any:
    sizes = [size.literal_value for size in getattr(shape, "types", [shape])]
    array = types.Array(dtype.dtype, len(sizes), "C")

    def generate(context: Any, builder: Any, _: Any, __: Any) -> Any:
        item = context.get_data_type(dtype.dtype)
        width = context.get_abi_sizeof(item)
        # Allocate memory in the entry block of the function, which runs once per call. An allocation in a loop would
        # take up more of the stack in each iteration.
        with builder.goto_entry_block():
            memory = builder.alloca(ir.ArrayType(item, math.prod(sizes)))
            memory.align = CACHE_LINE
        view = context.make_array(array)(context, builder)
        populate_array(
            view,
            data=builder.bitcast(memory, item.as_pointer()),
            shape=[context.get_constant(types.intp, n) for n in sizes],
            strides=[context.get_constant(types.intp, width * math.prod(sizes[i + 1 :])) for i in range(len(sizes))],
            itemsize=context.get_constant(types.intp, width),
            meminfo=None,
        )
        return view._getvalue()

    return array(shape, dtype), generate


def _flatten(_: Any, values: Any) -> Any:
    array = types.Array(values.dtype, 1, "C", readonly=True)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        source = context.make_array(signature.args[0])(context, builder, arguments[0])
        view = context.make_array(array)(context, builder)
        width = context.get_constant(types.intp, context.get_abi_sizeof(context.get_data_type(values.dtype)))
        populate_array(view, data=source.data, shape=[source.nitems], strides=[width], itemsize=width, meminfo=None)
        return view._getvalue()

    return array(values), generate


def _prefetch(_: Any, values: Any, first: Any, count: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        byte, number = ir.IntType(8).as_pointer(), ir.IntType(32)
        prefetch = builder.module.declare_intrinsic(
            "llvm.prefetch", (byte,), ir.FunctionType(ir.VoidType(), [byte, number, number, number])
        )
        read, keep, data = number(0), number(3), number(1)
        word = ir.IntType(64)
        start, length = (
            builder.mul(context.cast(builder, n, t, types.int64), word(signature.args[0].dtype.bitwidth // 8))
            for n, t in zip(arguments[1:], signature.args[1:], strict=True)
        )
        array = context.make_array(signature.args[0])(context, builder, arguments[0])
        address = builder.add(builder.ptrtoint(array.data, word), start)
        with cgutils.for_range_slice(builder, word(0), length, word(CACHE_LINE), word) as (offset, _):
            line = builder.inttoptr(builder.add(address, offset), byte)
            builder.call(prefetch, [line, read, keep, data])
        return context.get_dummy_value()

    return types.void(values, types.unliteral(first), types.unliteral(count)), generate


def _load_word(_: Any, values: Any, at: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array = context.make_array(signature.args[0])(context, builder, arguments[0])
        index = context.cast(builder, arguments[1], signature.args[1], types.int64)
        address = builder.bitcast(builder.gep(array.data, [index]), ir.IntType(64).as_pointer())
        word = builder.load(address, align=1)
        return word if sys.byteorder == "little" else builder.bswap(word)

    return types.uint64(values, types.unliteral(at)), generate


def _add_limbs(_: Any, numbers: Any, at: Any, high: Any, low: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        pair, number = ir.VectorType(ir.IntType(64), 2), ir.IntType(32)
        index, *added = (
            context.cast(builder, n, t, types.int64) for n, t in zip(arguments[1:], signature.args[1:], strict=True)
        )
        array = context.make_array(signature.args[0])(context, builder, arguments[0])
        place = builder.bitcast(builder.gep(array.data, [index]), pair.as_pointer())
        total = builder.load(place, align=8)
        limbs = pair(ir.Undefined)
        for k, limb in enumerate(added):
            limbs = builder.insert_element(limbs, limb, number(k))
        total = builder.add(total, limbs)
        # If the second limb now has more than LIMB bits, carry the excess bits over to the first limb.
        carries = builder.ashr(total, pair([LIMB, LIMB]))
        carries = builder.shuffle_vector(carries, pair([0, 0]), ir.VectorType(number, 2)([1, 2]))
        total = builder.and_(total, pair([-1, (1 << LIMB) - 1]))
        builder.store(builder.add(total, carries), place, align=8)
        return context.get_dummy_value()

    return types.void(numbers, *map(types.unliteral, (at, high, low))), generate


scratch: Any = intrinsic(prefer_literal=True)(_scratch)
"""scratch(shape, dtype): return an uninitialized array on the stack of the kernel, as working memory.

The shape must be constant, because the size of the stack is fixed at compile time. The array is aligned to 64 bytes.
"""

flatten: Any = intrinsic(_flatten)
"""flatten(values): return a contiguous array as a read-only array of one dimension, without copying it.

numba compiles this much faster than `values.reshape(-1)`.
"""

prefetch: Any = intrinsic(_prefetch)
"""prefetch(values, first, count): ask the processor to load `count` values of a contiguous array into its cache.

The call is a hint without side effects, so the range may extend beyond the array. While a kernel works on one block of
rows, the processor loads the next block, which the hardware prefetcher alone would not do.
"""

load_word: Any = intrinsic(_load_word)
"""load_word(data, at): read the eight bytes from position `at` of a contiguous uint8 array as a little-endian integer.

The position need not be a multiple of 8. All eight bytes must lie in the array.
"""

add_limbs: Any = intrinsic(_add_limbs)
"""add_limbs(numbers, at, high, low): add two limbs to the fixed-point number at index `at` of an int64 array.

The limbs are the two integers of the number high * 2**-20 + low * 2**-60. After the addition, the second limb lies
between 0 and 2**40 - 1, because the excess is carried into the first limb. A single vector instruction reads both
limbs, and another one writes both, which takes two thirds of the time of adding to each limb separately.
"""
