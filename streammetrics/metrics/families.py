"""Names that `dir()` lists: those of the package and, for a metric family such as `sm.ranking`, only its metrics."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from types import ModuleType
from typing import Any

from ..collect.metric import METRICS, Metric
from . import curves, decisions, groups, probabilities, ranking, regression, values

__all__ = ["FAMILIES", "list_public_names"]

FAMILIES = (decisions, probabilities, curves, groups, regression, ranking, values)
"""The packages of metrics, in the order of their pages in the documentation."""

MODULES = ("streammetrics.extend", "streammetrics.results")
"""The other modules that `dir` lists: one for authors of metrics, and one with the types of results."""


def _metrics_of(family: ModuleType) -> list[str]:
    return sorted(name for name, thing in vars(family).items() if isinstance(thing, type) and _is_metric(thing))


def _is_metric(thing: type) -> bool:
    return issubclass(thing, Metric) and METRICS.get(thing.about.tag) is thing


def list_public_names(names: Mapping[str, Any]) -> list[str]:
    """Return the sorted public names of a module; of the modules among them, keep only families and `MODULES`."""
    return sorted(
        name
        for name, thing in names.items()
        if (not name.startswith("_") or name.startswith("__"))
        and (not isinstance(thing, ModuleType) or thing in FAMILIES or thing.__name__ in MODULES)
    )


for _family in FAMILIES:
    vars(_family)["__dir__"] = partial(_metrics_of, _family)
