"""Statistics made up to have every form of part, and states of them made of random rows, one cell a row."""

from __future__ import annotations

import datetime
from contextlib import contextmanager
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np

from streammetrics.numerics.exact import CHUNK_BASE, CHUNKS
from streammetrics.numerics.settings import setting, union
from streammetrics.numerics.slice_keys import SHARDS, to_stored_key
from streammetrics.state.axes import EPOCHS, NULL, Axis, Vocabulary
from streammetrics.state.cells import Cells
from streammetrics.state.declare import Flat, Tally
from streammetrics.state.fold import regroup
from streammetrics.state.state import State
from streammetrics.state.tally import Entries, has_weight, sort_entries

I8, U4, U8 = np.int64, np.uint32, np.uint64


class Quiet(State):
    """Needs no columns: rows are made up here."""

    def needs(self) -> tuple[Any, ...]:
        return ()

    @property
    def reasons(self) -> tuple[str, ...]:
        return ("where", "y_score", "time")


class Sums(Quiet, tag="test.sums"):
    cuts: tuple[float, ...] = union((0.5,))
    factor: float = setting(1.0)

    rows = Flat(2)
    above = Flat("cuts")
    signed = Flat(form="signed")
    marks = Flat(3, form="flag")
    fixed = Flat(2, form="fixed")
    exact = Flat(form="exact")
    square = Flat(form="square")
    many = Flat(8, 8)
    many_fixed = Flat(40, form="fixed")
    many_exact = Flat(33, form="exact")
    weight = Flat(2, form="fixed", like="rows")
    total2 = Flat(2, form="fixed", like="fixed")
    extra = Flat("cuts", form="signed", optional=True)


class Totals(Quiet, tag="test.totals"):
    """Small enough for every byte of it to be changed."""

    rows = Flat()
    total = Flat(2, form="exact")
    high = Flat(form="high")


class Extremes(Quiet, tag="test.extremes"):
    rows = Flat()
    low = Flat(2, form="low")
    high = Flat(2, form="high")
    lows = Flat(40, form="low")
    register = Flat(64, form="register")
    front = Flat(form="high", optional=False, front=True)


class Once(Quiet, tag="test.once"):
    slots: int = setting(64)

    rows = Flat()
    there = Flat("slots", form="once")


class Scores(Quiet, tag="test.scores"):
    """Exact while small: places of 65 bits, the last of them a label."""

    bits: int = setting(6, low=2, high=20)
    limit: int | None = setting(5)

    exact = Tally("exact_places")
    rows = Tally("places")
    off_grid = Flat(form="flag")
    clipped = Flat(optional=True)
    row_parts = ("exact", "rows")
    folding = ("exact", "rows", "off_grid")

    @property
    def exact_places(self) -> int:
        return 1 << 65

    @property
    def places(self) -> int:
        return 2 << self.bits

    @property
    def exact_rows_limit(self) -> int | None:
        return self.limit

    def bucket_entries(self, exact: Entries) -> tuple[Entries, Any]:
        key = exact.codes >> U8(1) | (exact.high & U4(1)).astype(U8) << U8(63)
        bucket = key >> U8(64 - self.bits)
        lost = (key & U8((1 << (64 - self.bits)) - 1) != 0) & has_weight(exact)
        place = bucket << U8(1) | exact.codes & U8(1)
        cells = exact.cells
        shift = type(self).declared_parts["rows"].shift(self)
        codes = cells.astype(U8) << U8(shift) | place
        return sort_entries(Entries(shift, codes, exact.counts, exact.excess)), np.unique(cells[lost])


class Tallies(Quiet, tag="test.tallies"):
    """Tallies that do not fold: narrow, of 48 bits, and wide ones."""

    odd = Tally("few")
    middle = Tally("some")
    wide = Tally("most_places")
    row_parts = ("odd",)

    few = 1000
    some = 1 << 40
    most_places = (1 << 60) + 1


class Groups(Quiet, tag="test.groups"):
    inner_axis = Axis(("group",), "group")

    rows = Flat(2)
    total = Flat(form="fixed")
    first = Flat(form="signed", front=True)
    extra = Flat(form="fixed", like="total")


class Pairs(Quiet, tag="test.pairs"):
    inner_axis = Axis(("y_true", "y_pred"), "class")

    rows = Tally("two")
    extra = Flat(optional=True)
    two = 2


KINDS: dict[str, list[Any]] = {
    "integer": [0, 1, -1, 7, -(2**63), 2**63 - 1, 2**64 - 1, 300, 70000],
    "string": ["", "a", "b", "é", "a\0", "zz", "(other)"],
    "bytes": [b"", b"\xff", b"a", b"\x00"],
    "bool": [True, False],
    "date": [datetime.date(1969, 12, 31), datetime.date(2024, 2, 29), datetime.date.max],
    "timestamp": [datetime.datetime(2024, 1, 1, 12, 30, 15, 7, tzinfo=datetime.UTC), datetime.datetime.min],
    "decimal": [Decimal("1.50"), Decimal("-0"), Decimal("1E+3"), Decimal("3.1415926535897932384626433832795028841971")],
}
STATISTICS: list[State] = [
    Sums(cuts=(0.5, 0.25)), Sums(factor=2.5), Totals(), Extremes(), Scores(), Scores(limit=None), Scores(limit=0),
    Tallies(), Groups(), Pairs(),
]  # fmt: skip


def exact_of(x: float) -> list[int]:
    whole, out = int(Fraction(x) * (1 << CHUNK_BASE)), []
    for _ in range(CHUNKS - 1):
        out.append(whole & 0xFFFFFFFF)
        whole >>= 32
    return [*out, whole]


def values(rng: np.random.Generator, form: str, shape: tuple[int, ...]) -> np.ndarray:
    """What one row adds."""
    if form == "once":
        return np.eye(*shape, dtype=I8)
    n = shape[0]
    blank = rng.random(shape[: len(shape) - (form in ("fixed", "exact", "square"))]) < 0.7
    if form in ("fixed", "square"):
        high = rng.choice([0, 1, 3, 1 << 20, 1 << 40], shape[:-1]) * (1 if form == "square" else rng.choice([-1, 1]))
        if form == "square" and rng.random() < 0.1:
            high[...] = (1 << 61) - 5
        low = rng.choice([0, 1, 5, (1 << 40) - 1], shape[:-1])
        out = np.stack([high, low], axis=-1)
        out[blank] = 0
        return out.astype(I8)
    if form == "exact":
        xs = rng.choice([0.0, 1.0, -1.0, 0.1, -1e-300, 1e300, 5e-324, -4294967296.0, 1.7e308], shape[:-1])
        xs[blank] = 0
        return np.array([exact_of(x) for x in xs.ravel()], I8).reshape(shape)
    if form in ("low", "high"):
        out = rng.choice([0, -5, 5, 2**62, -(2**62), 2**63 - 1, -(2**63)], shape)
        return out.astype(I8)
    top = {"flag": 2, "register": 60, "count": 400}.get(form, 100_000)
    out = rng.integers(0 if form != "signed" else -top, top, shape)
    out[blank] = 0
    return out.astype(np.uint8 if form in ("flag", "register") else I8) if n else out


def made(
    statistic: State, axes: tuple[Axis, ...], seed: int, rows: int, *, weights: bool, kinds: tuple[str, ...]
) -> State:
    """A state of random rows."""
    rng = np.random.default_rng(seed)
    if not rows:
        return statistic.empty_copy(axes)
    columns, words = [], []
    for axis, kind in zip([a for a in axes for _ in a.names], kinds, strict=False):
        numbered = axis.kind != "key"
        pool = [i * (axis.size if axis.kind in EPOCHS else 1) for i in range(6)] if numbered else KINDS[kind]
        chosen = [to_stored_key(pool[i])[1] for i in rng.integers(0, len(pool), rows)]
        numbers = SHARDS["integer"] if axis.kind == "shard" else EPOCHS.get(axis.kind, "integer")
        word = Vocabulary.from_values(numbers if numbered else kind, chosen)
        ranks = np.array([word.rank_by_value[c] for c in chosen], I8)
        if axis.kind != "shard":
            ranks[rng.random(rows) < 0.1] = NULL
        columns.append(ranks)
        words.append(word)
    keys = np.stack(columns, axis=1) if columns else np.zeros((rows, 0), I8)
    flats: dict[str, Any] = {}
    for name, part in statistic.parts().items():
        if isinstance(part, Flat) and not (part.optional and (not weights or rng.random() < 0.2)):
            flats[name] = values(rng, part.form, (rows, *part.extents(statistic)))
    if "rows" in flats:
        flats["rows"] = rng.integers(1, 3, flats["rows"].shape)
    if "off_grid" in flats:
        flats["off_grid"][:] = 0
    tallies = {
        n: entries(rng, statistic, p, rows, weights) for n, p in statistic.parts().items() if isinstance(p, Tally)
    }
    if statistic.folding is not None:
        tallies["rows"] = Entries.empty(tallies["rows"].shift)
    inner = behind = None
    if statistic.inner_axis is not None:
        width = statistic.inner_axis.key_width
        inner = np.column_stack([np.arange(rows), rng.choice([-(2**63), 2**63 - 1, 0, 5, -1], (rows, width))])
        if statistic.inner_axis.kind == "class":
            behind = Vocabulary.from_values("string", [b"cat", b"dog", b"eel"])
            inner[:, 1:] = rng.integers(0, 3, (rows, width))
    cells = Cells(axes, keys, tuple(words), inner, behind, flats, tallies)
    return regroup(statistic.with_cells(cells), keys, axes, tuple(words))


def entries(rng: np.random.Generator, statistic: State, part: Tally, rows: int, weights: bool) -> Entries:
    """One entry a row."""
    count, shift = part.place_count(statistic), part.shift(statistic)
    style = rng.integers(0, 3)
    if part.is_wide(statistic):
        keys = [int(k) for k in rng.integers(0, 1 << 62, rows)]
        if style == 0:
            keys = [k >> 29 << 29 for k in keys]
        if style == 1:
            keys = [k % 4 * ((count // 2 - 1) // 3) for k in keys]
        places = [min(k * 2 + int(b), count - 1) for k, b in zip(keys, rng.integers(0, 2, rows), strict=True)]
        top = max(shift - 64, 0)
        codes = np.array([p & ((1 << 64) - 1) for p in places], U8)
        high = np.array([i << top | p >> 64 for i, p in enumerate(places)], U4)
    else:
        places = (
            rng.integers(0, min(count, 1 << (10 if style else 40)), rows) if style < 2 else np.full(rows, count - 1)
        )
        codes, high = (np.arange(rows, dtype=U8) << U8(shift)) | places.astype(U8), None
    counts = rng.choice([1, 1, 2, 255, 256, 257, 65790, 1 << 33], rows) if rng.random() < 0.3 else np.ones(rows, I8)
    excess = None
    if weights and rng.random() < 0.7:
        excess = np.stack([rng.choice([0, 1 << 20, -(1 << 20), 5], rows), rng.choice([0, 7], rows)], axis=1).astype(I8)
        excess[excess[:, 0] < 0, 1] = 0
    return sort_entries(Entries(shift, codes, counts.astype(I8), excess, high))


def with_dropped(state: State, rng: np.random.Generator) -> State:
    """The same with some rows left out."""
    if not len(state):
        return state
    dropped = np.zeros((len(state), len(state.reasons)), I8)
    dropped[rng.integers(0, len(state)), rng.integers(0, 2)] = 3
    return state.with_cells(replace(state.cells, flats={**state.cells.flats, "dropped": dropped}))


@contextmanager
def absent(*tags: str) -> Any:
    """As if the packages of some statistics were not imported."""
    held = {t: State.by_tag.pop(t) for t in tags}
    try:
        yield
    finally:
        State.by_tag.update(held)
