"""The website: it builds without a warning, every link leads somewhere, and it reads without a network."""

from __future__ import annotations

import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

import streammetrics as sm
from streammetrics.cli.guide import load_pages

pytestmark = pytest.mark.slow


class Page(HTMLParser):
    """The links, the anchors and the loaded files of an HTML page."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.links: set[str] = set()
        self.anchors: set[str] = set()
        self.loaded: set[str] = set()
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        self.anchors.update(values[name] for name in ("id", "name") if name in values)
        if tag == "a" and "href" in values:
            self.links.add(values["href"])
        elif tag == "link" and values.get("rel") in ("stylesheet", "icon", "preload"):
            self.loaded.add(values["href"])
        elif "src" in values:
            self.loaded.add(values["src"])


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("sphinx")
    pytest.importorskip("myst_nb")
    pytest.importorskip("pydata_sphinx_theme")
    folder = tmp_path_factory.mktemp("site")
    # In a process of its own: here, a DeprecationWarning that Sphinx raises about itself would be an error.
    command = [sys.executable, "-m", "streammetrics", "guide", "--site", str(folder)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    assert "WARNING" not in ran.stdout + ran.stderr
    return folder


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, Page]:
    # The theme leaves a template in _static, which is no page.
    return {path: Page(path) for path in site.rglob("*.html") if "_static" not in path.parts}


@pytest.mark.cpu_limit(240)  # the first test builds the site
def test_every_page_of_the_guide_is_there(site: Path) -> None:
    assert {f"{name}.html" for name in load_pages()} <= {path.name for path in site.iterdir()}


@pytest.mark.cpu_limit(240)
def test_every_public_name_has_a_page(site: Path) -> None:
    names = {name for name in dir(sm) if not name.startswith("_")}
    names -= {"extend", "results"}
    missing = {name for name in names if not (site / "api" / f"{name}.html").exists()}
    assert not missing


@pytest.mark.cpu_limit(240)
def test_every_link_leads_somewhere(site: Path, pages: dict[Path, Page]) -> None:
    lost = []
    for path, page in pages.items():
        for link in page.links | page.loaded:
            parts = urlsplit(link)
            if parts.scheme or link.startswith(("data:", "mailto:")):
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            target = target / "index.html" if target.is_dir() else target
            known = pages.get(target)
            if not target.exists() or (parts.fragment and known and unquote(parts.fragment) not in known.anchors):
                lost.append(f"{path.relative_to(site)}: {link}")
    assert not lost, lost[:20]


@pytest.mark.cpu_limit(240)
def test_nothing_is_loaded_from_elsewhere(site: Path, pages: dict[Path, Page]) -> None:
    assert not {link for page in pages.values() for link in page.loaded if urlsplit(link).netloc}
    for sheet in site.rglob("*.css"):
        assert not re.findall(r"url\(\s*['\"]?https?:", sheet.read_text(encoding="utf-8")), sheet
