"""The history of an experiment on its page: versions of its definition, looks, conflicts, decisions and annotations."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ..evaluation.evaluation import ShownLook
from ..evaluation.experiment import HIDDEN_FIELDS
from ..part_keys import HOUR, format_hour, parse_hour
from ..store import StoredPart
from .time_format import format_day, format_hour_end, format_time

__all__ = ["Conflict", "DefinitionChange", "ExperimentHistory", "ShownAnnotation", "ShownDecision", "load_history"]

EMPTY_VALUES: tuple[Any, ...] = (None, "", [], {}, False)
ABOUT = ("hypothesis", "description", "owner", "tags")
"""The settings that the page shows above the results, separately from the other settings."""
SHORT_DIGITS = 16  # the number of digits of a digest (hash) that the page shows


class DefinitionChange(NamedTuple):
    """A version of the definition of an experiment: its time, its author, and the changes as sentences."""

    version: int
    time: str
    by: str
    sentences: list[str]


class Conflict(NamedTuple):
    """A posted part with the same key (source, hour and number) as an earlier part, but different content.

    An owner decides which of the two counts.
    """

    number: int
    key: str
    digest: str
    time: str


class ShownDecision(NamedTuple):
    """A recorded decision: its author, the chosen arm, the reason, and the verdict on that arm at the time."""

    number: int
    time: str
    by: str
    arm: str
    reason: str
    verdict: str


class ShownAnnotation(NamedTuple):
    """A remark about an hour: the hour (as a number and as text), the author, and the text of the remark."""

    hour: int
    time: str
    by: str
    text: str


@dataclass(frozen=True)
class ExperimentHistory:
    """The history of an experiment: its definition and changes, earlier looks, conflicts, decisions and annotations.

    `late_parts` contains conflicting parts that can no longer be accepted, because the parts of their days have been
    merged.
    """

    definition: Mapping[str, Any] = field(default_factory=dict)
    changes: Sequence[DefinitionChange] = ()
    looks: Sequence[ShownLook] = ()
    conflicts: Sequence[Conflict] = ()
    late_parts: Sequence[Conflict] = ()
    decisions: Sequence[ShownDecision] = ()
    annotations: Sequence[ShownAnnotation] = ()

    def list_about(self) -> list[tuple[str, str]]:
        """Return the hypothesis, description, owner and tags as pairs of a name and a text; leave out empty texts."""
        return [(name, _format_setting(name, self.definition[name])) for name in ABOUT if self.definition.get(name)]

    def list_settings(self) -> list[tuple[str, str]]:
        """Return the definition's settings as pairs of a name and a text; leave out empty and secret settings."""
        return [
            (name, _format_setting(name, value))
            for name, value in self.definition.items()
            if value not in EMPTY_VALUES and name not in (*HIDDEN_FIELDS, *ABOUT)
        ]


def load_history(store: Any, experiment: str, describe_changes: Callable[[str, str], list[str]]) -> ExperimentHistory:
    """Load the history of an experiment from the store.

    Parameters
    ----------
    store : Store
        The store of definitions, looks, parts, decisions and annotations.
    experiment : str
        The ID of the experiment.
    describe_changes : callable
        Takes two definitions as JSON; returns the changes from the first to the second as sentences.
    """
    versions = store.history(experiment)
    changes = [
        DefinitionChange(
            new.version, format_time(new.at), new.by, describe_changes(old.text, new.text) if old else ["defined"]
        )
        for old, new in zip([None, *versions], versions, strict=False)
    ]
    looks = [ShownLook(**one) for _, text in store.looks(experiment) for one in json.loads(text)]
    conflicts, late_parts = (
        [_describe_conflict(entry) for entry in entries]
        for entries in (store.conflicts(experiment), store.late_parts(experiment))
    )
    decisions = [
        ShownDecision(d.number, format_time(d.at), d.by, d.arm, d.reason, d.verdict)
        for d in store.decisions(experiment)
    ]
    annotations = [
        ShownAnnotation(a.hour, format_time(a.hour * float(HOUR)), a.by, a.text) for a in store.annotations(experiment)
    ]
    definition = json.loads(versions[-1].text) if versions else {}
    return ExperimentHistory(definition, changes[::-1], looks, conflicts, late_parts, decisions, annotations)


def _describe_conflict(entry: StoredPart) -> Conflict:
    key = f"{format_hour(entry.key.hour)} {entry.key.source}-{entry.key.seq}"
    return Conflict(entry.number, key, entry.digest[:SHORT_DIGITS], format_time(entry.received_at))


def _format_setting(name: str, value: Any) -> str:
    if name in ("start", "end"):
        hour = parse_hour(value)
        return (
            format_hour_end(hour - 1)
            if name == "end"
            else f"{format_day(hour)}, {format_time(hour * float(HOUR))[-9:]}"
        )
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {_format_setting('', inner)}" for key, inner in value.items())
    if isinstance(value, (list, tuple)):
        return ", ".join(str(inner) for inner in value)
    return f"{value:,.10g}" if isinstance(value, (int, float)) and not isinstance(value, bool) else str(value)
