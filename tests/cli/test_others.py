from __future__ import annotations

from dataclasses import replace

import pytest

import streammetrics as sm
from streammetrics.cli import main, selftest
from streammetrics.reports.text_table import Cell, Grid, print_grid


class TestCatalog:
    def test_lists_every_metric(self, run):
        lines = run("catalog").out.splitlines()
        for tag, metric in sm.extend.METRICS.items():
            line = next(line for line in lines if line.split()[:1] and line.split()[0].partition("[")[0] == tag)
            assert metric.about.formula in line
            assert metric.about.cost in line
            assert metric.about.bound in line

    @pytest.mark.parametrize("tag", sm.extend.METRICS)
    def test_tells_about_one(self, run, tag):
        out = run("catalog", tag).out
        assert sm.extend.METRICS[tag].__doc__.splitlines()[0] in out
        assert f"On the command line: {tag}" in out

    def test_examples_of_the_number_after_at(self, run):
        assert "On the command line: recall_at_k, recall_at_k@10 (k)" in run("catalog", "recall_at_k").out
        assert (
            "On the command line: distinct_count, distinct_count@14 (precision)" in run("catalog", "distinct_count").out
        )
        assert "On the command line: mean_rank\n" in run("catalog", "mean_rank").out

    def test_suggests(self, fails):
        assert fails("catalog", "aucc") == "there is no metric 'aucc'; did you mean 'auc'?"

    def test_names_that_contain_a_word(self, fails):
        assert fails("catalog", "rank") == (
            "there is no metric 'rank'; choose from label_ranking_average_precision, label_ranking_loss, mean_rank"
        )


def test_pages_that_contain_a_word(fails):
    assert fails("guide", "spark") == "there is no page 'spark'; choose from machines, engines"
    assert fails("guide", "trai") == "there is no page 'trai'; did you mean 'training'?"


def test_sections_that_contain_a_word(run, fails):
    shown = run("guide", "weight")
    assert shown.code == 0
    assert shown.out.splitlines()[:3] == [
        "There is no page 'weight'. These sections contain the word:",
        "",
        "tour           Weight rows",
    ]
    assert "faq            How do I weight rows?" in shown.out
    assert "tour           Draw a chart" in run("guide", "plot").out  # the word is only in the text of the section
    assert fails("guide", "xyzzy").startswith("there is no page 'xyzzy'; choose from tour, ")


class TestSelftest:
    @pytest.mark.slow
    def test_all_bits_right(self, run):
        ran = run("selftest")
        assert ran.code == 0
        assert ran.out.count("ok  ") == len(selftest.GOLDEN) == len(selftest.make_cases())
        assert "all digests match" in ran.out
        assert "ns a row" in ran.out

    def test_one_case_of_weights(self):
        name = next(n for n in selftest.GOLDEN if "weight" in n)
        assert selftest.compute_fingerprint(selftest.make_cases()[name]()) == selftest.GOLDEN[name]

    @pytest.mark.slow
    def test_other_bits(self, run, monkeypatch):
        monkeypatch.setitem(selftest.GOLDEN, "logits", "0" * 64)
        ran = run("selftest")
        assert ran.code == 1
        assert "WRONG  logits" in ran.out
        assert "do not merge" in ran.out

    def test_order_of_rows_makes_no_difference(self):
        name = "slices, limited"
        assert selftest.compute_fingerprint(selftest.make_cases()[name]()) == selftest.GOLDEN[name]
        columns = {k: v[::-1] for k, v in selftest.make_columns().items()}
        made = sm.Sliced([sm.AUC(bits=12), sm.LogLoss()], by="shop", limit=3).update(columns)
        assert (
            made.digest()
            == sm.Sliced([sm.AUC(bits=12), sm.LogLoss()], by="shop", limit=3).update(selftest.make_columns()).digest()
        )


@pytest.mark.slow
def test_warmup(run):
    ran = run("warmup")
    assert ran.code == 0
    assert "kernels" in ran.out
    assert "cache: " in ran.out


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with the demo, so that each test that reads it can run alone."""
    path = tmp_path_factory.mktemp("demo") / "log"
    with pytest.raises(SystemExit):
        main(["demo", str(path), "--rows", "40000"])
    return path


@pytest.mark.slow
class TestDemo:
    def test_shows_all(self, run, folder):
        ran = run("demo", folder, "--rows", 40_000)
        assert ran.code == 0
        assert ran.err == ""
        for part in (
            "model_a",
            "truth",
            "By variant",
            "By country and device",
            "left out: click is 0",
            "sample corrected",
            "Two rankers on 400 searches",
        ):
            assert part in ran.out
        assert f"streammetrics eval {folder}/full" in ran.out

    def test_a_second_time_uses_what_is_there(self, run, folder):
        assert run("demo", folder, "--rows", 40_000).code == 0
        before = {p: p.stat().st_mtime_ns for p in folder.rglob("*.parquet")}
        assert run("demo", folder, "--rows", 40_000).code == 0
        assert {p: p.stat().st_mtime_ns for p in folder.rglob("*.parquet")} == before

    def test_its_commands_work(self, run, folder):
        assert run("eval", folder / "full", "--task", folder / "tasks.toml").code == 0

    def test_other_rows_than_are_there(self, fails, folder):
        assert "expected a demo of 50,000 rows, found 40,000 rows" in fails("demo", folder, "--rows", 50_000)

    def test_an_interrupted_one_is_written_anew(self, run, folder):
        (folder / "full" / "_truth.json").unlink()
        assert run("demo", folder, "--rows", 40_000).code == 0
        assert (folder / "full" / "_truth.json").exists()

    def test_keeps_off_what_is_not_its_own(self, fails, tmp_path):
        (tmp_path / "thesis.txt").write_text("years of work")
        assert "found other files" in fails("demo", tmp_path)
        (tmp_path / "x" / "full").mkdir(parents=True)
        (tmp_path / "x" / "full" / "thesis.txt").write_text("years of work")
        assert "found other files" in fails("demo", tmp_path / "x")
        assert (tmp_path / "x" / "full" / "thesis.txt").exists()


class TestGrid:
    GRID = Grid(
        "",
        ["metric", *(f"column_{i}" for i in range(8))],
        [[Cell("a"), *(Cell("0.123456", "±1e-5") for _ in range(8))]],
    )

    def test_a_narrow_terminal_gets_several_tables(self, monkeypatch, capsys):
        monkeypatch.setattr("streammetrics.reports.text_table.is_terminal", lambda: True)
        monkeypatch.setenv("COLUMNS", "60")
        print_grid(self.GRID)
        lines = [line for line in capsys.readouterr().out.splitlines() if "0.123456" in line]
        assert len(lines) == 3
        assert all(len(line) <= 60 for line in lines)

    def test_a_pipe_gets_lines_of_120_characters(self, capsys):
        print_grid(self.GRID)
        lines = [line for line in capsys.readouterr().out.splitlines() if "0.123456" in line]
        assert len(lines) == 2
        assert all(len(line) <= 120 for line in lines)
        print_grid(replace(self.GRID, unbroken_lines=True))
        assert len([line for line in capsys.readouterr().out.splitlines() if "0.123456" in line]) == 1


def test_no_arguments_is_a_call_for_help(run):
    ran = run()
    assert ran.code == 0
    assert "selftest" in ran.out
