"""States that keep a binary statistic for each label, or for each class against the rest.

Each array of the binary statistic gets an additional axis, with one entry for each label. `split_classes` turns the
entry of a label back into a binary state. Every binary metric therefore also works for labels and classes.
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
from ..numerics.kernel_registry import find_kernel
from ..numerics.settings import setting
from ..state.declare import FORMS, Array, Flat, carry
from ..state.state import State
from .bins import ScoreBins
from .decision_counts import DecisionCounts, mark_top_k
from .known_classes import KnownClasses
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
    "count_distinct_states",
    "make_label_statistic",
]

OWN_SETTINGS = ("num_labels", "num_classes", "labels", "ignore_class", "top_k", "above", "softmax")
"""Settings of a per-label statistic that must not be passed to the binary statistic of one label."""


def count_distinct_states(parts: Sequence[Any]) -> list[tuple[Any, int]]:
    """Return each distinct state object in `parts`, with the number of times that it occurs.

    Labels with equal counts share one state object (see `ByLabel.split_classes`), so callers need to compute the
    results of these labels only once.
    """
    times = Counter(map(id, parts))
    return [(part, times[i]) for i, part in {id(part): part for part in parts}.items()]


class ByLabel(KnownClasses):
    """The base class for statistics that keep a binary statistic for each label.

    Parameters
    ----------
    num_labels : int, optional
        The number of labels; a row has a 0/1 value and a score for each label.
    num_classes, labels
        The number of classes, or the list of classes; a row has one class and a score for each class. Each class is
        counted against the rest.

    Notes
    -----
    In a state with slices, kernels treat each label of a row as a separate row, and each label of a slice as a separate
    cell. A state without slices counts the labels one after the other with a faster kernel, such as
    `count_bins_multilabel` instead of `count_bins` (see `kernels.multilabel`). In the columns that this kernel reads,
    all values of the first label come first, then those of the second, and so on.
    """

    binary: ClassVar[type[State]]
    by_binary: ClassVar[dict[str, type[ByLabel]]] = {}
    """Maps the tag of a binary statistic to the subclass that keeps this statistic for every label.

    For example, "score_bins" maps to `LabelBins`.
    """

    num_labels: int | None = setting(default=None, low=1, high=1 << 16)

    def __init_subclass__(cls, tag: str = "", **keywords: Any) -> None:
        super().__init_subclass__(tag=tag, **keywords)
        for name, part in cls.declared_parts.items():
            if isinstance(part, Flat) and not part.front and "width" not in part.shape:
                how: Any = {
                    "form": part.form,
                    "optional": part.optional,
                    "like": part.like,
                    "excess_of": part.excess_of,
                }
                wide = Flat("width", *part.shape, **how)
                wide.__set_name__(cls, name)
                setattr(cls, name, wide)
                cls.declared_parts[name] = wide
        # Several subclasses may keep the same binary statistic. `make_label_statistic` uses the subclass that is
        # defined first. The other subclasses, such as `PairScores`, derive other labels from the columns, for example
        # one for each pair of classes.
        ByLabel.by_binary.setdefault(cls.binary.tag, cls)

    @property
    def declared_classes(self) -> int | tuple[Any, ...]:
        return self.num_labels or super().declared_classes

    @property
    def in_turn(self) -> bool:
        """Whether kernels count one label in all rows before they count the next label.

        If False, kernels count all labels of one row before those of the next row. States with slices need this order.
        """
        return not self.axes

    @property
    def cells_per_row(self) -> int:
        return 1 if self.in_turn else self.width

    @property
    def counts_per_row(self) -> int:
        return self.width * super().counts_per_row

    @property
    def can_vectorize(self) -> bool:
        # `split_classes` works for one cell only, so metrics cannot compute the values of all cells in one call.
        return False

    @property
    def empty_binary(self) -> State:
        """An empty state of the binary statistic, with this statistic's values for the settings that the two share."""
        ours = {f: v for f, v in self.settings.items() if f not in OWN_SETTINGS}
        return self.binary(**ours)

    def needs(self) -> tuple[Need, ...]:
        needs = {n.role: n for n in self.empty_binary.needs()}
        if self.num_labels is not None:
            needs["sample_weight"] = label_weight(self.width)
            return tuple(matrix(n, self.width) if n.role != "sample_weight" else n for n in needs.values())
        needs["y_true"] = self.true_class
        if "y_score" in needs:
            needs["y_score"] = class_scores(self.width, getattr(self, "scale", "real"))
        return tuple(needs.values())

    def derive_columns(self, columns: Mapping[str, Column]) -> Mapping[str, Column]:
        return super().derive_columns(
            {role: Column(self._flatten(role, c.values), c.source) for role, c in columns.items()}
        )

    def _flatten(self, role: str, values: Array) -> Array:
        """Return a column as a flat array with one value for each row and label.

        With `in_turn`, all values of the first label come first, and weights with one value per row are returned
        unchanged. Otherwise, all values of the first row come first.
        """
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
        return [Step(f"{s.kernel}_multilabel", self.width, *s.arguments) for s in super().steps(like)]

    # -- reading ------------------------------------------------------------------------------------------------------

    def split_classes(self) -> list[State]:
        """Return a binary state for each label. Labels with equal counts share one object."""
        one, flats = self.empty_binary, self._class_parts()
        part_bytes = [
            np.ascontiguousarray(a).reshape(len(a) * self.width, -1).view(np.uint8) for a in flats.values() if a.size
        ]
        if not part_bytes:
            return [self._binary_state(one, {n: a[:, 0] for n, a in flats.items()})] * self.width
        # Represent each label by the bytes of all its arrays, so that `np.unique` finds labels with equal counts.
        rows = np.concatenate(part_bytes, axis=1)
        _, firsts, to = np.unique(rows.view(f"V{rows.shape[1]}").ravel(), return_index=True, return_inverse=True)
        states = [self._binary_state(one, {n: a[:, i] for n, a in flats.items()}) for i in firsts.tolist()]
        return [states[i] for i in to.ravel().tolist()]

    def _first_class(self) -> State:
        """Return a binary state for the first label."""
        return self._binary_state(self.empty_binary, {n: a[:, 0] for n, a in self._class_parts().items()})

    def pool_classes(self) -> State:
        """Return a binary state that combines the rows of all labels, for micro averages."""
        parts = self.parts()
        found = {n: FORMS[parts[n].form].combine.reduce(a, axis=1) for n, a in self._class_parts().items()}
        return self._binary_state(self.empty_binary, {n: carry(parts[n].form, np.asarray(a)) for n, a in found.items()})

    def _class_parts(self) -> dict[str, Array]:
        self._check_one_cell()
        return {n: a for n, a in self.cells.flats.items() if not self.parts()[n].front}

    def _binary_state(self, one: State, flats: dict[str, Array]) -> State:
        cells = one.make_empty_cells(())
        state = one.with_cells(replace(cells, keys=self.cells.keys, flats=flats))
        return state.canonicalize()

    def facts(self) -> dict[str, Any]:
        parts = count_distinct_states(self.split_classes())
        # A row may have a different weight for each label. Its weight in the summary is the mean of these weights.
        weight = sum(times * Fraction(one.facts()["weight"]) for one, times in parts)
        whole = {"rows": self._first_class().facts()["rows"], "weight": weight / self.width}
        for name in ("off_grid", "clipped"):
            array = getattr(self, name, None)
            if array is not None and array.size:
                whole[name] = bool(array.any()) if name == "off_grid" else int(array.sum())
        return whole


class LabelSums(ByLabel, ScoreSums, tag="label_sums"):
    """The sums of `ScoreSums`, such as the sum of the log loss, for every label."""

    binary = ScoreSums


class LabelSoftSums(ByLabel, SoftSums, tag="label_soft_sums"):
    """The sums of `SoftSums` for every label, where labels are targets in [0, 1]."""

    binary = SoftSums


class LabelBins(ByLabel, ScoreBins, tag="label_bins"):
    """The equal-width score bins of `ScoreBins` for every label."""

    binary = ScoreBins


class LabelDecisions(ByLabel, DecisionCounts, tag="label_decisions"):
    """Confusion matrices for every label.

    Parameters
    ----------
    top_k : int, optional
        The number of labels to predict for each row: those with the highest scores. Among labels with equal scores, the
        first are chosen. Unless `above` is true, the decision for each label (1 or 0) then replaces its score in the
        comparison with the threshold, so the threshold should be 0.5. Without `top_k`, every label whose score reaches
        the threshold is predicted.
    above : bool
        With `top_k`: whether the score of a predicted label must also reach the threshold.
    """

    binary = DecisionCounts

    top_k: int | None = setting(default=None, low=1)
    above: bool = setting(default=False)

    def derive_columns(self, columns: Mapping[str, Column]) -> Mapping[str, Column]:
        if self.top_k is not None:
            scores = columns["y_score"]
            decisions = mark_top_k(scores.values, self.top_k)
            # Replace each of the k highest scores with the number of thresholds that it reaches, and all other scores
            # with 0. The kernel then compares this number, instead of the score, with the thresholds 1, 2, ... from
            # `rounded_thresholds`.
            if self.above:
                cuts = super().rounded_thresholds(scores.source, scores.values.dtype)
                decisions *= np.searchsorted(cuts, scores.values, side="right").astype(np.float32)
            columns = {**columns, "y_score": Column(decisions, "float32")}
        return super().derive_columns(columns)

    def rounded_thresholds(self, source: str, dtype: np.dtype[Any]) -> Array:
        return (
            np.arange(1, len(self.thresholds) + 1, dtype=dtype)
            if self.above
            else super().rounded_thresholds(source, dtype)
        )


def make_label_statistic(state: State, **which: Any) -> ByLabel:
    """Return an empty statistic that keeps the binary statistic `state` for every label or class.

    The keyword arguments are settings of the returned statistic, such as `num_labels=5` or `labels=("cat", "dog")`.
    """
    of_logits = state.settings.get("scale") == "logit" and which.get("num_labels") is None
    softmax: dict[str, Any] = {"softmax": True} if of_logits and state.tag == "scores" else {}
    return ByLabel.by_binary[state.tag](**state.settings, **softmax, **which)


class TopLabel(KnownClasses):
    """The base class for binary statistics of the predicted class, which is the class with the highest score.

    The label of a row is 1 if the predicted class is correct, else 0. The score is the probability of this class.

    Parameters
    ----------
    num_classes, labels
        The number of classes, or the list of classes, as in `KnownClasses`.
    logits : bool
        Whether scores are logits, which a softmax converts to probabilities.
    """

    logits: bool = setting(default=False)

    def needs(self) -> tuple[Need, ...]:
        scores = class_scores(self.width, "logit" if self.logits else "probability")
        return self.true_class, scores, super().needs()[-1]

    def derive_columns(self, columns: Mapping[str, Column]) -> Mapping[str, Column]:
        classes, scores = columns["y_true"], columns["y_score"]
        right, top = np.empty(len(classes.values), np.uint8), np.empty(len(classes.values))
        find_kernel("classes:find_top_classes")(classes.values, scores.values, self.logits, right, top)
        if not self.logits:
            top = top.astype(scores.values.dtype)
        return {**columns, "y_true": Column(right, "uint8"), "y_score": Column(top, scores.source)}

    def facts(self) -> dict[str, Any]:
        return {name: fact for name, fact in super().facts().items() if name != "positives"}


class TopBins(TopLabel, ScoreBins, tag="top_bins"):
    """The equal-width bins of `ScoreBins` for the highest class probability of each row."""
