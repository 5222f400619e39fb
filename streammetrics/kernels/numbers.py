"""The check of numbers: finite, of a size whose products can be summed exactly, and above a limit."""

from __future__ import annotations

from typing import Any

import numpy as np

from ._jit import kernel

f8, i4, i8 = np.float64, np.int32, np.int64

SIZE_MASK = i8(0x7FFFFFFFFFFFFFFF)


@kernel(out=())
def all_numbers(values: Any, smallest: Any, largest: Any, low: Any, above: Any) -> Any:
    """Whether every value is 0 or from `smallest` to `largest` in size, and at least `low`, or above it.

    Sizes are compared as the integers that their bits are; what is wrong shows in the sign of a difference.
    """
    least, most = f8(smallest).view(i8), f8(largest).view(i8)
    wrong, bad = i8(0), i4(0)
    for j in range(values.shape[0]):
        size = f8(values[j]).view(i8) & SIZE_MASK
        wrong |= ((size - least) | (most - size)) & ~(size - i8(1))  # 0 - 1 is negative, too, and excuses
    if wrong < 0:
        return False
    if above:
        for j in range(values.shape[0]):
            bad |= i4(not (values[j] > low))
    elif low > -np.inf:
        for j in range(values.shape[0]):
            bad |= i4(not (values[j] >= low))
    return bad == 0
