"""Means over rows of a value that a row of several classes or labels has: losses, hits, orders of labels."""

from __future__ import annotations

from fractions import Fraction
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from ..arrays import Array, added
from ..classes import class_of, class_scores
from ..columns import Column, Need, flag, label, matrix, score, weight
from ..exact import exact_to_fraction
from ..settings import setting, union
from .known_classes import KnownClasses
from .labels import rounded
from .weighed import NOTHING, WeighedRows

__all__ = ["ClassRows", "LabelRows"]

CLASS_TERMS = ("log_loss", "brier", "top")
LABEL_TERMS = ("coverage", "precision", "ranking_loss", "subset")
NO_PRODUCT = np.array([-1])
FIRST = np.array([0])


class RowMeans(WeighedRows):
    """The exact sum over rows of each term; a term of a row is computed in float64.

    Parameters
    ----------
    terms : tuple of str
        What is summed, weighted; a collection keeps the union of what its metrics ask for.
    """

    terms: tuple[str, ...] = union(default=())

    sums: Array = added("terms", form="exact")

    choices: ClassVar[tuple[str, ...]] = ()

    def __post_init__(self) -> None:
        if unknown := [t for t in self.terms if t.partition("@")[0] not in self.choices]:
            raise ValueError(f"{type(self).__name__} has no term {unknown[0]!r}; there are {', '.join(self.choices)}")
        super().__post_init__()

    def add_rows(self, at: NDArray[np.int64] | None, values: NDArray[np.float64], sample_weight: Column | None) -> None:
        """Add the terms of rows, rows x terms."""
        from ..kernels.moments import sum_products

        weights = self.weigh(len(values), at, sample_weight)
        flat, here = values.reshape(-1), NOTHING if at is None else at
        sum_products(flat, flat, weights, here, len(self.terms), FIRST, NO_PRODUCT, self.sums.reshape(-1))

    def total(self, term: str) -> Fraction:
        """The weighted sum of a term; exact over the terms of the rows."""
        return exact_to_fraction(self.sums[self.terms.index(term)])


class ClassRows(KnownClasses, RowMeans, tag="class_rows"):
    """Sums over rows of a class and a score of each class.

    Parameters
    ----------
    terms : tuple of str
        "log_loss", "brier", "top@3" (whether the true class is among the 3 highest).
    num_classes, labels
        As for `KnownClasses`.
    scale : {"probability", "logit", "real"}
        What the scores are; "real" knows no losses.
    eps : float, optional
        Log-loss keeps probabilities within [eps, 1 - eps]; by default as `ScoreSums`.

    Notes
    -----
    552 bytes a term, whatever the number of classes.
    """

    scale: str = setting(default="probability", choices=("probability", "logit", "real"))
    eps: float | None = setting(default=None, low=0.0, high=0.25)

    choices = CLASS_TERMS

    def needs(self) -> tuple[Need, ...]:
        return class_of(self.known), class_scores(self.width, self.scale), weight()

    def absorb(
        self, at: NDArray[np.int64] | None, /, y_true: Column, y_score: Column, sample_weight: Column | None = None
    ) -> None:
        from ..kernels.classes import class_terms

        named = [t.partition("@") for t in self.terms]
        terms = np.array([CLASS_TERMS.index(name) for name, _, _ in named])
        ks = np.array([int(k or 0) for _, _, k in named])
        eps = self.eps if self.eps is not None else 2.0**-52 if y_score.source == "float64" else 2.0**-23
        values = np.empty((len(y_true.values), len(terms)))
        class_terms(y_true.values, y_score.values, terms, ks, self.scale == "logit", eps, values)
        self.add_rows(at, values, sample_weight)


class LabelRows(RowMeans, tag="label_rows"):
    """Sums over rows of several 0/1 labels and a score of each.

    Parameters
    ----------
    terms : tuple of str
        "coverage", "precision" (of label ranking), "ranking_loss", "subset@0.5" (whether all decisions are right).
    num_labels : int
        How many labels a row has.
    column : {"y_score", "y_pred"}
        Scores, or 0/1 decisions.

    Notes
    -----
    552 bytes a term, whatever the number of labels.
    """

    num_labels: int = setting(default=1, low=1, high=1 << 20)
    column: str = setting(default="y_score", choices=("y_score", "y_pred"))

    choices = LABEL_TERMS

    def needs(self) -> tuple[Need, ...]:
        scores = score(scale="real") if self.column == "y_score" else flag("y_pred")
        return matrix(label(), self.num_labels), matrix(scores, self.num_labels), weight()

    def absorb(
        self, at: NDArray[np.int64] | None, /, y_true: Column, sample_weight: Column | None = None, **scored: Column
    ) -> None:
        from ..kernels.classes import all_right, label_terms

        given = scored[self.column]
        y, s = y_true.values, given.values if given.values.dtype.kind == "f" else given.values.astype(np.float32)
        values = np.empty((len(y), len(self.terms)))
        ranked = [i for i, t in enumerate(self.terms) if not t.startswith("subset")]
        if ranked:
            found = np.empty((len(y), len(ranked)))
            numbers = np.array([LABEL_TERMS.index(self.terms[i]) for i in ranked])
            label_terms(y, s, np.argsort(s, axis=1), numbers, found)
            values[:, ranked] = found
        for i, term in enumerate(self.terms):
            if i not in ranked:
                right = np.empty(len(y))
                all_right(y, s, rounded((float(term.partition("@")[2]),), given.source, s.dtype)[0], right)
                values[:, i] = right
        self.add_rows(at, values, sample_weight)
