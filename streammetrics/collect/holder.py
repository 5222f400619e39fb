"""What metrics, collections, slices and bundles have in common: they hold states, count, merge, and are saved."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar, NamedTuple, Self

from numpy import ndarray

from ..columns.columns import Batch
from ..columns.convert import COLUMNS, as_columns
from ..errors import IncompatibleStateError, StateFormatError
from ..numerics.canonical import canonical_json
from ..numerics.settings import check_whole, is_partition
from ..state import frame
from ..state.state import State
from .binding import Binding
from .drawn import Drawn
from .feed import MEMORY_LIMIT, Change, Feed, Read, change, hold
from .interval import Interval
from .sample import Sample
from .scalars import Named, settled_names
from .wide_bounds import WideValue

__all__ = [
    "Holder", "Reader", "blank_of", "coarsened", "described", "inconsistent", "made", "states_of",
    "unknown_column", "whole_kinds",
]  # fmt: skip

kinds: dict[str, type[Holder]] = {}
"""What a frame can be about, by kind."""

whole_kinds: set[str] = set()
"""The kinds that merge as a whole only: adding their states would count twice."""


class Reader(NamedTuple):
    """A metric, and which of the states it reads."""

    metric: Any
    unit: int
    binding: Binding


class Holder(Drawn):
    """Something that counts batches in states, and answers from them.

    What it would answer is a pure function of states: `value`, `limits`, `records`. What it holds hangs on its feed.
    """

    sort: ClassVar[str] = ""
    adds: ClassVar[bool] = True
    """Whether to merge two is to merge their states, one by one."""
    counts: ClassVar[bool] = True
    """Whether batches reach all of its states alike: then collections and slices may hold it."""
    memory_limit: int | None = MEMORY_LIMIT

    def __init_subclass__(cls, **keywords: Any) -> None:
        super().__init_subclass__(**keywords)
        if "sort" in vars(cls) and cls.sort:
            kinds[cls.sort] = cls
            whole_kinds.update([] if cls.adds else [cls.sort])

    # -- what it is ---------------------------------------------------------------------------------------------------

    def reads(self) -> tuple[Read, ...]:
        """The empty states it needs, each with the columns it is counted from."""
        raise NotImplementedError

    def header(self) -> dict[str, Any]:
        """Describe it as plain data, without its states: what a frame is about."""
        raise NotImplementedError

    def check_states(self, states: Sequence[State]) -> None:
        """Raise StateFormatError where states, each of which is sound, contradict one another."""

    @classmethod
    def of_header(cls, header: dict[str, Any], states: Sequence[State]) -> Any:
        """Make what `header` described, which has seen nothing; `states` are of the kinds that it reads."""
        raise NotImplementedError

    @classmethod
    def state_count(cls, header: dict[str, Any]) -> int:
        """How many states what `header` described reads."""
        raise NotImplementedError

    def blank(self) -> Self:
        """Make one of the same settings that has seen nothing."""
        raise NotImplementedError

    def differences(self, other: Any) -> list[str]:
        """Say in words how another one is not the same, whatever it has seen."""
        raise NotImplementedError

    def _elsewhere(self) -> TypeError:
        return TypeError(f"a {type(self).__name__} answers nothing itself: ask its total")

    # -- what it answers ----------------------------------------------------------------------------------------------

    def value(self, states: Sequence[State]) -> Any:
        """The result, of states of one cell."""
        raise self._elsewhere()

    def value_with_wide(self, states: Sequence[State]) -> tuple[Any, list[WideValue]]:
        """Return the result, of states of one cell, and its values whose certified bounds are too wide."""
        return self.value(states), []

    @property
    def warned_wide(self) -> set[str]:
        """The metrics of which `compute` has warned, by name."""
        warned: set[str] = self.__dict__.setdefault("_warned_wide", set())
        return warned

    def limits(self, states: Sequence[State]) -> Any:
        """Certified limits of the result, of states of one cell."""
        raise self._elsewhere()

    def explained(self, states: Sequence[State]) -> Any:
        """The result with everything behind it, of states of one cell."""
        raise self._elsewhere()

    def records(self, states: Sequence[State], confidence: float | None = 0.95) -> list[dict[str, Any]]:
        """Rows for a table, of states of one cell; without intervals if `confidence` is None."""
        raise self._elsewhere()

    def numbers(self, value: Any) -> Named:
        """The numbers of a result, by name."""
        raise NotImplementedError

    def flat(self, undefined: str = "omit") -> dict[str, float]:
        """Return every value as a plain float under a flat name, as TensorBoard, MLflow and W&B log them.

        Parameters
        ----------
        undefined : {"omit", "nan"}
            Whether a value that is undefined (NaN) is left out, or is there; no warning is given.

        Returns
        -------
        dict of str to float
            Of a metric under its name, of a collection as it names them ("ctr/auc"), of slices behind the key ("A/auc",
            "A/7/auc"), of an array by place ("recall_each/0"). Curves and matrices are left out. Loggers refuse some
            characters: "@" becomes "_at_", and others than letters, digits and ``_ . / -`` become "_".

        Raises
        ------
        ValueError
            Two values would have one name.

        Examples
        --------
        >>> import streammetrics as sm
        >>> metrics = sm.MetricCollection(sm.CTR(), sm.AUC(), sm.Precision(threshold=0.3), sm.ROCCurve())
        >>> metrics.update([1, 1], [0.2, 0.7]).flat()
        {'ctr': 1.0, 'precision_at_0.3': 1.0}
        """
        return settled_names(self.numbers(self.value(self.states)), undefined)

    unit: str | None = None
    """The column of the units that its intervals take as independent, if not rows."""

    single: bool = False
    """Whether it answers with the value of one metric, not with values by name."""

    levels: tuple[str, ...] = ()
    """The columns that tell apart what it answers, the outermost first."""

    def readers(self) -> dict[str, Reader] | None:
        """Every metric by name, if there is nothing else in it."""
        return None

    def chosen(self, names: Mapping[str, str]) -> tuple[Any, list[int]]:
        """Some of its metrics under new names, which have seen nothing, and which of its states theirs are part of."""
        raise TypeError(f"only a collection can be taken apart, not {getattr(self, 'name', type(self).__name__)}")

    def chances_of_cells(self, states: Sequence[State], confidence: float) -> dict[str, list[Interval]] | None:
        """The statistical interval of every front cell, by metric, where those of many come at once; or None."""
        return None

    def samples(self, states: Sequence[State]) -> list[Sample]:
        """What inference reads of states of any number of cells: each number of each metric."""
        raise TypeError(f"a {type(self).__name__} cannot be compared: compare what it holds")

    def chances(self, states: Sequence[State], confidence: float, method: str | None) -> Any:
        """Statistical intervals of the result, of states of one cell."""
        raise self._elsewhere()

    def interval(self, confidence: float = 0.95, method: str | None = None) -> Any:
        """Return the statistical interval of every value, or the reason why there is none, laid out as `compute` does.

        Parameters
        ----------
        confidence : float
            The nominal coverage, between 0 and 1.
        method : str, optional
            One of the metric's `about.interval_methods`, by default the first; ValueError, naming them, for another.

        Returns
        -------
        Interval
            Low, high, estimate, standard error, method, assumption, confidence and reason. It is about other rows of the
            same kind, and rests on the assumption that it names: rows of one user are hardly ever independent, and an
            interval that takes them so is too narrow. It says nothing of the certified bound (`bounds`).
        """
        return self.chances(self.states, confidence, method)

    # -- what it holds ------------------------------------------------------------------------------------------------

    @property
    def feed(self) -> Feed:
        """What counts."""
        held = self.__dict__
        feed = held.get("_feed")
        if feed is None:
            limit = MEMORY_LIMIT if self.memory_limit is None else self.memory_limit  # a setting may leave it open
            made = Feed(self.reads(), memory_limit=limit, on_invalid=held.get("on_invalid", "raise"))
            feed = held.setdefault("_feed", made)  # one call: several threads may bring the first rows
        found: Feed = feed
        return found

    @property
    def feeds(self) -> tuple[Feed, ...]:
        """What counts its rows."""
        return (self.feed,)

    @property
    def states(self) -> tuple[State, ...]:
        """What was seen."""
        return self.feed.states

    def holding(self, states: Sequence[State]) -> Self:
        """Return one of the same settings that has seen what these states have."""
        new = self.blank()
        new.take_states(states)
        return new

    def take_states(self, states: Sequence[State]) -> None:
        """Go on from what these states have seen."""
        hold(self.feeds, states)

    @property
    def columns(self) -> dict[str, bool]:
        """The columns that `update` reads, and whether each must be there."""
        found: dict[str, bool] = {}
        for state, binding, *_ in self.reads():
            for need in state.needs():
                name = binding.column(need.role)
                must = not need.optional or need.role in binding.bound
                for one in name if isinstance(name, tuple) else (name,):
                    found[one] = found.get(one, False) or must
            if binding.where is not None:
                found[binding.where] = True
        for state, *_ in self.reads():
            found |= {name: True for axis in state.axes for name in axis.names}
        return found

    def by_position(self) -> tuple[str, ...]:
        """The columns that `update` takes by position."""
        raise NotImplementedError

    def update(self, y_true: Any = None, y_score: Any = None, /, **columns: Any) -> Self:
        """Count a batch.

        Parameters
        ----------
        y_true : array-like of shape (n,), or table
            Labels; or a mapping, data frame, Arrow table or record batch that holds all columns by name (extra ones are
            ignored). One event has values in place of columns: `update(1, 0.3)`, `update({"click": 1, "p": 0.3})`, or a
            list of such mappings.
        y_score : array-like of shape (n,)
            Scores.
        **columns : array-like of shape (n,)
            Columns by name; unknown names raise.

        Raises
        ------
        InvalidInputError
            A column is missing, of another length, or holds a bad value. Nothing was counted anywhere.
        MemoryLimitError
            Cells would take more than the memory limit; nothing was counted.
        """
        return self.take(y_true, y_score, columns)

    def take(self, first: Any, second: Any, columns: dict[str, Any]) -> Self:
        """Do what `update` says; one call, not a chain of them, as it is most of what a small batch costs."""
        if first is not None and type(first) is not ndarray:
            table = as_columns(first)
            if table is not None:
                if columns or second is not None:
                    raise TypeError(f"{type(self).__name__}.update() takes a table or columns, not both")
                self.feed.count_batch(Batch(table))
                return self
        held = self.__dict__
        if type(first) in COLUMNS and second is not None and not columns and (pair := held.get("_pair")):
            pair[1](pair[0], (first, second))
            return self
        names, roles = held.get("_known") or self._names
        if (second is not None and len(roles) < 2) or (first is not None and not roles):
            raise TypeError(f"{type(self).__name__} reads {', '.join(names)}: give columns by name, or a table")
        given: tuple[str, ...]
        arrays: tuple[Any, ...]
        if second is None:
            given, arrays = ((), ()) if first is None else (roles[:1], (first,))
        else:
            given, arrays = (roles[1:2], (second,)) if first is None else (roles[:2], (first, second))
        if columns:
            given, arrays = self._with_named(given, arrays, columns, names)
        feed = held.get("_feed") or self.feed
        if len(given) == 2 and not columns:
            held["_pair"] = given, feed.count_arrays
        feed.count_arrays(given, arrays)
        return self

    @property
    def _names(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The columns there are, and those that are taken by position."""
        held = self.__dict__
        if "_known" not in held:
            roles = self.by_position()
            held["_known"] = tuple(dict.fromkeys((*roles, *self.columns))), roles
        found: tuple[tuple[str, ...], tuple[str, ...]] = held["_known"]
        return found

    def _with_named(
        self, given: tuple[str, ...], arrays: tuple[Any, ...], columns: dict[str, Any], names: tuple[str, ...]
    ) -> tuple[tuple[str, ...], tuple[Any, ...]]:
        for name, column in columns.items():
            if name not in names:
                raise unknown_column(self, name, names)
            if name in given:
                raise TypeError(f"{type(self).__name__}.update() was given {name} twice")
            if column is not None:
                given, arrays = (*given, name), (*arrays, column)
        return given, arrays

    def merge(self, other: Self) -> Self:
        """Add what another one of the same settings has seen; `other` stays as it is.

        Raises
        ------
        IncompatibleStateError
            The other is something else or has other settings; the message names each, and both are as they were.
        MemoryLimitError
            Both together would take more than the memory limit.
        """
        if other is self:
            raise IncompatibleStateError(
                f"merging a {type(self).__name__} with itself counts its rows twice; merge a copy() if you mean it"
            )
        change(self.adding(self.fitting(other)))
        return self

    def subtract(self, other: Self) -> Self:
        """Take away rows that were counted, such as those of labels that were retracted.

        Parameters
        ----------
        other : of the same settings
            What has counted these rows, and no others, with the weights that they had; it stays as it is.

        Raises
        ------
        IncompatibleStateError
            The other is something else; or it has rows that were not counted here; or what is counted keeps extremes,
            registers, samples or closed groups, of which no row can be taken away: count again those that stay. Both are
            as they were.

        Notes
        -----
        The state is what the other rows alone would have made, but for what they had to be added up for: exact scores that
        became buckets, slices beyond a limit and windows that were not kept do not come apart again, second moments that
        were too large stay so, and so do notes that scores were rounded. Late and changed labels have `Delta`.

        Examples
        --------
        >>> import streammetrics as sm
        >>> ctr = sm.CTR().update([0, 1, 1, 0])
        >>> ctr.subtract(sm.CTR().update([1, 0])) == sm.CTR().update([1, 0])
        True
        """
        if not self.adds:
            raise IncompatibleStateError(f"a {type(self).__name__} holds a total of wholes: no rows can be taken away")
        if other is self:
            raise IncompatibleStateError(
                f"a {type(self).__name__} less itself has seen nothing: that is what reset() is for"
            )
        change(self.taking(self.fitting(other, "subtract", "from")))
        return self

    def adding(self, other: Any) -> list[Change]:
        """Say what it changes to add what a fitting one has seen."""
        return [self.feed.adding(other.feed.states)]

    def taking(self, other: Any) -> list[Change]:
        """Say what it changes to take that away."""
        return [self.feed.taking(other.feed.states)]

    def aligned(self, other: Any) -> Any:
        """Another one with its metrics in the order of these, if that is all that differs."""
        return other

    def fitting(self, other: Any, verb: str = "merge", preposition: str = "into") -> Any:
        """Another one as it is added to this one; raise what `merge` would raise for other settings."""
        found = self.aligned(other)
        self.check_fits(found, verb, preposition)
        return found

    def check_fits(self, other: Any, verb: str = "merge", preposition: str = "into") -> None:
        """Raise what `merge` would raise for other settings."""
        if not isinstance(other, Holder) or other.sort != self.sort:
            what = f"a {type(other).__name__} {preposition} a {type(self).__name__}"
            raise IncompatibleStateError(f"cannot {verb} {what}")
        if found := self.differences(other):
            hint = "; coarsen(bits) brings histograms to the same resolution" if "bits" in " ".join(found) else ""
            raise IncompatibleStateError(f"cannot {verb} this {type(self).__name__}: {'; '.join(found)}{hint}")

    def reset(self) -> Self:
        """Forget every row."""
        hold(self.feeds, (r.state for r in self.reads()))
        self.warn_again()
        return self

    def warn_again(self) -> None:
        """Warn of undefined values as if none had been met."""
        self.__dict__.pop("_warned", None)

    def copy(self) -> Self:
        """Return an independent copy."""
        new = self.blank().heeding(self.feed.on_invalid)
        new.feed.hold(self.feed.states)
        return new

    def heeding(self, on_invalid: str) -> Self:
        """The same, for which bad rows raise, or are left out and counted."""
        self.__dict__["on_invalid"] = on_invalid
        self.feed.on_invalid = on_invalid
        return self

    @property
    def nbytes(self) -> int:
        """Bytes of memory the states take, room for growth included."""
        return self.feed.nbytes

    def seal(self, partition: tuple[int, int] | None = None) -> Any:
        """Return the same with its groups closed, in constant size: all rows of each of them were counted here.

        Merge it with those of the other partitions; the same one twice raises. What has no groups is as it is.

        Parameters
        ----------
        partition : (i, n), optional
            Of which partition these are all groups (see `group_partition`), where no metric says it: (0, 1) for all.

        Raises
        ------
        IncompatibleStateError
            A collection has metrics of the same groups that would no longer be told apart.
        ValueError
            There is no such partition.
        """
        if partition is not None and not is_partition(partition):
            raise ValueError(f"partition= takes (i, n) with 0 <= i < n, not {partition!r}")
        new = self.closing(None if partition is None else partition[1])
        new.feed.hold([s.seal(partition) for s in self.states])
        return new

    def closing(self, parts: int | None = None) -> Any:
        """Make one whose groups are closed, of so many partitions, that has seen nothing."""
        return self.blank()

    def coarsen(self, bits: int) -> Any:
        """Return the same at a lower resolution of its histograms: what the same rows would have made there."""
        bits = check_whole("coarsen()", bits)
        new = self.coarser(bits).heeding(self.feed.on_invalid)
        new.feed.hold(self.brought_down(new, self.states, bits))
        return new

    @property
    def coarsens(self) -> bool:
        """Whether `coarsen` can be asked of it: its histograms, if it has any, can be brought to fewer bits."""
        return True

    def brought_down(self, new: Any, states: Sequence[State], bits: int) -> list[State]:
        """What a coarser one holds of the rows of these states, of one cell or of many."""
        return [coarsened(s, bits) for s in states]

    def sources(self, new: Any) -> list[int]:
        """From which of its states those of a coarser one come: there may be fewer of these."""
        return list(range(len(self.reads())))

    def coarser(self, bits: int) -> Any:
        """Make one of fewer bits that has seen nothing."""
        raise NotImplementedError

    def coarser_within(self, bits: int) -> Any:
        """The same of what is held by another one, which may have no bits to lose."""
        return self.coarser(bits)

    # -- identity -----------------------------------------------------------------------------------------------------

    def digest(self) -> str:
        """SHA-256 of settings and content: equal things, and only equal things, have equal digests, on any machine."""
        sha = hashlib.sha256(canonical_json(self.header()).encode())
        for state in self.states:
            sha.update(bytes.fromhex(frame.digest(state)))
        return sha.hexdigest()

    def to_bytes(self) -> bytes:
        """Encode everything in the library's one format (see `streammetrics.state.frame`)."""
        return frame.write(self.states, self.header())

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Holder) or other.sort != self.sort:
            return NotImplemented
        if self is other:
            return True
        return canonical_json(self.header()) == canonical_json(other.header()) and self.states == other.states

    __hash__ = None  # type: ignore[assignment]

    def recipe(self) -> Callable[[], Holder] | None:
        """What makes its blank in another process, with the settings and the classes that bytes do not hold; or None."""
        return None

    def __reduce__(self) -> Any:
        return unpickled, (self.to_bytes(), self.recipe())

    def __copy__(self) -> Self:
        return self.copy()

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self.copy()


def made(about: Any, states: list[State]) -> Any:
    """The object that a frame is about, which has seen what these states have.

    Raises
    ------
    StateFormatError
        It does not fit its states.
    """
    if about == {"kind": "state"} and len(states) == 1:
        return states[0]
    thing = described(about, states)
    with inconsistent():
        thing.check_states(states)
        thing.take_states(states)
    return thing


def unknown_column(of: Any, name: str, known: Iterable[str]) -> TypeError:
    """What to say of a column that is not read."""
    known = list(known)
    say = f"{type(of).__name__}.update() does not know {name!r}; it reads {', '.join(known)}"
    if name == "y_pred" and "y_score" in known:
        say += ": scores are y_score, and predicted classes y_pred, which metrics read that have threshold=None"
    return TypeError(say)


def blank_of(header: dict[str, Any], like: Sequence[State]) -> Any:
    """Make what a header describes, which has seen nothing; `like` are states of the kinds that it reads."""
    return kinds[header["kind"]].of_header(header, like)


def states_of(header: dict[str, Any]) -> int:
    """How many states what a header describes reads."""
    return kinds[header["kind"]].state_count(header)


def described(about: Any, like: Sequence[State]) -> Any:
    """The object that a frame is about, which has seen nothing; `like` are states of the kinds that it reads.

    Raises
    ------
    StateFormatError
        It does not fit such states.
    """
    with inconsistent():
        thing = blank_of(about, like)
        fits(thing, about, like)
    return thing


@contextmanager
def inconsistent() -> Iterator[None]:
    """Of bytes that nobody vouches for: whatever they break is said as that."""
    try:
        yield
    except (StateFormatError, MemoryError):
        raise
    except Exception as error:
        raise StateFormatError(f"the bytes are inconsistent: {type(error).__name__}: {str(error)[:200]}") from error


def fits(thing: Any, about: Any, states: Sequence[State]) -> None:
    """Raise ValueError unless these are the states that an object reads, and it is described as it would be."""
    wanted = [r.state for r in thing.reads()]
    apart = [d for w, s in zip(wanted, states, strict=False) for d in w.differences(s)]
    if len(wanted) != len(states) or apart:
        why = f": {apart[0]}; count the rows again if an earlier release wrote it" if apart else ""
        raise ValueError(f"the metrics do not read the states that they are given{why}")
    if canonical_json(thing.header()) != canonical_json(about):
        raise ValueError("the header is not as it would be written")


def unpickled(data: bytes, recipe: Callable[[], Holder] | None = None) -> Any:
    """Read what `to_bytes` wrote, as a copy of this process or another that trusts it."""
    blank = recipe() if recipe is not None else None  # first: it brings the classes of metrics of other packages
    opened = frame.Frame(data)
    if blank is None:
        return made(opened.about, opened.states())
    blank.take_states(opened.states())
    return blank


def coarsened(state: State, bits: int) -> State:
    """A state of no more bits; itself if it has no histogram."""
    if not hasattr(state, "coarsen") or (state.bits is not None and state.bits <= bits):  # type: ignore[attr-defined]
        return state
    made: State = state.coarsen(bits)
    return made
