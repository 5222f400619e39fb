"""The fast level leaves out what it may and nothing else, and the full level finds slow tests that have no mark."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import draws
import levels
import pytest

import streammetrics as sm

TESTS = Path(__file__).parent
COMPARED_ALONE = {
    "fleiss_kappa": "tests/metrics/test_decisions.py::test_every_pair_of_raters",
    "group_auc": "tests/metrics/test_groups.py::test_every_group_by_scikit_learn",
    "group_log_loss": "tests/metrics/test_group_losses.py::test_every_group_by_scikit_learn",
    "group_calibration_error": "tests/metrics/test_group_losses.py::test_every_group_by_scikit_learn",
}
"""Metrics whose oracle has a test function of its own; the IDs of all other tests with oracles hold the tag."""

LAWS = ("tests/laws/test_metrics.py::test_every_law_of_metrics",)

BREAKS_A_LAW = """
import plugin
import streammetrics as sm

plugin.Weightless.__module__ = "streammetrics.metrics.new"
sm.extend.METRICS[plugin.Weightless.about.tag] = plugin.Weightless
"""
"""A pytest plugin that adds a metric to the package: it has no oracle, and ignores weights where it should not."""


def run_pytest(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run pytest on these tests in a process of its own."""
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *arguments]
    return subprocess.run(
        command, cwd=TESTS.parent, env=os.environ | environment, capture_output=True, text=True, timeout=600
    )


# -- the sample ------------------------------------------------------------------------------------------------------


def cases(params: list[dict[str, Any]]) -> list[Any]:
    """Return stand-ins for the cases of one test function."""
    return [SimpleNamespace(nodeid=f"test_it[{i}]", callspec=SimpleNamespace(params=p)) for i, p in enumerate(params)]


def test_about_one_case_in_eight_is_in_the_sample() -> None:
    made = cases([{"seed": seed} for seed in range(4000)])
    kept = len(made) - len(levels.outside_sample(made))
    assert 400 < kept < 600


@pytest.mark.parametrize(
    "of", [lambda tag: tag, lambda tag: sm.extend.METRICS[tag], draws.usual], ids=["tag", "class", "object"]
)
def test_every_metric_has_a_case_in_the_sample(of: Any) -> None:
    made = cases([{"log": log, "metric": of(tag)} for tag in draws.OWN for log in range(9)])
    outside = {case.nodeid for case in levels.outside_sample(made)}
    kept = Counter(levels.metric_of(case.callspec.params) for case in made if case.nodeid not in outside)
    assert kept.keys() == draws.OWN.keys()


def test_the_sample_is_stable() -> None:
    """The sample must be the same on every machine, as `.ci/run` relies on it."""
    assert levels.number_of(SimpleNamespace(nodeid="tests/test_levels.py::test_it[1]")) == 1086825165  # type: ignore[arg-type]


def test_a_small_matrix_and_a_full_matrix_run_all_cases(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
        import pytest

        @pytest.mark.parametrize("seed", range(16))
        def test_small(seed): ...

        @pytest.mark.parametrize("seed", range(40))
        def test_large(seed): ...

        @pytest.mark.full_matrix
        @pytest.mark.parametrize("seed", range(40))
        def test_full(seed): ...
    """)
    ran = Counter(re.findall(r"::(test_\w+)\[", nested(pytester, "--collect-only", "-m", "not slow")))
    assert (ran["test_small"], ran["test_full"]) == (16, 40)
    assert 1 <= ran["test_large"] <= 12
    named = "test_a_small_matrix_and_a_full_matrix_run_all_cases.py::test_large[7]"
    assert "1 test collected" in nested(pytester, "--collect-only", "-m", "not slow", named)


def test_six_sixths_are_all_slow_tests(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
        import pytest

        @pytest.mark.slow
        @pytest.mark.parametrize("seed", range(30))
        def test_it(seed): ...
    """)
    sixths = [nested(pytester, "--collect-only", "-m", "slow", "--sixth", str(k)) for k in range(6)]
    assert sorted(s for out in sixths for s in re.findall(r"\[(\d+)\]", out)) == sorted(map(str, range(30)))


def nested(pytester: pytest.Pytester, *arguments: str) -> str:
    """Return what pytest prints of the tests that a test has written, in this process."""
    return pytester.runpytest_inprocess("-q", "-p", "levels", "-p", "no:xdist", *arguments).stdout.str()


# -- the limit of CPU time -------------------------------------------------------------------------------------------

BUSY = """
    import time, pytest

    def busy():
        begin = time.process_time()
        while time.process_time() - begin < 0.1:
            pass

    def test_busy():
        busy()

    @pytest.mark.slow
    def test_busy_and_marked():
        busy()

    def test_quick(): ...
"""


def test_a_slow_test_without_the_mark_fails_the_full_run_and_is_named(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_it=BUSY)
    out = nested(pytester, "-m", "", "--cpu-limit", "0.05")
    assert "1 failed, 2 passed" in out
    assert re.search(r"test_it\.py::test_busy took 0\.\d\d s of CPU time; the limit is 0\.05 s", out)
    assert "2 passed, 1 deselected" in nested(pytester, "-m", "not slow", "--cpu-limit", "0.05")


def test_a_test_that_compiles_a_kernel_may_take_longer(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts = iter(range(100))
    monkeypatch.setattr(levels, "compilations", lambda: next(counts))
    pytester.makepyfile(test_it=BUSY)
    assert "3 passed" in nested(pytester, "-m", "", "--cpu-limit", "0.05")


# -- the whole collection --------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("kernels")


@pytest.fixture(scope="module")
def collected(cache: Path) -> list[str]:
    """Return the IDs of the tests of the fast level, collected with an empty kernel cache."""
    done = run_pytest("--collect-only", "-q", NUMBA_CACHE_DIR=str(cache))
    assert done.returncode == 0, done.stdout[-4000:]
    return [line for line in done.stdout.splitlines() if "::" in line]


@pytest.mark.slow
def test_no_kernel_is_compiled_while_tests_are_collected(collected: list[str], cache: Path) -> None:
    assert len(collected) > 1000
    compiled = [path.name for path in cache.rglob("*") if path.suffix == ".kernel"]
    assert compiled == []


@pytest.mark.slow
def test_every_metric_is_compared_with_its_oracle_at_the_fast_level(collected: list[str]) -> None:
    files = {f"tests/metrics/{p.name}" for p in TESTS.glob("metrics/test_*.py") if "oracles" in p.read_text()}
    cases = [name for name in collected if name.partition("::")[0] in files]
    words = {word for name in cases for word in re.split(r"[\[\]-]", name)[1:]}
    alone = {tag for tag, test in COMPARED_ALONE.items() if any(name.startswith(test) for name in cases)}
    assert {*draws.OWN} - words - alone == set()


@pytest.mark.slow
def test_every_law_is_tried_on_every_metric_at_the_fast_level(collected: list[str]) -> None:
    tried = {name for name in collected if name.startswith(tuple(f"{law}[" for law in LAWS))}
    assert tried == {f"{LAWS[0]}[{metric!r}]" for metric in draws.VARIANTS}


@pytest.mark.slow
def test_a_new_metric_that_breaks_a_law_or_has_no_oracle_fails_the_fast_level(tmp_path: Path) -> None:
    (tmp_path / "new_metric.py").write_text(BREAKS_A_LAW)
    done = run_pytest(
        *("-q", "-p", "new_metric", "-k", "Weightless or has_an_oracle"),
        *("tests/laws/test_metrics.py", "tests/metrics/test_oracles.py"),
        PYTHONPATH=os.pathsep.join([str(tmp_path), str(TESTS), *sys.path]),
    )
    failed = set(re.findall(r"^FAILED (\S+)", done.stdout, re.M))
    assert "tests/laws/test_metrics.py::test_every_law_of_metrics[Weightless()]" in failed, done.stdout[-4000:]
    assert "tests/metrics/test_oracles.py::test_every_metric_has_an_oracle" in failed


def test_a_file_that_counts_rows_while_it_is_imported_is_an_error(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytester.makepyfile("def test_it(): ...")
    assert "1 passed" in nested(pytester)
    counts = iter(range(100))
    monkeypatch.setattr(levels, "loaded_kernels", lambda: next(counts))
    assert "counts rows while it is imported" in nested(pytester)
