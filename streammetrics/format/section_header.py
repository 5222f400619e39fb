"""The lead of some sections: how many of everything each has, and where it lies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import StateFormatError
from ..numerics.keys import KINDS, SHARDS
from .schema import Schema
from .section import LEAD, LIMB, NAMES, SectionLayout, need, noise, sparse
from .varint import Pieces, VarintStreams

__all__ = ["Lead", "layout_of", "taken", "weight"]

WORD = 320  # bytes of memory that the object of a word takes
TEXTS = np.array([False, *KINDS.values(), *(False for _ in SHARDS)])

Ints = NDArray[np.int64]
Array = NDArray[Any]


def layout_of(schema: Schema) -> SectionLayout:
    """The layout of a schema, made once."""
    made: SectionLayout | None = schema.__dict__.get("layout")
    if made is None:
        made = schema.__dict__["layout"] = SectionLayout(schema)
    return made


def weight(schema: Schema, begin: bytes) -> int:
    """The most memory that reading a section takes, beside its bytes, from how it begins; which is not checked yet."""
    layout = layout_of(schema)
    names = layout.lead_names
    if len(begin) < LEAD.itemsize * len(names):
        return 0  # it is cut off
    return taken(layout, dict(zip(names, np.frombuffer(begin, LEAD, len(names)).tolist(), strict=True)))


def taken(layout: SectionLayout, said: Mapping[str, int]) -> int:
    """The most memory that reading takes, beside the bytes of sections: twice what stays, in numbers without end."""
    fronts = said["fronts"]
    cells = said["cells"] if layout.inner else fronts
    size = 8 * fronts * len(layout.columns) + (32 * cells if layout.inner else 0)
    for flat in layout.flats:
        rows = max(fronts, 1) if layout.fronts(flat) else cells  # of a cell without rows there are zeros to be read
        size += flat.dtype.itemsize * rows * _width(layout, flat.name, flat.limbs)
    for tally in layout.tallies:
        wide, weighted = layout.places[tally.name][2], said[f"excess {tally.name}"] > 0
        size += said[f"entries {tally.name}"] * (16 + 4 * wide + 16 * weighted)
        size += 16 * cells * (layout.runs[tally.name] - 1)  # how many entries each label has
    for i in range(len(layout.columns)):
        size += WORD * said[f"words {i}"] + said[f"letters {i}"]
    return 2 * size


def _width(layout: SectionLayout, name: str, limbs: int) -> int:
    return layout.extents[name] * max(limbs, 1)


class Lead:
    """What the leads of some sections say, and what comes after them, to be taken piece by piece."""

    def __init__(self, schema: Schema, plains: Sequence[bytes], max_bytes: int) -> None:
        self.layout, self.plains, self.many = layout_of(schema), plains, len(plains)
        names = self.layout.lead_names
        size = LEAD.itemsize * len(names)
        need(min(map(len, plains)) >= size, "a section is cut off")
        data = plains[0][:size] if self.many == 1 else b"".join([p[:size] for p in plains])
        table = np.frombuffer(data, LEAD).reshape(self.many, len(names)).astype(np.int64)
        self.said: dict[str, Ints] = dict(zip(names, table.T, strict=True))
        self.fronts = self.said["fronts"]
        self.cells = self.said["cells"] if self.layout.inner else self.fronts
        self.total, self.behind = int(self.fronts.sum()), int(self.cells.sum())
        # of one section all this is numbers of Python: an array of one costs twenty times as much
        one = dict(zip(names, table[0].tolist(), strict=True)) if self.many == 1 else None
        self._bound(one or {n: int(v.sum()) for n, v in self.said.items()}, max_bytes)
        self._place(size, one or self.said)

    def of(self, flat: Any) -> tuple[Ints, int]:
        """How many cells of every section have a row of a flat, and of all."""
        return (self.fronts, self.total) if self.layout.fronts(flat) else (self.cells, self.behind)

    def ends(self, counts: Ints) -> Ints:
        """Where the members of each section begin, and the end."""
        if self.many == 1:
            return np.array([0, int(counts[0])])
        return np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)

    def section(self, counts: Ints) -> Ints:
        """The section of each member."""
        return np.repeat(np.arange(self.many), counts)

    def next(self, counts: Ints) -> Array:
        """The next small numbers of every section."""
        return self.numbers.next(counts)

    def fits(self, each: Ints, rows: Ints, counts: Ints) -> bool:
        """Whether what each row has, so many rows a section, adds up to the count of every section."""
        if self.many == 1:
            return int(each.sum()) == int(counts[0])
        run = np.concatenate([[0], np.cumsum(each)])[self.ends(rows)]
        return np.array_equal(run[1:] - run[:-1], counts)

    def finish(self) -> None:
        """Raise unless all was read."""
        self.numbers.finish()
        need(self.rest.done(self._last) and self.last.done(self._end), "there are bytes after the last part")

    def _bound(self, said: dict[str, int], max_bytes: int) -> None:
        """Refuse what would take too much memory; in whole numbers of Python, which do not overflow."""
        size = taken(self.layout, said) + sum(map(len, self.plains))
        for _, shift, wide in self.layout.places.values():
            room = 1 << (32 - max(shift - 64, 0) if wide else 64 - shift)
            need(self.behind <= room, "there are more cells than codes")
        if size > max_bytes:
            raise StateFormatError(f"reading the content takes {size:,} bytes, more than max_bytes allows")

    def _place(self, size: int, said: dict[str, Any]) -> None:
        """Find where everything lies, and that it fills the sections."""
        rest: Any = 0
        last: Any = 0
        columns = len(self.layout.columns) - (self.layout.like.cells.behind is not None)
        fronts = said["fronts"]
        cells = said["cells"] if self.layout.inner else fronts
        small: Any = columns * fronts
        for i in range(len(self.layout.columns)):
            kind, words, letters = (said[f"{what} {i}"] for what in ("kind", "words", "letters"))
            need(_all((kind <= len(NAMES)) & ((kind > 0) == (words > 0))), "keys are of no known kind")
            need(_all((letters == 0) | (kind > 0)), "there are letters without words")
            small, rest = small + words, rest + letters * TEXTS[kind]
        if self.layout.inner:
            width = 0 if self.layout.like.behind is None else self.layout.like.behind.width
            ids = self.layout.like.cells.behind is None
            small = small + fronts + (0 if ids else width * cells)
            rest = rest + (8 * width * cells if ids else 0)
        for flat in self.layout.flats:
            numbers, places = self._stored(flat, fronts if self.layout.fronts(flat) else cells, said)
            small = small + places + numbers * (2 if flat.form == "exact" else 1)
            if flat.form == "exact":
                rest = rest + 4 * said[f"chunks {flat.name}"]
            elif flat.limbs:
                rest = rest + LIMB * numbers
        for tally in self.layout.tallies:
            n, excess = said[f"entries {tally.name}"], said[f"excess {tally.name}"]
            need(_all(excess <= 1), "the lead is out of range")
            small = small + cells * self.layout.runs[tally.name] + n * (1 + excess)
            rest = rest + LIMB * excess * n
            if tally.name in self.layout.planes:
                zeros, width = (said[f"{what} {tally.name}"] for what in ("zeros", "width"))
                need(_all((width <= 8) & (zeros < 64)), "the lead is out of range")
                low = noise(width, zeros)
                rest, last = rest + (width - low) * n, last + low * n
            else:
                small = small + n
                if tally.level is not None:
                    need(_all(said[f"zeros {tally.name}"] < 64), "the lead is out of range")
        begin: Any = size + 0 * fronts
        self._last = begin + small + 2 * said["two"] + 8 * said["three"] + rest
        self._end = self._last + last
        sizes = len(self.plains[0]) if self.many == 1 else np.fromiter(map(len, self.plains), np.int64, self.many)
        need(_all(self._end == sizes), "the parts do not fill the section")
        self.numbers = VarintStreams(self.plains, begin, small, said["two"], said["three"])
        self.rest = Pieces(self.plains, self._last - rest)
        self.last = Pieces(self.plains, self._last)

    def texts(self, i: int) -> Array:
        """In which sections the keys of a column are texts."""
        return TEXTS[self.said[f"kind {i}"]]

    def stored(self, flat: Any) -> tuple[Ints, Ints]:
        """How many numbers of a flat are written in every section, and how many places of them."""
        numbers, places = self._stored(flat, self.of(flat)[0], self.said)
        return numbers, places

    def _stored(self, flat: Any, rows: Any, said: dict[str, Any]) -> tuple[Any, Any]:
        whole, name = rows * self.layout.extents[flat.name], f"some {flat.name}"
        if name not in said:
            return whole, 0 * whole
        some = said[name]
        few = some != whole
        need(_all(few <= sparse(some, whole)), f"{flat.name} should be written in full")
        return some, some * few


def _all(good: Any) -> bool:
    return good if isinstance(good, bool) else bool(good.all())
