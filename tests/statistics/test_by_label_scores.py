"""Histograms of labels and of the top class: their arrays as always, and what each alone makes."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import draws
import numpy as np
import pytest
from hypothesis import Phase, given

import streammetrics as sm
from streammetrics.count import tallies
from streammetrics.errors import StateFormatError
from streammetrics.format import frame
from streammetrics.laws import LAWS, run
from streammetrics.numerics.settings import encode_changed_settings
from streammetrics.state.axes import Axis
from streammetrics.statistics import by_label_scores
from streammetrics.statistics.by_label_scores import LabelScores, TopScores
from streammetrics.statistics.scores import ScoreHistogram
from tests.statistics import frozen
from tests.statistics.batches import fed, one_of


def drawn(rng, n, scale, kind, weighted):
    s = rng.random((n, 3))
    if kind == "num_classes" and scale == "probability":
        s = s / ((s[:, 0] + s[:, 1]) + s[:, 2])[:, None]
    s = (s * 8 - 4 if scale == "real" else s).astype(one_of(rng, (np.float32, np.float64)))
    y = rng.integers(0, 2, (n, 3)) if kind == "num_labels" else rng.integers(0, 3, n)
    return {"y_true": y, "y_score": s} | ({"sample_weight": rng.integers(0, 3, n) * 0.7} if weighted else {})


def sliced_off(columns, rows):
    return {name: a[rows] for name, a in columns.items()}


def dense(state):
    rows, excess = np.zeros(state.places, np.int64), np.zeros((state.places, 2), np.int64)
    rows[state.rows.places] = state.rows.int64_counts
    if state.rows.excess is not None:
        excess[state.rows.places] = state.rows.excess
    turned = rows.reshape(-1, state.buckets, 2), excess.reshape(-1, state.buckets, 2, 2)
    return tuple(np.moveaxis(a, 2, 1) for a in turned)


def pooled(state, scale):
    metrics = (sm.AUC(scale=scale), sm.KS(scale=scale), sm.AveragePrecision(scale=scale))
    return {
        type(m).__name__: (m.reading(state.pool_classes()).value, m.reading(state.pool_classes()).bounds)
        for m in metrics
    }


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("scale", ["probability", "real"])
@pytest.mark.parametrize("kind", ["num_labels", "num_classes"])
@pytest.mark.parametrize("few", [False, True])
def test_labels_as_frozen(kind, scale, weighted, few, monkeypatch):
    if few:  # as if there were very many places
        monkeypatch.setattr(tallies, "LONE", 10)
        monkeypatch.setattr(by_label_scores, "LONE", 10)
    rng = np.random.default_rng(1)
    columns = drawn(rng, 700, scale, kind, weighted)
    weights = {"sample_weight": columns["sample_weight"]} if weighted else {}
    empty = LabelScores(scale=scale, bits=10, **{kind: 3})
    new = fed(empty, *(sliced_off(columns, slice(a, a + 100)) for a in range(0, 700, 100)))
    rows, excess = dense(new)
    coarse = new.coarsen(8)
    frozen.check({
        "rows": rows, "excess": excess, "off_grid": new.off_grid, "facts": new.facts(),
        "coarse rows": dense(coarse)[0], "coarse off_grid": coarse.off_grid,
    } | pooled(new, scale))  # fmt: skip
    assert new.facts()["rows"] == 700
    for i, one in enumerate(new.split_classes()):
        y = columns["y_true"][:, i] if kind == "num_labels" else columns["y_true"] == i
        direct = {"y_true": y, "y_score": columns["y_score"][:, i]} | weights
        assert one == fed(ScoreHistogram(scale=scale, bits=10), direct)
    assert coarse == fed(LabelScores(scale=scale, bits=8, **{kind: 3}), columns)
    g = rng.integers(0, 4, 700)
    parts = fed(
        empty.empty_copy((Axis(("g",)),)), *(sliced_off(columns | {"g": g}, slice(a, a + 350)) for a in (0, 350))
    )
    assert parts.without_axes == new
    for i in range(4):
        assert parts.read_cell(i) == fed(empty, sliced_off(columns, g == i))
    assert parts.coarsen(8).without_axes == new.coarsen(8)
    half = fed(empty, sliced_off(columns, slice(0, 350)))
    assert new.subtract(half) == fed(empty, sliced_off(columns, slice(350, 700))) or new.off_grid.any()
    assert half.merge(fed(empty, sliced_off(columns, slice(350, 700)))) == new


def test_the_top_class_as_frozen():
    rng = np.random.default_rng(2)
    for weighted in (False, True):
        columns = drawn(rng, 900, "probability", "num_classes", weighted)
        s = columns["y_score"].astype(np.float32)
        columns["y_score"] = s / ((s[:, 0] + s[:, 1]) + s[:, 2])[:, None]
        new = fed(TopScores(bits=12, num_classes=3), *(sliced_off(columns, slice(a, a + 300)) for a in (0, 300, 600)))
        rows, excess = dense(new)
        seen = {"rows": rows[0], "excess": excess[0], "off_grid": int(new.off_grid), "facts": new.facts()}
        frozen.check(seen, what="weighted" if weighted else "")
        exact = fed(TopScores(bits=12, num_classes=3, limit=1000), columns)
        assert not exact.has_buckets
        assert exact.coarsen(12, 0) == new


def test_what_is_always_said():
    for state in (LabelScores(num_labels=2), LabelScores(num_labels=2, limit=1 << 16)):
        assert encode_changed_settings(state) == {"num_labels": 2}
    assert encode_changed_settings(LabelScores(num_labels=2, bits=8, limit=0)) == {"bits": 8, "num_labels": 2}
    assert by_label_scores.LONE == tallies.LONE
    assert encode_changed_settings(LabelScores(num_labels=2, bits=None)) == {"bits": None, "num_labels": 2}
    with pytest.raises(ValueError, match="bits=None keeps every row exactly"):
        LabelScores(num_labels=2, bits=None, limit=7)


def test_without_exact_rows_it_is_what_it_was_when_there_were_none():
    """States of buckets alone keep their parts, and so their bytes and digests."""
    for state in (LabelScores(num_labels=2, limit=0), LabelScores(num_labels=2, bits=8)):
        assert list(state.parts()) == ["rows", "off_grid", "dropped", "rounded"]
        assert (state.folding, state.row_parts, state.exact_rows_limit) == (None, ("rows",), 0)


# -- exact while small -------------------------------------------------------------------------------------------------

FOLDING = [
    sm.AUC(bits=8, limit=7, num_classes=3),
    sm.AUC(bits=10, limit=5, num_labels=2, average=None),
    sm.KS(bits=9, limit=12, scale="real", labels=("b", "a")),
]


OF_USUAL_LIMITS = {"absent_class", "coarsening", *(f"{what}_in_any_order" for what in ("slices", "windows", "shards"))}
"""Laws that nothing folds in: states of classes that are not here have no buckets."""


@pytest.mark.slow
@pytest.mark.parametrize("metric", FOLDING, ids=repr)
def test_every_law_while_cells_fold(metric):
    laws = [law for law in LAWS if law.__name__ not in OF_USUAL_LIMITS]

    @draws.short(4, phases=[Phase.generate])
    @given(draws.cases(metric))
    def hold(case):
        for law in laws:
            run(law, case)

    hold()


def pairs(y, s):
    """AUC over all pairs."""
    p, n = s[y == 1], s[y == 0]
    return Fraction(int(2 * (p[:, None] > n).sum() + (p[:, None] == n).sum()), 2 * len(p) * len(n))


@pytest.mark.parametrize("kind", ["num_classes", "num_labels"])
def test_saturated_probabilities_have_the_value_of_all_pairs(kind):
    """Of a sure model nearly all probabilities share the first and the last bucket, whatever the bits."""
    rng = np.random.default_rng(7)
    z = rng.normal(0, 40, (600, 4))
    s = np.exp(z - z.max(axis=1, keepdims=True))
    s /= s.sum(axis=1, keepdims=True)
    y = rng.integers(0, 4, 600) if kind == "num_classes" else rng.integers(0, 2, (600, 4))
    each = [pairs(y == i if kind == "num_classes" else y[:, i], s[:, i]) for i in range(4)]
    auc = sm.AUC(**{kind: 4}).update(y, s)
    assert auc.compute() == float(sum(each) / 4)
    assert auc.bounds() == (auc.compute(),) * 2
    assert "hint" not in auc.explain()
    assert sm.AUC(**{kind: 4}, average=None).reading(auc.state).value.tolist() == [float(v) for v in each]
    folded = sm.AUC(**{kind: 4}, limit=0).update(y, s)
    assert folded.bounds()[1] - folded.bounds()[0] > 0.1
    assert "logit" in folded.explain()["hint"]


@pytest.mark.parametrize("lone", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("scale", ["probability", "real"])
@pytest.mark.parametrize("limit", [0, 60, 199, 200, 201, None])
def test_each_label_is_a_state_of_two_classes(limit, scale, weighted, lone, monkeypatch):
    if not lone:  # as if there were very many places
        monkeypatch.setattr(tallies, "LONE", 10)
        monkeypatch.setattr(by_label_scores, "LONE", 10)
    rng = np.random.default_rng(3)
    columns = drawn(rng, 200, scale, "num_labels", weighted)
    weights = {"sample_weight": columns["sample_weight"]} if weighted else {}
    empty = LabelScores(scale=scale, bits=16, num_labels=3, limit=limit)
    whole = fed(empty, columns)
    for many in (2, 5, 40):
        parts = [sliced_off(columns, rows) for rows in np.array_split(rng.permutation(200), many)]
        assert fed(empty, *parts) == whole
        first, *rest = [fed(empty, part) for part in parts]
        assert first.merge(*rest) == whole
    monkeypatch.undo()
    for i, one in enumerate(whole.split_classes()):
        direct = {"y_true": columns["y_true"][:, i], "y_score": columns["y_score"][:, i]} | weights
        alone = fed(ScoreHistogram(scale=scale, bits=16, limit=limit), direct)
        if one.has_buckets and not alone.has_buckets:  # real scores in few buckets, which a lone column keeps
            one, alone = one.coarsen(16, 0), alone.coarsen(16, 0)
        assert one == alone
    assert whole.coarsen(12) == fed(LabelScores(scale=scale, bits=12, num_labels=3), columns)
    if limit is None:
        for less in (60, 200):
            assert whole.coarsen(16, less) == fed(LabelScores(scale=scale, num_labels=3, bits=16, limit=less), columns)
    g = rng.integers(0, 9, 200) // 3
    slices = fed(
        empty.empty_copy((Axis(("g",)),)), *(sliced_off(columns | {"g": g}, r) for r in (g < 1, g == 2, g == 1))
    )
    assert slices.without_axes == whole
    for i in range(3):
        assert slices.read_cell(i) == fed(empty, sliced_off(columns, g == i))
    assert slices.coarsen(12).without_axes == whole.coarsen(12)
    read = frame.Frame(frame.write_frame([slices, whole], {})).read_states()
    assert read[0] == slices
    assert read[1] == whole


@pytest.mark.parametrize("width", [1, 2, 5, 17, 1000])
def test_bytes_of_any_number_of_labels(width):
    rng = np.random.default_rng(width)
    n = 20
    auc = sm.Sliced(sm.AUC(num_labels=width), by="k").update(
        y_true=rng.integers(0, 2, (n, width)), y_score=rng.random((n, width)), k=rng.integers(0, 3, n) * 7
    )
    assert sm.from_bytes(auc.to_bytes()) == auc
    assert sm.merge([auc.to_bytes()]).to_bytes() == auc.to_bytes()


@pytest.mark.slow
def test_many_slices_of_many_labels():
    """Cells whose numbers lie far apart are sorted without a counter for each."""
    n = 3000
    rng = np.random.default_rng(0)
    y, s, k = rng.integers(0, 2, (n, 300)), rng.random((n, 300)), np.arange(n)
    few = rng.integers(0, n, 20)
    slices = sm.Sliced(sm.AUC(num_labels=300), by="k")
    for rows in (slice(None), few, few[:3]):
        slices.update(y_true=y[rows], y_score=s[rows], k=k[rows])
    for key in (0, int(few[0]), n - 1):
        rows = np.r_[key, few[few == key], few[:3][few[:3] == key]]
        assert slices[key].state == sm.AUC(num_labels=300).update(y[rows], s[rows]).state


def altered(state, **arrays):
    """Bytes of a state whose exact entries say something else."""
    entries = replace(state.cells.tallies["exact"], **arrays)
    return frame.write_frame(
        [state.with_cells(replace(state.cells, tallies={**state.cells.tallies, "exact": entries}))], {}
    )


def test_entries_that_no_rows_make():
    state = fed(LabelScores(num_labels=3), {"y_true": [[0, 1, 1]] * 2, "y_score": [[0.5, 0.25, 0.75], [0.1, 0.2, 0.3]]})
    held = state.exact
    assert frame.Frame(altered(state)).read_states()[0] == state
    for what, arrays in {
        "a label that is not there": {"high": held.high + np.uint32(2)},
        "half of a label": {"high": held.high | np.uint32(1)},
        "labels of different rows": {"counts": held.counts + np.arange(6, dtype=np.uint32)},
        "no score": {"codes": held.codes | np.uint64(0x7FF8 << 49)},
    }.items():
        data = altered(state, **arrays)
        with pytest.raises(StateFormatError):
            print(what, frame.Frame(data).read_states())
