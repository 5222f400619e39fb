"""A log, and what is counted of it: the same in every process."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

import streammetrics as sm

N = 9_000


def log(n: int = N) -> dict[str, Any]:
    rng = np.random.default_rng(3)
    score = rng.beta(1, 20, n)
    return {
        "y_true": (rng.random(n) < score).astype(np.int64),
        "y_score": score,
        "sample_weight": rng.choice([1.0, 1 / 3], n),
        "country": rng.choice(["br", "de", "us"], n),
        "user": rng.integers(0, 500, n),
    }


def rows(columns: dict[str, Any], chosen: Any) -> dict[str, Any]:
    return {name: column[chosen] for name, column in columns.items()}


def share(rank: int, size: int, n: int = N) -> Any:
    """The rows of a rank: few of the first, none of the last if there are more than two."""
    edges = [0, n // 50, *np.linspace(n // 50, n, max(size - 1, 1) + (size < 3)).astype(int)[1:].tolist(), n]
    return slice(edges[rank], edges[rank + 1]) if rank < size - 1 or size < 3 else slice(n, n)


def sixteen() -> sm.MetricCollection:
    return sm.MetricCollection(sm.AUC(), sm.KS(), sm.LogLoss(), sm.Calibration(), sm.F1())


def bundle() -> sm.Bundle:
    return sm.Bundle({"all": sm.AUC(bits=12), "by": sm.Sliced(sm.CTR(), by="country")})


THINGS = {
    "collection": sixteen,
    "dense": lambda: sm.MetricCollection(
        sm.AUC(bits=8), sm.LogLoss(), {"fine": sm.AUC(bits=9)}, sm.Sliced(sm.CTR(), by="country")
    ),
    "auc": lambda: sm.AUC(bits=10),
    "exact": lambda: sm.AUC(exact=True),
    "sliced": lambda: sm.Sliced([sm.AUC(bits=12), sm.CTR()], by="country", limit=2),
    "bundle": bundle,
    "groups": sm.GroupAUC,
    "distinct": lambda: sm.DistinctCount(precision=8),
    "discover": lambda: sm.Accuracy(labels="discover"),
    "weighted": lambda: sm.MetricCollection(sm.AUC(bits=8), sm.BrierScore()),
}


def count(name: str, thing: Any, part: dict[str, Any]) -> Any:
    """Count some rows, as each kind of thing takes them."""
    base = {n: part[n] for n in ("y_true", "y_score")}
    if name == "bundle":
        thing["all"].update(base)
        thing["by"].update(part)
    elif name == "groups":
        thing.update(base | {"group": part["user"]})
    elif name == "distinct":
        thing.update(part["user"])
    elif name == "discover":
        thing.update(part["country"], part["country"])
    elif name in ("sliced", "dense"):
        thing.update(base | {"country": part["country"]})
    else:
        thing.update(base | ({"sample_weight": part["sample_weight"]} if name == "weighted" else {}))
    return thing


def whole(name: str) -> Any:
    warnings.simplefilter("ignore")
    return count(name, THINGS[name](), log())


def part(name: str, rank: int, size: int) -> Any:
    return count(name, THINGS[name](), rows(log(), share(rank, size)))
