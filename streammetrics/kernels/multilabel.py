"""Multilabel kernels: count the rows of a state with one cell, for every label of a table of labels and scores.

Columns hold all rows of the first label, then all rows of the second; the counters of the labels are stored in the same
order. A kernel that counts the rows of a single cell, such as `count_bins`, has a variant `count_bins_multilabel`, which
takes the number of labels as its first argument. Weights are either one per row, or one per label and row.
"""

from __future__ import annotations

from typing import Any

from ._jit import inline


@inline
def slice_label(array: Any, i: Any, width: Any) -> Any:
    """Return the part of label i of a flat array that holds `width` labels; an empty array stays empty."""
    size = array.shape[0] // width
    return array[i * size : (i + 1) * size]


@inline
def slice_label_weights(w: Any, i: Any, rows: Any) -> Any:
    """Return the weights of label i: its own weights, the weights that all labels share, or none."""
    start = i * rows if w.shape[0] > rows else 0
    return w[start : start + min(rows, w.shape[0])]
