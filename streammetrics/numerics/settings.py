"""Settings: the frozen, checked, comparable arguments of states and metrics, declared as class fields."""

from __future__ import annotations

import difflib
import functools
import inspect
import math
import types
import typing
from collections.abc import Callable, Iterable
from dataclasses import MISSING, FrozenInstanceError, dataclass, field, fields
from typing import Any

import numpy as np

__all__ = [
    "Settings",
    "check_missing",
    "check_several",
    "check_whole",
    "decode_setting",
    "encode_setting",
    "is_partition",
    "plain",
    "setting",
    "union",
    "unions",
    "unlike",
    "written_settings",
]


def setting(
    default: Any = MISSING,
    *,
    low: float | None = None,
    high: float | None = None,
    above: float | None = None,
    choices: tuple[Any, ...] | None = None,
    unordered: bool = False,
    operational: bool = False,
    kw_only: bool = True,
    default_from: Callable[[Any, Any], Any] | None = None,
) -> Any:
    """Declare a setting and what it may be.

    Parameters
    ----------
    default : object
        Its value when it is not given.
    low, high : float, optional
        Inclusive limits of a number.
    above : float, optional
        Exclusive lower limit of a number.
    choices : tuple, optional
        The values allowed.
    unordered : bool
        Whether the order of several values means nothing, nor that one is there twice.
    operational : bool
        True for a setting that changes how rows are taken in, never what the state means (`on_invalid`, memory
        limits): not saved, not compared.
    kw_only : bool
        Settings are given by keyword.
    default_from : callable, optional
        Returns the default if it depends on the other settings. It takes the instance, whose other settings are there
        already, and `default`.
    """
    rules = {"low": low, "high": high, "above": above, "choices": choices, "unordered": unordered}
    metadata = {"operational": operational, "rules": rules, "default_from": default_from}
    return field(default=default, kw_only=kw_only, metadata=metadata)


def union(default: tuple[Any, ...], *, kw_only: bool = True) -> Any:
    """Declare a list of read-outs, which a collection widens to the union of what its metrics ask for."""
    return field(default=default, kw_only=kw_only, metadata={"union": True, "rules": {}})


class _Signature:
    """What `help` and notebooks show of a constructor; made when they ask."""

    def __get__(self, instance: object, cls: Any) -> inspect.Signature:
        if cls is Settings or cls.__init__ is not Settings.__init__:  # one of its own
            own = inspect.signature(cls.__init__)
            return own.replace(parameters=[*own.parameters.values()][1:])
        return inspect.Signature(
            [
                inspect.Parameter(
                    f.name,
                    inspect.Parameter.KEYWORD_ONLY if f.kw_only else inspect.Parameter.POSITIONAL_OR_KEYWORD,
                    default=inspect.Parameter.empty if f.default is MISSING else f.default,
                    annotation=f.type,
                )
                for f in sorted(_given(cls), key=lambda f: bool(f.kw_only))
            ]
        )


@typing.dataclass_transform(
    frozen_default=True, kw_only_default=True, eq_default=False, field_specifiers=(setting, union)
)
class Settings:
    """Base of states and metrics: a frozen dataclass whose fields are its settings.

    Constructor and attributes are here once for all: a dataclass compiles its own for each class, and of hundreds that
    would take half of the import.
    """

    __signature__ = _Signature()

    def __init_subclass__(cls, **keywords: Any) -> None:
        super().__init_subclass__(**keywords)
        dataclass(init=False, repr=False, eq=False)(cls)

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        cls: Any = type(self)
        first, defaults, needed, dependent = _constructor(cls)
        if arguments:
            settings = _by_name(cls, first, arguments, settings)
        whole = defaults | settings
        if len(whole) != len(defaults) or not needed <= settings.keys():
            _reject(cls, settings)
        self.__dict__.update(whole)
        for name, default_from in dependent:
            if name not in settings:
                self.__dict__[name] = default_from(self, defaults[name])
        self.__post_init__()

    def __setattr__(self, name: str, value: Any) -> None:
        raise FrozenInstanceError(f"cannot assign to {name!r} of {type(self).__name__}: make another one")

    def __delattr__(self, name: str) -> None:
        raise FrozenInstanceError(f"cannot delete {name!r} of {type(self).__name__}")

    def __post_init__(self) -> None:
        cls: Any = type(self)
        for name, (default, hint, rules) in _declared(cls).items():
            value = getattr(self, name)
            if value is not default:
                once = type(value) in (str, int, bool)  # a float may be -0.0, which is equal to another one
                checked = _once(cls, name, value) if once else _check(cls.__name__, name, value, hint, rules)
                object.__setattr__(self, name, checked)

    @property
    def settings(self) -> dict[str, Any]:
        """The settings by name, without the operational ones."""
        cls: Any = type(self)
        return {f.name: getattr(self, f.name) for f in _compared(cls)}

    def __repr__(self) -> str:
        cls: Any = type(self)
        given = [f"{f.name}={getattr(self, f.name)!r}" for f in _compared(cls) if not _is_default(self, f)]
        return f"{cls.__name__}({', '.join(given)})"


def written_settings(thing: Settings) -> dict[str, Any]:
    """Return the settings that are not at their default, encoded for JSON: headers and digests hold these.

    A later release can then add a setting without changing the digest of existing states. A default never changes.
    """
    cls: Any = type(thing)
    unchanged = {f.name for f in _compared(cls) if _is_default(thing, f)}
    return {name: encode_setting(value) for name, value in thing.settings.items() if name not in unchanged}


@functools.cache
def _compared(cls: Any) -> tuple[Any, ...]:
    """The settings of a class, without the operational ones, as dataclasses declare them."""
    return tuple(f for f in _given(cls) if not f.metadata.get("operational"))


@functools.cache
def _declared(cls: Any) -> dict[str, tuple[Any, Any, dict[str, Any]]]:
    """The settings of a class by name: default, type and what it may be."""
    hints = typing.get_type_hints(cls)
    return {f.name: (f.default, hints[f.name], f.metadata.get("rules", {})) for f in _given(cls)}


@functools.cache
def unions(cls: Any) -> tuple[str, ...]:
    """The settings of a class that are lists of read-outs."""
    return tuple(f.name for f in fields(cls) if f.metadata.get("union"))


@functools.lru_cache(4096, typed=True)
def _once(cls: type, name: str, value: Any) -> Any:
    """Check a text, a whole number or a flag, once: states of the same settings are made all the time."""
    _, hint, rules = _declared(cls)[name]
    return _check(cls.__name__, name, value, hint, rules)


def _is_default(instance: Any, declared: Any) -> bool:
    """Whether a setting is at its default; NaN equals NaN."""
    value, default = getattr(instance, declared.name), declared.default
    default_from = declared.metadata.get("default_from")
    if default_from is not None:
        default = default_from(instance, default)
    return bool(default is value or default == value or (default != default and value != value))


@functools.cache
def _given(cls: Any) -> tuple[Any, ...]:
    """The settings of a class, as dataclasses declare them."""
    return tuple(f for f in fields(cls) if f.init)


@functools.cache
def _constructor(cls: Any) -> tuple[tuple[str, ...], dict[str, Any], frozenset[str], tuple[tuple[str, Any], ...]]:
    """The settings that may be given by position; all defaults; the required ones; and those with a computed default."""
    declared = _given(cls)
    first = tuple(f.name for f in declared if not f.kw_only)
    required = frozenset(f.name for f in declared if f.default is MISSING)
    computed = tuple((f.name, f.metadata["default_from"]) for f in declared if f.metadata.get("default_from"))
    return first, {f.name: f.default for f in declared}, required, computed


def _by_name(cls: type, first: tuple[str, ...], given: tuple[Any, ...], settings: dict[str, Any]) -> dict[str, Any]:
    """All settings by name, those given by position, too."""
    if len(given) > len(first):
        most = f"at most {len(first)} by position ({', '.join(first)})" if first else "none by position"
        raise TypeError(f"{cls.__name__} takes its settings by keyword, {most}; {len(given)} came")
    named = dict(zip(first, given, strict=False))
    for name in named.keys() & settings.keys():
        raise TypeError(f"{cls.__name__} was given {name!r} twice, by position and by keyword")
    return named | settings


def _reject(cls: type, given: dict[str, Any]) -> None:
    _, defaults, needed, _ = _constructor(cls)
    for name in given:
        if name not in defaults:
            close = difflib.get_close_matches(name, defaults, 1)
            hint = f"; did you mean {close[0]!r}?" if close else f"; it has {', '.join(_declared(cls))}"
            raise TypeError(f"{cls.__name__} has no setting {name!r}{hint}")
    missing = [name for name in _declared(cls) if name in needed - given.keys()]
    raise TypeError(f"{cls.__name__} needs {' and '.join(map(repr, missing))}")


def check_missing(owner: str, values: Any) -> tuple[Any, ...]:
    """Return the keys that stand for none, as settings hold them."""
    found: tuple[Any, ...] = _check(owner, "missing_values", values, tuple[int | str | bytes, ...], {"unordered": True})
    return found


def _check(owner: str, name: str, value: Any, hint: Any, rules: dict[str, Any]) -> Any:
    """Return the value in its declared type, or raise saying what was expected."""
    value = plain(value)
    choices = rules.get("choices")
    if choices is not None:
        if not any(value is c or (type(value) is type(c) and value == c) or _both_nan(value, c) for c in choices):
            if isinstance(value, (int, float)) and not isinstance(value, bool) and float(value) in choices:
                return float(value)
            raise ValueError(f"{owner}: {name} must be one of {', '.join(map(repr, choices))}, not {value!r}")
        return value
    allowed = typing.get_args(hint) if _is_union(hint) else (hint,)
    if value is None and type(None) in allowed:
        return None
    for kind in allowed:
        if kind is bool and isinstance(value, bool):
            return value
        if kind in (int, float) and _is_number(value, kind):
            return _in_range(owner, name, kind(value), rules)
        if kind in (str, bytes) and isinstance(value, kind):
            return value
        if _is_list(kind) and isinstance(value, (tuple, list)):
            several = tuple(_check(owner, name, v, typing.get_args(kind)[0], rules) for v in value)
            return as_set(several) if rules.get("unordered") else several
        if kind is Any and isinstance(value, PLAIN):
            return value
    raise TypeError(f"{owner}: {name} must be {_spell(hint)}, not {value!r}")


def as_set(values: Iterable[Any]) -> tuple[Any, ...]:
    """Values whose order means nothing, each once, in the one order in which they are kept."""
    return tuple(sorted(set(values), key=lambda v: (type(v).__name__, v)))


def as_int(value: Any) -> Any:
    """An integer of numpy as one of Python; everything else as it is, for a check to refuse."""
    whole = isinstance(value, np.integer) and not isinstance(value, np.timedelta64)
    return int(value) if whole else value


def check_whole(what: str, value: Any, least: int = 0) -> int:
    """Return a whole number, as one of Python; raise where it is none, or less than it may be."""
    found = as_int(value)
    if type(found) is not int:
        raise TypeError(f"{what} takes a whole number, not {value!r}")
    if found < least:
        raise ValueError(f"{what} takes a whole number from {least}, not {value!r}")
    return found


def is_partition(value: Any) -> bool:
    """Whether it is (i, n), partition i of n."""
    whole = isinstance(value, tuple) and len(value) == 2 and all(type(as_int(x)) is int for x in value)
    return whole and 0 <= value[0] < value[1]


def check_several(what: str, value: Any, kind: str) -> list[Any]:
    """Return what was given as a list, one text as itself; raise where it is neither."""
    if isinstance(value, str):
        return [value]
    if not isinstance(value, Iterable):
        raise TypeError(f"{what} takes {kind}, not {value!r}")
    return list(value)


PLAIN = (int, float, str, bytes, tuple, types.NoneType)
UNPACKS = ("tolist", "to_pylist", "to_list", "as_py")  # of numpy and pandas, pyarrow, polars, and scalars of pyarrow


def plain(value: Any) -> Any:
    """A value as settings hold it, whatever library it is of: its scalars, texts and columns as those of Python.

    So settings that mean the same are equal, and are written and shown alike.
    """
    kind: type = type(value)
    if kind not in PLAIN:
        value = next((getattr(value, name)() for name in UNPACKS if hasattr(value, name)), value)
    if isinstance(value, (list, tuple, range)):
        return tuple(map(plain, value))
    if isinstance(value, str) and type(value) is not str:
        return str.__str__(value)
    return value


def _is_number(value: Any, kind: type) -> bool:
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        return False
    return kind is float or isinstance(value, int) or value.is_integer()


def _is_union(hint: Any) -> bool:
    return typing.get_origin(hint) in (typing.Union, types.UnionType)


def _is_list(hint: Any) -> bool:
    return typing.get_origin(hint) is tuple


def _both_nan(a: Any, b: Any) -> bool:
    return isinstance(a, float) and isinstance(b, float) and a != a and b != b


def _in_range(owner: str, name: str, value: float, rules: dict[str, Any]) -> float:
    low, high, above = rules.get("low"), rules.get("high"), rules.get("above")
    ok = math.isfinite(value) and (low is None or value >= low) and (high is None or value <= high)
    if not ok or (above is not None and value <= above):
        limits = [f"at least {_number(low)}"] if low is not None else []
        limits += [f"more than {_number(above)}"] if above is not None else []
        limits += [f"at most {_number(high)}"] if high is not None else []
        raise ValueError(f"{owner}: {name} must be {' and '.join(limits) or 'finite'}, not {value!r}")
    return value


def _number(limit: float) -> str:
    return f"{int(limit):,}" if limit == int(limit) else f"{limit:g}"


def _spell(hint: Any) -> str:
    if _is_union(hint):
        return " or ".join(map(_spell, sorted(typing.get_args(hint), key=_is_list)))
    if _is_list(hint):
        return f"a list of {_spell(typing.get_args(hint)[0])}"
    return getattr(hint, "__name__", str(hint)).replace("NoneType", "None")


def encode_setting(value: Any) -> Any:
    """Write a setting as JSON holds it: NaN by name, bytes in hexadecimal, tuples as lists."""
    if isinstance(value, float) and value != value:
        return {"float": "nan"}
    if isinstance(value, bytes):
        return {"bytes": value.hex()}
    if isinstance(value, tuple):
        return [encode_setting(v) for v in value]
    return value


def decode_setting(value: Any) -> Any:
    """Read what `encode_setting` wrote."""
    if isinstance(value, dict):
        if value == {"float": "nan"}:
            return float("nan")
        if list(value) == ["bytes"]:
            return bytes.fromhex(value["bytes"])
        raise ValueError("unknown form of setting")
    return tuple(decode_setting(v) for v in value) if isinstance(value, list) else value


def unlike(ours: dict[str, Any], theirs: dict[str, Any]) -> dict[str, tuple[str, str]]:
    """Return the settings that differ, as texts; one that is not written is at its default."""
    both = {
        n: tuple(repr(decode_setting(s[n])) if n in s else "its default" for s in (ours, theirs))
        for n in {**ours, **theirs}
    }
    return {n: (a, b) for n, (a, b) in both.items() if a != b}
