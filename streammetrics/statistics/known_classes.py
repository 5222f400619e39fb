"""Classes that are known before any row comes: the part that statistics of several classes have in common."""

from __future__ import annotations

from typing import Any

from ..batch.classes import check_ignored, check_labels, class_of
from ..batch.kinds import Need
from ..numerics.settings import setting
from ..state.state import State

__all__ = ["KnownClasses"]


class KnownClasses(State):
    """A statistic of rows of one of several classes.

    Parameters
    ----------
    num_classes : int, optional
        Classes are 0, 1, ... up to this.
    labels : tuple, optional
        The classes in their order, integers or strings.
    ignore_class : int or str, optional
        A row of this true class, which need not be among them, is left out and counted.
    """

    num_classes: int | None = setting(default=None, low=2, high=1 << 15)
    labels: tuple[int | str | bytes, ...] | None = setting(default=None)
    ignore_class: int | str | bytes | None = setting(default=None)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.known:
            check_labels(type(self).__name__, self.labels)
        check_ignored(type(self).__name__, self.known, self.ignore_class)

    @property
    def known(self) -> int | tuple[Any, ...]:
        """How many classes there are, or what they are called; 0 where nobody says."""
        return self.num_classes or self.labels or 0

    @property
    def true_class(self) -> Need:
        """The need for the true class of a row."""
        return class_of(self.known, ignore=self.ignore_class)

    @property
    def width(self) -> int:
        """How many classes there are."""
        return self.known if isinstance(self.known, int) else len(self.known)
