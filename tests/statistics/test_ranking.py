"""Rankings: sums as always, and sums of squares by query."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import streammetrics as sm
from streammetrics.batch.column_binding import PLAIN, Binding
from streammetrics.count.batch_updater import BatchUpdater
from streammetrics.count.reads import Read
from streammetrics.format import frame
from streammetrics.state.axes import Axis
from streammetrics.statistics.ranking import MEASURES, UNBOUNDED, RankingSums, format_term
from tests.statistics import frozen
from tests.statistics.batches import bell, one_of

PARAMETERS = {"err": 4.0, "rbp": 0.8}
TERMS = tuple(format_term(m, k, PARAMETERS.get(m)) for m in MEASURES for k in (None, 3))
PARTS = ("rows", "queries", "excess", "sums", "large")


def log(seed: int, first: int, how: str = "", queries: int = 60) -> dict[str, Any]:
    """Queries of a few documents, with ties, some without a relevant one."""
    rng = np.random.default_rng(seed)
    query = np.repeat(np.arange(first, first + queries), rng.integers(1, 25, queries))
    n = len(query)
    table = {"y_true": rng.integers(0, 4, n) * rng.integers(0, 2, n), "query": query}
    table["y_score"] = np.round(bell(rng, n), 1).astype(one_of(rng, (np.float16, np.float32, np.float64)))
    if "w" in how:
        table["sample_weight"] = np.array([0.0, 0.5, 1.0, 3.7])[rng.integers(0, 4, queries)][query - first]
    if "1" in how:
        table["sample_weight"] = np.ones(n)
    if "r" in how:
        table["retrieved"] = rng.integers(0, 2, n)
    if "m" in how:
        table["mask"] = rng.integers(0, 2, n)
    if "R" in how:
        table["relevant"] = (np.bincount(query - first, table["y_true"] > 0).astype(np.int64) + 2)[query - first]
    if "g" in how:
        table["y_true"] = table["y_true"] / 3
    if "d" in how:
        table["document"] = np.argsort(rng.random(n), kind="stable")
    if "p" in how:
        table["position"] = rng.random(n)
    return table


def fed(*tables: dict[str, Any], state: Any) -> Any:
    feed = BatchUpdater([Read(state, PLAIN)])
    for table in tables:
        feed.count(table)
    return feed.states[0]


@pytest.mark.parametrize("ties", ["average", "order", "document"])
@pytest.mark.parametrize("how", ["", "1", "w", "r", "m", "R", "g", "wrmR", "wg"])
def test_as_frozen(how: str, ties: str) -> None:
    how += {"document": "d", "order": "p" if "w" in how else "", "average": ""}[ties]
    for level in (None, 2.0) if how in ("", "R") else (None,):
        tables = [log(i, 1000 * i, how if i != 1 else how.replace("w", "")) for i in range(4)]
        state = fed(*tables, state=RankingSums(terms=TERMS, ties=ties, relevance_level=level))
        held = {name: getattr(state, name) for name in PARTS}
        frozen.check(held | {"facts": state.facts()}, what="" if level is None else f"level {level}")


@pytest.mark.parametrize("how", ["", "w", "mixed"])
def test_in_slices_and_parts(how: str) -> None:
    axis = (Axis(("k",)),)
    tables = [log(i, 1000 * i, "w" if how == "w" or (how == "mixed" and i % 2) else "") for i in range(6)]
    tables = [t | {"k": t["query"] * 7 % 5} for t in tables]
    bare = RankingSums(terms=TERMS)
    whole = fed(*tables, state=bare.empty_copy(axis))
    parts = [fed(t, state=bare.empty_copy(axis)) for t in tables]
    assert parts[3].merge(parts[5], parts[0]).merge(parts[4], parts[1], parts[2]) == whole
    assert whole.without_axes == fed(*tables, state=bare)
    for i in range(5):
        mine = [{n: c[t["k"] == i] for n, c in t.items() if n != "k"} for t in tables]
        assert whole.read_cell(i) == fed(*mine, state=bare)
    _, (again,) = frame.merge_frames([frame.write_frame([whole], {})])
    assert again == whole
    ones = [t | {"sample_weight": np.ones(len(t["query"]))} for t in tables if "sample_weight" not in t]
    assert fed(*ones, state=bare) == fed(*(t for t in tables if "sample_weight" not in t), state=bare)


@pytest.mark.slow
def test_squares_by_query() -> None:
    tables = [log(i, 1000 * i, "w" if i else "") for i in range(3)]
    state, n = fed(*tables, state=RankingSums(terms=TERMS)), 0
    totals = {t: [Fraction(0)] * 3 for t in TERMS}
    w2 = [Fraction(0), Fraction(0)]
    for table in tables:
        for q in np.unique(table["query"]):
            mine = {name: c[table["query"] == q] for name, c in table.items()}
            w = Fraction(mine.pop("sample_weight", np.ones(1))[0])
            one = fed(mine, state=RankingSums(terms=TERMS))
            w2[int(one.queries[1])] += w * w
            n += 1
            for t in TERMS:
                x = one.total(*split(t))
                totals[t] = [a + b for a, b in zip(totals[t], (w * x, w * w * x * x, w * w * x), strict=True)]
    for t, (x, squares, products) in totals.items():
        close = 1e-12 if split(t)[0] in UNBOUNDED else n * 2.0**-50
        assert float(state.total(*split(t))) == pytest.approx(float(x), rel=1e-12, abs=n * 2.0**-59)
        assert float(state.square(*split(t))) == pytest.approx(float(squares), rel=close, abs=close)
        assert float(state.product(*split(t))) == pytest.approx(float(products), rel=1e-12, abs=n * 2.0**-50)
    assert [state.weight_squared(), state.weight_squared(empty=True)] == pytest.approx([float(w) for w in w2])


def split(spelled: str) -> tuple[str, int | None, float | None]:
    head, _, parameter = spelled.partition(":")
    measure, _, k = head.partition("@")
    return measure, int(k) if k else None, float(parameter) if parameter else None


def test_squares_that_are_lost() -> None:
    table = {"y_true": [1], "y_score": [0.5], "query": [1], "sample_weight": [2.0**30]}
    state = fed(table, state=RankingSums(terms=("ndcg", "cg")))
    assert state.square("ndcg") is None
    assert state.square("cg") == Fraction(2) ** 60
    assert state.weight_squared() is None
    assert state.product("ndcg") is None


def test_roles_are_columns_and_bad_rows_change_nothing() -> None:
    table = log(1, 0, "d")
    named = {{"document": "doc_id", "query": "user"}.get(n, n): c for n, c in table.items()}
    state = RankingSums(terms=("ndcg@10",), ties="document")
    feed = BatchUpdater([Read(state, Binding(columns=(("document", "doc_id"), ("query", "user"))))])
    feed.count(named)
    before = feed.states[0]
    assert before == fed(table, state=state)
    with pytest.raises(sm.InvalidInputError, match="user: row 0: this query already occurred"):
        feed.count(named)
    twice = {n: np.concatenate([c[:1], c[:1]]) for n, c in named.items()} | {"user": np.array([-1, -1])}
    with pytest.raises(sm.InvalidInputError, match="doc_id: row 1: the query contains this document twice"):
        feed.count(twice)
    with pytest.raises(sm.InvalidInputError, match="no column 'doc_id'"):
        feed.count({n: c for n, c in named.items() if n != "doc_id"})
    assert feed.states[0] == before
