"""The check of numbers: finite, of a size whose products can be summed exactly, and above a limit."""

from __future__ import annotations

from typing import Any

import numpy as np

from ._jit import kernel

i4 = np.int32


@kernel(out=())
def all_numbers(values: Any, smallest: Any, largest: Any, low: Any, zero: Any) -> Any:
    """Whether every value is 0 (if `zero`) or from `smallest` to `largest` in size, and at least `low`."""
    bad = i4(0)
    for j in range(values.shape[0]):
        v = values[j]
        size = abs(v)
        bad |= i4(not (size <= largest)) | i4(not (v >= low)) | (i4(size < smallest) & (i4(size != 0) | i4(not zero)))
    return bad == 0
