"""Laws of time windows, decay and corrections. A correction subtracts rows that were counted by mistake."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..collect.accumulator import definition_of
from ..collect.metric_like import columns_of, states_of, with_states, without_block_ends
from ..compose.decayed import Decayed
from ..compose.delta import Delta
from ..compose.sharded import Sharded
from ..compose.sliced import Sliced
from ..compose.windowed import Windowed
from ..errors import IncompatibleStateError
from ..state.declare import UNKNOWN_EXTREME, is_saturated
from ..state.state import State
from .case import Case, Law, Rows, expect, expect_same_bytes
from .objects import absent_class, bytes_round_trip, merge_leaves_other, order, splits
from .specimens import Columns, sample_keys

WIDTH = 10


def windows(case: Case) -> None:
    """A window equals a metric of its rows alone. `lifetime` covers all rows, and `last` covers the newest windows."""
    steps = _random_steps(case)
    for keep in (None, int(case.rng.integers(1, 6))):
        check_each_window(case, steps, keep)


def windows_in_any_order(case: Case) -> None:
    """Windows of a metric, windows of slices and slices of windows each obey the general laws for rows in any order."""
    keys = {"key": sample_keys(case.rng, case.n, "string", several=3)[case.blocks]}
    keep = int(case.rng.integers(1, 5))
    makers: tuple[Callable[[], Any], ...] = (
        lambda: Windowed(case.make(), width=WIDTH, time="step", keep=keep),
        lambda: Windowed(Sliced(case.make(), by="key", limit=2), width=WIDTH, time="step", keep=keep),
        lambda: Sliced(Windowed(case.make(), width=WIDTH, time="step", keep=keep), by="key", limit=2),
    )
    make = makers[case.rng.integers(3)]
    windowed = case._replace(make=make, columns=case.columns | {"step": _random_steps(case)} | keys)
    read = {n: c for n, c in windowed.columns.items() if n in columns_of(make())}
    for law in (splits, order, merge_leaves_other, bytes_round_trip, absent_class):
        law(windowed._replace(columns=read))


def decay(case: Case) -> None:
    """With decay, a row counts twice as much as a row one half-life older. Metrics that cannot decay raise an error."""
    try:
        Decayed(case.make(), half_life=WIDTH)
    except TypeError as error:
        # This metric does not support decay. Check only that the error says why.
        expect("decay" in str(error), "an error that says why no row can decay", error)
        return
    keep = int(case.rng.integers(1, 5))
    read = {
        n: c
        for n, c in (case.columns | {"step": _random_steps(case)}).items()
        if n in {*columns_of(case.make()), "step"}
    }
    make = lambda: Decayed(case.make(), half_life=WIDTH, keep=keep)  # noqa: E731 - a case takes what makes it
    faded = case._replace(make=make, columns=read)
    epochs = read["step"] // WIDTH
    latest = int(epochs.max(initial=-(1 << 60)))
    expected = case.build(case.take([]))
    for epoch in sorted({e for e in epochs.tolist() if e > latest - keep}):
        of_epoch = without_block_ends(case.build(case.take(epochs == epoch)))
        for _ in range(min(epochs[epochs > latest - keep]), epoch):
            of_epoch.merge(of_epoch.copy())
        expected.merge(of_epoch)
    whole = faded.build()
    pooled = definition_of(whole).pool_states(states_of(whole))
    expect_same_bytes(
        expected, with_states(case.make(), pooled), "each epoch to count twice as often as the epoch before"
    )
    for law in (splits, order, bytes_round_trip):
        law(faded)


def corrections(case: Case) -> None:
    """Subtracting rows leaves the state of the other rows, or raises an error that says why this is impossible."""
    retracted, rest = case.parts(2)
    columns = case.columns | {"step": _random_steps(case)}
    makers: tuple[Callable[[], Any], ...] = (
        case.make,
        lambda: Windowed(case.make(), width=WIDTH, time="step"),
        lambda: Sharded(case.make(), unit="step", shards=8),
    )
    for make in makers:
        read = {n: c for n, c in columns.items() if n in columns_of(make())}
        one = case._replace(make=make, columns=read)
        whole, part, expected = one.build(), one.build(one.take(retracted)), one.build(one.take(rest))
        before, theirs = whole.to_bytes(), part.to_bytes()
        delta = Delta(make())
        delta.retracted.update(one.take(retracted))
        try:
            less = whole.copy().subtract(part)
        except IncompatibleStateError as error:
            # Rows cannot be subtracted from some states, such as those of a minimum, a maximum or a sample. Check only
            # that the error says so.
            expect("be subtracted" in str(error), "an error that says that rows cannot be subtracted", error)
            continue
        expect(
            (whole.to_bytes(), part.to_bytes()) == (before, theirs),
            "a subtraction from a copy to change nothing else",
            "other bytes",
        )
        if all(map(_is_subtractable, states_of(whole), states_of(expected), states_of(part))):
            expect_same_bytes(expected, less, "the difference to equal the metric of the other rows")
            expect_same_bytes(
                expected, delta.apply_to(whole), "a delta of retracted rows to leave the state of the other rows"
            )


def _is_subtractable(whole: State, rest: State, part: State) -> bool:
    """Return whether subtracting `part` from `whole` must give exactly `rest`, the state of the other rows.

    The result may differ in four cases: the other rows are few enough to be kept exactly but are already in buckets; a
    sum of squares is saturated; a subtracted row has changed a flag or a bucket width, and the change remains; or a
    subtracted row contains the minimum or maximum, which is then unknown.
    """
    if whole.folding is not None and len(whole.cells.tallies[whole.folding[1]]):
        return False
    for name, array in whole.cells.flats.items():
        form, other = whole.parts()[name].form, rest.cells.flats.get(name)
        if form == "square" and np.any(is_saturated(np.moveaxis(array, -1, 0))):
            return False
        if form in ("flag", "level") and not (other is not None and np.array_equal(other, array)):
            return False
        if form in UNKNOWN_EXTREME and np.isin(array, part.cells.flats[name]).any():
            return False
    return True


def _random_steps(case: Case) -> Rows:
    """Return a random time for each row, the same for all rows of a block.

    The times span several windows, are not sorted, and may be negative.
    """
    steps = case.rng.choice([-35, -1, 0, 9, 10, 31, 32, 45, 50], max(case.n, 1))
    return np.asarray(steps[case.blocks], np.int64)


def check_each_window(case: Case, steps: Rows, keep: int | None) -> None:
    """Check that each window, `lifetime` and `last` have the same bytes as metrics of their rows alone.

    `steps` contains the time of each row, and `keep` is the number of windows to keep, or None to keep all.
    """
    windowed = Windowed(case.make(), width=WIDTH, time="step", keep=keep).update(case.columns | {"step": steps})
    starts = steps // WIDTH * WIDTH
    newest = int(starts.max(initial=-(1 << 60)))
    oldest = -(1 << 62) if keep is None else newest - (keep - 1) * WIDTH
    kept = sorted({s for s in starts.tolist() if s >= oldest})
    expect(windowed.keys == kept, f"the windows {kept}", windowed.keys)
    for start in kept:
        expect_same_bytes(
            case.build(case.take(starts == start)), windowed[start], f"window {start} to equal the metric of its rows"
        )
    expect_same_bytes(case.build(), windowed.lifetime(), "`lifetime` to equal the metric of all rows")
    for count in {1, 2, keep or 4}:
        if keep is None or count <= keep:
            rows: Columns = case.take(starts > newest - count * WIDTH)
            expect_same_bytes(
                case.build(rows), windowed.last(count), f"the last {count} windows to equal the metric of their rows"
            )


WINDOW_LAWS: Sequence[Law] = [windows, windows_in_any_order, decay, corrections]
"""The laws of this module, in the order in which `check_metric` runs them."""
