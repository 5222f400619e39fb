"""Metrics at every setting that they declare: each in turn at every choice and at its extremes, and some of them in pairs.

What to try is read from the declarations, so that no setting of a metric, also of a new one, escapes: one that says
nothing but its type needs a line in `VALUES`.
"""

from __future__ import annotations

import math
import typing
import zlib
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from streammetrics.numerics.settings import _setting_rules

VALUES: dict[str, tuple[Any, ...]] = {
    "labels": (("b", "a"), (7, -1, 3), (b"x", b""), ("b",), "discover"),
    "ignore_class": (None, 0, 2, "a", b"x"),
    "threshold": (0.5, None, 0.0, 1.0, -1.0, (0.3, 0.6, 0.6)),
    "missing_values": ((), (0,), ("", -1)),
    "quantiles": ((0.5,), (0.1, 0.25, 0.5, 0.75, 0.9), (0.01, 0.99)),
    "edges": ((0.0, 1.0), (-1e300, 0.0, 5e-324, 1e300)),
    "variables": (("x", "y"), ("x", "y", "z", "a")),
    "key": (0, "a", b"", -(2**63), 2**64 - 1),
    "grouped": (None,),  # rows by group in order: tests/metrics/test_groups.py
    "partition": (None, (0, 1)),  # all groups: others are refused
    "sealed": (None,),  # counts no rows: `seal` makes it
    "spill_dir": (None,),  # names a folder: tests/metrics/test_groups.py
    "memory_limit": (0, 1 << 20),
    **dict.fromkeys(("numerator", "denominator", "outcome", "exposed", "unit"), ("a",)),
}
"""What settings may be that declare no more than a type, or something that laws are no test of."""

ENOUGH = dict.fromkeys(("num_classes", "num_labels", "num_outputs", "width", "members"), 5)
ENOUGH |= {"max_labels": 9, "max_groups": 9, "n_bins": 3000, "depth": 6}
"""Settings that rows, or states, are as large as: so much of them will do."""

CONTEXTS: tuple[dict[str, Any], ...] = ({}, {"num_classes": 3}, {"num_labels": 3}, {"labels": "discover"})
"""Tasks in which a setting that they share may mean something else."""


class Variant(NamedTuple):
    """A metric with settings of which it may refuse some."""

    cls: Any
    settings: dict[str, Any]

    def make(self) -> Any:
        """The metric, or what it says against these settings."""
        try:
            return self.cls(**self.settings)
        except (TypeError, ValueError) as error:  # settings that do not go together: see what it says
            return error

    def chosen(self, of: int) -> int:
        """A number below `of`, the same for ever."""
        return zlib.crc32(repr(self).encode()) % of

    def __repr__(self) -> str:
        return f"{self.cls.__name__}({', '.join(f'{n}={v!r}' for n, v in self.settings.items())})"


def values(cls: Any, name: str) -> list[Any]:
    """What a setting may be: every choice; or the least, the most, and something small between them."""
    _, hint, rules = _setting_rules(cls)[name]
    kinds = typing.get_args(hint) or (hint,)
    none = [None] if type(None) in kinds else []
    if name in VALUES:
        return [v for v in VALUES[name] if v is not None or none]
    if rules.get("choices") is not None:
        return list(rules["choices"])
    if bool in kinds:
        return [False, True]
    low, above, high = (rules.get(rule) for rule in ("low", "above", "high"))
    if low is None and above is None and high is None:
        raise LookupError(f"{cls.__name__}.{name} says nothing of what it may be: add it to VALUES")
    return none + (_whole(low, high, ENOUGH.get(name)) if int in kinds else _real(low, above, high))


def _whole(low: int, high: int | None, enough: int | None) -> list[Any]:
    most = [] if high is None and enough is None else [int(enough or high)]  # type: ignore[arg-type]
    return sorted({low, low + 2, *most})


def _real(low: float | None, above: float | None, high: float | None) -> list[Any]:
    least = math.nextafter(above, math.inf) if above is not None else low
    start = 0.0 if least is None else least
    middle = start + (1.5 if high is None or high - start > 1000 else (high - start) / 2)
    return [v for v in (least, middle, high) if v is not None]


def variants(cls: Any, pairs: int = 4) -> list[Variant]:
    """A class at every value of each setting, in every task that it has, and at random pairs of settings."""
    each = {name: values(cls, name) for name in _setting_rules(cls)}
    tasks = [task for task in CONTEXTS if task.keys() <= each.keys()]
    found = [cls.about.example | task | {name: v} for task in tasks for name in each for v in each[name]]
    found += [
        cls.about.example | tasks[i % len(tasks)] | pair for i, pair in enumerate(_pairs(cls, each, pairs * len(tasks)))
    ]
    found = [s for s in found if not (s.get("labels") == "discover" and isinstance(s.get("ignore_class"), int))]
    return [Variant(cls, s) for s in {repr(sorted(s.items())): s for s in found}.values()]  # rows of laws have texts


def _pairs(cls: Any, each: dict[str, list[Any]], several: int) -> Iterator[dict[str, Any]]:
    rng = np.random.default_rng(list(cls.about.tag.encode()))
    for _ in range(several):
        names = rng.choice(list(each), min(2, len(each)), replace=False).tolist()
        yield {name: each[name][rng.integers(len(each[name]))] for name in names}
