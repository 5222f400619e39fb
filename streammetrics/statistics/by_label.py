"""Statistics of two classes, one for each label or each class against the rest, side by side in one state.

The parts of a statistic of two classes get one more axis, of labels. Whatever is read of a label is read of a state of two
classes that has its part, so every metric of two classes serves labels and classes, too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np

from ..batch.classes import class_scores
from ..batch.columns import Column
from ..batch.kinds import Need, label_weight, matrix
from ..numerics.kernel_registry import kernel
from ..numerics.settings import setting
from ..state.declare import FORMS, Array, Flat, carry
from ..state.state import State
from .bins import ScoreBins
from .known_classes import KnownClasses
from .labels import DecisionCounts, highest
from .soft_sums import SoftSums
from .step import Like, Step
from .sums import ScoreSums

__all__ = [
    "OWN_SETTINGS",
    "ByLabel",
    "LabelBins",
    "LabelDecisions",
    "LabelSoftSums",
    "LabelSums",
    "TopBins",
    "TopLabel",
    "by_label",
    "counted",
]

OWN_SETTINGS = ("num_labels", "num_classes", "labels", "ignore_class", "top_k", "above", "softmax")
"""Settings that a statistic of two classes does not have."""


def counted(parts: Sequence[Any]) -> list[tuple[Any, int]]:
    """States, and how often each is there: labels that have seen the same are read once."""
    times = Counter(map(id, parts))
    return [(part, times[i]) for i, part in {id(part): part for part in parts}.items()]


class ByLabel(KnownClasses):
    """As many statistics of two classes as there are labels.

    Parameters
    ----------
    num_labels : int, optional
        Rows have a 0/1 label and a score for each of so many labels.
    num_classes, labels
        Rows have one of these classes, and a score for each: each class against the rest.

    Notes
    -----
    In slices a row goes to as many cells side by side, and kernels are those of slices. A lone state counts one label
    after the other, each as a lone cell: `each_count` for `count` (see `kernels.each`); then columns come label after
    label.
    """

    binary: ClassVar[type[State]]
    by_binary: ClassVar[dict[str, type[ByLabel]]] = {}
    """The class for each statistic of two classes, by its tag."""

    num_labels: int | None = setting(default=None, low=1, high=1 << 16)

    def __init_subclass__(cls, tag: str = "", **keywords: Any) -> None:
        super().__init_subclass__(tag=tag, **keywords)
        for name, part in cls.declared.items():
            if isinstance(part, Flat) and not part.front and "width" not in part.shape:
                how: Any = {"form": part.form, "optional": part.optional, "like": part.like, "beside": part.beside}
                wide = Flat("width", *part.shape, **how)
                wide.__set_name__(cls, name)
                setattr(cls, name, wide)
                cls.declared[name] = wide
        ByLabel.by_binary.setdefault(cls.binary.tag, cls)  # not those that hold labels of their own making

    @property
    def known(self) -> int | tuple[Any, ...]:
        return self.num_labels or super().known

    @property
    def in_turn(self) -> bool:
        """Whether one label is counted after the other."""
        return not self.axes

    @property
    def spread(self) -> int:
        return 1 if self.in_turn else self.width

    @property
    def times(self) -> int:
        return self.width * super().times

    @property
    def stacks(self) -> bool:
        return False  # formulas of two classes read a label at a time

    @property
    def one(self) -> State:
        """An empty state of two classes."""
        ours = {f: v for f, v in self.settings.items() if f not in OWN_SETTINGS}
        return self.binary(**ours)

    def needs(self) -> tuple[Need, ...]:
        needs = {n.role: n for n in self.one.needs()}
        if self.num_labels is not None:
            needs["sample_weight"] = label_weight(self.width)
            return tuple(matrix(n, self.width) if n.role != "sample_weight" else n for n in needs.values())
        needs["y_true"] = self.true_class
        if "y_score" in needs:
            needs["y_score"] = class_scores(self.width, getattr(self, "scale", "real"))
        return tuple(needs.values())

    def derive(self, columns: Mapping[str, Column]) -> Mapping[str, Column]:
        return super().derive({role: Column(self._flat(role, c.values), c.source) for role, c in columns.items()})

    def _flat(self, role: str, values: Array) -> Array:
        """A value for each row and label, rows first; label after label where they are counted in turn."""
        if role == "sample_weight" and values.ndim == 1:
            return values if self.in_turn else np.repeat(values, self.width)
        table = values.T if self.in_turn else values
        if role == "y_true" and self.num_labels is None:
            classes = np.arange(self.width)
            table = (values == classes[:, None] if self.in_turn else values[:, None] == classes).view(np.uint8)
        return np.ascontiguousarray(table).reshape(-1)

    def steps(self, like: Like) -> Iterable[Step]:
        if not self.in_turn:
            return super().steps(replace(like, lone=False))
        return [Step(s.kernel.replace(":", ":each_"), self.width, *s.arguments) for s in super().steps(like)]

    # -- reading ------------------------------------------------------------------------------------------------------

    def each(self) -> list[State]:
        """A state of two classes for each label; labels that have seen the same have one."""
        one, flats = self.one, self._flats()
        held = [
            np.ascontiguousarray(a).reshape(len(a) * self.width, -1).view(np.uint8) for a in flats.values() if a.size
        ]
        if not held:
            return [self._held(one, {n: a[:, 0] for n, a in flats.items()})] * self.width
        rows = np.concatenate(held, axis=1)
        _, firsts, to = np.unique(rows.view(f"V{rows.shape[1]}").ravel(), return_index=True, return_inverse=True)
        made = [self._held(one, {n: a[:, i] for n, a in flats.items()}) for i in firsts.tolist()]
        return [made[i] for i in to.ravel().tolist()]

    def _first(self) -> State:
        """A state of two classes for the first label."""
        return self._held(self.one, {n: a[:, 0] for n, a in self._flats().items()})

    def pooled(self) -> State:
        """A state of two classes that has seen the rows of every label."""
        parts = self.parts()
        found = {n: FORMS[parts[n].form].combine.reduce(a, axis=1) for n, a in self._flats().items()}
        return self._held(self.one, {n: carry(parts[n].form, np.asarray(a)) for n, a in found.items()})

    def _flats(self) -> dict[str, Array]:
        self._lone()
        return {n: a for n, a in self.cells.flats.items() if not self.parts()[n].front}

    def _held(self, one: State, flats: dict[str, Array]) -> State:
        cells = one.no_cells(())
        made = one.holding(replace(cells, keys=self.cells.keys, flats=flats))
        return made.present()

    def facts(self) -> dict[str, Any]:
        parts = counted(self.each())
        weight = sum(
            times * Fraction(one.facts()["weight"]) for one, times in parts
        )  # labels may have their own weights
        whole = {"rows": self._first().facts()["rows"], "weight": weight / self.width}
        for name in ("off_grid", "clipped"):
            array = getattr(self, name, None)
            if array is not None and array.size:
                whole[name] = bool(array.any()) if name == "off_grid" else int(array.sum())
        return whole


class LabelSums(ByLabel, ScoreSums, tag="label_sums"):
    """The exact sums over scored rows of every label."""

    binary = ScoreSums


class LabelSoftSums(ByLabel, SoftSums, tag="label_soft_sums"):
    """The exact sums over scored rows of every label, all of them soft."""

    binary = SoftSums


class LabelBins(ByLabel, ScoreBins, tag="label_bins"):
    """The bins of every label."""

    binary = ScoreBins


class LabelDecisions(ByLabel, DecisionCounts, tag="label_decisions"):
    """The decisions on every label.

    Parameters
    ----------
    top_k : int, optional
        The labels of so many highest scores of a row are decided, the first of equal ones: at the threshold 0.5.
    above : bool
        With `top_k`: whether the score of a label must also reach the threshold.
    """

    binary = DecisionCounts

    top_k: int | None = setting(default=None, low=1)
    above: bool = setting(default=False)

    def derive(self, columns: Mapping[str, Column]) -> Mapping[str, Column]:
        if self.top_k is not None:
            scores = columns["y_score"]
            made = highest(scores.values, self.top_k)
            if self.above:  # how many thresholds each of the k highest scores reaches: those are what is compared
                cuts = super().cuts(scores.source, scores.values.dtype)
                made *= np.searchsorted(cuts, scores.values, side="right").astype(np.float32)
            columns = {**columns, "y_score": Column(made, "float32")}
        return super().derive(columns)

    def cuts(self, source: str, dtype: np.dtype[Any]) -> Array:
        return np.arange(1, len(self.thresholds) + 1, dtype=dtype) if self.above else super().cuts(source, dtype)


def by_label(state: State, **which: Any) -> ByLabel:
    """Return the statistic that holds one like this for each label: `num_labels`, `num_classes` or `labels`."""
    of_logits = state.settings.get("scale") == "logit" and which.get("num_labels") is None
    softmax: dict[str, Any] = {"softmax": True} if of_logits and state.tag == "scores" else {}
    return ByLabel.by_binary[state.tag](**state.settings, **softmax, **which)


class TopLabel(KnownClasses):
    """A statistic of two classes of the class with the highest score: whether it is right, and its probability.

    Parameters
    ----------
    num_classes, labels
        As for `KnownClasses`.
    logits : bool
        Whether scores are logits, of which the softmax is the probability.
    """

    logits: bool = setting(default=False)

    def needs(self) -> tuple[Need, ...]:
        scores = class_scores(self.width, "logit" if self.logits else "probability")
        return self.true_class, scores, super().needs()[-1]

    def derive(self, columns: Mapping[str, Column]) -> Mapping[str, Column]:
        classes, scores = columns["y_true"], columns["y_score"]
        right, top = np.empty(len(classes.values), np.uint8), np.empty(len(classes.values))
        kernel("classes:top_classes")(classes.values, scores.values, self.logits, right, top)
        if not self.logits:
            top = top.astype(scores.values.dtype)
        return {**columns, "y_true": Column(right, "uint8"), "y_score": Column(top, scores.source)}

    def facts(self) -> dict[str, Any]:
        return {name: fact for name, fact in super().facts().items() if name != "positives"}


class TopBins(TopLabel, ScoreBins, tag="top_bins"):
    """The bins of the class with the highest score."""
