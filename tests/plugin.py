"""States and metrics as another package would define them: every merge rule and form, and each broken in its own way."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np

import streammetrics as sm

CHUNKS, BASE = 68, 1088


def ordered(values):
    """Integers in the order of floats."""
    bits = (np.asarray(values, np.float64) + 0.0).view(np.int64)
    return np.where(bits >= 0, bits, np.int64(-(2**63)) - bits)


def unordered(number):
    """The float of an integer that `ordered` made."""
    bits = np.int64(number) if number >= 0 else np.int64(-(2**63) - int(number))
    return float(np.array([bits]).view(np.float64)[0])


def chunks(values):
    """Each float as a superaccumulator of its own."""
    out = np.zeros((len(values), CHUNKS), np.int64)
    for row, value in zip(out, np.asarray(values, np.float64).tolist(), strict=True):
        whole = int(Fraction(value) * (1 << BASE))
        for k in range(CHUNKS - 1):
            row[k], whole = whole & 0xFFFFFFFF, whole >> 32
        row[-1] = whole
    return out


def fixed(weights):
    """Weights less one, in two limbs; whole numbers of 2**-40 do."""
    whole = np.round((np.asarray(weights) - 1) * 2.0**20).astype(np.int64)
    return np.stack([whole, np.zeros_like(whole)], axis=1)


class Extremes(sm.State, tag="plugin.extremes"):
    """Rules min and max, and a flag."""

    lowest: sm.Array = sm.lowest()
    highest: sm.Array = sm.highest()
    negative: sm.Array = sm.highest(form="flag")

    def needs(self):
        return (sm.score("y_score", "real"),)

    def absorb(self, at, /, y_score):
        where = np.zeros(len(y_score.values), np.int64) if at is None else at
        np.minimum.at(self.lowest.reshape(-1), where, ordered(y_score.values))
        np.maximum.at(self.highest.reshape(-1), where, ordered(y_score.values))
        np.maximum.at(self.negative.reshape(-1), where, (y_score.values < 0).astype(np.int64))


class ExactTotal(sm.State, tag="plugin.exact_total"):
    """An exact sum of any floats."""

    total: sm.Array = sm.added(form="exact")

    def needs(self):
        return (sm.score("y_score", "real"),)

    def absorb(self, at, /, y_score):
        where = np.zeros(len(y_score.values), np.int64) if at is None else at
        np.add.at(self.total.reshape(-1, CHUNKS), where, chunks(y_score.values))
        self.rules()["total"].carry(self.total)


class Values(sm.State, tag="plugin.values"):
    """Rule rows: every value, sorted."""

    memory_limit: int | None = sm.setting(None, operational=True)

    values: sm.Array = sm.rows(2)

    def needs(self):
        return sm.label(), sm.score("y_score", "real")

    def absorb(self, at, /, y_true, y_score):
        self.grow(at, values=np.stack([ordered(y_score.values), y_true.values.astype(np.int64)], axis=1))


class Cells(sm.State, tag="plugin.cells"):
    """Rule keyed, with cells of every rule and form, read-outs that widen, and weights."""

    cuts: tuple[float, ...] = sm.union((0.0,))
    step: float = sm.setting(1.0, above=0.0)
    memory_limit: int | None = sm.setting(None, operational=True)

    rows: sm.Array = sm.added(2)
    above: sm.Array = sm.added("cuts", per="keys")
    keys: sm.Array = sm.keyed(2)
    counts: sm.Array = sm.added(per="keys")
    excess: sm.Array = sm.added(form="fixed", per="keys", optional=True)
    above_excess: sm.Array = sm.added("cuts", form="fixed", per="keys", optional=True)
    large: sm.Array = sm.added(per="keys", optional=True)
    top: sm.Array = sm.highest(per="keys")
    bottom: sm.Array = sm.lowest(per="keys")
    sums: sm.Array = sm.added(form="exact", per="keys")

    def needs(self):
        return sm.label(), sm.score("y_score", "real"), sm.weight()

    def absorb(self, at, /, y_true, y_score, sample_weight=None):
        y, s = y_true.values.astype(np.int64), np.asarray(y_score.values, np.float64)
        keys = np.stack([np.clip(np.floor(s / self.step), -3, 3).astype(np.int64), y], axis=1)
        above = (s[:, None] >= np.array(self.cuts)).astype(np.int64)
        cells = {"counts": np.ones_like(y), "top": ordered(s), "bottom": ordered(s), "sums": chunks(s), "above": above}
        if sample_weight is not None:
            excess = fixed(sample_weight.values)
            cells |= {"excess": excess, "above_excess": above[:, :, None] * excess[:, None, :]}
        if (s > 30).any():
            cells["large"] = (s > 30).astype(np.int64)
        self.grow(at, keys=keys, **cells)
        np.add.at(self.rows.reshape(-1), y if at is None else 2 * at + y, 1)


class Range(sm.Metric[Extremes, float], tag="plugin.range"):
    """Largest score less the smallest."""

    def make_state(self):
        return Extremes()

    def of(self, state):
        low, high = int(state.lowest), int(state.highest)
        return unordered(high) - unordered(low) if low <= high else float("nan")


class Total(sm.Metric[ExactTotal, float], tag="plugin.total"):
    """Sum of scores, rounded once."""

    def make_state(self):
        return ExactTotal()

    def of(self, state):
        whole = 0
        for chunk in state.total[::-1].tolist():
            whole = (whole << 32) + chunk
        return float(Fraction(whole, 1 << BASE))


class Median(sm.Metric[Values, float], tag="plugin.median"):
    """Lower median of the scores of positives."""

    memory_limit: int | None = sm.setting(None, operational=True)

    def make_state(self):
        return Values(memory_limit=self.memory_limit)

    def of(self, state):
        found = state.values[state.values[:, 1] == 1, 0]
        return unordered(found[(len(found) - 1) // 2]) if len(found) else float("nan")


class ShareAbove(sm.Metric[Cells, float], tag="plugin.share_above"):
    """Weighted share of scores of at least `cut`, from cells that collections widen."""

    cut: float = sm.setting(0.0)
    step: float = sm.setting(1.0, above=0.0)
    memory_limit: int | None = sm.setting(None, operational=True)

    @property
    def name(self):
        return f"{self.tag}@{self.cut:g}"

    def make_state(self):
        return Cells(cuts=(self.cut,), step=self.step, memory_limit=self.memory_limit)

    def of(self, state):
        i, weight, above = state.cuts.index(self.cut), 0, 0
        if state.excess is not None:
            weight = int(state.excess[:, 0].sum())
        if state.above_excess is not None:
            above = int(state.above_excess[:, i, 0].sum())
        weight += int(state.counts.sum()) << 20
        above += int(state.above[:, i].sum()) << 20
        return above / weight if weight else float("nan")

    def reason_of(self, state):
        return None if len(state.counts) else "no rows"


class Odds(sm.Metric[sm.ScoreSums, float], tag="plugin.odds"):
    """Predicted odds of a click, over a state of the package."""

    def make_state(self):
        return sm.ScoreSums(terms=("score",))

    def of(self, state):
        weight = state.weight()
        p = float(state.total("score") / weight) if weight else float("nan")
        return p / (1 - p) if p < 1 else float("nan")


STATES = (Extremes(), ExactTotal(), Values(), Cells(cuts=(1.5, 0.0, -2.0)), Cells(step=0.5))
GOOD = (Range, Total, Median, ShareAbove, ShareAbove(cut=0.75), Odds)


# -- broken, each by one law -------------------------------------------------------------------------------------------


class Last(sm.State, tag="plugin.last"):
    """Depends on the order of rows."""

    last: sm.Array = sm.added(form="signed")

    def needs(self):
        return (sm.score("y_score", "real"),)

    def absorb(self, at, /, y_score):
        where = np.zeros(len(y_score.values), np.int64) if at is None else at
        self.last.reshape(-1)[where] = (y_score.values * 100).astype(np.int64)


class Uncarried(ExactTotal, tag="plugin.uncarried"):
    """Forgets to bring its limbs to canonical form."""

    def absorb(self, at, /, y_score):
        where = np.zeros(len(y_score.values), np.int64) if at is None else at
        np.add.at(self.total.reshape(-1, CHUNKS), where, chunks(y_score.values))


class Hasty(sm.State, tag="plugin.hasty"):
    """Says that it checks, and counts before it does."""

    rows: sm.Array = sm.added(2)

    checks_itself = True

    def needs(self):
        return sm.label(), sm.weight()

    def absorb(self, at, /, y_true, sample_weight=None):
        y = np.minimum(y_true.values, 1).astype(np.int64)
        np.add.at(self.rows.reshape(-1), y if at is None else 2 * at + y, 1)
        return not (y_true.values > 1).any()


class Trusting(Hasty, tag="plugin.trusting"):
    """Says that it checks, and does not."""

    def absorb(self, at, /, y_true, sample_weight=None):
        super().absorb(at, y_true=y_true)


class Unsliced(sm.State, tag="plugin.unsliced"):
    """Knows no slices."""

    rows: sm.Array = sm.added(2)

    def needs(self):
        return (sm.label(),)

    def absorb(self, at, /, y_true):
        self.rows[...] += np.bincount(y_true.values, minlength=2)


class Counting(sm.Metric[Hasty, float]):
    state_class: ClassVar[type[sm.State]]

    def make_state(self):
        return type(self).state_class()

    def of(self, state):
        return 0.0


class Order(Counting, tag="plugin.order"):
    state_class = Last


class Carry(Counting, tag="plugin.carry"):
    state_class = Uncarried


class Haste(Counting, tag="plugin.haste"):
    state_class = Hasty


class Trust(Counting, tag="plugin.trust"):
    state_class = Trusting


class Slices(Counting, tag="plugin.slices"):
    state_class = Unsliced


class Writing(Odds, tag="plugin.writing"):
    """Writes to the state while it computes."""

    def of(self, state):
        state.rows[0] += 1
        return 0.0


class Remembering(Odds, tag="plugin.remembering"):
    """Keeps a value instead of reading the state."""

    def of(self, state):
        if "kept" not in self.__dict__:
            self.__dict__["kept"] = float(state.total("score"))
        return self.__dict__["kept"]


class Bold(Odds, tag="plugin.bold"):
    """Certifies more than it knows."""

    def bounds_of(self, state):
        value = self.of(state)
        return value + 1e-9, value + 2e-9


class Weightless(Odds, tag="plugin.weightless"):
    """Divides by rows, though they have weights."""

    def of(self, state):
        rows = int(state.rows.sum())
        return float(state.total("score") / rows) if rows else float("nan")


class Nameless(sm.Metric[sm.ScoreSums, float]):
    """Has no tag, so that its bytes cannot be read again."""

    def make_state(self):
        return sm.ScoreSums(terms=("score",))

    def of(self, state):
        return 0.0


class Hoarding(Odds, tag="plugin.hoarding"):
    """Shares its state with its copies."""

    def copy(self):
        return self.holding(self, self.state)


class Narrowing(Odds, tag="plugin.narrowing"):
    """Sees labels only where they are integers."""

    def update(self, y_true=None, y_score=None, /, **columns):
        given = y_true if y_score is None and not columns else {"y_true": y_true, "y_score": y_score, **columns}
        if isinstance(given, dict) and getattr(given.get("y_true"), "dtype", np.dtype("u1")).kind == "f":
            given = given | {"y_true": np.zeros(len(given["y_true"]))}
        return super().update(given)


BROKEN = {
    Order: "splits",
    Carry: "splits",
    Haste: "failed_update_changes_nothing",
    Trust: "failed_update_changes_nothing",
    Slices: "slices",
    Writing: "reading_changes_nothing",
    Remembering: "value_follows_rows",
    Bold: "within_bounds",
    Weightless: "integer_weights",
    Nameless: "registered",
    Hoarding: "merge_commutes",
    Narrowing: "label_dtypes",
}
"""Each metric, and the first law that it breaks."""


# -- an import registers everything for good; tests of the package must not meet these ----------------------------------

_TAGS: dict[str, Any] = {}
for _registry in (sm.METRICS, sm.State._by_tag):
    for _tag in [t for t in _registry if t.startswith("plugin.")]:
        _TAGS[_tag] = (_registry, _registry.pop(_tag))


@contextmanager
def imported(*classes: type) -> Iterator[None]:
    """As if the package that defines these classes were imported just now; all good ones by default."""
    chosen = {c.tag for c in classes}
    if not classes:
        broken = {c.tag for m in BROKEN for c in (m, getattr(m, "state_class", m))}
        chosen = _TAGS.keys() - broken
    for tag in chosen & _TAGS.keys():
        registry, cls = _TAGS[tag]
        registry[tag] = cls
    try:
        yield
    finally:
        for tag in chosen & _TAGS.keys():
            _TAGS[tag][0].pop(tag)
