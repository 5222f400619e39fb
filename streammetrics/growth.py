"""Arrays that grow with the data: rows wait as they came, and are brought to canonical form when somebody reads them.

Sorting everything again for every batch would take quadratic time. So rows are kept in buffers until there are as many
as in the united arrays; then, or when an array is read, all are united, which costs each row a few sorts in all.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .arrays import Array, ArrayRule, canonical
from .errors import MemoryLimitError

__all__ = ["Growing", "Grown", "Growth", "filled"]

PATIENCE = 1 << 26  # bytes that may wait whatever has been united
Buffers = dict[str, tuple[Array, int]]


class Growth(NamedTuple):
    """Rows that were found to fit.

    Parameters
    ----------
    arrays : dict of arrays
        The rows; or, where only that shows that they fit, everything united.
    united : bool
        Which of both.
    """

    arrays: dict[str, Array]
    united: bool


class Grown:
    """An array that grows, as an attribute: what waits is united before anybody sees it."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __get__(self, state: Any, owner: Any = None) -> Any:
        if state is None:
            return self
        state.settle()
        return state.__dict__[self.name]

    def __set__(self, state: Any, value: Any) -> None:
        raise AttributeError(f"{self.name} is replaced by rebind(), and added to by grow()")


def waiting(buffers: Buffers) -> dict[str, Array]:
    """Return the rows that wait."""
    return {name: buffer[:n] for name, (buffer, n) in buffers.items()}


def emptied(buffers: Buffers) -> Buffers:
    """Return buffers without rows, whose memory is written anew: nobody may hold those there were."""
    return {name: (buffer, 0) for name, (buffer, _) in buffers.items()}


def append(buffers: Buffers, rules: Mapping[str, ArrayRule], rows: Mapping[str, Array]) -> Buffers:
    """Return buffers with more rows; those given stay valid as they were.

    Rows of no declared array are what a state keeps as it came, and turns into rows of its arrays when it unites them.
    """
    new = dict(buffers)
    for root in [name for name in rows if name not in rules or rules[name].per is None]:
        count = buffers[root][1] if root in buffers else 0
        _put(new, root, rows[root], count, 0)
        for name, rule in rules.items():
            if rule.per == root and (name in rows or name in buffers):
                given = rows.get(name)
                if given is None:
                    held = buffers[name][0]
                    given = np.full((len(rows[root]), *held.shape[1:]), rule.identity, np.int64)
                _put(new, name, given, count, rule.identity)
    return new


def _put(buffers: Buffers, name: str, rows: Array, count: int, identity: int) -> None:
    buffer, have = buffers.get(name, (np.empty((0, *rows.shape[1:]), rows.dtype), 0))
    end = count + len(rows)
    if end > len(buffer):
        larger = np.empty((max(end, 2 * len(buffer)), *rows.shape[1:]), rows.dtype)
        larger[:have] = buffer[:have]
        buffer = larger
    buffer[have:count] = identity  # rows that came before this array was there
    buffer[count:end] = rows
    buffers[name] = buffer, end


def unite(
    rules: Mapping[str, ArrayRule], ours: Mapping[str, Any], theirs: Mapping[str, Any], axes: Any
) -> dict[str, Array]:
    """Merge arrays that grow with others; one that is absent on one side changes nothing there.

    Parameters
    ----------
    rules : mapping of str to ArrayRule
        Of all arrays.
    ours, theirs : mapping of str to array or None
        The arrays.
    axes : callable
        Returns the shape of one cell of an array `per` a key.
    """
    both: dict[str, Array] = {}
    for name, rule in rules.items():
        some = ours.get(name) is not None or theirs.get(name) is not None
        if rule.grows and some and theirs.get(rule.per or name) is not None:
            both[name] = np.concatenate([filled(held, name, rule, axes(rule)) for held in (ours, theirs)])
    return canonical(dict(rules), both)


def filled(held: Mapping[str, Any], name: str, rule: ArrayRule, cell: tuple[int, ...]) -> Array:
    """Return an array that grows; what changes nothing for one that is absent."""
    array: Array | None = held.get(name)
    if array is None:
        array = np.full([len(held[rule.per or name]), *cell], rule.identity, np.int64)
    return array


def check_room(owner: str, limit: int | None, arrays: Mapping[str, Array | None]) -> None:
    """Raise MemoryLimitError if arrays take more than a limit."""
    size = sum(a.nbytes for a in arrays.values() if a is not None)
    if limit is not None and size > limit:
        raise MemoryLimitError(f"{owner} would need {size:,} bytes; its memory_limit is {limit:,}")


class Growing:
    """The part of a state that has to do with arrays that grow."""

    if TYPE_CHECKING:

        def rules(self) -> Mapping[str, ArrayRule]:
            """The merge rule of every array by name."""

        def shape(self, rule: ArrayRule) -> tuple[int, ...]:
            """The shape of one array of an empty, lone state."""

    def _cell(self, rule: ArrayRule) -> tuple[int, ...]:
        """The shape of what one key has in an array `per` it."""
        return self.shape(rule)[1:]

    def rebind(self, **arrays: Array) -> None:
        """Replace arrays that grow (`keyed`, `rows` and what is `per` them), within the memory limit."""
        self.settle()
        self._check_room(arrays)
        self.__dict__.update(arrays)

    def grow(self, at: NDArray[np.int64] | None, /, **rows: Array) -> None:
        """Add rows to arrays that grow, in any order and as often as they come: what `absorb` of such a state calls.

        Parameters
        ----------
        at : int64 array, optional
            The slice of each row, as `absorb` was given it.
        **rows : int64 arrays
            Rows for a `keyed` or `rows` array; and for those `per` a `keyed` one, the cells that each row brings.

        Raises
        ------
        MemoryLimitError
            The arrays would pass `memory_limit`, if the state has such a setting; nothing was added.
        """
        new: dict[str, Array] = {}
        for name, array in rows.items():
            new[name] = np.asarray(array, np.int64)
            if self.rules()[name].per is None:
                flat = new[name].reshape(len(array), -1)
                new[name] = flat if at is None else np.column_stack([at, flat])
        self._take_growth(self._fit(new))

    def _fit(self, rows: dict[str, Array]) -> Growth:
        """Raise MemoryLimitError if rows find no room, and change nothing; sort only where that decides."""
        limit = getattr(self, "memory_limit", None)
        if limit is not None and self._grown_bytes() + sum(a.nbytes for a in rows.values()) > limit:
            united = self._united(waiting(append(self.__dict__["_waiting"], self.rules(), rows)))
            self._check_room(united)
            return Growth(united, True)
        return Growth(rows, False)

    def _take_growth(self, growth: Growth) -> None:
        """Add what `_fit` has found to fit; this cannot fail."""
        held = self.__dict__
        if growth.united:
            held.update(growth.arrays, _waiting={})
            return
        held["_waiting"] = append(held["_waiting"], self.rules(), growth.arrays)
        wait = sum(a.nbytes for a in waiting(held["_waiting"]).values())
        if wait > PATIENCE and 2 * wait > self._grown_bytes():
            self.settle()

    def settle(self) -> None:
        """Unite the rows that wait with the arrays that grow; whoever reads these gets it done."""
        if rows := waiting(self.__dict__["_waiting"]):
            self.__dict__.update(self._united(rows), _waiting={})

    def _united(self, rows: Mapping[str, Any]) -> dict[str, Array]:
        return unite(self.rules(), self.__dict__, rows, self._cell)

    def _grown_bytes(self) -> int:
        """Bytes of the arrays that grow, and of what waits."""
        held = [self.__dict__[name] for name, rule in self.rules().items() if rule.grows]
        return sum(a.nbytes for a in [*held, *waiting(self.__dict__["_waiting"]).values()] if a is not None)

    def _check_room(self, arrays: Mapping[str, Array]) -> None:
        held = {name: self.__dict__[name] for name, rule in self.rules().items() if rule.grows} | dict(arrays)
        check_room(type(self).__name__, getattr(self, "memory_limit", None), held)

    @property
    def grows(self) -> bool:
        """Whether an array grows with the data: then counting rows can fail for want of memory."""
        return any(rule.grows for rule in self.rules().values())

    def _rows(self) -> dict[str, Array]:
        """Return what the arrays that grow hold, in canonical form only if that is there anyway."""
        found = {name: self.__dict__[name] for name, rule in self.rules().items() if rule.grows}
        loose = all(not len(a) for a in found.values() if a is not None)
        if not loose:
            self.settle()
            return {name: self.__dict__[name] for name in found if self.__dict__[name] is not None}
        return waiting(self.__dict__["_waiting"])
