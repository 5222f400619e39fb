"""The choice of the `Counter` subclass that counts the rows of a state."""

from __future__ import annotations

from typing import Any

from .counter import Counter
from .folding import FoldingCounter
from .group_rows import GroupCounter
from .index import Index
from .key_sample import KeyCounter
from .pairs import PairCounter
from .sorted_groups import SortedCounter
from .values import ValueCounter

__all__ = ["make_counter"]

COUNTERS: dict[str, type[Counter]] = {
    "cells": FoldingCounter,
    "groups": GroupCounter,
    "key_sample": KeyCounter,
    "pairs": PairCounter,
    "sorted_groups": SortedCounter,
    "values": ValueCounter,
}


def make_counter(state: Any, index: Index) -> Counter:
    """Return a new counter that starts with the rows of a state."""
    return COUNTERS[getattr(type(state), "counter", "cells")](state, index)
