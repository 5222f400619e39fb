"""What a page shows beside the evaluation: the definition with its changes, what was shown before, and conflicts."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ..evaluation.evaluation import ShownLook
from ..evaluation.experiment import HIDDEN
from ..store.part_keys import HOUR, hour_text
from .times import day, end_of, moment

__all__ = ["Conflict", "DefinitionChange", "Known", "known_of"]

UNSAID: tuple[Any, ...] = (None, "", [], {}, False)
SHORT = 16  # digits of a digest


class DefinitionChange(NamedTuple):
    """A version of the definition: when it came, from whom, and what is other than before."""

    version: int
    came: str
    by: str
    told: list[str]


class Conflict(NamedTuple):
    """A part whose key was there with other content: kept aside until the owner says which counts."""

    number: int
    key: str
    digest: str
    came: str


@dataclass(frozen=True)
class Known:
    """What the store knows of an experiment beside its evaluation."""

    definition: Mapping[str, Any] = field(default_factory=dict)
    changes: Sequence[DefinitionChange] = ()
    looks: Sequence[ShownLook] = ()
    conflicts: Sequence[Conflict] = ()

    def terms(self) -> list[tuple[str, str]]:
        """The definition as terms and texts, in its own order; what it does not say is left out."""
        return [
            (name, _told(name, value))
            for name, value in self.definition.items()
            if value not in UNSAID and name not in HIDDEN
        ]


def known_of(store: Any, experiment: str, changes: Callable[[str, str], list[str]]) -> Known:
    """Return what a store knows of an experiment.

    Parameters
    ----------
    store : Store
        Where it is.
    experiment : str
        Which one.
    changes : callable
        Says what is other in the second of two definitions, each as JSON.
    """
    versions = store.history(experiment)
    told = [
        DefinitionChange(new.version, moment(new.at), new.by, changes(old.text, new.text) if old else ["defined"])
        for old, new in zip([None, *versions], versions, strict=False)
    ]
    looks = [ShownLook(**one) for _, text in store.looks(experiment) for one in json.loads(text)]
    conflicts = [
        Conflict(e.number, f"{hour_text(e.key.hour)} {e.key.source}-{e.key.seq}", e.digest[:SHORT], moment(e.received))
        for e in store.conflicts(experiment)
    ]
    return Known(json.loads(versions[-1].text) if versions else {}, told[::-1], looks, conflicts)


def _told(name: str, value: Any) -> str:
    if name in ("start", "end") and isinstance(value, int):
        return end_of(value - 1) if name == "end" else f"{day(value)}, {moment(value * float(HOUR))[-9:]}"
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {_told('', inner)}" for key, inner in value.items())
    if isinstance(value, (list, tuple)):
        return ", ".join(str(inner) for inner in value)
    return f"{value:,.10g}" if isinstance(value, (int, float)) and not isinstance(value, bool) else str(value)
