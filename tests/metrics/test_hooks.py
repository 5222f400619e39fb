"""A metric says what it reads by few methods, each with one meaning: this test counts them."""

from __future__ import annotations

import types
from collections.abc import Iterator

import pytest

import streammetrics as sm
from streammetrics.reading.about import about_of

READ_OUTS = {"of", "reason", "slack", "estimate", "gradient", "read", "reading"}
"""The methods that metrics override to say what they read from a state."""

DECLARATIONS = {
    # what the metric is
    "name", "make_state", "terms", "term", "width", "domain", "update",
    # the reason for an undefined value
    "undefined",
    "undefined_value",
    # tables of metrics of scores
    "_read_all_cells", "_standard_error", "_standard_errors",
    # rows by group
    "sealed_metric", "free",
}  # fmt: skip
"""The other methods that metrics override. Constants, and values that depend on settings, are fields of `about`."""

METHODS = (types.FunctionType, property, staticmethod, classmethod)


def own_classes() -> list[type]:
    """The classes of built-in metrics, and those that they have in common."""
    found = {cls for metric in sm.extend.METRICS.values() for cls in metric.__mro__}
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


def test_read_outs_are_at_most_seven_and_all_are_used():
    used = {name for cls in own_classes() for name in overrides(cls)}
    assert len(READ_OUTS) <= 7
    assert used >= READ_OUTS


class TestAbout:
    """The record of a class has the fields of its bases, as attribute lookup would find them."""

    def test_fields_are_inherited(self):
        about = sm.AveragePrecision.about
        assert (about.tag, about.best, about.rank_based) == ("average_precision", "high", True)
        assert about.formula.startswith("sum over distinct scores")
        assert sm.extend.Metric.about.bound == "exact: rounded once"

    def test_a_class_keeps_the_fields_that_it_declares(self):
        assert sm.ErrorRate.about.own_fields.keys() == {"tag", "best", "formula"}
        assert sm.extend.Metric.about.own_fields == {}

    def test_the_first_base_wins(self):
        class Low(sm.extend.Metric):
            about = sm.extend.About(best="low", cost="low cost")

        class High(sm.extend.Metric):
            about = sm.extend.About(best="high", formula="high formula")

        class Both(Low, High):
            pass

        assert (Both.about.best, Both.about.cost, Both.about.formula) == ("low", "low cost", "high formula")

    def test_a_base_of_both_does_not_hide_a_sibling(self):
        class Base(sm.extend.Metric):
            about = sm.extend.About(best="low")

        class Left(Base):
            pass

        class Right(Base):
            about = sm.extend.About(best="high")

        class Both(Left, Right):
            pass

        assert Both.about.best == "high"

    def test_a_field_can_depend_on_settings(self):
        assert about_of(sm.Variance(ddof=1)).extensive
        assert not about_of(sm.Variance(ddof=0)).extensive
        assert about_of(metric := sm.Variance()) is about_of(metric)

    def test_a_metric_without_such_fields_shares_the_record_of_its_class(self):
        assert about_of(sm.KS()) is sm.KS.about

    def test_a_field_of_the_class_cannot_depend_on_settings(self):
        with pytest.raises(TypeError, match="best is the same for all metrics of a class"):
            sm.extend.About(best=sm.extend.About.per_instance(lambda metric: "high"))
