"""What has metrics by name, and can be had in part: collections, and what is around them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Self

from ..numerics.settings import check_several
from .holder import Holder

__all__ = ["Parted"]


class Parted(Holder):
    """Something of which some metrics can be chosen, with what they have seen; see `chosen`."""

    @property
    def names(self) -> list[str]:
        """The names of the metrics."""
        raise NotImplementedError

    def only(self, names: Iterable[str]) -> Self:
        """Return the same of some of the metrics of a collection, with what they have seen.

        Raises
        ------
        KeyError
            There is no metric of one of these names.
        """
        some = self._asked(names)
        return self._kept({name: name for name in self.names if name in some})

    def ordered(self, names: Iterable[str]) -> Self:
        """Return the same of some of the metrics of a collection, in this order, with what they have seen; see `only`."""
        return self._kept({name: name for name in self._asked(names)})

    def _asked(self, names: Iterable[str]) -> list[str]:
        asked, known = check_several("names=", names, "names of metrics"), self.names
        for name in asked:
            if name not in known:
                raise KeyError(f"there is no metric {name!r}; there are {', '.join(known)}")
        return asked

    def aligned(self, other: Any) -> Any:
        alike = isinstance(other, Parted) and other.sort == self.sort and other.names != self.names
        return other.ordered(self.names) if alike and sorted(other.names) == sorted(self.names) else other

    def task(self, name: str) -> Self:
        """Return the metrics of a task of a collection, under the names that they have in it, with what they have seen.

        Examples
        --------
        >>> import streammetrics as sm
        >>> both = sm.MetricCollection({"a": sm.Task(sm.CTR(), y_true="click"), "b": sm.Task(sm.CTR(), y_true="buy")})
        >>> both.update(click=[1, 1], buy=[0, 1]).task("b").compute()
        {'ctr': 0.5}
        """
        known = self.names
        names = {full: full.removeprefix(f"{name}/") for full in known if full.startswith(f"{name}/")}
        if not names:
            tasks = dict.fromkeys(full.rpartition("/")[0] for full in known if "/" in full)
            raise KeyError(f"there is no task {name!r}; there are {', '.join(tasks) or 'none'}")
        return self._kept(names)

    def _kept(self, names: Mapping[str, str]) -> Self:
        """Some of its metrics under new names."""
        new, units = self.chosen(names)
        states = self.states
        new.take_states([states[u].narrow(read.state) for u, read in zip(units, new.reads(), strict=True)])
        made: Self = new
        return made
