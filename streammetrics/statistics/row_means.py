"""Means over rows of a value that a row of several classes or labels has: losses, hits, orders of labels."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from fractions import Fraction
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..batch.classes import class_of, class_scores
from ..batch.columns import Column
from ..batch.kinds import Need, flag, label, matrix, score, weight
from ..errors import StateFormatError
from ..numerics import elementary
from ..numerics.exact import carry_exact, exact_to_fraction
from ..numerics.kernel_registry import kernel
from ..numerics.rows import across
from ..numerics.settings import setting, union
from ..state.consistency import all_within, weight_of
from ..state.declare import Flat
from .covariance import Spread, spread
from .known_classes import KnownClasses
from .labels import eps_of, highest, rounded
from .pair_terms import TINY
from .step import NOTHING, Like, Step
from .weighted_rows import WeighedRows

__all__ = ["ClassRows", "LabelRows", "cut_term"]

Floats = NDArray[np.float64]


class ClassScores:
    """Rows of a true class, by its number, and a score of each class.

    Parameters
    ----------
    true : int array of shape (rows,)
        The true classes.
    scores : float array of shape (rows, classes)
        Probabilities, or logits.
    logit : bool
        Which of both.
    eps : float
        What probabilities are kept away from 0 and 1.
    """

    def __init__(self, true: NDArray[Any], scores: NDArray[Any], logit: bool, eps: float) -> None:
        self.true, self.logit, self.eps = true, logit, eps
        self.scores = np.asarray(scores, np.float64)
        self.width = self.scores.shape[1]

    def at_true(self, values: Floats) -> Floats:
        """The value of the true class of each row."""
        return np.asarray(values[np.arange(len(values)), self.true])

    def losses(self) -> Floats:
        """-log of the probability of each class, rows x classes."""
        if not self.logit:
            return np.asarray(-elementary.log(np.clip(self.scores, self.eps, 1.0 - self.eps)))
        below = self.scores - self.scores.max(axis=1, keepdims=True)
        total = across([np.asarray(elementary.exp(column)) for column in below.T])
        return np.asarray(elementary.log(total)[:, None] - below)

    def margins(self) -> Floats:
        """1 - s for the true class, 1 + s for each other, not below 0."""
        own = np.arange(self.width) == self.true[:, None]
        return np.asarray(np.maximum(1.0 - np.where(own, self.scores, -self.scores), 0.0))

    def hinge(self) -> Floats:
        """1 + the highest score of another class - that of the true one, not below 0 (Crammer and Singer 2001)."""
        others = np.where(np.arange(self.width) == self.true[:, None], -np.inf, self.scores)
        return np.asarray(np.maximum(1.0 + (others.max(axis=1) - self.at_true(self.scores)), 0.0))


def smoothed(rows: ClassScores, smoothing: float) -> Floats:
    """Log-loss of a label that is 1 - smoothing the true class, and the rest spread over all classes alike."""
    losses = rows.losses()
    return np.asarray((1.0 - smoothing) * rows.at_true(losses) + smoothing * (across(list(losses.T)) / rows.width))


def focal(rows: ClassScores, gamma: float) -> Floats:
    """-(1 - q)^gamma log(q), q the probability of the true class."""
    losses = rows.losses()
    loss = rows.at_true(losses)
    if rows.logit:  # of all others together: 1 - q loses its digits where q is near 1
        shares = np.asarray(elementary.exp(-losses))
        shares[np.arange(len(shares)), rows.true] = 0.0
        wrong = across(list(shares.T))
    else:
        wrong = 1.0 - np.clip(rows.at_true(rows.scores), rows.eps, 1.0 - rows.eps)
    return np.asarray(elementary.power(np.clip(wrong, TINY, 1.0), np.float64(gamma)) * loss)


def is_class(rows: ClassScores, which: float) -> Floats:
    """Whether the true class is this one."""
    return np.asarray(rows.true == int(which), np.float64)


COLUMN_TERMS: dict[str, Callable[..., Floats]] = {
    "smoothed": smoothed,
    "focal": focal,
    "hinge": lambda rows: rows.hinge(),
    "squared_hinge": lambda rows: np.square(rows.hinge()),
    "margin": lambda rows, which: rows.margins()[:, int(which)],
    "squared_margin": lambda rows, which: np.square(rows.margins()[:, int(which)]),
    "class": is_class,
}
"""Each by its name, and the number behind its "@"."""


CLASS_TERMS = ("log_loss", "brier", "top")
OUTPUT_TERMS = ("exact", "wrong")
LABEL_TERMS = ("coverage", "precision", "ranking_loss", "average_precision", "relevant", "auc", "both")
SET_TERMS = ("subset", "overlap", "contain", "belong", "row_f", "row_jaccard", "lack_f")
KNOWN = {"auc": "both", "average_precision": "relevant"}
"""Terms that are 0 in rows of which another one says that they have none."""


class RowMeans(WeighedRows):
    """The exact sum over rows of each term; a term of a row is computed in float64.

    Parameters
    ----------
    terms : tuple of str
        What is summed, weighted; a collection keeps the union of what its metrics ask for.

    Notes
    -----
    Beside w x, what standard errors need: (w x)^2, and with weights w^2 and w^2 x, as what these are more than weights of
    1 would make them. Each of them is rounded to 26 bits.
    """

    terms: tuple[str, ...] = union(default=())

    sums = Flat("terms", form="exact")
    squares = Flat("terms", form="exact")
    more_w2 = Flat(form="exact", optional=True)
    more_w2x = Flat("terms", form="exact", optional=True)

    choices: ClassVar[tuple[str, ...]] = ()

    def __post_init__(self) -> None:
        if unknown := [t for t in self.terms if t.partition("@")[0] not in self.choices]:
            raise ValueError(f"{type(self).__name__} has no term {unknown[0]!r}; there are {', '.join(self.choices)}")
        super().__post_init__()

    def derive(self, columns: Mapping[str, Any]) -> Mapping[str, Any]:
        made = {n: c for n, c in columns.items() if n == "sample_weight"}
        return made | {"values": Column(self.values_of(columns).reshape(-1), "float64")}

    def values_of(self, columns: Mapping[str, Any]) -> NDArray[np.float64]:
        """Make the terms of checked rows, rows x terms."""
        raise NotImplementedError

    def steps(self, like: Like) -> Iterable[Step]:
        own = type(self)
        more = (own.more_w2, own.more_w2x) if like.weighted else (NOTHING, NOTHING)
        into = *self.counts(like), own.sums, own.squares, *more
        return [Step("row_sums:sum_values", "values", "sample_weight", "at", len(self.terms), *into)]

    def check(self) -> None:
        name, weight, sums = type(self).__name__, weight_of(self, "rows"), self.flat("sums")
        for i, term in enumerate(self.terms):
            if weight.fall_short(sums[..., i, :], self.most_of(term), signed=self.signed(term)):
                raise StateFormatError(f"{name}.sums holds a sum of {term} that rows of this weight cannot have")
        if (self.flat("squares")[..., -1] < 0).any():
            raise StateFormatError(f"{name}.squares holds a negative sum of squares")

    def most_of(self, term: str) -> float:
        """What a term of a row can be at most."""
        return 1

    def signed(self, term: str) -> bool:
        """Whether a term of a row can be below 0."""
        return False

    def total(self, term: str) -> Fraction:
        """The weighted sum of a term; exact over the terms of the rows."""
        return exact_to_fraction(self.sums[self.terms.index(term)])

    def square(self, term: str) -> Fraction:
        """The sum of (w x)^2 of a term."""
        return exact_to_fraction(self.squares[self.terms.index(term)])

    def weight_squared(self, term: str | None = None) -> Fraction:
        """The sum of w^2, or of w^2 x of a term."""
        if term is None:
            return int(self.rows) + Fraction(0 if self.more_w2 is None else exact_to_fraction(self.more_w2))
        more = 0 if self.more_w2x is None else exact_to_fraction(self.more_w2x[self.terms.index(term)])
        return self.total(term) + more

    def spread_of(self, term: str) -> Spread:
        """The mean of a term over rows, and its variance."""
        products = {(-1, -1): self.weight_squared(), (-1, 0): self.weight_squared(term), (0, 0): self.square(term)}
        return spread(self.weight(), [self.total(term)], products)

    def spread_of_parts(self, term: str, known: str) -> Spread:
        """The means of a term and of one that is 1 where the first is defined, and else 0 as it is, with covariances."""
        part, there = self.weight_squared(term), self.weight_squared(known)
        products = {(-1, -1): self.weight_squared(), (-1, 0): part, (0, 0): self.square(term)}
        products |= {(-1, 1): there, (0, 1): part, (1, 1): there}
        return spread(self.weight(), [self.total(term), self.total(known)], products)


class ClassRows(KnownClasses, RowMeans, tag="class_rows"):
    """Sums over rows of a class and a score of each class.

    Parameters
    ----------
    terms : tuple of str
        "log_loss", "brier", "top@3" (whether the true class is among the 3 highest); of `class_terms` "smoothed@0.1",
        "focal@2.0", "hinge", "squared_hinge", "margin@0" and "squared_margin@0" (of class 0 against the rest), "class@0"
        (whether it is the true one). Of several outputs "exact" (whether all are right) and "wrong" (how many are not).
    num_classes, labels
        As for `KnownClasses`.
    scale : {"probability", "logit", "real"}
        What the scores are; "real" knows no losses.
    eps : float, optional
        Log-loss keeps probabilities within [eps, 1 - eps]; by default as `ScoreSums`.
    num_outputs : int, optional
        Rows have so many outputs, each of one of the classes, and a predicted class of each in place of scores.

    Notes
    -----
    1.1 kB a term, whatever the number of classes.
    """

    scale: str = setting(default="probability", choices=("probability", "logit", "real"))
    eps: float | None = setting(default=None, low=0.0, high=0.25)
    num_outputs: int | None = setting(default=None, low=1, high=1 << 16)

    @property
    def choices(self) -> tuple[str, ...]:  # type: ignore[override]
        return (*CLASS_TERMS, *COLUMN_TERMS) if self.num_outputs is None else OUTPUT_TERMS

    def needs(self) -> tuple[Need, ...]:
        if self.num_outputs is not None:
            both = (matrix(class_of(self.known, role), self.num_outputs) for role in ("y_true", "y_pred"))
            return *both, weight()
        return self.true_class, class_scores(self.width, self.scale), weight()

    def most_of(self, term: str) -> float:
        name = term.partition("@")[0]
        known: dict[str, float] = {
            "brier": 2 + 2.0**-10,
            "top": 1,
            "class": 1,
            "exact": 1,
            "wrong": self.num_outputs or 1,
        }
        return known.get(name, math.inf)

    def values_of(self, columns: Mapping[str, Any]) -> NDArray[np.float64]:
        if self.num_outputs is not None:
            wrong = np.count_nonzero(columns["y_true"].values != columns["y_pred"].values, axis=1)
            return np.stack([wrong if t == "wrong" else wrong == 0 for t in self.terms], axis=1).astype(np.float64)
        y, s = columns["y_true"], columns["y_score"]
        named = [t.partition("@") for t in self.terms]
        eps = eps_of(s.source, self.eps)
        values = np.empty((len(y.values), len(named)))
        compiled = [i for i, (name, _, _) in enumerate(named) if name in CLASS_TERMS]
        if compiled:
            terms = np.array([CLASS_TERMS.index(named[i][0]) for i in compiled], np.int64)
            ks = np.array([int(named[i][2] or 0) for i in compiled], np.int64)
            found = np.empty((len(values), len(compiled)))
            kernel("classes:class_terms")(y.values, s.values, terms, ks, self.scale == "logit", eps, found)
            values[:, compiled] = found
        rows = ClassScores(y.values, s.values, self.scale == "logit", eps)
        for i, (name, _, number) in enumerate(named):
            if name in COLUMN_TERMS:
                values[:, i] = COLUMN_TERMS[name](rows, *([float(number)] if number else []))
        return values


class LabelRows(RowMeans, tag="label_rows"):
    """Sums over rows of several 0/1 labels and a score of each.

    Parameters
    ----------
    terms : tuple of str
        "coverage", "precision" (of label ranking), "ranking_loss"; "average_precision" and "auc" of the labels of the
        row, 0 where that is undefined, and "relevant" and "both": whether there is a true label, and whether there are
        both kinds. And of the set of labels that score at least 0.5 and the set of true ones "subset@0.5" (whether they
        are equal), "overlap@0.5" (have one in common), "contain@0.5" (all true ones are in it), "belong@0.5" (it is in the
        true ones), "row_f@2.0@0.5" (F-beta of the row; 0.0 is precision, inf is recall), "row_jaccard@0.5",
        "lack_f@2.0@0.5" (whether that is 0/0, which counts 0). "top3" in place of 0.5 takes the three highest scores,
        "top3:0.5" those of them that are at least 0.5.
    num_labels : int
        How many labels a row has.
    column : {"y_score", "y_pred"}
        Scores, or 0/1 decisions.

    Notes
    -----
    1.1 kB a term, whatever the number of labels.
    """

    num_labels: int = setting(default=1, low=1, high=1 << 16)
    column: str = setting(default="y_score", choices=("y_score", "y_pred"))

    choices = (*LABEL_TERMS, *SET_TERMS)

    def needs(self) -> tuple[Need, ...]:
        scores = score(scale="real") if self.column == "y_score" else flag("y_pred")
        return matrix(label(), self.num_labels), matrix(scores, self.num_labels), weight()

    def most_of(self, term: str) -> float:
        return self.num_labels if term == "coverage" else 1

    def check(self) -> None:
        super().check()
        weight = weight_of(self, "rows")
        sums = dict(zip(self.terms, np.moveaxis(self.flat("sums"), -2, 0), strict=True))
        for term, held in sums.items():
            known, lacking = sums.get(KNOWN.get(term, "")), sums.get(_lack_of(term))
            wrong = known is not None and not all_within(held, known)
            if lacking is not None:  # no row has a value and lacks it
                both = held + lacking
                carry_exact(both)
                wrong |= weight.fall_short(both, 1)
            if wrong:
                raise StateFormatError(f"LabelRows.sums holds more of {term} than rows that have one")

    def values_of(self, columns: Mapping[str, Any]) -> NDArray[np.float64]:
        y, given = columns["y_true"].values, columns[self.column]
        s = given.values if given.values.dtype.kind == "f" else given.values.astype(np.float32)
        values = np.empty((len(y), len(self.terms)))
        ranked = [i for i, t in enumerate(self.terms) if t in LABEL_TERMS]
        if ranked:
            found = np.empty((len(y), len(ranked)))
            numbers = np.array([self.choices.index(self.terms[i]) for i in ranked], np.int64)
            kernel("classes:label_terms")(y, s, np.argsort(s, axis=1), numbers, found)
            values[:, ranked] = found
        sets: dict[str, Sets] = {}
        for i, term in enumerate(self.terms):
            if term in LABEL_TERMS:
                continue
            name, *beta, cut = term.split("@")
            if name == "subset" and not cut.startswith("top"):
                right = np.empty(len(y))
                kernel("classes:all_right")(y, s, rounded((float(cut),), given.source, s.dtype)[0], right)
                values[:, i] = right
                continue
            if cut not in sets:
                sets[cut] = Sets.of(y == 1, _decided(s, cut, given.source))
            values[:, i] = sets[cut].term(name, *map(float, beta))
        return values


def _lack_of(term: str) -> str:
    """The term that says which rows have none of this one; empty if all rows have it."""
    name, _, rest = term.partition("@")
    return {"row_f": f"lack_f@{rest}", "row_jaccard": f"lack_f@1.0@{rest}"}.get(name, "")


def _decided(scores: Any, cut: str, source: str) -> NDArray[np.bool_]:
    """Which labels of each row are decided: by a threshold, or by rank."""
    if not cut.startswith("top"):
        return np.asarray(scores >= rounded((float(cut),), source, scores.dtype)[0])
    k, _, least = cut.removeprefix("top").partition(":")
    top = np.asarray(highest(scores, int(k)) == 1)
    return top & _decided(scores, least, source) if least else top


def cut_term(threshold: float, top_k: int | None, *, above: bool) -> str:
    """Return how a term spells which labels are decided: the k highest scores, those above a threshold, or both."""
    if top_k is None:
        return repr(threshold)
    return f"top{top_k}:{threshold!r}" if above else f"top{top_k}"


class Sets(NamedTuple):
    """How many labels of each row are decided rightly, are true, and are decided."""

    right: NDArray[np.int64]
    true: NDArray[np.int64]
    decided: NDArray[np.int64]

    @classmethod
    def of(cls, true: NDArray[np.bool_], decided: NDArray[np.bool_]) -> Sets:
        """Count them."""
        return cls(*(np.count_nonzero(part, axis=1) for part in (true & decided, true, decided)))

    def term(self, name: str, beta: float = 1.0) -> NDArray[Any]:
        """A term of each row."""
        right, true, decided = self
        if name == "subset":
            return np.asarray((right == true) & (right == decided))
        if name == "overlap":
            return np.asarray((right > 0) | (true + decided == 0))
        if name in ("contain", "belong"):
            return np.asarray(right == (true if name == "contain" else decided))
        if name == "row_jaccard":
            return np.asarray(right / np.maximum(true + decided - right, 1))
        whole = true * 1.0 if beta == math.inf else beta * beta * true + decided
        if name == "lack_f":
            return np.asarray(whole == 0)
        times = 1.0 if beta == math.inf else 1 + beta * beta
        return np.asarray(np.minimum(times * right / np.where(whole > 0, whole, 1.0), 1.0))
