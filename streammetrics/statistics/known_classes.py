"""The base class for statistics of multiclass data whose labels the user declares before counting."""

from __future__ import annotations

from typing import Any

from ..batch.classes import check_ignored, check_labels, class_label
from ..batch.kinds import Need
from ..numerics.settings import setting
from ..state.state import State

__all__ = ["KnownClasses"]


class KnownClasses(State):
    """The base class for statistics of rows that each belong to one of several declared classes.

    Parameters
    ----------
    num_classes : int, optional
        The classes are 0, 1, ..., num_classes - 1.
    labels : tuple, optional
        The classes (integers or strings), in order.
    ignore_class : int or str, optional
        Rows of this true class are dropped, and the number of dropped rows is recorded. The class need not be among
        `labels`.
    """

    num_classes: int | None = setting(default=None, low=2, high=1 << 15)
    labels: tuple[int | str | bytes, ...] | None = setting(default=None)
    ignore_class: int | str | bytes | None = setting(default=None)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.declared_classes:
            check_labels(type(self).__name__, self.labels)
        check_ignored(type(self).__name__, self.declared_classes, self.ignore_class)

    @property
    def declared_classes(self) -> int | tuple[Any, ...]:
        """The number of classes, or the tuple of their labels; 0 if the settings declare no classes."""
        return self.num_classes or self.labels or 0

    @property
    def true_class(self) -> Need:
        """The requirements for the column of true classes: the allowed classes and the class to ignore."""
        return class_label(self.declared_classes, ignore=self.ignore_class)

    @property
    def width(self) -> int:
        """The number of classes."""
        return self.declared_classes if isinstance(self.declared_classes, int) else len(self.declared_classes)
