"""Metric: what a user looks up. Settings, a formula, and one pure function of a state."""

from __future__ import annotations

import math
import threading
import warnings
from collections.abc import Mapping
from fractions import Fraction
from typing import TYPE_CHECKING, Any, ClassVar, Generic, NamedTuple, TypeVar

import numpy as np

from .arrays import ROW_LIMIT
from .codec import decoders
from .columns import Batch
from .convert import as_columns
from .encodable import Encodable
from .errors import IncompatibleStateError, InvalidInputError, UndefinedMetricWarning
from .intake import Binding, Unit
from .settings import Settings, encode_setting, setting, union, unlike
from .state import DROPPED, State

if TYPE_CHECKING:
    from typing_extensions import Self, dataclass_transform
else:

    def dataclass_transform(**_: Any) -> Any:
        return lambda cls: cls


__all__ = ["METRICS", "Interval", "Metric", "ScoredLabels"]

S = TypeVar("S", bound=State)
T = TypeVar("T")

METRICS: dict[str, type[Metric[Any, Any]]] = {}
"""Every metric there is, by tag: what the laws, the catalogue and the command line go through."""

PLAIN = Binding()
_MAKING = threading.RLock()


class Interval(NamedTuple):
    """A statistical interval, or the reason why there is none.

    Parameters
    ----------
    low, high : float
        The limits; NaN if there is a reason.
    confidence : float
        The nominal coverage.
    reason : str or None
        Why no interval can be given.
    """

    low: float
    high: float
    confidence: float
    reason: str | None = None


@dataclass_transform(frozen_default=True, kw_only_default=True, eq_default=False, field_specifiers=(setting, union))
class Metric(Settings, Encodable, Generic[S, T]):
    """A metric: fed by `update`, united by `merge`, read by `compute`.

    A subclass declares settings, makes an empty state (`make_state`), and computes `of(state)`; see `check_metric` for
    the laws that every metric keeps.

    Notes
    -----
    To make a metric of your own, in any package, over a state that exists::

        class Odds(sm.Metric[sm.ScoreSums, float], tag="acme.odds"):
            '''Predicted odds of a click.'''

            def make_state(self):
                return sm.ScoreSums(terms=("score",))

            def of(self, state):
                p = float(state.total("score") / state.weight())
                return p / (1 - p)
    """

    tag: ClassVar[str] = ""
    best: ClassVar[str | float | None] = None
    """Whether "high" or "low" is better; the value that is best, on a scale of ratios; or None."""
    formula: ClassVar[str] = ""
    cost: ClassVar[str] = ""
    bound: ClassVar[str] = "exact: rounded once"
    example: ClassVar[dict[str, Any]] = {}
    """Values for settings that have no default: what catalogue, warm-up and laws try the metric with."""

    on_invalid: str = setting(default="raise", choices=("raise", "drop"), operational=True)

    def __init_subclass__(cls, tag: str = "", **keywords: Any) -> None:
        super().__init_subclass__(**keywords)
        if tag:
            taken = METRICS.get(tag)
            if taken is not None and (taken.__module__, taken.__qualname__) != (cls.__module__, cls.__qualname__):
                raise TypeError(f"the metric tag {tag!r} is already taken by {taken.__qualname__}")
            cls.tag = tag
            METRICS[tag] = cls

    # -- what a metric declares ----------------------------------------------------------------------------------------

    def make_state(self) -> S:
        """Make the empty state this metric reads."""
        raise NotImplementedError(f"{type(self).__name__} does not say which state it reads")

    def of(self, state: S) -> T:
        """Compute the value from a state; pure."""
        raise NotImplementedError(f"{type(self).__name__} does not say what it computes")

    def bounds_of(self, state: S) -> tuple[T, T]:
        """Return certified limits of the value, from a state. Equal limits: the value is exact, rounded once."""
        value = self.of(state)
        return value, value

    def interval_of(self, state: S, confidence: float) -> Interval:
        """Return the statistical interval of the value, from a state."""
        nan = float("nan")
        return Interval(nan, nan, confidence, "rows of one user are not independent: no interval from this state alone")

    def details(self, state: S) -> dict[str, Any]:
        """What `explain` says besides, from a state: the threshold of a best value, and the like."""
        return {}

    def reason_of(self, state: S) -> str | None:
        """Say why the value is undefined; None if it is defined."""
        return "no rows" if not state.facts().get("rows", 1) else None

    @property
    def name(self) -> str:
        """The name in collections and tables, such as "auc" or "precision@0.9"."""
        return self.tag

    # -- what every metric does ----------------------------------------------------------------------------------------

    def update(self, y_true: Any = None, y_score: Any = None, /, **columns: Any) -> Self:
        """Count a batch.

        Parameters
        ----------
        y_true, y_score : array-like of shape (n,), or table
            The first two columns that the state must have; or a mapping, data frame or Arrow table, alone.
        **columns : array-like of shape (n,)
            Columns by name.

        Raises
        ------
        InvalidInputError
            A column is missing, of another length, or holds a bad value; nothing was counted.
        """
        must, may = ([n.role for n in self._unit.needs if n.optional is o] for o in (False, True))
        given = (y_true, y_score) if y_score is not None else (y_true,)
        if len(given) > len(must):
            raise TypeError(f"{type(self).__name__}.update() takes {', '.join(must)}, and no second column")
        return self._feed(named(type(self).__name__, tuple(must[: len(given)]), given, columns, (*must, *may)))

    @property
    def _unit(self) -> Unit:
        if "_own" not in self.__dict__:
            with _MAKING:  # several threads may bring the first rows
                if "_own" not in self.__dict__:
                    self.__dict__["_lock"] = threading.Lock()
                    self.__dict__["_own"] = Unit(self.make_state(), PLAIN)
        unit: Unit = self.__dict__["_own"]
        return unit

    @property
    def state(self) -> S:
        """The state: what was seen so far."""
        state: Any = self._unit.state
        return state  # type: ignore[no-any-return]

    @classmethod
    def holding(cls, metric: Metric[S, T], state: S) -> Metric[S, T]:
        """Return a copy of a metric that owns this state."""
        new = metric.blank()
        new._unit.state = state
        return new

    def blank(self) -> Self:
        """Make a metric of the same settings that has seen nothing."""
        return type(self)(**self.settings)

    def _feed(self, columns: Mapping[str, Any]) -> Self:
        unit, batch = self._unit, Batch(columns)
        trusted = unit.state.checks_itself and self.on_invalid != "drop"
        rows = unit.prepare(batch, self.on_invalid, check=not trusted)
        with self.__dict__["_lock"]:
            if not unit.count(rows):
                unit.prepare(batch, self.on_invalid)  # raises, naming column, row and count
                raise AssertionError(f"{unit.state!r} refused rows that pass its checks")
            if "_quick" not in self.__dict__ and rows.n:
                self.__dict__["_quick"] = unit.state.quick()
        return self

    def _fed_quickly(self, y: Any, s: Any) -> bool:
        """Count two plain arrays without a batch; False if they have to go the long way, where errors are explained."""
        held = self.__dict__
        quick = held.get("_quick")
        if quick is None or type(y) is not np.ndarray or type(s) is not np.ndarray or len(y) != len(s):
            return False
        state = held["_own"].state.__dict__
        with held["_lock"]:
            load = state["_load"] + len(s)
            try:
                if load >= ROW_LIMIT or not quick(y, s):
                    return False
            except (TypeError, KeyError, RuntimeError):  # a dtype or layout to convert, or a kernel being compiled
                return False
            state["_load"] = load
        return True

    def merge(self, other: Self) -> Self:
        """Add what another metric of the same settings has seen; `other` stays as it is.

        Raises
        ------
        IncompatibleStateError
            The other is another metric or has other settings; the message names each difference.
        """
        if other is self:
            raise IncompatibleStateError(
                "merging a metric with itself counts its rows twice; merge a copy() if you mean it"
            )
        if type(other) is not type(self) or other.tag != self.tag:
            raise IncompatibleStateError(f"cannot merge a {type(other).__name__} into a {type(self).__name__}")
        mine, theirs = encode_settings(self), encode_settings(other)
        found = [f"{k} is {a} here and {b} there" for k, (a, b) in unlike(mine, theirs).items()]
        if found:
            hint = "; coarsen(bits) brings histograms to the same resolution" if "bits" in " ".join(found) else ""
            raise IncompatibleStateError(f"cannot merge this {type(self).__name__}: {'; '.join(found)}{hint}")
        source = other.state
        with self._guard():
            self.state.merge(source)
        return self

    def _guard(self) -> threading.Lock:
        lock: threading.Lock = (self._unit, self.__dict__["_lock"])[1]
        return lock

    def compute(self) -> T:
        """Return the value; NaN, with one UndefinedMetricWarning and a reason, where it is undefined."""
        with self._guard():
            value = self.of(self.state)
        if isinstance(value, float) and math.isnan(value) and not self.__dict__.get("_warned"):
            self.__dict__["_warned"] = True
            reason = self.reason_of(self.state) or "0/0"
            warnings.warn(f"{self.name} is undefined: {reason}", UndefinedMetricWarning, stacklevel=2)
        return value

    def bounds(self) -> tuple[T, T]:
        """Return certified limits of the value: a proof from the state. Equal limits: the value is exact, rounded once."""
        with self._guard():
            return self.bounds_of(self.state)

    def interval(self, confidence: float = 0.95) -> Interval:
        """Return the statistical interval of the value, or the reason why there is none."""
        if not 0 < confidence < 1:
            raise ValueError(f"confidence must be between 0 and 1, not {confidence!r}")
        with self._guard():
            return self.interval_of(self.state, confidence)

    def explain(self) -> dict[str, Any]:
        """Return the value with everything behind it: bounds, formula, rows, weight, rows dropped and why."""
        with self._guard():
            return explain(self, self.state)

    def reset(self) -> Self:
        """Forget every row."""
        with self._guard():
            self.state.reset()
        self.__dict__.pop("_warned", None)
        return self

    def copy(self) -> Self:
        """Return an independent copy."""
        with self._guard():
            new = self.holding(self, self.state.copy())
        new.__dict__["on_invalid"] = self.on_invalid
        return new  # type: ignore[return-value]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Metric):
            return NotImplemented
        return (
            type(self) is type(other) and encode_settings(self) == encode_settings(other) and self.state == other.state
        )

    __hash__ = None  # type: ignore[assignment]

    def coarsen(self, bits: int) -> Self:
        """Return this metric at a lower resolution of its histogram: what the same rows would have made there."""
        if "bits" not in self.settings:
            raise TypeError(f"{self.name} has no histogram to coarsen")
        new = type(self)(**(self.settings | {"bits": bits}))
        with self._guard():
            new._unit.state = self.state.coarsen(bits)  # type: ignore[attr-defined]
        return new

    def header(self) -> dict[str, Any]:
        """Describe metric and state as plain data: what the bytes format writes."""
        return {"kind": "metric", "tag": self.tag, "settings": self.written, "state": self.state.header()}

    def states(self) -> list[State]:
        """The states whose arrays the bytes hold."""
        return [self.state]


class ScoredLabels(Metric[S, T]):
    """A metric of a 0/1 label and a score."""

    def update(self, y_true: Any = None, y_score: Any = None, /, **columns: Any) -> Self:
        """Count a batch.

        Parameters
        ----------
        y_true : array-like of shape (n,)
            0 or 1. Or a mapping, data frame or Arrow table that holds the columns by name.
        y_score : array-like of shape (n,)
            Probabilities, or what `scale=` says.
        **columns : array-like of shape (n,)
            `sample_weight`: 0, or between 2**-36 and 2**31. Both others may be given by name, too.

        Raises
        ------
        InvalidInputError
            A value is bad, or lengths differ; the message names column, row and count, and nothing was counted.
        CounterOverflowError
            2**62 rows, or a total weight of 2**42, would be passed.
        """
        if not columns and self._fed_quickly(y_true, y_score):
            return self
        return self._feed(
            named(type(self).__name__, ("y_true", "y_score"), (y_true, y_score), columns, ("sample_weight",))
        )


def named(
    owner: str, roles: tuple[str, ...], given: tuple[Any, ...], columns: dict[str, Any], also: tuple[str, ...]
) -> Mapping[str, Any]:
    """Return positional and named columns as one mapping; a table in first place stands for all of them."""
    if given[0] is not None and (table := as_columns(given[0])) is not None:
        if columns or any(g is not None for g in given[1:]):
            raise TypeError(f"{owner}.update() takes a table or columns, not both")
        return table
    out = {role: value for role, value in zip(roles, given, strict=True) if value is not None}
    for name, value in columns.items():
        if name not in roles and name not in also:
            raise TypeError(f"{owner}.update() does not know {name!r}; it takes {', '.join((*roles, *also))}")
        if name in out:
            raise TypeError(f"{owner}.update() was given {name} twice")
        if value is not None:
            out[name] = value
    same_lengths(out)  # also of a score that the metric does not read
    return out


def same_lengths(columns: Mapping[str, Any]) -> None:
    """Raise unless all columns that know their length have the same."""
    known = [(name, len(c)) for name, c in columns.items() if hasattr(c, "__len__") and getattr(c, "ndim", 1) > 0]
    for name, n in known[1:]:
        if n != known[0][1]:
            raise InvalidInputError(f"{name} has {n:,} rows, {known[0][0]} has {known[0][1]:,}", column=name)


def encode_settings(metric: Metric[Any, Any]) -> dict[str, Any]:
    """Settings as plain data, comparable and ready for JSON."""
    return {k: encode_setting(v) for k, v in metric.settings.items()}


def dropped_of(state: State) -> dict[str, int]:
    """Return how many rows were left out, by reason, without the zeros."""
    return {reason: int(n) for reason, n in zip(DROPPED, state.dropped.reshape(-1), strict=True) if n}


def explain(metric: Metric[Any, Any], state: State) -> dict[str, Any]:
    """Return a metric's value on a state with everything behind it."""
    value = metric.of(state)
    low, high = metric.bounds_of(state)
    facts = state.facts()
    return {
        "metric": metric.name,
        "value": value,
        "bounds": (low, high),
        "exact": _equal(low, high),
        "reason": metric.reason_of(state),
        "formula": metric.formula,
        "settings": metric.settings,
        **{k: float(v) if isinstance(v, Fraction) else v for k, v in facts.items()},
        **metric.details(state),
        "dropped": dropped_of(state),
    }


def _equal(low: Any, high: Any) -> bool:
    """Whether two values are equal, where a value may be several arrays."""
    if isinstance(low, tuple):
        return all(np.array_equal(a, b, equal_nan=True) for a, b in zip(low, high, strict=True))
    return bool(np.all(low == high))


def badness(metric: Metric[Any, Any], value: Any) -> float:
    """Return how bad a value is, to sort by; NaN if it is undefined, or nothing says which values are better."""
    if metric.best is None or not isinstance(value, float):
        return math.nan
    if isinstance(metric.best, str):
        return value if metric.best == "low" else -value
    ratio = value / metric.best
    return max(ratio, 1 / ratio) if ratio > 0 else math.nan if ratio != ratio else math.inf


def _decode_metric(header: dict[str, Any], read: Any) -> Metric[Any, Any]:
    from .opaque import make_metric

    metric = make_metric(header["tag"], header["settings"], header["state"])
    state = read(header["state"])
    if metric.make_state().differences(state):
        raise ValueError(f"the state of {metric.name} is not the one it reads")
    metric._unit.state = state
    return metric


decoders["metric"] = _decode_metric
