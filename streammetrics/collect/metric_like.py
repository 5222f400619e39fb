"""MetricLike: the methods that metrics, collections and wrappers share. Each object owns an accumulator."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any, Self

from ..errors import UndefinedMetricWarning
from ..format import frame
from ..numerics.settings import check_whole, is_partition
from ..reading.answers import Answer
from ..reading.flatten import settled_names
from ..reading.interval import check_confidence
from ..reading.wide_bounds import warn
from ..state.state import State
from .accumulator import Accumulator, accumulate, accumulator_of, definition_of
from .definition import Definition, described, inconsistent
from .plottable import Plottable

__all__ = [
    "MetricLike", "answer_of", "coarsen", "columns_of", "empty_copy", "flat", "nbytes", "object_of_header", "seal",
    "states_of", "with_states",
]  # fmt: skip


class MetricLike(Plottable):
    """A metric, or an object that is used like one: a collection, slices, windows."""

    _accumulator: Accumulator

    @property
    def name(self) -> str:
        """The name in collections and tables."""
        return self._accumulator.definition.name

    def update(self, y_true: Any = None, y_score: Any = None, /, **columns: Any) -> Self:
        """Count a batch.

        Parameters
        ----------
        y_true : array-like of shape (n,), or table
            Labels; or a mapping, data frame, Arrow table or record batch that contains all columns by name (others are
            ignored). One event may be given as values: `update(1, 0.3)`, `update({"click": 1, "p": 0.3})`, or as a list of
            such mappings.
        y_score : array-like of shape (n,)
            Scores.
        **columns : array-like of shape (n,)
            Columns by name; unknown names raise.

        Raises
        ------
        InvalidInputError
            A column is missing, has another length, or contains a bad value. Nothing was counted anywhere.
        MemoryLimitError
            Cells would take more than the memory limit; nothing was counted.
        """
        self._accumulator.update(y_true, y_score, columns)
        return self

    def merge(self, other: Self) -> Self:
        """Add what another object of the same settings has counted; `other` stays as it is.

        Raises
        ------
        IncompatibleStateError
            The other object is something else or has other settings. The message names each difference, and both objects
            are unchanged.
        MemoryLimitError
            Both together would take more than the memory limit.
        """
        self._accumulator.merge(accumulator_of(other))
        return self

    def subtract(self, other: Self) -> Self:
        """Take away rows that were counted, such as those of labels that were retracted.

        Parameters
        ----------
        other : object of the same settings
            It has counted these rows, and no others, with the weights that they had. It stays as it is.

        Raises
        ------
        IncompatibleStateError
            The other object is something else; or it has rows that were not counted here; or the state keeps extremes,
            registers, samples or closed groups, from which no row can be taken away: count the remaining rows again. Both
            objects are unchanged.

        Notes
        -----
        The state is the one that the remaining rows alone would have made, except for what had to be added up for the
        others: exact scores that became buckets, slices beyond a limit and windows that were not kept do not come apart
        again. Second moments that were too large stay so, and so do notes that scores were rounded. For late and changed
        labels use `Delta`.

        Examples
        --------
        >>> import streammetrics as sm
        >>> ctr = sm.CTR().update([0, 1, 1, 0])
        >>> ctr.subtract(sm.CTR().update([1, 0])) == sm.CTR().update([1, 0])
        True
        """
        self._accumulator.subtract(accumulator_of(other))
        return self

    def compute(self) -> Any:
        """Return the value of every metric; with a warning where it is undefined, or its bounds are too wide."""
        answer = self._accumulator.answer()
        value = answer.value
        warn_of(self._accumulator, answer, stacklevel=2)
        return value

    def bounds(self) -> Any:
        """Return the certified bounds of every value."""
        return self._accumulator.answer().bounds

    def interval(self, confidence: float = 0.95, method: str | None = None) -> Any:
        """Return the statistical interval of every value, or the reason why there is none, laid out as `compute` does.

        Parameters
        ----------
        confidence : float
            The nominal coverage, between 0 and 1.
        method : str, optional
            One of the metric's methods, by default the first; ValueError, naming them, for another.

        Returns
        -------
        Interval
            Low, high, estimate, standard error, method, assumption, confidence and reason. It is about other rows of the
            same kind, and rests on the assumption that it names: rows of one user are correlated, and an interval that
            takes them as independent is too narrow. It says nothing about the certified bounds (`bounds`).
        """
        check_confidence(confidence)
        return self._accumulator.answer().intervals(confidence, method)

    def explain(self) -> Any:
        """Return every value with everything behind it: bounds, formula, rows, weight, rows dropped and why."""
        return self._accumulator.answer().explanation

    def reset(self) -> Self:
        """Forget every row."""
        self._accumulator.reset()
        return self

    def copy(self) -> Self:
        """Return an independent copy."""
        copied = self._accumulator.copy()
        made: Self = copied.definition.wrap(copied)
        return made

    def digest(self) -> str:
        """Return the SHA-256 of settings and content: equal objects, and only these, have equal digests on any machine."""
        return self._accumulator.digest()

    def to_bytes(self) -> bytes:
        """Encode settings and content in the library's one format; `from_bytes` reads it."""
        return self._accumulator.to_bytes()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, MetricLike) or definition_of(other).kind != self._accumulator.definition.kind:
            return NotImplemented
        return self._accumulator == other._accumulator

    __hash__ = None  # type: ignore[assignment]

    def __reduce__(self) -> Any:
        return unpickled, (self._accumulator.definition, self.to_bytes())

    def __copy__(self) -> Self:
        return self.copy()

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self.copy()


def warn_of(accumulator: Accumulator, answer: Answer, stacklevel: int) -> None:
    """Warn once of every value that is undefined, or whose certified bounds are too wide."""
    if wide := answer.wide:
        warn(wide, accumulator.warned_wide, stacklevel=stacklevel + 1)
    for name, reason in answer.undefined():
        if name not in accumulator.warned:
            accumulator.warned.add(name)
            warnings.warn(f"{name} is undefined: {reason}", UndefinedMetricWarning, stacklevel=stacklevel + 1)


def unpickled(definition: Definition, data: bytes) -> Any:
    """Return the object of a definition with the states of its bytes, in this process or another that trusts them."""
    # The definition comes first: it brings the classes of metrics of other packages.
    return definition.wrap(accumulate(definition, frame.Frame(data).states()))


# -- functions of any object ------------------------------------------------------------------------------------------


def states_of(thing: MetricLike) -> tuple[State, ...]:
    """Return the states of an object, in canonical form."""
    return thing._accumulator.states


def answer_of(thing: MetricLike) -> Answer:
    """Return what is said about the states as they are now."""
    return thing._accumulator.answer()


def columns_of(thing: MetricLike) -> dict[str, bool]:
    """Return the columns that `update` reads, and whether each must be there."""
    return dict(thing._accumulator.definition.columns)


def nbytes(thing: MetricLike) -> int:
    """Return the bytes of memory that the states of an object take, room for growth included."""
    return thing._accumulator.nbytes


def empty_copy(thing: Any) -> Any:
    """Return an object of the same settings that has counted nothing."""
    return with_states(thing, None)


def with_states(thing: Any, states: Sequence[State] | None) -> Any:
    """Return an object of the same settings that has counted what these states have."""
    definition = definition_of(thing)
    return definition.wrap(accumulate(definition, states))


def flat(thing: MetricLike, undefined: str = "omit") -> dict[str, float]:
    """Return every value as a plain float under a flat name, as TensorBoard, MLflow and W&B log them.

    Parameters
    ----------
    thing : metric, collection or wrapper
        The object that has counted.
    undefined : {"omit", "nan"}
        Whether a value that is undefined (NaN) is left out, or is included; no warning is given.

    Returns
    -------
    dict of str to float
        The value of a metric under its name, of a collection as it names them ("ctr/auc"), of slices behind the key
        ("A/auc", "A/7/auc"), of an array by place ("recall_each/0"). Curves and matrices are left out. Loggers refuse some
        characters: "@" becomes "_at_", and others than letters, digits and ``_ . / -`` become "_".

    Raises
    ------
    ValueError
        Two values would have one name.

    Examples
    --------
    >>> import streammetrics as sm
    >>> metrics = sm.MetricCollection(sm.CTR(), sm.AUC(), sm.Precision(threshold=0.3), sm.ROCCurve())
    >>> sm.flat(metrics.update([1, 1], [0.2, 0.7]))
    {'ctr': 1.0, 'precision_at_0.3': 1.0}
    """
    return settled_names(thing._accumulator.answer().numbers(), undefined)


def seal(thing: Any, partition: tuple[int, int] | None = None) -> Any:
    """Return a copy with its groups closed, in constant size: all rows of each of them were counted here.

    Merge it with those of the other partitions; the same partition twice raises. An object without groups stays as it is.

    Parameters
    ----------
    thing : metric, collection or wrapper
        The object that has counted.
    partition : (i, n), optional
        The partition whose groups these are (see `group_partition`), where no metric says it: (0, 1) for all groups.

    Raises
    ------
    IncompatibleStateError
        A collection has metrics of the same groups that could no longer be told apart.
    ValueError
        There is no such partition.
    """
    if partition is not None and not is_partition(partition):
        raise ValueError(f"partition= takes (i, n) with 0 <= i < n, not {partition!r}")
    sealed = definition_of(thing).sealed(None if partition is None else partition[1])
    return sealed.wrap(accumulate(sealed, [s.seal(partition) for s in states_of(thing)]))


def coarsen(thing: Any, bits: int) -> Any:
    """Return a copy with fewer buckets in its histograms: what the same rows would have made there.

    Parameters
    ----------
    thing : metric, collection or wrapper
        The object that has counted.
    bits : int
        log2 of the number of buckets.
    """
    bits = check_whole("coarsen()", bits)
    definition = definition_of(thing)
    coarser = definition.coarser(bits)
    return coarser.wrap(accumulate(coarser, definition.coarsened(coarser, states_of(thing), bits)))


def object_of_header(about: Any, states: Sequence[State]) -> Any:
    """Return the object that the header of a frame describes, with these states.

    Raises
    ------
    StateFormatError
        The header does not fit the states.
    """
    if about == {"kind": "state"} and len(states) == 1:
        return states[0]
    definition = described(about, states)
    with inconsistent():
        definition.check_states(states)
        return definition.wrap(accumulate(definition, states))
