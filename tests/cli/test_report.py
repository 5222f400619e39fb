"""The page: whole, escaped, self-contained; in a browser without an error, in both themes, on a phone."""

from __future__ import annotations

import re
import shutil
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import streammetrics as sm
from streammetrics.collect.table import show
from streammetrics.report.page.render import render

BROWSER = next(filter(None, map(shutil.which, ("chromium-headless-shell", "chromium", "google-chrome"))), None)
VOID = {"meta", "br", "hr", "link", "img", "input"}


class Whole(HTMLParser):
    """Reads a page, and counts what is open."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.text: list[str] = []

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: Any) -> None:
        pass

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def read(page: str) -> str:
    """Parse a page; return its text."""
    parser = Whole()
    parser.feed(page)
    assert parser.open == []
    return " ".join(parser.text)


def clicks(n: int = 4000, seed: int = 0) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    p = rng.beta(1, 20, n)
    return {
        "click": (rng.random(n) < p).astype(int),
        "a": p,
        "b": np.clip(p * rng.uniform(0.5, 2, n), 0, 1),
        "shop": np.array([f"shop {i}" for i in rng.integers(0, 5, n)], object),
    }


def scored(table: dict[str, Any], **slices: Any) -> sm.Bundle:
    metrics = [sm.AUC(), sm.LogLoss(), sm.Calibration(), sm.CTR()]
    tasks = {m: sm.Task(metrics, y_true="click", y_score=m) for m in ("a", "b")}
    return sm.Bundle({
        "overall": sm.MetricCollection(tasks).update(table),
        "by shop": sm.Sliced(sm.MetricCollection(tasks), by="shop", **slices).update(table),
    })  # fmt: skip


def test_it_says_what_the_metrics_say() -> None:
    thing = scored(clicks())
    page = render(thing, "a log, 4,000 rows")
    text = read(page)
    for value in thing["overall"].compute().values():
        assert show(value) in text
    for title in (
        "ROC",
        "Precision and recall",
        "Cumulative gain",
        "Reliability",
        "Scores of a",
        "Scores of b",
        "shop 3",
    ):
        assert title in text
    assert not re.search(r"(src|href)=|url\(|@import|https?://", page)
    assert len(page) < 1 << 20


def test_what_the_log_says_is_text() -> None:
    table = clicks()
    table["shop"][:50] = "<script>alert(1)</script>"
    table["shop"][50:60] = '"><img src=x onerror=alert(2)>'
    page = render(scored(table), "<b>log</b>")
    assert page.count("<script>") == 1
    assert "<img" not in page
    assert "<b>log" not in page
    assert "<script>alert(1)</script>" in read(page)


@pytest.mark.parametrize("table", ["empty", "one class", "nothing but ties"])
def test_logs_that_have_little_to_show(table: str) -> None:
    made = clicks(300)
    if table == "empty":
        made = {k: v[:0] for k, v in made.items()}
    elif table == "one class":
        made["click"][:] = 0
    else:
        made["a"][:] = made["b"][:] = 0.5
    read(render(scored(made), table))


def test_thousands_of_slices_and_metrics_alone() -> None:
    table = clicks(20_000)
    table["shop"] = np.array([f"s{i}" for i in np.random.default_rng(1).integers(0, 3000, 20_000)], object)
    tasks = sm.MetricCollection(sm.Task([sm.LogLoss(), sm.CTR()], y_true="click", y_score="a"))
    page = render(sm.Sliced(tasks, by="shop").update(table), "many")
    assert "and 2,0" in read(page) or "slices with fewer rows" in read(page)
    assert len(page) < 2 << 20
    read(render(sm.MAE().update([1.0, 2.0], [1.5, 2.5]), "regression"))
    read(render(sm.AUC(exact=True, scale="real").update([0, 1, 1], [-3.0, 2.0, 9.0]), "exact"))


def test_commands_write_it(run: Any, write: Any, tmp_path: Path) -> None:
    path = write(**{k: list(v) for k, v in clicks().items()})
    report, saved = tmp_path / "report.html", tmp_path / "s.smet"
    ran = run("eval", path, "--label", "click", "--score", "a", "--by", "shop", "--report", report, "--save", saved)
    assert ran.code == 0
    assert "ROC" in read(report.read_text(encoding="utf-8"))
    again = tmp_path / "again.html"
    assert run("show", saved, "--report", again).code == 0
    assert "By shop" in read(again.read_text(encoding="utf-8"))


def families() -> dict[str, sm.MetricCollection]:
    """Two models of each family."""
    rng = np.random.default_rng(4)
    n, k = 600, 4
    y, p = rng.integers(0, k, n), rng.dirichlet(np.ones(k), n)
    better = 0.5 * p + 0.5 * np.eye(k)[y]
    classes = [sm.Accuracy(num_classes=k), sm.AUC(num_classes=k), sm.ExpectedCalibrationError(num_classes=k)]
    Y, s = (rng.random((n, k)) < 0.3).astype(int), rng.random((n, k))
    labels = [sm.F1(num_labels=k), sm.AUC(num_labels=k), sm.LabelRankingLoss(num_labels=k)]
    t, e = rng.normal(0, 1, n), rng.normal(0, 1, n)
    errors = [sm.MAE(), sm.MedianAbsoluteError(), sm.ResidualQuantile(q=0.5)]
    ranked = [sm.NDCG(k) for k in (1, 3, 5, 10)]
    query, grade = np.repeat(np.arange(n // 10), 10), rng.integers(0, 4, n)

    def both(metrics: Any, a: Any, b: Any, truth: Any, role: str, **more: Any) -> sm.MetricCollection:
        tasks = {m: sm.Task(metrics, y_true="t", **{role: m}) for m in ("a", "b")}
        return sm.MetricCollection(tasks).update({"t": truth, "a": a, "b": b, **more})

    return {
        "classes": both(classes, p, better, y, "y_score"),
        "labels": both(labels, s, np.clip(s * 0.5 + Y * 0.4, 0, 1), Y, "y_score"),
        "errors": both(errors, t + e, t + e / 2, t, "y_pred"),
        "rankings": both(ranked, rng.random(n), grade + rng.random(n), grade, "y_score", query=query),
    }


FAMILIES = families()
SHOWN = {
    "classes": ("Confusion matrix of a", "Confusion matrix of b", "Reliability of the class", "by class", "ROC"),
    "labels": ("ROC", "Reliability", "All labels together", "by class"),
    "errors": ("Errors", "Error quantiles"),
    "rankings": ("NDCG by cut-off",),
}


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_has_its_pictures(family: str) -> None:
    thing = FAMILIES[family]
    page = render(thing, family)
    text = read(page)
    for title in SHOWN[family]:
        assert title in text
    for name, value in thing.compute().items():
        assert show(value) in text, name
    read(render(thing.copy().reset(), "no rows"))


def test_a_confusion_matrix_says_its_counts() -> None:
    thing = FAMILIES["classes"]
    matrix = sm.ConfusionMatrix(num_classes=4).of(thing["a/accuracy"].state)
    page = render(thing, "classes")
    for i, j in np.ndindex(4, 4):
        assert f"{i} taken for {j}: {matrix[i, j]} ({matrix[i, j] / matrix[i].sum():.1%})" in page
    each = sm.Recall(num_classes=4, average=None).of(thing["b/accuracy"].state)
    assert all(show(float(v)) in read(page) for v in each)


def test_classes_that_are_many_or_evil() -> None:
    names = [f"<b>{i}" for i in range(40)]
    many = sm.Accuracy(labels="discover").update([*names, names[3]], [*names, names[4]])
    text = read(render(many, "many"))
    assert "most frequent confusions of 40 classes" in text
    few = render(sm.Accuracy(labels="discover").update(["<b>", "&"], ["<b>", "<b>"]), "few")
    assert "<b>" not in few
    assert "Confusion matrix" in read(few)


@pytest.fixture(scope="module")
def browser() -> Any:
    if BROWSER is None:
        pytest.skip("no Chromium here: apt-get install chromium-headless-shell")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"])
        yield running
        running.close()


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_in_a_browser(browser: Any, tmp_path: Path, theme: str) -> None:
    path = tmp_path / "report.html"
    path.write_text(render(scored(clicks()), "a log"), encoding="utf-8")
    page = browser.new_page(viewport={"width": 1280, "height": 900}, color_scheme=theme)
    wrong: list[str] = []
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("console", lambda message: wrong.append(message.text) if message.type in ("error", "warning") else None)
    page.on("request", lambda request: wrong.append(request.url) if request.url != path.as_uri() else None)
    page.goto(path.as_uri())
    ink = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (sum(map(int, re.findall(r"\d+", ink)[:3])) > 384) == (theme == "light")
    for kind in ("line", "area", "dot"):  # every series has a colour of its own, on paper that is not that colour
        drawn = page.evaluate(f"[...document.querySelectorAll('.{kind}')].map(e => {{const s = getComputedStyle(e);"
                              f"const b = e.getBBox(); return [e.classList[1], '{kind}' == 'line' ? s.stroke : s.fill,"
                              " b.width * b.height || b.width + b.height]})")  # fmt: skip
        assert drawn
        assert all(colour not in ("none", ink) and size > 0 for _, colour, size in drawn)
        assert len({colour for _, colour, _ in drawn}) == len({name for name, _, _ in drawn}) == 2
    page.click(".slices thead button[data-column='2']")
    rows = [int(t.replace(",", "")) for t in page.locator(".slices tbody td:nth-child(3)").all_inner_texts()]
    assert rows == sorted(rows, reverse=True)
    page.click(".slices thead button[data-column='0']")
    names = page.locator(".slices tbody tr th:first-child").all_inner_texts()
    assert names == sorted(names)
    page.click("#theme")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") != ink
    page.set_viewport_size({"width": 380, "height": 800})
    assert page.evaluate("document.documentElement.scrollWidth") <= 380
    page.close()
    assert wrong == []


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_families_in_a_browser(browser: Any, tmp_path: Path, theme: str, family: str) -> None:
    path = tmp_path / "report.html"
    path.write_text(render(FAMILIES[family], family), encoding="utf-8")
    page = browser.new_page(viewport={"width": 1280, "height": 900}, color_scheme=theme)
    wrong: list[str] = []
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("request", lambda request: wrong.append(request.url) if request.url != path.as_uri() else None)
    page.goto(path.as_uri())
    kinds = {"classes": "heat", "labels": "line", "errors": "area", "rankings": "dot"}
    drawn = page.evaluate(f"[...document.querySelectorAll('.{kinds[family]}')].map(e => {{const s = getComputedStyle(e);"
                          f"const b = e.getBBox(); return ['{kinds[family]}' == 'line' ? s.stroke : s.fill,"
                          " b.width + b.height]})")  # fmt: skip
    ink = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert len(drawn) >= {"classes": 32, "labels": 4, "errors": 2, "rankings": 8}[family]
    assert all(colour not in ("none", ink) and size > 0 for colour, size in drawn)
    if family == "classes":  # counts can be read on their cells
        tones = page.evaluate(
            "[...new Set([...document.querySelectorAll('.cell')].map(e => getComputedStyle(e).fill))]"
        )
        assert len(tones) == 2
    page.set_viewport_size({"width": 380, "height": 800})
    assert page.evaluate("document.documentElement.scrollWidth") <= 380
    page.close()
    assert wrong == []
