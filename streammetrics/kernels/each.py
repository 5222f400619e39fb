"""Labels side by side: columns label after label, and the parts of one label after those of the other.

A kernel that counts rows of a lone cell, `count`, has a fellow `each_count` that does so for every label: it takes how
many there are first. Weights are those of the rows, the same for all labels, or of every row and label.
"""

from __future__ import annotations

from typing import Any

from ._jit import inline


@inline
def each(array: Any, i: Any, width: Any) -> Any:
    """Return what label i of so many has in a flat array; of an empty one nothing."""
    size = array.shape[0] // width
    return array[i * size : (i + 1) * size]


@inline
def each_weights(w: Any, i: Any, rows: Any) -> Any:
    """Return the weights of so many rows for label i: its own, or those that all labels share, or none."""
    start = i * rows if w.shape[0] > rows else 0
    return w[start : start + min(rows, w.shape[0])]
