"""MetricLike: the methods shared by metrics, collections and wrappers such as slices."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any, Self

from ..errors import UndefinedMetricWarning
from ..format import frame
from ..numerics.canonical import canonical_json
from ..numerics.settings import check_integer, is_partition
from ..reading.answers import Answer
from ..reading.flatten import logger_names
from ..reading.interval import check_confidence
from ..reading.wide_bounds import warn_of_wide_values
from ..state.state import State
from .accumulator import Accumulator, accumulate, accumulator_of, definition_of
from .definition import Definition, definition_of_frame_kind, parse_definition, wrap_format_errors
from .plottable import Plottable

__all__ = [
    "MetricLike", "answer_of", "coarsen", "columns_of", "empty_copy", "flat", "merge_and_consume", "nbytes",
    "object_of_frame", "object_of_header", "seal", "states_of", "with_states", "without_block_ends",
]  # fmt: skip

STATE = {"kind": "state"}
"""The description, in the header of a frame, of a state that belongs to no metric."""
STATE_TEXT = canonical_json(STATE)


class MetricLike(Plottable):
    """A metric, or an object that is used like a metric: a collection, slices or windows."""

    _accumulator: Accumulator

    @property
    def name(self) -> str:
        """The name of the object in collections and tables."""
        return self._accumulator.definition.name

    def update(self, y_true: Any = None, y_score: Any = None, /, **columns: Any) -> Self:
        """Count the rows of a batch.

        Parameters
        ----------
        y_true : array-like of shape (n,), or table
            Labels; or a mapping, data frame, Arrow table or record batch that contains all columns by name (other
            columns are ignored). A single event may be passed as scalars: `update(1, 0.3)` or
            `update({"click": 1, "p": 0.3})`. Several events may be passed as a list of such mappings.
        y_score : array-like of shape (n,)
            Scores.
        **columns : array-like of shape (n,)
            Columns passed by name. A name that no metric reads raises TypeError.

        Raises
        ------
        InvalidInputError
            A column is missing, columns have different lengths, or a value is invalid. No row is counted.
        MemoryLimitError
            The cells (one for each slice) would need more memory than the memory limit allows. No row is counted.
        """
        self._accumulator.update(y_true, y_score, columns)
        return self

    def merge(self, other: Self) -> Self:
        """Add the rows that another object with the same settings has counted. The other object is unchanged.

        Raises
        ------
        IncompatibleStateError
            The other object has a different type or different settings; the message names each difference. With
            ranking metrics, the error is also raised if the last query of one object is the first of the other, because
            both then contain rows of this query. Both objects remain unchanged.
        MemoryLimitError
            The merged state would exceed the memory limit.

        Notes
        -----
        Other queries with rows in both objects, such as those of a shuffled log, are not detected; each of them counts
        as two queries.
        """
        self._accumulator.merge(accumulator_of(other))
        return self

    def subtract(self, other: Self) -> Self:
        """Subtract previously counted rows, such as rows whose labels were retracted.

        Parameters
        ----------
        other : object with the same settings
            An object that has counted exactly these rows, with the same weights. It is unchanged.

        Raises
        ------
        IncompatibleStateError
            The other object has a different type or different settings, contains rows that this object has not counted,
            or has states that cannot be subtracted (minima, sketches, samples, sealed groups). Both objects are
            unchanged.

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
        """Return the value of every metric; warn if a value is undefined or its bounds are too wide."""
        answer = self._accumulator.answer()
        value = answer.value
        warn_of(self._accumulator, answer, stacklevel=2)
        return value

    def bounds(self) -> Any:
        """Return the certified bounds (low, high) of every value."""
        return self._accumulator.answer().bounds

    def interval(self, confidence: float = 0.95, method: str | None = None) -> Any:
        """Return the statistical interval of every value (or the reason why there is none), in the layout of `compute`.

        Parameters
        ----------
        confidence : float
            The confidence level, between 0 and 1.
        method : str, optional
            One of the metric's interval methods; by default, the first one. An unknown method raises a ValueError that
            lists the known ones.

        Returns
        -------
        Interval
            Low, high, estimate, standard error, method, assumption, confidence and reason. An interval that assumes
            independent rows is too narrow if users have several rows each (see `Sharded`). Intervals do not cover the
            difference between the value and its certified bounds.
        """
        check_confidence(confidence)
        return self._accumulator.answer().intervals(confidence, method)

    def explain(self) -> Any:
        """Return a dict for each value: bounds, formula, settings, rows, weight and count of dropped rows by reason."""
        return self._accumulator.answer().explanation

    def reset(self) -> Self:
        """Remove all counted rows, so that the object is like a new one."""
        self._accumulator.reset()
        return self

    def copy(self) -> Self:
        """Return an independent copy."""
        accumulator = self._accumulator.copy()
        thing: Self = accumulator.definition.wrap(accumulator)
        return thing

    def digest(self) -> str:
        """Return the SHA-256 hash of the settings and content. Equal objects have equal digests on all machines."""
        return self._accumulator.digest()

    def to_bytes(self) -> bytes:
        """Return the settings and the content as bytes, which `streammetrics.from_bytes` reads.

        For ranking metrics, the bytes end with the IDs of the first and the last query that were counted (see `merge`),
        unless the object was merged from several parts. To compare the content of two objects, compare their digests.
        """
        return self._accumulator.to_bytes()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, MetricLike) or definition_of(other).kind != self._accumulator.definition.kind:
            return NotImplemented
        return self._accumulator == other._accumulator

    __hash__ = None  # type: ignore[assignment]

    def __reduce__(self) -> Any:
        return unpickle, (self._accumulator.definition, self.to_bytes())

    def __copy__(self) -> Self:
        return self.copy()

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self.copy()


def warn_of(accumulator: Accumulator, answer: Answer, stacklevel: int) -> None:
    """Warn about every value that is undefined or has wide certified bounds, but only once for each value."""
    if wide := answer.wide:
        warn_of_wide_values(wide, accumulator.warned_wide, stacklevel=stacklevel + 1)
    for name, reason in answer.undefined_values():
        if name not in accumulator.warned:
            accumulator.warned.add(name)
            warnings.warn(f"{name} is undefined: {reason}", UndefinedMetricWarning, stacklevel=stacklevel + 1)


def unpickle(definition: Definition, data: bytes) -> Any:
    """Build an object from its definition and the states in `data`. Only pickle calls this, so `data` is trusted."""
    # Pickle has already loaded the definition, which imported the packages that define its metrics and states.
    return definition.wrap(accumulate(definition, frame.Frame(data).read_states()))


# -- functions of any object ------------------------------------------------------------------------------------------


def states_of(thing: MetricLike) -> tuple[State, ...]:
    """Return the states of an object in canonical form, which does not depend on the order of the rows."""
    return thing._accumulator.states


def answer_of(thing: MetricLike) -> Answer:
    """Compute the values, bounds and intervals of the current states of an object."""
    return thing._accumulator.answer()


def columns_of(thing: MetricLike) -> dict[str, bool]:
    """Return the columns that `update` reads, and whether each is required."""
    return dict(thing._accumulator.definition.columns)


def nbytes(thing: MetricLike) -> int:
    """Return the memory that an object's states use, in bytes, including memory reserved for more rows."""
    return thing._accumulator.nbytes


def empty_copy(thing: Any) -> Any:
    """Return an object with the same settings and empty states."""
    return with_states(thing, None)


def with_states(thing: Any, states: Sequence[State] | None) -> Any:
    """Return an object with the same settings and with `states`; None means empty states."""
    definition = definition_of(thing)
    return definition.wrap(accumulate(definition, states))


def merge_and_consume(metrics: Sequence[Any]) -> Any:
    """Merge the metrics of all threads of a job into the first of them, and return it.

    The result equals that of `merge`, but computing it takes less time and memory. A cell, such as a slice, keeps its
    rows exactly only up to a limit. If a cell's rows in all metrics together exceed the limit, they move to histogram
    buckets without being sorted first. No other thread may use the metrics during the merge; afterwards, only the
    first may be used.

    The result does not record which queries were counted first and last, because the threads process the parts of the
    log in any order.
    """
    total, *others = metrics
    for first, *rest in zip(*(one._accumulator.updaters for one in metrics), strict=True):
        first.fold_jointly(rest)
    for other in others:
        total.merge(other)
    return without_block_ends(total)


def without_block_ends(thing: Any) -> Any:
    """Return an object with the same content, but without the IDs of the queries that were counted first and last.

    If there are no ranking metrics, return the object itself.
    """
    if all(read.state.block_column is None for read in definition_of(thing).reads):
        return thing
    return with_states(thing, [state.with_block_ends(None) for state in thing._accumulator.all_states])


def flat(thing: MetricLike, undefined: str = "omit") -> dict[str, float]:
    """Return every value as a float under a flat name, for loggers such as TensorBoard, MLflow and W&B.

    Parameters
    ----------
    thing : metric, collection or wrapper
        The object whose values are returned.
    undefined : {"omit", "nan"}
        Whether undefined values are omitted or included as NaN. No warning is issued in either case.

    Returns
    -------
    dict of str to float
        The values, keyed by name. A value has the name of its metric, such as "auc", or, in a collection with nested
        names, its full name, such as "ctr/auc". For slices, the slice key comes first ("A/auc", "A/7/auc"). For
        arrays, the index of the element comes last ("recall_each/0"). Curves and matrices are omitted. Loggers refuse
        some characters, so "@" becomes "_at_", and any other character except letters, digits and ``_ . / -`` becomes
        "_".

    Raises
    ------
    ValueError
        Two values would have the same name.

    Examples
    --------
    >>> import streammetrics as sm
    >>> metrics = sm.MetricCollection(sm.CTR(), sm.AUC(), sm.Precision(threshold=0.3), sm.ROCCurve())
    >>> sm.flat(metrics.update([1, 1], [0.2, 0.7]))
    {'ctr': 1.0, 'precision_at_0.3': 1.0}
    """
    return logger_names(thing._accumulator.answer().numbers(), undefined)


def seal(thing: Any, partition: tuple[int, int] | None = None) -> Any:
    """Return a copy of constant size, in which sums over all groups (such as users) replace the rows of the groups.

    No more rows can be added to these groups, so all rows of each group must already have been counted. The sealed
    copies of all partitions can be merged; merging the same partition twice raises an error. An object without groups
    is copied unchanged.

    Parameters
    ----------
    thing : metric, collection or wrapper
        The object to seal.
    partition : (i, n), optional
        The partition that contains these groups: number i of n, counted from 0 (see `group_partition`). Pass it if the
        metrics do not declare it; (0, 1) means that the object contains all groups.

    Raises
    ------
    IncompatibleStateError
        Two metrics of a collection differ in settings that sealed copies do not contain.
    ValueError
        The partition is invalid.
    """
    if partition is not None and not is_partition(partition):
        raise ValueError(f"partition= must be (i, n) with 0 <= i < n, not {partition!r}")
    sealed = definition_of(thing).seal(None if partition is None else partition[1])
    return sealed.wrap(accumulate(sealed, [s.seal(partition) for s in states_of(thing)]))


def coarsen(thing: Any, bits: int) -> Any:
    """Return a copy whose histograms have fewer buckets.

    The copy equals an object that has counted the same rows with this value of `bits`.

    Parameters
    ----------
    thing : metric, collection or wrapper
        The object to copy.
    bits : int
        The base-2 logarithm of the number of buckets.
    """
    bits = check_integer("coarsen()", bits)
    definition = definition_of(thing)
    coarser = definition.coarsen(bits)
    return coarser.wrap(accumulate(coarser, definition.coarsen_states(coarser, states_of(thing), bits)))


def object_of_frame(saved: frame.Frame) -> Any:
    """Decode the object in a frame (bytes in the library's file format).

    Raises
    ------
    StateFormatError
        The frame is damaged, or its header does not fit the states.
    """
    states, kind = saved.read_states(), saved.kind
    if kind.about == STATE_TEXT and len(states) == 1:
        return states[0]
    return _object_of_definition(definition_of_frame_kind(kind), states)


def object_of_header(about: Any, states: Sequence[State]) -> Any:
    """Return the object that the header of saved bytes describes, with the saved states.

    Raises
    ------
    StateFormatError
        The header does not fit the states.
    """
    if about == STATE and len(states) == 1:
        return states[0]
    return _object_of_definition(parse_definition(about, states), states)


def _object_of_definition(definition: Definition, states: Sequence[State]) -> Any:
    with wrap_format_errors():
        definition.check_states(states)
        return definition.wrap(accumulate(definition, states))
