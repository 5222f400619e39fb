"""Read the headers of sections; a section is the encoding of a state.

The header of a section contains the sizes of all pieces of the section. The offsets of the pieces are computed from
these sizes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import StateFormatError
from ..numerics.slice_keys import KINDS, SHARDS
from ..state.declare import Flat
from .schema import Schema
from .section import HEADER, LIMB, NAMES, Section, SectionLayout, count_noise_planes, is_sparse, require
from .varint import Pieces, VarintStreams, sum_up

__all__ = ["SectionReader", "estimate_memory", "estimate_section_memory", "get_layout"]

KEY_BYTES = 320
"""An upper bound on the memory in bytes of the Python object for a slice key, in addition to the bytes of its text."""
IS_TEXT = np.array([False, *KINDS.values(), *(False for _ in SHARDS)])

Ints = NDArray[np.int64]
Array = NDArray[Any]


def get_layout(schema: Schema) -> SectionLayout:
    """Return the layout of sections with this schema, and cache it in the schema for later calls."""
    layout: SectionLayout | None = schema.__dict__.get("layout")
    if layout is None:
        layout = schema.__dict__["layout"] = SectionLayout(schema)
    return layout


def estimate_section_memory(schema: Schema, begin: bytes) -> int:
    """Return an upper bound on the memory in bytes that reading a section takes, not counting the section itself.

    `begin` contains the first bytes of the section, which may be untrusted. If it is shorter than the header, return 0.
    """
    layout = get_layout(schema)
    # Do not raise an error for a truncated header, because reading the section raises one.
    if len(begin) < HEADER.itemsize * len(layout.header_names):
        return 0
    return estimate_memory(layout, layout.read_header(begin))


def estimate_memory(layout: SectionLayout, header: Mapping[str, int]) -> int:
    """Return an upper bound on the memory in bytes that reading sections takes, not counting the sections.

    `header` maps the name of each header field to the sum of its values over all sections. Reading takes up to twice
    the memory of the result. A manipulated header may contain huge numbers, so the sums are Python integers, which
    cannot overflow.
    """
    fronts = header["fronts"]
    cells = header["cells"] if layout.has_inner else fronts
    size = 8 * fronts * len(layout.columns) + (32 * cells if layout.has_inner else 0)
    by_front, by_cell = layout.flat_bytes
    # A state without cells (such as slices) is read as if it had one cell in which all numbers are zero.
    size += by_front * max(fronts, 1) + by_cell * cells
    for tally in layout.tallies:
        wide, weighted = layout.places[tally.name][2], header[f"excess {tally.name}"] > 0
        size += header[f"entries {tally.name}"] * (16 + 4 * wide + 16 * weighted)
        # A tally (a histogram) stores the number of entries in each cell (such as a slice). If it has several output
        # labels, it stores this number for each combination of cell and label.
        size += 16 * cells * (layout.label_slots[tally.name] - 1)
    for i in range(len(layout.columns)):
        size += KEY_BYTES * header[f"words {i}"] + header[f"letters {i}"]
    return 2 * size


class SectionReader:
    """A reader that decodes one or more sections with the same schema in one pass.

    The constructor reads the headers. The methods then read the pieces in the order in which they were written.
    Attributes and arguments that contain a count for each section are arrays with one element per section. If there is
    only one section, they are Python integers instead, because arithmetic on one-element arrays takes twenty times as
    long.
    """

    def __init__(self, schema: Schema, sections: Sequence[Section], max_bytes: int) -> None:
        self.layout, self.sections, self.is_single = get_layout(schema), sections, len(sections) == 1
        self.plains: list[bytes] = [section.plain for section in sections]
        plains, names = self.plains, self.layout.header_names
        size = HEADER.itemsize * len(names)
        require(min(map(len, plains)) >= size, "a section is truncated")
        self.header: dict[str, Any]
        if self.is_single:
            self.header = totals = self.layout.read_header(plains[0])
        else:
            table = np.frombuffer(b"".join([p[:size] for p in plains]), HEADER).reshape(len(plains), len(names))
            self.header = dict(zip(names, table.T.astype(np.int64), strict=True))
            totals = {n: int(v.sum()) for n, v in self.header.items()}
        self.fronts: Any = self.header["fronts"]
        self.cells: Any = self.header["cells"] if self.layout.has_inner else self.fronts
        self.front_total = totals["fronts"]
        self.cell_total = totals["cells"] if self.layout.has_inner else self.front_total
        self._check_memory(totals, max_bytes)
        self._locate_pieces(size)

    def count_rows(self, flat: Flat) -> tuple[Any, int]:
        """Return the number of cells for which a flat contains numbers, by section and in total.

        A flat is a part of the state that contains the same number of integers for every cell. Some flats contain
        numbers for front cells (slices), others for inner cells (groups or classes within slices).
        """
        return (self.fronts, self.front_total) if self.layout.is_by_front(flat) else (self.cells, self.cell_total)

    def find_boundaries(self, counts: Any) -> Ints:
        """Return the index of the first element of each section, followed by the total number of elements.

        `counts` contains the number of elements of each section.
        """
        if self.is_single:
            return np.array([0, int(counts)])
        return np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)

    def read_numbers(self, counts: Any) -> Array:
        """Read the next `counts` variable-length numbers of every section into one array.

        The array may be a view that shares its memory with other arrays.
        """
        return self.numbers.read(counts)

    def adds_up(self, numbers: Array, rows: Any, counts: Any) -> bool:
        """Return whether the numbers of each section add up to the section's element of `counts`.

        `rows` gives the number of elements of `numbers` in each section.
        """
        if self.is_single:
            return bool(sum_up(numbers) == counts)
        run = np.concatenate([[0], np.cumsum(numbers, dtype=np.int64)])[self.find_boundaries(rows)]
        return np.array_equal(run[1:] - run[:-1], counts)

    def check_finished(self) -> None:
        """Raise an error unless all bytes of the sections have been read."""
        self.numbers.check_finished()
        require(self.rest.is_at(self._end) and self.noise.is_at(self._noise_end), "there are bytes after the last part")

    def _check_memory(self, header: dict[str, int], max_bytes: int) -> None:
        """Raise an error, before any memory is allocated, if reading would take more than `max_bytes`.

        `header` maps the name of each header field to the sum of its values over all sections.
        """
        size = estimate_memory(self.layout, header) + sum(section.size for section in self.sections)
        for _, shift, wide in self.layout.places.values():
            room = 1 << (32 - max(shift - 64, 0) if wide else 64 - shift)
            require(self.cell_total <= room, "there are more cells than the format allows")
        if size > max_bytes:
            raise StateFormatError(
                f"reading the state takes {size:,} bytes, more than max_bytes allows; "
                "raise this limit if you trust the source"
            )

    def _locate_pieces(self, size: int) -> None:
        """Compute the offsets of all pieces; raise an error unless the pieces fill the sections exactly.

        `size` is the length of a header in bytes.
        """
        header, fronts, cells = self.header, self.fronts, self.cells
        rest: Any = 0
        noise: Any = 0
        small: Any = self.layout.key_columns * fronts
        for i in range(len(self.layout.columns)):
            kind, words, letters = (header[f"{what} {i}"] for what in ("kind", "words", "letters"))
            require(_is_all((kind <= len(NAMES)) & ((kind > 0) == (words > 0))), "keys have an unknown kind")
            require(_is_all((letters == 0) | (kind > 0)), "there is text without keys")
            small, rest = small + words, rest + letters * IS_TEXT[kind]
        if self.layout.has_inner:
            width = 0 if self.layout.like.inner_axis is None else self.layout.like.inner_axis.key_width
            ids = self.layout.like.cells.class_vocabulary is None
            small = small + fronts + (0 if ids else width * cells)
            rest = rest + (8 * width * cells if ids else 0)
        for rows, (numbers, low) in zip((fronts, cells), self.layout.regular_sizes, strict=True):
            small, rest = small + numbers * rows, rest + LIMB * low * rows
        for flat in self.layout.irregular_flats:
            numbers, places = self.count_written(flat)
            small = small + places + numbers * (2 if flat.form == "exact" else 1)
            if flat.form == "exact":
                rest = rest + 4 * header[f"chunks {flat.name}"]
            elif flat.limbs:
                rest = rest + LIMB * numbers
        for tally in self.layout.tallies:
            n, excess = header[f"entries {tally.name}"], header[f"excess {tally.name}"]
            require(_is_all(excess <= 1), "a number in the header is out of range")
            small = small + cells * self.layout.label_slots[tally.name] + n * (1 + excess)
            rest = rest + LIMB * excess * n
            if tally.name in self.layout.plane_tallies:
                zeros, width = (header[f"{what} {tally.name}"] for what in ("zeros", "width"))
                require(_is_all((width <= 8) & (zeros < 64)), "a number in the header is out of range")
                low = count_noise_planes(width, zeros)
                rest, noise = rest + (width - low) * n, noise + low * n
            else:
                small = small + n
                if tally.level is not None:
                    require(_is_all(header[f"zeros {tally.name}"] < 64), "a number in the header is out of range")
        begin: Any = size + 0 * fronts
        self._end = begin + small + 2 * header["two"] + 8 * header["three"] + rest
        self._noise_end = noise + 0 * fronts
        noises = [section.noise for section in self.sections]
        if not self._is_each(self._end, map(len, self.plains)):
            # The frame reader has split each section where its compressed bytes end: `plain` was compressed and `noise`
            # was not. If a split contradicts the header, the writer of the frame has compressed more or fewer bytes
            # than `PackedSection` does. So join the two parts of each section again, and split it where its noise
            # begins according to the header.
            ends = [self._end] if self.is_single else self._end.tolist()
            wholes = [b"".join(section) for section in self.sections]
            self.plains = [whole[:end] for whole, end in zip(wholes, ends, strict=True)]
            noises = [whole[end:] for whole, end in zip(wholes, ends, strict=True)]
        good = self._is_each(self._end, map(len, self.plains)) and self._is_each(self._noise_end, map(len, noises))
        require(good, "the parts do not fill the section")
        self.numbers = VarintStreams(self.plains, begin, small, header["two"], header["three"])
        self.rest = Pieces(self.plains, self._end - rest)
        self.noise = Pieces(noises, 0 * fronts)

    def _is_each(self, sizes: Any, wanted: Iterator[int]) -> bool:
        """Return whether `sizes` and `wanted` give the same size for each section."""
        return bool(sizes == next(wanted)) if self.is_single else sizes.tolist() == list(wanted)

    def count_written(self, flat: Flat) -> tuple[Any, Any]:
        """Return how many numbers of a flat, and how many of their positions, each section stores.

        A flat is a part of the state with the same number of integers in every cell. If a section stores it sparsely
        (without neutral numbers such as 0), it stores a position for each number; otherwise, it stores no positions.
        """
        whole, name = self.count_rows(flat)[0] * self.layout.extents[flat.name], f"some {flat.name}"
        if name not in self.header:
            return whole, 0 * whole
        some = self.header[name]
        few = some != whole
        require(_is_all(few <= is_sparse(some, whole)), f"{flat.name} should be written in full")
        return some, some * few


def _is_all(good: Any) -> bool:
    return good if isinstance(good, bool) else bool(good.all())
