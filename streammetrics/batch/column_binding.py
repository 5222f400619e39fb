"""Which columns play the roles of a metric, which rows count, and what is corrected."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

from ..numerics.settings import decode_setting, encode_setting, plain
from ..state.state import State
from .columns import Kind
from .ids import Ids
from .kinds import SCORES, Label, Matrix, Need, Score, Target

__all__ = ["PLAIN", "Binding", "Unit"]

INF = float("inf")
LEAST_RATE = 2.0**-31


class Unit(NamedTuple):
    """The column of the units, such as users, and how it is read."""

    column: str
    kind: Ids


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
        What negatives and positives are called in the columns of labels and decisions, if not 0 and 1.
    negative_rate : float, optional
        The share of negatives that was kept when the log was down-sampled.
    corrects : {"score", "rows", "both"}, optional
        What is brought back to the full log: p' = p / (p + (1 - p) / r), or the weight of negatives, 1 / r.
    scale : {"probability", "logit"}
        What the scores are, for the correction.
    ranks : bool
        Whether scores are counted as they were given, because only their order matters; then what is read from them is
        corrected.
    unit : Unit, optional
        Whose rows are not independent: rows without one are bad rows.
    """

    columns: tuple[tuple[str, Any], ...] = ()
    where: str | None = None
    labels: tuple[Any, Any] | None = None
    pos_label: Any = None
    negative_rate: float | None = None
    corrects: str | None = None
    scale: str = "probability"
    ranks: bool = False
    unit: Unit | None = None

    def __post_init__(self) -> None:
        """Check it; what means the same is the same, whatever library its scalars are of."""
        labels = None if self.labels is None else _pair(plain(self.labels))
        object.__setattr__(self, "labels", labels)
        object.__setattr__(self, "pos_label", None if self.pos_label is None else _label(plain(self.pos_label)))
        names = [self.where, *(n for _, c in self.columns for n in (c if isinstance(c, tuple) else (c,)))]
        if not all(n is None or isinstance(n, str) for n in names):
            raise TypeError(f"a task takes names of columns, not {names!r}")
        if (self.negative_rate is None) != (self.corrects is None):
            raise ValueError('a task takes negative_rate= and corrects="score", "rows" or "both" together')
        if self.corrects not in (None, "score", "rows", "both"):
            raise ValueError(f'corrects must be "score", "rows" or "both", not {self.corrects!r}')
        if self.negative_rate is not None and not 0 < self.negative_rate <= 1:
            raise ValueError(f"negative_rate is the share of negatives kept, in (0, 1], not {self.negative_rate!r}")
        if self.negative_rate is not None:
            object.__setattr__(self, "negative_rate", float(self.negative_rate))
            if self.corrects != "score" and self.negative_rate < LEAST_RATE:
                raise ValueError(
                    f"negative_rate={self.negative_rate!r} is below 2**-31: rows have no weights that large"
                )
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

    @property
    def given(self) -> dict[str, Any]:
        """What was asked for beside columns."""
        names = ("where", "labels", "pos_label", "negative_rate", "corrects")
        given = {n: value for n in names if (value := getattr(self, n)) is not None}
        return given | ({"scale": self.scale} if self.scale != "probability" else {})

    def header(self) -> dict[str, Any]:
        """Describe the binding as plain data."""
        head: dict[str, Any] = {k: encode_setting(v) for k, v in self.given.items()}
        head |= {"ranks": True} if self.ranks else {}  # of a metric that is not known where it is read
        return head | ({"columns": dict(self.columns)} if self.columns else {})

    @classmethod
    def of(cls, header: Mapping[str, Any]) -> Binding:
        """Read what `header` wrote."""
        made = dict(header)
        columns = made.pop("columns", {}).items()
        made["columns"] = tuple(sorted((r, tuple(c) if isinstance(c, list) else c) for r, c in columns))
        return cls(**made | {n: decode_setting(made[n]) for n in ("labels", "pos_label") if n in made})

    def need(self, need: Need) -> Need:
        """Return a need as this binding reads it: its labels, and its scale where scores are corrected."""
        if need.role in ("y_true", "y_pred") and (self.labels or self.pos_label is not None):
            wide = need.kind if isinstance(need.kind, Matrix) else None
            if (named := self._named(need.kind if wide is None else wide.kind)) is not None:
                return replace(need, kind=named if wide is None else Matrix(named, wide.width, wide.hint))
        if need.role == "y_score" and isinstance(need.kind, Score) and self.corrects_scores:
            return replace(need, kind=SCORES[self.scale])
        return need

    def _named(self, kind: Kind) -> Kind | None:
        """A kind of labels, hard or soft, of the names that they have here; None if it is no such kind."""
        label = Label(self.labels, self.pos_label)
        return label if isinstance(kind, Label) else Target(label) if isinstance(kind, Target) else None


def _pair(given: Any) -> tuple[Any, Any]:
    """The labels of the two classes, the negative one first."""
    if not isinstance(given, tuple):
        raise TypeError(f"labels= takes (negative, positive), not {given!r}")
    labels = tuple(map(_label, given))
    if len(labels) != 2 or labels[0] == labels[1]:
        raise ValueError(f"labels must be (negative, positive), two different values, not {labels!r}")
    return labels


def _label(value: Any) -> Any:
    """A label as it is written: numbers that are equal are one label."""
    if not isinstance(value, (int, float, str, bytes)) or value in (INF, -INF) or value != value:
        raise TypeError(f"a label is a finite number, a text or bytes, not {value!r}")
    if isinstance(value, (bool, float)) and float(value).is_integer():
        return int(value)
    return value


PLAIN = Binding()
