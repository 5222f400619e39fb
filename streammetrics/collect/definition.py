"""Definition: what an accumulator counts and how its states are read, without any rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import Any, ClassVar, NamedTuple, Self

from ..batch.column_binding import Binding
from ..count.reads import MEMORY_LIMIT, Read
from ..errors import StateFormatError
from ..numerics.canonical import canonical_json
from ..reading.answers import Answer
from ..reading.interval import Interval
from ..reading.replicates import Sample
from ..state.state import State

__all__ = [
    "Definition", "MetricRead", "definition_of_header", "described", "inconsistent", "number_of_states",
    "whole_kinds",
]  # fmt: skip

kinds: dict[str, type[Definition]] = {}
"""The definitions that a header can describe, by kind."""

whole_kinds: set[str] = set()
"""The kinds that merge as a whole only: to add their states would count rows twice."""


class MetricRead(NamedTuple):
    """A metric of a definition, the place of its state among the states, and its binding to columns."""

    metric: Any
    place: int
    binding: Binding


class Definition:
    """What an accumulator counts and how its states are read: settings, never rows.

    A definition never changes, so accumulators share it. Each of its methods that takes states is a pure function of them.

    Attributes
    ----------
    adds : bool
        Whether two accumulators merge by merging their states one by one.
    counts : bool
        Whether every batch reaches all states alike, so that collections and slices may contain it.
    on_invalid : {"raise", "drop"}
        Whether a bad row raises, or is left out and counted.
    memory_limit : int or None
        The bytes that cells may take; None for the limit of the library.
    unit : str or None
        The column of the units that intervals take as independent; None for rows.
    is_single : bool
        Whether the value is that of one metric, not a dict of values.
    levels : tuple of str
        The columns of the slices and windows, the outermost first.
    can_coarsen : bool
        Whether the histograms, if there are any, can be brought to fewer bits.
    """

    kind: ClassVar[str] = ""
    public: ClassVar[Any] = None
    """The public class, which `wrap` makes an object of."""

    accumulator_type: ClassVar[Any] = None
    """The class of its accumulators, if it is not `Accumulator`."""

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
        """The name in collections and tables."""
        raise NotImplementedError

    @property
    def names(self) -> list[str]:
        """The names of the metrics."""
        return [self.name]

    @property
    def type_name(self) -> str:
        """The name of the public class, for messages."""
        return str(self.public.__name__)

    def wrap(self, accumulator: Any) -> Any:
        """Return the public object that owns an accumulator of this definition."""
        made = self.public.__new__(self.public)
        made._accumulator = accumulator
        return made

    def with_on_invalid(self, on_invalid: str) -> Self:
        """Return the same definition with another rule for bad rows."""
        if on_invalid == self.on_invalid:
            return self
        made = object.__new__(type(self))
        made.__dict__.update(self.__dict__, on_invalid=on_invalid)
        return made

    def header(self) -> dict[str, Any]:
        """Return the definition as plain data, as bytes and digests contain it."""
        raise NotImplementedError

    @classmethod
    def of_header(cls, header: dict[str, Any], states: Sequence[State]) -> Definition:
        """Make the definition that `header` wrote; `states` are of the kinds that it reads."""
        raise NotImplementedError

    @classmethod
    def number_of_states(cls, header: dict[str, Any]) -> int:
        """Return how many states the definition that a header describes reads."""
        raise NotImplementedError

    def differences(self, other: Any) -> list[str]:
        """Say in words how another definition of this kind differs."""
        raise NotImplementedError

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name not in ("reads", "columns")}

    # -- the rows in --------------------------------------------------------------------------------------------------

    @cached_property
    def reads(self) -> tuple[Read, ...]:
        """The empty states, each with the columns that it is counted from."""
        raise NotImplementedError

    @cached_property
    def columns(self) -> dict[str, bool]:
        """The columns that `update` reads, and whether each must be there."""
        found: dict[str, bool] = {}
        for state, binding, *_ in self.reads:
            for need in state.needs():
                name = binding.column(need.role)
                must = not need.optional or need.role in binding.bound
                for one in name if isinstance(name, tuple) else (name,):
                    found[one] = found.get(one, False) or must
            if binding.where is not None:
                found[binding.where] = True
        for state, *_ in self.reads:
            found |= {name: True for axis in state.axes for name in axis.names}
        return found

    def positional_columns(self) -> tuple[str, ...]:
        """Return the columns that `update` takes by position."""
        raise NotImplementedError

    # -- the answers --------------------------------------------------------------------------------------------------

    def read(self, states: Sequence[State]) -> Answer:
        """Return what is said about states of one cell."""
        raise TypeError(f"a {self.type_name} answers nothing itself: ask its total")

    def metric_reads(self) -> dict[str, MetricRead] | None:
        """Return every metric by name; None if there is something else."""
        return None

    def samples(self, states: Sequence[State]) -> list[Sample]:
        """Return what inference reads of states of any number of cells: each number of each metric."""
        raise TypeError(f"a {self.type_name} cannot be compared: compare what it holds")

    def intervals_of_cells(self, states: Sequence[State], confidence: float) -> dict[str, list[Interval]] | None:
        """Return the intervals of every front cell by metric, where those of many are made at once; else None."""
        return None

    def check_states(self, states: Sequence[State]) -> None:
        """Raise StateFormatError where sound states contradict one another."""

    # -- other definitions --------------------------------------------------------------------------------------------

    def selected(self, names: Mapping[str, str]) -> tuple[Self, list[int]]:
        """Return the definition of some metrics under new names, and the place of each of its states among these."""
        raise TypeError(f"only a collection can be taken apart, not {self.name}")

    def sealed(self, parts: int | None = None) -> Any:
        """Return the definition whose groups are closed, of so many partitions."""
        return self

    def coarser(self, bits: int) -> Any:
        """Return the definition with histograms of at most `bits` bits; of no histograms the same."""
        raise NotImplementedError

    def coarsened(self, new: Any, states: Sequence[State], bits: int) -> list[State]:
        """Return the states of a coarser definition, of one cell or many."""
        return [coarsened(s, bits) for s in states]

    def sources(self, new: Any) -> list[int]:
        """Return the place of the state that each state of a coarser definition comes from."""
        return list(range(len(self.reads)))


def coarsened(state: State, bits: int) -> State:
    """Return a state of at most `bits` bits; a state without a histogram as it is."""
    if not hasattr(state, "coarsen") or (state.bits is not None and state.bits <= bits):  # type: ignore[attr-defined]
        return state
    made: State = state.coarsen(bits)
    return made


# -- from headers -----------------------------------------------------------------------------------------------------


def definition_of_header(header: dict[str, Any], like: Sequence[State]) -> Any:
    """Make the definition that a header describes; `like` are states of the kinds that it reads."""
    return kinds[header["kind"]].of_header(header, like)


def number_of_states(header: dict[str, Any]) -> int:
    """Return how many states the definition that a header describes reads."""
    return kinds[header["kind"]].number_of_states(header)


def described(about: Any, like: Sequence[State]) -> Any:
    """Return the definition that the header of a frame describes.

    Raises
    ------
    StateFormatError
        The header does not fit such states.
    """
    with inconsistent():
        definition = definition_of_header(about, like)
        check_fits(definition, about, like)
    return definition


@contextmanager
def inconsistent() -> Iterator[None]:
    """Report any error from bytes that nobody vouches for as StateFormatError."""
    try:
        yield
    except (StateFormatError, MemoryError):
        raise
    except Exception as error:
        raise StateFormatError(f"the bytes are inconsistent: {type(error).__name__}: {str(error)[:200]}") from error


def check_fits(definition: Definition, about: Any, states: Sequence[State]) -> None:
    """Raise ValueError unless a definition reads these states, and is written as this header."""
    wanted = [r.state for r in definition.reads]
    apart = [d for w, s in zip(wanted, states, strict=False) for d in w.differences(s)]
    if len(wanted) != len(states) or apart:
        why = f": {apart[0]}; count the rows again if an earlier release wrote it" if apart else ""
        raise ValueError(f"the metrics do not read the states that they are given{why}")
    if canonical_json(definition.header()) != canonical_json(about):
        raise ValueError("the header is not as it would be written")
