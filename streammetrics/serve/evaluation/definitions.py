"""The definitions of experiments, as they are now: from the store, from a folder of files, and as they are changed."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ...errors import InvalidInputError, StreamMetricsError
from ..store.part_keys import NAME
from .experiment import Experiment, changes

__all__ = ["Definitions"]

KEPT = 2.0
"""Seconds for which what the store said holds; other servers may have changed it since."""
LARGEST = 1 << 18
"""Bytes of a definition."""


class Definitions:
    """Experiments by id.

    Parameters
    ----------
    store : Store
        Keeps them, with their versions.
    clock : function
        Seconds.
    """

    def __init__(self, store: Any, clock: Callable[[], float]) -> None:
        self.store, self.clock = store, clock
        self._until = float("-inf")
        self._all: dict[str, tuple[int, Experiment]] = {}
        self._lock = threading.Lock()

    def all(self) -> dict[str, tuple[int, Experiment]]:
        """Return every experiment with its version."""
        with self._lock:
            if time.monotonic() >= self._until:
                found = self.store.definitions().items()
                self._all = {name: self._read(name, kept[0], kept[1]) for name, kept in found}
                self._until = time.monotonic() + KEPT
            return self._all

    def _read(self, experiment: str, version: int, text: str) -> tuple[int, Experiment]:
        held = self._all.get(experiment)
        return held if held and held[0] == version else (version, Experiment.of_dict(json.loads(text)))

    def get(self, experiment: str) -> Experiment | None:
        """Return an experiment; None if there is none of that id."""
        found = self.all().get(experiment)
        return None if found is None else found[1]

    def define(self, experiment: Experiment, by: str) -> tuple[int, list[str]]:
        """Keep a definition; return its version and what it changes, in sentences. The same again changes nothing."""
        if not NAME.fullmatch(experiment.id):
            raise InvalidInputError(f"id: at most 100 letters, digits, '.', '_' or '-', not {experiment.id!r}")
        self._until = float("-inf")
        version, old = self.all().get(experiment.id, (0, None))
        said = [] if old is None else changes(old, experiment)
        if old is not None and not said:
            return version, []
        text = json.dumps(experiment.to_dict(), sort_keys=True)
        version = self.store.define(experiment.id, text, by=by, at=self.clock())
        self._until = float("-inf")
        return version, said

    def load(self, folder: str, seen: dict[Path, int]) -> tuple[list[str], list[str]]:
        """Keep what is new in a folder of ID.toml; return which experiments that changes, and what is wrong with files.

        Parameters
        ----------
        folder : str
            Where they are.
        seen : dict
            When each was changed last, as of the last call; it is brought up to date.
        """
        changed, wrong = [], []
        for path in sorted(Path(folder).glob("*.toml")):
            try:
                found = path.stat()
                if seen.get(path) == found.st_mtime_ns:
                    continue
                seen[path] = found.st_mtime_ns
                if found.st_size > LARGEST:
                    raise InvalidInputError(f"a definition has at most {LARGEST:,} bytes")
                experiment = Experiment.of_toml(path.read_text("utf-8"), id=path.stem)
                self.define(experiment, f"file {path.name}")
                changed.append(experiment.id)
            except (InvalidInputError, OSError, UnicodeDecodeError) as error:  # the caller says it of each file
                wrong.append(f"{path}: {error}")
            except StreamMetricsError:
                del seen[path]  # the store is away: again later
                raise
        return changed, wrong
