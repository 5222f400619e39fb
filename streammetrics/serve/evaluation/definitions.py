"""The current definitions of experiments: read from the store, loaded from a folder, and changed by owners."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ...errors import InvalidInputError, StreamMetricsError
from ..store.part_keys import NAME
from .experiment import Experiment, describe_changes

__all__ = ["Definitions"]

CACHE_SECONDS = 2.0
"""Seconds for which definitions are cached; other servers may change them meanwhile."""
MAX_DEFINITION_BYTES = 1 << 18
"""The largest definition, in bytes."""


class Definitions:
    """The experiments of a store, by ID.

    Parameters
    ----------
    store : Store
        The store of the definitions and their versions.
    clock : callable
        Returns the time, in seconds since 1970.
    """

    def __init__(self, store: Any, clock: Callable[[], float]) -> None:
        self.store, self.clock = store, clock
        self._valid_until = float("-inf")
        self._experiments: dict[str, tuple[int, Experiment]] = {}
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
        """Return an experiment; None if there is none with this ID."""
        entry = self.load_all().get(experiment)
        return None if entry is None else entry[1]

    def define(self, experiment: Experiment, by: str) -> tuple[int, list[str]]:
        """Save a definition; return its version and its changes as sentences. An equal definition changes nothing."""
        if not NAME.fullmatch(experiment.id):
            raise InvalidInputError(f"id: at most 100 letters, digits, '.', '_' or '-', not {experiment.id!r}")
        self._valid_until = float("-inf")
        version, old = self.load_all().get(experiment.id, (0, None))
        sentences = [] if old is None else describe_changes(old, experiment)
        if old is not None and not sentences:
            return version, []
        text = json.dumps(experiment.to_dict(), sort_keys=True)
        version = self.store.define(experiment.id, text, by=by, at=self.clock())
        self._valid_until = float("-inf")
        return version, sentences

    def load_folder(self, folder: str, mtimes: dict[Path, int]) -> tuple[list[str], list[str]]:
        """Save new and changed definitions of a folder of ID.toml files; return the changed IDs and the errors of files.

        Parameters
        ----------
        folder : str
            The path of the folder.
        mtimes : dict
            The modification time of each file at the last call; this call updates it.
        """
        changed_ids, errors = [], []
        for path in sorted(Path(folder).glob("*.toml")):
            try:
                info = path.stat()
                if mtimes.get(path) == info.st_mtime_ns:
                    continue
                mtimes[path] = info.st_mtime_ns
                if info.st_size > MAX_DEFINITION_BYTES:
                    raise InvalidInputError(f"a definition has at most {MAX_DEFINITION_BYTES:,} bytes")
                experiment = Experiment.from_toml(path.read_text("utf-8"), id=path.stem)
                self.define(experiment, f"file {path.name}")
                changed_ids.append(experiment.id)
            except (InvalidInputError, OSError, UnicodeDecodeError) as error:  # the caller logs the message
                errors.append(f"{path}: {error}")
            except StreamMetricsError:
                del mtimes[path]  # the store is down: load the file again later
                raise
        return changed_ids, errors
