"""Definition: the settings of an accumulator, which say what it counts and how its states are read."""

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
    "Definition",
    "MetricRead",
    "definition_of_header",
    "number_of_states",
    "parse_definition",
    "whole_kinds",
    "wrap_format_errors",
]  # fmt: skip

kinds: dict[str, type[Definition]] = {}
"""The classes of definitions by kind, so that a header can be read."""

whole_kinds: set[str] = set()
"""The kinds whose states cannot be merged one by one, because rows would count twice (such as ledgers)."""


class MetricRead(NamedTuple):
    """A metric of a definition, the index of its state, and the binding of its roles to columns."""

    metric: Any
    place: int
    binding: Binding


class Definition:
    """The settings of an accumulator: what it counts, and how its states are read.

    A definition is immutable, so accumulators share it. Methods that take states are pure functions of them.

    Attributes
    ----------
    adds : bool
        Whether two accumulators merge by merging their states one by one.
    counts : bool
        Whether every row of a batch is counted in all states, so that collections and slices may contain it.
    on_invalid : {"raise", "drop"}
        Whether a bad row raises an error ("raise"), or is left out and reported ("drop").
    memory_limit : int or None
        The largest number of bytes for the cells; None for the default of the library.
    unit : str or None
        The column of the units that intervals assume to be independent; None if they assume independent rows.
    is_single : bool
        Whether `compute` returns the value of one metric, not a dict of values.
    levels : tuple of str
        The columns of slices and windows, the outermost first.
    can_coarsen : bool
        Whether the histograms, if there are any, can be reduced to fewer bits.
    """

    kind: ClassVar[str] = ""
    public: ClassVar[Any] = None
    """The public class of the objects that `wrap` builds."""

    accumulator_type: ClassVar[Any] = None
    """The class of the accumulators, if it is not `Accumulator`."""

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
        thing = self.public.__new__(self.public)
        thing._accumulator = accumulator
        return thing

    def with_on_invalid(self, on_invalid: str) -> Self:
        """Return this definition with another rule for bad rows."""
        if on_invalid == self.on_invalid:
            return self
        copy = object.__new__(type(self))
        copy.__dict__.update(self.__dict__, on_invalid=on_invalid)
        return copy

    def header(self) -> dict[str, Any]:
        """Return the settings as JSON data, for saved bytes and digests."""
        raise NotImplementedError

    @classmethod
    def of_header(cls, header: dict[str, Any], states: Sequence[State]) -> Definition:
        """Build the definition from a header; `states` are examples of the states that it reads."""
        raise NotImplementedError

    @classmethod
    def number_of_states(cls, header: dict[str, Any]) -> int:
        """Return the number of states of the definition that a header describes."""
        raise NotImplementedError

    def differences(self, other: Any) -> list[str]:
        """Describe each difference from another definition of the same kind, for error messages."""
        raise NotImplementedError

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name not in ("reads", "columns")}

    # -- counting ----------------------------------------------------------------------------------------------------

    @cached_property
    def reads(self) -> tuple[Read, ...]:
        """The empty states, each with its binding to columns."""
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
        """Return the columns that `update` takes by position."""
        raise NotImplementedError

    # -- the answers --------------------------------------------------------------------------------------------------

    def read(self, states: Sequence[State]) -> Answer:
        """Return the answers for states that have one cell."""
        raise TypeError(f"a {self.type_name} has no value itself: use its total")

    def metric_reads(self) -> dict[str, MetricRead] | None:
        """Return every metric by name; None if the definition contains something other than metrics."""
        return None

    def samples(self, states: Sequence[State]) -> list[Sample]:
        """Return one `Sample` for each number of each metric, for inference; the states may have any number of cells."""
        raise TypeError(f"a {self.type_name} cannot be compared: compare the objects in it")

    def intervals_of_cells(self, states: Sequence[State], confidence: float) -> dict[str, list[Interval]] | None:
        """Return the intervals of all cells by metric; None if each cell has to be read alone."""
        return None

    def check_states(self, states: Sequence[State]) -> None:
        """Raise StateFormatError if states that are valid alone contradict one another."""

    # -- other definitions --------------------------------------------------------------------------------------------

    def select_metrics(self, names: Mapping[str, str]) -> tuple[Self, list[int]]:
        """Return the definition of some metrics (old name to new name), and the indices of its states in this one."""
        raise TypeError(f"metrics can only be selected from a collection, not from {self.name}")

    def seal(self, parts: int | None = None) -> Any:
        """Return the definition of a copy from `sm.seal`, whose groups get no more rows; `parts` counts its partitions."""
        return self

    def coarsen(self, bits: int) -> Any:
        """Return the definition with histograms of at most `bits` bits; without histograms, return this definition."""
        raise NotImplementedError

    def coarsen_states(self, new: Any, states: Sequence[State], bits: int) -> list[State]:
        """Return the states for the coarser definition `new`; they may have any number of cells."""
        return [coarsen_state(s, bits) for s in states]

    def sources(self, new: Any) -> list[int]:
        """Return, for each state of the coarser definition `new`, the index of the state here that it comes from."""
        return list(range(len(self.reads)))


def coarsen_state(state: State, bits: int) -> State:
    """Return a state with at most `bits` bits; return a state without a histogram unchanged."""
    if not hasattr(state, "coarsen") or (state.bits is not None and state.bits <= bits):  # type: ignore[attr-defined]
        return state
    coarse: State = state.coarsen(bits)
    return coarse


# -- from headers -----------------------------------------------------------------------------------------------------


def definition_of_header(header: dict[str, Any], like: Sequence[State]) -> Any:
    """Build the definition that a header describes; `like` are examples of the states that it reads."""
    return kinds[header["kind"]].of_header(header, like)


def number_of_states(header: dict[str, Any]) -> int:
    """Return the number of states of the definition that a header describes."""
    return kinds[header["kind"]].number_of_states(header)


def parse_definition(about: Any, like: Sequence[State]) -> Any:
    """Build the definition that the header of a frame describes, and check that it fits the states.

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
    """Convert errors into StateFormatError. The bytes are untrusted, so reading them may fail in any way."""
    try:
        yield
    except (StateFormatError, MemoryError):
        raise
    except Exception as error:
        raise StateFormatError(f"the bytes are inconsistent: {type(error).__name__}: {str(error)[:200]}") from error


def check_header(definition: Definition, about: Any, states: Sequence[State]) -> None:
    """Raise ValueError unless the definition reads these states and its header equals `about`."""
    wanted = [r.state for r in definition.reads]
    differences = [d for w, s in zip(wanted, states, strict=False) for d in w.differences(s)]
    if len(wanted) != len(states) or differences:
        why = f": {differences[0]}; count the rows again if an earlier release wrote it" if differences else ""
        raise ValueError(f"the metrics do not fit the states{why}")
    if canonical_json(definition.header()) != canonical_json(about):
        raise ValueError("the header is not in canonical form")
