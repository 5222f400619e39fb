"""Provide a Grafana dashboard for the Prometheus metrics that this package exports."""

from __future__ import annotations

from importlib import resources

__all__ = ["recipe"]


def recipe() -> str:
    """Return a Grafana dashboard as JSON. Import it into Grafana and adapt it to your needs."""
    return (resources.files("streammetrics") / "serve" / "grafana.json").read_text(encoding="utf-8")
