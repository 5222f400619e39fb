"""Which counter counts a statistic."""

from __future__ import annotations

from typing import Any

from .counter import Counter
from .group_rows import GroupCounter
from .index import Index
from .key_sample import KeyCounter
from .pairs import PairCounter
from .sorted_groups import SortedCounter
from .values import ValueCounter

__all__ = ["counter_of"]

COUNTERS: dict[str, type[Counter]] = {
    "cells": Counter,
    "groups": GroupCounter,
    "key_sample": KeyCounter,
    "pairs": PairCounter,
    "sorted_groups": SortedCounter,
    "values": ValueCounter,
}


def counter_of(state: Any, index: Index) -> Counter:
    """Return what goes on counting from a state."""
    return COUNTERS[getattr(type(state), "counter", "cells")](state, index)
