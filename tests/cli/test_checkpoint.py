"""`eval --checkpoint`: kill -9 at any moment, a disk that fails at any call, and what is refused.

The short form kills five times; ``LAWS=10 pytest -m "" tests/cli/test_checkpoint.py`` fifty times.
"""

from __future__ import annotations

import gzip
import itertools
import random
import subprocess
import sys
import time

import draws
import faults
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

import streammetrics as sm
from streammetrics.cli import main
from streammetrics.io import checkpoints, readers

KILLS = min(draws.tries(5), 50)
ASKED = ("--label", "click", "--score", "pctr_b", "--metrics", "auc,log_loss", "--bits", "12")

SLOW = """
import sys, time
from streammetrics.io import readers
from streammetrics.io.parts import LogPart
readers._SPAN_ROWS = 1000
quick, said = LogPart.batches, []
def batches(part):
    time.sleep(0.04)
    yield from quick(part)
    if not said:
        said.append(1)
        print("ready", flush=True)  # one part is counted
LogPart.batches = batches
from streammetrics.cli import main
main(sys.argv[1:])
"""


@pytest.fixture(scope="module")
def logs(log, table, tmp_path_factory):
    """The log as Parquet files of several row groups, and as packed text of several files."""
    folder = tmp_path_factory.mktemp("forms")
    for form in ("parquet", "text"):
        (folder / form).mkdir()
    for i in range(3):
        rows = table.slice(10_000 * i, 10_000)
        pq.write_table(rows, folder / "parquet" / f"{i}.parquet", row_group_size=1000)
    for i in range(12):
        out = pa.BufferOutputStream()
        pa.csv.write_csv(table.slice(2500 * i, 2500), out)
        (folder / "text" / f"{i:02}.csv.gz").write_bytes(gzip.compress(out.getvalue().to_pybytes(), 1))
    return folder


FORMS = {
    "parquet": ("parquet", "--by", "variant", "--by", "country,device", "--threads", "2"),
    "text": ("text", "--by", "country", "--threads", "1"),
    "groups": ("parquet", "--group", "user_id", "--metrics", "group_auc", "--where", "country!=US"),
}


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
def test_kill_at_any_moment(run, logs, tmp_path):
    """And begin again: the digest is that of a pass that nobody killed; and passes did go on from what there was."""
    rng, kept, kills = random.Random(3), [], 0

    def command(form, folder):
        given, *more = FORMS[form]
        saved = folder / "saved"
        return "eval", logs / given, *ASKED, *more, "--save", saved, "--checkpoint", folder / "checkpoint"

    for form in itertools.cycle(FORMS):
        folder = tmp_path / form
        folder.mkdir(exist_ok=True)
        code = [sys.executable, "-c", SLOW, *map(str, command(form, folder))]
        with subprocess.Popen(code, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            try:
                assert process.stdout is not None
                said = process.stdout.readline()
                time.sleep(rng.random() * 0.6)
            finally:
                process.kill()
        kills += said == "ready\n"  # else it was killed before as often as it takes to be done
        if (folder / "checkpoint").exists():
            found = sm.load(folder / "checkpoint")
            kept.append(found.count)
            if found.finished:
                (folder / "checkpoint").unlink()
        names = {p.name for p in folder.iterdir()} - {"saved", "checkpoint"}
        assert all(name.startswith(".streammetrics-") for name in names)
        if kills >= KILLS:
            break
    assert max(kept, default=0) > 0
    for form in FORMS:
        folder = tmp_path / form
        folder.mkdir(exist_ok=True)
        code = [sys.executable, "-c", SLOW, *map(str, command(form, folder))]
        done = subprocess.run(code, capture_output=True, text=True, timeout=300)
        assert (done.returncode, done.stderr) == (0, "")
        given, *more = FORMS[form]
        assert run("eval", logs / given, *ASKED, *more, "--save", folder / "whole").code == 0
        assert sm.load(folder / "saved").digest() == sm.load(folder / "whole").digest()
        assert sm.load(folder / "checkpoint").finished
    print(f"{kills} kills, of {kept} parts kept")


@pytest.mark.slow
def test_a_finished_one_answers_at_once(run, logs, tmp_path, monkeypatch):
    command = ("eval", logs / "parquet", *ASKED, "--by", "variant", "--checkpoint", tmp_path / "x", "--format", "json")
    first = run(*command)
    assert first.code == 0
    monkeypatch.setattr("streammetrics.io.parts.LogPart.batches", None)
    assert run(*command, "--save", tmp_path / "saved").out == first.out
    shown = run("show", tmp_path / "x", "--format", "json")
    assert shown.out == run("show", tmp_path / "saved", "--format", "json").out == first.out
    assert "3 of 3 parts, 30,000 rows" in run("show", tmp_path / "x").out
    ledger = sm.Ledger(sm.CTR()).add("a", sm.CTR().update([0, 1]))
    sm.save(ledger, tmp_path / "ledger")
    assert "1 partition, 2 rows" in run("show", tmp_path / "ledger").out


@pytest.mark.slow
@pytest.mark.parametrize("error", [5, 28])
def test_a_disk_that_fails(run, logs, tmp_path, monkeypatch, capsys, error):
    """At any of its calls: what was there is there, the command says so, and the next run ends as ever."""
    monkeypatch.setattr(readers, "_SPAN_ROWS", 1000)
    monkeypatch.setattr(checkpoints, "OVERHEAD_RATIO", 1)
    folder = tmp_path / "disk"
    folder.mkdir()
    path = folder / "checkpoint"
    command = [str(a) for a in ("eval", logs / "parquet", *ASKED, "--threads", 2, "--checkpoint", path)]
    assert run(*command, "--save", tmp_path / "whole").code == 0
    whole, codes = sm.load(tmp_path / "whole").digest(), []
    for nth in range(1, 40):
        before = path.read_bytes() if nth % 2 and path.exists() else None
        if before is None:
            path.unlink(missing_ok=True)
        disk = faults.Disk(folder, nth, error)
        with disk.mounted(), pytest.raises(SystemExit) as stop:
            main(command)
        codes.append(stop.value.code)
        said = capsys.readouterr().err
        assert (said.startswith(f"streammetrics: {path}: ") and said.count("\n") == 1) if codes[-1] else not said
        assert {p.name for p in folder.iterdir()} <= {"checkpoint"}
        if path.exists():
            assert isinstance(sm.load(path), sm.Checkpoint)
        assert run(*command, "--save", tmp_path / "again").code == 0
        assert sm.load(tmp_path / "again").digest() == whole
    assert codes.count(2) > 4
    assert 0 in codes


class TestMistakes:
    def test_one_file_for_two(self, fails, logs, tmp_path):
        for option in ("--save", "--report"):
            line = fails("eval", logs / "text", *ASKED, "--checkpoint", tmp_path / "x", option, tmp_path / "." / "x")
            assert "and --" in line
            assert "expected two different files" in line
        assert not (tmp_path / "x").exists()

    def test_a_log_that_is_read_once(self, fails, tmp_path, monkeypatch):
        import io

        class Stdin:
            buffer = io.BytesIO(b"click,pctr_b\n1,0.5\n")

        monkeypatch.setattr("sys.stdin", Stdin)
        assert "not standard input" in fails("eval", "-", *ASKED, "--checkpoint", tmp_path / "x")

    @pytest.mark.slow
    def test_another_log(self, run, fails, logs, tmp_path):
        command = ("eval", logs / "text", *ASKED, "--checkpoint", tmp_path / "x")
        assert run(*command).code == 0
        line = fails("eval", logs / "text" / "00.csv.gz", *ASKED, "--checkpoint", tmp_path / "x")
        assert line.startswith(f"{tmp_path / 'x'}: the file is the checkpoint of another log")
        assert "with other settings" in fails(*command, "--where", "variant=A")
        assert "with other settings" in fails(*command, "--metrics", "ctr")
        assert "has no 'log_loss'" in fails(*command, "--metrics", "auc")
        assert "there is no folder" in fails(*command[:-1], tmp_path / "no" / "x")

    @pytest.mark.slow
    def test_merging(self, run, fails, logs, tmp_path):
        for name in "ab":
            run("eval", logs / "text", *ASKED, "--checkpoint", tmp_path / name)
        assert "belongs to one pass" in fails("merge", tmp_path / "a", tmp_path / "b", "-o", tmp_path / "c")
        assert "found a checkpoint of an unfinished pass" in fails("merge", tmp_path / "a", "-o", tmp_path / "c")
        assert not (tmp_path / "c").exists()

    def test_help_says_it(self, run):
        said = " ".join(run("eval", "--help").out.split())
        assert "--checkpoint" in said
