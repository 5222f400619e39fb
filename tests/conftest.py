from __future__ import annotations

import shutil
from collections.abc import Iterator
from typing import Any

import pytest

pytest_plugins = ("levels", "pytester", "skips")

BROWSER = next(filter(None, map(shutil.which, ("chromium-headless-shell", "chromium", "google-chrome"))), None)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """A browser without a window."""
    if BROWSER is None:
        pytest.skip("Chromium is not installed: apt-get install chromium-headless-shell")
    api = pytest.importorskip("playwright.sync_api")
    with api.sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"])
        yield running
        running.close()


LONG = {"test_golden_bits.py", "test_assembly.py", "test_checkpoint.py"}
"""Files with a test of 15 seconds or more, which only the full level runs."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the longest tests. Otherwise one worker still runs them when the others are done."""
    items.sort(key=lambda item: item.path.name not in LONG and "test_mutants" not in item.name)
