"""Every law on every registered metric, at several settings.

The fast level tries them on one set of made-up rows, the full level on rows that hypothesis draws as well. For the long
form see `draws`: ``LAWS=100 pytest -m "" tests/laws -n auto``.
"""

from __future__ import annotations

import itertools
import zlib

import draws
import pytest
from hypothesis import given

import streammetrics as sm
from streammetrics.batch.kinds import Score
from streammetrics.batch.numbers import Number
from streammetrics.laws import LAWS, METRIC_LAWS, OBJECT_LAWS, SHARD_LAWS, SLICE_LAWS, WINDOW_LAWS, example_case, run
from streammetrics.laws.case import Law
from streammetrics.laws.metrics import (
    coarsening,
    column_formats,
    dropped_rows,
    in_collection,
    integer_weights,
    label_dtypes,
    score_dtypes,
    table_formats,
    weight_of_zero,
)
from streammetrics.laws.objects import absent_class, failed_update_changes_nothing
from streammetrics.laws.shards import without_each_shard
from streammetrics.laws.specimens import STYLES

OF_COLUMNS: list[Law] = [column_formats, table_formats]
OF_STATISTICS: dict[str, list[Law]] = {
    "dtypes and company": [label_dtypes, score_dtypes, in_collection],
    "objects": OBJECT_LAWS,
    "slices": SLICE_LAWS,
    "windows": WINDOW_LAWS,
    "shards": [law for law in SHARD_LAWS if law is not without_each_shard],  # which is about every formula
}
"""Laws of how rows are counted, split and merged: metrics that read the same statistic keep or break them alike."""

ELSEWHERE = [*OF_COLUMNS, *itertools.chain(*OF_STATISTICS.values())]
OF_METRICS = [law for law in LAWS if law not in ELSEWHERE]
MANY_ROWS = STYLES[:4]  # the others have few rows or none, which tell little of a formula


def first_of(key, metrics):
    """Return the first of some metrics for each value of a key."""
    found = {}
    for metric in metrics:
        found.setdefault(key(metric.make_state()), metric)
    return list(found.values())


OF_EACH_SET_OF_COLUMNS = first_of(lambda state: frozenset((n.role, n.kind) for n in state.needs()), draws.VARIANTS)
OF_EACH_STATE = first_of(lambda state: state.tag, draws.FIRST)
OTHERS = [metric for metric in draws.FIRST if not any(metric is first for first in OF_EACH_STATE)]


def made_up_case(metric):
    """Rows of a style that depends on the metric and its settings, so that variants of a metric see several styles."""
    number = zlib.crc32(repr(metric).encode())
    return example_case(metric, None, 7, number % len(MANY_ROWS))


def check(laws, metric):
    case = made_up_case(metric)
    for law in laws:
        run(law, case)


@pytest.mark.full_matrix
@pytest.mark.cpu_limit(3)  # a fitted slope is fitted again without each shard
@pytest.mark.parametrize("metric", draws.VARIANTS, ids=repr)
def test_every_law_of_metrics(metric):
    check(OF_METRICS, metric)


@pytest.mark.full_matrix
@pytest.mark.parametrize("metric", OF_EACH_SET_OF_COLUMNS, ids=repr)
def test_every_law_of_columns(metric):
    check(OF_COLUMNS, metric)


@pytest.mark.full_matrix
@pytest.mark.parametrize("metric", OF_EACH_STATE, ids=repr)
@pytest.mark.parametrize("kind", OF_STATISTICS)
def test_every_law_of_states(kind, metric):
    check(OF_STATISTICS[kind], metric)


@pytest.mark.slow
@pytest.mark.parametrize("metric", OTHERS, ids=repr)
def test_every_law_of_states_at_other_settings(metric):
    check(itertools.chain(*OF_STATISTICS.values()), metric)


@pytest.mark.slow
@pytest.mark.parametrize("metric", draws.VARIANTS, ids=repr)
def test_every_law_on_rows_that_hypothesis_draws(metric):
    first = any(metric is one for one in draws.FIRST)

    @draws.short(2)  # the first has no rows
    @given(draws.cases(metric))
    def hold(case):
        for law in LAWS if first else [*OF_METRICS, *OF_COLUMNS]:
            run(law, case)

    hold()


def test_every_statistic_keeps_every_law():
    kinds = {draws.kind_of(metric.make_state()) for metric in draws.VARIANTS}
    assert len(draws.FIRST) >= len(kinds) > 100
    assert {*METRIC_LAWS, *OBJECT_LAWS, *SLICE_LAWS, *WINDOW_LAWS, *SHARD_LAWS} < {*OF_METRICS, *ELSEWHERE}
    assert {metric.make_state().tag for metric in draws.VARIANTS} == {m.make_state().tag for m in OF_EACH_STATE}
    assert {*STYLES} - {*MANY_ROWS} == {"few", "empty", "far"}


@pytest.mark.full_matrix
@pytest.mark.parametrize("cls", draws.OWN.values(), ids=lambda cls: cls.__name__)
def test_settings_with_defaults_are_tried(cls):
    assert any(type(metric) is cls for metric in draws.VARIANTS)
    assert isinstance(draws.usual(cls.about.tag).name, str)


def test_soft_labels_are_tried():
    soft = {type(metric) for metric in draws.VARIANTS if metric.settings.get("soft_labels")}
    assert soft == {cls for cls in draws.OWN.values() if takes_soft_labels(cls)}


def takes_soft_labels(cls):
    """Whether a metric has the setting, and a value of soft labels."""
    try:
        return bool(cls(soft_labels=True).soft_labels)
    except (TypeError, ValueError):
        return False


@pytest.mark.slow
@pytest.mark.parametrize("metric", [sm.AUC(), sm.AveragePrecision(scale="real")], ids=repr)
def test_every_law_at_the_usual_resolution(metric):
    sm.extend.check_metric(metric, seed=1, examples=draws.tries(2))


@pytest.mark.slow
def test_rows_that_check_metric_makes_up_weigh_their_labels():
    sm.extend.check_metric(sm.Accuracy(num_labels=3), examples=2)


@pytest.mark.parametrize(
    "settings", [{"limit": 3}, {"limit": 20, "bits": 12, "scale": "real"}, {"limit": 5, "num_labels": 2}]
)
def test_laws_hold_where_few_rows_are_kept_exactly(settings):
    for example in (0, 2, 4, STYLES.index("far")):
        for law in (coarsening, absent_class):
            for seed in (0, 2):
                run(law, example_case(sm.AUC(**settings), None, seed, example))


@pytest.mark.parametrize("settings", [{"on_invalid": "drop"}, {"num_labels": 1}])
def test_laws_hold_where_bad_rows_are_dropped_and_of_one_label(settings):
    for law in (failed_update_changes_nothing, table_formats, column_formats):
        run(law, example_case(sm.F1(**settings), None, 0, 1))


def test_rows_of_weight_0_may_be_too_many_to_be_kept_exactly():
    for seed in range(12):
        run(weight_of_zero, example_case(sm.ROCCurve(limit=1), None, seed, 4))


def test_laws_hold_of_means_of_small_probabilities_and_without_keys_that_stand_for_none():
    for seed in range(3):
        run(integer_weights, example_case(sm.CalibrationCurve(), None, seed, 2))
        run(integer_weights, example_case(sm.HosmerLemeshow(strategy="uniform", scale="logit"), None, seed, 2))
        run(integer_weights, example_case(sm.SessionRecallAtK(missing_values=(0,)), None, seed, 2))


def test_laws_hold_where_a_class_is_below_0():
    run(dropped_rows, example_case(sm.F1(labels=(7, -1, 3)), None, 7, 1))


def test_laws_hold_where_rows_count_as_they_come():
    for law in METRIC_LAWS:
        run(law, example_case(sm.WMAE(divisor="rows"), None, 0, 1))
    heavy = sm.WMAE(divisor="rows").update([0, 0], [1, 1], sample_weight=[4, 0])
    assert heavy.compute() == 2.0  # in four rows of one, 1


def test_laws_have_a_line_that_says_what_they_demand():
    assert len({law.__name__ for law in LAWS}) == len(LAWS) > 30
    assert all(law.__doc__ and len(law.__doc__.splitlines()) == 1 for law in LAWS)


def takes_any_number(kind):
    kind = getattr(kind, "kind", kind)
    return isinstance(kind, Number) or (isinstance(kind, Score) and kind.scale != "probability")


FEW_EXACT = [sm.AUC(scale="real", limit=5, bits=10), sm.AUC(scale="real", limit=20, bits=16)]
NUMBERS = [m for m in draws.VARIANTS if any(takes_any_number(n.kind) for n in m.make_state().needs())] + FEW_EXACT


@pytest.mark.full_matrix
@pytest.mark.parametrize("metric", NUMBERS, ids=repr)
def test_every_law_of_metrics_far_from_zero(metric):
    case = example_case(metric, None, 7, STYLES.index("far"))
    for law in OF_METRICS:
        run(law, case)


@pytest.mark.parametrize("style", ["far", "plain", "ties"])
@pytest.mark.parametrize("metric", FEW_EXACT, ids=repr)
def test_every_law_of_real_scores_that_few_buckets_hold(metric, style):
    case = example_case(metric, None, 3, STYLES.index(style))
    for law in [*OBJECT_LAWS, *SLICE_LAWS, *WINDOW_LAWS]:
        run(law, case)
