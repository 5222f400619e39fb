"""The schema of a section: the description of a state in the header of a frame.

A section is an encoded state, and a frame is a file or message with any number of sections. With the schema, a
section can be read even if the Python class of its state has not been imported. A schema lists only the parts that are
present, the settings and options that differ from their defaults, and the reasons for which rows were dropped. The
digests of older states therefore stay the same if a later release adds an optional part, a setting or a reason.
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
from ..numerics.settings import decode_setting, encode_changed_settings
from ..numerics.slice_keys import decode_key, encode_key
from ..state.axes import EPOCHS, Axis
from ..state.declare import Flat, Tally
from ..state.state import State
from ..state.unknown_state import Declaration, OpaqueState

__all__ = ["Schema", "build_head", "build_schema", "parse_schema"]

RETIRED = ("value_histogram", "joint_histogram")
PLAIN = 1 << 53
"""Integers from this one upward are written as strings, because JavaScript would round them to float64."""


@dataclass(frozen=True, eq=False)
class Schema:
    """The schema of a section (an encoded state), which determines the layout of the section.

    Parameters
    ----------
    like : State
        A state with the class, settings and axes of the state that the section contains. Its own content is not used.
    parts : mapping of str to Flat or Tally
        The parts of the state that are present, such as sums and counts, keyed by name and in section order.
    reasons : tuple of str
        The reasons why rows were dropped, sorted. A reason is the role of the column with the invalid value, such as
        "y_score".
    head : dict
        The description of the schema in the header of a frame, as a JSON value.
    """

    like: State
    parts: Mapping[str, Flat | Tally]
    reasons: tuple[str, ...]
    head: dict[str, Any]

    @cached_property
    def text(self) -> str:
        """The description `head` as canonical JSON, so that equal schemas have equal strings."""
        return canonical_json(self.head)

    @cached_property
    def _hash_prefix(self) -> Any:
        return hashlib.sha256(self.text.encode() + b"\0")

    def begin_digest(self) -> Any:
        """Return a hash object that includes the schema; the caller updates it with the uncompressed section."""
        return self._hash_prefix.copy()

    def digest(self, *pieces: bytes | memoryview) -> bytes:
        """Return the digest of a state: the SHA-256 of the schema and of `pieces`, the uncompressed section."""
        sha = self.begin_digest()
        for piece in pieces:
            sha.update(piece)
        digest: bytes = sha.digest()
        return digest


def build_schema(state: State) -> Schema:
    """Return the schema that describes the section of a state."""
    flats = state.cells.flats
    parts = {n: p for n, p in state.parts().items() if isinstance(p, Tally) or not p.optional or n in flats}
    reasons: tuple[str, ...] = ()
    if "dropped" in flats:
        some = np.flatnonzero(flats["dropped"].any(axis=0)).tolist()
        reasons = tuple(sorted(state.reasons[i] for i in some))
    return Schema(state, parts, reasons, build_head(state, parts, reasons))


def build_head(state: State, parts: Mapping[str, Flat | Tally], reasons: tuple[str, ...]) -> dict[str, Any]:
    """Return the description of a state for the header of a frame, as a JSON object.

    Members that would have their default value are left out. `parts` contains the parts of the state that are present,
    and `reasons` the reasons for which rows were dropped.
    """
    head: dict[str, Any] = {
        "tag": state.tag,
        "parts": [_encode_part(state, p) for p in parts.values() if p.name != "dropped"],
    }
    optional = {
        "axes": [_encode_axis(a) for a in state.axes],
        "behind": None if state.inner_axis is None else _encode_axis(state.inner_axis),
        "counted": list(state.row_parts) if state.row_parts != ("rows",) else None,
        "dropped": list(reasons),
        "folds": list(state.folding or ()),
        "folds_by_rows": None if state.folding is None or state.folds_by_rows else False,
        "most": state.exact_rows_limit if state.folding is not None else None,
        "settings": dict(state.declaration.settings)
        if isinstance(state, OpaqueState)
        else encode_changed_settings(state),
        "times": state.counts_per_row if state.counts_per_row != 1 else None,
    }
    return head | {k: v for k, v in optional.items() if v is not None and v not in ([], {})}


def _encode_axis(axis: Axis) -> dict[str, Any]:
    description = axis._asdict() | {"names": list(axis.names), "pinned": [encode_key(k) for k in axis.pinned]}
    defaults = Axis._field_defaults | {"pinned": []}
    return {k: v for k, v in description.items() if k == "names" or v != defaults[k]}


def _encode_part(state: State, part: Flat | Tally) -> list[Any]:
    if isinstance(part, Tally):
        places = part.place_count(state)
        tally: list[Any] = [part.name, "tally", places if places < PLAIN else str(places)]
        if part.level is not None:
            pairs = {"pairs": 1} if part.pairs else {}
            tally.append({"bits": int(getattr(state, part.bits)), "level": part.level} | pairs)
        return tally
    options: dict[str, Any] = {"front": 1} if part.front else {}
    if part.optional:
        options["optional"] = 1
    if part.like is not None:
        options["like"] = part.like
    flat: list[Any] = [part.name, part.form, [_encode_extent(state, s) for s in part.shape]]
    return [*flat, options] if options else flat


def _encode_extent(state: State, axis: int | str) -> Any:
    value = axis if isinstance(axis, int) else getattr(state, axis)
    if isinstance(value, tuple):
        return list(value) if all(isinstance(v, str) for v in value) else len(value)
    return int(value)


# -- reading ---------------------------------------------------------------------------------------------------------


def parse_schema(head: Any) -> Schema:
    """Return the schema described by `head`, an element of "sections" in the header of a frame.

    If the class of the state has not been imported, the attribute `like` of the schema is an `OpaqueState`. Such a
    state can be merged, but metrics cannot be computed from it.

    Raises
    ------
    StateFormatError
        If the header is damaged, or `head` differs from the description that this release would write.
    """
    if not isinstance(head, dict) or not isinstance(head.get("tag"), str):
        raise StateFormatError("the state is corrupt: the header of a section is damaged")
    if head["tag"] in RETIRED:
        raise StateFormatError(
            f"{head['tag']!r} is a state of an earlier release; its histogram lost values far from 0, so "
            f"count the rows again"
        )
    known = State.by_tag.get(head["tag"])
    reasons = tuple(head.get("dropped", ()))
    if list(reasons) != sorted(set(reasons)) or not all(isinstance(r, str) for r in reasons):
        raise StateFormatError("the state is corrupt: the reasons for dropped rows are not sorted and unique")
    axes = tuple(_parse_axis(a) for a in head.get("axes", ()))
    if known is None:
        like: State = OpaqueState.from_declaration(Declaration.from_header(head, _parse_axis))
    else:
        like = known(**{k: decode_setting(v) for k, v in head.get("settings", {}).items()})
    like = like.empty_copy(axes)
    declared = like.parts()
    names = [*(p[0] for p in head["parts"]), *(["dropped"] if reasons else [])]
    parts = {n: p for n, p in declared.items() if n in names}
    unknown = [n for n in names if n not in declared] + [r for r in reasons if r not in like.reasons]
    if unknown:
        raise StateFormatError(
            f"{like.tag}: a newer release wrote the state, and this release does not know {', '.join(unknown)}; "
            f"upgrade streammetrics"
        )
    # Each schema has only one valid description, so that equal states have equal digests. To check that `head` is
    # valid, build the description again, and compare the two.
    again = Schema(like, parts, reasons, build_head(like, parts, reasons))
    missing = [n for n, p in declared.items() if n not in parts and (isinstance(p, Tally) or not p.optional)]
    if missing or again.text != canonical_json(head):
        raise StateFormatError(f"the state is corrupt: the header of a section of {like.tag} is not in canonical form")
    return again


def _parse_axis(entry: Any) -> Axis:
    names, pinned = entry["names"], entry.get("pinned", ())
    if not (isinstance(names, list) and all(isinstance(n, str) for n in names) and (names or entry.get("kind"))):
        raise StateFormatError("the state is corrupt: an axis has an unknown kind or invalid settings")
    axis = Axis(**{**entry, "names": tuple(names), "pinned": tuple(decode_key(k) for k in pinned)})
    whole = [axis.size, *(n for n in (axis.limit, axis.keep) if n is not None)]
    known = axis.kind in (*EPOCHS, "key", "shard", "group", "class")
    if not (known and all(type(n) is int and n >= 0 for n in whole)) or (axis.kind in EPOCHS and not axis.size):
        raise StateFormatError("the state is corrupt: an axis has an unknown kind or invalid settings")
    if axis.keep is not None and (axis.kind not in EPOCHS or not 0 < axis.keep < 1 << 63):
        raise StateFormatError("the state is corrupt: an axis has an unknown kind or invalid settings")
    if any(len(key) != len(names) for key in axis.pinned):
        raise StateFormatError("the state is corrupt: a pinned key does not have a value for each column")
    return axis
