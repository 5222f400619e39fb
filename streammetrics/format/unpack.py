"""Reading sections: of one schema as many as there are, in one pass, all of it checked.

What is accepted is what `pack` writes, to the bit; so equal content has one digest, and hostile bytes make no state that
counting could not have made. Sizes follow from the lead, and are bounded before anything is allocated.
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
from .read_flat import read_flat, says_nothing
from .read_keys import check_axes, read_inner, read_keys, read_words
from .read_tally import read_folds, read_levels, read_tally
from .schema import Schema
from .section import need
from .section_header import Lead

__all__ = ["MAX_BYTES", "Sections", "unpack"]

Ints = NDArray[np.int64]

MAX_BYTES = 1 << 30
GROUP = Axis(("group",))  # what tells sections apart, or those that are merged with each other


class Sections(Sequence[State]):
    """The states of some sections: one table of all their cells, of which each is a piece.

    Parameters
    ----------
    joined : State
        All cells, section after section, not aligned.
    fronts, cells : int64
        Where those of each section begin, and the end.
    """

    def __init__(self, joined: State, fronts: Ints, cells: Ints) -> None:
        self.joined, self.fronts, self.cells = joined, fronts, cells

    def __len__(self) -> int:
        return len(self.fronts) - 1

    def __getitem__(self, i: int) -> State:  # type: ignore[override]
        if not -len(self) <= i < len(self):
            raise IndexError(i)
        i %= len(self)
        if len(self) == 1:
            return self.joined
        return self.joined.take_fronts(np.arange(self.fronts[i], self.fronts[i + 1])).used_words()

    def __iter__(self) -> Iterator[State]:
        return (self[i] for i in range(len(self)))

    def apart(self) -> State:
        """All cells, told apart by their section: it is an axis more, in front."""
        return self._fronted(np.arange(len(self)), Vocabulary("integer", np.arange(len(self))))

    def each(self, numbers: NDArray[Any]) -> NDArray[Any]:
        """Add up numbers of all front cells by section."""
        out = np.zeros((len(self), *numbers.shape[1:]), numbers.dtype)
        some = np.diff(self.fronts) > 0
        if some.any():
            out[some] = np.add.reduceat(numbers, self.fronts[:-1][some], axis=0)
        return out

    def grouped(self, groups: Sequence[int]) -> dict[int, State]:
        """Merge those of each group, given by section, all in one fold; what merging them would make, and raise."""
        if len(self) == 1:
            return {groups[0]: self.joined}
        if type(self.joined).alike is not State.alike:  # whether they may be added shows in each, not in all of them
            for group in dict.fromkeys(groups):
                self.joined.alike([self[i] for i, mine in enumerate(groups) if mine == group])
        return self._folded(np.asarray(groups, np.int64))

    def _folded(self, groups: Ints) -> dict[int, State]:
        joined, cells = self.joined, self.joined.cells
        if (groups == groups[0]).all():
            return {int(groups[0]): regroup(joined, cells.keys, cells.axes, cells.words)}
        names = Vocabulary("integer", np.unique(groups))
        to = self._fronted(names.ranks(groups), names).cells
        made = regroup(joined, to.keys, to.axes, to.words).cells
        found, begins = np.unique(made.keys[:, 0], return_index=True)
        ends = np.append(begins, len(made.keys))[1:]
        whole = joined.holding(replace(made, axes=cells.axes, keys=made.keys[:, 1:], words=made.words[1:]))
        of = {
            made.words[0].key(rank): whole.take_fronts(np.arange(a, b)).present()
            for rank, a, b in zip(found.tolist(), begins, ends, strict=True)
        }
        return {group: of[group] if group in of else joined.empty() for group in dict.fromkeys(groups.tolist())}

    def _fronted(self, ranks: Ints, names: Vocabulary) -> State:
        """All cells, with an axis more in front: the rank of each section."""
        cells = self.joined.cells
        keys = np.column_stack([np.repeat(ranks, np.diff(self.fronts)), cells.keys])
        return self.joined.holding(replace(cells, axes=(GROUP, *cells.axes), keys=keys, words=(names, *cells.words)))


def unpack(schema: Schema, plains: Sequence[bytes], max_bytes: int = MAX_BYTES) -> Sections:
    """Read sections of one schema.

    Parameters
    ----------
    schema : Schema
        What the header says of all of them.
    plains : sequence of bytes
        The sections.
    max_bytes : int
        The most memory that their content may take.

    Raises
    ------
    StateFormatError
        A section is not what `pack` would write, or larger than that.
    IncompatibleStateError
        Keys of the sections are of different kinds.
    """
    try:
        with np.errstate(over="ignore"):
            return _unpack(schema, plains, max_bytes)
    except (StateFormatError, IncompatibleStateError, MemoryError):
        raise
    except Exception as error:  # of bytes that nobody vouches for: whatever they break is said as that
        raise StateFormatError(f"a section is inconsistent: {type(error).__name__}: {str(error)[:200]}") from error


def _unpack(schema: Schema, plains: Sequence[bytes], max_bytes: int) -> Sections:
    if not plains:
        return Sections(schema.like, np.zeros(1, np.int64), np.zeros(1, np.int64))
    lead = Lead(schema, plains, max_bytes)
    like = lead.layout.like
    keys = read_keys(lead)
    words = [read_words(lead, i) for i in range(len(lead.layout.columns))]
    inner, behind = read_inner(lead, words)
    check_axes(like.axes, words, keys)
    front_words = tuple(w.placed(keys, i, lead.fronts) for i, w in enumerate(words[: keys.shape[1]]))
    flats = {f.name: read_flat(lead, f) for f in lead.layout.flats}
    entries = {t.name: read_tally(lead, t) for t in lead.layout.tallies}
    lead.finish()
    dropped = flats.get("dropped")
    if dropped is not None and lead.layout.schema.reasons != like.reasons:
        wide = np.zeros((len(dropped), len(like.reasons)), np.int64)
        wide[:, [like.reasons.index(r) for r in lead.layout.schema.reasons]] = dropped
        flats["dropped"] = wide
    order = [n for n in like.parts() if n in flats]
    cells = Cells(like.axes, keys, front_words, inner, behind, {n: flats[n] for n in order}, entries)
    made = like.holding(cells)
    _check(made, lead)
    if len(plains) == 1:
        entries = {n: tallies_.narrow(e) for n, e in entries.items()}
        made = like.holding(Cells(like.axes, keys, front_words, inner, behind, cells.flats, entries))
    return Sections(made, lead.ends(lead.fronts), lead.ends(lead.cells))


def _check(made: State, lead: Lead) -> None:
    """What no part shows alone."""
    for flat in lead.layout.flats:
        if flat.optional:
            counts = lead.fronts if lead.layout.fronts(flat) else lead.cells
            need(not says_nothing(made, flat, counts), f"{flat.name} says nothing, and should be absent")
    read_folds(made)
    read_levels(made)
    try:
        rows = made.rows_behind
        need((made.seen > 0).all() and (made.cells.inner is None or (rows > 0).all()), "a cell has no rows")
        check_totals(made)
        made.check()
    except CounterOverflowError as error:
        raise StateFormatError(str(error)) from error
