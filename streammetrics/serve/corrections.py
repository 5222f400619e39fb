"""Correct the data of an experiment: void a part that was posted by mistake, or close a source that no longer posts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from ..errors import InvalidInputError
from .evaluation.definitions import Definitions
from .evaluation.experiment import Experiment, convert_hour
from .journal import check_text
from .part_keys import format_hour, parse_key

__all__ = ["MAX_REASON", "Corrections"]

MAX_REASON = 500
"""The maximum length, in characters, of the reason that an owner gives."""


class Corrections(NamedTuple):
    """A service that makes corrections for the owners of an experiment, who give a reason for each correction.

    Parameters
    ----------
    store : Store
        The store of parts and of the audit log.
    board : Board
        Reevaluates an experiment after a correction.
    clock : callable
        Returns the time, in seconds since 1970.
    """

    store: Any
    board: Any
    clock: Callable[[], float]

    def void(self, experiment: Experiment, fields: Mapping[str, Any], *, by: str) -> dict[str, Any]:
        """Remove the part that the fields `hour`, `source` and `seq` identify. The field `reason` says why.

        Raises
        ------
        InvalidInputError
            The reason is missing, or the part cannot be removed.
        """
        reason = check_text("reason", fields.get("reason"), MAX_REASON)
        source, hour, seq = (str(fields.get(name) or "") for name in ("source", "hour", "seq"))
        key = parse_key(experiment.id, source, hour, seq or 0)
        self.store.void(key, by=by, at=self.clock(), reason=reason)
        self.board.mark_changed(experiment.id)
        return {"voided": key.text}

    def close(
        self, definitions: Definitions, experiment: Experiment, fields: Mapping[str, Any], *, by: str
    ) -> dict[str, Any]:
        """Close the source in the field `source`: from the hour in the field `hour` onward, it need not post.

        The definition gets a new version, in which `closed` contains the source. The field `reason` says why.

        Raises
        ------
        InvalidInputError
            The reason is missing, the definition does not list the source, or the hour is invalid.
        """
        reason = check_text("reason", fields.get("reason"), MAX_REASON)
        source, hour = fields.get("source"), convert_hour("hour", fields.get("hour"))
        if source not in experiment.sources:
            listed = ", ".join(experiment.sources) or "none"
            raise InvalidInputError(f"source: expected a source of the definition ({listed}), found {source!r:.100}")
        version, _ = definitions.define(replace(experiment, closed=experiment.closed | {source: hour}), by)
        change = f"closed {source} from {format_hour(hour)} on: {reason}"
        self.store.add_audit(experiment.id, change, by=by, at=self.clock())
        self.board.mark_changed(experiment.id)
        return {"closed": source, "hour": format_hour(hour), "version": version}
