"""Every law at every setting that a metric declares, at its choices and its extremes: no setting escapes (see `variants`).

The full level tries one variant of each class. The long form tries all:
``LAWS=2 pytest -m "" tests/laws/test_variants.py -n auto``.
"""

from __future__ import annotations

import itertools

import draws
import numpy as np
import pytest
import variants

import streammetrics as sm
from streammetrics.errors import MemoryLimitError
from streammetrics.laws import (
    LAWS,
    METRIC_LAWS,
    SHARD_LAWS,
    SLICE_LAWS,
    WINDOW_LAWS,
    example_case,
    metric_case,
    run,
    sample,
)
from streammetrics.laws.metrics import column_formats, label_dtypes, score_dtypes, table_formats
from streammetrics.laws.shards import without_each_shard
from streammetrics.laws.specimens import STYLES
from streammetrics.numerics.settings import Settings, encode_changed_settings, setting

HELD = (label_dtypes, score_dtypes, column_formats, table_formats)  # which are of columns, not of settings
QUICK = [law for law in [*METRIC_LAWS, without_each_shard] if law not in HELD]
OF_PARTS = [*SLICE_LAWS, *SHARD_LAWS, *WINDOW_LAWS]
EACH = pytest.mark.parametrize("cls", draws.OWN.values(), ids=lambda cls: cls.__name__)


@pytest.mark.slow
@EACH
def test_laws_hold_at_every_setting(cls):
    tried = [v for v in variants.variants(cls) if not isinstance(v.make(), Exception)]
    if draws.TIMES <= 1:
        tried = [min(tried, key=lambda v: v.chosen(1 << 32))]
    for variant in tried:
        check(variant, LAWS if draws.TIMES > 1 else QUICK)


def check(variant, laws):
    case = example_case(variant.make(), None, 7, variant.chosen(len(STYLES) - 1))
    for law in laws:
        if law in OF_PARTS and unsliced(case.metric.make_state()):
            continue
        try:
            run(law, case)
        except AssertionError as error:
            if not at_a_limit(error):  # which is there to be reached
                raise


@pytest.mark.slow
@EACH
def test_every_row_is_read_back_at_every_setting(cls):
    """Whatever a row alone makes, its reader takes: what it says that sums can be holds of each of them."""
    made = [v for v in variants.variants(cls) if not isinstance(v.make(), Exception)]
    states = {repr((type(s), encode_changed_settings(s))): v for v in made if not unsliced(s := v.make().make_state())}
    for variant, style in itertools.product(states.values(), ("plain", "saturated")[: 1 + (draws.TIMES > 1)]):
        metric, rng = variant.make(), np.random.default_rng(variant.chosen(1 << 32))
        columns = sample(metric.make_state().needs(), rng, 150, style, weighted=bool(rng.integers(2)))
        case = metric_case(metric, columns, rng)
        try:
            each = sm.Sliced(metric, by="row").update(case.columns | {"row": case.blocks})
        except MemoryLimitError:  # which is there to be reached
            continue
        assert sm.from_bytes(each.to_bytes()).digest() == each.digest(), (variant, style)


def unsliced(state):
    return bool(getattr(state, "sample_rows", 0) or getattr(state, "partition", None))  # one of all groups


def at_a_limit(error):
    return error is not None and (isinstance(error, MemoryLimitError) or at_a_limit(error.__cause__))


@pytest.mark.full_matrix
@EACH
def test_settings_that_do_not_go_together_are_refused_by_name(cls):
    for variant in variants.variants(cls):
        made = variant.make()
        if isinstance(made, Exception):
            assert str(made).startswith(cls.__name__), variant
            assert len(str(made)) > len(cls.__name__) + 10, variant
        else:
            assert made.make_state().tag


def test_a_setting_that_says_nothing_of_its_values_is_not_passed_over():
    class Unheard(Settings):
        whatever: str = setting(default="a")

    with pytest.raises(LookupError, match=r"Unheard\.whatever says nothing of what it may be"):
        variants.values(Unheard, "whatever")
