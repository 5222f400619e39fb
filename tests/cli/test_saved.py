from __future__ import annotations

import re

import pytest

import streammetrics as sm
from streammetrics.cli import state_files

BASE = ("--label", "click", "--score", "pctr_b", "--metrics", "auc,log_loss", "--bits", 12)


@pytest.fixture
def days(run, log, tmp_path):
    """A file for each day."""

    def make(*more: object):
        made = []
        for folder in sorted(log.iterdir()):
            made.append(tmp_path / f"{folder.name}.smet")
            assert run("eval", folder, *BASE, *more, "--save", made[-1]).code == 0
        return made

    return make


@pytest.mark.slow
@pytest.mark.parametrize("more", [(), ("--by", "variant", "--by", "country,device")])
def test_days_merge_to_the_week_in_any_order(run, log, days, tmp_path, more):
    week = run("eval", log, *BASE, *more, "--save", tmp_path / "week", "--format", "json")
    for files in (days(*more), days(*more)[::-1]):
        ran = run("merge", *files, "-o", tmp_path / "merged")
        assert ran.code == 0
        assert "7 files merged, 30,000 rows" in ran.out
        assert sm.load(tmp_path / "merged") == sm.load(tmp_path / "week")
        assert sm.load(tmp_path / "merged").digest() == sm.load(tmp_path / "week").digest()
    assert run("show", tmp_path / "merged", "--format", "json").out == week.out
    assert sm.merge(days(*more)).digest() == sm.load(tmp_path / "week").digest()


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_threads_merge_to_the_same_digest(run, tmp_path, monkeypatch, threads):
    monkeypatch.setattr(state_files, "THREAD_BYTES", 100)
    merged = []
    monkeypatch.setattr(
        state_files, "merge", lambda parts, **more: merged.append(len(parts)) or sm.merge(parts, **more)
    )
    parts = [sm.MetricCollection(sm.CTR(), sm.LogLoss()).update([0, 1], [0.1 * i, 0.5]) for i in range(1, 6)]
    for i, part in enumerate(parts):
        sm.save(part, tmp_path / f"{i}.smet")
    ran = run("merge", *sorted(tmp_path.glob("*.smet")), "-o", tmp_path / "all", "--threads", threads)
    assert ran.code == 0
    assert sm.load(tmp_path / "all").digest() == sm.merge(parts).digest()
    assert len(merged) == threads + 1


class TestPatterns:
    @pytest.fixture
    def parts(self, tmp_path):
        folder = tmp_path / "parts"
        for i in range(30):
            (folder / f"day={i % 3}").mkdir(parents=True, exist_ok=True)
            sm.save(sm.CTR().update([0, 1, i % 2]), folder / f"day={i % 3}" / f"{i:02}.smet")
        (folder / ".streammetrics-00").write_text("what a killed process left")
        (folder / "_SUCCESS").touch()
        return folder

    @pytest.mark.parametrize(
        ("given", "count"), [("parts", 30), ("parts/day=*/*.smet", 30), ("parts/**/1?.smet", 10), ("parts/day=1", 10)]
    )
    def test_folders_and_quoted_patterns(self, run, parts, tmp_path, given, count):
        ran = run("merge", tmp_path / given, "-o", tmp_path / "total")
        assert (ran.code, ran.err) == (0, "")
        assert f"{count} files merged, {3 * count} rows" in ran.out
        rest = run("merge", parts / "day=0", parts / "day=1" / "*", parts / "day=2", "-o", tmp_path / "other")
        assert f"30 files merged, 90 rows, digest {sm.load(tmp_path / 'other').digest()[:16]}" in rest.out

    def test_the_next_run_does_not_count_the_total(self, run, fails, parts, tmp_path):
        assert run("merge", parts, "-o", tmp_path / "total").code == 0
        assert run("merge", parts, "-o", parts / "total").code == 0  # not there yet
        before = (parts / "total").read_bytes()
        for given in (parts, parts / "*"):
            line = fails("merge", given, "-o", parts / "total")
            assert line.startswith(f"{parts / 'total'}: this output file is also one of the inputs ({given}), so")
        assert (parts / "total").read_bytes() == before
        one = parts / "day=0" / "00.smet"
        assert run("merge", parts / "total", one, "-o", parts / "total").code == 0  # but by name it is meant
        assert sm.load(parts / "total").state.facts()["rows"] == 93

    def test_nothing_there(self, fails, parts, tmp_path):
        assert fails("merge", tmp_path / "no*", "-o", tmp_path / "x") == f"{tmp_path / 'no*'}: no file matches"
        (tmp_path / "empty").mkdir()
        assert fails("merge", tmp_path / "empty", "-o", tmp_path / "x").endswith("no files in this folder")

    def test_a_bad_one_among_many_is_named(self, fails, parts, tmp_path):
        bad = parts / "day=1" / "16.smet"
        sm.save(sm.CTR(num_labels=2).update([[0, 1]]), bad)
        assert fails("merge", parts, "-o", tmp_path / "x").startswith(f"{bad}: cannot merge this CTR")
        sm.save(sm.Sliced(sm.CTR(), by="day").update(y_true=[0], day=[1]), bad)
        first = parts / "day=0" / "00.smet"
        assert f"the same --by, --unit and --window as {first}" in fails("merge", first, bad, "-o", tmp_path / "x")
        bad.write_bytes(b"SMET" + bytes(60))
        assert fails("merge", parts, "-o", tmp_path / "x").startswith(f"{bad}: ")
        (parts / "day=1" / "again.smet").hardlink_to(parts / "day=0" / "00.smet")
        bad.unlink()
        assert "named twice" in fails("merge", parts, "-o", tmp_path / "x")
        sm.save(sm.Sliced(sm.CTR(), by="k").update(y_true=[1], k=[1]), tmp_path / "a")
        sm.save(sm.Sliced(sm.CTR(), by="k").update(y_true=[1], k=["1"]), tmp_path / "b")
        line = fails("merge", tmp_path / "a", tmp_path / "b", "-o", tmp_path / "x")
        assert line.startswith(f"{tmp_path / 'b'}: keys of k are of kind integer here and string there; ")
        assert not (tmp_path / "x").exists()


def test_show_prints_what_eval_printed(run, log, tmp_path):
    for form in ("table", "csv"):
        first = run("eval", log, *BASE, "--by", "variant", "--save", tmp_path / "x", "--format", form).out
        again = run("show", tmp_path / "x", "--format", form).out
        lines = [line for line in first.splitlines() if not line.startswith("no intervals: ")]  # which eval says
        assert again.splitlines()[form == "table" :] == lines[form == "table" :]


@pytest.mark.slow
def test_show_some_of_what_was_saved(run, fails, log, tmp_path):
    models = ("--label", "click", "--score", "pctr_a", "--score", "pctr_b", "--bits", 12)
    first = tmp_path / "x"
    run(
        "eval",
        log,
        *models,
        "--metrics",
        "auc,ctr,calibration",
        "--by",
        "country,device",
        "--by",
        "variant",
        "--save",
        first,
    )

    def table(*more):
        return run("show", first, "--format", "json", *more).records

    eval_ = run("eval", log, *models, "--metrics", "calibration", "--by", "country", "--format", "json").records
    assert table("--metrics", "calibration", "--by", "country") == eval_
    assert [r for r in table("--metrics", "pctr_b/auc") if not r["by"]] == [
        r for r in table() if not r["by"] and r["metric"] == "pctr_b/auc"
    ]
    assert {tuple(r["by"]) for r in table("--metrics", "auc")} == {(), ("country", "device"), ("variant",)}
    assert {tuple(r["by"]) for r in table("--by", "device,country", "--by", "device")} == {
        (),
        ("device", "country"),
        ("device",),
    }
    sorted_ = [r for r in table("--by", "country", "--sort", "calibration", "--min-rows", 1000) if r["by"]]
    whole = [r for r in table("--by", "country") if r["by"]]
    assert 0 < len(sorted_) < len(whole)
    assert sorted(map(str, sorted_)) == sorted(str(r) for r in whole if r["rows"] >= 1000)
    ratios = [(r["slice"], max(r["value"], 1 / r["value"])) for r in sorted_ if r["metric"].endswith("calibration")]
    worst = [max(v for k, v in ratios if k == key) for key in [r["slice"] for r in sorted_[::6]]]
    assert worst == sorted(worst, reverse=True)
    assert "expected saved slices that include these columns" in fails("show", first, "--by", "variant,country")
    assert "there is no metric 'auk'; did you mean" in fails("show", first, "--metrics", "auk")
    assert "--sort: sort= must be" in fails("show", first, "--sort", "auk")
    lone = tmp_path / "lone"
    sm.save(sm.Sliced(sm.CTR(), by=("a", "b")).update(y_true=[0, 1, 1], a=[1, 1, 2], b=[3, 4, 4]), lone)
    found = run("show", lone, "--by", "a", "--metrics", "ctr", "--format", "json").records
    assert [(r["slice"], r["value"]) for r in found] == [({"a": 1}, 0.5), ({"a": 2}, 1.0)]
    page = tmp_path / "page.html"
    assert run("show", first, "--by", "device", "--metrics", "auc", "--report", page).code == 0
    assert "By device" in page.read_text()
    assert "By variant" not in page.read_text()


def test_show_takes_whatever_was_saved(run, tmp_path):
    y, p, key = [0, 1, 1], [0.2, 0.7, 0.4], ["a", None, "b"]
    sm.save(sm.AUC().update(y, p), tmp_path / "metric")
    sm.save(sm.Sliced(sm.AUC(), by="key").update(y, p, key=key), tmp_path / "sliced")
    sm.save(sm.Sliced([sm.AUC(), sm.CTR()], by="key", limit=1).update(y, p, key=key), tmp_path / "limited")
    sm.save(sm.Bundle({"mine": sm.CTR().update(y_true=y)}), tmp_path / "bundle")
    assert run("show", tmp_path / "metric", "--format", "json").values == {"auc": 1.0}
    assert [r["slice"] for r in run("show", tmp_path / "sliced", "--format", "json").records] == [
        {"key": k} for k in (None, "a", "b")
    ]
    limited = run("show", tmp_path / "limited").out
    assert "\n(other) " in limited
    sm.save(sm.Sliced(sm.CTR(), by="key", limit=1, values=[None]).update(y, key=key), tmp_path / "with null")
    assert re.search(r"\nnull .*\n\(other\) ", run("show", tmp_path / "with null").out, re.DOTALL)
    windows = sm.Windowed(sm.CTR(), width=1, time="t", keep=1).update(y, t=range(len(y)))
    sm.save(windows, tmp_path / "windows")
    assert "\n(expired) " in run("show", tmp_path / "windows").out
    assert "mine" in run("show", tmp_path / "bundle").out
    assert "by key" in run("show", tmp_path / "sliced").out


def test_show_does_not_take_a_bare_state(fails, tmp_path):
    sm.save(sm.extend.ScoreHistogram(), tmp_path / "state")
    assert "an object of class ScoreHistogram has no results" in fails("show", tmp_path / "state")


def test_bytes_as_keys(run, tmp_path):
    sm.save(sm.Sliced(sm.CTR(), by="key").update(y_true=[0, 1], key=[b"\xff", b"a"]), tmp_path / "x")
    assert [r["slice"]["key"] for r in run("show", tmp_path / "x", "--format", "json").records] == [
        {"bytes": "61"},
        {"bytes": "ff"},
    ]
    assert run("show", tmp_path / "x").code == run("show", tmp_path / "x", "--format", "csv").code == 0


class TestMistakes:
    def test_other_metrics(self, run, fails, log, tmp_path):
        for name, metrics in (("a", "auc"), ("b", "ctr")):
            run("eval", log, *BASE[:4], "--metrics", metrics, "--save", tmp_path / name)
        line = fails("merge", tmp_path / "a", tmp_path / "b", "-o", tmp_path / "c")
        assert line.startswith(f"{tmp_path / 'b'}: cannot merge this MetricCollection: the other object has no 'auc'")
        assert not (tmp_path / "c").exists()

    def test_named_twice(self, run, fails, log, tmp_path):
        run("eval", log, *BASE, "--save", tmp_path / "a")
        assert "named twice" in fails("merge", tmp_path / "a", tmp_path / "." / "a", "-o", tmp_path / "c")

    def test_not_a_state(self, fails, tmp_path):
        (tmp_path / "x").write_text("hello, this is no state of ours at all, but text")
        assert fails("show", tmp_path / "x").startswith(f"{tmp_path / 'x'}: these bytes are not a streammetrics state")
        assert fails("merge", tmp_path / "x", "-o", tmp_path / "y").startswith(f"{tmp_path / 'x'}: ")

    def test_not_there(self, fails, tmp_path):
        assert fails("show", tmp_path / "x") == f"{tmp_path / 'x'}: No such file or directory"

    def test_no_output(self, fails, tmp_path):
        assert "output" in fails("merge", tmp_path / "x").lower()
        assert "there is no folder" in fails("merge", tmp_path / "x", "-o", tmp_path / "no" / "y")


def test_logs_that_are_cut_inside_a_query_do_not_merge(run, write, fails, tmp_path):
    log = {"q": list("aabbbc"), "grade": [1, 0, 0, 1, 2, 1], "s": [0.5, 0.2, 0.9, 0.8, 0.1, 0.4]}
    asked = ("--task-type", "ranking", "--label", "grade", "--score", "s", "--query", "q", "--k", 2)
    for name, rows in (("one", slice(3)), ("two", slice(3, 6)), ("to b", slice(5)), ("c", slice(5, 6))):
        path = write(f"{name}.parquet", **{column: values[rows] for column, values in log.items()})
        assert run("eval", path, *asked, "--save", tmp_path / f"{name}.smet").code == 0
    line = fails("merge", tmp_path / "one.smet", tmp_path / "two.smet", "-o", tmp_path / "merged.smet")
    assert "two.smet: q: a query is the last of one part and the first of another" in line
    assert run("merge", tmp_path / "to b.smet", tmp_path / "c.smet", "-o", tmp_path / "merged.smet").code == 0
