"""What lines of the peers' tables are tried on: a small log of each kind, with ties, in numbers that float32 has."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

ROWS, C, L, DIMENSIONS, QUERIES, DOCUMENTS = 300, 3, 3, 4, 20, 12
NAMES = {"C": C, "L": L, "np": np}
"""What the expressions of the tables may name beside ours."""


@dataclass(frozen=True)
class Data:
    """A log: what is given to metrics by position, truth first, and by name."""

    kind: str
    given: tuple[Any, ...]
    named: dict[str, Any] = field(default_factory=dict)


def rounded(x: Any) -> Any:
    """Numbers on a grid that float32 has, many of them tied; the odd ones, so that none is a threshold such as 1/2."""
    return (2 * np.floor(x * 256) + 1) / 512


def probabilities(rng: np.random.Generator, shape: tuple[int, ...]) -> Any:
    return np.clip(rounded(rng.beta(1.2, 2, shape)), 1 / 512, 511 / 512)


def shares(rng: np.random.Generator, width: int) -> Any:
    """Rows of positive numbers whose sum is 1, exactly; no two of a row are the same."""
    rows: list[Any] = []
    while len(rows) < ROWS:
        inner = np.sort(rng.choice(np.arange(1, 512), width - 1, replace=False))
        row = np.diff([0, *inner, 512])
        if len(set(row)) == width and 256 not in row:
            rows.append(row / 512)
    return np.array(rows)


def binary(score: Callable[[Any], Any]) -> Callable[[np.random.Generator], tuple[Any, Any]]:
    def make(rng: np.random.Generator) -> tuple[Any, Any]:
        p = probabilities(rng, (ROWS,))
        return (rng.random(ROWS) < p).astype(np.int64), score(p)

    return make


def class_scores(rng: np.random.Generator) -> tuple[Any, Any]:
    P = shares(rng, C)
    return (rng.random((ROWS, 1)) > P.cumsum(axis=1)).sum(axis=1).astype(np.int64), P


def class_decisions(rng: np.random.Generator) -> tuple[Any, Any]:
    y, P = class_scores(rng)
    return y, P.argmax(axis=1)


def label_scores(rng: np.random.Generator) -> tuple[Any, Any]:
    """Several labels of a row, at least one of them true and one not, as the metrics of rows ask."""
    S = probabilities(rng, (ROWS, L))
    Y = (rng.random((ROWS, L)) < S).astype(np.int64)
    Y[:, 0] = np.where(Y.sum(axis=1) == 0, 1, np.where(Y.sum(axis=1) == L, 0, Y[:, 0]))
    return Y, S


def label_decisions(rng: np.random.Generator) -> tuple[Any, Any]:
    Y, S = label_scores(rng)
    return Y, (S >= 0.3).astype(np.int64)


def numbers(rng: np.random.Generator, shape: tuple[int, ...] = (ROWS,)) -> tuple[Any, Any]:
    y = rounded(rng.normal(1, 3, shape))
    return y, rounded(y + rng.normal(0.2, 1.5, shape))


def positive_numbers(rng: np.random.Generator) -> tuple[Any, Any]:
    y = rounded(rng.gamma(2, 3, ROWS)) + 1 / 64
    return y, rounded(y * rng.gamma(8, 1 / 8, ROWS)) + 1 / 64


def number_outputs(rng: np.random.Generator) -> tuple[Any, Any]:
    return numbers(rng, (ROWS, 2))


def ranking(grades: int) -> Callable[[np.random.Generator], tuple[Any, Any, dict[str, Any]]]:
    """Rows of queries in the order in which their documents were counted; no two scores of a query are the same."""

    def make(rng: np.random.Generator) -> tuple[Any, Any, dict[str, Any]]:
        score = rng.permuted(np.tile(np.arange(1, DOCUMENTS + 1), (QUERIES, 1)), axis=1) / 16
        noise = rng.normal(0, 0.3, score.shape)
        grade = np.clip(np.round((score + noise - 0.5) * grades), 0, grades).astype(np.int64)
        grade[:, 0] = np.where(grade.sum(axis=1) == 0, 1, grade[:, 0])
        return grade.ravel(), score.ravel(), {"query": np.repeat(np.arange(QUERIES), DOCUMENTS)}

    return make


def labelings(rng: np.random.Generator) -> tuple[Any, Any]:
    a = rng.integers(0, 4, ROWS)
    return a, np.where(rng.random(ROWS) < 0.6, (a + 1) % 4, rng.integers(0, 4, ROWS))


def ratings(rng: np.random.Generator) -> tuple[Any]:
    """How many of 5 raters chose each class."""
    return (rng.multinomial(5, shares(rng, C)),)


def vectors(rng: np.random.Generator) -> tuple[Any, Any]:
    return shares(rng, DIMENSIONS), shares(rng, DIMENSIONS)


def values(rng: np.random.Generator) -> tuple[Any]:
    return (rounded(rng.gamma(2, 3, ROWS)) + 1 / 64,)


def totals(rng: np.random.Generator) -> tuple[dict[str, Any]]:
    """What was done, and the seconds that it took."""
    return ({"numerator": rng.integers(0, 100, ROWS), "denominator": rounded(rng.gamma(2, 3, ROWS)) + 1 / 64},)


def keys(rng: np.random.Generator) -> tuple[Any]:
    return (rng.zipf(1.5, ROWS) % 50,)


def groups(rng: np.random.Generator) -> tuple[Any, Any, dict[str, Any]]:
    """Three groups, each with rows of both classes."""
    y, p = binary(lambda p: p)(rng)
    group = np.arange(ROWS) % 3
    y[:3], y[3:6] = 0, 1
    return y, p, {"group": group}


MAKERS: dict[str, Callable[[np.random.Generator], tuple[Any, ...]]] = {
    "binary_scores": binary(lambda p: p),
    "binary_logits": binary(lambda p: rounded(np.log(p / (1 - p)))),
    "binary_decisions": binary(lambda p: (p >= 0.4).astype(np.int64)),
    "class_scores": class_scores,
    "class_decisions": class_decisions,
    "label_scores": label_scores,
    "label_decisions": label_decisions,
    "numbers": numbers,
    "positive_numbers": positive_numbers,
    "number_outputs": number_outputs,
    "ranking_binary": ranking(1),
    "ranking_graded": ranking(3),
    "labelings": labelings,
    "ratings": ratings,
    "vectors": vectors,
    "values": values,
    "totals": totals,
    "keys": keys,
    "groups": groups,
}


def data_of(kind: str) -> Data:
    """Make the log of a kind, the same every time."""
    *given, last = MAKERS[kind](np.random.default_rng(7))
    named = last if isinstance(last, dict) else {}
    return Data(kind, tuple(given) if named else (*given, last), named)
