"""Templates of pages: what they are read from, and the pictures that they can draw."""

from __future__ import annotations

import math
from importlib import resources
from typing import Any

from .svg import heat, marker, spark, svg

__all__ = ["environment", "read", "safe"]

HERE = "streammetrics.reports.page"
DRAWN = {"svg": svg, "heat": heat, "marker": marker, "spark": spark}


def environment(*packages: str) -> Any:
    """Return the environment of templates of the report, and of other packages before it; everything is escaped."""
    Environment, FunctionLoader, Markup = _jinja()

    def load(name: str) -> str | None:
        return next((read(name, p) for p in (*packages, HERE) if (resources.files(p) / name).is_file()), None)

    made = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True, loader=FunctionLoader(load))
    made.globals |= {name: _marked(Markup, make) for name, make in DRAWN.items()} | {"pc": _percent}
    return made


def read(name: str, package: str = HERE) -> str:
    """Return a file beside the templates."""
    return (resources.files(package) / name).read_text(encoding="utf-8")


def safe(name: str) -> Any:
    """Return a file that is put into a page as it is."""
    return _jinja()[2](read(name))


def _jinja() -> tuple[Any, Any, Any]:
    try:
        from jinja2 import Environment, FunctionLoader
        from markupsafe import Markup
    except ModuleNotFoundError as error:
        words = 'a report needs jinja2: pip install "streammetrics[report]"'
        raise ModuleNotFoundError(words, name=error.name) from error
    return Environment, FunctionLoader, Markup


def _marked(markup: Any, make: Any) -> Any:
    """Say that a function returns what is HTML already, and escaped."""
    return lambda *given: markup(make(*given))


def _percent(value: float) -> str:
    return f"{value:.2f}%" if math.isfinite(value) else "0%"
