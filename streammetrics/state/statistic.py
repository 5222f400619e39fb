"""The declaration of a statistic, which determines how its states are merged, encoded and checked."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from ..numerics.settings import Settings, union_settings
from .axes import Axis
from .declare import Array, Flat, StatePart
from .tally import Entries

__all__ = ["Statistic"]

Ints = NDArray[np.int64]


class Statistic(Settings):
    """The declaration of a statistic: its settings, parts, columns and kernels, and its optional capabilities."""

    tag: ClassVar[str] = ""
    block_column: ClassVar[str | None] = None
    """The role of a column, such as `query`, whose equal rows form a block: they must be adjacent and in one batch."""
    inner_axis: ClassVar[Axis | None] = None
    """The axis of groups or classes within each front cell, for a statistic that has one."""
    row_parts: ClassVar[tuple[str, ...]] = ("rows",)
    """The parts that count each row."""
    folding: ClassVar[tuple[str, str, str] | None] = None
    """The names of three parts: the tally of exact rows; the tally of the buckets into which the rows of a cell are folded
    beyond `exact_rows_limit`; and the flag of cells that lost precision by folding (or the level of the buckets)."""

    dropped = Flat("reasons", optional=True, front=True)
    rounded = Flat(form="flag", optional=True, front=True)
    """Whether a weight was rounded: it had bits below 2**-60, or its product with a value had (see `weight_rounding`)."""

    declared_parts: ClassVar[dict[str, StatePart]] = {}

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in union_settings(type(self)):  # type: ignore[arg-type] # sets, so that states alone and in a collection are alike
            object.__setattr__(self, name, tuple(sorted(set(getattr(self, name)))))

    def needs(self) -> tuple[Any, ...]:
        """Return the columns that the statistic reads, each with the check that its values must pass."""
        raise NotImplementedError(f"{type(self).__name__} does not say which columns it needs")

    def steps(self, like: Any) -> Iterable[Any]:
        """Return the kernel calls that count checked columns of these types (see `count.steps`)."""
        raise NotImplementedError(f"{type(self).__name__} cannot count rows")

    def step_with_shards(self, like: Any, shards: Any) -> Any:
        """Return a kernel call that counts rows both in this state and in one by shards; None if no kernel does this.

        This state has a single cell. `shards` is the statistic by shards of units; its parts are wrapped in `ShardPart`
        among the arguments.
        """
        return None

    def derive_columns(self, columns: Mapping[str, Any]) -> Mapping[str, Any]:
        """Compute the columns that `steps` read from checked columns, before any row is counted."""
        return columns

    @property
    def derives_columns(self) -> bool:
        """Whether the class overrides `derive_columns`."""
        return type(self).derive_columns is not Statistic.derive_columns

    def absorb(self, into: dict[str, Array], at: Ints, **columns: Any) -> None:
        """Count checked rows with numpy into copies of the parts, for a statistic without `steps`.

        `into` has an array for each part, whose first axis is the cells, and `at` is the cell of each row. Limbs of sums
        need not be carried. A tally is a list: append (cells, places, weights) to it, with None for absent weights.
        """
        raise NotImplementedError(f"{type(self).__name__} cannot count rows")

    @property
    def cells_per_row(self) -> int:
        """The number of adjacent cells that count each row: one for each label."""
        return 1

    def check_rows(self, columns: Mapping[str, Any], at: Ints) -> None:
        """Raise an error unless checked rows may be counted together.

        `at` has the front cell (slice) of each row; it is empty if there is only one cell.
        """

    def check_sources(self, flats: Mapping[str, Array], sources: Mapping[str, str]) -> None:
        """Raise an error unless new rows may be counted together with the earlier rows of a state.

        `flats` has the fixed-size parts of all cells so far, and `sources` the `source` of the `Column` of each role.
        """

    def class_codes(self, columns: Mapping[str, Any], numbers: Any) -> tuple[Ints, ...]:
        """Return, for each column of classes, the class number of every row; for statistics with a cell for each class."""
        raise NotImplementedError

    def check_class_count(self, count: int) -> None:
        """Raise an error if `count` different classes are more than the settings allow."""

    @property
    def counts_per_row(self) -> int:
        """The number of times that the parts named in `row_parts` count each row."""
        return 1

    @property
    def exact_rows_limit(self) -> int | None:
        """The maximum number of rows that a cell stores exactly, or None if there is no limit.

        A row counts `counts_per_row` times towards this limit.
        """
        return None

    @property
    def has_unbounded_size(self) -> bool:
        """Whether the state can grow without limit; if so, `memory_limit` is checked while rows are counted."""
        return self.exact_rows_limit is None

    @property
    def folds_by_rows(self) -> bool:
        """Whether every cell of more than `exact_rows_limit` rows is converted to buckets.

        If False, `select_folded_cells` decides which of these cells are converted.
        """
        return True

    def select_folded_cells(self, exact: Entries, many: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Return a mask of the cells whose exact rows are converted to buckets.

        Parameters
        ----------
        exact : Entries
            The exact rows of the cells, as entries in ascending order.
        many : bool
            True for the cells that have more than `exact_rows_limit` exact rows.
        """
        return many

    def sample_entries(self, columns: Mapping[str, Any], rows: int) -> Entries | None:
        """Return the first rows as exact entries, or None if the columns have to be prepared first."""
        return None

    def bucket_entries(self, exact: Entries) -> tuple[Entries, Any]:
        """Convert exact entries to buckets; also return the index of the flags to set where a cell lost precision."""
        raise NotImplementedError

    @property
    def reasons(self) -> tuple[str, ...]:
        """The reasons for which rows are dropped: `where`, the role of an invalid value, "time", or "unit"."""
        return tuple(dict.fromkeys(("where", *(n.role for n in self.needs()), "time", "unit")))

    @cached_property
    def reason_numbers(self) -> dict[str, int]:
        """The index of each reason."""
        return {reason: i for i, reason in enumerate(self.reasons)}

    @property
    def is_order_dependent(self) -> bool:
        """Whether the result depends on the order of the rows within a block."""
        return False

    def find_contradiction(self, columns: Mapping[str, Any]) -> tuple[str, int, str] | None:
        """Return role, number and reason of the first row that contradicts other rows, or None if there is none."""
        return None

    def make_consistent(self, columns: dict[str, Array]) -> dict[str, Array]:
        """Make randomly generated test columns consistent, so that `find_contradiction` finds nothing."""
        return columns

    def with_sampling_correction(self, negative_rate: float, scale: str) -> Self:
        """Return a view with scores corrected for downsampled negatives, as if all negatives had been counted."""
        return self

    def check(self) -> None:
        """Raise StateFormatError if the decoded parts of any cell contradict one another."""

    def unify_parts(self, states: Sequence[Self]) -> Sequence[Self]:
        """Give states that will be added the same optional parts (see `OpaqueState`)."""
        return states

    def facts(self) -> dict[str, Any]:
        """Return the main numbers of a state of one cell: rows, positives, weight."""
        return {}

    def parts(self) -> Mapping[str, Any]:
        """Return the declared parts by name, in the order in which they are written."""
        return self.declared_parts
