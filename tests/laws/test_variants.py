"""Every law at every setting that a metric declares, at its choices and its extremes: no setting escapes (see `variants`).

The normal run tries one variant of each class; the long form all: ``LAWS=2 pytest tests/laws/test_variants.py -n auto``.
"""

from __future__ import annotations

import draws
import pytest
import variants

from streammetrics.errors import MemoryLimitError
from streammetrics.laws import LAWS, METRIC_LAWS, example_case, run
from streammetrics.laws.metrics import column_formats, label_dtypes, score_dtypes, table_formats
from streammetrics.laws.shards import without_each_shard
from streammetrics.laws.specimens import STYLES
from streammetrics.numerics.settings import Settings, setting

HELD = (label_dtypes, score_dtypes, column_formats, table_formats)  # which are of columns, not of settings
QUICK = [law for law in [*METRIC_LAWS, without_each_shard] if law not in HELD]
EACH = pytest.mark.parametrize("cls", draws.OWN.values(), ids=lambda cls: cls.__name__)


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
        try:
            run(law, case)
        except AssertionError as error:
            if not at_a_limit(error):  # which is there to be reached
                raise


def at_a_limit(error):
    return error is not None and (isinstance(error, MemoryLimitError) or at_a_limit(error.__cause__))


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
