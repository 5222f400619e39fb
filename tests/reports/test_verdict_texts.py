"""Page, terminal and JSON give the same verdicts, and the numbers in their sentences are those of the library."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.stats
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
    "arms at the end": {"ship", "do not", "inconclusive"},
    "arms before the end": {"keep running"},
    "arms at the planned users": {"ship", "do not", "inconclusive"},
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
        "device": np.array(["phone", "tablet"])[user % 2],
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
    assert "shard" not in shown.text
    if "regression" in command:
        assert "positives" not in shown.text
        assert "rate, such as ctr" not in shown.text


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
    printed = run("eval", log, *ARMS, "--by", "country", "--by", "device", "--report", page).out
    assert printed.count("97.5 % intervals, because 2 comparisons with control are valid together at 95 %") == 1
    shown = tree(page.read_text(encoding="utf-8"))
    titles = [h.text for h in shown.all("h2")]
    assert titles.count("Arms") == titles.count("Scorecard (new)") == titles.count("Where it differs by country") == 1
    assert titles.count("Where it differs by device") == 1
    for once in ("Largest impact first", "A difference is the change from control, in percent of control.",
                 "2 comparisons with control are valid together at 95\u202f%", "users so far"):  # fmt: skip
        assert shown.text.count(once) == 1
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
        assert "All 3 metrics that have a better direction agree." in page.all("p", class_="lead")[0].text
        assert not any("Ranking" in h.text for h in page.all("h2"))
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


# -- numbers -----------------------------------------------------------------------------------------------------------

MEASURES = ("auc", "average_precision", "log_loss", "normalized_entropy", "calibration", "ctr", "predicted_ctr")
NUMBER = re.compile(r"(?<![\w.])[+−-]?\d+(?:,\d{3})*(?:\.\d+)?(?:e[+-]\d+)?(?:[\u202f ]?%)?")
COUNTRIES = ("br", "de", "es", "fr", "in", "it", "jp", "us")
P_FLOOR = 1e-15


def tells(text: str, *expected: float) -> None:
    """Assert that a text has these numbers, in this order and to their last digit, and no others."""
    found = [t.replace(" ", "").replace("+", "") if "e" not in t else t for t in NUMBER.findall(text)]
    assert len(found) == len(expected), (text, found, expected)
    for shown, value in zip(found, expected, strict=True):
        if "e" in shown:
            assert float(shown) == float(f"{value:.{len(shown.partition('e')[0].partition('.')[2])}e}"), (shown, text)
        else:
            assert says(shown, value), (shown, value, text)


def counted(table: dict[str, Any], score: str, by: Any = ()) -> Any:
    """The metrics that `eval` computes."""
    metrics = [sm.AUC(), sm.AveragePrecision(), sm.LogLoss(), sm.NormalizedEntropy(), sm.Calibration(), sm.CTR(),
               sm.PredictedCTR()]  # fmt: skip
    made = sm.Sharded(metrics, unit="user")
    columns = {name: table[name] for name in ("user", *by)}
    return (sm.Sliced(made, by=by) if by else made).update(y_true=table["click"], y_score=table[score], **columns)


def limits(one: Any) -> tuple[float, float, float]:
    return one.estimate, one.low, one.high


def curve_numbers(rows: dict[str, tuple[Any, Any]]) -> list[list[float]]:
    """The numbers below the curves of labels and scores: a list for each sentence."""
    rates, precisions, ratios, medians = [0.01], [0.1], [], []
    for y, p in rows.values():
        roc, pr = (curve(tolerance=0.0).update(y, p).compute() for curve in (sm.ROCCurve, sm.PRCurve))
        rates.append(np.interp(0.01, roc.fpr, roc.tpr))
        precisions.append(np.interp(0.1, pr.recall[::-1], pr.precision[::-1]))
        bins = sm.CalibrationCurve(n_bins=20, strategy="quantile").update(y, p).compute()
        ratio = bins.prob_pred / bins.prob_true
        ratios += [ratio.min(), ratio.max()]
        medians.append([np.quantile(p[y == k], 0.5, method="inverted_cdf") for k in (0, 1)])
    return [rates, precisions, ratios, *medians]


def check_curves(page: Any, rows: dict[str, tuple[Any, Any]]) -> None:
    """The sentences and keys of the charts of a page."""
    sentences = [o.text for o in page.all("output")]
    for text, numbers in zip(sentences, curve_numbers(rows), strict=True):
        tells(text, *numbers)
    keys = [k.text for k in page.all("div", class_="key") if " AUC " in k.text or " AP " in k.text]
    for metric, text in zip((sm.AUC(), sm.AveragePrecision()), keys, strict=True):
        tells(text, *(metric.copy().update(*columns).compute() for columns in rows.values()))


def check_lines(printed: str, names: tuple[str, ...], keys: Any, expected: Any) -> int:
    """The lines of tables on a terminal whose columns are `names` and then metrics; return how many there are.

    `expected(keys, metric)` are the numbers of a cell.
    """
    heads: list[str] = []
    seen = 0
    for line in printed.splitlines():
        words = line.split()
        if words[: len(names)] == list(names):
            heads = words[len(names) :]
        elif heads and tuple(words[: len(names)]) in keys:
            key = tuple(words[: len(names)])
            tells(line.removeprefix(words[0]), *(x for head in heads for x in expected(key, head)))
            seen += len(heads)
        elif not words:
            heads = []
    return seen


@pytest.mark.slow
def test_numbers_of_one_model(run: Any, log: Path, table: dict[str, Any], tmp_path: Path) -> None:  # noqa: F811
    asked = ("eval", log, *BASE, "--score", "new", "--by", "country", "--report", tmp_path / "page.html")
    printed, ran = run(*asked).out, run(*asked, "--format", "json")
    one, slices = counted(table, "new"), counted(table, "new", ("country",))
    intervals = {(): one.interval()} | {(k,): v for k, v in slices.interval().items()}
    values = {(): one.compute()} | {(k,): v for k, v in slices.compute().items()}
    assert len(ran.records) == len(MEASURES) * (1 + len(COUNTRIES))
    for row in ran.records:
        key = tuple(row["slice"].values())
        shown = intervals[key][row["metric"]]
        assert row["value"] == values[key][row["metric"]]
        assert (row["interval_low"], row["interval_high"]) == (shown.low, shown.high)
    page = tree((tmp_path / "page.html").read_text(encoding="utf-8"))
    tells(page.all("h1")[0].text.partition(log.name)[2], ROWS)
    tells(page.all("p", class_="lead")[0].text, one.compute()["auc"], 0.95, *limits(one.interval()["auc"])[1:])
    check_curves(page, {"new": (table["click"], table["new"])})

    def cell(key: tuple[str], name: str) -> tuple[float, ...]:
        rows = table["country"] == key[0]
        counts = {"rows": rows.sum(), "positives": table["click"][rows].sum()}
        return (counts[name],) if name in counts else limits(intervals[key][name])

    lines = printed.splitlines()
    tells(lines[0].partition(log.name)[2], ROWS)
    for name in MEASURES:
        tells(next(line for line in lines if line.startswith(name + " ")), *limits(intervals[()][name]))
    assert check_lines(printed, ("country",), {(c,) for c in COUNTRIES}, cell) == len(COUNTRIES) * (2 + len(MEASURES))


@pytest.mark.slow
def test_numbers_of_two_models(run: Any, log: Path, table: dict[str, Any], tmp_path: Path) -> None:  # noqa: F811
    asked = ("eval", log, *BASE, "--score", "old", "--score", "new", "--report", tmp_path / "page.html")
    printed, ran = run(*asked).out, run(*asked, "--format", "json")
    new, old = counted(table, "new"), counted(table, "old")
    found = sm.compare(new, old)
    assert [row["metric"] for row in ran.comparisons] == list(MEASURES)
    for row in ran.comparisons:
        one = found[row["metric"]]
        assert (row["value"], row["control_value"]) == (one.a, one.b)
        for kind in ("difference", "relative"):
            change = getattr(one, kind)
            assert [row[kind], row[f"{kind}_low"], row[f"{kind}_high"]] == pytest.approx(limits(change), rel=1e-12)
        assert (row["p_value"], row["word"] == "better") == (one.p_value, one.better == "a")
    auc, words = found["auc"], [c.better for c in found.values() if c.better]
    page = tree((tmp_path / "page.html").read_text(encoding="utf-8"))
    main = (auc.difference.estimate, 0.95, auc.difference.low, auc.difference.high)
    for text in (printed.splitlines()[0], page.all("h1")[0].text):
        tells(text, *main)
    assert set(words) == {"a"}
    tells(page.all("p", class_="lead")[0].text, abs(auc.a - auc.b), auc.b, auc.a, len(words))
    facts = [d.text for d in page.all("dl", class_="facts")[0].all("dd")]
    assert auc.p_value < 0.001
    tells(facts[0], (auc.difference.high - auc.difference.low) / 2, 0.001)
    tells(" ".join(facts[1:]))
    check_curves(page, {name: (table["click"], table[name]) for name in ("old", "new")})
    lines = printed.splitlines()
    # The click rate has no model, so the terminal leaves it out.
    for name in (m for m in MEASURES if m != "ctr"):
        one = found[name]
        numbers = (*limits(one.difference), *limits(one.relative), max(one.p_value, P_FLOOR))
        first, second = (line for line in lines if line.startswith(name + " "))
        tells(first, one.b, one.a, *numbers)
        tells(second, *limits(old.interval()[name]), *limits(new.interval()[name]))


@pytest.mark.slow
@pytest.mark.parametrize("way", ["final", "sequential"])
def test_numbers_of_three_arms(way: str, run: Any, log: Path, table: dict[str, Any], tmp_path: Path) -> None:  # noqa: F811
    looks: dict[str, Any] = {"final": {"final": True}, "sequential": {"sequential": True, "planned": 5000}}[way]
    options = {"final": ("--final",), "sequential": ("--sequential", "--planned", 5000)}[way]
    asked = ("eval", log, *ARMS, "--by", "country", *options, "--report", tmp_path / "page.html")
    printed, ran = run(*asked).out, run(*asked, "--format", "json")
    states = counted(table, "new", ("arm", "country"))
    users = {a: len(np.unique(table["user"][table["arm"] == a])) for a in ("control", "new", "other")}
    card = sm.scorecard(
        {arm: states.select(lambda k, a=arm: k[0] == a).rollup("country") for arm in users},
        control="control", primary="ctr", guardrails={"log_loss": 0.02}, users=users,
        secondary=[m for m in MEASURES if m not in ("ctr", "log_loss", "predicted_ctr")], better={"ctr": "high"}, **looks,
    )  # fmt: skip
    rows = {(r["treatment"], r["metric"]): r for r in card.table()}
    slices = {(r["country"], r["treatment"], r["metric"]): r for r in card.slices(adjust="bh")}
    for verdict in ran.verdicts:
        own = card.verdicts[verdict["treatment"]]
        assert (verdict["sentence"], verdict["decision"]) == (own.sentence, own.decision)
        assert {n: m["word"] for n, m in verdict["metrics"].items()} == {
            m: r["word"] for (t, m), r in rows.items() if t == verdict["treatment"]
        }
    for row in ran.comparisons:
        if row["metric"] != "predicted_ctr":
            own = (slices if row["by"] else rows)[*row["slice"].values(), row["treatment"], row["metric"]]
            assert [row[n] for n in ("value", "control_value", "word")] == [
                own[n] for n in ("value", "control_value", "word")
            ]
            change = [row[f"relative{end}"] for end in ("", "_low", "_high")]
            assert change == pytest.approx([own[n] for n in ("change", "low", "high")], rel=1e-9)

    def change(treatment: str, name: str) -> tuple[float, float, float]:
        row = rows[treatment, name]
        return row["change"], row["low"], row["high"]

    page = tree((tmp_path / "page.html").read_text(encoding="utf-8"))
    lines = printed.splitlines()
    loss, ctr = change("new", "log_loss"), change("other", "ctr")
    for text in (lines[0], page.all("h1")[0].text):
        tells(text, loss[0], 0.975, *loss[1:], 0.02)
    rest = (detectable(states.rollup("arm")),) if way == "final" else (card.verdicts["other"].more_users,)
    for text in (lines[1], page.all("p", class_="lead")[0].text):
        tells(text.replace("about ", ""), ctr[0], 0.975, *ctr[1:], *rest)
    facts = [d.text for d in page.all("dl", class_="facts")[0].all("dd")]
    tells(facts[0], *(() if way == "final" else (users["new"] + users["control"], 5000)))
    tells(facts[1])
    for text, arm in zip(facts[2:], ("new", "other"), strict=True):
        tells(text, 0, 1, *change(arm, "log_loss"), 0.02, 1.02 * rows[arm, "log_loss"]["control_value"])
    by_arm = {a: (table["click"][table["arm"] == a], table["new"][table["arm"] == a]) for a in users}
    check_curves(page, by_arm)
    for text in ("users so far", "the shares are not tested"):
        told = [t for t in [*lines, *(p.text for p in page.all("p", class_="note"))] if text in t.lower()]
        assert len(told) == 2
        for one in told:
            tells(one.replace("=", " "), *((1200,) if "so far" in one else (100 / 3,) * 3))
    shares = {u["arm"]: u for u in ran.users}
    own_shares = sm.sample_ratio_mismatch(users).shares
    for arm, one in shares.items():
        assert (one["users"], one["share"]) == (users[arm], own_shares[arm])
        line = next(line for line in lines if re.match(rf"{arm} +{users[arm]} ", line))
        tells(line, users[arm], one["share"], one["share_low"], one["share_high"])
    for (treatment, name), row in rows.items():
        line = next(line for line in lines if re.match(rf"{treatment} +{name} +{row['role']}", line))
        limit = (0.02, 1.02 * row["control_value"]) if row["role"] == "guardrail" else ()
        p_value = max(row["p_value"], P_FLOOR)
        tells(line, row["control_value"], row["value"], *change(treatment, name), *limit, p_value)
    check_slices(printed, page, slices, table)


def detectable(arms: Any) -> float:
    """The difference of the primary metric that would most likely have been detected, from its standard error."""
    one = sm.compare(arms["other"], arms["control"], relative=True, confidence=0.975)["ctr"].relative
    logs = np.log1p([one.estimate, one.low, one.high])
    power = scipy.stats.norm.ppf(0.8)
    return float(
        np.expm1(max(logs[2] - logs[0], logs[0] - logs[1]) + power * one.standard_error / (1.0 + one.estimate))
    )


def check_slices(printed: str, page: Any, slices: dict[tuple[str, str, str], Any], table: dict[str, Any]) -> None:
    """The slices of terminal and page."""

    def cell(key: tuple[str, str], name: str) -> tuple[float, ...]:
        row = slices.get((*key, name), {})
        return (np.sum(table["country"] == key[0]),) if name == "rows" else (row["change"], row["low"], row["high"])

    keys = {(c, t) for c in COUNTRIES for t in ("new", "other")}
    assert check_lines(printed, ("country", "treatment"), keys, cell) == len(keys) * 7
    seen = 0
    for forest in page.all("table", class_="slices"):
        name, arm = re.fullmatch(r"(\w+) \((\w+)\): .*", forest.all("caption")[0].text).groups()  # type: ignore[union-attr]
        for line in [r for r in forest.all("tr") if r.attrs.get("data-few")]:
            country = line.all("th")[0].children[0].strip()
            for text, column in zip(parts_of(line), ("change", "control_value", "value"), strict=True):
                tells(text, slices[country, arm, name][column])
            seen += 1
    assert seen == len(slices)
