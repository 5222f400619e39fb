"""Test levels: the fast level is the default, the full level runs everything.

========================  =============================================================================================
``pytest``                The fast level: tests without the mark ``slow``, and a sample of each large matrix.
``pytest -m ""``          The full level: every test. Tests that are not marked slow must be quick (see below).
``pytest -m slow``        The tests that the fast level leaves out; with ``--sixth K`` (0 to 5), one sixth of them.
========================  =============================================================================================

A *matrix* is a test function with more than `LARGE` parametrised cases. The fast level runs about one case in
`ONE_IN` of it, and at least one for each metric that the function is parametrised over. The case's ID decides, so the
sample is the same in every run and on every machine. A function with the mark ``full_matrix`` runs all cases
at the fast level: the laws, the frozen values and whatever else no metric may escape.

A run that includes slow tests fails each test that takes more than ``--cpu-limit`` seconds of CPU time and is not
marked slow. The few tests that take longer and that the fast level needs have the mark ``cpu_limit`` with their own limit.
"""

from __future__ import annotations

import gc
import os
import sys
import zlib
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import pytest

LARGE = 16
ONE_IN = 8
SIXTHS = 6
OUTSIDE_SAMPLE = pytest.mark.slow("outside the sample")


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("levels", "test levels")
    group.addoption(
        "--sixth",
        type=int,
        choices=range(SIXTHS),
        help="of the slow tests, run only this sixth, chosen by a hash of the ID",
    )
    group.addoption(
        "--cpu-limit",
        type=float,
        default=1.0,
        metavar="SECONDS",
        help="CPU time that a test may take without the mark slow, in runs that include slow tests (0: no limit)",
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "slow: left out of the fast level (see tests/levels.py)")
    config.addinivalue_line("markers", "cpu_limit(seconds): a higher limit, for a test that the fast level needs")
    config.addinivalue_line("markers", "full_matrix: every case runs at the fast level (see tests/levels.py)")


# -- the sample ----------------------------------------------------------------------------------------------------------


@pytest.hookimpl(tryfirst=True)  # before pytest reads -m, which decides by the marks that are added here
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    matrices = defaultdict(list)
    for item in items:
        decided = item.get_closest_marker("full_matrix") or item.get_closest_marker("slow")
        if hasattr(item, "callspec") and not decided:
            matrices[item.nodeid.partition("[")[0]].append(item)
    named = {*config.args}  # a case that the user names in full runs
    for cases in matrices.values():
        if len(cases) > LARGE:
            for case in outside_sample(cases):
                if case.nodeid not in named:
                    case.add_marker(OUTSIDE_SAMPLE)
    sixth = config.getoption("sixth")
    if sixth is not None:
        deselect(config, items, sixth)


def outside_sample(cases: list[pytest.Item]) -> list[pytest.Item]:
    """Return the cases of a matrix that the fast level leaves out."""
    by_metric = defaultdict(list)
    for case in cases:
        by_metric[metric_of(case.callspec.params)].append(case)  # type: ignore[attr-defined]
    kept: set[str] = set()
    for group in by_metric.values():
        chosen = [case for case in group if number_of(case) % ONE_IN == 0]
        kept |= {case.nodeid for case in chosen or [min(group, key=number_of)]}
    return [case for case in cases if case.nodeid not in kept]


def metric_of(params: dict[str, Any]) -> str | None:
    """Return the tag of the metric that a case is about, if it is about one."""
    from streammetrics.extend import METRICS, Metric

    for value in params.values():
        if isinstance(value, Metric) or (isinstance(value, type) and issubclass(value, Metric)):
            return value.about.tag
        if isinstance(value, str) and value in METRICS:
            return value
    return None


def number_of(item: pytest.Item) -> int:
    """Return a number that an ID has in every run and on every machine."""
    return zlib.crc32(item.nodeid.encode())


def deselect(config: pytest.Config, items: list[pytest.Item], sixth: int) -> None:
    """Keep, of the slow tests, one sixth."""
    others = {i for i in items if i.get_closest_marker("slow") and number_of(i) % SIXTHS != sixth}
    items[:] = [i for i in items if i not in others]
    config.hook.pytest_deselected(items=[*others])


# -- the limit of CPU time -----------------------------------------------------------------------------------------------


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    limit = item.config.getoption("cpu_limit")
    if limit and (own := item.get_closest_marker("cpu_limit")):
        limit = max(limit, own.args[0])
    marked = any(mark != OUTSIDE_SAMPLE.mark for mark in item.iter_markers("slow"))
    unlimited = not limit or marked or item.config.getoption("markexpr") == "not slow"
    before, compiled = cpu_seconds(), compilations()
    result = yield
    used = cpu_seconds() - before
    if used > limit and not unlimited and compilations() == compiled:
        pytest.fail(
            f"{item.nodeid} took {used:.2f} s of CPU time; the limit is {limit:g} s. "
            "Make it cheaper, or mark it with @pytest.mark.slow.",
            pytrace=False,
        )
    return result


def cpu_seconds() -> float:
    """Return the CPU time of this process and of the child processes that it has waited for."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def compilations() -> int:
    """Return how many kernels this process has compiled so far."""
    count = sys.modules.get("streammetrics.count.engine")
    return count.count_compilations() if count else 0


def pytest_collection_finish() -> None:
    # The tests live as long as the process. Without this, each full garbage collection looks at all of them, which takes
    # up to a second of CPU time in whichever test it happens.
    gc.collect()
    gc.freeze()


# -- nothing is counted while tests are collected ------------------------------------------------------------------------


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Iterator[pytest.CollectReport]:
    before = loaded_kernels()
    report = yield
    if isinstance(collector, pytest.Module) and loaded_kernels() > before:
        report.outcome = "failed"
        report.longrepr = (
            f"{collector.nodeid} counts rows while it is imported, which compiles kernels before any test runs: "
            "count them in a fixture or in the test."
        )
    return report


def loaded_kernels() -> int:
    """Return how many kernels this process has compiled or read from the cache."""
    count = sys.modules.get("streammetrics.count.engine")
    return sum(len(k.dispatcher.overloads) for k in count.KERNELS) if count else 0
