"""The page: whole, escaped, self-contained; in a browser without an error, in both themes, on a phone."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pages import hidden, read

import streammetrics as sm
from streammetrics.reading.table import format_value
from streammetrics.reports.page.write import render


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
        assert format_value(value) in text
    for title in (
        "ROC",
        "Precision and recall",
        "highest-scored rows",
        "Reliability",
        "Scores of a",
        "Scores of b",
        "shop 3",
    ):
        assert title in text
    assert not re.search(r"src=|href=\"[^#]|url\((?!#hatch)|@import|https?://", page)
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


@pytest.mark.slow
def test_thousands_of_slices_and_metrics_alone() -> None:
    table = clicks(20_000)
    table["shop"] = np.array([f"s{i}" for i in np.random.default_rng(1).integers(0, 3000, 20_000)], object)
    tasks = sm.MetricCollection(sm.Task([sm.LogLoss(), sm.CTR()], y_true="click", y_score="a"))
    page = render(sm.Sliced(tasks, by="shop").update(table), "many")
    assert "and 2,0" in read(page) or "slices with fewer rows" in read(page)
    assert len(page) < 2 << 20
    read(render(sm.MAE().update([1.0, 2.0], [1.5, 2.5]), "regression"))
    read(render(sm.AUC(exact=True, scale="real").update([0, 1, 1], [-3.0, 2.0, 9.0]), "exact"))


@pytest.mark.slow
def test_commands_write_it(run: Any, write: Any, tmp_path: Path) -> None:
    path = write(**{k: list(v) for k, v in clicks().items()})
    report, saved = tmp_path / "report.html", tmp_path / "s.smet"
    ran = run("eval", path, "--label", "click", "--score", "a", "--by", "shop", "--report", report, "--save", saved)
    assert ran.code == 0
    assert "ROC" in read(report.read_text(encoding="utf-8"))
    again = tmp_path / "again.html"
    assert run("show", saved, "--report", again).code == 0
    assert "By shop" in read(again.read_text(encoding="utf-8"))


@cache
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


SHOWN = {
    "classes": ("Confusion matrix of a", "Confusion matrix of b", "Reliability of the class", "by class", "ROC"),
    "labels": ("ROC", "Reliability", "All labels together", "by class"),
    "errors": ("Errors", "Error quantiles"),
    "rankings": ("NDCG by cut-off",),
}


@pytest.mark.slow
@pytest.mark.parametrize("family", SHOWN)
def test_every_family_has_its_pictures(family: str) -> None:
    thing = families()[family]
    page = render(thing, family)
    text = read(page)
    for title in SHOWN[family]:
        assert title in text
    for name, value in thing.compute().items():
        assert format_value(value) in text, name
    read(render(thing.copy().reset(), "no rows"))


def test_a_confusion_matrix_says_its_counts() -> None:
    thing = families()["classes"]
    matrix = sm.ConfusionMatrix(num_classes=4).reading(thing["a/accuracy"].state).value
    page = render(thing, "classes")
    for i, j in np.ndindex(4, 4):
        assert f"{i} predicted as {j}: {matrix[i, j]} ({matrix[i, j] / matrix[i].sum():.1%})" in page
    each = sm.Recall(num_classes=4, average=None).reading(thing["b/accuracy"].state).value
    assert all(format_value(float(v)) in read(page) for v in each)


def test_classes_that_are_many_or_evil() -> None:
    names = [f"<i>{i}" for i in range(40)]
    many = sm.Accuracy(labels="discover").update([*names, names[3]], [*names, names[4]])
    text = read(render(many, "many"))
    assert "most frequent confusions of 40 classes" in text
    few = render(sm.Accuracy(labels="discover").update(["<i>", "&"], ["<i>", "<i>"]), "few")
    assert "<i>" not in few
    assert "Confusion matrix" in read(few)


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
    drawn = page.evaluate("[...document.querySelectorAll('.why .alt:not(.two) path.ln')].map(e => {const b = e.getBBox();"
                          "return [e.classList[1], getComputedStyle(e).stroke, b.width + b.height]})")  # fmt: skip
    assert all(colour not in ("none", ink) and size > 0 for _, colour, size in drawn)
    assert len({colour for _, colour, _ in drawn}) == len({name for name, _, _ in drawn}) == 2
    page.click(".grid thead button[data-column='2']")
    rows = [int(t.replace(",", "")) for t in page.locator(".grid tbody tr td:nth-child(3)").all_inner_texts()]
    assert rows == sorted(rows, reverse=True)
    page.click(".grid thead button[data-column='0']")
    names = page.locator(".grid tbody tr th:first-child").all_inner_texts()
    assert names == sorted(names)
    picture = page.locator("svg[data-pts]").first
    before = page.locator("output").first.inner_text()
    picture.focus()
    page.keyboard.press("ArrowRight")
    assert page.locator("output").first.inner_text() != before
    page.click("figure:has(svg[data-pts]) .seg input[value=two] >> nth=0")
    assert page.locator(".alt.two").first.is_visible()
    for width in (1060, 390, 320):
        page.set_viewport_size({"width": width, "height": 800})
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert hidden(page) == []
    page.emulate_media(media="print")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    page.close()
    assert wrong == []


@pytest.mark.parametrize("family", SHOWN)
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_families_in_a_browser(browser: Any, tmp_path: Path, theme: str, family: str) -> None:
    path = tmp_path / "report.html"
    path.write_text(render(families()[family], family), encoding="utf-8")
    page = browser.new_page(viewport={"width": 1280, "height": 900}, color_scheme=theme)
    wrong: list[str] = []
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("request", lambda request: wrong.append(request.url) if request.url != path.as_uri() else None)
    page.goto(path.as_uri())
    kinds = {"classes": "rect.heat", "labels": "path.ln", "errors": "path.a0, path.a1", "rankings": ".why .halo"}
    # Charts have the same size, and labels the same font, however many there are.
    sizes = page.evaluate("[...document.querySelectorAll('.why figure:not(.broad)')].map(e => e.offsetWidth)")
    assert max(sizes) - min(sizes) <= 1
    assert max(sizes) < 400
    drawn = page.evaluate(f"[...document.querySelectorAll('{kinds[family]}')].filter(e => e.getClientRects().length).map("
                          f"e => {{const s = getComputedStyle(e), b = e.getBBox(); return ["
                          f"'{family}' == 'labels' ? s.stroke : s.fill, b.width + b.height]}})")  # fmt: skip
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
