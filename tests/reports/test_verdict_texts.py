"""Page, terminal and JSON give the same verdicts, and the numbers in their sentences are those of the library."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from cli.conftest import run  # noqa: F401 - a fixture
from pages import number, says, tree

import streammetrics as sm
from streammetrics.reports.charts import linear_axis
from streammetrics.reports.numbers import format_bound, format_fixed, format_number
from streammetrics.reports.page.write import render

ROWS = 20_000
BASE = ("--label", "click", "--unit", "user")
ARMS = (*BASE, "--score", "new", "--arm", "arm", "--control", "control", "--primary", "ctr", "--better", "ctr=high",
        "--guardrail", "log_loss=0.02")  # fmt: skip
REGRESSION = ("--task-type", "regression", "--label", "price", "--unit", "user")
COMMANDS = {
    "models": (*BASE, "--score", "old", "--score", "new"),
    "three models": (*BASE, "--score", "old", "--score", "mid", "--score", "new", "--by", "country"),
    "a primary metric": (*BASE, "--score", "old", "--score", "new", "--primary", "log_loss", "--confidence", 0.9),
    "a control": (*BASE, "--score", "old", "--score", "new", "--control", "new", "--by", "country"),
    "guardrails of models": (*BASE, "--score", "old", "--score", "new", "--guardrail", "calibration=0.05"),
    "arms, one look": (*ARMS, "--by", "country"),
    "arms at the end": (*ARMS, "--by", "country", "--final"),
    "arms before the end": (*ARMS, "--users", 1000, "--planned", 5000),
    "arms at the planned users": (*ARMS, "--planned", 700),
    "arms at every look": (*ARMS, "--sequential"),
    "arms at every look, with a plan": (*ARMS, "--sequential", "--planned", 5000),
    "regression": (*REGRESSION, "--score", "guess", "--score", "wild", "--by", "country"),
    "regression by arm": (*REGRESSION, "--score", "guess", "--arm", "arm", "--control", "control", "--by", "country"),
}
DECISIONS = {
    "arms at the end": {"ship", "do not", "nothing shown"},
    "arms before the end": {"keep running"},
    "arms at the planned users": {"ship", "do not", "nothing shown"},
    "arms at every look": {"ship", "do not", "keep running"},
    "arms at every look, with a plan": {"ship", "do not", "keep running"},
}
LOGS = {
    "five rows": (5, 1.0, 0.0),
    "many rows": (20_000, 1.0, 0.0),
    "far from zero": (3000, 1.0, 1e9),
    "huge errors": (3000, 1e60, 0.0),
    "tiny errors": (3000, 1e-30, 0.0),
}
PLAIN = {"−": "-", "\u202f": " "}


@pytest.fixture(scope="module")
def table() -> dict[str, Any]:
    rng = np.random.default_rng(8)
    user = rng.integers(0, 1200, ROWS)
    arm = np.array(["control", "new", "other"])[user % 3]
    p = np.clip(rng.beta(2, 8, ROWS), 0.001, 0.99)
    price = np.exp(rng.normal(2, 0.6, ROWS))
    return {
        "click": (rng.random(ROWS) < p * np.where(arm == "new", 1.3, 1.0)).astype(int), "user": user, "arm": arm,
        "old": np.clip(p * np.exp(rng.normal(0, 1.0, ROWS)), 0.001, 0.99),
        "mid": np.clip(p * np.exp(rng.normal(0, 0.6, ROWS)), 0.001, 0.99), "new": p,
        "country": np.array(["br", "de", "es", "fr", "in", "it", "jp", "us"])[rng.integers(0, 8, ROWS)],
        "price": price, "guess": price * np.exp(rng.normal(0, 0.2, ROWS)),
        "wild": price * np.exp(rng.normal(0.1, 0.4, ROWS)),
    }  # fmt: skip


@pytest.fixture(scope="module")
def log(table: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("verdicts") / "log.parquet"
    pq.write_table(pa.table(table), path)
    return path


def plain(text: str) -> str:
    """A text of the page with the characters of the terminal, and without spaces, which markup adds around names."""
    for typeset, typed in PLAIN.items():
        text = text.replace(typeset, typed)
    return re.sub(r"\s+", "", text)


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS)
def test_page_terminal_and_json_tell_the_same_verdicts(command: str, run: Any, log: Path, tmp_path: Path) -> None:  # noqa: F811
    page = tmp_path / "page.html"
    asked = ("eval", log, *COMMANDS[command])
    printed = run(*asked, "--report", page).out
    ran = run(*asked, "--report", page, "--format", "json")
    sentences = [verdict["sentence"] for verdict in ran.verdicts]
    assert printed.splitlines()[: len(sentences)] == sentences
    decisions = {verdict.get("decision") for verdict in ran.verdicts}
    if "arms" in command:
        assert decisions <= DECISIONS.get(command, {"one look"})
    assert len(set(sentences)) == len(sentences)
    assert all(verdict["treatment"] in verdict["sentence"] for verdict in ran.verdicts)
    shown = tree(page.read_text(encoding="utf-8"))
    head, (lead, *_) = shown.all("h1")[0].text, [p.text for p in shown.all("p", class_="lead")] or [""]
    assert plain(head) == plain(sentences[0])
    # Terminal and page say how to get a decision where there is none.
    told = [text for text in (printed, lead) if "For a decision, state how you look" in text]
    assert len(told) == (2 if decisions == {"one look"} else 0)
    assert all(plain(sentence) in plain(lead) for sentence in sentences[1:])
    # Every interval of a sentence is an interval of the JSON comparisons.
    for verdict in ran.verdicts:
        for text in re.findall(r"\((?:[\d.]+) % (?:always )?([^()]*?)\)", verdict["sentence"]):
            ends = text.replace(" %", "%").split(" to ")
            kind = "relative" if "%" in text else "difference"
            rows = [r for r in ran.comparisons if not r["by"] and r["treatment"] == verdict["treatment"]]
            assert any(all(says(t, r[f"{kind}_{e}"]) for t, e in zip(ends, ("low", "high"), strict=True))
                       for r in rows if r[f"{kind}_low"] is not None)  # fmt: skip
    for table in shown.all("table", class_="score"):
        treatment = table.all("th", class_="side")[1].text
        for line in table.all("tr"):
            if line.all("td", class_="verd"):
                name, word = line.all("th")[0].children[0].strip(), line.all("td", class_="verd")[0].text
                found = next(r for r in ran.comparisons
                             if not r["by"] and (r["treatment"], r["metric"]) == (treatment, name))  # fmt: skip
                assert same_word(word, found["word"])
                old, new = (c.text for c in line.all("td")[:2])
                assert says(old, found["control_value"])
                assert says(new, found["value"])
    words_of_page(shown, ran.comparisons)


def same_word(page: str, record: str) -> bool:
    """Whether two words tell the same; models that do not differ have "unclear" on pages, and no word elsewhere."""
    return page == record or (page, record) == ("unclear", "")


def words_of_page(page: Any, comparisons: list[dict[str, Any]]) -> None:
    """The words of the slices on a page are those of JSON: one forest for each treatment and metric."""
    by_slice = [r for r in comparisons if r["by"]]
    for forest in page.all("table", class_="slices"):
        metric = forest.all("caption")[0].text.partition(":")[0]
        name, treatment = metric.partition(" (")[0], forest.all("th", class_="side")[0].text.split(" → ")[1]
        for line in [r for r in forest.all("tr") if r.attrs.get("data-few")]:
            key, word = line.all("th")[0].children[0].strip(), line.all("td", class_="verd")[0].text
            change, old, new = parts_of(line)
            fitting = [
                r for r in by_slice
                if r["metric"] == name and next(iter(r["slice"].values())) == key
                and r["treatment"] == treatment
                and says(new, r["value"]) and says(old, r["control_value"])
            ]  # fmt: skip
            assert len(fitting) == 1, (metric, key)
            assert same_word(word, fitting[0]["word"])
            assert says(change, fitting[0]["difference"]) or says(change, fitting[0]["relative"])


def parts_of(line: Any) -> tuple[str, str, str]:
    """The difference, and both values, of a line of a forest."""
    change = line.all("td", class_="delta")[0].text.split(" ±")[0]
    old, new = line.all("td", class_="vals")[0].text.split(" → ")
    return change, old, new


@pytest.mark.slow
def test_totals_are_shown_once_beside_slices(run: Any, log: Path, tmp_path: Path) -> None:  # noqa: F811
    page = tmp_path / "page.html"
    run("eval", log, *ARMS, "--by", "country", "--report", page)
    shown = tree(page.read_text(encoding="utf-8"))
    titles = [h.text for h in shown.all("h2")]
    assert titles.count("Arms") == titles.count("Scorecard (new)") == titles.count("Where it differs") == 1
    terms = [t.text for t in shown.all("dl", class_="prov")[0].all("dt") if t.text != "intervals"]
    assert len(terms) == len(set(terms))
    assert "Curves by arm" in titles
    keys = [" ".join(k.text.split()) for k in shown.all("div", class_="key")]
    assert any("control AUC" in k and "new AUC" in k and "other AUC" in k for k in keys)
    text = shown.text
    for label in ("false positive rate", "true positive rate", "recall", "precision"):
        assert label in text
    for wrong in ("overall/", "shards"):
        assert wrong not in text


def test_curves_of_arms_are_those_of_each_arm(table: dict[str, Any]) -> None:
    arms = sm.Sliced(sm.Sharded(sm.AUC(), unit="user"), by="arm")
    arms.update(y_true=table["click"], y_score=table["new"], user=table["user"], arm=table["arm"])
    page = tree(render(sm.scorecard(arms, control="control", primary="auc"), "arms"))
    keys = " ".join(k.text for k in page.all("div", class_="key"))
    for key in arms.keys:
        rows = table["arm"] == key
        value = sm.AUC().update(table["click"][rows], table["new"][rows]).compute()
        assert f"{key} AUC {value:.4f}" in keys


class TestRegression:
    @staticmethod
    def states(y: Any, *guesses: Any, parts: int = 1) -> sm.MetricCollection:
        """A collection of one model or several, merged from parts."""
        metrics = [sm.MAE(), sm.MedianAbsoluteError(), sm.ResidualQuantile(q=0.05), sm.MeanError()]
        tasks = {f"m{i}": sm.Task(metrics, y_true="y", y_pred=f"m{i}") for i in range(len(guesses))}
        total = sm.MetricCollection(tasks)
        for part in range(parts):
            at = slice(part, None, parts)
            total = total.merge(
                sm.MetricCollection(tasks).update({"y": y[at]} | {f"m{i}": g[at] for i, g in enumerate(guesses)})
            )
        return total

    @pytest.mark.parametrize("models", [1, 2])
    @pytest.mark.parametrize("name", LOGS)
    def test_numbers_are_those_of_the_metrics(self, name: str, models: int) -> None:
        rows, size, offset = LOGS[name]
        rng = np.random.default_rng(3)
        y = offset + size * rng.normal(size=rows)
        guesses = [y + size * rng.normal(size=rows) * np.exp(rng.normal(0, 2, rows)) for _ in range(models)]
        page = tree(render(self.states(y, *guesses, parts=3 if rows > 5 else 1), "x"))
        told = " ".join(o.text for o in page.all("output"))
        for i, guess in enumerate(guesses):
            who = f"m{i} "
            median = sm.ResidualQuantile(q=0.5).update(y, guess).compute()
            most = sm.ErrorQuantile(q=0.9).update(y, guess).compute()
            medians, errors = told.split("Medians: ")[1].split(". The absolute error")
            for text, value in ((medians, median), (errors.split("at most: ")[1], most)):
                shown = next((t for t in text.rstrip(".").split(", ") if t.startswith(who)), text.rstrip("."))
                assert shown.removeprefix(who) == format_number(value)
        labels = [t.text for svg in page.all("svg") for t in svg.all("text")]
        assert labels
        assert max(map(len, labels)) < 30
        assert not re.search(r"\d{3}(,\d{3}){4}", page.text)

    def test_measures_without_a_direction_do_not_agree(self) -> None:
        rng = np.random.default_rng(4)
        y = rng.normal(size=6000)
        metrics = [sm.MAE(), sm.RMSE(), sm.R2(), sm.MeanError(), sm.ResidualQuantile(q=0.05)]
        tasks = {name: sm.Task(metrics, y_true="y", y_pred=name) for name in ("a", "b")}
        rows = {
            "y": y,
            "a": y + rng.normal(size=6000),
            "b": y + 2 * rng.normal(size=6000),
            "user": np.arange(6000) // 4,
        }
        page = tree(render(sm.Sharded(tasks, unit="user").update(rows), "x"))
        assert "All 3 measures that have a better direction agree." in page.all("p", class_="lead")[0].text
        assert "Ranking" not in [h.text for h in page.all("h2")]
        assert "residual_quantile@0.05" in page.all("table", class_="score")[0].text


@pytest.mark.parametrize("high", [1e6, 3e9, 2e15, 4e47, 9e299])
@pytest.mark.parametrize("low", [0.0, -1.0])
def test_labels_of_large_axes_are_short_and_true(low: float, high: float) -> None:
    ticks = linear_axis(low * high, high).ticks
    assert len(ticks) >= 3
    for value, text in ticks:
        assert len(text) <= 12
        assert number(text)[0] == pytest.approx(value)


def test_huge_numbers_have_an_exponent() -> None:
    assert format_fixed(-1.1971e116, 3) == "−1.197e+116"
    assert format_fixed(123_456_789.5, 1) == "123,456,789.5"
    assert format_bound(7.75e25) == "±7.8e+25"
    assert sm.inference.number_format.DifferenceFormat(3, False)(1.5e304) == "+1.5e+304"
