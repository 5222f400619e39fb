"""States of two classes, one for each label or each class against the rest, side by side in one state.

The arrays of a state of two classes get one more axis, of labels. Whatever is read of a label is read of a state of two
classes that is a view of its part, so every metric of two classes serves labels and classes, too.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ..arrays import COMBINE, Array
from ..classes import class_of, class_scores
from ..columns import Column, Need, matrix
from ..settings import setting
from ..state import State
from .calibration import ScoreBins
from .known_classes import KnownClasses
from .labels import DecisionCounts
from .scores import ScoreHistogram
from .sums import ScoreSums

__all__ = ["ByLabel", "LabelBins", "LabelDecisions", "LabelScores", "LabelSums", "TopBins", "TopScores", "by_label"]

CELLS = 1 << 20  # rows x labels counted at a time
MANY_ROWS = 256  # from which on a call for each label pays


class ByLabel(KnownClasses):
    """As many states of two classes as there are labels.

    Parameters
    ----------
    num_labels : int, optional
        Rows have a 0/1 label and a score for each of so many labels.
    num_classes, labels
        Rows have one of these classes, and a score for each: each class against the rest.
    """

    binary: ClassVar[type[State]]
    by_tag: ClassVar[dict[str, type[ByLabel]]] = {}
    """The class for each state of two classes, by its tag."""

    num_labels: int | None = setting(default=None, low=1, high=1 << 20)

    checks_itself = False

    def __init_subclass__(cls, tag: str = "", **keywords: Any) -> None:
        super().__init_subclass__(tag=tag, **keywords)
        cls._rules = {
            name: rule if name == "dropped" else replace(rule, shape=("width", *rule.shape))
            for name, rule in cls._rules.items()
        }
        ByLabel.by_tag[cls.binary.tag] = cls

    @property
    def known(self) -> int | tuple[Any, ...]:
        return self.num_labels or super().known

    @property
    def _one(self) -> State:
        """An empty state of two classes."""
        ours = {f: v for f, v in self.settings.items() if f not in ("num_labels", "num_classes", "labels")}
        return self.binary(**ours)

    def needs(self) -> tuple[Need, ...]:
        needs = {n.role: n for n in self._one.needs()}
        if self.num_labels is not None:
            return tuple(matrix(n, self.width) if n.role != "sample_weight" else n for n in needs.values())
        needs["y_true"] = class_of(self.known)
        if "y_score" in needs:
            needs["y_score"] = class_scores(self.width, getattr(self, "scale", "real"))
        return tuple(needs.values())

    def absorb(self, at: NDArray[np.int64] | None, /, **columns: Column) -> bool:
        if at is None and len(columns["y_true"].values) >= MANY_ROWS:
            self._absorb_by_label(columns)
        else:
            self._absorb_flat(at, columns)
        return True

    def _absorb_by_label(self, columns: dict[str, Column]) -> None:
        """Count one label after the other, each in the fast way of a lone state, whose counters stay in the cache."""
        turned = {r: np.ascontiguousarray(c.values.T) for r, c in columns.items() if c.values.ndim == 2}
        for i in range(self.width):
            part = self._view({name: None if a is None else a[i, ...] for name, a in self._arrays_by_label()})
            mine = {role: turned[role][i] if role in turned else c.values for role, c in columns.items()}
            if self.num_labels is None:
                mine["y_true"] = (mine["y_true"] == i).view(np.uint8)
            part.absorb(None, **{role: Column(values, columns[role].source) for role, values in mine.items()})
            for name, array in self._arrays_by_label():
                if array is None and part.__dict__[name] is not None:
                    self.need(name)[i] = part.__dict__[name]

    def _absorb_flat(self, at: NDArray[np.int64] | None, columns: dict[str, Column]) -> None:
        """Count rows as cells of row and label: quicker where rows are few, and where they go to slices."""
        n, step = len(columns["y_true"].values), max(1, CELLS // self.width)
        flat = self._flat()
        for first in range(0, n, step):
            rows = slice(first, min(first + step, n))
            here = np.zeros(rows.stop - first, np.int64) if at is None else at[rows]
            cells = (here[:, None] * self.width + np.arange(self.width)).reshape(-1)
            flat.absorb(cells, **{role: self._cells(role, column, rows) for role, column in columns.items()})
        self._keep(flat)

    def _cells(self, role: str, column: Column, rows: slice) -> Column:
        """Some rows of a column, a value for each label."""
        values = column.values[rows]
        if role == "sample_weight":
            values = np.repeat(values, self.width)
        elif role == "y_true" and self.num_labels is None:
            values = (values[:, None] == np.arange(self.width)).view(np.uint8)
        return Column(np.ascontiguousarray(values).reshape(-1), column.source)

    def _arrays_by_label(self) -> list[tuple[str, Array | None]]:
        return [(name, self.__dict__[name]) for name in self._by_label]

    def _flat(self) -> State:
        """All labels (of all slices) as slices of one state of two classes, whose arrays are views of ours."""
        flat = self._one
        slices = flat.__dict__["_slices"] = (1 if self.slices is None else self.slices) * self.width
        for name, array in self._arrays_by_label():
            lead = 1 if self.slices is None else 2
            flat.__dict__[name] = None if array is None else array.reshape(slices, *array.shape[lead:])
        return flat

    @property
    def _by_label(self) -> list[str]:
        return [name for name in self.rules() if name != "dropped"]

    def _keep(self, flat: State) -> None:
        """Take over optional arrays that a flat state has made."""
        for name in self._by_label:
            made = flat.__dict__[name]
            if made is not None and self.__dict__[name] is None:
                lead = (self.width,) if self.slices is None else (self.slices, self.width)
                self.__dict__[name] = made.reshape(*lead, *made.shape[1:])

    def parts(self) -> list[Any]:
        """A state of two classes for each label."""
        return [self._part(i) for i in range(self.width)]

    def _part(self, i: int) -> State:
        found: dict[str, Array | None] = {}
        for name, array in self._arrays_by_label():
            absent = array is None or (self.rules()[name].optional and not array[i].any())
            found[name] = None if absent or array is None else array[i, ...]
        return self._view(found)

    def pooled(self) -> Any:
        """A state of two classes that has seen the rows of every label."""
        united: dict[str, Array | None] = {}
        for name, array in self._arrays_by_label():
            rule = self.rules()[name]
            made = None if array is None else rule.carry(np.asarray(COMBINE[rule.rule].reduce(array, axis=0)))
            united[name] = made if made is None or not rule.optional or made.any() else None
        return self._view(united)

    def _view(self, arrays: dict[str, Array | None]) -> State:
        new = self._one
        new.__dict__.update(arrays)
        return new

    def admit(self, n: int, weight: float = 0.0) -> None:
        super().admit(n * self.width, weight * self.width)

    def quick(self) -> None:
        return None

    def facts(self) -> dict[str, Any]:
        first = self._part(0).facts()
        whole = {"rows": first["rows"], "weight": first["weight"]}
        for name in ("off_grid", "clipped"):
            array = self.__dict__.get(name)
            if array is not None and array.size:
                whole[name] = bool(array.any()) if name == "off_grid" else int(array.sum())
        return whole


class LabelScores(ByLabel, ScoreHistogram, tag="label_scores"):  # type: ignore[misc]
    """The score histogram of every label."""

    binary = ScoreHistogram


class LabelSums(ByLabel, ScoreSums, tag="label_sums"):  # type: ignore[misc]
    """The exact sums over scored rows of every label."""

    binary = ScoreSums


class LabelBins(ByLabel, ScoreBins, tag="label_bins"):  # type: ignore[misc]
    """The bins of every label."""

    binary = ScoreBins


class LabelDecisions(ByLabel, DecisionCounts, tag="label_decisions"):  # type: ignore[misc]
    """The decisions on every label."""

    binary = DecisionCounts


def by_label(state: State, **which: Any) -> ByLabel:
    """Return the state that holds one like this for each label: `num_labels`, `num_classes` or `labels`."""
    return ByLabel.by_tag[state.tag](**state.settings, **which)


class TopLabel(KnownClasses):
    """A state of two classes of the class with the highest score: whether it is right, and its probability.

    Parameters
    ----------
    num_classes, labels
        As for `KnownClasses`.
    logits : bool
        Whether scores are logits, of which the softmax is the probability.
    """

    logits: bool = setting(default=False)

    checks_itself = False

    def needs(self) -> tuple[Need, ...]:
        scores = class_scores(self.width, "logit" if self.logits else "probability")
        return class_of(self.known), scores, super().needs()[-1]

    def absorb(
        self, at: NDArray[np.int64] | None, /, y_true: Column, y_score: Column, sample_weight: Column | None = None
    ) -> bool:
        from ..kernels.classes import top_classes

        right, confidence = np.empty(len(y_true.values), np.uint8), np.empty(len(y_true.values))
        top_classes(y_true.values, y_score.values, self.logits, right, confidence)
        if not self.logits:
            confidence = confidence.astype(y_score.values.dtype)
        label, top = Column(right, "uint8"), Column(confidence, y_score.source)
        return bool(super().absorb(at, y_true=label, y_score=top, sample_weight=sample_weight))

    def quick(self) -> None:
        return None

    def facts(self) -> dict[str, Any]:
        return {name: fact for name, fact in super().facts().items() if name != "positives"}


class TopBins(TopLabel, ScoreBins, tag="top_bins"):  # type: ignore[misc]
    """The bins of the class with the highest score."""


class TopScores(TopLabel, ScoreHistogram, tag="top_scores"):  # type: ignore[misc]
    """The histogram of the class with the highest score."""
