"""Schema: what a header says of a section, so that it can be read, merged and written again without its class.

Only parts that are there are named, only settings and options that are not at their defaults, and only reasons for which
rows were left out: so a later release can add an optional part, a setting or a reason, and what was written before keeps
its digest.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from ..errors import StateFormatError
from ..numerics.canonical import canonical_json
from ..numerics.keys import decode_key, encode_key
from ..numerics.settings import decode_setting, written_settings
from ..state.axes import EPOCHS, Axis
from ..state.declare import Flat, Tally
from ..state.state import State
from ..state.unknown_state import Declared, OpaqueState

__all__ = ["Schema", "describe", "read_schema", "schema_of"]

RETIRED = ("value_histogram", "joint_histogram")
PLAIN = 1 << 53
"""Whole numbers from here on are written as text: JavaScript would round them."""


@dataclass(frozen=True, eq=False)
class Schema:
    """What a section is of.

    Parameters
    ----------
    like : State
        An empty state.
    parts : mapping
        The parts that are there, in order.
    reasons : tuple of str
        Why rows were left out, sorted.
    head : dict
        All this, as the header says it.
    """

    like: State
    parts: Mapping[str, Flat | Tally]
    reasons: tuple[str, ...]
    head: dict[str, Any]

    @cached_property
    def text(self) -> str:
        """The one text of it."""
        return canonical_json(self.head)

    @cached_property
    def _begun(self) -> Any:
        return hashlib.sha256(self.text.encode() + b"\0")

    def digest(self, plain: bytes) -> bytes:
        """SHA-256 of the schema and a plain section: the identity of a state, alone and in any collection."""
        made = self._begun.copy()
        made.update(plain)
        digest: bytes = made.digest()
        return digest


def schema_of(state: State) -> Schema:
    """The schema of a state: what is written of it."""
    held = state.cells.flats
    parts = {n: p for n, p in state.parts().items() if isinstance(p, Tally) or not p.optional or n in held}
    reasons: tuple[str, ...] = ()
    if "dropped" in held:
        some = np.flatnonzero(held["dropped"].any(axis=0)).tolist()
        reasons = tuple(sorted(state.reasons[i] for i in some))
    return Schema(state, parts, reasons, describe(state, parts, reasons))


def describe(state: State, parts: Mapping[str, Flat | Tally], reasons: tuple[str, ...]) -> dict[str, Any]:
    """What a header says of a state."""
    head: dict[str, Any] = {"tag": state.tag, "parts": [_part(state, p) for p in parts.values() if p.name != "dropped"]}
    optional = {
        "axes": [_axis(a) for a in state.axes],
        "behind": None if state.behind is None else _axis(state.behind),
        "counted": list(state.counted) if state.counted != ("rows",) else None,
        "dropped": list(reasons),
        "folds": list(state.folds or ()),
        "folds_by_rows": None if state.folds is None or state.folds_by_rows else False,
        "most": state.most if state.folds is not None else None,
        "settings": dict(state.declared_here.settings) if isinstance(state, OpaqueState) else written_settings(state),
        "times": state.times if state.times != 1 else None,
    }
    return head | {k: v for k, v in optional.items() if v is not None and v not in ([], {})}


def _axis(axis: Axis) -> dict[str, Any]:
    said = axis._asdict() | {"names": list(axis.names), "pinned": [encode_key(k) for k in axis.pinned]}
    defaults = Axis._field_defaults | {"pinned": []}
    return {k: v for k, v in said.items() if k == "names" or v != defaults[k]}


def _part(state: State, part: Flat | Tally) -> list[Any]:
    if isinstance(part, Tally):
        places = part.count(state)
        written: list[Any] = [part.name, "tally", places if places < PLAIN else str(places)]
        if part.level is not None:
            pairs = {"pairs": 1} if part.pairs else {}
            written.append({"bits": int(getattr(state, part.bits)), "level": part.level} | pairs)
        return written
    options: dict[str, Any] = {"front": 1} if part.front else {}
    if part.optional:
        options["optional"] = 1
    if part.like is not None:
        options["like"] = part.like
    said: list[Any] = [part.name, part.form, [_extent(state, s) for s in part.shape]]
    return [*said, options] if options else said


def _extent(state: State, axis: int | str) -> Any:
    value = axis if isinstance(axis, int) else getattr(state, axis)
    if isinstance(value, tuple):
        return list(value) if all(isinstance(v, str) for v in value) else len(value)
    return int(value)


# -- reading ---------------------------------------------------------------------------------------------------------


def read_schema(head: Any) -> Schema:
    """Make the schema that a header describes; of a class that is not here, an opaque one.

    Raises
    ------
    StateFormatError
        The header is damaged, or says something else than the class of its tag would.
    """
    if not isinstance(head, dict) or not isinstance(head.get("tag"), str):
        raise StateFormatError("the header of a section is damaged")
    if head["tag"] in RETIRED:
        raise StateFormatError(
            f"{head['tag']!r} is a state of an earlier release, whose buckets lost values far from 0: count the rows again"
        )
    known = State.by_tag.get(head["tag"])
    reasons = tuple(head.get("dropped", ()))
    if list(reasons) != sorted(set(reasons)) or not all(isinstance(r, str) for r in reasons):
        raise StateFormatError("the reasons for dropped rows are not sorted and unique")
    axes = tuple(_read_axis(a) for a in head.get("axes", ()))
    if known is None:
        made: State = OpaqueState.of(Declared.read(head, _read_axis))
    else:
        made = known(**{k: decode_setting(v) for k, v in head.get("settings", {}).items()})
    like = made.empty(axes)
    declared = like.parts()
    names = [*(p[0] for p in head["parts"]), *(["dropped"] if reasons else [])]
    parts = {n: p for n, p in declared.items() if n in names}
    unknown = [n for n in names if n not in declared] + [r for r in reasons if r not in like.reasons]
    if unknown:
        raise StateFormatError(f"{like.tag}: {', '.join(unknown)} was written by a newer release")
    again = Schema(like, parts, reasons, describe(like, parts, reasons))
    missing = [n for n, p in declared.items() if n not in parts and (isinstance(p, Tally) or not p.optional)]
    if missing or again.text != canonical_json(head):
        raise StateFormatError(f"the header of a section of {like.tag} is not as it would be written")
    return again


def _read_axis(said: Any) -> Axis:
    names, pinned = said["names"], said.get("pinned", ())
    if not (isinstance(names, list) and all(isinstance(n, str) for n in names) and (names or said.get("kind"))):
        raise StateFormatError("an axis is declared in an unknown way")
    axis = Axis(**{**said, "names": tuple(names), "pinned": tuple(decode_key(k) for k in pinned)})
    whole = [axis.size, *(n for n in (axis.limit, axis.keep) if n is not None)]
    known = axis.kind in (*EPOCHS, "key", "shard", "group", "class")
    if not (known and all(type(n) is int and n >= 0 for n in whole)) or (axis.kind in EPOCHS and not axis.size):
        raise StateFormatError("an axis is declared in an unknown way")
    if axis.keep is not None and (axis.kind not in EPOCHS or not 0 < axis.keep < 1 << 63):
        raise StateFormatError("an axis is declared in an unknown way")
    if any(len(key) != len(names) for key in axis.pinned):
        raise StateFormatError("a pinned key has another number of columns")
    return axis
