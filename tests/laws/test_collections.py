"""The laws of collections: any metrics and tasks over drawn columns, each what it is alone, to the byte.

The normal run is short; for the long form see `draws`: ``LAWS=100 pytest -m "" tests/laws -n auto``.
"""

from __future__ import annotations

import functools

import draws
import numpy as np
import plugin
import pytest
from hypothesis import given
from hypothesis import strategies as st

import streammetrics as sm
from streammetrics.batch.kinds import Label
from streammetrics.collect.metric_like import columns_of, empty_copy
from streammetrics.laws import OBJECT_LAWS, Case, run
from streammetrics.laws.case import expect_same_bytes
from streammetrics.laws.objects import splits
from streammetrics.laws.specimens import make_consistent


def _is_logged(metric):
    """Whether it reads 0/1 labels, which have names and are sampled as soft ones are not, and no column beside a score."""
    kinds = {n.role: n.kind for n in metric.make_state().needs()}
    return isinstance(kinds["y_true"], Label) and set(kinds) <= {"y_true", "y_score", "sample_weight"}


PROBABILITY = [
    m for m in draws.VARIANTS if m.about.tag in draws.BINARY and getattr(m, "scale", "probability") == "probability"
]
PROBABILITY = [
    m for m in PROBABILITY if getattr(m, "threshold", 0.5) is not None and not getattr(m, "_class_settings", None)
]
PROBABILITY = [m for m in PROBABILITY if _is_logged(m)]
BINDINGS = {
    "plain": {},
    "clicks": {"y_true": "click", "y_score": "pctr"},
    "weighted": {"y_true": "click", "y_score": "pctr", "sample_weight": "w"},
    "after": {"y_true": "buy", "y_score": "pcvr", "where": "click"},
    "named": {"y_true": "word", "labels": ("no", "yes")},
    "one": {"y_true": "word", "pos_label": "yes"},
    "sampled": {"negative_rate": 0.1, "corrects": "both"},
    "model": {"negative_rate": 0.25, "corrects": "score", "y_true": "click"},
    "log": {"negative_rate": 0.5, "corrects": "rows", "sample_weight": "w"},
}


@functools.cache
def families():
    """The metrics that read the same columns, each family by its first."""
    found = {}
    for metric in draws.VARIANTS:
        needs = metric.make_state().needs()
        found.setdefault(frozenset((n.role, n.kind) for n in needs), []).append(metric)
    return {repr(several[0]): several for several in found.values() if len(several) > 1}


@st.composite
def tasks(draw):
    """Some metrics by task, each at any settings, under names of their own."""
    chosen = draw(st.lists(st.sampled_from(sorted(BINDINGS)), min_size=1, max_size=4, unique=True))
    some = st.lists(st.sampled_from(PROBABILITY), min_size=1, max_size=4)
    return {task: {f"m{i}": m for i, m in enumerate(draw(some))} for task in chosen}


@st.composite
def logs(draw, most=25):
    """A log with everything that the bindings read."""
    scores, flags = draws.scores("probability"), st.booleans()
    weights, words, groups = st.sampled_from([0.0, 1.0, 2.0, 0.3]), st.sampled_from("yn"), st.integers(0, 2)
    kinds = [flags, scores, flags, scores, flags, scores, weights, words, groups]
    drawn = draw(st.lists(st.tuples(*kinds), max_size=most))
    names = ("y_true", "y_score", "click", "pctr", "buy", "pcvr", "w", "word", "group")
    dtypes = ("u1", "f8", "u1", "f8", "u1", "f4", "f8", "U3", "i8")
    log = {n: np.array([r[i] for r in drawn], d) for i, (n, d) in enumerate(zip(names, dtypes, strict=True))}
    log["word"] = np.where(log["word"] == "y", "yes", "no")
    return log


def collection(chosen, **settings):
    return sm.MetricCollection({t: sm.Task(ms, **BINDINGS[t]) for t, ms in chosen.items()}, **settings)


@pytest.mark.slow
@draws.short(20)
@given(tasks(), logs(), st.integers(0, 2**32))
def test_every_law(chosen, log, seed):
    def make():
        return collection(chosen)

    read = {name: column for name, column in log.items() if name in columns_of(make()) or name == "sample_weight"}
    bad = {"y_true": 2, "y_score": np.nan, "click": 2, "pctr": np.inf, "w": -1.0}
    case = Case(make, read, np.random.default_rng(seed), {k: v for k, v in bad.items() if k in read})
    for law in OBJECT_LAWS:
        run(law, case)


@pytest.mark.slow
@draws.short(30)
@given(tasks(), logs())
def test_each_metric_is_what_it_is_alone(chosen, log):
    whole = collection(chosen).update(log)
    for task, metrics in chosen.items():
        for name, metric in metrics.items():
            alone = sm.MetricCollection(sm.Task({"m": metric}, **BINDINGS[task])).update(log)
            expect_same_bytes(alone["m"], whole[f"{task}/{name}"], f"{task}/{name} to equal it alone")
            if not BINDINGS[task]:
                expect_same_bytes(
                    empty_copy(metric).update(log), whole[f"{task}/{name}"], f"{name} to equal it without a task"
                )


@pytest.mark.slow
@draws.short(20)
@given(tasks(), logs(), st.data())
def test_bad_rows_are_dropped_by_task(chosen, log, data):
    """Each task drops for itself, so what is dropped in one is counted in another; splits do not matter."""
    n = len(log["y_true"])
    for name, value in {"y_true": 2, "pctr": np.nan, "w": -1.0, "buy": 3, "click": 2}.items():
        hit = np.array(data.draw(st.lists(st.booleans(), min_size=n, max_size=n)), bool)
        log[name] = log[name].astype("f8")
        log[name][hit & (np.arange(n) % 3 == 0)] = value
    whole = collection(chosen, on_invalid="drop").update(log)
    for task, metrics in chosen.items():
        for name, metric in metrics.items():
            alone = sm.MetricCollection(sm.Task({"m": metric}, **BINDINGS[task]), on_invalid="drop").update(log)
            expect_same_bytes(alone["m"], whole[f"{task}/{name}"], f"{task}/{name} to drop what it drops alone")
    splits(Case(lambda: collection(chosen, on_invalid="drop"), log, np.random.default_rng(n)))


@pytest.mark.slow
@draws.short(10)
@given(st.lists(st.sampled_from([-2.0, -1.0, 0.0, 0.25, 3.0]), min_size=1, max_size=4, unique=True), logs())
def test_read_outs_are_widened(cuts, log):
    with plugin.imported():
        whole = sm.MetricCollection([plugin.ShareAbove(cut=c) for c in cuts], plugin.Median(), plugin.Range())
        whole.update(log | {"sample_weight": log["w"]})
        assert [p["state"] for p in whole.plan()].count("plugin.cells") == 1
        for cut in cuts:
            alone = plugin.ShareAbove(cut=cut).update(log | {"sample_weight": log["w"]})
            expect_same_bytes(alone, whole[alone.name], "a widened state to hold what it holds alone")
        again = sm.from_bytes(whole.to_bytes())
        expect_same_bytes(whole, again, "widened states to be read again")


@pytest.mark.parametrize("first", families())
def test_each_metric_is_in_the_company_of_all_others_what_it_is_alone(first):
    """Every metric of the same columns in one collection: what a metric is counted beside changes nothing."""
    several = families()[first]

    @draws.short(3)
    @given(draws.cases(several[0]))
    def hold(case):
        columns = case.columns
        for metric in several:  # one may refuse what another takes, as popularities that are no shares
            columns = make_consistent(metric.make_state(), columns)
        whole = sm.MetricCollection({str(i): m for i, m in enumerate(several)}).update(columns)
        for i, metric in enumerate(several):
            expect_same_bytes(
                empty_copy(metric).update(columns),
                whole[str(i)],
                f"{metric!r} in a collection to equal the metric alone",
            )

    hold()
