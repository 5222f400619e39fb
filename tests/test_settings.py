"""Settings: what a class declares has to be what its checks would make of it."""

import inspect
from dataclasses import MISSING, FrozenInstanceError, fields

import pytest

import streammetrics as sm
from streammetrics.collect.metric_like import empty_copy, states_of
from streammetrics.extend import METRICS, State
from streammetrics.numerics import settings
from streammetrics.numerics.settings import Settings, setting


def test_defaults_pass_their_own_checks():
    """Defaults are not checked when an object is made."""
    for cls in (*METRICS.values(), *State.by_tag.values()):
        check_defaults(cls)


def check_defaults(cls):
    for name, (default, hint, rules) in settings._setting_rules(cls).items():
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
        both = sm.MetricCollection({n: empty_copy(m) for n, m in metrics.items()})
        assert len(states_of(both)) == 1
        assert getattr(states_of(both)[0], name) == getattr(low, name)
        assert sm.from_bytes(both.update(rows).to_bytes()) == both
        for n, metric in metrics.items():
            assert both[n] == empty_copy(metric).update(rows)
    assert getattr(states_of(sm.MetricCollection({"a": low, "b": high}))[0], "spill_dir", None) == getattr(
        high, "spill_dir", None
    )


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: sm.AUC(bit=9), "AUC has no setting 'bit'; did you mean 'bits'?"),
        (
            lambda: sm.CTR(9),
            "CTR takes its settings by keyword: on_invalid=, num_classes=, labels=, num_labels=, average=, scale=, "
            "soft_labels=",
        ),
        (lambda: sm.AUC(from_logits=True), "AUC has no setting 'from_logits'; use scale=\"logit\""),
        (lambda: sm.LogLoss(logits=True), "LogLoss has no setting 'logits'; use scale=\"logit\""),
        (lambda: sm.NDCG(top_k=5), "NDCG has no setting 'top_k'; use k="),
        (
            lambda: sm.AUC(task="binary"),
            "AUC has no setting 'task'; leave it out; pass num_classes= for several classes, or num_labels= for several "
            "labels",
        ),
        (
            lambda: sm.ROCCurve(thresholds=200),
            "ROCCurve has no setting 'thresholds'; leave it out, because every score is a threshold",
        ),
        (
            lambda: sm.AUC(pos_label=1),
            "AUC has no setting 'pos_label'; pass pos_label= to Task, as in sm.MetricCollection(sm.Task(metric, "
            "pos_label=...))",
        ),
        (
            lambda: sm.AUC(soft_labels=True),
            "AUC has no setting 'soft_labels'; LogLoss, NormalizedEntropy, BrierScore, Calibration and CTR support soft "
            "labels",
        ),
        (lambda: sm.F1(thresholds=[0.5]), "F1 has no setting 'thresholds'; did you mean 'threshold'?"),
        (
            lambda: sm.NDCG(3, 4),
            "NDCG takes only k by position, but 2 values were passed; pass other settings by keyword",
        ),
        (lambda: sm.NDCG(3, k=4), "NDCG: 'k' was passed twice, by position and by keyword; pass it once"),
        (lambda: sm.Histogram(), "Histogram needs 'edges'; pass edges="),
    ],
)
def test_what_a_constructor_says(make, said):
    with pytest.raises(TypeError) as found:
        make()
    assert str(found.value) == said


def test_settings_stay_as_they_are():
    metric = sm.NDCG(3)
    for change in (lambda: setattr(metric, "k", 4), lambda: delattr(metric, "k"), lambda: setattr(metric, "new", 4)):
        with pytest.raises(FrozenInstanceError, match="of NDCG"):
            change()
    assert metric.k == 3


def test_what_help_shows():
    """Of every class: constructors are made without code of their own."""
    for cls in [*METRICS.values(), *State.by_tag.values()]:
        shown = inspect.signature(cls).parameters
        assert [*shown] == [f.name for f in sorted(fields(cls), key=lambda f: f.kw_only)]
        assert {n: p.default for n, p in shown.items() if p.default is not p.empty}.keys() == {
            f.name for f in fields(cls) if f.default is not MISSING
        }


def test_defaults_are_those_that_were_declared():
    """Not what a class happens to have by that name: what is saved leaves them out, and reading finds them again."""

    class Dropping(sm.CTR):
        on_invalid: str = setting(default="drop", choices=("raise", "drop"), operational=True)

    class Percents(sm.MAPE):
        percent = True

    assert Dropping().update([0, 7]).explain()["rows"] == 1
    assert Dropping().copy().update([0, 7]).explain()["rows"] == 1
    assert Percents().percent is sm.MAPE().percent is False


def test_a_constructor_of_its_own_is_shown():
    class Own(sm.CTR):
        def __init__(self, name: str) -> None:
            super().__init__()

    assert [*inspect.signature(Own).parameters] == ["name"]
    assert [*inspect.signature(Settings).parameters] == ["arguments", "settings"]
