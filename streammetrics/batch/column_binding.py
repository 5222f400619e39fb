"""The `Binding` of a `Task`: which column has which role (such as `y_true`) in the metric, and other options."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

from ..numerics.settings import decode_setting, encode_setting, to_python_value
from ..state.state import State
from .columns import Kind
from .ids import Ids
from .kinds import SCORES, Label, Matrix, Need, Score, Target

__all__ = ["PLAIN", "Binding", "Unit"]

INF = float("inf")
LEAST_RATE = 2.0**-31


class Unit(NamedTuple):
    """The column that identifies units of randomization, for example by user ID, and the kind of its values."""

    column: str
    kind: Ids


@dataclass(frozen=True)
class Binding:
    """The column of each role of a metric, the rows that count, and the correction for down-sampling.

    Parameters
    ----------
    columns : tuple of (role, column)
        The roles that the user has assigned to a column. Any other role reads the column of the same name.
    where : str, optional
        A 0/1 column that selects rows. Rows with 0 are left out, and the metric's state records their number.
    labels, pos_label : optional
        The values of both labels, or the value of the positive label, if a column of labels or predicted labels
        contains values other than 0 and 1.
    negative_rate : float, optional
        The fraction r of negatives that were kept when the log was down-sampled.
    corrects : {"score", "rows", "both"}, optional
        How to correct for down-sampling. "score" replaces each score p by p / (p + (1 - p) / r). "rows" multiplies the
        weight of each negative row by 1 / r. "both" does both.
    scale : {"probability", "logit"}
        The scale of the scores. It determines the formula by which scores are corrected.
    ranks : bool
        Whether only the order of the scores matters. If so, scores are counted without correction, and thresholds are
        corrected when results are read.
    unit : Unit, optional
        The unit of randomization. Rows of the same unit are correlated. A row without a unit is invalid.
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
        """Validate the settings, and convert numpy scalars to Python scalars, so that equal bindings compare equal."""
        labels = None if self.labels is None else _check_labels(to_python_value(self.labels))
        object.__setattr__(self, "labels", labels)
        object.__setattr__(
            self, "pos_label", None if self.pos_label is None else _normalize_label(to_python_value(self.pos_label))
        )
        names = [self.where, *(n for _, c in self.columns for n in (c if isinstance(c, tuple) else (c,)))]
        if not all(n is None or isinstance(n, str) for n in names):
            wrong = [n for n in names if n is not None and not isinstance(n, str)]
            raise TypeError(f"Task: expected the names of columns as strings, found {', '.join(map(repr, wrong))}")
        if (self.negative_rate is None) != (self.corrects is None):
            raise ValueError(
                'Task: negative_rate= requires corrects="score", "rows" or "both", and corrects= requires negative_rate='
            )
        if self.corrects not in (None, "score", "rows", "both"):
            raise ValueError(f'corrects must be "score", "rows" or "both", not {self.corrects!r}')
        if self.negative_rate is not None and not 0 < self.negative_rate <= 1:
            raise ValueError(
                f"negative_rate must be the share of negatives kept, in (0, 1], not {self.negative_rate!r}"
            )
        if self.negative_rate is not None:
            object.__setattr__(self, "negative_rate", float(self.negative_rate))
            if self.corrects != "score" and self.negative_rate < LEAST_RATE:
                raise ValueError(
                    f"negative_rate must be at least 2**-31, the inverse of the largest weight, not {self.negative_rate!r}"
                )
        if self.labels is not None and self.pos_label is not None:
            raise ValueError("Task: pass either labels=(negative, positive) or pos_label=, not both")
        if self.scale not in ("probability", "logit"):
            raise ValueError(f'scale must be "probability" or "logit", not {self.scale!r}')

    def column(self, role: str) -> Any:
        """Return the name of the column with `role`, or a tuple of names if several columns form a key or matrix."""
        return self.columns_by_role.get(role, role)

    @cached_property
    def columns_by_role(self) -> dict[str, Any]:
        """The names of the columns to which the user has assigned a role, keyed by role."""
        return dict(self.columns)

    @property
    def corrects_scores(self) -> bool:
        """Whether scores are corrected for down-sampling, either alone or together with the weights."""
        return self.corrects in ("score", "both")

    def correct_state(self, state: State) -> State:
        """Return the state with its thresholds corrected for down-sampling, if its scores were counted uncorrected.

        Any other state is returned unchanged.
        """
        if not self.ranks or self.negative_rate is None:
            return state
        return state.with_sampling_correction(self.negative_rate, self.scale)

    @property
    def options(self) -> dict[str, Any]:
        """The options of a `Task`, keyed by name. Columns, and options that have their default value, are left out."""
        names = ("where", "labels", "pos_label", "negative_rate", "corrects")
        options = {n: value for n in names if (value := getattr(self, n)) is not None}
        return options | ({"scale": self.scale} if self.scale != "probability" else {})

    def header(self) -> dict[str, Any]:
        """Return the binding as plain data for the header of a saved state."""
        head: dict[str, Any] = {k: encode_setting(v) for k, v in self.options.items()}
        # The metric class determines whether only the order of the scores matters. The header records it for programs
        # that do not have this class.
        head |= {"ranks": True} if self.ranks else {}
        return head | ({"columns": dict(self.columns)} if self.columns else {})

    @classmethod
    def from_header(cls, header: Mapping[str, Any]) -> Binding:
        """Rebuild a binding from the plain data that `header` returns."""
        fields = dict(header)
        columns = fields.pop("columns", {}).items()
        fields["columns"] = tuple(sorted((r, tuple(c) if isinstance(c, list) else c) for r, c in columns))
        return cls(**fields | {n: decode_setting(fields[n]) for n in ("labels", "pos_label") if n in fields})

    def adapt_need(self, need: Need) -> Need:
        """Return `need` with this binding's label values and, if scores are corrected, with its score scale.

        A `Need` declares that a metric's state reads a column.
        """
        if need.role in ("y_true", "y_pred") and (self.labels or self.pos_label is not None):
            wide = need.kind if isinstance(need.kind, Matrix) else None
            if (named := self._with_label_names(need.kind if wide is None else wide.kind)) is not None:
                return replace(need, kind=named if wide is None else Matrix(named, wide.width, wide.hint))
        if need.role == "y_score" and isinstance(need.kind, Score) and self.corrects_scores:
            return replace(need, kind=SCORES[self.scale])
        return need

    def _with_label_names(self, kind: Kind) -> Kind | None:
        """Return `kind` with this binding's label values if `kind` describes labels or soft labels; otherwise None."""
        label = Label(self.labels, self.pos_label)
        return label if isinstance(kind, Label) else Target(label) if isinstance(kind, Target) else None


def _check_labels(labels: Any) -> tuple[Any, Any]:
    """Return the labels (negative, positive) in normalized form; raise an error unless they are two distinct labels."""
    if not isinstance(labels, tuple):
        raise TypeError(f"labels must be a tuple (negative, positive), not {labels!r}")
    plain_labels = tuple(map(_normalize_label, labels))
    if len(plain_labels) != 2 or plain_labels[0] == plain_labels[1]:
        raise ValueError(f"labels must be a tuple (negative, positive) of two different values, not {plain_labels!r}")
    return plain_labels


def _normalize_label(value: Any) -> Any:
    """Return a label in normalized form, which is the same for all equal numbers: True, 1 and 1.0 all become 1."""
    if not isinstance(value, (int, float, str, bytes)) or value in (INF, -INF) or value != value:
        raise TypeError(f"a label must be a finite number, a string or bytes, not {value!r}")
    if isinstance(value, (bool, float)) and float(value).is_integer():
        return int(value)
    return value


PLAIN = Binding()
