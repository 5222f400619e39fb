"""States: merge in any tree, subtract, roll-up, selection, limits and expiry, on statistics made up to have every form."""

from __future__ import annotations

import datetime
from decimal import Decimal

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from state.cases import AXES, states
from state.synthetic import STATISTICS, Extremes, Once, Scores, Sums, Totals, made

import streammetrics as sm
from streammetrics.errors import CounterOverflowError, IncompatibleStateError
from streammetrics.format.frame import compute_digest
from streammetrics.numerics.slice_keys import decode_key, encode_key, hash_key
from streammetrics.state.axes import EXPIRED, OTHER, Axis, Vocabulary
from streammetrics.state.declare import Flat
from streammetrics.state.fold import fold
from streammetrics.state.retention import apply_limits, apply_retention, expire_epochs
from streammetrics.state.state import State

LAW = settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
TAKES_AWAY = [s for s in STATISTICS if not isinstance(s, (Extremes, Totals))]


@pytest.mark.slow
@LAW
@given(states(4))
def test_any_tree_of_merges(parts):
    a, b, c, d = parts
    whole = a.merge(b, c, d)
    assert whole == d.merge(b).merge(c.merge(a))
    assert whole == a.merge(b).merge(c).merge(d)
    assert compute_digest(whole) == compute_digest(d.merge(c.merge(b.merge(a))))
    assert a.merge(a.empty_copy()) == a == a.empty_copy().merge(a)
    assert int(whole.total_row_counts.sum()) == sum(int(p.total_row_counts.sum()) for p in parts)


@pytest.mark.slow
@LAW
@given(states(2, statistics=TAKES_AWAY))
def test_subtract_undoes_merge(parts):
    a, b = parts
    back = a.merge(b).subtract(b)
    assert np.array_equal(back.total_row_counts, a.total_row_counts)
    for name, array in a.cells.flats.items():
        part = a.parts()[name]
        if part.form != "square" and part.form != "flag":
            assert np.array_equal(back.read_cells_named(name), array), name
    if a.folding is None:
        for name, entries in a.cells.tallies.items():
            assert back.cells.tallies[name].equals(entries)
    assume(len(b))
    with pytest.raises(ValueError, match=r"below zero"):
        a.empty_copy().subtract(b)


@pytest.mark.slow
@LAW
@given(states(2, statistics=[Extremes(), Once()]))
def test_what_cannot_be_taken_away_says_so(parts):
    with pytest.raises(IncompatibleStateError, match="rows cannot be subtracted"):
        parts[0].subtract(parts[1])


def test_once_is_there_once():
    a = made(Once(), (), 3, 1, weights=False, kinds=())
    slots = a.cells.flats["there"].copy()
    slots[:] = 0
    slots[0, 5] = 1
    from dataclasses import replace

    a = a.with_cells(replace(a.cells, flats={**a.cells.flats, "there": slots}))
    with pytest.raises(IncompatibleStateError, match="there: entry 5 is in both states"):
        a.merge(a)


@pytest.mark.slow
@LAW
@given(states(3), st.data())
def test_roll_up_and_selection_commute_with_merging(parts, data):
    a, b, c = parts
    whole = a.merge(b, c)
    assert whole.without_axes == a.without_axes.merge(b.without_axes, c.without_axes)
    for axis in a.axes:
        assert whole.rollup(axis) == a.rollup(axis).merge(b.rollup(axis), c.rollup(axis))
    if len(whole):
        mask = np.array(data.draw(st.lists(st.booleans(), min_size=len(whole), max_size=len(whole))))
        one, rest = whole.select(mask), whole.select(~mask)
        assert one.merge(rest) == whole
        assert len(one) == int(mask.sum())


@pytest.mark.slow
@LAW
@given(states(3, limited=True))
def test_limits_and_expiry_commute_with_merging(parts):
    a, b, c = parts
    plain = fold(parts)
    whole = apply_retention(plain)
    assert (
        whole
        == a.merge(b, c)
        == apply_retention(a).merge(apply_retention(b).merge(apply_retention(c)))
        == c.merge(a).merge(b)
    )
    assert apply_retention(whole) == whole
    assert apply_limits(apply_retention(plain)) == expire_epochs(apply_retention(plain)) == whole
    assert int(whole.total_row_counts.sum()) == int(plain.total_row_counts.sum())
    column = 0
    for axis in whole.axes:
        above = [tuple(k) for k in whole.cells.keys[:, :column].tolist()]
        mine = [tuple(k) for k in whole.cells.keys[:, column : column + len(axis.names)].tolist()]
        for cell in set(above):
            found = {m for m, u in zip(mine, above, strict=True) if u == cell and min(m) > OTHER}
            if axis.limit is not None:
                words = whole.cells.vocabularies[column : column + len(axis.names)]
                pinned = {
                    m for m in found if tuple(w.read_key(r) for w, r in zip(words, m, strict=True)) in axis.pinned
                }
                assert len(found - pinned) <= axis.limit
            if axis.keep is not None:
                epochs = [int(whole.cells.vocabularies[column].values[m[0]]) for m in found if m[0] >= 0]
                assert not epochs or max(epochs) - min(epochs) < axis.keep * axis.size
        column += len(axis.names)


def test_a_limit_keeps_the_keys_of_smallest_hash():
    axes = (Axis(("k",), limit=2, pinned=(("zz",),)),)
    parts = [made(Sums(), axes, i, 9, weights=False, kinds=("string",)) for i in range(8)]
    whole = parts[0].merge(*parts[1:])
    met = {fold(parts).cells.vocabularies[0].read_key(r) for r in fold(parts).cells.keys[:, 0].tolist()}
    best = sorted(met - {"zz"}, key=lambda k: hash_key((k,)))[:2]
    kept = {whole.cells.vocabularies[0].read_key(r) for r in whole.cells.keys[:, 0].tolist() if r != OTHER}
    assert kept == {*best, "zz"}
    assert OTHER in whole.cells.keys


def test_expired_epochs_are_added_up():
    axes = (Axis(("hour",), "epoch", 3600, keep=1), Axis(("k",)))
    plain = made(Scores(), axes, 1, 40, weights=False, kinds=("", "string"))
    whole = apply_retention(plain)
    gone = whole.cells.keys[:, 0] == EXPIRED
    assert gone.sum() > 2, "what is behind stays told apart"
    assert int(whole.row_counts[gone].sum()) > 10
    assert whole.rollup(axes[1]) == plain.rollup(axes[1])


def test_hashes_are_for_ever():
    assert hash_key((1, "a", b"x", None)) == 12477035210926876333
    assert hash_key((True,)) == 17423581348897161076
    times = (datetime.date(2024, 2, 29), datetime.datetime(2024, 2, 29, 1, tzinfo=datetime.UTC), Decimal("1.50"))
    assert encode_key(times) == [{"date": 19782}, {"timestamp": 1709168400000000}, {"decimal": "1.5"}]
    assert decode_key(encode_key(times)) == times
    assert len({hash_key((t,)) for t in (*times, 19782, "1.5")}) == 5


def test_keys_of_different_kinds_do_not_merge():
    a, b = (made(Sums(), AXES[1], 1, 9, weights=False, kinds=(k,)) for k in ("string", "bytes"))
    with pytest.raises(IncompatibleStateError, match="keys of k are of kind string here and bytes there"):
        a.merge(b)


def test_decimals_have_one_text():
    found = Vocabulary.from_values("decimal", [b"1.5"])
    assert found.find_rank(Decimal("1.500")) == 0
    assert Vocabulary.from_values("decimal", [b"0"]).find_rank(Decimal("-0.00")) == 0
    long = "3.1415926535897932384626433832795028841971"
    assert Vocabulary.from_values("decimal", [long.encode()]).find_rank(Decimal(long)) == 0
    assert found.find_rank(Decimal("NaN")) is None


def test_sums_do_not_wrap_around():
    state = made(Sums(), AXES[1], 5, 12, weights=False, kinds=("integer",))
    flats = {**state.cells.flats, "signed": np.full(len(state), (1 << 62) - 1)}
    from dataclasses import replace

    large = state.with_cells(replace(state.cells, flats=flats))
    with pytest.raises(CounterOverflowError, match="would leave its range"):
        _ = large.without_axes
    with pytest.raises(
        CounterOverflowError, match="signed would leave its range"
    ):  # of cells that have one fellow each
        large.merge(large)


def test_a_part_cannot_hide_what_every_state_has():
    with pytest.raises(TypeError, match="the name 'row_counts' is reserved in every state"):

        class Hiding(State):
            row_counts = Flat()


def test_folding_follows_from_rows():
    parts = [made(Scores(limit=5), (), i, 3, weights=False, kinds=()) for i in range(4)]
    one = parts[0]
    assert len(one.cells.tallies["exact"])
    assert not len(one.cells.tallies["rows"])
    whole = one.merge(*parts[1:])
    if whole.row_counts[0] > 5:
        assert not len(whole.cells.tallies["exact"])
    assert sm.StateFormatError is not None
