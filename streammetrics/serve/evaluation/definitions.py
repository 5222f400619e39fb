"""The current definitions of experiments, which come from the store, from a folder of files, or from owners."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from ...errors import InvalidInputError, StreamMetricsError
from ..part_keys import NAME
from .experiment import Experiment, describe_changes
from .metric_catalog import MetricCatalog

__all__ = ["Definitions"]

CACHE_SECONDS = 2.0
"""Seconds for which definitions are cached; meanwhile, other servers may change them."""
GRACE_SECONDS = 86400.0
"""Seconds after a change to a definition during which parts may lack the metrics that the change has added."""
MAX_DEFINITION_BYTES = 1 << 18
"""The maximum size of a definition, in bytes."""


class Definitions:
    """The experiments of a store, by ID.

    Parameters
    ----------
    store : Store
        The store of the definitions and their versions.
    clock : callable
        Returns the time, in seconds since 1970.
    catalog : MetricCatalog, optional
        The metrics that new definitions may contain; by default, any metric.
    """

    def __init__(self, store: Any, clock: Callable[[], float], catalog: MetricCatalog | None = None) -> None:
        self.store, self.clock, self.catalog = store, clock, catalog
        self._valid_until = float("-inf")
        self._experiments: dict[str, tuple[int, Experiment]] = {}
        self._relaxed: dict[tuple[str, int], tuple[float, Experiment]] = {}
        self._lock = threading.Lock()

    def load_all(self) -> dict[str, tuple[int, Experiment]]:
        """Return every experiment with its version."""
        with self._lock:
            if time.monotonic() >= self._valid_until:
                definitions = self.store.definitions().items()
                self._experiments = {name: self._parse(name, saved[0], saved[1]) for name, saved in definitions}
                self._valid_until = time.monotonic() + CACHE_SECONDS
            return self._experiments

    def _parse(self, experiment: str, version: int, text: str) -> tuple[int, Experiment]:
        cached = self._experiments.get(experiment)
        return cached if cached and cached[0] == version else (version, Experiment.from_dict(json.loads(text)))

    def get(self, experiment: str) -> Experiment | None:
        """Return the experiment with the given ID, or None if there is none."""
        entry = self.load_all().get(experiment)
        return None if entry is None else entry[1]

    def get_for_parts(self, experiment: str) -> Experiment | None:
        """Return an experiment with only the metrics that posted parts must contain; None if the ID is unknown.

        For one day after the definition changes, parts may lack the metrics that the change added. The processes that
        post parts can therefore be redeployed one by one. Only a new primary metric and a new metric in `counts` are
        required immediately.
        """
        version, definition = self.load_all().get(experiment, (0, None))
        if definition is None or version == 1:
            return definition
        if (experiment, version) not in self._relaxed:
            versions = self.store.history(experiment)
            before = Experiment.from_dict(json.loads(versions[-2].text))
            self._relaxed[experiment, version] = versions[-1].at, _keep_metrics(definition, before)
        changed_at, relaxed = self._relaxed[experiment, version]
        return relaxed if self.clock() < changed_at + GRACE_SECONDS else definition

    def define(self, experiment: Experiment, by: str) -> tuple[int, list[str]]:
        """Save a definition as a new version, unless it equals the current one.

        Return the version number, and the changes as sentences.
        """
        if not NAME.fullmatch(experiment.id):
            raise InvalidInputError(
                f"id: expected at most 100 letters, digits, '.', '_' or '-', found {experiment.id!r}"
            )
        if self.catalog is not None:
            experiment = self.catalog.apply(experiment)
        self._valid_until = float("-inf")
        version, old = self.load_all().get(experiment.id, (0, None))
        if old is not None and old.timezone != experiment.timezone:
            self._check_merged_days(experiment.id, old.timezone)
        sentences = [] if old is None else describe_changes(old, experiment)
        if old is not None and not sentences:
            return version, []
        text = json.dumps(experiment.to_dict(), sort_keys=True)
        version = self.store.define(experiment.id, text, by=by, at=self.clock())
        self._valid_until = float("-inf")
        return version, sentences

    def _check_merged_days(self, experiment: str, time_zone: str) -> None:
        """Raise InvalidInputError if the time zone cannot change because parts are already merged into days.

        A merged day cannot be split at midnight in another time zone.
        """
        if self.store.outline(experiment).day_digests:
            raise InvalidInputError(
                f"timezone: cannot be changed from {time_zone} any more, because parts are already merged into days of "
                f"this time zone"
            )

    def load_folder(self, folder: str, mtimes: dict[Path, int]) -> tuple[list[str], list[str]]:
        """Save the new and changed definitions from the `<ID>.toml` files in a folder.

        Return the IDs of the experiments whose files are new or have changed, and the error messages for invalid files.

        Parameters
        ----------
        folder : str
            The path of the folder.
        mtimes : dict
            The modification time of each file at the previous call; updated by this call.
        """
        changed_ids, errors = [], []
        for path in sorted(Path(folder).glob("*.toml")):
            try:
                info = path.stat()
                if mtimes.get(path) == info.st_mtime_ns:
                    continue
                mtimes[path] = info.st_mtime_ns
                if info.st_size > MAX_DEFINITION_BYTES:
                    raise InvalidInputError(
                        f"expected a definition of at most {MAX_DEFINITION_BYTES:,} bytes, found {info.st_size:,}"
                    )
                experiment = Experiment.from_toml(path.read_text("utf-8"), id=path.stem)
                self.define(experiment, f"file {path.name}")
                changed_ids.append(experiment.id)
            # The file is invalid or unreadable. The caller logs the message, and the other files are still loaded.
            except (InvalidInputError, OSError, UnicodeDecodeError) as error:
                errors.append(f"{path}: {error}")
            except StreamMetricsError:
                # The store is unavailable. Forget the modification time of this file, so that the next call reloads it.
                del mtimes[path]
                raise
        return changed_ids, errors


def _keep_metrics(definition: Experiment, before: Experiment) -> Experiment:
    """Return `definition` without the metrics that the earlier version `before` lacks; keep `primary` and `counts`."""
    known = {*before.metrics, before.counts, definition.primary}
    kept = {name for name in definition.metrics if name in known}
    return replace(
        definition,
        guardrails={name: margin for name, margin in definition.guardrails.items() if name in kept},
        secondary=tuple(name for name in definition.secondary if name in kept),
        model=tuple(name for name in definition.model if name in kept),
        better={name: side for name, side in definition.better.items() if name in kept},
    )
