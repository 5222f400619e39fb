"""Definition: the settings of a metric, collection or wrapper, which say what to count and how to compute values."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from itertools import chain
from typing import Any, ClassVar, NamedTuple, Self
from weakref import WeakKeyDictionary

from ..batch.column_binding import Binding
from ..count.reads import MEMORY_LIMIT, Read
from ..errors import StateFormatError
from ..format.frame import FrameKind
from ..numerics.canonical import canonical_json
from ..reading.answers import Answer
from ..reading.interval import Interval
from ..reading.replicates import Sample
from ..state.state import State

__all__ = [
    "Definition",
    "MetricRead",
    "definition_of_frame_kind",
    "definition_of_header",
    "number_of_states",
    "parse_definition",
    "registries",
    "whole_kinds",
    "wrap_format_errors",
]  # fmt: skip

kinds: dict[str, type[Definition]] = {}
"""All classes of definitions by their `kind`. The header of a saved object names its kind, which is looked up here."""

registries: list[dict[str, Any]] = [kinds]
"""The dicts in which classes are looked up when a header is parsed. Another module may append its own."""

whole_kinds: set[str] = set()
"""The kinds of objects that must be merged as a whole, such as ledgers: merging their states could count rows twice."""


class MetricRead(NamedTuple):
    """A metric, the index of the state that it reads, and the column for each of its roles (such as `y_score`)."""

    metric: Any
    place: int
    binding: Binding


class Definition:
    """The settings of a metric, a collection or a wrapper: what to count, and how to compute values from the states.

    A definition never changes, so several accumulators can share it. The result of a method that takes states depends
    only on these states and the settings.

    Attributes
    ----------
    adds : bool
        Whether two accumulators are merged by merging their states one by one.
    counts : bool
        Whether all states count every row of a batch. If not, collections and slices cannot contain the object.
    on_invalid : {"raise", "drop"}
        What to do with an invalid row: raise an error, or leave the row out and report how many were left out.
    memory_limit : int or None
        The maximum number of bytes that all cells (one for each slice) may use together; None for the default limit.
    unit : str or None
        The column of the units, such as users, that intervals assume to be independent; None if intervals assume
        independent rows.
    is_single : bool
        Whether `compute` returns the value of one metric rather than a dict of values.
    levels : tuple of str
        The columns of slices and windows, outermost first.
    can_coarsen : bool
        Whether the histograms, if there are any, can be reduced to fewer buckets.
    """

    kind: ClassVar[str] = ""
    public: ClassVar[Any] = None
    """The public class, such as `MetricCollection`, of the objects that `wrap` builds."""

    accumulator_type: ClassVar[Any] = None
    """The class of accumulators to use; None for `Accumulator`."""

    adds: ClassVar[bool] = True
    counts: ClassVar[bool] = True
    on_invalid: str = "raise"
    memory_limit: int | None = MEMORY_LIMIT
    unit: str | None = None
    is_single: bool = False
    levels: tuple[str, ...] = ()
    can_coarsen: bool = True

    def __init_subclass__(cls, **keywords: Any) -> None:
        super().__init_subclass__(**keywords)
        if "kind" in vars(cls) and cls.kind:
            kinds[cls.kind] = cls
            whole_kinds.update([] if cls.adds else [cls.kind])

    # -- the settings -------------------------------------------------------------------------------------------------

    @property
    def name(self) -> str:
        """The name of the object in collections and tables."""
        raise NotImplementedError

    @property
    def names(self) -> list[str]:
        """The names of the metrics."""
        return [self.name]

    @property
    def type_name(self) -> str:
        """The name of the public class, for error messages."""
        return str(self.public.__name__)

    def wrap(self, accumulator: Any) -> Any:
        """Return a public object, such as a metric, that contains an accumulator of this definition."""
        thing = self.public.__new__(self.public)
        thing._accumulator = accumulator
        return thing

    def with_on_invalid(self, on_invalid: str) -> Self:
        """Return this definition with a new value of `on_invalid`, or this definition itself if nothing changes."""
        if on_invalid == self.on_invalid:
            return self
        copy = object.__new__(type(self))
        copy.__dict__.update(self.__dict__, on_invalid=on_invalid)
        return copy

    def header(self) -> dict[str, Any]:
        """Return the settings as a JSON-compatible dict, which is stored in saved files and affects digests."""
        raise NotImplementedError

    @classmethod
    def of_header(cls, header: dict[str, Any], states: Sequence[State]) -> Definition:
        """Build a definition from its header.

        `states` must have the types and settings of the states that the definition reads. Their rows are ignored.
        """
        raise NotImplementedError

    @classmethod
    def number_of_states(cls, header: dict[str, Any]) -> int:
        """Return the number of states that the definition with this header reads."""
        raise NotImplementedError

    def differences(self, other: Any) -> list[str]:
        """Describe each difference between this definition and another of the same kind, for error messages."""
        raise NotImplementedError

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name not in ("reads", "columns")}

    # -- counting ----------------------------------------------------------------------------------------------------

    @cached_property
    def reads(self) -> tuple[Read, ...]:
        """The empty states to which rows will be added, each with the columns that it reads."""
        raise NotImplementedError

    @cached_property
    def columns(self) -> dict[str, bool]:
        """The columns that `update` reads, and whether each is required."""
        columns: dict[str, bool] = {}
        for state, binding, *_ in self.reads:
            for need in state.needs():
                name = binding.column(need.role)
                must = not need.optional or need.role in binding.columns_by_role
                for one in name if isinstance(name, tuple) else (name,):
                    columns[one] = columns.get(one, False) or must
            if binding.where is not None:
                columns[binding.where] = True
        for state, *_ in self.reads:
            columns |= {name: True for axis in state.axes for name in axis.names}
        return columns

    def positional_columns(self) -> tuple[str, ...]:
        """Return the names of the columns that `update` accepts by position."""
        raise NotImplementedError

    # -- the answers --------------------------------------------------------------------------------------------------

    def read(self, states: Sequence[State]) -> Answer:
        """Compute the values, bounds and intervals of states that have only one cell (that is, no slices)."""
        raise TypeError(f"{self.type_name} has no value of its own; use its total attribute")

    def metric_reads(self) -> dict[str, MetricRead] | None:
        """Return every metric, keyed by name, with its state index and columns; None if not all members are metrics."""
        return None

    def samples(self, states: Sequence[State]) -> list[Sample]:
        """Return a `Sample` for each scalar of each metric. Comparisons and intervals are computed from samples.

        The states may have any number of cells (such as slices). A sample contains the values in all cells and, if
        there are shards, jackknife replicates. A metric may consist of several scalars, such as one for each class.
        """
        raise TypeError(f"{self.type_name} cannot be compared; compare the objects that the {self.type_name} contains")

    def intervals_of_cells(self, states: Sequence[State], confidence: float) -> dict[str, list[Interval]] | None:
        """Return the intervals of each metric, one for each cell (such as a slice).

        Return None if the intervals have to be computed cell by cell.
        """
        return None

    def check_states(self, states: Sequence[State]) -> None:
        """Raise StateFormatError if states that are valid individually contradict one another."""

    # -- other definitions --------------------------------------------------------------------------------------------

    def select_metrics(self, names: Mapping[str, str]) -> tuple[Self, list[int]]:
        """Return a new definition with only the metrics in `names`, which maps old names to new names.

        Also return, for each state of the new definition, its index among the states of the old one.
        """
        raise TypeError(f"metrics can only be selected from a collection, not from {self.name}")

    def find_entry(self, name: str) -> tuple[Any, list[int]] | None:
        """Return the definition of one member of a collection, and the index of each of its states in the collection.

        The result is None if there is no member with this name.
        """
        return None

    def seal(self, parts: int | None = None) -> Any:
        """Return the definition of the copy that `sm.seal` makes, whose groups (such as users) accept no more rows.

        `parts` is the number of partitions into which the groups are divided; None if the metrics declare this number.
        """
        return self

    def coarsen(self, bits: int) -> Any:
        """Return a definition whose histograms have at most 2**bits buckets, or this one if it has no histograms."""
        raise NotImplementedError

    def coarsen_states(self, new: Any, states: Sequence[State], bits: int) -> list[State]:
        """Return `states` with fewer buckets, as the coarser definition `new` reads them.

        The states may have any number of cells (such as slices).
        """
        return [coarsen_state(s, bits) for s in states]

    def sources(self, new: Any) -> list[int]:
        """Return, for each state of the coarser definition `new`, the index of the state from which it is computed.

        The indices refer to the states of this definition.
        """
        return list(range(len(self.reads)))


def coarsen_state(state: State, bits: int) -> State:
    """Return a state whose histogram has at most 2**bits buckets; return a state without a histogram unchanged."""
    if not hasattr(state, "coarsen") or (state.bits is not None and state.bits <= bits):  # type: ignore[attr-defined]
        return state
    coarse: State = state.coarsen(bits)
    return coarse


# -- from headers -----------------------------------------------------------------------------------------------------


def definition_of_header(header: dict[str, Any], like: Sequence[State]) -> Any:
    """Build a definition from its header.

    `like` contains states with the types and settings of the states that the definition reads. Their rows are ignored.
    """
    return _find_class(header).of_header(header, like)


def number_of_states(header: dict[str, Any]) -> int:
    """Return the number of states that the definition with this header reads."""
    return _find_class(header).number_of_states(header)


def _find_class(header: dict[str, Any]) -> type[Definition]:
    """Return the definition class that a header names; raise StateFormatError if no imported module defines it."""
    kind = header["kind"]
    if kind not in kinds:
        raise StateFormatError(
            f"no imported module defines objects of kind {kind!r}; import the module that defines them, such as "
            f"streammetrics.hooks.lifetime for 'lifetime', or use the release that saved the bytes"
        )
    return kinds[kind]


_parsed: WeakKeyDictionary[FrameKind, tuple[int, Any]] = WeakKeyDictionary()
"""The definitions by parsed header, each with the hash of the classes that were registered at the time. An entry exists as
long as its header; `_cached_kind` in `format.frame` keeps only a few small headers."""


def definition_of_frame_kind(kind: FrameKind) -> Any:
    """Return the definition that the header of a frame (an object in the library's file format) describes.

    Frames with equal headers share one definition, because building it takes longer than decoding small states.

    Raises
    ------
    StateFormatError
        The header does not fit the states.
    """
    registered = hash(tuple(chain.from_iterable(map(dict.values, registries))))
    cached = _parsed.get(kind)
    if cached is None or cached[0] != registered:
        definition = parse_definition(json.loads(kind.about), [schema.like for schema in kind.sections])
        cached = _parsed[kind] = registered, definition
    return cached[1]


def parse_definition(about: Any, like: Sequence[State]) -> Any:
    """Build a definition from the header of saved bytes, and check that it fits the saved states.

    Raises
    ------
    StateFormatError
        The header does not fit the states.
    """
    with wrap_format_errors():
        definition = definition_of_header(about, like)
        check_header(definition, about, like)
    return definition


@contextmanager
def wrap_format_errors() -> Iterator[None]:
    """Convert every error in the `with` block into StateFormatError, except MemoryError.

    Saved bytes may come from an untrusted source, so decoding them may raise any error.
    """
    try:
        yield
    except (StateFormatError, MemoryError):
        raise
    except Exception as error:
        raise StateFormatError(f"the state is corrupt: {type(error).__name__}: {str(error)[:200]}") from error


def check_header(definition: Definition, about: Any, states: Sequence[State]) -> None:
    """Raise ValueError unless a definition fits saved states and the saved header `about`.

    The states must have the settings of the states that the definition reads, and the two headers must be equal.
    """
    wanted = [r.state for r in definition.reads]
    differences = [d for w, s in zip(wanted, states, strict=False) for d in w.differences(s)]
    if len(wanted) != len(states) or differences:
        why = f": {differences[0]}; count the rows again if an earlier release wrote the state" if differences else ""
        raise ValueError(f"the metrics do not match the states{why}")
    if canonical_json(definition.header()) != canonical_json(about):
        raise ValueError("the header is not in canonical form")
