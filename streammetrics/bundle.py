"""Several objects in one file: what one pass over a log makes, overall and by slice."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from .arrays import Array
from .codec import decoders
from .collection import MetricCollection
from .compose import Sliced
from .encodable import Encodable
from .errors import IncompatibleStateError
from .metric import Metric
from .state import State

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["Bundle"]

HELD = (Metric, MetricCollection, Sliced)
KINDS = ("metric", "collection", "sliced")


class Bundle(Mapping[str, Any], Encodable):
    """Metrics, collections and slices by name, saved and merged as one.

    Parameters
    ----------
    things : mapping of str to Metric, MetricCollection or Sliced
        What it holds: the objects themselves, not copies.

    Examples
    --------
    >>> import streammetrics as sm
    >>> arms = sm.Sliced(sm.CTR(), by="variant").update(y_true=[0, 1, 1], variant=["A", "A", "B"])
    >>> day = sm.Bundle({"overall": arms.total, "by variant": arms})
    >>> week = sm.merge([day, day.to_bytes()])
    >>> week["by variant"]["A"].compute()
    0.5
    """

    def __init__(self, things: Mapping[str, Any]) -> None:
        for name, thing in things.items():
            if not isinstance(name, str) or not name:
                raise TypeError(f"a bundle names what it holds by strings, not {name!r}")
            if not isinstance(thing, HELD):
                raise TypeError(f"{name}: a bundle holds metrics, collections and slices, not a {type(thing).__name__}")
        if not things:
            raise ValueError("a bundle holds at least one object")
        self._things = dict(things)

    def __getitem__(self, name: str) -> Any:
        if name not in self._things:
            raise KeyError(f"there is no {name!r}; there are {', '.join(map(repr, self._things))}")
        return self._things[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._things)

    def __len__(self) -> int:
        return len(self._things)

    def merge(self, other: Self) -> Self:
        """Add what another bundle of the same names has seen; `other` stays as it is.

        Raises
        ------
        IncompatibleStateError
            Names or what they hold differ; the message names each difference, and both are as they were.
        """
        if other is self:
            raise IncompatibleStateError(
                "merging a bundle with itself counts its rows twice; merge a copy() if you mean it"
            )
        if not isinstance(other, Bundle):
            raise IncompatibleStateError(f"cannot merge a {type(other).__name__} into a Bundle")
        found = [f"it has no {n!r}" for n in self if n not in other]
        found += [f"it has {n!r}, this one has not" for n in other if n not in self]
        if found:
            raise IncompatibleStateError(f"cannot merge this bundle: {'; '.join(found)}")
        merged = {n: self._merged(n, other[n]) for n in self}  # copies: none changes unless all can
        self._things = merged
        return self

    def _merged(self, name: str, theirs: Any) -> Any:
        try:
            return self[name].copy().merge(theirs)
        except IncompatibleStateError as error:
            raise IncompatibleStateError(f"{name}: {error}") from error

    def copy(self) -> Self:
        """Return an independent copy."""
        return type(self)({n: thing.copy() for n, thing in self.items()})

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Bundle):
            return NotImplemented
        return list(self) == list(other) and all(self[n] == other[n] for n in self)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        lines = [f"{name}: {thing!r}".replace("\n", "\n  ") for name, thing in self.items()]
        return "\n".join([f"Bundle of {len(self)}", *(f"  {line}" for line in lines)])

    def header(self) -> dict[str, Any]:
        """Describe what it holds as plain data: what the bytes format writes."""
        return {"kind": "bundle", "names": list(self), "things": [thing.header() for thing in self.values()]}

    def states(self) -> list[State]:
        """The states whose arrays the bytes hold."""
        return [state for thing in self.values() for state in thing.states()]

    def extra_arrays(self) -> list[Array]:
        """The arrays that are not of states: the keys of slices."""
        return [a for thing in self.values() if hasattr(thing, "extra_arrays") for a in thing.extra_arrays()]

    def take_extra(self, header: dict[str, Any], read: Callable[[list[int]], Array]) -> None:
        """Read what `extra_arrays` wrote."""
        for thing, head in zip(self.values(), header["things"], strict=True):
            if hasattr(thing, "take_extra"):
                thing.take_extra(head, read)


def _decode_bundle(header: dict[str, Any], read: Any) -> Bundle:
    names, heads = header["names"], header["things"]
    if len(set(names)) != len(names) or any(head["kind"] not in KINDS for head in heads):
        raise ValueError("a bundle holds metrics, collections and slices, each under a name of its own")
    return Bundle({n: decoders[head["kind"]](head, read) for n, head in zip(names, heads, strict=True)})


decoders["bundle"] = _decode_bundle
