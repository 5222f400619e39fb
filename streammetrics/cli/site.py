"""`streammetrics guide --site`: build the guide and the API reference as a website, with Sphinx."""

from __future__ import annotations

import inspect
import shutil
import tempfile
from collections.abc import Iterator
from importlib import resources
from pathlib import Path
from types import ModuleType
from typing import Any

import streammetrics as sm
from streammetrics.cli.messages import UsageError
from streammetrics.metrics.families import FAMILIES

__all__ = ["build_site"]

SPHINX = {
    "project": "streammetrics",
    "extensions": ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx_copybutton"],
    "html_theme": "pydata_sphinx_theme",
    "html_title": f"streammetrics {sm.__version__}",
    "html_static_path": ["static"],
    "html_css_files": ["site.css"],
    "html_js_files": [("filter.js", {"defer": "defer"})],
    "html_show_sourcelink": False,
    "html_theme_options": {
        "logo": {"text": "streammetrics"},
        "navbar_center": [],
        "collapse_navigation": True,
        "show_prev_next": True,
        "navigation_with_keys": False,
        "secondary_sidebar_items": ["page-toc"],
        "footer_start": [],
        "footer_end": [],
    },
    "html_sidebars": {"**": ["pages.html"]},
    "templates_path": ["templates"],
    "autodoc_typehints": "none",
    "autodoc_class_signature": "mixed",
    "napoleon_google_docstring": False,
    "napoleon_use_rtype": False,
    "myst_heading_anchors": 3,
    "myst_enable_extensions": ["colon_fence"],
    "copybutton_prompt_text": r">>> |\.\.\. |\$ ",
    "copybutton_prompt_is_regexp": True,
    "nb_execution_mode": "off",  # the outputs are stored, and a test compares them
}
"""The configuration of Sphinx."""

TASKS = {
    "decisions": "classification",
    "probabilities": "probabilities",
    "curves": "scores",
    "groups": "users and sessions",
    "regression": "regression",
    "ranking": "ranking",
    "values": "values",
}
"""The task of each family of metrics, as shown in the table of all metrics."""

METRIC_NAMES = {name for family in FAMILIES for name in dir(family)}

METRIC = """\
{name}
{rule}

.. currentmodule:: {module}

.. autoclass:: {name}

The methods of all metrics are ``update``, ``merge``, ``subtract``, ``compute``, ``bounds``, ``interval``, ``explain``,
``plot``, ``copy``, ``reset`` and ``to_bytes``. See :doc:`extend.Metric`.
"""

CLASS = """\
{name}
{rule}

.. currentmodule:: {module}

.. autoclass:: {name}
   :members:
   :inherited-members: {foreign}
"""

OTHER = """\
{name}
{rule}

.. currentmodule:: {module}

.. auto{kind}:: {name}
"""

GROUPS = {
    "objects": (
        "Collections and wrappers",
        "Objects that hold metrics: several at once, or one for every slice, shard or window.",
    ),
    "functions": ("Functions", "What can be done with metrics and with their saved states."),
    "errors": ("Errors and warnings", "All errors are subclasses of `StreamMetricsError`."),
    "results": ("Results", "The types of what `compute`, `interval`, `table`, `compare` and other functions return."),
    "extend": ("For authors of metrics", "Base classes and functions for your own metrics, states and wrappers."),
}
"""The title and the introductory sentence of each group that is not a family of metrics."""


PAGES = """\
<nav class="bd-docs-nav bd-links" aria-label="Pages">
  <div class="bd-toc-item navbar-nav">
    {{ generate_toctree_html(
      "sidebar", startdepth=0, show_nav_level=1, maxdepth=3, includehidden=True, titles_only=True
    ) }}
  </div>
</nav>
"""
"""The template for the list of all pages in the left sidebar. The template of the theme lists only one section."""


def build_site(output: Path) -> None:
    """Build the website from the installed package.

    Parameters
    ----------
    output : Path
        The folder for the pages. The start page is `index.html`.

    Raises
    ------
    UsageError
        Sphinx issued a warning, for example about a broken link.
    """
    from sphinx.application import Sphinx

    with tempfile.TemporaryDirectory(prefix="streammetrics-site-") as folder:
        source = Path(folder, "source")
        with resources.as_file(resources.files("streammetrics") / "guide") as guide:
            shutil.copytree(guide, source, ignore=shutil.ignore_patterns("*.py", "__pycache__", "peers"))
        write_reference(source / "api")
        (source / "templates").mkdir()
        (source / "templates" / "pages.html").write_text(PAGES, encoding="utf-8")
        doctrees = Path(folder, "doctrees")
        app = Sphinx(source, None, output, doctrees, "html", SPHINX, warningiserror=True, parallel=2)
        app.connect("autodoc-process-docstring", _escape_bars, priority=600)
        app.build()
        if app.statuscode:
            raise UsageError("Sphinx printed warnings while it built the website; correct the pages that they name")


def _escape_bars(app: Any, what: str, name: str, thing: Any, options: Any, lines: list[str]) -> None:
    """Escape the bars of absolute values in formulas, because bars mark substitutions in reStructuredText."""
    lines[:] = [line if ">>>" in line else line.replace("|", "\\|") for line in lines]


# -- the API reference -------------------------------------------------------------------------------------------------


def write_reference(folder: Path) -> None:
    """Write a page for each public name, a page for each group of names, and the table of all metrics."""
    folder.mkdir()
    groups = [_name_of(family) for family in FAMILIES]
    for group in groups:
        module = getattr(sm, group)
        title, _, about = (module.__doc__ or "").partition(": ")
        names = dir(module)
        _write_group(folder, group, title, about[:1].upper() + about[1:], [("", name, METRIC) for name in names])
    for group, (title, about) in GROUPS.items():
        _write_group(folder, group, title, about, list(_names_of(group)))
    table = "".join(_row(group, name) for group in groups for name in dir(getattr(sm, group)))
    pages = "\n".join([*groups, *GROUPS])
    (folder / "index.md").write_text(INDEX.format(table=table, pages=pages), encoding="utf-8")


def _names_of(group: str) -> Iterator[tuple[str, str, str]]:
    """Yield every public name of a group, as a tuple of the prefix of its module, the name, and the page template."""
    if group in ("extend", "results"):
        module = getattr(sm, group)
        for name in module.__all__:
            thing = getattr(module, name)
            if not (isinstance(thing, type) or callable(thing)):
                continue
            yield f"{group}.", name, CLASS if isinstance(thing, type) else OTHER
        return
    for name in dir(sm):
        thing = getattr(sm, name)
        if name.startswith("_") or inspect.ismodule(thing) or name in METRIC_NAMES:
            continue
        found = "functions" if not isinstance(thing, type) else "errors" if issubclass(thing, Exception) else "objects"
        if found == group:
            yield "", name, CLASS if group == "objects" else OTHER


def _write_group(folder: Path, group: str, title: str, about: str, names: list[tuple[str, str, str]]) -> None:
    """Write the page for a group, with a table of its names, and a page for each name."""
    rows = []
    for prefix, name, template in names:
        module = f"streammetrics.{prefix}".rstrip(".")
        thing = getattr(sm if not prefix else getattr(sm, prefix[:-1]), name)
        kind = "exception" if isinstance(thing, type) else "function" if callable(thing) else "data"
        bases = [
            base.__name__ for base in getattr(thing, "__mro__", ()) if not base.__module__.startswith("streammetrics")
        ]
        page = template.format(name=name, rule="=" * len(name), module=module, kind=kind, foreign=",".join(bases))
        (folder / f"{prefix}{name}.rst").write_text(page, encoding="utf-8")
        rows.append(f"| [{name}]({prefix}{name}.rst) | {_first_line(thing)} |")
    pages = "\n".join(prefix + name for prefix, name, _ in names)
    text = GROUP.format(title=title, about=about, rows="\n".join(rows), pages=pages)
    (folder / f"{group}.md").write_text(text, encoding="utf-8")


def _first_line(thing: object) -> str:
    return (inspect.getdoc(thing) or "").partition("\n")[0].replace("|", "\\|")


def _name_of(module: ModuleType) -> str:
    return module.__name__.rpartition(".")[2]


def _row(group: str, name: str) -> str:
    """Return one metric's row in the table of all metrics."""
    return f"| [{name}]({name}.rst) | {TASKS[group]} | {_first_line(getattr(sm, name))} |\n"


GROUP = """\
# {title}

{about}

| name | |
|---|---|
{rows}

```{{toctree}}
:hidden:

{pages}
```
"""

INDEX = """\
# API reference

Every public name, by group. The table lists all metrics; type a word, or choose a task.

<div class="metric-filter"></div>

| metric | task | what it is |
|---|---|---|
{table}

```{{toctree}}
:hidden:

{pages}
```
"""
