"""What only a process of its own can show: signals, terminals, what is imported, what is not installed."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
import time

import pytest

import streammetrics as sm

BASE = ("--label", "click", "--score", "pctr_b", "--metrics", "auc,log_loss")

SLOW = """
import os, signal, sys, time
signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job of a shell starts with SIGINT ignored
from streammetrics.io.parts import LogPart
quick = LogPart.batches
def batches(part):
    for batch in quick(part):
        os.write(2, b"batch\\n")  # no lock of a stream, which the end of the process would find taken
        time.sleep(1.5)  # long enough for the signal to arrive on a busy machine
        yield batch
LogPart.batches = batches
from streammetrics.cli import main
main()
"""

LIGHT = """
import sys
from streammetrics.cli import main
try:
    main(sys.argv[1:])
except SystemExit as stop:
    assert not stop.code, stop.code
assert "numba" not in sys.modules
assert "pyarrow" not in sys.modules
"""

WITHOUT = """
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "{}":
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Absent())
from streammetrics.cli import main
main(sys.argv[1:])
"""


@pytest.mark.slow
def test_an_interrupt_stops_quickly_and_leaves_nothing(log, tmp_path):
    saved = tmp_path / "x.smet"
    command = [sys.executable, "-c", SLOW, "eval", str(log), *BASE, "--save", str(saved), "--threads", "2"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        assert [process.stderr.readline() for _ in range(3)] == ["batch\n"] * 3  # compiled, and under way
        began = time.monotonic()
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=20)
        took = time.monotonic() - began
    assert process.returncode == 130, err[-3000:]
    assert took < 15  # a kernel that is being compiled is waited for
    assert out == ""
    assert "Traceback" not in err
    assert err.endswith("streammetrics: interrupted\n")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@pytest.mark.parametrize("command", ["--version", "show", "merge", "catalog", "one"])
def test_what_only_reads_loads_no_numba(in_process, log, tmp_path, command):
    arms = sm.Sliced([sm.AUC(), sm.LogLoss()], by="key").update([0, 1], [0.1, 0.9], key=["a", "b"])
    sm.save(sm.Bundle({"overall": arms.total, "by key": arms}), tmp_path / "x")
    sm.save(arms, tmp_path / "y")
    arguments = {
        "show": ("show", tmp_path / "x"),
        "merge": ("merge", tmp_path / "y", "-o", tmp_path / "z"),
        "one": ("catalog", "auc"),
    }
    ran = in_process(LIGHT, *arguments.get(command, (command,)))
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout


@pytest.mark.slow
@pytest.mark.parametrize("package", ["typer", "pyarrow"])
def test_a_missing_extra_says_what_to_install(in_process, log, package):
    ran = in_process(WITHOUT.format(package), "eval", log, *BASE)
    assert ran.returncode == 2
    assert ran.stderr == f"streammetrics: the command line needs {package}: pip install 'streammetrics[cli]'\n"


@pytest.mark.slow
def test_module_and_console_script_are_one(in_process):
    ran = subprocess.run(
        [sys.executable, "-m", "streammetrics", "--version"], capture_output=True, text=True, check=True
    )
    assert ran.stdout == f"streammetrics {sm.__version__}\n"


@pytest.mark.slow
def test_head_may_close_the_pipe(log):
    command = (
        f"{sys.executable} -m streammetrics eval {log} {' '.join(BASE)} --by item_id --bits 8 --format csv | head -1"
    )
    ran = subprocess.run(["bash", "-c", command], capture_output=True, text=True)
    assert ran.stdout.startswith("model,slice,metric,value")
    assert ran.stderr == ""


@pytest.mark.slow
def test_a_terminal_gets_colours_and_a_bar_that_goes_away(log):
    parent, child = pty.openpty()
    command = [
        sys.executable,
        "-c",
        SLOW,
        "eval",
        str(log),
        *BASE,
        "--score",
        "pctr_a",
        "--by",
        "variant",
        "--threads",
        "1",
    ]
    environment = {**os.environ, "COLUMNS": "80", "TERM": "xterm-256color"}
    process = subprocess.Popen(command, stdout=child, stderr=child, stdin=child, env=environment)
    os.close(child)
    seen = b""
    try:
        while chunk := os.read(parent, 1 << 16):
            seen += chunk
    except OSError:  # how a terminal ends on Linux
        pass
    assert process.wait() == 0
    text = seen.decode()
    assert "rows/s" in text
    assert "\x1b[1;32m" in text  # the better model
    assert "by variant" in text
    assert text.index("rows/s") < text.index("metric")


@pytest.mark.slow
def test_two_runs_in_one_process(in_process, log):
    """As the benchmarks do it."""
    code = """
import runpy, sys
for _ in range(2):
    try:
        runpy.run_module("streammetrics", run_name="__main__", alter_sys=True)
    except SystemExit as stop:
        assert stop.code == 0
"""
    ran = in_process(code, "eval", log, *BASE)
    assert ran.stderr == ""
    assert ran.stdout.count("log_loss") == 2


@pytest.mark.slow
def test_an_ascii_terminal_gets_question_marks(log):
    environment = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    command = [sys.executable, "-m", "streammetrics", "eval", str(log), *BASE, "--bits", "12"]  # a bound is shown
    ran = subprocess.run(command, capture_output=True, env=environment, check=True)
    assert b" ?" in ran.stdout


@pytest.mark.slow
def test_streams_that_are_closed_or_full(log):
    command = f"{sys.executable} -m streammetrics eval"
    rest = "--label click --score pctr_b --metrics ctr"
    for shell, code, said in (
        (f"{command} {log} {rest} >&-", 0, ""),
        (f"{command} {log} {rest} >&- 2>&-", 0, ""),
        (
            f"{command} - {rest} <&-",
            2,
            "streammetrics: -: standard input is closed; pipe a log into the process, or name a file\n",
        ),
        (f"{command} {log} {rest} > /dev/full", 2, "streammetrics: No space left on device\n"),
    ):
        ran = subprocess.run(["bash", "-c", shell], capture_output=True, text=True, timeout=120)
        assert (ran.returncode, ran.stderr) == (code, said), shell
