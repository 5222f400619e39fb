"""Decode and check, in one pass, any number of sections (encoded states) that share a schema.

Only bytes that `pack_state` could have written are accepted. So equal contents have equal digests, and every state that
untrusted bytes produce could also result from counting rows. The memory that decoding takes is computed from the
headers of the sections, and checked against a limit before any of it is allocated.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import CounterOverflowError, IncompatibleStateError, StateFormatError
from ..state import tally as tallies_
from ..state.axes import Axis, Vocabulary
from ..state.cells import Cells
from ..state.consistency import check_totals
from ..state.fold import regroup
from ..state.state import State
from .read_flat import is_redundant, read_flat
from .read_keys import check_axes, read_inner, read_keys, read_vocabulary
from .read_tally import check_folding, check_levels, read_tally
from .schema import Schema
from .section import Section, require
from .section_header import SectionReader

__all__ = ["MAX_BYTES", "Sections", "unpack_sections"]

Ints = NDArray[np.int64]

MAX_BYTES = 1 << 30
SECTION_AXIS = Axis(("group",))
"""The additional first axis of a state that contains the cells of several sections. Its key is the number of the section,
or of the group of sections that are merged."""


class Sections(Sequence[State]):
    """A sequence of states, one for each section (encoded state), stored as a single joined state.

    Parameters
    ----------
    joined : State
        The state with the cells of all sections, one section after the other. Several sections may contain the same
        key.
    fronts : int64
        The index of the first front cell (slice) of each section, then the total number of front cells.
    cells : int64
        The index of the first inner cell (a group or class within a slice) of each section, then their total number.
    """

    def __init__(self, joined: State, fronts: Ints, cells: Ints) -> None:
        self.joined, self.fronts, self.cells = joined, fronts, cells

    def __len__(self) -> int:
        return len(self.fronts) - 1

    def __getitem__(self, i: int) -> State:  # type: ignore[override]
        count = len(self)
        if not -count <= i < count:
            raise IndexError(i)
        if count == 1:
            return self.joined
        i %= count
        return self.joined.take_fronts(np.arange(self.fronts[i], self.fronts[i + 1])).drop_unused_keys()

    def __iter__(self) -> Iterator[State]:
        return (self[i] for i in range(len(self)))

    def with_section_axis(self) -> State:
        """Return one state for all sections, with the section index as an additional first axis."""
        return self._prepend_axis(np.arange(len(self)), Vocabulary("integer", np.arange(len(self))))

    def sum_by_section(self, numbers: NDArray[Any]) -> NDArray[Any]:
        """Return, for each section, the sum of `numbers` over its front cells (slices)."""
        out = np.zeros((len(self), *numbers.shape[1:]), numbers.dtype)
        some = np.diff(self.fronts) > 0
        if some.any():
            out[some] = np.add.reduceat(numbers, self.fronts[:-1][some], axis=0)
        return out

    def merge_by_group(self, groups: Sequence[int]) -> dict[int, State]:
        """Merge the sections of each group; return the states by group. `groups` gives the group of each section."""
        if len(self) == 1:
            return {groups[0]: self.joined}
        # Some classes override `unify_parts` to check whether states may be merged. The check needs the separate
        # states, so run it before the states are merged.
        if type(self.joined).unify_parts is not State.unify_parts:
            for group in dict.fromkeys(groups):
                self.joined.unify_parts([self[i] for i, mine in enumerate(groups) if mine == group])
        return self._fold_groups(np.asarray(groups, np.int64))

    def _fold_groups(self, groups: Ints) -> dict[int, State]:
        joined, cells = self.joined, self.joined.cells
        if (groups == groups[0]).all():
            return {int(groups[0]): regroup(joined, cells.keys, cells.axes, cells.vocabularies)}
        names = Vocabulary("integer", np.unique(groups))
        target = self._prepend_axis(names.find_ranks(groups), names).cells
        folded = regroup(joined, target.keys, target.axes, target.vocabularies).cells
        ranks, begins = np.unique(folded.keys[:, 0], return_index=True)
        ends = np.append(begins, len(folded.keys))[1:]
        rest = replace(folded, axes=cells.axes, keys=folded.keys[:, 1:], vocabularies=folded.vocabularies[1:])
        whole = joined.with_cells(rest)
        merged = {
            folded.vocabularies[0].read_key(rank): whole.take_fronts(np.arange(a, b)).canonicalize()
            for rank, a, b in zip(ranks.tolist(), begins, ends, strict=True)
        }
        return {
            group: merged[group] if group in merged else joined.empty_copy() for group in dict.fromkeys(groups.tolist())
        }

    def _prepend_axis(self, ranks: Ints, names: Vocabulary) -> State:
        """Return one state for all sections, with an additional first axis.

        The key of section i on this axis is the element `ranks[i]` of the vocabulary `names`.
        """
        cells = self.joined.cells
        keys = np.column_stack([np.repeat(ranks, np.diff(self.fronts)), cells.keys])
        return self.joined.with_cells(
            replace(cells, axes=(SECTION_AXIS, *cells.axes), keys=keys, vocabularies=(names, *cells.vocabularies))
        )


def unpack_sections(schema: Schema, sections: Sequence[Section], max_bytes: int = MAX_BYTES) -> Sections:
    """Decode sections that share a schema.

    Parameters
    ----------
    schema : Schema
        The common schema of the sections.
    sections : sequence of Section
        The sections.
    max_bytes : int
        The maximum memory, in bytes, that reading all sections may take.

    Raises
    ------
    StateFormatError
        A section contains bytes that `pack_state` would not write, or reading would take more memory than `max_bytes`.
    IncompatibleStateError
        The keys of a column are of different kinds in different sections, such as integers and text.
    """
    try:
        with np.errstate(over="ignore"):
            return _unpack_sections(schema, sections, max_bytes)
    except (StateFormatError, IncompatibleStateError, MemoryError):
        raise
    # Untrusted bytes may cause any exception. Report every such exception as corrupt bytes.
    except Exception as error:
        raise StateFormatError(
            f"the state is corrupt: a section is inconsistent: {type(error).__name__}: {str(error)[:200]}"
        ) from error


def _unpack_sections(schema: Schema, sections: Sequence[Section], max_bytes: int) -> Sections:
    if not sections:
        return Sections(schema.like, np.zeros(1, np.int64), np.zeros(1, np.int64))
    reader = SectionReader(schema, sections, max_bytes)
    like = reader.layout.like
    keys = read_keys(reader)
    vocabularies = [read_vocabulary(reader, i) for i in range(len(reader.layout.columns))]
    inner, classes = read_inner(reader, vocabularies)
    check_axes(like.axes, vocabularies, keys)
    front_vocabularies = tuple(w.rank_keys(keys, i, reader.fronts) for i, w in enumerate(vocabularies[: keys.shape[1]]))
    flats = {f.name: read_flat(reader, f) for f in reader.layout.flats}
    entries = {t.name: read_tally(reader, t) for t in reader.layout.tallies}
    reader.check_finished()
    dropped = flats.get("dropped")
    if dropped is not None and reader.layout.schema.reasons != like.reasons:
        wide = np.zeros((len(dropped), len(like.reasons)), np.int64)
        wide[:, [like.reasons.index(r) for r in reader.layout.schema.reasons]] = dropped
        flats["dropped"] = wide
    order = [n for n in like.parts() if n in flats]
    table = like.axes, keys, front_vocabularies, inner, classes, {n: flats[n] for n in order}
    state = like.with_cells(Cells(*table, entries))
    _check_state(state, reader)
    if reader.is_single:
        # The checks have cached arrays in `state`. Return a new state with the same content but without these arrays.
        state = like.with_cells(Cells(*table, {n: tallies_.narrow_types(e) for n, e in entries.items()}))
    return Sections(state, reader.find_boundaries(reader.fronts), reader.find_boundaries(reader.cells))


def _check_state(state: State, reader: SectionReader) -> None:
    """Raise an error if the parts of a state contradict each other, so that no rows could have produced the state.

    For example, every cell (such as a slice) must have rows.
    """
    for flat in reader.layout.flats:
        if flat.optional:
            rows, _ = reader.count_rows(flat)
            require(not is_redundant(state, flat, rows), f"{flat.name} is redundant and should be absent")
    check_folding(state)
    check_levels(state)
    try:
        rows = state.inner_row_counts
        require(
            (state.total_row_counts > 0).all() and (state.cells.inner_keys is None or (rows > 0).all()),
            "a cell has no rows",
        )
        check_totals(state)
        state.check()
    except CounterOverflowError as error:
        raise StateFormatError(f"the state is corrupt: {error}") from error
