"""Keys of slices of every kind: besides integers and text booleans, dates, timestamps and decimals."""

from __future__ import annotations

import datetime
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import InvalidInputError
from ..numerics.keys import RANGES
from ..numerics.keys import raw as held
from .convert import arrow_values, first_of, missing, one_column, text_of
from .keys import key_column, or_none, read_column, wrong_kind

__all__ = ["read_slice_keys"]

Array = NDArray[Any]
Read = tuple[str, Any]

UNITS: dict[str, tuple[str, int | Fraction]] = {
    "Y": ("M", 12), "M": ("M", 1), "W": ("D", 7), "D": ("D", 1), "h": ("us", 3_600_000_000), "m": ("us", 60_000_000),
    "s": ("us", 1_000_000), "ms": ("us", 1000), "us": ("us", 1), "ns": ("us", Fraction(1, 1000)),
    "ps": ("us", Fraction(1, 10**6)), "fs": ("us", Fraction(1, 10**9)), "as": ("us", Fraction(1, 10**12)),
}  # fmt: skip
"""Numpy's units in months, days or microseconds. Reckoned here: numpy takes ten times as long, and says no overflow."""

ENDS = {"M": (-1969 * 12, 8030 * 12 - 1), "D": RANGES["date"], "us": RANGES["timestamp"]}
"""The years 1 to 9999 in each."""

DAY = 86_400_000
"""Milliseconds."""

OBJECTS: tuple[tuple[str, type | tuple[type, ...]], ...] = (
    ("bool", (bool, np.bool_)),
    ("timestamp", datetime.datetime),
    ("date", datetime.date),
    ("decimal", Decimal),
)


def read_slice_keys(raw: Any, name: str, *, exact: bool = True) -> Read:
    """Return the kind of keys, and integers or (texts, index), with a mask of missing rows; "" and n if all are null.

    Dates are days, timestamps microseconds since 1970, in UTC unless they say otherwise; decimals are text. A finer
    timestamp is refused, unless it need not be `exact`: then it counts as the microsecond that it lies in, and dates,
    timestamps and integers that no key could be are returned as others that are beyond its range.
    """
    raw = key_column(raw, name)
    found = (_from_numpy if isinstance(raw, (list, tuple, np.ndarray)) else _from_arrow)(raw, name, exact)
    return read_column(raw, name, exact) if found is None else or_none(found)


def _from_arrow(raw: Any, name: str, exact: bool) -> Read | None:
    import pyarrow as pa

    kind = raw.type
    if pa.types.is_dictionary(kind) and not _is_plain(kind.value_type):
        raw, kind = raw.cast(kind.value_type), kind.value_type
    if pa.types.is_boolean(kind):
        return _integers("bool", raw, pa.uint8())
    if pa.types.is_date32(kind):
        (values, missing) = _integers("date", raw, pa.int32())[1]
        return _times(values.view("M8[D]"), missing, name, exact)
    if pa.types.is_date64(kind):
        (values, missing) = _integers("date", raw, pa.int64())[1]
        _refuse_any(values % DAY != 0, "dates are whole days", values.view("M8[ms]"), name)
        return _times((values // DAY).view("M8[D]"), missing, name, exact)
    if pa.types.is_timestamp(kind):
        (values, missing) = _integers("timestamp", raw, pa.int64())[1]
        return _times(values.view(f"M8[{kind.unit}]"), missing, name, exact)
    if pa.types.is_decimal(kind):
        if raw.null_count == len(raw):
            return "", len(raw)
        return _from_objects(np.array([*raw.to_pylist(), None], object)[:-1], name, exact)
    return None


def _is_plain(kind: Any) -> bool:
    """Whether a dictionary is of what `read_column` takes as it is."""
    import pyarrow as pa

    return bool(pa.types.is_integer(kind) or "string" in str(kind) or "binary" in str(kind))


def _times(values: Array, missing: Any, name: str, exact: bool) -> Read:
    """Days or microseconds, of the years 1 to 9999."""
    if not len(values) or (missing is not None and missing.all()):  # of which numpy may know no unit
        return "", len(values)
    unit, count = np.datetime_data(values.dtype)
    if unit not in UNITS:
        raise wrong_kind(name, f"{values.dtype.name} without a unit")
    base, each = UNITS[unit]
    up, down = Fraction(each * count).as_integer_ratio()
    given = values.view(np.int64) if missing is None else np.where(missing, 0, values.view(np.int64))
    low, high = -(-ENDS[base][0] * down // up), ((ENDS[base][1] + 1) * down - 1) // up
    if not (low <= int(given.min()) and int(given.max()) <= high):
        if exact:
            _refuse_any((given < low) | (given > high), YEARS, values, name)
        given = np.clip(given, max(low - 1, SMALLEST), min(high + 1, LARGEST))
    whole = given if down == 1 else given // down
    numbers = whole * up
    if down > 1 and (exact or up > 1):
        rest = given - whole * down
        if exact:
            _refuse_any(rest != 0, WHOLE, values, name, ROUND)
        else:
            numbers += rest * up // down
    if base == "M":
        numbers = numbers.view("M8[M]").astype("M8[D]").view(np.int64)
    return "timestamp" if base == "us" else "date", (numbers, missing)


YEARS = "dates and times that are keys are of the years 1 to 9999"
WHOLE, ROUND = "timestamps that are keys have whole microseconds", "; round them first"
SMALLEST, LARGEST = int(np.iinfo(np.int64).min), int(np.iinfo(np.int64).max)


def _refuse_any(wrong: NDArray[np.bool_], rule: str, values: Array, name: str, cure: str = "") -> None:
    """Raise if any row breaks a rule, naming the first and how many there are."""
    if not wrong.any():
        return
    row, n = int(wrong.argmax()), int(wrong.sum())
    more = f" ({n:,} bad rows of {len(wrong):,} in this batch)" if n > 1 else ""
    raise InvalidInputError(
        f"{name}: {rule}, found {text_of(values[row])} in row {row:,}{more}{cure}", column=name, row=row, count=n
    )


def _integers(kind: str, raw: Any, to: Any) -> Read:
    missing = arrow_values(raw.is_null()) if raw.null_count else None
    values = raw.cast(to)
    return kind, (arrow_values(values.fill_null(0) if raw.null_count else values).astype(np.int64), missing)


def _from_numpy(raw: Any, name: str, exact: bool) -> Read | None:
    if isinstance(raw, (list, tuple)):
        first = first_of(raw)
        if isinstance(first, np.datetime64):
            return _from_numpy(_datetimes(raw, name), name, exact)
        if not isinstance(first, (bool, np.bool_, datetime.date, Decimal)):
            return None
        raw = np.array([*raw, None], object)[:-1]
    raw = one_column(raw)
    if raw.ndim != 1:
        return None
    if raw.dtype.kind == "b":
        return "bool", (raw.astype(np.int64), None)
    if raw.dtype.kind == "M":
        gone = np.isnat(raw)
        return _times(raw, gone if gone.any() else None, name, exact)
    return _from_objects(raw, name, exact) if raw.dtype == object else None


def _datetimes(raw: Any, name: str) -> Array:
    """Of a list of numpy's dates and times the array."""
    values = np.array([*raw, None], object)[:-1]
    gone = missing(values, len(values))
    if strange := {type(v).__name__ for v in values[~gone]} - {"datetime64"}:
        raise wrong_kind(name, " and ".join(["datetime64", *sorted(strange)]))
    # numpy deprecates arrays of a unit and a NaT without one
    none = np.array("NaT", values[~gone][0].dtype if not gone.all() else "M8[s]")[()]
    return np.array([none if m else v for v, m in zip(values, gone, strict=True)])


def _from_objects(values: Array, name: str, exact: bool) -> Read | None:
    """Read objects of one of the kinds above; None if they are none, or of several."""
    if not isinstance(first_of(values), (bool, np.bool_, datetime.date, Decimal)):
        return None
    gone = missing(values, len(values))
    there = values[~gone]
    kind = next((k for k, types in OBJECTS if len(there) and all(isinstance(v, types) for v in there)), None)
    if kind is None:
        return None
    words = [_word(v, name) for v in there]
    if {k for k, _ in words} != {kind}:  # dates among timestamps
        return None
    if kind == "timestamp" and exact:
        finer = np.zeros(len(values), bool)
        finer[~gone] = [getattr(v, "nanosecond", 0) != 0 for v in there]  # of pandas
        _refuse_any(finer, WHOLE, values, name, ROUND)
    mask = gone if gone.any() else None
    if kind != "decimal":
        out = np.zeros(len(values), np.int64)
        out[~gone] = [w for _, w in words]
        return kind, (out, mask)
    distinct = sorted({w for _, w in words})
    number = {w: i for i, w in enumerate(distinct)}
    index = np.zeros(len(values), np.int64)
    index[~gone] = [number[w] for _, w in words]
    ends = np.cumsum([0, *map(len, distinct)], dtype=np.int64)
    return kind, ((np.frombuffer(b"".join(distinct), np.uint8), ends), index, mask)


def _word(value: Any, name: str) -> tuple[str, Any]:
    found = held(value)
    if found is None:
        raise wrong_kind(name, f"{value!r}, which is infinite")
    return found
