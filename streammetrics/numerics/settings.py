"""Settings: the arguments of states and metrics, declared as fields of their classes.

Settings are validated when an object is created, and never change afterwards.
"""

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
    "check_integer",
    "check_list",
    "check_missing_values",
    "decode_setting",
    "encode_changed_settings",
    "encode_setting",
    "find_differing_settings",
    "is_partition",
    "setting",
    "to_python_value",
    "union",
    "union_settings",
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
    """Declare a setting, with its default and its valid values.

    Parameters
    ----------
    default : object
        The value if the setting is not passed.
    low, high : float, optional
        Inclusive bounds of a number.
    above : float, optional
        Exclusive lower bound of a number.
    choices : tuple, optional
        The allowed values.
    unordered : bool
        Whether the setting is a list whose order and duplicates have no meaning. The list is then sorted, and duplicates
        are dropped.
    operational : bool
        Whether the setting, such as `on_invalid` or a memory limit, only changes how rows are processed, not the meaning
        of the state. Operational settings are neither saved with the state nor compared.
    kw_only : bool
        Whether the setting is keyword-only.
    default_from : callable, optional
        A function that computes the default from other settings. It takes the instance, whose other settings are
        already set, and `default`.
    """
    rules = {"low": low, "high": high, "above": above, "choices": choices, "unordered": unordered}
    metadata = {"operational": operational, "rules": rules, "default_from": default_from}
    return field(default=default, kw_only=kw_only, metadata=metadata)


def union(default: tuple[Any, ...], *, kw_only: bool = True) -> Any:
    """Declare a state setting that lists what the state prepares for its metrics, such as the thresholds of a curve.

    The metrics in a collection can share a state. The collection then passes to the state the union of the lists that
    its metrics need.
    """
    return field(default=default, kw_only=kw_only, metadata={"union": True, "rules": {}})


class _Signature:
    """The signature that `help` and notebooks show for a constructor, built on access from the dataclass fields."""

    def __get__(self, instance: object, cls: Any) -> inspect.Signature:
        # If the class defines its own constructor, show the signature of that constructor.
        if cls is Settings or cls.__init__ is not Settings.__init__:
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
                for f in sorted(_setting_fields(cls), key=lambda f: bool(f.kw_only))
            ]
        )


@typing.dataclass_transform(
    frozen_default=True, kw_only_default=True, eq_default=False, field_specifiers=(setting, union)
)
class Settings:
    """The base class for states and metrics: an immutable dataclass whose fields are its settings.

    All subclasses share the constructor of this class. Normal dataclasses would each compile their own constructor,
    which would take half of the import time for hundreds of classes.
    """

    __signature__ = _Signature()

    def __init_subclass__(cls, **keywords: Any) -> None:
        super().__init_subclass__(**keywords)
        dataclass(init=False, repr=False, eq=False, match_args=False)(cls)
        # Delete the defaults from the class, because `help` would list them twice. The class does not need them: each
        # instance stores all of its settings.
        for declared in fields(cls):  # type: ignore[arg-type]
            has_default = declared.default is not MISSING
            if has_default and vars(cls).get(declared.name, MISSING) is declared.default:
                delattr(cls, declared.name)

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
        raise FrozenInstanceError(
            f"cannot change {name!r} of {type(self).__name__}; create a new object with other settings"
        )

    def __delattr__(self, name: str) -> None:
        raise FrozenInstanceError(f"cannot delete {name!r} of {type(self).__name__}; its settings cannot change")

    def __post_init__(self) -> None:
        cls: Any = type(self)
        for name, (default, hint, rules) in _setting_rules(cls).items():
            value = getattr(self, name)
            if value is not default:
                # Do not cache the checked values of floats: -0.0 and 0.0 are different settings, but equal cache keys.
                cached = type(value) in (str, int, bool)
                checked = _check_cached(cls, name, value) if cached else _check(cls.__name__, name, value, hint, rules)
                object.__setattr__(self, name, checked)

    @property
    def settings(self) -> dict[str, Any]:
        """The settings, keyed by name, except those that only change how rows are processed (operational settings)."""
        cls: Any = type(self)
        return {f.name: getattr(self, f.name) for f in _identity_fields(cls)}

    def __repr__(self) -> str:
        cls: Any = type(self)
        changed = [f"{f.name}={getattr(self, f.name)!r}" for f in _identity_fields(cls) if not _is_default(self, f)]
        return f"{cls.__name__}({', '.join(changed)})"


def encode_changed_settings(thing: Settings) -> dict[str, Any]:
    """Return the settings that differ from their defaults, encoded for JSON, for state headers and digests.

    Settings with default values are left out, so that a later release can add a setting without changing the digests of
    existing states. For the same reason, defaults never change.
    """
    cls: Any = type(thing)
    unchanged = {f.name for f in _identity_fields(cls) if _is_default(thing, f)}
    return {name: encode_setting(value) for name, value in thing.settings.items() if name not in unchanged}


@functools.cache
def _identity_fields(cls: Any) -> tuple[Any, ...]:
    """Return the dataclass fields of the settings of a class, except operational settings (see `setting`)."""
    return tuple(f for f in _setting_fields(cls) if not f.metadata.get("operational"))


@functools.cache
def _setting_rules(cls: Any) -> dict[str, tuple[Any, Any, dict[str, Any]]]:
    """Return (default, type hint, rules) for each setting of a class, by name; the rules are bounds and choices."""
    hints = typing.get_type_hints(cls)
    return {f.name: (f.default, hints[f.name], f.metadata.get("rules", {})) for f in _setting_fields(cls)}


@functools.cache
def union_settings(cls: Any) -> tuple[str, ...]:
    """Return the names of the settings of a class that are declared by `union`."""
    return tuple(f.name for f in fields(cls) if f.metadata.get("union"))


@functools.lru_cache(4096, typed=True)
def _check_cached(cls: type, name: str, value: Any) -> Any:
    """Check the value of a setting, and cache the result, because many states are created with the same settings."""
    _, hint, rules = _setting_rules(cls)[name]
    return _check(cls.__name__, name, value, hint, rules)


def _is_default(instance: Any, declared: Any) -> bool:
    """Return whether a setting has its default value; NaN counts as equal to NaN."""
    value, default = getattr(instance, declared.name), declared.default
    default_from = declared.metadata.get("default_from")
    if default_from is not None:
        default = default_from(instance, default)
    return bool(default is value or default == value or (default != default and value != value))


@functools.cache
def _setting_fields(cls: Any) -> tuple[Any, ...]:
    """Return the dataclass fields of a class that are settings, including operational settings (see `setting`)."""
    return tuple(f for f in fields(cls) if f.init)


@functools.cache
def _constructor(cls: Any) -> tuple[tuple[str, ...], dict[str, Any], frozenset[str], tuple[tuple[str, Any], ...]]:
    """Return the names and defaults that the constructor of a class needs.

    Returns
    -------
    tuple
        The names of positional settings, the defaults (keyed by name), the names of required settings, and a
        pair (name, function) for each setting whose default depends on other settings.
    """
    declared = _setting_fields(cls)
    first = tuple(f.name for f in declared if not f.kw_only)
    required = frozenset(f.name for f in declared if f.default is MISSING)
    computed = tuple((f.name, f.metadata["default_from"]) for f in declared if f.metadata.get("default_from"))
    return first, {f.name: f.default for f in declared}, required, computed


def _by_name(cls: type, first: tuple[str, ...], values: tuple[Any, ...], settings: dict[str, Any]) -> dict[str, Any]:
    """Return all settings by name, including those passed by position; raise TypeError if a setting is passed twice.

    `first` contains the names of the positional settings, `values` the values passed by position, and `settings` the
    values passed by name.
    """
    if len(values) > len(first):
        if first:
            raise TypeError(
                f"{cls.__name__} takes only {', '.join(first)} by position, but {len(values)} values were passed; "
                f"pass other settings by keyword"
            )
        raise TypeError(
            f"{cls.__name__} takes its settings by keyword: {', '.join(f'{n}=' for n in _setting_rules(cls))}"
        )
    named = dict(zip(first, values, strict=False))
    for name in named.keys() & settings.keys():
        raise TypeError(f"{cls.__name__}: {name!r} was passed twice, by position and by keyword; pass it once")
    return named | settings


_USE_LOGITS, _NO_THRESHOLDS = 'use scale="logit"', "leave it out, because every score is a threshold"
ELSEWHERE: dict[str, tuple[str | None, str]] = {
    "from_logits": ("scale", _USE_LOGITS),
    "logits": ("scale", _USE_LOGITS),
    "top_k": ("k", "use k="),
    "n_classes": ("num_classes", "use num_classes="),
    "task": ("num_labels", "leave it out; pass num_classes= for several classes, or num_labels= for several labels"),
    "thresholds": ("exact", _NO_THRESHOLDS),
    "num_thresholds": ("exact", _NO_THRESHOLDS),
    "pos_label": (None, "pass pos_label= to Task, as in sm.MetricCollection(sm.Task(metric, pos_label=...))"),
    "soft_labels": (None, "LogLoss, NormalizedEntropy, BrierScore, Calibration and CTR support soft labels"),
}
"""Remedies for settings that a class lacks, keyed by setting name.

Each value is the setting that the class must have for the remedy to apply (None if it always applies), and the remedy.
"""


def _reject(cls: type, values: dict[str, Any]) -> None:
    _, defaults, needed, _ = _constructor(cls)
    for name in values:
        if name not in defaults:
            own, instead = ELSEWHERE.get(name, ("", ""))
            close = difflib.get_close_matches(name, defaults, 1)
            if own is None or own in defaults:
                hint = f"; {instead}"
            else:
                hint = (
                    f"; did you mean {close[0]!r}?" if close else f"; its settings are {', '.join(_setting_rules(cls))}"
                )
            raise TypeError(f"{cls.__name__} has no setting {name!r}{hint}")
    missing = [name for name in _setting_rules(cls) if name in needed - values.keys()]
    raise TypeError(
        f"{cls.__name__} needs {' and '.join(map(repr, missing))}; pass {', '.join(f'{n}=' for n in missing)}"
    )


def check_missing_values(owner: str, values: Any) -> tuple[Any, ...]:
    """Check and convert the setting `missing_values`: the values, such as -1, that stand for a missing key."""
    keys: tuple[Any, ...] = _check(owner, "missing_values", values, tuple[int | str | bytes, ...], {"unordered": True})
    return keys


def _check(owner: str, name: str, value: Any, hint: Any, rules: dict[str, Any]) -> Any:
    """Convert a value to the declared type of a setting, or raise an error that says what was expected.

    Parameters
    ----------
    owner, name : str
        The names of the class and of the setting, for the error message.
    value : object
        The value that was passed.
    hint : type
        The declared type of the setting.
    rules : dict
        The bounds and choices of the setting.
    """
    value = to_python_value(value)
    choices = rules.get("choices")
    if choices is not None:
        if not any(value is c or (type(value) is type(c) and value == c) or _both_nan(value, c) for c in choices):
            # Accept an int such as 1 for the choice 1.0.
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
            return _check_range(owner, name, kind(value), rules)
        if kind in (str, bytes) and isinstance(value, kind):
            return value
        if _is_list(kind) and isinstance(value, (tuple, list)):
            several = tuple(_check(owner, name, v, typing.get_args(kind)[0], rules) for v in value)
            return to_sorted_unique(several) if rules.get("unordered") else several
        if kind is Any and isinstance(value, PLAIN):
            return value
    raise TypeError(f"{owner}: {name} must be {_describe_type(hint)}, not {value!r}")


def to_sorted_unique(values: Iterable[Any]) -> tuple[Any, ...]:
    """Sort values and drop duplicates, for settings whose order has no meaning."""
    return tuple(sorted(set(values), key=lambda v: (type(v).__name__, v)))


def to_python_int(value: Any) -> Any:
    """Convert a numpy integer to a Python integer; return any other value unchanged, for later checks to reject."""
    whole = isinstance(value, np.integer) and not isinstance(value, np.timedelta64)
    return int(value) if whole else value


def check_integer(what: str, value: Any, least: int = 0) -> int:
    """Convert an integer to a Python integer; raise an error if the value is not an integer, or is below `least`."""
    number = to_python_int(value)
    if type(number) is not int:
        raise TypeError(f"{what} takes a whole number, not {value!r}")
    if number < least:
        raise ValueError(f"{what} takes a whole number of at least {least}, not {value!r}")
    return number


def is_partition(value: Any) -> bool:
    """Return whether a value is a pair of integers (i, n) with 0 <= i < n, denoting partition i of n."""
    whole = isinstance(value, tuple) and len(value) == 2 and all(type(to_python_int(x)) is int for x in value)
    return whole and 0 <= value[0] < value[1]


def check_list(what: str, value: Any, kind: str) -> list[Any]:
    """Convert an iterable to a list, and a string to a list of one string; raise TypeError for other values.

    `what` is the name of the argument, and `kind` describes the expected values in the error.
    """
    if isinstance(value, str):
        return [value]
    if not isinstance(value, Iterable):
        raise TypeError(f"{what} takes {kind}, not {value!r}")
    return list(value)


PLAIN = (int, float, str, bytes, tuple, types.NoneType)
# The methods that convert numpy and pandas objects, pyarrow columns, polars columns and pyarrow scalars, in that order,
# to Python values. `to_python_value` calls the first one that an object has.
UNPACKS = ("tolist", "to_pylist", "to_list", "as_py")


def to_python_value(value: Any) -> Any:
    """Convert scalars, strings and columns from numpy, pandas, polars or pyarrow to plain Python types.

    A setting is then compared, saved and displayed in the same way, whichever of these types it was passed as.
    """
    kind: type = type(value)
    if kind not in PLAIN:
        value = next((getattr(value, name)() for name in UNPACKS if hasattr(value, name)), value)
    if isinstance(value, (list, tuple, range)):
        return tuple(map(to_python_value, value))
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


def _check_range(owner: str, name: str, value: float, rules: dict[str, Any]) -> float:
    low, high, above = rules.get("low"), rules.get("high"), rules.get("above")
    ok = math.isfinite(value) and (low is None or value >= low) and (high is None or value <= high)
    if not ok or (above is not None and value <= above):
        limits = [f"at least {_format_limit(low)}"] if low is not None else []
        limits += [f"more than {_format_limit(above)}"] if above is not None else []
        limits += [f"at most {_format_limit(high)}"] if high is not None else []
        raise ValueError(f"{owner}: {name} must be {' and '.join(limits) or 'finite'}, not {value!r}")
    return value


def _format_limit(limit: float) -> str:
    return f"{int(limit):,}" if limit == int(limit) else f"{limit:g}"


def _describe_type(hint: Any) -> str:
    if _is_union(hint):
        return " or ".join(map(_describe_type, sorted(typing.get_args(hint), key=_is_list)))
    if _is_list(hint):
        return f"a list of {_describe_type(typing.get_args(hint)[0])}"
    return getattr(hint, "__name__", str(hint)).replace("NoneType", "None")


def encode_setting(value: Any) -> Any:
    """Return a setting in its JSON form: NaN as ``{"float": "nan"}``, bytes as hexadecimal text, and tuples as lists."""
    if isinstance(value, float) and value != value:
        return {"float": "nan"}
    if isinstance(value, bytes):
        return {"bytes": value.hex()}
    if isinstance(value, tuple):
        return [encode_setting(v) for v in value]
    return value


def decode_setting(value: Any) -> Any:
    """Convert the JSON form that `encode_setting` returns back to a setting."""
    if isinstance(value, dict):
        if value == {"float": "nan"}:
            return float("nan")
        if list(value) == ["bytes"]:
            return bytes.fromhex(value["bytes"])
        raise ValueError("a setting is stored in an unknown form")
    return tuple(decode_setting(v) for v in value) if isinstance(value, list) else value


def find_differing_settings(ours: dict[str, Any], theirs: dict[str, Any]) -> dict[str, tuple[str, str]]:
    """Compare two dicts of encoded settings, and return both values of each setting that differs, as text.

    A setting that is missing from one dict has its default value there, which is shown as "its default".
    """
    both = {
        n: tuple(repr(decode_setting(s[n])) if n in s else "its default" for s in (ours, theirs))
        for n in {**ours, **theirs}
    }
    return {n: (a, b) for n, (a, b) in both.items() if a != b}
