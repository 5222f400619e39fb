"""Settings: what a class declares has to be what its checks would make of it."""

from dataclasses import MISSING

import pytest

import streammetrics as sm
from streammetrics import METRICS, State
from streammetrics.numerics import settings


@pytest.mark.parametrize("cls", [*METRICS.values(), *State.by_tag.values()], ids=lambda c: c.__name__)
def test_defaults_pass_their_own_checks(cls):
    """They are not checked when an object is made."""
    for name, (default, hint, rules) in settings._declared(cls).items():
        if default is not MISSING:
            value = settings._check(cls.__name__, name, default, hint, rules)
            assert type(value) is type(default)
            assert value == default or value != value


LABELS, SCORES = {"y_true": [1, 2, 3], "y_pred": [2, 3, 1]}, {"y_true": [0, 1], "y_score": [0.2, 0.7]}


@pytest.mark.parametrize(
    ("low", "high", "name", "rows"),
    [
        (sm.F1(labels="discover", max_labels=4), sm.Recall(labels="discover"), "max_labels", LABELS),
        (sm.AUC(exact=True, memory_limit=1 << 20), sm.KS(exact=True), "memory_limit", SCORES),
        (sm.GroupAUC(memory_limit=9999), sm.GroupAUC(spill_dir="/tmp"), "memory_limit", SCORES | {"group": [1, 1]}),
    ],
)
def test_operational_settings_do_not_keep_metrics_from_sharing(low, high, name, rows):
    """They are not written: what is read back shares a state, and did not find two."""
    for metrics in ({"a": low, "b": high}, {"a": high, "b": low}):
        both = sm.MetricCollection({n: m.blank() for n, m in metrics.items()})
        assert len(both.states) == 1
        assert getattr(both.states[0], name) == getattr(low, name)
        assert sm.from_bytes(both.update(rows).to_bytes()) == both
        for n, metric in metrics.items():
            assert both[n] == metric.blank().update(rows)
    assert getattr(sm.MetricCollection({"a": low, "b": high}).states[0], "spill_dir", None) == getattr(
        high, "spill_dir", None
    )
