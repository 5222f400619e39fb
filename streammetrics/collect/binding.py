"""Which columns play the roles of a metric, which rows count, and what is corrected."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from ..columns.columns import SCORES, Label, Need, Score
from ..state.state import State

__all__ = ["PLAIN", "Binding"]


@dataclass(frozen=True)
class Binding:
    """Which columns play the roles of a metric, which rows count, and what is corrected.

    Parameters
    ----------
    columns : tuple of (role, column)
        Roles that are not named are played by the column of the same name.
    where : str, optional
        A 0/1 column; rows with 0 are left out, and counted as such.
    labels, pos_label : optional
        What negatives and positives are called in the label column, if not 0 and 1.
    negative_rate : float, optional
        The share of negatives that was kept when the log was down-sampled.
    corrects : {"score", "rows", "both"}, optional
        What is brought back to the full log: p' = p / (p + (1 - p) / r), or the weight of negatives, 1 / r.
    scale : {"probability", "logit"}
        What the scores are, for the correction.
    ranks : bool
        Whether scores are counted as they were given, because only their order matters; then what is read from them is
        corrected.
    """

    columns: tuple[tuple[str, Any], ...] = ()
    where: str | None = None
    labels: tuple[Any, Any] | None = None
    pos_label: Any = None
    negative_rate: float | None = None
    corrects: str | None = None
    scale: str = "probability"
    ranks: bool = False

    def __post_init__(self) -> None:
        names = [self.where, *(n for _, c in self.columns for n in (c if isinstance(c, tuple) else (c,)))]
        if not all(n is None or isinstance(n, str) for n in names):
            raise TypeError(f"a task takes names of columns, not {names!r}")
        if (self.negative_rate is None) != (self.corrects is None):
            raise ValueError('a task takes negative_rate= and corrects="score", "rows" or "both" together')
        if self.corrects not in (None, "score", "rows", "both"):
            raise ValueError(f'corrects must be "score", "rows" or "both", not {self.corrects!r}')
        if self.negative_rate is not None and not 0 < self.negative_rate <= 1:
            raise ValueError(f"negative_rate is the share of negatives kept, in (0, 1], not {self.negative_rate!r}")
        if self.labels is not None and (len(self.labels) != 2 or self.labels[0] == self.labels[1]):
            raise ValueError(f"labels must be (negative, positive), two different values, not {self.labels!r}")
        if self.labels is not None and self.pos_label is not None:
            raise ValueError("a task takes labels=(negative, positive) or pos_label=, not both")
        if self.scale not in ("probability", "logit"):
            raise ValueError(f'scale must be "probability" or "logit", not {self.scale!r}')

    def column(self, role: str) -> Any:
        """The column that plays a role; a tuple of them where a key has several."""
        return self.bound.get(role, role)

    @cached_property
    def bound(self) -> dict[str, Any]:
        """The roles that were given a column by name, and the column."""
        return dict(self.columns)

    @property
    def corrects_scores(self) -> bool:
        """Whether scores are brought back to the full log."""
        return self.corrects in ("score", "both")

    def read(self, state: State) -> State:
        """Return a state as what it was counted from is to be read: thresholds corrected, where scores were not."""
        if not self.ranks or self.negative_rate is None:
            return state
        return state.corrected(self.negative_rate, self.scale)

    def header(self) -> dict[str, Any]:
        """Describe the binding as plain data."""
        given = {k: getattr(self, k) for k in ("where", "labels", "pos_label", "negative_rate", "corrects")}
        head: dict[str, Any] = {k: v for k, v in given.items() if v is not None}
        if self.scale != "probability":
            head["scale"] = self.scale
        return head | ({"columns": dict(self.columns)} if self.columns else {})

    @classmethod
    def of(cls, header: Mapping[str, Any]) -> Binding:
        """Read what `header` wrote."""
        made = dict(header)
        columns = made.pop("columns", {}).items()
        made["columns"] = tuple(sorted((r, tuple(c) if isinstance(c, list) else c) for r, c in columns))
        if "labels" in made:
            made["labels"] = tuple(made["labels"])
        return cls(**made)

    def need(self, need: Need) -> Need:
        """Return a need as this binding reads it: its labels, and its scale where scores are corrected."""
        if isinstance(need.kind, Label) and need.role == "y_true" and (self.labels or self.pos_label is not None):
            return replace(need, kind=Label(self.labels, self.pos_label))
        if isinstance(need.kind, Score) and self.corrects_scores:
            return replace(need, kind=SCORES[self.scale])
        return need


PLAIN = Binding()
