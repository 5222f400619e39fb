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
    """The declaration of a statistic: its settings, parts, columns and kernels, and its optional capabilities.

    This class is the base class for states. A part is an array or a histogram that the statistic keeps for each cell
    (such as a slice).
    """

    tag: ClassVar[str] = ""
    block_column: ClassVar[str | None] = None
    """The role of a column, such as `query`, with the same value in all rows of a block; None if there are no blocks.

    The rows of a block must be adjacent and in one batch.
    """
    inner_axis: ClassVar[Axis | None] = None
    """The axis of groups or classes within each front cell (such as a slice); None if the statistic has no such axis."""
    row_parts: ClassVar[tuple[str, ...]] = ("rows",)
    """The names of the parts that count rows. Together they count every row `counts_per_row` times."""
    folding: ClassVar[tuple[str, str, str] | None] = None
    """The names of three parts, for a statistic that stores exact rows in small cells and buckets in large ones. The first
    part is the histogram of exact rows. The second is the histogram of buckets, to which the rows of a cell are converted
    beyond `exact_rows_limit`. The third is the flag of cells that lost precision in the conversion, or the bucket width
    (level)."""

    dropped = Flat("reasons", optional=True, front=True)
    rounded = Flat(form="flag", optional=True, front=True)
    """Whether a weight was rounded because it or its product with a value had bits below 2**-60; see `weight_rounding`."""

    declared_parts: ClassVar[dict[str, StatePart]] = {}
    excess_names: ClassVar[dict[str, str]] = {}
    """A mapping from the name of a part that counts rows to the name of the part with the sum of w - 1 over the
    weights w of these rows."""

    def __post_init__(self) -> None:
        super().__post_init__()
        # Metrics in a collection share a state, for which settings such as thresholds are combined, sorted and
        # deduplicated. Sort and deduplicate them here as well, so that the state of a single metric equals its state in
        # a collection.
        for name in union_settings(type(self)):  # type: ignore[arg-type]
            object.__setattr__(self, name, tuple(sorted(set(getattr(self, name)))))

    def needs(self) -> tuple[Any, ...]:
        """Return the columns that the statistic reads, each with the check that its values must pass."""
        raise NotImplementedError(f"{type(self).__name__} does not define needs(), which returns the columns to read")

    def steps(self, like: Any) -> Iterable[Any]:
        """Return the kernel calls that count a batch of checked columns; `like` contains the types of these columns."""
        raise NotImplementedError(f"{type(self).__name__} cannot count rows")

    def step_with_shards(self, like: Any, shards: Any) -> Any:
        """Return one kernel call that counts rows both in this state and in a state with a cell for each shard.

        A shard is a random subset of the units, such as users. Return None if there is no such kernel.

        Parameters
        ----------
        like : Like
            The types of the columns.
        shards : Statistic
            The statistic of the state with shards. In the arguments of the kernel call, the parts of the state with
            shards are wrapped in `ShardPart`. The state `self` must have a single cell.
        """
        return None

    def derive_columns(self, columns: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the columns that kernels read, computed from the checked columns before any row is counted."""
        return columns

    @property
    def derives_columns(self) -> bool:
        """Whether the class overrides `derive_columns`."""
        return type(self).derive_columns is not Statistic.derive_columns

    def absorb(self, into: dict[str, Array], at: Ints, **columns: Any) -> None:
        """Count checked rows with numpy, for a statistic without kernels (`steps`).

        Parameters
        ----------
        into : dict of str to array
            Copies of the parts, to be changed in place. The first axis of an array runs over the cells. If a sum
            consists of several integers, carries between them need not be propagated. A histogram is a list: append
            (cells, places, weights) to it, where places are bucket numbers, and weights is None for rows without
            weights.
        at : int64 of shape (n,)
            The cell of each row.
        **columns : array
            The checked columns.
        """
        raise NotImplementedError(f"{type(self).__name__} cannot count rows")

    @property
    def cells_per_row(self) -> int:
        """The number of adjacent cells in which each row is counted, such as one cell for each label; 1 by default."""
        return 1

    def check_rows(self, columns: Mapping[str, Any], at: Ints) -> None:
        """Raise an error if rows with valid values cannot be counted together. By default, do nothing.

        `at` is the front cell (such as a slice) of each row. It is empty if there is only one cell.
        """

    def check_sources(self, flats: Mapping[str, Array], sources: Mapping[str, str]) -> None:
        """Raise an error if the types of new columns do not match those of the rows that a state has already counted.

        `flats` contains the arrays of the state so far. `sources` contains the original type of each column by role, such
        as "float32" for `y_score`.
        """

    def class_codes(self, columns: Mapping[str, Any], numbers: Any) -> tuple[Ints, ...]:
        """Return an array for each class column, with the class number of every row.

        `numbers` is the `KeyCodes` object that assigns a number to each class. Only statistics with a cell for each
        class need this method.
        """
        raise NotImplementedError

    def check_class_count(self, count: int) -> None:
        """Raise an error if the settings do not allow `count` different classes."""

    @property
    def counts_per_row(self) -> int:
        """The number of times that the parts in `row_parts` together count each row, such as the number of labels."""
        return 1

    @property
    def exact_rows_limit(self) -> int | None:
        """The maximum number of rows that a cell (such as a slice) stores exactly, without buckets; None for no limit.

        A row counts `counts_per_row` times toward this limit.
        """
        return None

    @property
    def has_unbounded_size(self) -> bool:
        """Whether the state can grow without limit; if so, `memory_limit` is checked while rows are counted."""
        return self.exact_rows_limit is None

    @property
    def folds_by_rows(self) -> bool:
        """Whether every cell (such as a slice) with more than `exact_rows_limit` exact rows is converted to buckets.

        If False, `select_folded_cells` decides which of these cells are converted.
        """
        return True

    def select_folded_cells(self, exact: Entries, many: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Return a mask of the cells (such as slices) whose exact rows (not yet in buckets) are converted to buckets.

        Parameters
        ----------
        exact : Entries
            The exact rows of the cells, as entries in ascending order.
        many : bool
            True for the cells that have more than `exact_rows_limit` exact rows.
        """
        return many

    def sample_entries(self, columns: Mapping[str, Any], rows: int) -> Entries | None:
        """Return the exact values in the first `rows` rows of a batch as sorted entries, without rounding to buckets.

        Return None if the columns need further preparation.
        """
        return None

    def bucket_codes(self, exact: Entries) -> tuple[Array, NDArray[np.bool_]]:
        """Return the bucket of each exact row (its place in the histogram), and whether its value is rounded.

        The code that counts rows in a state with several cells calls this method and `find_flags` to convert rows to
        buckets. A statistic whose rows are converted in another way need not define the two methods.
        """
        raise NotImplementedError

    def find_flags(self, exact: Entries) -> Any:
        """Return the flag index of each exact row. By default, this is the row's cell (such as a slice).

        The flags are stored in the third of the parts that `folding` names. A flag indicates whether a cell, or one
        of its outputs, has lost precision.
        """
        return exact.cells

    def bucket_entries(self, exact: Entries) -> tuple[Entries, Any]:
        """Convert exact rows (rows stored with their exact values) to entries of buckets.

        The second result depends on the third of the parts that `folding` names. If this part contains flags, the
        second result contains the indices of the flags to set, for the cells that lose precision. If it contains
        levels, the second result is the level (bucket width) of each cell.
        """
        raise NotImplementedError

    @property
    def reasons(self) -> tuple[str, ...]:
        """The reasons why rows can be dropped.

        The reason is "where" for rows that the `where` column excludes. Otherwise, it is the role of the column with an
        invalid or ignored value: the role of a column that the statistic reads, or "time" or "unit".
        """
        return tuple(dict.fromkeys(("where", *(n.role for n in self.needs()), "time", "unit")))

    @cached_property
    def reason_numbers(self) -> dict[str, int]:
        """A mapping from each reason to its index in `reasons`."""
        return {reason: i for i, reason in enumerate(self.reasons)}

    @property
    def is_order_dependent(self) -> bool:
        """Whether the result depends on the order of the rows within a block, such as the rows of a query."""
        return False

    def find_contradiction(self, columns: Mapping[str, Any]) -> tuple[str, int, str] | None:
        """Return the first value that is invalid in combination with other columns or rows, or None if there is none.

        The result is a tuple of the role of the column, the row index and the reason.
        """
        return None

    def make_consistent(self, columns: dict[str, Array]) -> dict[str, Array]:
        """Change randomly generated test columns so that `find_contradiction` returns None for them."""
        return columns

    def with_sampling_correction(self, negative_rate: float, scale: str) -> Self:
        """Return a view of the state whose scores are corrected for the down-sampling of negatives.

        The corrected scores are those that a log with all negatives would contain. `negative_rate` is the share of
        negatives that were kept, and `scale` is the scale of the scores.
        """
        return self

    def check(self) -> None:
        """Raise StateFormatError if the parts (arrays and histograms) of a decoded state contradict one another."""

    def unify_parts(self, states: Sequence[Self]) -> Sequence[Self]:
        """Give all states the same optional parts (arrays), so that they can be added up.

        The default implementation returns the states unchanged. A subclass may override it to add missing parts, or to
        raise an error if the states must not be added up.
        """
        return states

    def facts(self) -> dict[str, Any]:
        """Return the key figures of a state without axes, as a dictionary with keys such as "rows" and "positives"."""
        return {}

    def parts(self) -> Mapping[str, Any]:
        """Return the declared parts (arrays and histograms) by name, in the order in which they are saved."""
        return self.declared_parts
