"""Load the Jinja page templates, and make the functions that draw charts available to them."""

from __future__ import annotations

import math
from importlib import resources
from typing import Any

from .svg import draw_heatmap, draw_marker, draw_sparkline, draw_svg

__all__ = ["build_environment", "read_safe", "read_template"]

HERE = "streammetrics.reports.page"
DRAW_FUNCTIONS = {"svg": draw_svg, "heat": draw_heatmap, "marker": draw_marker, "spark": draw_sparkline}


def build_environment(*packages: str) -> Any:
    """Return a Jinja environment that escapes HTML in values.

    The environment looks for each template in `packages` first, and then among the report templates.
    """
    Environment, FunctionLoader, Markup = _import_jinja()

    def load(name: str) -> str | None:
        return next((read_template(name, p) for p in (*packages, HERE) if (resources.files(p) / name).is_file()), None)

    environment = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True, loader=FunctionLoader(load))
    environment.globals |= {name: _mark_safe(Markup, make) for name, make in DRAW_FUNCTIONS.items()} | {
        "pc": _format_percent
    }
    return environment


def read_template(name: str, package: str = HERE) -> str:
    """Return the text of a template file in a package."""
    return (resources.files(package) / name).read_text(encoding="utf-8")


def read_safe(name: str) -> Any:
    """Return the text of a template file, marked as HTML that Jinja does not escape."""
    return _import_jinja()[2](read_template(name))


def _import_jinja() -> tuple[Any, Any, Any]:
    try:
        from jinja2 import Environment, FunctionLoader
        from markupsafe import Markup
    except ModuleNotFoundError as error:
        words = 'a report needs jinja2: pip install "streammetrics[report]"'
        raise ModuleNotFoundError(words, name=error.name) from error
    return Environment, FunctionLoader, Markup


def _mark_safe(markup: Any, make: Any) -> Any:
    """Return a function that calls `make` and wraps the result in `markup`, so that Jinja does not escape its HTML."""
    return lambda *arguments: markup(make(*arguments))


def _format_percent(value: float) -> str:
    return f"{value:.2f}%" if math.isfinite(value) else "0%"
