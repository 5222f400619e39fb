"""States and metrics as another package would define them: parts of every form, and each broken in its own way."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from fractions import Fraction
from types import ModuleType
from typing import Any, ClassVar

import numpy as np

import streammetrics as sm
from streammetrics.collect.accumulator import accumulator_of, definition_of

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


class Extremes(sm.extend.State, tag="plugin.extremes"):
    """Least, largest, and a flag."""

    rows = sm.extend.Flat()
    lowest = sm.extend.Flat(form="low")
    highest = sm.extend.Flat(form="high")
    negative = sm.extend.Flat(form="flag")

    def needs(self):
        return (sm.extend.score("y_score", "real"),)

    def absorb(self, into, at, y_score):
        np.add.at(into["rows"], at, 1)
        np.minimum.at(into["lowest"], at, ordered(y_score.values))
        np.maximum.at(into["highest"], at, ordered(y_score.values))
        np.maximum.at(into["negative"], at, (y_score.values < 0).astype(np.uint8))

    def facts(self):
        return {"rows": int(self.rows)}


class ExactTotal(sm.extend.State, tag="plugin.exact_total"):
    """An exact sum of any floats."""

    rows = sm.extend.Flat()
    total = sm.extend.Flat(form="exact")

    def needs(self):
        return (sm.extend.score("y_score", "real"),)

    def absorb(self, into, at, y_score):
        np.add.at(into["rows"], at, 1)
        np.add.at(into["total"], at, chunks(y_score.values))


class Values(sm.extend.State, tag="plugin.values"):
    """Every score of a positive, and how often it came: a tally of 64 bits."""

    memory_limit: int | None = sm.extend.setting(None, operational=True)

    rows = sm.extend.Flat()
    values = sm.extend.Tally("all_places")

    all_places = 1 << 64

    def needs(self):
        return sm.extend.label(), sm.extend.score("y_score", "real")

    def absorb(self, into, at, y_true, y_score):
        np.add.at(into["rows"], at, 1)
        kept = y_true.values == 1
        places = ordered(y_score.values[kept]).view(np.uint64) ^ np.uint64(1 << 63)
        into["values"].append((at[kept], places, None))

    def facts(self):
        return {"rows": int(self.rows)}

    def scores(self):
        """The scores of positives, sorted, as `ordered` makes them."""
        held = (self.values.places ^ np.uint64(1 << 63)).view(np.int64)
        return np.repeat(held, self.values.counts)


class Cells(sm.extend.State, tag="plugin.cells"):
    """By group, parts of every form, read-outs that widen, weights, and a tally of scores."""

    cuts: tuple[float, ...] = sm.extend.union((0.0,))
    step: float = sm.extend.setting(1.0, above=0.0)
    memory_limit: int | None = sm.extend.setting(None, operational=True)

    inner_axis = sm.extend.Axis(("group",), "group")
    rows = sm.extend.Flat(2)
    above = sm.extend.Flat("cuts")
    excess = sm.extend.Flat(form="fixed", optional=True)
    above_excess = sm.extend.Flat("cuts", form="fixed", optional=True)
    large = sm.extend.Flat(optional=True)
    top = sm.extend.Flat(form="high")
    bottom = sm.extend.Flat(form="low")
    sums = sm.extend.Flat(form="exact")
    scores = sm.extend.Tally("steps")

    steps_each_way = 3

    @property
    def steps(self):
        return 2 * self.steps_each_way + 1

    def needs(self):
        return sm.extend.group(), sm.extend.label(), sm.extend.score("y_score", "real"), sm.extend.weight()

    def absorb(self, into, at, group, y_true, y_score, sample_weight=None):
        s = np.asarray(y_score.values, np.float64)
        above = (s[:, None] >= np.array(self.cuts)).astype(np.int64)
        np.add.at(into["rows"], (at, y_true.values.astype(np.int64)), 1)
        np.add.at(into["above"], at, above)
        np.add.at(into["large"], at, (s > 30).astype(np.int64))
        np.maximum.at(into["top"], at, ordered(s))
        np.minimum.at(into["bottom"], at, ordered(s))
        np.add.at(into["sums"], at, chunks(s))
        if sample_weight is not None:
            excess = fixed(sample_weight.values)
            np.add.at(into["excess"], at, excess)
            np.add.at(into["above_excess"], at, above[:, :, None] * excess[:, None, :])
        places = np.clip(np.floor(s / self.step), -3, 3).astype(np.int64) + self.steps_each_way
        into["scores"].append((at, places, None if sample_weight is None else sample_weight.values))

    def facts(self):
        return {"rows": int(self.rows.sum())}


# -- kernels: compiled ones are declared as the package declares its own; plain functions count as well ----------------


def count_labels(y_true, weights, at, rows, excess):
    """Count labels of good rows."""
    where = 2 * (at if len(at) else np.zeros(len(y_true), np.int64)) + y_true
    np.add.at(rows, where, 1)
    if len(weights):
        np.add.at(excess.reshape(-1, 2), where, fixed(weights))
    return 0


def count_hastily(y_true, rows):
    """Say that a row is bad, and count all the same."""
    np.add.at(rows, np.minimum(y_true, 1), 1)
    return int((y_true > 1).any())


def count_trustfully(y_true, rows):
    """Take every label for a good one."""
    np.add.at(rows, np.minimum(y_true, 1), 1)
    return 0


sys.modules["plugin.kernels"] = ModuleType("plugin.kernels")  # as a module of a package of that name would be
for _function in (count_labels, count_hastily, count_trustfully):
    setattr(sys.modules["plugin.kernels"], _function.__name__, _function)


class Labels(sm.extend.State, tag="plugin.labels"):
    """Rows and weight by label, counted by a kernel; the first limb of the weight is not carried by it."""

    rows = sm.extend.Flat(2)
    excess = sm.extend.Flat(2, form="fixed", optional=True)

    def needs(self):
        return sm.extend.label(), sm.extend.weight()

    def steps(self, like):
        own = type(self)
        excess = own.excess if like.has_weights else np.zeros(0, np.int64)
        return [sm.extend.Step("plugin.kernels:count_labels", "y_true", "sample_weight", "at", own.rows, excess)]

    def facts(self):
        return {"rows": int(self.rows.sum())}


class Range(sm.extend.Metric[Extremes, float], tag="plugin.range"):
    """Largest score less the smallest."""

    def make_state(self):
        return Extremes()

    def of(self, state):
        low, high = int(state.lowest), int(state.highest)
        return unordered(high) - unordered(low) if low <= high else float("nan")


class Total(sm.extend.Metric[ExactTotal, float], tag="plugin.total"):
    """Sum of scores, rounded once."""

    def make_state(self):
        return ExactTotal()

    def of(self, state):
        whole = 0
        for chunk in state.total[::-1].tolist():
            whole = (whole << 32) + chunk
        return float(Fraction(whole, 1 << BASE))


class Median(sm.extend.Metric[Values, float], tag="plugin.median"):
    """Lower median of the scores of positives."""

    memory_limit: int | None = sm.extend.setting(None, operational=True)

    def make_state(self):
        return Values(memory_limit=self.memory_limit)

    def of(self, state):
        found = state.scores()
        return unordered(found[(len(found) - 1) // 2]) if len(found) else float("nan")


class ShareAbove(sm.extend.Metric[Cells, float], tag="plugin.share_above"):
    """Weighted share of scores of at least `cut`, from cells that collections widen."""

    about = sm.extend.About(positional_columns=("y_true", "y_score"))

    cut: float = sm.extend.setting(0.0)
    step: float = sm.extend.setting(1.0, above=0.0)
    memory_limit: int | None = sm.extend.setting(None, operational=True)

    @property
    def name(self):
        return f"{self.about.tag}@{self.cut:g}"

    def make_state(self):
        return Cells(cuts=(self.cut,), step=self.step, memory_limit=self.memory_limit)

    def of(self, state):
        i, weight, above = state.cuts.index(self.cut), 0, 0
        if state.excess is not None:
            weight = int(state.excess[:, 0].sum())
        if state.above_excess is not None:
            above = int(state.above_excess[:, i, 0].sum())
        weight += int(state.rows.sum()) << 20
        above += int(state.above[:, i].sum()) << 20
        return above / weight if weight else float("nan")


class Positives(sm.extend.Metric[Labels, float], tag="plugin.positives"):
    """Weight of positives by the weight of all."""

    def make_state(self):
        return Labels()

    def of(self, state):
        weight = (state.rows << 20) + (0 if state.excess is None else state.excess[:, 0])
        return float(weight[1] / weight.sum()) if weight.sum() else float("nan")


class Odds(sm.extend.Metric[sm.extend.ScoreSums, float], tag="plugin.odds"):
    """Predicted odds of a click, over a state of the package."""

    def make_state(self):
        return sm.extend.ScoreSums(terms=("score",))

    def of(self, state):
        weight = state.weight()
        p = float(state.total("score") / weight) if weight else float("nan")
        return p / (1 - p) if p < 1 else float("nan")


STATES = (Extremes(), ExactTotal(), Values(), Labels(), Cells(cuts=(1.5, 0.0, -2.0)), Cells(step=0.5))
GOOD = (Range, Total, Median, Positives, ShareAbove, ShareAbove(cut=0.75), Odds)


# -- broken, each by one law -------------------------------------------------------------------------------------------


class Last(sm.extend.State, tag="plugin.last"):
    """Depends on the order of rows."""

    rows = sm.extend.Flat()
    last = sm.extend.Flat(form="signed")

    def needs(self):
        return (sm.extend.score("y_score", "real"),)

    def absorb(self, into, at, y_score):
        np.add.at(into["rows"], at, 1)
        into["last"][at] = (y_score.values * 100).astype(np.int64)


class Batches(sm.extend.State, tag="plugin.batches"):
    """Counts batches, not rows."""

    rows = sm.extend.Flat()
    batches = sm.extend.Flat()

    def needs(self):
        return (sm.extend.score("y_score", "real"),)

    def absorb(self, into, at, y_score):
        np.add.at(into["rows"], at, 1)
        into["batches"][np.unique(at)] += 1


class Hasty(sm.extend.State, tag="plugin.hasty"):
    """Says that it checks, and counts before it does."""

    rows = sm.extend.Flat(2)
    kernel: ClassVar[str] = "plugin.kernels:count_hastily"

    def needs(self):
        return (sm.extend.label(),)

    def steps(self, like):
        return [sm.extend.Step(self.kernel, "y_true", type(self).rows, checks=True)]


class Trusting(Hasty, tag="plugin.trusting"):
    """Says that it checks, and does not."""

    kernel: ClassVar[str] = "plugin.kernels:count_trustfully"


class Unsliced(sm.extend.State, tag="plugin.unsliced"):
    """Knows no slices."""

    rows = sm.extend.Flat(2)

    def needs(self):
        return (sm.extend.label(),)

    def absorb(self, into, at, y_true):
        into["rows"][0] += np.bincount(y_true.values, minlength=2)


class Counting(sm.extend.Metric[Hasty, float]):
    state_class: ClassVar[type[sm.extend.State]]

    def make_state(self):
        return type(self).state_class()

    def of(self, state):
        return 0.0


class Order(Counting, tag="plugin.order"):
    state_class = Last


class Calls(Counting, tag="plugin.calls"):
    state_class = Batches


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

    def read(self, state):
        value = self.of(state)
        return super().read(state).having(bounds=lambda: (value + 1e-9, value + 2e-9))


class Weightless(Odds, tag="plugin.weightless"):
    """Divides by rows, though they have weights."""

    def of(self, state):
        rows = int(state.rows.sum())
        return float(state.total("score") / rows) if rows else float("nan")


class Nameless(sm.extend.Metric[sm.extend.ScoreSums, float]):
    """Has no tag, so that its bytes cannot be read again."""

    def make_state(self):
        return sm.extend.ScoreSums(terms=("score",))

    def of(self, state):
        return 0.0


class Hoarding(Odds, tag="plugin.hoarding"):
    """Shares its state with its copies."""

    def copy(self):
        return definition_of(self).wrap(accumulator_of(self))


class Narrowing(Odds, tag="plugin.narrowing"):
    """Sees labels only where they are integers."""

    def update(self, y_true=None, y_score=None, /, **columns):
        given = y_true if y_score is None and not columns else {"y_true": y_true, "y_score": y_score, **columns}
        if isinstance(given, dict) and getattr(given.get("y_true"), "dtype", np.dtype("u1")).kind == "f":
            given = given | {"y_true": np.zeros(len(given["y_true"]))}
        return super().update(given)


BROKEN = {
    Order: "splits",
    Calls: "splits",
    Haste: "failed_update_changes_nothing",
    Trust: "failed_update_changes_nothing",
    Slices: "slices",
    Writing: "reading_changes_nothing",
    Remembering: "value_follows_rows",
    Bold: "within_bounds",
    Weightless: "integer_weights",
    Nameless: "has_tag",
    Hoarding: "merge_commutes",
    Narrowing: "label_dtypes",
}
"""Each metric, and the first law that it breaks."""


# -- an import registers everything for good; tests of the package must not meet these ----------------------------------

_TAGS: dict[str, Any] = {}
for _registry in (sm.extend.METRICS, sm.extend.State.by_tag):
    for _tag in [t for t in _registry if t.startswith("plugin.")]:
        _TAGS[_tag] = (_registry, _registry.pop(_tag))


def _tag_of(cls: Any) -> str:
    """Return the tag of a metric or a state."""
    tag: str = cls.about.tag if issubclass(cls, sm.extend.Metric) else cls.tag
    return tag


@contextmanager
def imported(*classes: type) -> Iterator[None]:
    """As if the package that defines these classes were imported just now; all good ones by default."""
    chosen = set(map(_tag_of, classes))
    if not classes:
        broken = {_tag_of(c) for m in BROKEN for c in (m, getattr(m, "state_class", m))}
        chosen = _TAGS.keys() - broken
    for tag in chosen & _TAGS.keys():
        registry, cls = _TAGS[tag]
        registry[tag] = cls
    try:
        yield
    finally:
        for tag in chosen & _TAGS.keys():
            _TAGS[tag][0].pop(tag)
