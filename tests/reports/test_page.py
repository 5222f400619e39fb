"""The page: verdict first, every number of the data in it, escaped, self-contained, read by anything."""

from __future__ import annotations

import itertools
import math
import re
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from pages import hidden, number, read, says, tree

import streammetrics as sm
from streammetrics.inference.sample_ratio import sample_ratio_mismatch
from streammetrics.reports.page.write import render
from streammetrics.reports.records import build_slice_records, group_comparable_tasks

METRICS = (sm.AUC, sm.AveragePrecision, sm.NormalizedEntropy, sm.LogLoss, sm.Calibration, sm.CTR)
EVIL = "<script>alert(1)</script>"


@cache
def log(n: int = 60_000, users: int = 3000) -> dict[str, Any]:
    rng = np.random.default_rng(5)
    p = np.clip(rng.beta(1, 25, n), 1e-6, 1)
    user = rng.integers(0, users, n)
    arm = np.where(user % 2, "new", "old")
    return {
        "click": (rng.random(n) < p * np.where(arm == "new", 1.15, 1.0)).astype(int),
        "old": np.clip(p * rng.lognormal(0, 0.9, n), 0, 1),
        "mid": np.clip(p * rng.lognormal(0, 0.6, n), 0, 1),
        "new": np.clip(p * rng.lognormal(0, 0.3, n), 0, 1),
        "user": user,
        "arm": arm,
        "shop": rng.choice(np.array(["a", "b", "c", None, EVIL], object), n, p=[0.5, 0.3, 0.15, 0.045, 0.005]),
        "ts": np.datetime64("2025-06-02") + rng.integers(0, 5 * 86400, n).astype("timedelta64[s]"),
    }


def tasks(*names: str) -> dict[str, sm.Task]:
    return {name: sm.Task([m() for m in METRICS], y_true="click", y_score=name) for name in names}


@cache
def models(*names: str) -> Any:
    return sm.Sharded(tasks(*names), unit="user").update(log())


@cache
def by_shop(*names: str) -> Any:
    return sm.Sliced(sm.Sharded(tasks(*names), unit="user"), by="shop").update(log())


@cache
def arms() -> Any:
    inner = sm.Sharded(sm.Task([sm.CTR(), sm.LogLoss(), sm.Calibration()], y_true="click", y_score="old"), unit="user")
    return sm.Sliced(sm.Sliced(inner, by="shop"), by="arm").update(log())


def card(**more: Any) -> Any:
    asked = {"primary": "ctr", "better": {"ctr": "high"}, "guardrails": {"log_loss": 0.02, "calibration": 0.3}}
    return sm.scorecard(arms(), control="old", **asked | more)


def rows_of(node: Any, **attrs: str) -> dict[str, list[str]]:
    """The cells of a table by what its rows are called."""
    (table,) = node.all("table", **attrs)[:1]
    return {
        row.all("th")[0].children[0].strip(): [c.text for c in row.all("td")]
        for row in table.all("tr")
        if row.all("td")
    }


def every(node: Any) -> Any:
    """The elements below one."""
    for child in node.children:
        if not isinstance(child, str):
            yield child
            yield from every(child)


def parts(cell: str) -> list[str]:
    return re.findall(r"[+−±]?\d[\d.,]*(?<![.,])(?:\u202f%)?", cell)


# -- what it says -------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_verdict_is_read_first() -> None:
    page = tree(render(models("old", "new"), "a log"))
    main = page.all("main")[0]
    assert main.text.startswith("new is better than old : auc +0.0")
    lead = main.all("p", class_="lead")[0].text
    found = sm.compare(models("old", "new").task("new"), models("old", "new").task("old"))["auc"]
    change, old, new, low, high = (
        parts(lead)[i] for i in (0, 1, 2, -3 if "All" in lead else -2, -2 if "All" in lead else -1)
    )
    assert says(change, found.difference.estimate)
    assert says(old, found.b)
    assert says(new, found.a)
    del low, high
    assert [m.text for m in main.all("h2")][:3] == ["Scorecard", "Curves", "Individual values"]


@pytest.mark.slow
def test_the_scorecard_has_the_numbers_of_the_comparison() -> None:
    found = sm.compare(models("old", "new").task("new"), models("old", "new").task("old"))
    rows = rows_of(tree(render(found, "x", sides=("new", "old"))), class_="score")
    # Two models of one log have the same click rate, so the page does not compare it.
    assert list(rows) == [c.name for c in found.values() if c.name != "ctr"]
    for one in (found[name] for name in rows):
        b, a, change, _, between, p, proof, word = rows[one.name]
        ours = one.difference
        assert says(a, one.a)
        assert says(b, one.b)
        assert says(parts(change)[0], ours.estimate)
        assert all(says(t, v) for t, v in zip(between.split(" to "), (ours.low, ours.high), strict=True))
        assert word == {"a": "better", "b": "worse", None: "unclear"}[one.better]
        assert p == "<0.001"
        certified = proof.removeprefix("certified ")
        assert certified == "exact" if one.bound <= 1e-12 else number(certified)[0] >= one.bound  # rounded up


@pytest.mark.slow
def test_equal_models_are_compared_in_full() -> None:
    same = sm.compare(models("old").task("old"), models("old").task("old"))
    assert list(rows_of(tree(render(same, "x")), class_="score")) == [m().name for m in METRICS]


@pytest.mark.slow
def test_a_ratio_that_is_not_clearly_closer_to_one_is_explained() -> None:
    """Predictions 2 % too high and 2 % too low differ, and it is unclear which are better."""
    rng = np.random.default_rng(3)
    p = 0.1 + 0.1 * rng.random(20_000)
    rows = {"click": rng.random(20_000) < p, "user": rng.integers(0, 2000, 20_000), "high": 1.02 * p, "low": 0.98 * p}
    sides = {n: sm.Task(sm.Calibration(), y_true="click", y_score=n) for n in ("high", "low")}
    page = tree(render(sm.Sharded(sides, unit="user").update(rows), "x"))
    assert rows_of(page, class_="score")["calibration"][-1] == "unclear"
    assert "calibration: the values differ, but it is unclear which one is closer to 1." in page.text
    assert "closer to 1" not in read(render(models("old", "new"), "x"))


def test_axes_have_two_numbers_or_more() -> None:
    from streammetrics.reports.measure_rows import build_shared_axis
    from streammetrics.reports.page_model import MeasureRow

    for far in np.geomspace(1e-4, 10.0, 60):
        axis, _, _ = build_shared_axis([MeasureRow("m", ends=(-far, 0.1 * far, 1.2 * far))], "", True, steps=2.5)
        assert 2 <= len(axis.ticks) <= 6


@pytest.mark.slow
def test_slices_have_their_numbers_the_largest_impact_first() -> None:
    found = sm.compare(by_shop("old", "new").task("new"), by_shop("old", "new").task("old"))
    page = tree(render(found, "x", sides=("new", "old")))
    tables = page.all("table", class_="slices")
    compared = [m().name for m in METRICS if m is not sm.CTR]
    assert len(page.all("div", class_="closed")[0].all("details")) == len(compared) - 1
    for metric, table in zip(compared, tables, strict=True):
        mine = {c.keys[0]: c for c in found.values() if c.name == metric}
        total = sum(c.rows for c in mine.values())
        shown = {r.all("th")[0].children[0].strip(): r for r in table.all("tr") if r.attrs.get("data-few")}
        assert set(shown) == {k if k is not None else "null" for k in mine}
        for key, one in mine.items():
            cells = [c.text for c in shown[key if key is not None else "null"].all("td")]
            ours = one.difference
            assert says(parts(cells[0])[-1], one.rows / total)
            assert says(parts(cells[2])[0], ours.estimate) or math.isnan(ours.estimate)
            old, new = cells[3].split(" → ")
            assert says(old, one.b)
            assert says(new, one.a)
        order = [(int(r.attrs["data-few"]), -float(r.attrs["data-imp"])) for r in shown.values()]
        assert order == sorted(order)


@pytest.mark.slow
def test_a_scorecard_says_its_sentence_and_every_figure() -> None:
    one = card(secondary=())
    page = tree(render(one, "x"))
    plain = one.verdicts["new"].sentence
    assert page.all("h1")[0].text.replace("−", "-").replace("\u202f", " ") .split() == plain.split() or \
        re.sub(r"\W", "", page.all("h1")[0].text) == re.sub(r"\W", "", plain)  # fmt: skip
    rows = rows_of(page, class_="score")
    for record in one.table():
        b, a, change, _, between, limit, p, proof, word = rows[record["metric"]]
        assert says(a, record["value"])
        assert says(b, record["control_value"])
        assert says(change, record["change"])
        assert [says(t, record[c]) for t, c in zip(between.split(" to "), ("low", "high"), strict=True)] == [True, True]
        assert word == record["word"]
        assert proof == "certified exact"
        assert p
        old = record["control_value"]
        if record["metric"] == "calibration":
            far = 1.3 * max(old, 1 / old)
            assert [says(t, v) for t, v in zip(limit.split(" to "), (1 / far, far), strict=True)] == [True, True]
            continue
        limit, _, allowed = limit.partition(" (")
        assert limit == {"ctr": "–", "log_loss": "≤ +2\u202f%"}[record["metric"]]
        assert says(allowed.removesuffix(")"), 1.02 * old) if record["metric"] == "log_loss" else not allowed
    assert len(page.all("table", class_="slices")) == 3
    assert "the forbidden side is hatched" in page.text
    # A calibration ratio has a limit on both sides of 1, so no side of the picture is hatched.
    assert "hatched" not in read(render(card(guardrails={"calibration": 0.3}), "x"))


@pytest.mark.slow
def test_slices_have_the_intervals_of_the_terminal() -> None:
    sliced = by_shop("old", "new")
    grid = tree(render(sliced, "x")).all("table", class_="grid")[0]
    heads = [h.text for h in grid.all("thead")[0].all("th")]
    assert heads[:4] == ["shop", "model", "rows", "positives"]
    lines = {tuple(h.text for h in line.all("th")): line.all("td") for line in grid.all("tbody")[0].all("tr")}
    for record in build_slice_records(sliced, confidence=0.95):
        model, metric = record["metric"].split("/")
        shop = record["slice"]["shop"]
        cell = lines[shop if shop is not None else "null", model][heads.index(metric) - 2]
        value, *ends = re.findall(r"[−\d.]+", cell.text)
        assert says(value, record["value"])
        limits = [v for v in (record["interval_low"], record["interval_high"]) if math.isfinite(v)]
        assert [says(t, v) for t, v in zip(ends, limits, strict=True)] == [True] * len(ends)


@pytest.mark.slow
def test_words_are_explained_once() -> None:
    one, two = (tree(render(models(*names), "x")) for names in (("old",), ("old", "new")))
    for page in (one, two):
        assert page.text.count("95\u202f% is the confidence interval.") == 1
        assert page.text.count("certified is the bound on rounding.") == 1
    assert "The p-value is the probability" in two.text
    rate = "The difference of a rate, such as ctr, is in percent of old."
    assert rate not in two.text
    between = sm.compare(arms()["new"].total, arms()["old"].total)
    assert rate in tree(render(between, "x", sides=("new", "old"))).text
    # On a phone, the values of several models have the names of the models.
    labels = [[c.attrs.get("data-l") for c in page.all("table", class_="values")[0].all("td")] for page in (one, two)]
    assert set(labels[0]) == {None}
    assert labels[1][:2] == ["old", "new"]


@pytest.mark.slow
def test_both_errors_are_told_in_plain_words() -> None:
    found = sm.compare(models("old", "new").task("new"), models("old", "new").task("old"))
    half = (found["auc"].difference.high - found["auc"].difference.low) / 2
    facts = [d.text for d in tree(render(found, "x")).all("dl", class_="facts")[0].all("dd")]
    chance = facts[0].removeprefix("By chance, the difference may be off by ").partition(" (")[0]
    assert says(chance, half)
    if found["auc"].bound > 1e-12:
        rounding = facts[1].removeprefix("Rounding of scores may change the difference by ").partition(",")[0]
        assert number(rounding)[0] >= found["auc"].bound
    assert facts[1].startswith("Rounding of scores")


@pytest.mark.slow
def test_arms_that_are_not_comparable_have_no_reading() -> None:
    ratio = sample_ratio_mismatch({"old": 2000, "new": 1500})
    page = tree(render(card(sample_ratio=ratio, users=ratio.users), "x"))
    assert page.all("main")[0].text.startswith("Sample ratio mismatch: no verdict.")
    for table in (*page.all("table", class_="score"), *page.all("table", class_="slices")):
        words = [c.text for c in table.all("td", class_="verd")]
        assert words
        assert set(words) == {"withheld"}
        assert not table.all("span", class_="d")


@pytest.mark.slow
def test_the_result_of_the_sample_ratio_test_is_read_first() -> None:
    results = {
        20_000: "Users are split as planned (p = ",
        200: "Too few users to tell whether they are split as planned",
    }
    for count, result in results.items():
        users = {"old": count, "new": count + 10}
        ratio = sample_ratio_mismatch(users, sequential=False)
        facts = tree(render(card(sample_ratio=ratio, users=users), "x")).all("dl", class_="facts")[0]
        terms = dict(zip([t.text for t in facts.all("dt")], [d.text for d in facts.all("dd")], strict=True))
        assert terms["users"].startswith(result)


@pytest.mark.slow
def test_before_the_planned_number_of_users_it_is_too_early() -> None:
    page = tree(render(card(planned=5000, users=3000), "x"))
    assert {c.text for c in page.all("table", class_="score")[0].all("td", class_="verd")} == {"too early"}
    assert "“Too early” means that the planned number of users is not reached." in page.text
    assert "guardrails" not in [t.text for t in page.all("dl", class_="facts")[0].all("dt")]
    assert "“Too early”" not in read(render(card(), "x"))


@pytest.mark.slow
def test_the_level_of_a_breached_guardrail_is_explained() -> None:
    def swapped(**guardrails: float) -> Any:
        """A card in which the calibration of the treatment is breached."""
        return sm.scorecard(
            arms(), control="new", primary="ctr", better={"ctr": "high"}, guardrails=guardrails, final=True
        )

    one = swapped(calibration=1e-4, log_loss=1e-4)
    assert any(r.word == "breached" for r in one.verdicts["old"].guardrails)
    explained = (
        "The verdict gives the 97.5\u202f% interval of a breached guardrail, because any one of 2 guardrails can"
    )
    assert explained in read(render(one, "x"))
    # With a single guardrail, the verdict has the interval of the table.
    single = read(render(swapped(calibration=1e-4), "x"))
    assert "is breached" in single
    assert "of a breached guardrail" not in single


@pytest.mark.slow
def test_bold_is_what_leaves_zero_out_beyond_both_errors() -> None:
    from dataclasses import replace

    from streammetrics.reports.measure_rows import build_measure_row

    one = sm.compare(models("old", "new").task("new"), models("old", "new").task("old"))["auc"]
    assert build_measure_row(one).bold
    low = one.difference.low
    assert build_measure_row(replace(one, bound=low * 0.99)).bold
    assert not build_measure_row(replace(one, bound=low * 1.01)).bold
    assert not build_measure_row(replace(one, difference=one.difference._replace(low=-1e-9))).bold
    assert not build_measure_row(replace(one, adjusted=0.06)).bold
    assert not build_measure_row(replace(one, reason="too few", difference=one.difference._replace(low=math.nan))).bold


@pytest.mark.slow
def test_right_is_better_and_intervals_are_where_they_are() -> None:
    from streammetrics.reports.assemble import assemble

    found = sm.compare(models("old", "new").task("new"), models("old", "new").task("old"))
    (card_,) = [p.data for p in assemble(found, "x").parts if p.kind == "scorecard"]
    for row, one in zip(card_.groups[0].rows, [c for c in found.values() if c.name != "ctr"], strict=True):
        assert row.span.low <= row.span.mid <= row.span.high
        assert row.span.zero == pytest.approx(50.0)
        assert (row.span.low > 50.0) == (one.better == "a")
        assert (row.span.high < 50.0) == (one.better == "b")
    assert {r.direction for r in card_.groups[0].rows} == {1.0, -1.0}
    slices = sm.compare(by_shop("old", "new").task("new"), by_shop("old", "new").task("old"))
    for forest in next(p.data for p in assemble(slices, "x").parts if p.kind == "forests"):
        for row in forest.groups[0].rows:
            if row.word in ("better", "worse") and forest.metric != "calibration":
                assert (row.span.mid > row.span.zero) == (row.word == "better")


@pytest.mark.slow
@pytest.mark.parametrize("relative", [True, False])
def test_what_is_forbidden_is_on_its_side(relative: bool) -> None:
    from streammetrics.reports.assemble import assemble

    (one,) = [p.data for p in assemble(card(relative=relative), "x").parts if p.kind == "scorecard"]
    loss = next(r for g in one.groups for r in g.rows if r.name == "log_loss")
    assert loss.is_upper_limit == relative  # on a scale with numbers on it lower is to the left; else right is better
    assert (loss.span.limit > loss.span.zero) == relative
    assert (one.axis is not None) == relative
    if relative:  # the ticks are where their numbers are
        (a, first), *_, (b, last) = one.axis.ticks
        slope = (b - a) / (number(last)[0] - number(first)[0])
        assert loss.span.limit == pytest.approx(a + slope * (0.02 - number(first)[0]))


@pytest.mark.slow
def test_three_models_the_best_against_the_first() -> None:
    page = render(models("old", "mid", "new"), "x")
    assert read(page).startswith("new is better than old")
    for name in ("old", "mid", "new"):
        assert f">{name}</th>" in page
    assert group_comparable_tasks(models("old", "mid", "new")) == [["old", "mid", "new"]]
    assert group_comparable_tasks(sm.Sharded(sm.AUC(), unit="user")) == []


@pytest.mark.slow
def test_tasks_of_other_labels_or_rows_are_not_compared() -> None:
    rows = log() | {"like": log()["click"], "seen": np.ones(60_000, int)}
    for other in (
        sm.Task(sm.AUC(), y_true="like", y_score="new"),
        sm.Task(sm.AUC(), y_true="click", y_score="new", where="seen"),
    ):
        both = sm.Sharded(
            {"old": sm.Task(sm.AUC(), y_true="click", y_score="old"), "other": other}, unit="user"
        ).update(rows)
        assert group_comparable_tasks(both) == []
        assert not tree(render(both, "x")).all("table", class_="score")


@pytest.mark.slow
def test_no_best_cell_and_micro_and_macro_are_named() -> None:
    rng = np.random.default_rng(0)
    y, p = rng.integers(0, 3, 900), rng.dirichlet(np.ones(3), 900)
    many = sm.MetricCollection({"macro": sm.F1(num_classes=3), "micro": sm.F1(num_classes=3, average="micro"),
                                "auc": sm.AUC(num_classes=3)}).update(y, p)  # fmt: skip
    text = read(render(many, "x"))
    assert "macro: the mean of the classes" in text
    assert "micro: all classes as one" in text
    assert "each against the rest (micro)" in text
    assert "Macro is the mean of the classes" in text
    assert "Macro is" not in read(render(models("old", "new"), "x"))
    assert "best)" not in read(render(models("old", "new"), "x"))


@pytest.mark.slow
def test_windows_are_a_series_with_their_intervals_and_differences() -> None:
    inner = sm.Sharded({n: sm.Task(sm.AUC(), y_true="click", y_score=n) for n in ("old", "new")}, unit="user")
    days = sm.Windowed(inner, width="1d", time="ts", mature_after="1d").update(log())
    page = tree(render({"all": models("old", "new"), "days": days}, "x"))
    charts = [s for s in page.all("svg") if "data-pts" in s.attrs and "Mon 2" in s.attrs["data-pts"]]
    assert len(charts) == 2
    lower = charts[1].attrs["data-pts"]
    for record in days.table():
        assert any(says(t, record["value"]) for t in parts(lower)), record["metric"]
    assert len(charts[1].all("g", class_="pale")) == 2  # the last day of both
    assert "no drift" in page.text or "exclude the difference" in page.text


@pytest.mark.slow
def test_ranking_is_metric_by_k() -> None:
    rng = np.random.default_rng(2)
    n = 8000
    query, grade = np.repeat(np.arange(n // 8), 8), rng.integers(0, 3, n)
    tab = {"g": grade, "q": query, "a": rng.random(n), "b": grade + 2 * rng.random(n)}
    metrics = [*(sm.NDCG(k) for k in (1, 3, 5)), sm.MeanReciprocalRank(5)]
    ranked = {m: sm.Task(metrics, y_true="g", y_score=m, query="q") for m in ("a", "b")}
    both = sm.Sharded(ranked, unit="q").update(tab)
    page = tree(render(both, "x"))
    rows = rows_of(page, class_="rank")
    # A metric with one cut-off is in the table of all metrics, and so is the metric that decides.
    assert list(rows) == ["ndcg"]
    assert [h.text for h in page.all("h2")][:2] == ["Scorecard", "Ranking by cut-off"]
    assert list(rows_of(page, class_="score")) == ["ndcg@1", "mrr@5"]
    found = sm.compare(both.task("b"), both.task("a"))
    for cell, k in zip(rows["ndcg"], (1, 3, 5), strict=False):
        change, _, old, new = parts(cell)
        one = found[f"ndcg@{k}"]
        assert says(change, one.difference.estimate)
        assert says(old, one.b)
        assert says(new, one.a)
    assert [h.text for h in page.all("table", class_="rank")[0].all("th")][:4] == ["metric", "@1", "@3", "@5"]


@pytest.mark.slow
def test_provenance() -> None:
    told = {"command": "streammetrics eval log/", "files": ["one.parquet", "two.parquet"]}
    thing = models("old", "new")
    terms = tree(render(thing, "x", provenance=told)).all("dl", class_="prov")[0]
    text = terms.text
    for want in ("streammetrics eval log/", "one.parquet two.parquet", "60,000 counted", thing.digest(), sm.__version__,
                 "64 groups of user", "left out none", "weights none", "filters none"):  # fmt: skip
        assert want in text


def test_many_rows_left_out_are_told_first() -> None:
    table = log() | {"old": np.where(np.arange(60_000) % 20, log()["old"], np.nan)}
    dropped = sm.MetricCollection(tasks("old"), on_invalid="drop").update(table)
    page = tree(render(dropped, "x"))
    assert "3,000 of 60,000 rows were left out (5.0\u202f%)" in page.all("section", class_="verdict")[0].text
    assert "3,000 bad old" in page.all("dl", class_="prov")[0].text


@pytest.mark.slow
def test_without_units_there_is_no_interval_unless_told() -> None:
    plain = sm.MetricCollection(tasks("old")).update(log())
    text = read(render(plain, "x"))
    assert "Name the unit whose rows belong together" in text
    assert " to 0." not in text
    assert "Say whose" not in read(render(plain, "x", rows_independent=True))
    low, high, *_ = plain.interval()["old/auc"]
    rows = rows_of(tree(render(plain, "x", rows_independent=True)), class_="values")
    found = parts(rows["auc"][0])
    assert any(says(t, low) for t in found)
    assert any(says(t, high) for t in found)


# -- objects ------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_report_writes_a_file_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    things = {"a": card(), "b": [models("old", "new"), by_shop("old", "new")]}
    assert sm.report(things, path, title="several") == path
    before = path.read_text()
    assert "several" in before
    with pytest.raises(sm.InvalidInputError, match=r"metrics, collections, slices, windows.*of class int"):
        sm.report([1], path)
    with pytest.raises(sm.InvalidInputError, match="nothing to report"):
        sm.report({}, path)
    assert path.read_text() == before


@pytest.mark.slow
def test_each_kind_of_object_has_a_page() -> None:
    found = sm.compare(by_shop("old", "new").task("new"), by_shop("old", "new").task("old"))
    single = sm.compare(models("old", "new").task("new"), models("old", "new").task("old"))["auc"]
    auc, rate = sm.AUC().update([0, 1], [0.2, 0.4]), sm.CTR().update(y_true=[0, 1])
    things = (
        single,
        [single, single],
        found,
        found.table(),
        card(),
        card().table(),
        {"t": auc},
        sm.Bundle({"x": rate}),
    )
    for thing in (*things, by_shop("old", "new"), sm.Ledger(rate)):
        text = read(render(thing, "title"))
        assert "title" in text
        assert not re.search(r"\bnan\b", text, re.IGNORECASE)


@pytest.mark.slow
def test_a_table_is_a_table() -> None:
    table = sm.compare(models("old", "new").task("new"), models("old", "new").task("old")).table()
    head, rows = table.texts()
    text = read(render({"mine": table}, "x"))
    for cell in itertools.chain(head, *rows):
        plain = " ".join(cell.split())
        assert plain in text or plain.replace("-", "\N{MINUS SIGN}") in text


def test_what_only_one_side_has_is_told() -> None:
    a = sm.Sharded([sm.AUC(), sm.CTR()], unit="u").update([0, 1] * 40, [0.1, 0.3] * 40, u=list(range(80)))
    b = sm.Sharded([sm.AUC(), sm.LogLoss()], unit="u").update([0, 1] * 40, [0.3, 0.2] * 40, u=list(range(80)))
    text = read(render(sm.compare(a, b), "x"))
    assert "Not compared, because only a has this metric: ctr." in text
    assert "Not compared, because only b has this metric: log_loss." in text


@pytest.mark.slow
@pytest.mark.parametrize("what", ["empty", "one class", "few"])
def test_little_to_show_says_why(what: str) -> None:
    n = {"empty": 0, "one class": 400, "few": 40}[what]
    rng = np.random.default_rng(0)
    table = {"click": rng.integers(0, 2, n) * (what != "one class"), "a": rng.random(n), "b": rng.random(n),
             "user": np.arange(n), "shop": np.arange(n) % 2}  # fmt: skip
    both = sm.Sharded(tasks("a", "b"), unit="user").update(table)
    sliced = sm.Sliced(sm.Sharded(tasks("a", "b"), unit="user"), by="shop").update(table)
    text = read(render({"all": both, "by shop": sliced}, what))
    assert not re.search(r"\bnan\b", text, re.IGNORECASE)
    assert "too few" in text or what == "empty"


# -- hostile and large --------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_what_the_log_says_is_text() -> None:
    shops = sm.Sliced(sm.Sharded(tasks("old", EVIL), unit="user"), by="shop").update(log() | {EVIL: log()["new"]})
    everything = {EVIL: shops, "<img src=x onerror=alert(1)>": models("old", "new")}
    page = render(everything, '"><b>title</b>', provenance={EVIL: [EVIL, EVIL]})
    assert page.count("<script>") == 1
    assert "<img" not in page
    assert "<b>title" not in page
    assert EVIL in read(page)
    assert not re.search(r"url\((?!#hatch)|@import|https?://", page)
    links = [value for node in every(tree(page)) for name, value in node.attrs.items() if name in ("src", "href")]
    assert all(value.startswith("#") for value in links)
    named = sm.scorecard(
        {EVIL: arms()["new"], "old": arms()["old"]}, control="old", primary="ctr", better={"ctr": "high"}
    )
    assert render(named, "x").count("<script>") == 1


@pytest.mark.slow
def test_ten_thousand_slices_stay_a_page() -> None:
    rng = np.random.default_rng(3)
    n = 60_000
    user, key = rng.integers(0, 900, n), rng.integers(0, 10_000, n)
    key[:9000] = 1
    rows = {"user": user, "key": key}
    sides = [sm.Sliced(sm.Sharded(sm.CTR(), unit="user", shards=8), by="key").update(y_true=rng.random(n) < 0.3, **rows)
             for _ in range(2)]  # fmt: skip
    found = sm.compare(*sides)
    page = render(found, "many")
    assert len(page) < 1 << 20
    node = tree(page)
    (table,) = node.all("table", class_="slices")
    kept = [r.attrs["data-name"] for r in table.all("tr") if r.attrs.get("data-few")]
    assert len(kept) == 200
    assert kept[0] == "1"
    more = table.all("tr", class_="more")[0].text
    assert f"And {len(found) - 200:,} slices" in more
    assert f"{len(found):,} slices" in table.text


# -- for every reader ---------------------------------------------------------------------------------------------------


MADE = {
    "models": lambda: models("old", "new"),
    "slices": lambda: by_shop("old", "new"),
    "card": card,
    "values": lambda: sm.MetricCollection(tasks("old")).update(log()),
}


@pytest.mark.slow
@pytest.mark.parametrize("made", MADE)
def test_tables_and_pictures_have_words(made: str) -> None:
    page = tree(render(MADE[made](), "x"))
    assert page.all("table")
    for table in page.all("table"):
        assert table.all("caption")[0].text
        assert table.attrs["role"] == "table"
        for head in table.all("th"):
            assert head.attrs["scope"] in ("col", "row", "colgroup")
        for row in table.all("tr"):
            assert row.attrs["role"] == "row"
    outer = [s for s in page.all("svg") if "aria-hidden" not in s.attrs and "overflow" not in s.attrs]
    assert outer
    for picture in outer:
        assert picture.attrs["role"] == "img"
        assert len(picture.attrs["aria-label"]) > 3
    for figure in page.all("figure"):
        assert figure.all("output") == [] or figure.all("output")[0].text
    ids = [n.attrs["id"] for tag in ("section", "h1", "h2", "pattern") for n in page.all(tag) if "id" in n.attrs]
    assert len(ids) == len(set(ids))
    for link in page.all("a"):
        assert link.attrs["href"].removeprefix("#") in ids


@pytest.mark.slow
def test_notebooks_have_tables() -> None:
    found = sm.compare(models("old", "new").task("new"), models("old", "new").task("old"))
    for thing in (found, found["auc"], card(), found.table()):
        tree(thing._repr_html_())
    html = sm.Sliced(sm.CTR(), by="k").update(y_true=[0, 1] * 500, k=list(range(1000))).table()._repr_html_()
    assert tree(html).all("caption")[0].text == "1,000 rows"
    assert len(tree(html).all("tr")) < 80


def test_tables_of_few_slices_are_shown_in_full(browser: Any, tmp_path: Path) -> None:
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    for count, cut in ((40, 0), (41, 1)):
        slices = sm.Sliced(sm.CTR(), by="k").update(y_true=[0, 1] * count, k=[*range(count)] * 2)
        path = tmp_path / "page.html"
        path.write_text(render(slices, "x"), encoding="utf-8")
        page.goto(path.as_uri())
        boxes = "[...document.querySelectorAll('.scroll')].filter(e => e.scrollHeight > e.clientHeight + 1).length"
        assert page.evaluate(boxes) == cut
    page.close()


@pytest.mark.parametrize("made", MADE)
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_phones_hide_nothing(browser: Any, tmp_path: Path, made: str, theme: str) -> None:
    path = tmp_path / "page.html"
    path.write_text(render(MADE[made](), "x"), encoding="utf-8")
    page = browser.new_page(viewport={"width": 1280, "height": 900}, color_scheme=theme)
    wrong: list[str] = []
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("request", lambda request: wrong.append(request.url) if request.url != path.as_uri() else None)
    page.goto(path.as_uri())
    for width in (1280, 700, 390, 320):
        page.set_viewport_size({"width": width, "height": 900})
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert hidden(page) == []
        # On a phone, no cell is in a box that has to be scrolled within the page.
        cut = "[...document.querySelectorAll('.scroll')].filter(e => e.scrollHeight > e.clientHeight + 1).length"
        assert width > 1060 or page.evaluate(cut) == 0
    page.emulate_media(media="print")
    assert hidden(page) == []
    if made == "slices":
        page.set_viewport_size({"width": 1280, "height": 900})
        page.emulate_media(media="screen")
        page.locator("table.slices thead button[data-key=name]").first.click()
        names = (
            page.locator("table.slices")
            .first.locator("tr[data-few='0']")
            .evaluate_all("r => r.map(e => e.dataset.name)")
        )
        assert names == sorted(names)
        page.locator("input[type=search]").first.fill("a")
        shown = (
            page.locator("table.slices")
            .first.locator("tr[data-few]:visible")
            .evaluate_all("r => r.map(e => e.dataset.name)")
        )
        assert shown
        assert all("a" in name for name in shown)
    page.close()
    assert wrong == []


@pytest.mark.slow
def test_metrics_with_the_same_reason_share_a_line() -> None:
    from streammetrics.reports.measure_rows import collect_reasons

    def row(name: str, reason: str) -> Any:
        return SimpleNamespace(name=name, sub="", word="", bold=False, reason=reason)

    rows = [row("auc", "no rows"), row("ctr", ""), row("mae", "one row"), row("f1", "no rows")]
    assert collect_reasons([*rows, *rows]) == ["auc, f1: no rows.", "mae: one row."]
