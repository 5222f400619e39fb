"""The benchmark of the dashboard runs, in small: `python -m benchmarks.serve` is the long form, with its limits.

With SERVE=full the limits of latency and memory hold here, too; they ask for a machine of one's own.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks import report, serve


@pytest.mark.slow
def test_all_that_is_posted_is_stored_and_every_page_hears_of_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    full = os.environ.get("SERVE") == "full"
    found = serve.under_load(60.0 if full else 2.0, str(tmp_path), serve.POSTS if full else 10)
    serve.report(found)
    said = capsys.readouterr().out
    assert found.refused == 0
    assert len(found.latencies) == (12_000 if full else 20)
    assert min(found.looks) >= 1
    for line in said.splitlines():
        if line.startswith(("posts stored", "news of each")):
            assert line.endswith("PASS")
    if full:
        assert not report.failures()
    report.failures().clear()


@pytest.mark.slow
@pytest.mark.parametrize("servers", [1, 2])
def test_many_experiments(
    servers: int, request: pytest.FixtureRequest, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    url = f"{tmp_path}/many.db" if servers == 1 else request.getfixturevalue("postgres").fresh()
    found = serve.many_experiments(url, servers, experiments=4, idle_seconds=1.0)
    serve.report_many(found, 4)
    said = capsys.readouterr().out
    assert found.twice == 0
    assert len(found.shares) == servers
    assert f"4 experiments on {servers} server" in said
    report.failures().clear()


@pytest.mark.slow
def test_the_first_page_is_there_before_anything_is_read(tmp_path: Path) -> None:
    cold, warm = serve.first_pages(str(tmp_path), replace(serve.LARGE, days=1, rows=200, countries=2))
    assert cold < 20  # the limits are those of the benchmark: here it is that there is a page
    assert warm < 20
