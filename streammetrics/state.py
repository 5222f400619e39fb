"""State: frozen settings plus named integer arrays, each declared with the rule by which it merges.

From that one declaration come merge, reset, copy, ==, repr, pickle, bytes and digest, and slices: a state whose arrays
have one more leading axis holds as many states as that axis is long (`compose.Sliced`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from .arrays import (
    COMBINE,
    ROW_LIMIT,
    Array,
    ArrayRule,
    added,
    canonical,
    highest,
    in_order,
    keyed,
    lowest,
    rows,
    scatter,
)
from .encodable import Encodable
from .errors import CounterOverflowError, IncompatibleStateError, StateFormatError
from .growth import Growing, Grown, Growth, filled
from .settings import Settings, canonical_json, encode_setting, setting, union

if TYPE_CHECKING:
    from typing_extensions import Self, dataclass_transform

    from .columns import Column, Need
else:

    def dataclass_transform(**_: Any) -> Any:
        return lambda cls: cls


__all__ = ["State"]

DROPPED = ("where", "y_true", "y_score", "y_pred", "sample_weight", "group", "query", "key", "value")
"""Why a row was left out, in the order in which reasons are looked for. For ever: it is in the bytes."""


@dataclass_transform(
    frozen_default=True,
    kw_only_default=True,
    eq_default=False,
    field_specifiers=(setting, union, added, lowest, highest, keyed, rows),
)
class State(Settings, Growing, Encodable):
    """A sufficient statistic: what was seen, enough to answer every metric that reads it.

    A subclass declares settings and arrays, says which columns it `needs`, and counts a checked batch in `absorb`.
    Everything else follows from the declaration. The settings are the state's identity: only equal ones merge.

    Notes
    -----
    To make a state of your own, in any package::

        class Extremes(sm.State, tag="acme.extremes"):
            highest: sm.Array = sm.highest()

            def needs(self):
                return (sm.score("y_score", "real"),)

            def absorb(self, at, y_score):
                np.maximum.at(self.highest.reshape(-1), 0 if at is None else at, order(y_score.values))

    `at` is None for a lone state. In a `Sliced` one it is the slice of each row, and every array has one more axis,
    in front, of slices. `check_metric` runs every law on the result.
    """

    tag: ClassVar[str] = ""
    checks_itself: ClassVar[bool] = False
    """Whether `absorb` checks labels and scores as it counts, and returns False (nothing counted) on a bad one."""
    together: ClassVar[str | None] = None
    """The role of the column whose equal rows, a block, stand side by side and come in one batch: `query`."""

    @property
    def ordered(self) -> bool:
        """Whether the order of the rows of a block matters."""
        return False

    dropped: Array = added(len(DROPPED))

    _by_tag: ClassVar[dict[str, type[State]]] = {}
    _rules: ClassVar[dict[str, ArrayRule]] = {}

    def __init_subclass__(cls, tag: str = "", **keywords: Any) -> None:
        super().__init_subclass__(**keywords)
        found = {f.name: f.metadata["array"] for f in fields(cls) if "array" in f.metadata}  # type: ignore[arg-type]
        cls._rules = in_order(found)
        if tag:
            taken = State._by_tag.get(tag)
            if taken is not None and taken.__qualname__ != cls.__qualname__:
                raise TypeError(f"the state tag {tag!r} is already taken by {taken.__qualname__}")
            cls.tag = tag
            State._by_tag[tag] = cls
        for name, rule in found.items():
            if rule.grows:
                setattr(cls, name, Grown(name))

    def __post_init__(self) -> None:
        super().__post_init__()
        for f in fields(self):  # type: ignore[arg-type]
            if f.metadata.get("union"):  # a set of read-outs, so that states alone and in a collection are alike
                object.__setattr__(self, f.name, tuple(sorted(set(getattr(self, f.name)))))
        self._allocate(None)

    # -- what a state declares -----------------------------------------------------------------------------------

    def needs(self) -> tuple[Need, ...]:
        """The columns that `absorb` wants, each with its check."""
        raise NotImplementedError(f"{type(self).__name__} does not say which columns it needs")

    def absorb(self, *at: Any, **columns: Any) -> bool | None:
        """Count the rows of checked columns, one by role, row i into slice `at[i]`; `at` is None for a lone state."""
        raise NotImplementedError(f"{type(self).__name__} cannot absorb rows")

    def quick(self) -> Callable[[Array, Array], bool] | None:
        """Return a shortcut of `absorb` for plain rows of a lone state that checks itself, or None.

        It takes a uint8 label and a float32 or float64 score, contiguous and of equal length, and returns False, nothing
        counted, on a bad value; it raises TypeError or KeyError for anything else. Once `absorb` has run, so that the
        kernel is compiled, it makes the difference between 16 and 1 microsecond a call.
        """
        return None

    def contradiction(self, columns: dict[str, Column]) -> tuple[str, int, str] | None:
        """Say which checked row contradicts others, or is not for this state: its role, the row, and why; or None."""
        return None

    def plausible(self, columns: dict[str, Array]) -> dict[str, Array]:
        """Make columns that were made up one by one, for the laws, fit together (see `contradiction`)."""
        return columns

    def check(self) -> None:
        """Raise StateFormatError where decoded arrays contradict one another."""

    def facts(self) -> dict[str, Any]:
        """What is worth telling about a lone state: rows, positives, weight."""
        return {}

    # -- arrays --------------------------------------------------------------------------------------------------

    def rules(self) -> dict[str, ArrayRule]:
        """The merge rule of every array by name."""
        return self._rules

    @property
    def slices(self) -> int | None:
        """How many states the leading axis holds; None for a lone state."""
        slices: int | None = self.__dict__["_slices"]
        return slices

    def _allocate(self, slices: int | None) -> None:
        self.__dict__.update(_slices=slices, _load=0, _waiting={})
        self.__dict__["_recent"] = None  # ids of the blocks of the last batch, which must not return in the next
        for name, rule in self.rules().items():
            self.__dict__[name] = None if rule.optional else self._empty(rule)

    def _empty(self, rule: ArrayRule) -> Array:
        lead = () if self.slices is None or rule.grows else (self.slices,)
        shape = lead + self.shape(rule)
        return np.zeros(shape, np.int64) if rule.grows or not rule.identity else np.full(shape, rule.identity, np.int64)

    def shape(self, rule: ArrayRule) -> tuple[int, ...]:
        """The shape of one array of an empty, lone state."""
        axes = tuple(self._extent(axis) for axis in rule.shape)
        if rule.rule in ("keyed", "rows"):
            axes = (0, axes[0] + (self.slices is not None))  # in a sliced state the slice is the first key
        if rule.per is not None:
            axes = (0, *axes)
        return axes + ((rule.limbs,) if rule.limbs else ())

    def _extent(self, axis: int | str) -> int:
        value = axis if isinstance(axis, int) else getattr(self, axis)
        return len(value) if isinstance(value, tuple) else int(value)

    def need(self, name: str) -> Array:
        """Return an optional array, made now if it is absent."""
        array: Array | None = getattr(self, name)
        if array is None:
            rule, held = self.rules()[name], self.__dict__
            array = held[name] = filled(held, name, rule, self._cell(rule)) if rule.grows else self._empty(rule)
        return array

    @property
    def arrays(self) -> dict[str, Array]:
        """The arrays by name, in canonical form: an optional array that is all zero is absent."""
        return {name: array for name, array, rule in self._held() if not rule.optional or array.any()}

    def _held(self) -> Iterator[tuple[str, Array, ArrayRule]]:
        self.settle()
        for name, rule in self.rules().items():
            array = self.__dict__[name]
            if array is not None:
                yield name, array, rule

    @property
    def nbytes(self) -> int:
        """Bytes of memory the arrays take."""
        return sum(array.nbytes for _, array, _ in self._held())

    # -- for every state, from the declaration ---------------------------------------------------------------------

    def empty(self, slices: int | None = None) -> Self:
        """Make an empty state with the same settings, or one of `slices` states."""
        new = self._with(self.settings)
        if slices is not None:
            new._allocate(slices)
        return new

    def _with(self, settings: dict[str, Any]) -> Self:
        """Make an empty, lone state of these settings, and of our operational ones."""
        ours = {f.name: getattr(self, f.name) for f in fields(self) if f.init}  # type: ignore[arg-type]
        return type(self)(**(ours | settings))

    def reset(self) -> Self:
        """Forget every row."""
        self.__dict__["_waiting"] = {}
        for name, array, rule in list(self._held()):
            if rule.grows or rule.optional:
                self.__dict__[name] = None if rule.optional else self._empty(rule)
            else:
                array[...] = rule.identity  # in place: a shortcut (see `quick`) may hold the array
        self.__dict__["_load"] = 0
        self.__dict__["_recent"] = None
        return self

    def copy(self) -> Self:
        """Return an independent copy."""
        new = self.empty()
        new.__dict__["_slices"] = self.slices
        new._take({name: array.copy() for name, array, _ in self._held()})
        return new

    def _take(self, arrays: dict[str, Array]) -> None:
        """Hold these arrays, which nobody else holds."""
        for name in self.rules():
            self.__dict__[name] = arrays.get(name)
        self.__dict__["_waiting"] = {}
        self.__dict__["_load"] = self._loaded()

    def _loaded(self) -> int:
        return max((rule.load(array) for _, array, rule in self._held()), default=0)

    def admit(self, n: int, weight: float = 0.0) -> None:
        """Make sure that `n` more rows of this total weight stay in range, before any is counted."""
        load = self.__dict__["_load"] + max(n, int(weight * (1 << 20)) + n if weight else n)
        if load >= ROW_LIMIT:
            raise CounterOverflowError(
                f"{type(self).__name__} would pass 2**62 rows, or a total weight of 2**42; start a new state, or scale "
                f"the weights down"
            )
        self.__dict__["_load"] = load

    def differences(self, other: object) -> list[str]:
        """Say in words why another state cannot be merged into this one; empty if it can."""
        if not isinstance(other, State) or other.tag != self.tag or type(other) is not type(self):
            return [f"it is a {type(other).__name__}, not a {type(self).__name__}"]
        theirs = other.settings
        found = [
            f"{k} is {v!r} here and {theirs[k]!r} there" for k, v in self.settings.items() if not equal(v, theirs[k])
        ]
        if self.slices != other.slices:
            found.append(f"it has {other.slices} slices, this one {self.slices}")
        return found

    def merge(self, other: Self) -> Self:
        """Add another state of the same settings; `other` stays as it is.

        Raises
        ------
        IncompatibleStateError
            A setting differs; the message names each, and both states are as they were.
        CounterOverflowError
            A counter or a sum would leave its range.
        """
        return self.add(other, self.check_merge(other))

    def add(self, other: State, growth: Growth) -> Self:
        """Merge what `check_merge` has found to fit; this cannot fail."""
        for name, array, rule in other._held():
            if not rule.grows:
                ours = self.need(name)
                rule.carry(COMBINE[rule.rule](ours, array, out=ours))
        self._take_growth(growth)
        load = self.__dict__["_load"] + other.__dict__["_load"]
        self.__dict__["_load"] = load if load < ROW_LIMIT else self._loaded()
        return self

    def check_merge(self, other: State) -> Growth:
        """Raise what `merge` would raise, and change nothing; return what the arrays that grow will take."""
        if other is self:
            raise IncompatibleStateError(
                "merging a state with itself counts its rows twice; merge a copy() if you mean it"
            )
        if found := self.differences(other):
            hint = "; coarsen(bits) brings histograms to the same resolution" if "bits" in " ".join(found) else ""
            raise IncompatibleStateError(f"cannot merge this {type(self).__name__}: {'; '.join(found)}{hint}")
        if self.__dict__["_load"] + other.__dict__["_load"] >= ROW_LIMIT:  # an upper limit of what they hold
            self.settle()
            for name, array, rule in other._held():
                ours = self.__dict__[name]
                if rule.load(array) + (rule.load(ours) if ours is not None else 0) >= ROW_LIMIT:
                    raise CounterOverflowError(
                        f"{type(self).__name__}.{name} would leave its range; both states are as they were"
                    )
        return self._fit(other._rows())

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, State):
            return NotImplemented
        if self.differences(other):
            return False
        a, b = self.arrays, other.arrays
        return a.keys() == b.keys() and all(np.array_equal(a[name], b[name]) for name in a)

    __hash__ = None  # type: ignore[assignment]

    # -- identity and bytes ------------------------------------------------------------------------------------------

    def header(self) -> dict[str, Any]:
        """Describe settings and arrays as plain data: what the bytes format and the digest write."""
        rules = self.rules()
        return {
            "tag": self.tag,
            "settings": self.written,
            "slices": self.slices,
            "arrays": [
                {
                    "name": n,
                    "shape": list(a.shape),
                    "rule": r.rule,
                    "form": r.form,
                    "optional": r.optional,
                    "per": r.per,
                }
                for n, a in self.arrays.items()
                for r in [rules[n]]
            ],
        }

    # -- read-outs that collections widen ------------------------------------------------------------------------------

    def widen(self, other: State) -> Self | None:
        """Make one empty state that serves both, or None if their settings differ in more than read-outs."""
        if type(other) is not type(self):
            return None
        wide: dict[str, Any] = {}
        for f in fields(self):  # type: ignore[arg-type]
            if f.init:
                a, b = getattr(self, f.name), getattr(other, f.name)
                if f.metadata.get("union"):
                    wide[f.name] = tuple(sorted({*a, *b}))
                elif equal(a, b):
                    wide[f.name] = a
                else:
                    return None
        return type(self)(**wide)

    def narrow(self, to: State) -> Self:
        """Return the part of a widened state that `to` asks for, as if it had been kept alone."""
        new = self._with(to.settings) if to.settings != self.settings else self.empty()
        new.__dict__["_slices"] = self.slices
        taken: dict[str, Array] = {}
        for name, array, rule in self._held():
            for axis, extent in enumerate(rule.shape):
                ours, wanted = (getattr(s, extent, None) if isinstance(extent, str) else None for s in (self, to))
                if isinstance(ours, tuple) and ours != wanted:
                    lead = axis + (self.slices is not None and not rule.grows) + (rule.per is not None)
                    array = array.take([ours.index(w) for w in wanted or ()], axis=lead)
            taken[name] = array.copy()
        new._take(taken)
        return new

    def resize(self, slices: int) -> None:
        """Make room for more slices."""
        grown = {}
        held, have = list(self._held()), self.slices or 0
        self.__dict__["_slices"] = slices
        for name, array, rule in held:
            grown[name] = array
            if not rule.grows:
                grown[name] = self._empty(rule)
                grown[name][:have] = array
        self.__dict__.update(grown)

    def clear(self, i: int) -> None:
        """Forget the rows of slice i."""
        for name, array, rule in list(self._held()):
            if not rule.grows:
                array[i] = rule.identity
            elif rule.per is None:
                kept = array[:, 0] != i
                for member, held, its in list(self._held()):
                    if name in (member, its.per):
                        self.__dict__[member] = held[kept]

    # -- slices: the leading axis -----------------------------------------------------------------------------------

    def slice(self, i: int) -> Self:
        """Return slice i of a sliced state as a lone one."""
        new = self.empty()
        taken: dict[str, Array] = {}
        for name, array, rule in self._held():
            if not rule.grows:
                taken[name] = np.array(array[i])  # of one number, too
            else:
                chosen = self.__dict__[rule.per or name][:, 0] == i
                taken[name] = array[chosen] if rule.per else array[chosen, 1:].copy()
        new._take(taken)
        return new

    def regroup(self, to: NDArray[np.int64], slices: int) -> Self:
        """Return a sliced state in which slice i has been added to slice `to[i]`."""
        new = self.empty(slices)
        arrays: dict[str, Array] = {}
        for name, array, rule in self._held():
            if rule.grows:
                arrays[name] = array
                if rule.per is None:
                    arrays[name] = array.copy()
                    arrays[name][:, 0] = to[array[:, 0]]
            else:
                arrays[name] = scatter(rule, array[: len(to)], to, new._empty(rule))
        new._take(arrays)
        if new.grows:
            new.rebind(**canonical(new.rules(), {n: a for n, a, r in new._held() if r.grows}))
        return new


def equal(a: Any, b: Any) -> bool:
    """Whether two settings are the same; NaN is itself."""
    return canonical_json(encode_setting(a)) == canonical_json(encode_setting(b))


def check_arrays(state: State) -> None:
    """Raise StateFormatError unless every array is in canonical form and in range."""
    for name, array, rule in state._held():
        if wrong := rule.broken(array):
            raise StateFormatError(f"{type(state).__name__}.{name} {wrong}")
    held = {n: a for n, a, r in state._held() if r.grows}
    for name, array in held.items():
        per = state.rules()[name].per
        if per is not None and len(array) != len(held.get(per, ())):
            raise StateFormatError(f"{type(state).__name__}.{name} is not as long as {per}")
        if per is None and state.slices is not None and ((array[:, 0] < 0) | (array[:, 0] >= state.slices)).any():
            raise StateFormatError(f"{type(state).__name__}.{name} names a slice that is not there")
    sorted_ = canonical(state.rules(), held)
    if any(not np.array_equal(held[n], sorted_[n]) for n in held):
        raise StateFormatError(f"{type(state).__name__} holds keys that are not sorted and unique")
    state.check()
