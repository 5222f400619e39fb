"""Laws of windows and of corrections: each window is what its rows make alone, and rows that are taken away never came."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..collect.accumulator import definition_of
from ..collect.metric_like import columns_of, states_of, with_states
from ..compose.decayed import Decayed
from ..compose.delta import Delta
from ..compose.sharded import Sharded
from ..compose.sliced import Sliced
from ..compose.windowed import Windowed
from ..errors import IncompatibleStateError
from ..state.declare import UNKNOWN, lost
from ..state.state import State
from .case import Case, Law, Rows, expect, same
from .objects import absent_class, bytes_round_trip, merge_leaves_other, order, splits
from .specimens import Columns, sample_keys

WIDTH = 10


def windows(case: Case) -> None:
    """Each window is, to the byte, the metric of its rows; `lifetime` that of all, and `last` that of the newest."""
    steps = _steps(case)
    for keep in (None, int(case.rng.integers(1, 6))):
        windows_are_alone(case, steps, keep)


def windows_in_any_order(case: Case) -> None:
    """Windows, and windows of slices and slices of windows, have one digest in whatever order rows come, late ones too."""
    keys = {"key": sample_keys(case.rng, case.n, "string", several=3)[case.blocks]}
    keep = int(case.rng.integers(1, 5))
    made: tuple[Callable[[], Any], ...] = (
        lambda: Windowed(case.make(), width=WIDTH, time="step", keep=keep),
        lambda: Windowed(Sliced(case.make(), by="key", limit=2), width=WIDTH, time="step", keep=keep),
        lambda: Sliced(Windowed(case.make(), width=WIDTH, time="step", keep=keep), by="key", limit=2),
    )
    make = made[case.rng.integers(3)]
    windowed = case._replace(make=make, columns=case.columns | {"step": _steps(case)} | keys)
    read = {n: c for n, c in windowed.columns.items() if n in columns_of(make())}
    for law in (splits, order, merge_leaves_other, bytes_round_trip, absent_class):
        law(windowed._replace(columns=read))


def fades(case: Case) -> None:
    """Where rows fade an epoch counts as often as it says, in whatever order rows come; or the metric refuses to fade."""
    try:
        Decayed(case.make(), half_life=WIDTH)
    except TypeError as error:  # a refusal is right, if it says why
        expect("fade" in str(error), "a refusal that says why no row can fade", error)
        return
    keep = int(case.rng.integers(1, 5))
    read = {n: c for n, c in (case.columns | {"step": _steps(case)}).items() if n in {*columns_of(case.make()), "step"}}
    make = lambda: Decayed(case.make(), half_life=WIDTH, keep=keep)  # noqa: E731 - a case takes what makes it
    faded = case._replace(make=make, columns=read)
    epochs = read["step"] // WIDTH
    latest = int(epochs.max(initial=-(1 << 60)))
    expected = case.fed(case.take([]))
    for epoch in sorted({e for e in epochs.tolist() if e > latest - keep}):
        of_epoch = case.fed(case.take(epochs == epoch))
        for _ in range(min(epochs[epochs > latest - keep]), epoch):
            of_epoch.merge(of_epoch.copy())
        expected.merge(of_epoch)
    whole = faded.fed()
    pooled = definition_of(whole).pooled(states_of(whole))
    same(expected, with_states(case.make(), pooled), "each epoch to count twice as often as that before")
    for law in (splits, order, bytes_round_trip):
        law(faded)


def corrections(case: Case) -> None:
    """Less some of its rows, it is what the others make, or the metric says that none can be taken away."""
    gone, rest = case.parts(2)
    columns = case.columns | {"step": _steps(case)}
    made: tuple[Callable[[], Any], ...] = (
        case.make,
        lambda: Windowed(case.make(), width=WIDTH, time="step"),
        lambda: Sharded(case.make(), unit="step", shards=8),
    )
    for make in made:
        read = {n: c for n, c in columns.items() if n in columns_of(make())}
        one = case._replace(make=make, columns=read)
        whole, part, expected = one.fed(), one.fed(one.take(gone)), one.fed(one.take(rest))
        before, theirs = whole.to_bytes(), part.to_bytes()
        delta = Delta(make())
        delta.retracted.update(one.take(gone))
        try:
            less = whole.copy().subtract(part)
        except IncompatibleStateError as error:  # of extremes, registers, samples, closed groups
            expect("taken away" in str(error), "a refusal that says that rows cannot be taken away", error)
            continue
        expect((whole.to_bytes(), part.to_bytes()) == (before, theirs), "copies to change alone", "other bytes")
        if all(map(_comes_apart, states_of(whole), states_of(expected), states_of(part))):
            same(expected, less, "what is left to be what the other rows make")
            same(expected, delta.apply_to(whole), "a delta of retracted rows to leave what the other rows make")


def _comes_apart(whole: State, rest: State, part: State) -> bool:
    """Whether a state says nothing but of rows that can be taken away: no flag, no bucket of rows that would be exact.

    Levels stay, too, and an extreme is not known any more if the rows that are taken away have it.
    """
    if whole.folds is not None and len(whole.cells.tallies[whole.folds[1]]):
        return False
    for name, array in whole.cells.flats.items():
        form, other = whole.parts()[name].form, rest.cells.flats.get(name)
        if form == "square" and np.any(lost(np.moveaxis(array, -1, 0))):
            return False
        if form in ("flag", "level") and not (other is not None and np.array_equal(other, array)):
            return False
        if form in UNKNOWN and np.isin(array, part.cells.flats[name]).any():
            return False
    return True


def _steps(case: Case) -> Rows:
    """When rows happened: some windows, of which one is far behind, and one before 0; a block has one time."""
    drawn = case.rng.choice([-35, -1, 0, 9, 10, 31, 32, 45, 50], max(case.n, 1))
    return np.asarray(drawn[case.blocks], np.int64)


def windows_are_alone(case: Case, steps: Rows, keep: int | None) -> None:
    """Each window, those expired, all, and the last of them are, to the byte, what is counted from their rows alone."""
    made = Windowed(case.make(), width=WIDTH, time="step", keep=keep).update(case.columns | {"step": steps})
    starts = steps // WIDTH * WIDTH
    newest = int(starts.max(initial=-(1 << 60)))
    oldest = -(1 << 62) if keep is None else newest - (keep - 1) * WIDTH
    kept = sorted({s for s in starts.tolist() if s >= oldest})
    expect(made.keys == kept, f"the windows {kept}", made.keys)
    for start in kept:
        same(case.fed(case.take(starts == start)), made[start], f"window {start} to be what its rows make alone")
    same(case.fed(), made.lifetime(), "`lifetime` to be what all rows make")
    for count in {1, 2, keep or 4}:
        if keep is None or count <= keep:
            rows: Columns = case.take(starts > newest - count * WIDTH)
            same(case.fed(rows), made.last(count), f"the last {count} windows to be what their rows make")


WINDOW_LAWS: Sequence[Law] = [windows, windows_in_any_order, fades, corrections]
"""What a metric keeps in windows, and when rows fade or are taken away."""
