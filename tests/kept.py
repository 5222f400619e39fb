"""A store in memory, of what the board and the alerts keep."""

from __future__ import annotations

import json
from typing import Any, NamedTuple


class Defined(NamedTuple):
    version: int
    text: str


class Kept:
    def __init__(self, *experiments: str) -> None:
        self.defined = {name: Defined(1, json.dumps({"id": name, "title": name.upper()})) for name in experiments}
        self.shown: dict[str, str] = {}
        self.seen: dict[str, list[tuple[float, str]]] = {}
        self.alerts: dict[str, dict[str, str]] = {}
        self.away = False

    def _there(self) -> None:
        if self.away:
            raise ConnectionError("the store is away")

    def definitions(self) -> dict[str, Any]:
        self._there()
        return dict(self.defined)

    def save_evaluation(self, experiment: str, text: str) -> None:
        self._there()
        self.shown[experiment] = text

    def evaluation(self, experiment: str) -> str | None:
        self._there()
        return self.shown.get(experiment)

    def add_look(self, experiment: str, at: float, text: str) -> None:
        self._there()
        self.seen.setdefault(experiment, []).append((at, text))

    def looks(self, experiment: str) -> list[tuple[float, str]]:
        self._there()
        return list(self.seen.get(experiment, []))

    def alert_state(self, experiment: str) -> dict[str, str]:
        self._there()
        return dict(self.alerts.get(experiment, {}))

    def set_alert_state(self, experiment: str, name: str, state: str) -> bool:
        self._there()
        self.alerts.setdefault(experiment, {})[name] = state
        return True
