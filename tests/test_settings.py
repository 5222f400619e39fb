"""Settings: what a class declares has to be what its checks would make of it."""

from dataclasses import MISSING

import pytest

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
