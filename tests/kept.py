"""A store in memory, of what the board and the alerts keep."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from streammetrics.serve.store import ExperimentStatus


class Defined(NamedTuple):
    version: int
    text: str


class Kept:
    def __init__(self, *experiments: str) -> None:
        self.defined = {name: Defined(1, json.dumps({"id": name, "title": name.upper()})) for name in experiments}
        self.shown: dict[str, str] = {}
        self.seen: dict[str, list[tuple[float, str]]] = {}
        self.alerts: dict[str, dict[str, str]] = {}
        self.position = (0, 0)
        self.computing: dict[str, float] = {}
        self.away = False

    def _there(self) -> None:
        if self.away:
            raise ConnectionError("the store is away")

    def definitions(self) -> dict[str, Any]:
        self._there()
        return dict(self.defined)

    def hold_leases(self, server: str, seconds: float) -> dict[str, int]:
        self._there()
        return dict.fromkeys(self.defined, 1)

    def release_leases(self, server: str) -> None: ...

    def statuses(self) -> dict[str, ExperimentStatus]:
        self._there()
        shown = {name: json.loads(text)["at"] for name, text in self.shown.items()}
        return {
            name: ExperimentStatus(1, self.position, shown.get(name), self.computing.get(name)) for name in self.defined
        }

    def note_computing(self, experiment: str, since: float | None, fence: int) -> None:
        self.computing = {experiment: since} if since is not None else {}

    def save_evaluation(self, experiment: str, at: float, text: str, look: str | None = None, *, fence: int) -> None:
        self._there()
        self.shown[experiment] = text
        if look is not None:
            self.seen.setdefault(experiment, []).append((at, look))

    def evaluation(self, experiment: str) -> str | None:
        self._there()
        return self.shown.get(experiment)

    def looks(self, experiment: str) -> list[tuple[float, str]]:
        self._there()
        return list(self.seen.get(experiment, []))

    def alert_state(self, experiment: str) -> dict[str, str]:
        self._there()
        return dict(self.alerts.get(experiment, {}))

    def set_alert_state(self, experiment: str, name: str, state: str, *, fence: int) -> None:
        self._there()
        self.alerts.setdefault(experiment, {})[name] = state
