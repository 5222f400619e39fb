"""What a statistic declares; all else, from merge to bytes, follows from it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from ..numerics.settings import Settings, unions
from .axes import Axis
from .declare import Array, Flat, StatePart
from .tally import Entries

__all__ = ["Statistic"]

Ints = NDArray[np.int64]


class Statistic(Settings):
    """What a statistic declares: settings, parts, the columns it needs, its kernels, and what else may be asked of it."""

    tag: ClassVar[str] = ""
    together: ClassVar[str | None] = None
    """The role of the column whose equal rows, a block, stand side by side and come in one batch: `query`."""
    behind: ClassVar[Axis | None] = None
    """The axis that the statistic brings itself."""
    counted: ClassVar[tuple[str, ...]] = ("rows",)
    """The parts that count rows."""
    folds: ClassVar[tuple[str, str, str] | None] = None
    """A tally of exact rows, that of the buckets they become beyond `most` rows, and the flag of what was lost thereby."""

    dropped = Flat("reasons", optional=True, front=True)
    rounded = Flat(form="flag", optional=True, front=True)
    """Whether a weight had bits below 2**-60, which its sum does not have, or was so small that those of w x are (see
    `slip`)."""

    declared: ClassVar[dict[str, StatePart]] = {}

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in unions(type(self)):  # type: ignore[arg-type] # sets, so that states alone and in a collection are alike
            object.__setattr__(self, name, tuple(sorted(set(getattr(self, name)))))

    def needs(self) -> tuple[Any, ...]:
        """The columns that are read, each with its check."""
        raise NotImplementedError(f"{type(self).__name__} does not say which columns it needs")

    def steps(self, like: Any) -> Iterable[Any]:
        """The kernels that count checked columns `like` these (see `count.steps`)."""
        raise NotImplementedError(f"{type(self).__name__} cannot count rows")

    def step_with_shards(self, like: Any, shards: Any) -> Any:
        """The step that counts rows like these here and, coarser, in shards of units at once; None if there is none.

        Here is one cell; `shards` is the statistic in cells of shards alone, whose parts are `Beside` among its arguments.
        """
        return None

    def derive(self, columns: Mapping[str, Any]) -> Mapping[str, Any]:
        """Make what `steps` read of checked columns: to scratch, before anything is counted."""
        return columns

    @property
    def derives(self) -> bool:
        """Whether `derive` makes anything of columns."""
        return type(self).derive is not Statistic.derive

    def absorb(self, into: dict[str, Array], at: Ints, **columns: Any) -> None:
        """Count checked rows, each in its cell, into copies of the parts, cells first: for what numpy counts.

        Then there are no `steps`. Sums need not be carried; a tally takes a list to which (cells, places, weights) are
        appended, weights being None where there are none.
        """
        raise NotImplementedError(f"{type(self).__name__} cannot count rows")

    @property
    def spread(self) -> int:
        """How many cells side by side each row goes to, one for each label."""
        return 1

    def admit_rows(self, columns: Mapping[str, Any], at: Ints) -> None:
        """Raise unless checked rows, each in its front cell (`at` is empty for a lone state), may be counted together."""

    def admit_beside(self, flats: Mapping[str, Array], sources: Mapping[str, str]) -> None:
        """Raise unless rows may be counted with those before: of columns from these sources (`Column.source`), by role.

        `flats` holds the parts of all cells so far.
        """

    def class_codes(self, columns: Mapping[str, Any], numbers: Any) -> tuple[Ints, ...]:
        """Of a statistic of classes behind: the number of the class of each row, for each column of the axis."""
        raise NotImplementedError

    def admit_classes(self, count: int) -> None:
        """Raise unless there may be so many different classes behind."""

    @property
    def times(self) -> int:
        """How often a row is counted in `counted`."""
        return 1

    @property
    def most(self) -> int | None:
        """Of a statistic that folds: the rows of a cell that are kept exactly, `times` each; None for all."""
        return None

    @property
    def open_ended(self) -> bool:
        """Whether rows make it larger without an end that settings say: then a `memory_limit` holds while rows come."""
        return self.most is None

    @property
    def folds_by_rows(self) -> bool:
        """Of a statistic that folds: whether every cell of more than `most` rows goes to buckets (else see `outgrown`)."""
        return True

    def outgrown(self, exact: Entries, many: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Of a statistic that folds: which cells go to buckets, of those with more than `most` exact rows.

        Parameters
        ----------
        exact : Entries
            The exact entries of cells, in ascending order.
        many : bool
            The cells that hold more than `most` rows.
        """
        return many

    def sample(self, columns: Mapping[str, Any], rows: int) -> Entries | None:
        """Return the exact entries of the first rows of some columns; None if these have to be prepared first."""
        return None

    def bucketed(self, exact: Entries) -> tuple[Entries, Any]:
        """Of a statistic that folds: the bucket entries of exact ones, and where in the flag something was lost."""
        raise NotImplementedError

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why a row may be left out: `where`, the role of a bad value, a time that is in no window, or no unit."""
        return tuple(dict.fromkeys(("where", *(n.role for n in self.needs()), "time", "unit")))

    @cached_property
    def reason_numbers(self) -> dict[str, int]:
        """The place of each reason."""
        return {reason: i for i, reason in enumerate(self.reasons)}

    @property
    def ordered(self) -> bool:
        """Whether the order of the rows of a block matters."""
        return False

    def contradiction(self, columns: Mapping[str, Any]) -> tuple[str, int, str] | None:
        """Say which checked row contradicts others, or is not for this state: its role, the row, and why; or None."""
        return None

    def plausible(self, columns: dict[str, Array]) -> dict[str, Array]:
        """Make columns that were made up one by one, for the laws, fit together (see `contradiction`)."""
        return columns

    def corrected(self, negative_rate: float, scale: str) -> Self:
        """Return a view from which scores are read as those of the full log, of what was counted as it was given."""
        return self

    def check(self) -> None:
        """Raise StateFormatError where decoded parts, of all cells, contradict one another."""

    def alike(self, states: Sequence[Self]) -> Sequence[Self]:
        """Let states that are to be added know the same parts (see `OpaqueState`)."""
        return states

    def facts(self) -> dict[str, Any]:
        """What is worth telling about a state of one cell: rows, positives, weight."""
        return {}

    def parts(self) -> Mapping[str, Any]:
        """The declared parts by name, in the order in which they are written."""
        return self.declared
