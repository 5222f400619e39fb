"""Tables and pages of what nobody had looked at: keys that read alike, weights, fronts of all kinds, empty pieces."""

from __future__ import annotations

import numpy as np
import pytest

import streammetrics as sm
from streammetrics.collect.metric_like import states_of, with_states
from streammetrics.errors import InvalidInputError
from streammetrics.hooks.lifetime import Lifetime
from streammetrics.reports import task_charts
from streammetrics.reports.assemble import assemble
from streammetrics.reports.count_sections import build_grid
from streammetrics.reports.curve_charts import build_top_rows
from streammetrics.reports.per_class import build_breakdowns
from streammetrics.reports.records import split_pieces
from streammetrics.reports.tables import build_grids, build_slice_grid
from streammetrics.reports.window_charts import build_window_charts


def texts(grid):
    return [[cell.text for cell in row] for row in grid.rows if row]


def scored(n=400, seed=1):
    rng = np.random.default_rng(seed)
    return {"y_true": (rng.random(n) < 0.2).astype(int), "y_score": rng.random(n)}


@pytest.mark.parametrize("name", ["unit", "value", "metric", "rows", "other", "dropped"])
def test_slices_by_a_column_that_results_have(name):
    sliced = sm.Sliced(sm.CTR(), by=name).update([0, 1], **{name: ["a", "b"]})
    assert sliced.compute() == {"a": 0.0, "b": 1.0}
    assert sm.from_bytes(sliced.to_bytes()) == sliced
    with pytest.raises(InvalidInputError, match=f"slices by '{name}' cannot be listed"):
        sliced.table()


def test_a_text_that_reads_as_null_is_quoted():
    sliced = sm.Sliced(sm.CTR(), by="k").update([0, 1, 1, 1], k=[None, "null", "null", ""])
    found = texts(build_slice_grid(sliced))
    assert sorted(row[0] for row in found) == ["", '"null"', "null"]
    assert sorted(row[1] for row in found) == ["1", "1", "2"]


def test_lines_of_null_and_of_the_text_are_two():
    windowed = sm.Windowed(sm.Sliced(sm.CTR(), by="k"), width=1, time="t")
    windowed.update([0, 1, 1, 0], k=[None, "null"] * 2, t=[0, 0, 1, 1])
    (chart,) = build_window_charts(windowed, confidence=None)
    assert [key.text for key in chart.key] == ["null", '"null"']


def test_several_comparisons_on_a_page_keep_their_names():
    def compared(seed):
        a, b = (sm.MetricCollection(sm.AUC(), sm.LogLoss()).update(scored(seed=s)) for s in (seed, seed + 1))
        return sm.compare(a, b, independent=True)

    page = assemble({"app": compared(1), "web": compared(3)}, "")
    (card,) = [p.data for p in page.parts if p.title == "Scorecard"]
    assert [row.name for group in card.groups for row in group.rows] == [
        f"{which}/{metric}" for which in ("app", "web") for metric in ("auc", "log_loss")
    ]


def test_empty_keys_are_not_those_above():
    """What print leaves blank is named in every row of a page; a key without letters is not."""
    both = sm.MetricCollection({m: sm.Task(sm.CTR(), y_true=m) for m in ("a", "b")})
    sliced = sm.Sliced(both, by=["x", "y"]).update(a=[0, 1, 1], b=[1, 0, 0], x=["DE", "DE", ""], y=["web", "", ""])
    part = next(p for p in assemble(sliced, "").parts if p.kind == "grid")
    assert [[cell[0] for cell in row[:3]] for row in part.data["rows"]] == [
        [x, y, task] for x, y in (("", ""), ("DE", ""), ("DE", "web")) for task in "ab"
    ]
    assert build_grid(["a"], [[("x", "")], [("", "")]], 1, [])["rows"][1][0][0] == ""


def test_what_the_best_rows_hold_does_not_depend_on_the_size_of_weights():
    rows = scored()
    plain, heavy = (
        build_top_rows(sm.MetricCollection(sm.AUC()).update(rows | {"sample_weight": np.full(400, w)}))
        for w in (1.0, 10.0)
    )
    assert plain == heavy
    alone = build_top_rows(sm.MetricCollection(sm.AUC()).update(rows))
    assert alone == plain


def test_intervals_are_of_the_piece_that_they_stand_beside():
    buys = sm.Sharded(sm.Task(sm.CTR(), y_true="buy"), unit="u")
    both = sm.MetricCollection([sm.CTR(), {"buy": buys}])
    both.update(y_true=np.arange(2_000) % 2, buy=np.arange(2_000) % 10 == 0, u=np.arange(2_000) // 4)
    found = {p.data.caption: p.data for p in assemble(both, "").parts if p.kind == "values"}
    of = {title: values.rows[0][2][0] for title, values in found.items()}
    (lone,), (bought,) = ([v for t, v in of.items() if ("buy" in t) is side] for side in (False, True))
    assert lone.interval == ""
    low, high = (float(end) for end in bought.interval.split(" to "))
    assert low < 0.1 < high


@pytest.mark.parametrize(
    "thing",
    [sm.Decayed([sm.AUC(), sm.CTR()], half_life=100, time="step"), sm.Recent([sm.AUC(), sm.CTR()], steps=3)],
    ids=["decayed", "recent"],
)
def test_pages_of_what_fades(thing, tmp_path):
    thing.update(scored() | ({"step": np.arange(400)} if isinstance(thing, sm.Decayed) else {}))
    assert [p.name for _, p in split_pieces(thing)] == ["metrics"]
    assert "auc" in sm.report(thing, tmp_path / "page.html").read_text()


def test_a_page_of_groups_that_cannot_be_written(tmp_path, monkeypatch):
    groups = sm.GroupAUC(spill_dir=str(tmp_path), memory_limit=1 << 16)
    n = 40_000
    rng = np.random.default_rng(2)
    for _ in range(2):
        groups.update(rng.integers(0, 2, n), rng.random(n), group=rng.integers(0, 900, n))
    page = sm.report(groups, tmp_path / "page.html").read_text()
    assert "open groups" in page


def test_metrics_that_saw_other_rows():
    sliced = sm.Sliced([sm.AUC(), sm.Mean()], by="c", on_invalid="drop")
    sliced.update(y_true=[0, 1, 1], y_score=[0.2, np.nan, 0.7], value=[1.0, 2.0, 3.0], c=["a", "a", "a"])
    assert texts(build_slice_grid(sliced))[0][1:3] == ["3", "1"]


def test_matrices_of_their_own_kind(tmp_path):
    pairs = sm.PairConfusionMatrix().update([0, 1, 2, 1], [0, 1, 1, 1])
    both = sm.CorrelationMatrix(variables=("price", "clicks")).update(price=[1.0, 2.0, 4.0], clicks=[0.0, 1.0, 1.0])
    for thing in (pairs, both):
        told = "\n".join(
            str(texts(g)) + g.title for g in build_grids(with_states(sm.MetricCollection(thing), states_of(thing)))
        )
        assert "true class" not in told
        sm.report(thing, tmp_path / "page.html")


def test_confusion_matrices_are_known_whatever_they_are_called():
    with_labels = sm.MetricCollection({"each": sm.ConfusionMatrix(num_labels=2, threshold=0.5)})
    with_labels.update([[0, 1], [1, 1]], [[0.2, 0.9], [0.7, 0.1]])
    one = sm.MetricCollection({"cm": sm.ConfusionMatrix()}).update([0, 1, 1], [0.1, 0.8, 0.2])
    assert [g.title for g in build_breakdowns(one)] == ["cm: true class down, predicted across"]
    assert [g.title for g in build_breakdowns(with_labels)] == [
        f"each of {n}: true class down, predicted across" for n in "01"
    ]


def test_curves_are_not_spelled_as_arrays(tmp_path):
    page = sm.report(sm.MetricCollection(sm.ROCCurve(), sm.AUC()).update(scored()), tmp_path / "p.html").read_text()
    assert "array([" not in page


def test_a_picture_of_windows_without_rows():
    with pytest.raises(TypeError, match="there is no plot"):
        sm.Windowed(sm.CTR(), width=5, time="t").plot()


def test_errors_that_weigh_nothing(tmp_path):
    rows = {"y_true": [1.0, 2.0], "y_pred": [1.5, 1.0], "sample_weight": [0.0, 0.0]}
    assert sm.report(
        sm.MetricCollection(sm.MedianAbsoluteError(), sm.ResidualQuantile()).update(rows), tmp_path / "p.html"
    )


def test_the_newest_windows_of_slices_are_shown():
    inner = sm.Windowed(sm.Sliced(sm.CTR(), by="k"), width=1, time="t")
    t, k = np.divmod(np.arange(60), 6)
    inner.update([1] * 60, t=t, k=k)
    shown = {row[0] for row in texts(build_slice_grid(inner, top=12))}
    assert len(shown) == 2
    assert max(shown, key=int) == "9" if all(s.isdigit() for s in shown) else shown


@pytest.mark.parametrize(("window", "panes"), [(19, 10), (15, 10), (3, 4)])
def test_windows_that_panes_do_not_fill(window, panes):
    with pytest.raises(ValueError, match="must be a multiple of panes="):
        Lifetime(sm.CTR(), window=window, panes=panes)


@pytest.mark.parametrize("name", ["ctr", "clicks", "log_loss"])
def test_shares_are_read_in_percent_whatever_they_are_called(name):
    def arm(seed):
        return sm.Sharded(sm.MetricCollection({name: sm.CTR()}), unit="k").update(**keyed(seed))

    def keyed(seed):
        rng = np.random.default_rng(seed)
        return {"y_true": rng.integers(0, 2, 4_000), "k": rng.integers(0, 900, 4_000)}

    page = assemble(sm.compare(arm(1), arm(2), independent=True), "")
    assert page.hero is not None
    assert all(text == "0" or text.endswith("%") for _, text in page.hero[1].ticks)


@pytest.mark.parametrize("empty", [0.0, 1.0, "skip"])
def test_ndcg_by_cutoff_says_what_the_table_says(empty):
    """Also of queries without a relevant document."""
    rng = np.random.default_rng(4)
    query, grades = np.repeat(np.arange(40), 5), rng.integers(0, 3, 200) * np.repeat(rng.integers(0, 2, 40), 5)
    ranked = sm.MetricCollection({f"ndcg@{k}": sm.NDCG(k, empty=empty) for k in (1, 3, 5)})
    ranked.update(grades, rng.random(200), query=query)
    (chart,) = [c for c in task_charts.build_task_charts(ranked) if c.title == "NDCG by cut-off"]
    assert [list(line.y) for line in chart.layers] == [list(ranked.compute().values())]
