"""Pages of the dashboard in a real browser: nothing from elsewhere, nothing in anybody's way, live without a flicker."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from typing import Any
from urllib.parse import urlsplit

import pytest
from serve.evaluations import ALL
from serve.sites import Site, served, site_of

SIZES = {"wide": {"width": 1280, "height": 900}, "phone": {"width": 390, "height": 844}}
SMALL = 200_000
RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]


@pytest.fixture(scope="module")
def site(browser: Any) -> Iterator[Site]:
    with served(site_of()) as running:
        yield running


@contextlib.contextmanager
def opened(browser: Any, url: str, **more: Any) -> Iterator[Any]:
    """A page, whose errors are ours."""
    context = browser.new_context(**{"viewport": SIZES["wide"], "reduced_motion": "reduce"} | more)
    page = context.new_page()
    said: list[str] = []
    page.on("console", lambda one: said.append(one.text) if one.type in ("error", "warning") else None)
    page.on("pageerror", lambda one: said.append(str(one)))
    page.goto(url)
    yield page
    context.close()
    assert said == []


@pytest.mark.parametrize("name", ["", *(f"experiments/{n}" for n in ALL)])
def test_a_page_is_small_and_asks_nobody_else(browser: Any, site: Site, name: str) -> None:
    context = browser.new_context(viewport=SIZES["wide"])
    page, hosts, sizes, said = context.new_page(), set(), [], []
    page.on("console", lambda one: said.append(one.text))
    page.on("dialog", lambda one: said.append(one.message))
    page.on("request", lambda one: hosts.add(urlsplit(one.url).netloc))
    page.on("response", lambda one: sizes.append(0 if one.url.endswith("/live") else len(one.body())))
    page.goto(f"{site.url}/{name}")
    page.locator("#live", has_text="Live.").wait_for()
    assert hosts == {urlsplit(site.url).netloc}
    assert sum(sizes) < SMALL
    assert said == []
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    context.close()


ALIKE = [(name, size, theme) for name in ("", "experiments/running") for size in SIZES for theme in ("light", "dark")]
OTHERS = [
    ("experiments/mismatch", "wide", "dark"),
    ("experiments/stale", "phone", "light"),
    ("experiments/three", "phone", "dark"),
    ("experiments/weird", "wide", "light"),
    ("experiments/early", "wide", "dark"),
    ("experiments/empty", "phone", "light"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "size", "theme"), [*ALIKE, *OTHERS])
def test_nothing_is_in_the_way_of_anybody(browser: Any, site: Site, name: str, size: str, theme: str) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright")
    with opened(browser, f"{site.url}/{name}", viewport=SIZES[size], color_scheme=theme, bypass_csp=True) as page:
        found = axe.Axe().run(page, options={"runOnly": {"type": "tag", "values": RULES}})
        assert found.violations_count == 0, found.generate_report()
        assert page.evaluate("document.documentElement.scrollWidth") <= SIZES[size]["width"]


def test_the_narrowest_phone_hides_nothing(browser: Any, site: Site) -> None:
    with opened(browser, f"{site.url}/experiments/running", viewport={"width": 320, "height": 700}) as page:
        assert page.evaluate("document.documentElement.scrollWidth") <= 320
        unseen = page.evaluate(
            "[...document.querySelectorAll('tbody td, tbody th')].filter(e => !e.closest('details:not([open])') && "
            "e.textContent.trim() && e.getClientRects().length == 0).map(e => e.textContent)"
        )
        assert unseen == []


def test_it_reads_without_javascript(browser: Any, site: Site) -> None:
    with opened(browser, f"{site.url}/experiments/three?by=hour", java_script_enabled=False) as page:
        assert page.locator("h1").inner_text() == "Ship ranker b: ctr +5.7\u202f%."
        assert not page.locator(".tools").first.is_visible()  # nothing that does not work
        page.locator(".told a", has_text="ranker d").click()
        assert page.locator("h1").inner_text().startswith("Do not ship ranker d")
        assert "by=hour" in page.url
        page.locator("input[name=from]").fill("2026-06-02")
        page.locator(".range button").click()
        assert "from=2026-06-02" in page.url
        assert "arm=ranker+d" in page.url
        page.get_by_role("link", name="Experiments").click()
        page.wait_for_load_state()  # without JavaScript, rows appear while the page is still being parsed
        assert page.locator(".glance tbody tr").count() == len(ALL)


def test_everything_is_reached_by_keyboard(browser: Any, site: Site) -> None:
    with opened(browser, f"{site.url}/experiments/running") as page:
        reached = set()
        for _ in range(120):
            page.keyboard.press("Tab")
            reached.add(page.evaluate("document.activeElement.textContent.trim() || document.activeElement.tagName"))
        assert {"Experiments", "Scorecard", "by hour", "show", "accept 2026-06-02T06 conversions-0"} <= reached
        chart = page.locator(".looks svg")
        chart.focus()
        page.keyboard.press("ArrowRight")
        assert "users" in page.locator(".looks output").inner_text()


@pytest.fixture
def live(browser: Any) -> Iterator[tuple[Site, Any]]:
    with served(site_of()) as site, opened(browser, f"{site.url}/experiments/running") as page:
        page.locator("#live", has_text="Live.").wait_for()
        yield site, page


def newer(site: Site, name: str, **more: Any) -> None:
    """Show another evaluation."""
    site.board.put(replace(ALL[name](), experiment="running", at=site.board.evaluations["running"].at + 60, **more))


def test_the_verdict_turns_by_itself(live: tuple[Site, Any]) -> None:
    site, page = live
    page.evaluate("window.mine = [...document.querySelector('main').children].map(e => e.id ? e : null)")
    newer(site, "ship")
    page.locator("#verdict", has_text="Ship treatment").wait_for()
    assert page.locator("#said").text_content() == "Ship treatment: ctr +5.7\u202f%."  # what a screen reader says
    assert page.title() == "Ship treatment: ctr +5.7\u202f%."
    kept = page.evaluate("window.mine.filter(e => e.isConnected).map(e => e.id)")
    assert {"arms", "slices", "time", "reading"} <= set(kept)  # what is the same is not touched
    assert not {"first", "score"} & set(kept)
    page.wait_for_timeout(1100)  # between two looks
    newer(site, "mismatch")
    page.locator("#verdict", has_text="No verdict").wait_for()
    assert page.locator("#alert").is_visible()
    assert page.locator("#said").text_content() == "No verdict: the arms are not comparable."
    assert page.evaluate("[...document.querySelector('main').children].map(e => e.id).slice(0, 2)") == [
        "alert",
        "first",
    ]


def test_a_swap_leaves_a_reader_where_it_is(live: tuple[Site, Any]) -> None:
    site, page = live
    page.locator(".slices button[data-key=diff]").click()
    page.locator(".slices button[data-key=diff]").click()
    page.locator("#slices input[type=search]").fill("o")
    page.locator("#definition summary").click()
    order = page.locator("#slices tbody tr:visible th").all_inner_texts()
    page.locator("#slices input[type=search]").focus()
    top = page.locator("#slices h2").bounding_box()["y"]
    rows = [s._replace(rows=s.rows + 1, bound=1e-9) for s in ALL["stale"]().slices]
    more = [row._replace(word="held") for row in ALL["stale"]().table]
    newer(site, "stale", slices=rows, table=more)
    page.locator("#stale").wait_for()
    assert page.locator("#slices tbody tr:visible th").all_inner_texts() == order
    assert page.locator("#slices input[type=search]").input_value() == "o"
    assert page.evaluate("document.activeElement.type") == "search"
    assert page.locator("#definition details").get_attribute("open") is not None
    assert abs(page.locator("#slices h2").bounding_box()["y"] - top) < 2


def test_the_stream_closes_with_the_page(live: tuple[Site, Any]) -> None:
    site, page = live
    assert site.board.open == 1
    page.goto("about:blank")
    for _ in range(100):
        if not site.board.open:
            break
        page.wait_for_timeout(20)
    assert site.board.open == 0


def test_the_list_is_live_too(browser: Any) -> None:
    with served(site_of()) as site, opened(browser, f"{site.url}/") as page:
        page.locator("#live", has_text="Live.").wait_for()
        row = page.locator(".glance tr", has=page.locator("a[href$='/running']"))
        assert "keep running" in row.inner_text()
        newer(site, "breached")
        row.filter(has_text="latency is breached").wait_for()


def test_print_opens_what_is_closed(browser: Any, site: Site) -> None:
    with opened(browser, f"{site.url}/experiments/running") as page:
        page.emulate_media(media="print")
        page.evaluate("dispatchEvent(new Event('beforeprint'))")
        assert page.locator("#definition details").get_attribute("open") is not None
        assert not page.locator(".choose").first.is_visible()
        assert page.locator(".score thead").is_visible()
