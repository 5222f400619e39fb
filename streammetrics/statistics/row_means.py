"""Exact sums of values that are computed for each row from its scores for several classes or labels.

Examples are the multiclass log loss, top-k hits, label ranking measures, and the F-score of the labels of a row.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from fractions import Fraction
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..batch.classes import class_label, class_scores
from ..batch.columns import Column
from ..batch.kinds import Need, flag, label, matrix, score, weight
from ..errors import StateFormatError
from ..numerics import elementary
from ..numerics.array_rows import sum_columns
from ..numerics.exact import carry_exact, exact_to_fraction
from ..numerics.kernel_registry import find_kernel
from ..numerics.settings import setting, union
from ..state.consistency import are_within, read_row_weight
from ..state.declare import Flat
from .covariance import MeanEstimates, estimate_means
from .decision_counts import eps_of, mark_top_k, round_thresholds
from .known_classes import KnownClasses
from .pair_terms import TINY
from .step import NOTHING, Like, Step
from .terms import find_term
from .weighted_rows import WeightedRows

__all__ = ["ClassRows", "LabelRows", "cut_term"]

Floats = NDArray[np.float64]


class ClassScores:
    """The true class of each row and its scores for all classes, from which terms are computed.

    Parameters
    ----------
    true : int array of shape (rows,)
        The index of the true class of each row.
    scores : float array of shape (rows, classes)
        Probabilities or logits.
    logit : bool
        Whether scores are logits.
    eps : float
        Probabilities are clipped to the range from `eps` to 1 - `eps`.
    """

    def __init__(self, true: NDArray[Any], scores: NDArray[Any], logit: bool, eps: float) -> None:
        self.true, self.logit, self.eps = true, logit, eps
        self.scores = np.asarray(scores, np.float64)
        self.width = self.scores.shape[1]

    def at_true(self, values: Floats) -> Floats:
        """Return, for each row of `values` (rows x classes), the value of the true class."""
        return np.asarray(values[np.arange(len(values)), self.true])

    def losses(self) -> Floats:
        """Return -log(probability) of every class in every row, as an array of shape (rows, classes)."""
        if not self.logit:
            return np.asarray(-elementary.log(np.clip(self.scores, self.eps, 1.0 - self.eps)))
        below = self.scores - self.scores.max(axis=1, keepdims=True)
        total = sum_columns([np.asarray(elementary.exp(column)) for column in below.T])
        return np.asarray(elementary.log(total)[:, None] - below)

    def margins(self) -> Floats:
        """Return the one-vs-rest hinge loss of each class, as an array of shape (rows, classes).

        The loss of a class with score s is max(0, 1 - s) if it is the true class, else max(0, 1 + s).
        """
        own = np.arange(self.width) == self.true[:, None]
        return np.asarray(np.maximum(1.0 - np.where(own, self.scores, -self.scores), 0.0))

    def hinge(self) -> Floats:
        """Return the hinge loss of Crammer and Singer (2001).

        The loss is 1 plus the highest score of another class minus the score of the true class, or 0 if this
        value is negative.
        """
        others = np.where(np.arange(self.width) == self.true[:, None], -np.inf, self.scores)
        return np.asarray(np.maximum(1.0 + (others.max(axis=1) - self.at_true(self.scores)), 0.0))


def smoothed_log_loss(rows: ClassScores, smoothing: float) -> Floats:
    """Return the log loss with label smoothing.

    With C classes, the target probability is smoothing / C for every class, plus 1 - smoothing for the true class.
    """
    losses = rows.losses()
    return np.asarray((1.0 - smoothing) * rows.at_true(losses) + smoothing * (sum_columns(list(losses.T)) / rows.width))


def focal_loss(rows: ClassScores, gamma: float) -> Floats:
    """Return -(1 - q)^gamma * log(q), where q is the predicted probability of the true class."""
    losses = rows.losses()
    loss = rows.at_true(losses)
    # If q is close to 1, the difference 1 - q loses digits. With logits, sum the probabilities of the other classes
    # instead.
    if rows.logit:
        shares = np.asarray(elementary.exp(-losses))
        shares[np.arange(len(shares)), rows.true] = 0.0
        wrong = sum_columns(list(shares.T))
    else:
        wrong = 1.0 - np.clip(rows.at_true(rows.scores), rows.eps, 1.0 - rows.eps)
    return np.asarray(elementary.power(np.clip(wrong, TINY, 1.0), np.float64(gamma)) * loss)


def is_true_class(rows: ClassScores, which: float) -> Floats:
    """Return 1 if the true class of a row is the class with index `which`, else 0."""
    return np.asarray(rows.true == int(which), np.float64)


COLUMN_TERMS: dict[str, Callable[..., Floats]] = {
    "smoothed": smoothed_log_loss,
    "focal": focal_loss,
    "hinge": lambda rows: rows.hinge(),
    "squared_hinge": lambda rows: np.square(rows.hinge()),
    "margin": lambda rows, which: rows.margins()[:, int(which)],
    "squared_margin": lambda rows, which: np.square(rows.margins()[:, int(which)]),
    "class": is_true_class,
}
"""The functions of the terms that are computed with numpy, by name.

The number after "@" in a term such as "focal@2.0" is passed to the function as its second argument.
"""


CLASS_TERMS = ("log_loss", "brier", "top")
OUTPUT_TERMS = ("exact", "wrong")
LABEL_TERMS = ("coverage", "precision", "ranking_loss", "average_precision", "relevant", "auc", "both")
SET_TERMS = ("subset", "overlap", "contain", "belong", "row_f", "row_jaccard", "lack_f")
DEFINING_TERMS = {"auc": "both", "average_precision": "relevant"}
"""Maps a term that may be undefined in a row to a second term, which is 1 if the first term is defined, else 0.

If the first term is undefined, its value is 0.
"""


class RowMeans(WeightedRows):
    """The base class for states with exact sums of terms over rows; a term is a float64 value of a row, such as a loss.

    Parameters
    ----------
    terms : tuple of str
        The terms whose weighted sums are kept; a collection keeps the union of the terms that its metrics need.

    Notes
    -----
    For standard errors, the state also keeps sums of squares. Let w be the weight of a row, and x one of its terms. The
    array `squares` contains the sum of (w * x)^2 for each term. If rows have weights, `more_w2` contains the sum of
    (w^2 - 1), and `more_w2x` contains the sum of (w^2 * x - w * x) for each term. A row of weight 1 adds 0 to both.
    Each summand, such as (w * x)^2, is rounded to 26 bits before it is added to one of these sums.
    """

    terms: tuple[str, ...] = union(default=())

    sums = Flat("terms", form="exact")
    squares = Flat("terms", form="exact")
    more_w2 = Flat(form="exact", optional=True)
    more_w2x = Flat("terms", form="exact", optional=True)

    choices: ClassVar[tuple[str, ...]] = ()

    def __post_init__(self) -> None:
        if unknown := [t for t in self.terms if t.partition("@")[0] not in self.choices]:
            raise ValueError(f"{type(self).__name__} has no term {unknown[0]!r}; choose from {', '.join(self.choices)}")
        super().__post_init__()

    def derive_columns(self, columns: Mapping[str, Any]) -> Mapping[str, Any]:
        derived = {n: c for n, c in columns.items() if n == "sample_weight"}
        return derived | {"values": Column(self.compute_terms(columns).reshape(-1), "float64")}

    def compute_terms(self, columns: Mapping[str, Any]) -> NDArray[np.float64]:
        """Compute all terms of each row, from columns that passed all checks, as an array of shape (rows, terms)."""
        raise NotImplementedError

    def steps(self, like: Like) -> Iterable[Step]:
        own = type(self)
        more = (own.more_w2, own.more_w2x) if like.has_weights else (NOTHING, NOTHING)
        into = *self.row_arguments(like), own.sums, own.squares, *more
        return [Step("row_sums:sum_values", "values", "sample_weight", "at", len(self.terms), *into)]

    def check(self) -> None:
        name, weight, sums = type(self).__name__, read_row_weight(self, "rows"), self.read_cells_named("sums")
        for i, term in enumerate(self.terms):
            if weight.is_exceeded_by(sums[..., i, :], self.max_term(term), signed=self.is_signed(term)):
                raise StateFormatError(
                    f"the state is corrupt: a sum of {term} in {name}.sums is impossible for the weight of its rows"
                )
        if (self.read_cells_named("squares")[..., -1] < 0).any():
            raise StateFormatError(f"the state is corrupt: {name}.squares contains a negative sum of squares")

    def max_term(self, term: str) -> float:
        """Return an upper bound on the value of a term in one row."""
        return 1

    def is_signed(self, term: str) -> bool:
        """Return whether the value of a term in one row can be negative."""
        return False

    def total(self, term: str) -> Fraction:
        """Return the weighted sum of a term. Only the term of each row is rounded to float64, not the sum."""
        return exact_to_fraction(self.sums[find_term(self, term)])

    def square(self, term: str) -> Fraction:
        """Return the sum over rows of (w * x)^2, where w is the weight and x is the term."""
        return exact_to_fraction(self.squares[find_term(self, term)])

    def weight_squared(self, term: str | None = None) -> Fraction:
        """Return the sum over rows of w^2, where w is the weight; if a term x is passed, return the sum of w^2 * x."""
        if term is None:
            return int(self.rows) + Fraction(0 if self.more_w2 is None else exact_to_fraction(self.more_w2))
        more = 0 if self.more_w2x is None else exact_to_fraction(self.more_w2x[find_term(self, term)])
        return self.total(term) + more

    def estimate_means(self, term: str) -> MeanEstimates:
        """Estimate the mean of a term over rows, and the variance of this estimate."""
        products = {(-1, -1): self.weight_squared(), (-1, 0): self.weight_squared(term), (0, 0): self.square(term)}
        return estimate_means(self.weight(), [self.total(term)], products, count=self.rows)

    def estimate_defined_means(self, term: str, defined: str) -> MeanEstimates:
        """Estimate the means of `term` and of `defined`, a term that is 1 in rows where `term` is defined, else 0.

        The ratio of the two means is the mean of `term` over the rows in which it is defined.
        """
        part, there = self.weight_squared(term), self.weight_squared(defined)
        products = {(-1, -1): self.weight_squared(), (-1, 0): part, (0, 0): self.square(term)}
        products |= {(-1, 1): there, (0, 1): part, (1, 1): there}
        return estimate_means(self.weight(), [self.total(term), self.total(defined)], products)


class ClassRows(KnownClasses, RowMeans, tag="class_rows"):
    """Exact sums of terms that are computed for each row from its true class and its scores (or its prediction).

    Parameters
    ----------
    terms : tuple of str
        The terms whose weighted sums are kept:

        - "log_loss", "brier", "hinge", "squared_hinge": the multiclass losses with these names
        - "smoothed@0.1": the log loss with label smoothing 0.1
        - "focal@2.0": the focal loss with gamma 2
        - "top@3": 1 if the true class has one of the 3 highest scores, else 0
        - "margin@0", "squared_margin@0": the one-vs-rest hinge loss of class 0, and its square
        - "class@0": 1 if class 0 is the true class, else 0

        With `num_outputs`, the terms are "exact" (1 if all outputs are correct, else 0) and "wrong" (the number of wrong
        outputs).
    num_classes, labels
        The number of classes, or the list of classes, as in `KnownClasses`.
    scale : {"probability", "logit", "real"}
        The scale of the scores. With "real", terms that need probabilities, such as "log_loss", are not available.
    eps : float, optional
        The log loss clips probabilities to [eps, 1 - eps]. The default is the machine epsilon of float32 for float32
        and half-precision probabilities, and that of float64 for others, as in `ScoreSums`.
    num_outputs : int, optional
        The number of outputs per row. Each output has a true class and a predicted class, but no scores.

    Notes
    -----
    A term takes 1.1 kB, regardless of the number of classes.
    """

    scale: str = setting(default="probability", choices=("probability", "logit", "real"))
    eps: float | None = setting(default=None, low=0.0, high=0.25)
    num_outputs: int | None = setting(default=None, low=1, high=1 << 16)

    @property
    def choices(self) -> tuple[str, ...]:  # type: ignore[override]
        return (*CLASS_TERMS, *COLUMN_TERMS) if self.num_outputs is None else OUTPUT_TERMS

    def needs(self) -> tuple[Need, ...]:
        if self.num_outputs is not None:
            both = (matrix(class_label(self.declared_classes, role), self.num_outputs) for role in ("y_true", "y_pred"))
            return *both, weight()
        return self.true_class, class_scores(self.width, self.scale), weight()

    def max_term(self, term: str) -> float:
        name = term.partition("@")[0]
        known: dict[str, float] = {
            "brier": 2 + 2.0**-10,
            "top": 1,
            "class": 1,
            "exact": 1,
            "wrong": self.num_outputs or 1,
        }
        return known.get(name, math.inf)

    def compute_terms(self, columns: Mapping[str, Any]) -> NDArray[np.float64]:
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
            find_kernel("classes:compute_class_terms")(y.values, s.values, terms, ks, self.scale == "logit", eps, found)
            values[:, compiled] = found
        if len(compiled) == len(named):
            return values
        rows = ClassScores(y.values, s.values, self.scale == "logit", eps)
        for i, (name, _, number) in enumerate(named):
            if name in COLUMN_TERMS:
                values[:, i] = COLUMN_TERMS[name](rows, *([float(number)] if number else []))
        return values


class LabelRows(RowMeans, tag="label_rows"):
    """Exact sums of terms that are computed for each row from several 0/1 labels and a score for each label.

    Parameters
    ----------
    terms : tuple of str
        The terms for label ranking are "coverage", "precision", "ranking_loss", "average_precision" and "auc". The last
        two are 0 in rows where they are undefined. "relevant" is 1 if the row has a true label, else 0. "both" is 1 if
        the row has both true and false labels, else 0.

        Other terms compare the set of the true labels with the set of the predicted labels. In these examples, a label
        is predicted if its score is at least 0.5:

        - "subset@0.5": the sets are equal
        - "overlap@0.5": the sets have a common label
        - "contain@0.5": all true labels are predicted
        - "belong@0.5": all predicted labels are true
        - "row_f@2.0@0.5": F-beta of the row for beta 2.0 (beta 0.0 gives precision, and beta inf gives recall)
        - "row_jaccard@0.5": the Jaccard index of the sets
        - "lack_f@2.0@0.5": 1 if F-beta is 0/0 (which "row_f" counts as 0), else 0

        With "top3" instead of 0.5, the labels with the three highest scores are predicted. With "top3:0.5", these
        labels must also score at least 0.5.
    num_labels : int
        The number of labels per row.
    column : {"y_score", "y_pred"}
        The column of predictions: `y_score` contains scores; `y_pred` contains 0/1 decisions.

    Notes
    -----
    A term takes 1.1 kB, regardless of the number of labels.
    """

    num_labels: int = setting(default=1, low=1, high=1 << 16)
    column: str = setting(default="y_score", choices=("y_score", "y_pred"))

    choices = (*LABEL_TERMS, *SET_TERMS)

    def needs(self) -> tuple[Need, ...]:
        scores = score(scale="real") if self.column == "y_score" else flag("y_pred")
        return matrix(label(), self.num_labels), matrix(scores, self.num_labels), weight()

    def max_term(self, term: str) -> float:
        return self.num_labels if term == "coverage" else 1

    def check(self) -> None:
        super().check()
        weight = read_row_weight(self, "rows")
        sums = dict(zip(self.terms, np.moveaxis(self.read_cells_named("sums"), -2, 0), strict=True))
        for term, term_sums in sums.items():
            known, lacking = sums.get(DEFINING_TERMS.get(term, "")), sums.get(_undefined_term(term))
            wrong = known is not None and not are_within(term_sums, known)
            # `lacking` is the weight of the rows in which the term is undefined (0/0). These rows add 0 to the sum of
            # the term, and every other row adds at most its weight. The sum of the term plus `lacking` is therefore at
            # most the weight of all rows.
            if lacking is not None:
                both = term_sums + lacking
                carry_exact(both)
                wrong |= weight.is_exceeded_by(both, 1)
            if wrong:
                raise StateFormatError(
                    f"the state is corrupt: the sum of {term} in LabelRows.sums exceeds the weight of the "
                    f"rows that have a value"
                )

    def compute_terms(self, columns: Mapping[str, Any]) -> NDArray[np.float64]:
        y, scores = columns["y_true"].values, columns[self.column]
        s = scores.values if scores.values.dtype.kind == "f" else scores.values.astype(np.float32)
        values = np.empty((len(y), len(self.terms)))
        ranked = [i for i, t in enumerate(self.terms) if t in LABEL_TERMS]
        if ranked:
            found = np.empty((len(y), len(ranked)))
            numbers = np.array([self.choices.index(self.terms[i]) for i in ranked], np.int64)
            find_kernel("classes:compute_label_terms")(y, s, np.argsort(s, axis=1), numbers, found)
            values[:, ranked] = found
        sets: dict[str, LabelSets] = {}
        for i, term in enumerate(self.terms):
            if term in LABEL_TERMS:
                continue
            name, *beta, cut = term.split("@")
            if name == "subset" and not cut.startswith("top"):
                right = np.empty(len(y))
                find_kernel("classes:mark_exact_matches")(
                    y, s, round_thresholds((float(cut),), scores.source, s.dtype)[0], right
                )
                values[:, i] = right
                continue
            if cut not in sets:
                sets[cut] = LabelSets.of(y == 1, _select_labels(s, cut, scores.source))
            values[:, i] = sets[cut].term(name, *map(float, beta))
        return values


def _undefined_term(term: str) -> str:
    """Return the name of the term that is 1 in rows where `term` is 0/0, and 0 in other rows.

    The result is an empty string if `term` is never 0/0.
    """
    name, _, rest = term.partition("@")
    return {"row_f": f"lack_f@{rest}", "row_jaccard": f"lack_f@1.0@{rest}"}.get(name, "")


def _select_labels(scores: Any, cut: str, source: str) -> NDArray[np.bool_]:
    """Return a mask of the predicted labels of each row.

    Parameters
    ----------
    scores : array of shape (rows, labels)
        The scores of the labels.
    cut : str
        The rule, such as "0.5" (a threshold), "top3" (the three highest scores) or "top3:0.5" (both).
    source : str
        The name of the dtype of the scores that the user passed, to which the threshold is rounded.
    """
    if not cut.startswith("top"):
        return np.asarray(scores >= round_thresholds((float(cut),), source, scores.dtype)[0])
    k, _, least = cut.removeprefix("top").partition(":")
    top = np.asarray(mark_top_k(scores, int(k)) == 1)
    return top & _select_labels(scores, least, source) if least else top


def cut_term(threshold: float, top_k: int | None, *, above: bool) -> str:
    """Return the last part of a term such as "row_f@1.0@top3": the rule that selects the predicted labels of a row.

    The rule is a threshold ("0.5"), the k highest scores ("top3") or, if `above` is true, both ("top3:0.5").
    """
    if top_k is None:
        return repr(threshold)
    return f"top{top_k}:{threshold!r}" if above else f"top{top_k}"


class LabelSets(NamedTuple):
    """The numbers of true positives, true labels and predicted labels of each row."""

    correct: NDArray[np.int64]
    true: NDArray[np.int64]
    selected: NDArray[np.int64]

    @classmethod
    def of(cls, true: NDArray[np.bool_], selected: NDArray[np.bool_]) -> LabelSets:
        """Count the labels of each kind in each row, from masks (rows x labels) of the true and predicted labels."""
        return cls(*(np.count_nonzero(part, axis=1) for part in (true & selected, true, selected)))

    def term(self, name: str, beta: float = 1.0) -> NDArray[Any]:
        """Return the value of a set measure, such as "subset" or "row_f", for each row."""
        correct, true, selected = self
        if name == "subset":
            return np.asarray((correct == true) & (correct == selected))
        if name == "overlap":
            return np.asarray((correct > 0) | (true + selected == 0))
        if name in ("contain", "belong"):
            return np.asarray(correct == (true if name == "contain" else selected))
        if name == "row_jaccard":
            return np.asarray(correct / np.maximum(true + selected - correct, 1))
        # F-beta is (1 + beta^2) * correct / (beta^2 * true + selected). Its limit for infinite beta is recall, that is,
        # correct / true.
        whole = true * 1.0 if beta == math.inf else beta * beta * true + selected
        if name == "lack_f":
            return np.asarray(whole == 0)
        times = 1.0 if beta == math.inf else 1 + beta * beta
        return np.asarray(np.minimum(times * correct / np.where(whole > 0, whole, 1.0), 1.0))
