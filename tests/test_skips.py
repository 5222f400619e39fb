"""The option `--no-new-skips` fails a run that skips a test for a reason that is not allowed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ALLOWED = {
    "test_one.py": """
import pytest

def test_passes(): pass

@pytest.mark.xfail(reason="a known defect")
def test_fails(): raise AssertionError

def test_skips(): pytest.skip("there is no GPU")
""",
    "test_module.py": "import pytest; pytest.importorskip('pytrec_eval')",
}
REFUSED = {
    **ALLOWED,
    "test_two.py": "import pytest\ndef test_skips(): pytest.skip('there is no GPU today')",
    "test_package.py": "import pytest; pytest.importorskip('a_package_that_nobody_has')",
}


def run_pytest(folder: Path, files: dict[str, str], *options: str) -> subprocess.CompletedProcess[str]:
    for name, source in {"pytest.ini": "[pytest]", **files}.items():
        (folder / name).write_text(source)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")])}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "skips", "-p", "no:cacheprovider", *options]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)


@pytest.mark.cpu_limit(5)
def test_allowed_reasons_pass(tmp_path: Path) -> None:
    ran = run_pytest(tmp_path, ALLOWED, "--no-new-skips")
    assert ran.returncode == 0, ran.stdout
    assert "not allowed" not in ran.stdout


@pytest.mark.cpu_limit(5)
@pytest.mark.parametrize("workers", [(), ("-n", "1")], ids=["one process", "workers"])
def test_other_reasons_fail_and_are_named(tmp_path: Path, workers: tuple[str, ...]) -> None:
    ran = run_pytest(tmp_path, REFUSED, "--no-new-skips", *workers)
    assert ran.returncode == 1, ran.stdout
    refused = ran.stdout.partition("skips that are not allowed")[2]
    assert "test_two.py::test_skips: there is no GPU today\n" in refused
    assert "test_package.py: could not import 'a_package_that_nobody_has'" in refused
    assert "pytrec_eval" not in refused
    assert "known" not in refused


@pytest.mark.cpu_limit(5)
def test_without_the_option_every_reason_passes(tmp_path: Path) -> None:
    assert run_pytest(tmp_path, REFUSED).returncode == 0
