"""States of packages that are not imported: they load, merge, roll up and re-encode, but cannot count or compute."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NoReturn, Self

import numpy as np

from ..errors import IncompatibleStateError, StateFormatError, StreamMetricsError
from ..numerics.settings import decode_setting, unlike
from .axes import Axis
from .cells import Cells
from .declare import FORMS, Flat, Tally
from .levels import MOST_BITS, ZERO
from .pair_levels import LOOKS
from .state import State
from .tally import WIDEST, Entries

__all__ = ["Declared", "OpaqueState"]


@dataclass(frozen=True)
class Declared:
    """What a header says of a class that is not here.

    Parameters
    ----------
    tag, settings
        Which statistic, and its settings as they are written.
    parts : mapping
        Its parts, in order.
    extents : mapping
        What the names in their shapes are worth.
    reasons : tuple of str
        Why rows were left out, sorted.
    behind, counted, folds, folds_by_rows, most, times
        As of a `State`.
    """

    tag: str
    settings: Mapping[str, Any]
    parts: Mapping[str, Flat | Tally]
    extents: Mapping[str, Any]
    reasons: tuple[str, ...]
    behind: Axis | None
    counted: tuple[str, ...]
    folds: tuple[str, str, str] | None
    folds_by_rows: bool
    most: int | None
    times: int

    @classmethod
    def read(cls, head: dict[str, Any], read_axis: Callable[[Any], Axis]) -> Declared:
        """Read the header of a section; nothing is allocated on its word."""
        extents: dict[str, Any] = {}
        made = [_part(said, extents) for said in head["parts"]]
        parts = {p.name: p for p in made} | ({"dropped": State.dropped} if head.get("dropped") else {})
        if len(made) != len(head["parts"]) or len({p.name for p in made}) != len(made):
            raise StateFormatError("a part is declared twice")
        counted, times, most = tuple(head.get("counted", ("rows",))), head.get("times", 1), head.get("most")
        folds = tuple(head["folds"]) if "folds" in head else None
        ordered = in_order(parts)
        behind = read_axis(head["behind"]) if "behind" in head else None
        declared = cls(
            head["tag"], dict(head.get("settings", {})), ordered, extents, tuple(head.get("dropped", ())),
            behind, counted, folds, head.get("folds_by_rows", True), most, times,
        )  # fmt: skip
        declared.check()
        return declared

    def check(self) -> None:
        """Raise where the declaration contradicts itself."""
        tallies = {n for n, p in self.parts.items() if isinstance(p, Tally)}
        flats = {n: p for n, p in self.parts.items() if isinstance(p, Flat)}
        likes = [p.like for p in flats.values() if p.like is not None]
        good = type(self.times) is int and self.times > 0 and (self.most is None or type(self.most) is int)
        good &= type(self.folds_by_rows) is bool
        good &= all(n in tallies or (n in flats and not flats[n].optional) for n in self.counted)
        good &= all(n in flats and not flats[n].optional for n in likes)
        good &= all(p.front == flats[p.like].front for p in flats.values() if p.like in flats)
        leveled = [p for p in self.parts.values() if isinstance(p, Tally) and p.level is not None]
        good &= len({p.level for p in leveled}) == len(leveled) and all(self._has_levels(p) for p in leveled)
        good &= self.behind is None or self.behind.kind in ("group", "class")
        if self.folds is not None:
            good &= len(self.folds) == 3 and set(self.folds[:2]) <= tallies and self.folds[2] in flats
        if not good:
            raise StateFormatError("the declaration of a section contradicts itself")

    def _has_levels(self, tally: Tally) -> bool:
        """Whether there is a level for each output of a tally of buckets, or there are those of pairs."""
        part = self.parts.get(str(tally.level))
        if not isinstance(part, Flat) or part.form != "level" or part.front or part.optional:
            return False
        places = int(self.extents[tally.places])
        if tally.pairs:
            return places == LOOKS * WIDEST and self._shape(part) == [LOOKS]
        count = 1 if places == 2 * ZERO else places // WIDEST
        return places in (2 * ZERO, count * WIDEST) and self._shape(part) == [count]

    def _shape(self, flat: Flat) -> list[Any]:
        return [self.extents[axis] if isinstance(axis, str) else axis for axis in flat.shape]


def in_order(parts: Mapping[str, Flat | Tally]) -> dict[str, Flat | Tally]:
    """Parts in the order in which they are written: those that are always there, then the optional ones by name."""
    optional = sorted(n for n, p in parts.items() if isinstance(p, Flat) and p.optional)
    return {n: p for n, p in parts.items() if n not in optional} | {n: parts[n] for n in optional}


def _part(said: Any, extents: dict[str, Any]) -> Flat | Tally:
    name, form, shape, *rest = said
    options = rest[0] if rest else {}
    if not isinstance(name, str) or not name.isidentifier() or name == "dropped" or len(rest) > 1:
        raise StateFormatError("a part has an impossible name")
    made: Flat | Tally
    if form == "tally":
        extents[f"places of {name}"] = _places(shape)
        made = Tally(f"places of {name}", **_level_of(name, options, extents))
    elif form in FORMS and isinstance(shape, list) and set(options) <= {"front", "optional", "like"}:
        axes = [_extent(f"axis {i} of {name}", axis, extents) for i, axis in enumerate(shape)]
        front, optional = bool(options.get("front")), bool(options.get("optional"))
        made = Flat(*axes, form=form, optional=optional, front=front, like=options.get("like"))
    else:
        raise StateFormatError("a part is declared in an unknown way")
    made.__set_name__(OpaqueState, name)
    return made


def _level_of(name: str, options: dict[str, Any], extents: dict[str, Any]) -> dict[str, Any]:
    """Read which part holds the level of a tally of buckets, and their bits."""
    if not options:
        return {}
    level, bits = options["level"], options["bits"]
    if (
        set(options) - {"pairs"} != {"level", "bits"}
        or type(bits) is not int
        or not 1 <= bits <= MOST_BITS
        or type(level) is not str
    ):
        raise StateFormatError("a tally is declared in an unknown way")
    extents[f"bits of {name}"] = bits
    return {"level": level, "bits": f"bits of {name}", "pairs": "pairs" in options}


def _places(said: Any) -> int:
    places = int(said)
    good = 1 <= places <= WIDEST or (places % WIDEST == 0 and places <= WIDEST << 16)
    if not good or isinstance(said, float):
        raise StateFormatError("a tally has an impossible number of places")
    return places


def _extent(name: str, said: Any, extents: dict[str, Any]) -> int | str:
    if type(said) is int and 0 <= said < 1 << 40:
        return said
    if isinstance(said, list) and all(isinstance(s, str) for s in said):
        extents[name] = tuple(said)
        return name
    raise StateFormatError("a part has an impossible shape")


class OpaqueState(State):
    """A state known by its declaration alone, as the bytes carry it."""

    @classmethod
    def of(cls, declared: Declared) -> Self:
        """Return an empty state of a declaration."""
        new = object.__new__(cls)
        new._take(declared)
        return new

    def _take(self, declared: Declared) -> None:
        self.__dict__.update(declared.extents)
        self.__dict__.update(said=declared, tag=declared.tag, behind=declared.behind, folds=declared.folds)
        self.__dict__["counted"] = declared.counted

    @property
    def declared_here(self) -> Declared:
        """What its header said."""
        said: Declared = self.__dict__["said"]
        return said

    def parts(self) -> Mapping[str, Any]:
        return self.declared_here.parts

    @property
    def settings(self) -> dict[str, Any]:
        return {k: decode_setting(v) for k, v in self.declared_here.settings.items()}

    @property
    def reasons(self) -> tuple[str, ...]:
        return self.declared_here.reasons

    @property
    def times(self) -> int:
        return self.declared_here.times

    @property
    def most(self) -> int | None:
        return self.declared_here.most

    def needs(self) -> tuple[Any, ...]:
        return ()

    def steps(self, like: Any) -> Iterable[Any]:
        raise self._unknown()

    @property
    def folds_by_rows(self) -> bool:
        return self.declared_here.folds_by_rows

    def outgrown(self, exact: Entries, many: Any) -> NoReturn:
        self.bucketed(exact)

    def bucketed(self, exact: Entries) -> NoReturn:
        raise IncompatibleStateError(
            f"{self.tag!r}: a cell has more than the {self.most:,} rows that it keeps exactly, and which buckets they go "
            f"to is known to its package alone: import that, load both again, and merge"
        )

    def with_settings(self, **settings: Any) -> NoReturn:
        raise self._unknown()

    def _unknown(self) -> StreamMetricsError:
        return StreamMetricsError(
            f"{self.tag!r} is not known here: import the package that defines it, then load again"
        )

    def holding(self, cells: Cells) -> Self:
        new = self.of(self.declared_here)
        new.__dict__["cells"] = cells
        return new

    def alike(self, states: Sequence[State]) -> list[Self]:
        """Let states know each other's optional parts and reasons, as far as they are of one kind."""
        given: list[Any] = list(states)
        reasons = tuple(sorted({r for s in given for r in s.reasons}))
        parts: dict[str, Flat | Tally] = {}
        extents: dict[str, Any] = {}
        for s in given:
            parts |= s.parts()
            extents |= s.declared_here.extents
        if all(s.parts().keys() == parts.keys() and s.reasons == reasons for s in given):
            return given
        return [s._knowing(in_order(parts), extents, reasons) for s in given]

    def _knowing(self, parts: Mapping[str, Any], extents: Mapping[str, Any], reasons: tuple[str, ...]) -> Self:
        new = self.of(replace(self.declared_here, parts=parts, extents=extents, reasons=reasons))
        cells = self.cells
        if "dropped" in cells.flats:
            dropped = np.zeros((len(self), len(reasons)), np.int64)
            dropped[:, [reasons.index(r) for r in self.reasons]] = cells.flats["dropped"]
            cells = replace(cells, flats={**cells.flats, "dropped": dropped})
        return new.holding(cells)

    def widen(self, other: State) -> Self | None:
        """Make one empty state for both if they are of one kind; which settings are read-outs is not known here."""
        if not isinstance(other, OpaqueState) or self.differences(other):
            return None
        return self.alike([self, other])[0].empty()

    def narrow(self, to: State) -> Self:
        return self

    def differences(self, other: object) -> list[str]:
        if not isinstance(other, OpaqueState) or other.tag != self.tag:
            return super().differences(other)
        ours, theirs = self.declared_here, other.declared_here
        apart = unlike(dict(ours.settings), dict(theirs.settings))
        found = [f"{n} is {a} here and {b} there" for n, (a, b) in apart.items()]
        found += [f"its axes are {other.axes} there and {self.axes} here" for _ in [0] if self.axes != other.axes]
        return found or _declared_otherwise(ours, theirs)

    def __repr__(self) -> str:
        return f"OpaqueState({self.tag!r})"


def _declared_otherwise(ours: Declared, theirs: Declared) -> list[str]:
    found = []
    for name in {**ours.parts, **theirs.parts}:
        a, b = ours.parts.get(name), theirs.parts.get(name)
        one = a if a is not None else b
        if a is None or b is None:
            if not (isinstance(one, Flat) and one.optional):
                found.append(f"only one has a part {name!r}")
        elif name != "dropped" and _shape(a, ours) != _shape(b, theirs):
            found.append(f"its {name!r} is declared otherwise")
    names = ("behind", "counted", "folds", "folds_by_rows", "most", "times")
    return found + [f"{n} is declared otherwise" for n in names if getattr(ours, n) != getattr(theirs, n)]


def _shape(part: Flat | Tally, declared: Declared) -> Any:
    """What is said of a part."""
    if isinstance(part, Tally):
        return declared.extents[part.places], part.level, part.level and declared.extents[part.bits], part.pairs
    shape = [declared.extents[s] if isinstance(s, str) else s for s in part.shape]
    return shape, part.form, part.optional, part.front, part.like
