"""A metric says what it reads by few methods, each with one meaning: this test counts them."""

from __future__ import annotations

import types
from collections.abc import Iterator

import pytest

import streammetrics as sm

READ_OUTS = {"of", "reason", "slack", "estimate", "gradient", "read", "read_cells", "reading"}
"""The methods that metrics override to say what they read from a state."""

DECLARATIONS = {
    # what the metric is
    "name", "make_state", "terms", "term", "width", "domain", "update", "grows", "repeats",
    # the range of the value, and how its interval is made
    "within", "undefined", "interval_scale", "quantile",
    # what tables and shards of metrics of pairs need
    "of_pairs", "of_all_cells", "error_of", "errors_of",
    # rows by group
    "closing", "seal", "free",
}  # fmt: skip
"""What else they override: settings that depend on settings, and names."""

METHODS = (types.FunctionType, property, staticmethod, classmethod)


def own_classes() -> list[type]:
    """The classes of built-in metrics, and those that they have in common."""
    found = {cls for metric in sm.METRICS.values() for cls in metric.__mro__}
    return sorted(
        (c for c in found if c.__module__.startswith("streammetrics.metrics.")),
        key=lambda c: (c.__module__, c.__qualname__),
    )


def overrides(cls: type) -> Iterator[str]:
    """The public methods of a class that a class before it has, too."""
    bases = [base for base in cls.__mro__[1:] if base.__module__.startswith("streammetrics")]
    for name, value in vars(cls).items():
        if not name.startswith("_") and isinstance(value, METHODS) and any(name in vars(base) for base in bases):
            yield name


@pytest.mark.parametrize("cls", own_classes(), ids=lambda cls: cls.__qualname__)
def test_metrics_override_few_methods(cls):
    assert set(overrides(cls)) <= READ_OUTS | DECLARATIONS


def test_read_outs_are_at_most_eight_and_all_are_used():
    used = {name for cls in own_classes() for name in overrides(cls)}
    assert len(READ_OUTS) <= 8
    assert used >= READ_OUTS
