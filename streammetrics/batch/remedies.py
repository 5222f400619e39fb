"""Remedies: the most likely way to fix a column with invalid values, inferred from all of its values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .convert import find_missing

__all__ = ["DROP", "Remedy", "for_classes", "for_decisions", "for_labels", "for_scores"]

Array = NDArray[Any]

DROP = 'pass on_invalid="drop" to leave such rows out and report their number'
FIX = "fix the column"
SWAPPED = "labels and scores seem to be swapped: the order is update(y_true, y_score)"
UNKNOWN = "add the class to labels=, or pass ignore_class= to leave out the rows of the class"
CORRECT = "correct these rows"
# If fewer than 1 % (1 / FEW) of the rows are invalid, these rows are probably mistakes. Otherwise, the whole column is
# probably not what the metric expects.
FEW = 100
# Integers of at least this size are probably counts or amounts, not classes.
MANY = 1000


class Remedy(NamedTuple):
    """The advice at the end of an error message about invalid values.

    Parameters
    ----------
    text : str
        The most likely remedy.
    single : bool
        Whether the fault may lie in individual rows rather than the whole column. If so, the message also suggests
        dropping these rows.
    """

    text: str = FIX
    single: bool = True

    def format(self, bad: int, rows: int) -> str:
        """Return the text of the remedy, given the number of invalid rows and the total number of rows.

        If `single` is true, the text also suggests dropping the invalid rows, unless there are several rows and more
        than half of them are invalid.
        """
        if not self.single or (rows > 1 and 2 * bad > rows):
            return self.text
        return DROP if self.text == DROP else f"{self.text}, or {DROP}"


def for_labels(values: Array, bad: Array, others: Sequence[Array]) -> Remedy:
    """Return the remedy for labels that are neither 0 nor 1.

    Parameters
    ----------
    values : ndarray
        The column of labels.
    bad : ndarray
        The invalid values of this column.
    others : sequence of ndarray
        The columns of scores or predictions, which may have been swapped with the labels.
    """
    if values.dtype.kind not in "biuf":
        return Remedy()
    numbers, wrong = _without_nan(values), _without_nan(bad)
    if not len(wrong):
        return Remedy(DROP) if len(numbers) else Remedy("no row has a label: check that this is the column of labels")
    if not np.isfinite(wrong).all():
        return Remedy()
    fractions = bool((wrong != np.floor(wrong)).any())
    if fractions and any(_are_labels(other) for other in others):
        return Remedy(SWAPPED, single=False)
    if FEW * len(wrong) < len(numbers):
        return Remedy(CORRECT)
    if fractions:
        if wrong.min() >= 0 and wrong.max() <= 1:
            soft = "for soft labels (numbers in [0, 1]) use soft_labels=True, for example LogLoss(soft_labels=True)"
            return Remedy(soft, single=False)
        return Remedy("for numeric targets, use a regression metric, such as MAE", single=False)
    distinct = np.unique(numbers)
    if np.abs(distinct).max() >= MANY:
        return Remedy("for numeric targets, use a regression metric, such as MAE", single=False)
    if len(distinct) == 2:
        negative, positive = (int(v) for v in distinct)
        return Remedy(
            f"for the labels {negative} and {positive}, pass labels=({negative}, {positive}) to Task", single=False
        )
    if len(distinct) == 1:
        return Remedy("for labels other than 0 and 1, pass labels=(negative, positive) to Task", single=False)
    # Negative labels, such as -1, are probably codes for an unknown label.
    if distinct[0] < 0:
        return Remedy("pass where= to Task, the name of a 0/1 column that selects the rows with a label")
    several = f"for several classes, pass num_classes={int(distinct[-1]) + 1}"
    return Remedy(f"{several}; for numeric targets, use a regression metric, such as MAE", single=False)


def for_classes(values: Array, bad: Array, width: int, has_names: bool, others: Sequence[Array]) -> Remedy:
    """Return the remedy for unknown classes.

    Parameters
    ----------
    values, bad, others
        The same as for `for_labels`.
    width : int
        The number of classes.
    has_names : bool
        Whether the user has listed the classes with `labels=`.
    """
    if values.dtype.kind not in "biuf":
        return Remedy(DROP) if find_missing(bad, len(bad)).all() else Remedy(UNKNOWN, single=False)
    numbers, wrong = _without_nan(values), _without_nan(bad)
    if not len(wrong):
        return Remedy(DROP)
    if not np.isfinite(wrong).all() or (wrong != np.floor(wrong)).any():
        swapped = any(other.ndim == 1 and other.dtype.kind in "iu" for other in others)
        return Remedy(SWAPPED, single=False) if swapped else Remedy()
    low, high, distinct = int(numbers.min()), int(numbers.max()), np.unique(wrong)
    if has_names:
        return Remedy(UNKNOWN, single=False)
    if low == 1 and high == width:
        return Remedy(f"for classes from 1 to {width:,}, pass labels=tuple(range(1, {width + 1}))", single=False)
    # In many data sets, a negative number, 255 or 999 marks rows without a class.
    if len(distinct) == 1 and (low < 0 or high in (255, 999)):
        return Remedy(f"pass ignore_class={int(distinct[0])} to leave out the rows of this class", single=False)
    if FEW * len(wrong) < len(numbers) or high >= MANY:
        return Remedy(CORRECT)
    if low < 0:
        return Remedy("number the classes from 0, or pass labels=(...) for classes with other values", single=False)
    return Remedy(f"pass num_classes={high + 1} if there are {high + 1:,} classes", single=False)


def for_decisions(bad: Array) -> Remedy:
    """Return the remedy for predicted labels that are neither 0 nor 1."""
    wrong = _without_nan(bad) if bad.dtype.kind == "f" else bad[:0]
    if len(wrong) and (wrong != np.floor(wrong)).any():
        return Remedy("pass scores as y_score to a metric that has a threshold", single=False)
    return Remedy()


def for_scores(bad: Array) -> Remedy:
    """Return the remedy for scores that are outside [0, 1] or not numbers."""
    wrong = _without_nan(bad.reshape(-1))
    if not len(wrong) or not np.isfinite(wrong).all():
        return Remedy()
    if wrong.min() > 1 and 10 < wrong.max() <= 100:
        return Remedy('divide percentages by 100; for logits, pass scale="logit"')
    return Remedy('pass scale="logit" if the scores are logits')


def _without_nan(values: Array) -> Array:
    return np.asarray(values[values == values])


def _are_labels(values: Array) -> bool:
    """Return whether a column of scores contains both 0 and 1 but nothing else, and so probably contains labels."""
    if values.ndim != 1 or values.dtype.kind not in "biuf":
        return False
    return bool(((values == 0) | (values == 1)).all() and (values == 0).any() and (values == 1).any())
