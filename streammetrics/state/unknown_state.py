"""States whose class is not imported: they can still be loaded, merged, rolled up and saved.

Such a state cannot count rows, and no metric can be computed from it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NoReturn, Self

import numpy as np

from ..errors import IncompatibleStateError, StateFormatError, StreamMetricsError
from ..numerics.settings import decode_setting, find_differing_settings
from .axes import Axis
from .cells import Cells
from .declare import FORMS, Flat, Tally
from .levels import MOST_BITS, ZERO
from .pair_levels import VIEWS
from .state import State
from .tally import WIDEST, Entries

__all__ = ["Declaration", "OpaqueState"]


@dataclass(frozen=True)
class Declaration:
    """The declaration of a statistic whose class is not imported, as described in the header of a saved state.

    Saved bytes consist of sections, one for each state, and every section has such a header.

    Parameters
    ----------
    tag, settings
        The tag of the statistic, and its settings as they appear in the header.
    parts : mapping
        The parts (arrays and histograms) of the statistic by name, in the order in which they are saved.
    extents : mapping
        The value of each name that the parts refer to: the number of places or the precision (bits) of a histogram, or
        a tuple with a string for each element of an array axis.
    reasons : tuple of str
        The reasons why rows were dropped, sorted.
    inner_axis, row_parts, folding, folds_by_rows, exact_rows_limit, counts_per_row
        The values of the `State` attributes with the same names.
    """

    tag: str
    settings: Mapping[str, Any]
    parts: Mapping[str, Flat | Tally]
    extents: Mapping[str, Any]
    reasons: tuple[str, ...]
    inner_axis: Axis | None
    row_parts: tuple[str, ...]
    folding: tuple[str, str, str] | None
    folds_by_rows: bool
    exact_rows_limit: int | None
    counts_per_row: int

    @classmethod
    def from_header(cls, head: dict[str, Any], read_axis: Callable[[Any], Axis]) -> Declaration:
        """Parse the header of a saved state, without allocating memory for its arrays and histograms."""
        extents: dict[str, Any] = {}
        declared = [_parse_part(entry, extents) for entry in head["parts"]]
        parts = {p.name: p for p in declared} | ({"dropped": State.dropped} if head.get("dropped") else {})
        if len(declared) != len(head["parts"]) or len({p.name for p in declared}) != len(declared):
            raise StateFormatError("the state is corrupt: a part is declared twice")
        folding = tuple(head["folds"]) if "folds" in head else None
        inner_axis = read_axis(head["behind"]) if "behind" in head else None
        declaration = cls(
            head["tag"], dict(head.get("settings", {})), order_parts(parts), extents, tuple(head.get("dropped", ())),
            inner_axis, tuple(head.get("counted", ("rows",))), folding, head.get("folds_by_rows", True),
            head.get("most"), head.get("times", 1),
        )  # fmt: skip
        declaration.check()
        return declaration

    def check(self) -> None:
        """Raise StateFormatError if the declaration contradicts itself."""
        # Later code relies on the following properties. The class of the state guarantees them, but it is not imported,
        # and the saved bytes may contain anything. So check each property.
        tallies = {n for n, p in self.parts.items() if isinstance(p, Tally)}
        flats = {n: p for n, p in self.parts.items() if isinstance(p, Flat)}
        likes = [p.like for p in flats.values() if p.like is not None]
        good = (
            type(self.counts_per_row) is int
            and self.counts_per_row > 0
            and (self.exact_rows_limit is None or type(self.exact_rows_limit) is int)
        )
        good &= type(self.folds_by_rows) is bool
        good &= all(n in tallies or (n in flats and not flats[n].optional) for n in self.row_parts)
        good &= all(n in flats and not flats[n].optional for n in likes)
        good &= all(p.front == flats[p.like].front for p in flats.values() if p.like in flats)
        leveled = [p for p in self.parts.values() if isinstance(p, Tally) and p.level is not None]
        good &= len({p.level for p in leveled}) == len(leveled) and all(self._has_levels(p) for p in leveled)
        good &= self.inner_axis is None or self.inner_axis.kind in ("group", "class")
        if self.folding is not None:
            good &= len(self.folding) == 3 and set(self.folding[:2]) <= tallies and self.folding[2] in flats
        if not good:
            raise StateFormatError("the state is corrupt: the declaration of a section contradicts itself")

    def _has_levels(self, tally: Tally) -> bool:
        """Return whether the part with the bucket widths (levels) of a histogram exists and has the right shape.

        The part must contain one level for each output, or four levels for a histogram of pairs of numbers.
        """
        part = self.parts.get(str(tally.level))
        if not isinstance(part, Flat) or part.form != "level" or part.front or part.optional:
            return False
        places = int(self.extents[tally.places])
        if tally.pairs:
            return places == VIEWS * WIDEST and self._resolve_shape(part) == [VIEWS]
        count = 1 if places == 2 * ZERO else places // WIDEST
        return places in (2 * ZERO, count * WIDEST) and self._resolve_shape(part) == [count]

    def _resolve_shape(self, flat: Flat) -> list[Any]:
        return [self.extents[axis] if isinstance(axis, str) else axis for axis in flat.shape]


def order_parts(parts: Mapping[str, Flat | Tally]) -> dict[str, Flat | Tally]:
    """Return parts (arrays and histograms) in the order of saved states: required parts, then optional ones by name."""
    optional = sorted(n for n, p in parts.items() if isinstance(p, Flat) and p.optional)
    return {n: p for n, p in parts.items() if n not in optional} | {n: parts[n] for n in optional}


def _parse_part(entry: Any, extents: dict[str, Any]) -> Flat | Tally:
    name, form, shape, *rest = entry
    options = rest[0] if rest else {}
    if not isinstance(name, str) or not name.isidentifier() or name == "dropped" or len(rest) > 1:
        raise StateFormatError("the state is corrupt: a part has an invalid name")
    part: Flat | Tally
    if form == "tally":
        extents[f"places of {name}"] = _parse_places(shape)
        part = Tally(f"places of {name}", **_parse_level(name, options, extents))
    elif form in FORMS and isinstance(shape, list) and set(options) <= {"front", "optional", "like"}:
        axes = [_parse_extent(f"axis {i} of {name}", axis, extents) for i, axis in enumerate(shape)]
        front, optional = bool(options.get("front")), bool(options.get("optional"))
        part = Flat(*axes, form=form, optional=optional, front=front, like=options.get("like"))
    else:
        raise StateFormatError("the state is corrupt: the declaration of a part is invalid")
    part.__set_name__(OpaqueState, name)
    return part


def _parse_level(name: str, options: dict[str, Any], extents: dict[str, Any]) -> dict[str, Any]:
    """Return the `level`, `bits` and `pairs` arguments of a `Tally`, parsed from its options in a header."""
    if not options:
        return {}
    level, bits = options["level"], options["bits"]
    if (
        set(options) - {"pairs"} != {"level", "bits"}
        or type(bits) is not int
        or not 1 <= bits <= MOST_BITS
        or type(level) is not str
    ):
        raise StateFormatError("the state is corrupt: the declaration of a histogram is invalid")
    extents[f"bits of {name}"] = bits
    return {"level": level, "bits": f"bits of {name}", "pairs": "pairs" in options}


def _parse_places(places_text: Any) -> int:
    places = int(places_text)
    good = 1 <= places <= WIDEST or (places % WIDEST == 0 and places <= WIDEST << 16)
    if not good or isinstance(places_text, float):
        raise StateFormatError("the state is corrupt: a histogram has an invalid number of buckets")
    return places


def _parse_extent(name: str, extent: Any, extents: dict[str, Any]) -> int | str:
    if type(extent) is int and 0 <= extent < 1 << 40:
        return extent
    if isinstance(extent, list) and all(isinstance(s, str) for s in extent):
        extents[name] = tuple(extent)
        return name
    raise StateFormatError("the state is corrupt: a part has an invalid shape")


class OpaqueState(State):
    """A state whose class is not imported; its parts and settings are known from the declaration in its bytes."""

    @classmethod
    def from_declaration(cls, declaration: Declaration) -> Self:
        """Return an empty state with this declaration."""
        new = object.__new__(cls)
        fields = {n: getattr(declaration, n) for n in ("tag", "inner_axis", "folding", "row_parts")}
        new.__dict__.update({**declaration.extents, **fields, "_declaration": declaration})
        return new

    @property
    def declaration(self) -> Declaration:
        """The declaration read from the bytes of the state."""
        declaration: Declaration = self.__dict__["_declaration"]
        return declaration

    def parts(self) -> Mapping[str, Any]:
        return self.declaration.parts

    @property
    def settings(self) -> dict[str, Any]:
        return {k: decode_setting(v) for k, v in self.declaration.settings.items()}

    @property
    def reasons(self) -> tuple[str, ...]:
        return self.declaration.reasons

    @property
    def counts_per_row(self) -> int:
        return self.declaration.counts_per_row

    @property
    def exact_rows_limit(self) -> int | None:
        return self.declaration.exact_rows_limit

    def needs(self) -> tuple[Any, ...]:
        return ()

    def steps(self, like: Any) -> Iterable[Any]:
        raise self._unknown_error()

    @property
    def folds_by_rows(self) -> bool:
        return self.declaration.folds_by_rows

    def select_folded_cells(self, exact: Entries, many: Any) -> NoReturn:
        self.bucket_entries(exact)

    def bucket_entries(self, exact: Entries) -> NoReturn:
        raise IncompatibleStateError(
            f"{self.tag!r}: a cell has more than {self.exact_rows_limit:,} rows, the most that the cell keeps "
            f"exactly, and only the package that defines the state can put the rows into buckets; import the package, "
            f"load both states again, and merge them"
        )

    def with_settings(self, **settings: Any) -> NoReturn:
        raise self._unknown_error()

    def _unknown_error(self) -> StreamMetricsError:
        return StreamMetricsError(
            f"the state {self.tag!r} is unknown; import the package that defines the state, then load the state again"
        )

    def with_cells(self, cells: Cells) -> Self:
        new = self.from_declaration(self.declaration)
        new.__dict__["cells"] = cells
        return new

    def unify_parts(self, states: Sequence[State]) -> list[Self]:
        """Give each state the optional arrays and the drop reasons of all states, so that the states can be added up.

        Apart from these arrays and reasons, the declarations of all states must be equal.
        """
        opaque: list[Any] = list(states)
        reasons = tuple(sorted({r for s in opaque for r in s.reasons}))
        parts: dict[str, Flat | Tally] = {}
        extents: dict[str, Any] = {}
        for s in opaque:
            parts |= s.parts()
            extents |= s.declaration.extents
        if all(s.parts().keys() == parts.keys() and s.reasons == reasons for s in opaque):
            return opaque
        return [s._with_parts(order_parts(parts), extents, reasons) for s in opaque]

    def _with_parts(self, parts: Mapping[str, Any], extents: Mapping[str, Any], reasons: tuple[str, ...]) -> Self:
        new = self.from_declaration(replace(self.declaration, parts=parts, extents=extents, reasons=reasons))
        cells = self.cells
        if "dropped" in cells.flats:
            dropped = np.zeros((len(self), len(reasons)), np.int64)
            dropped[:, [reasons.index(r) for r in self.reasons]] = cells.flats["dropped"]
            cells = replace(cells, flats={**cells.flats, "dropped": dropped})
        return new.with_cells(cells)

    def widen(self, other: State) -> Self | None:
        """Return an empty state into which both states can be merged; None if their declarations or axes differ.

        Two metrics can share the new state. If the class is imported, they can share a state even if they differ in a
        setting that lists what is counted, such as thresholds. Without the class, it is not known which settings are
        such lists.
        """
        if not isinstance(other, OpaqueState) or self.differences(other):
            return None
        return self.unify_parts([self, other])[0].empty_copy()

    def narrow(self, to: State) -> Self:
        return self

    def differences(self, other: object) -> list[str]:
        if not isinstance(other, OpaqueState) or other.tag != self.tag:
            return super().differences(other)
        ours, theirs = self.declaration, other.declaration
        settings = find_differing_settings(dict(ours.settings), dict(theirs.settings))
        found = [f"{n} is {a} here and {b} there" for n, (a, b) in settings.items()]
        found += [f"the axes are {self.axes} here and {other.axes} there" for _ in [0] if self.axes != other.axes]
        return found or _compare_declarations(ours, theirs)

    def __repr__(self) -> str:
        return f"OpaqueState({self.tag!r})"


def _compare_declarations(ours: Declaration, theirs: Declaration) -> list[str]:
    found = []
    for name in {**ours.parts, **theirs.parts}:
        a, b = ours.parts.get(name), theirs.parts.get(name)
        one = a if a is not None else b
        if a is None or b is None:
            if not (isinstance(one, Flat) and one.optional):
                found.append(f"only one state has the part {name!r}")
        elif name != "dropped" and _describe_part(a, ours) != _describe_part(b, theirs):
            found.append(f"the part {name!r} is declared differently")
    names = ("inner_axis", "row_parts", "folding", "folds_by_rows", "exact_rows_limit", "counts_per_row")
    return found + [f"{n} is declared differently" for n in names if getattr(ours, n) != getattr(theirs, n)]


def _describe_part(part: Flat | Tally, declared: Declaration) -> Any:
    """Return the shape (as sizes, not names) and the options of an array or a histogram, to compare declarations."""
    if isinstance(part, Tally):
        return declared.extents[part.places], part.level, part.level and declared.extents[part.bits], part.pairs
    shape = [declared.extents[s] if isinstance(s, str) else s for s in part.shape]
    return shape, part.form, part.optional, part.front, part.like
