"""A dashboard for Grafana, over what Prometheus scrapes."""

from __future__ import annotations

from importlib import resources

__all__ = ["recipe"]


def recipe() -> str:
    """Return a dashboard for Grafana, as JSON to be imported: a recipe, to begin your own with."""
    return (resources.files("streammetrics") / "serve" / "grafana.json").read_text(encoding="utf-8")
