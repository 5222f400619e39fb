"""Metrics are many, and small; states are few. `python tests/test_counts.py` prints the figures."""

from __future__ import annotations

import functools
import inspect
from statistics import mean, median

import pytest

import streammetrics as sm

AIM = 40
"""Lines of a metric with its docstring: half of them have fewer, and their mean is hardly more."""

BEFORE = {
    "added", "class_counts", "class_rows", "decisions", "distinct", "extremes", "found_pairs", "group_rows",
    "group_sums", "key_sample", "label_bins", "label_decisions", "label_rows", "label_scores", "label_soft_sums",
    "label_sums", "moments", "ranking_sums", "regression_sums", "score_bins", "score_sums", "scores",
    "sealed_groups", "soft_sums", "sorted_groups", "top_bins", "top_scores", "unit_sums", "value_buckets",
}  # fmt: skip
"""The states that there were when 89 metrics read them: each new one has to serve many."""
NEW = 10
"""Eight were aimed at. Two of these are another with a column more: `listed_keys` is `key_counts` of the first k of each
list, `uplift_scores` is `label_scores` with a treatment."""


def metrics() -> list[type]:
    return [metric for metric in sm.extend.METRICS.values() if metric.__module__.startswith("streammetrics.")]


def states() -> set[str]:
    return {tag for tag, state in sm.extend.State.by_tag.items() if state.__module__.startswith("streammetrics.")}


@functools.cache
def lengths() -> dict[str, int]:
    return {metric.__name__: len(inspect.getsource(metric).splitlines()) for metric in metrics()}


def said() -> str:
    """What there is, in words."""
    found, new = lengths(), sorted(states() - BEFORE)
    worst = ", ".join(f"{name} {found[name]}" for name in sorted(found, key=lambda name: -found[name])[:12])
    return (
        f"{len(found)} metrics read {len(states())} states, of which {len(new)} are new: {', '.join(new) or 'none'}\n"
        f"lines of a metric: median {median(found.values()):g}, mean {mean(found.values()):.1f}; the longest: {worst}"
    )


def test_states_are_few() -> None:
    assert states() >= BEFORE
    assert len(states() - BEFORE) <= NEW, (
        f"{said()}\nadd a term to a state that exists, or say in the commit why a new state is needed, and raise NEW"
    )


@pytest.mark.cpu_limit(2.0)
def test_metrics_are_small() -> None:
    assert median(lengths().values()) <= AIM, said()
    assert mean(lengths().values()) <= AIM + 3, said()


if __name__ == "__main__":
    print(said())
