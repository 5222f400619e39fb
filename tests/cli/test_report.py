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
from streammetrics.cli.page import render
from streammetrics.table import show

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
