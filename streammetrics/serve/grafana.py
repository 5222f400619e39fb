"""A Grafana dashboard of the Prometheus metrics."""

from __future__ import annotations

from importlib import resources

__all__ = ["recipe"]


def recipe() -> str:
    """Return a Grafana dashboard as JSON to import, as a start for your own."""
    return (resources.files("streammetrics") / "serve" / "grafana.json").read_text(encoding="utf-8")
