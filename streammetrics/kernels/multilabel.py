"""Functions for multilabel kernels, which count rows with several labels and scores.

A kernel that counts the rows of a single cell, such as `count_bins`, has a multilabel variant, such as
`count_bins_multilabel`, whose first argument is the number of labels. Its columns hold all rows for the first label,
then all rows for the second label, and so on. Counters are stored in the same order. There is one weight per row, or
one per label and row.
"""

from __future__ import annotations

from typing import Any

from ._jit import inline


@inline
def slice_label(array: Any, i: Any, width: Any) -> Any:
    """Return the part of a flat array that belongs to label i of `width` labels. It is empty if the array is empty."""
    size = array.shape[0] // width
    return array[i * size : (i + 1) * size]


@inline
def slice_label_weights(w: Any, i: Any, rows: Any) -> Any:
    """Return the weights for label i, given the number of rows.

    `w` holds one weight per label and row, or one per row, which all labels share. It is empty if there are no weights.
    """
    start = i * rows if w.shape[0] > rows else 0
    return w[start : start + min(rows, w.shape[0])]
