"""Several objects in one file: what one pass over a log makes, overall and by slice."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar, Self

from ..collect.feed import Change, Feed, Read
from ..collect.holder import Holder, blank_of, states_of
from ..collect.scalars import Named, prefixed
from ..errors import IncompatibleStateError
from ..state.state import State

__all__ = ["Bundle"]


class Bundle(Mapping[str, Any], Holder):
    """Metrics, collections and slices by name, saved and merged as one.

    Parameters
    ----------
    things : mapping of str to Metric, MetricCollection, Sliced or Bundle
        What it holds: the objects themselves, not copies, so none of them twice.

    Examples
    --------
    >>> import streammetrics as sm
    >>> arms = sm.Sliced(sm.CTR(), by="variant").update(y_true=[0, 1, 1], variant=["A", "A", "B"])
    >>> day = sm.Bundle({"overall": arms.total, "by variant": arms})
    >>> week = sm.merge([day, day.to_bytes()])
    >>> week["by variant"]["A"].compute()
    0.5
    """

    sort = "bundle"
    counts: ClassVar[bool] = False

    def __init__(self, things: Mapping[str, Any]) -> None:
        if not isinstance(things, Mapping):
            what = type(things).__name__
            raise TypeError(f'a bundle names what it holds, as {{"overall": sm.CTR()}} does: it takes no {what}')
        for name, thing in things.items():
            if not isinstance(name, str) or not name:
                raise TypeError(f"a bundle names what it holds by strings, not {name!r}")
            if not isinstance(thing, Holder) or not thing.adds:
                raise TypeError(f"{name}: a bundle holds metrics, collections and slices, not a {type(thing).__name__}")
        if not things:
            raise ValueError("a bundle holds at least one object")
        self._things = dict(things)
        leaves = list(self._leaves())
        if twice := [n for i, (n, one) in enumerate(leaves) if any(one is other for _, other in leaves[:i])]:
            raise ValueError(f"{twice[0]}: it is here under another name already; hold a copy()")

    def _leaves(self) -> Iterator[tuple[str, Holder]]:
        """What is in it that counts, by name."""
        for name, thing in self.items():
            if isinstance(thing, Bundle):
                yield from ((f"{name}: {of}", one) for of, one in thing._leaves())
            else:
                yield name, thing

    @classmethod
    def _of(cls, things: Mapping[str, Any]) -> Self:
        new = cls.__new__(cls)
        new._things = dict(things)
        return new

    def __getitem__(self, name: str) -> Any:
        if name not in self._things:
            raise KeyError(f"there is no {name!r}; there are {', '.join(map(repr, self._things))}")
        return self._things[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._things)

    def __len__(self) -> int:
        return len(self._things)

    def reads(self) -> tuple[Read, ...]:
        return tuple(r for thing in self.values() for r in thing.reads())

    @property
    def feeds(self) -> tuple[Feed, ...]:
        return tuple(feed for thing in self.values() for feed in thing.feeds)

    @property
    def states(self) -> tuple[State, ...]:
        return tuple(s for thing in self.values() for s in thing.states)

    def value(self, states: Sequence[State]) -> dict[str, Any]:
        return {name: thing.value(mine) for name, (thing, mine) in zip(self, self._shared(states), strict=True)}

    def numbers(self, value: Any) -> Named:
        for name, thing in self.items():
            yield from prefixed(name, thing.numbers(value[name]))

    def check_states(self, states: Sequence[State]) -> None:
        for thing, mine in self._shared(states):
            thing.check_states(mine)

    def _shared(self, states: Sequence[State]) -> Iterator[tuple[Any, list[State]]]:
        """Yield each thing, with those of the states that it reads."""
        rest = list(states)
        for thing in self.values():
            n = len(thing.reads())
            yield thing, rest[:n]
            rest = rest[n:]

    def update(self, y_true: Any = None, y_score: Any = None, /, **columns: Any) -> Any:
        """A bundle is made of what has counted: update its parts."""
        raise TypeError("a bundle counts nothing itself: update what it holds")

    def aligned(self, other: Any) -> Any:
        if not isinstance(other, Bundle) or other.sort != self.sort or set(other) != set(self):
            return other
        return self._of({name: thing.aligned(other[name]) for name, thing in self.items()})

    def adding(self, other: Any) -> list[Change]:
        return [_named(name, one) for name, thing in self.items() for one in thing.adding(other[name])]

    def taking(self, other: Any) -> list[Change]:
        return [_named(name, one) for name, thing in self.items() for one in thing.taking(other[name])]

    def differences(self, other: Any) -> list[str]:
        found = [f"it has no {n!r}" for n in self if n not in other]
        found += [f"it has {n!r}, this one has not" for n in other if n not in self]
        for name in [n for n in self if n in other]:
            if self[name].sort != other[name].sort:
                found.append(f"{name} is a {self[name].sort} here and a {other[name].sort} there")
            else:
                found += [f"{name}: {d}" for d in self[name].differences(other[name])]
        return found

    def interval(self, confidence: float = 0.95, method: str | None = None) -> dict[str, Any]:
        """Return the intervals of everything it holds, by name."""
        return {n: thing.interval(confidence, method) for n, thing in self.items()}

    def warn_again(self) -> None:
        for thing in self.values():
            thing.warn_again()

    def copy(self) -> Self:
        return self._of({n: thing.copy() for n, thing in self.items()})

    def blank(self) -> Self:
        return self._of({n: thing.blank() for n, thing in self.items()})

    def recipe(self) -> Callable[[], Holder]:
        return partial(type(self)._of, {n: thing.blank() for n, thing in self.items()})

    def seal(self, partition: tuple[int, int] | None = None) -> Self:
        return self._of({n: thing.seal(partition) for n, thing in self.items()})

    def coarsen(self, bits: int) -> Self:
        return self._of({n: thing.coarsen(bits) if thing.coarsens else thing.copy() for n, thing in self.items()})

    @property
    def nbytes(self) -> int:
        return sum(thing.nbytes for thing in self.values())

    def __eq__(self, other: object) -> bool:
        return Holder.__eq__(self, other)

    __hash__ = None

    def __repr__(self) -> str:
        lines = [f"{name}: {thing!r}".replace("\n", "\n  ") for name, thing in self.items()]
        return "\n".join([f"Bundle of {len(self)}", *(f"  {line}" for line in lines)])

    def header(self) -> dict[str, Any]:
        return {"kind": "bundle", "names": list(self), "things": [thing.header() for thing in self.values()]}

    @classmethod
    def of_header(cls, header: dict[str, Any], states: Sequence[State]) -> Any:
        names, heads = header["names"], header["things"]
        if len(set(names)) != len(names) or not all(isinstance(n, str) for n in names):
            raise ValueError("a bundle holds each thing under a name of its own")
        things, rest = {}, list(states)
        for name, head in zip(names, heads, strict=True):
            n = states_of(head)
            things[name] = blank_of(head, rest[:n])
            rest = rest[n:]
        return cls(things)

    @classmethod
    def state_count(cls, header: dict[str, Any]) -> int:
        return sum(map(states_of, header["things"]))


def _named(name: str, change: Change) -> Change:
    """A change that says of what it cannot be."""

    def how(states: tuple[State, ...]) -> Sequence[State]:
        try:
            return change.how(states)
        except IncompatibleStateError as error:
            raise IncompatibleStateError(f"{name}: {error}") from error

    return change._replace(how=how)
