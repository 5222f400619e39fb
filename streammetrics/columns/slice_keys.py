"""Keys of slices of every kind: besides integers and text booleans, dates, timestamps and decimals."""

from __future__ import annotations

import datetime
from decimal import Decimal
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import InvalidInputError
from ..numerics.keys import raw as held
from .convert import arrow_values, first_of, missing, one_column
from .keys import key_column, or_none, read_column, wrong_kind

__all__ = ["read_slice_keys"]

Array = NDArray[Any]
Read = tuple[str, Any]

MICROSECONDS = {"s": 1_000_000, "ms": 1000, "us": 1}
"""Of units of which numpy takes ten times as long."""

OBJECTS: tuple[tuple[str, type | tuple[type, ...]], ...] = (
    ("bool", (bool, np.bool_)),
    ("timestamp", datetime.datetime),
    ("date", datetime.date),
    ("decimal", Decimal),
)


def read_slice_keys(raw: Any, name: str, *, whole: bool = True) -> Read:
    """Return the kind of keys, and integers or (texts, index), with a mask of missing rows; "" and n if all are null.

    Dates are days, timestamps microseconds since 1970, in UTC unless they say otherwise; decimals are text. A finer
    timestamp is refused, unless it need not be `whole`: then it counts as the microsecond that it lies in.
    """
    raw = key_column(raw, name)
    found = (_from_numpy if isinstance(raw, (list, tuple, np.ndarray)) else _from_arrow)(raw, name, whole)
    return read_column(raw, name) if found is None else or_none(found)


def _from_arrow(raw: Any, name: str, whole: bool) -> Read | None:
    import pyarrow as pa

    kind = raw.type
    if pa.types.is_dictionary(kind) and not _is_plain(kind.value_type):
        raw, kind = raw.cast(kind.value_type), kind.value_type
    if pa.types.is_boolean(kind):
        return _integers("bool", raw, pa.uint8())
    if pa.types.is_date(kind):
        (values, missing) = _integers("date", raw.cast(pa.date32()), pa.int32())[1]
        return _times(values.view("M8[D]"), missing, name, whole)
    if pa.types.is_timestamp(kind):
        (values, missing) = _integers("timestamp", raw, pa.int64())[1]
        return _times(values.view(f"M8[{kind.unit}]"), missing, name, whole)
    if pa.types.is_decimal(kind):
        if raw.null_count == len(raw):
            return "", len(raw)
        return _from_objects(np.array([*raw.to_pylist(), None], object)[:-1], name)
    return None


def _is_plain(kind: Any) -> bool:
    """Whether a dictionary is of what `read_column` takes as it is."""
    import pyarrow as pa

    return bool(pa.types.is_integer(kind) or "string" in str(kind) or "binary" in str(kind))


def _times(values: Array, missing: Any, name: str, whole: bool) -> Read:
    """Days or microseconds, of the years 1 to 9999."""
    unit = np.datetime_data(values.dtype)[0]
    days = unit in ("Y", "M", "W", "D")
    there = values if missing is None else values[~missing]
    if unit not in ("ns", "ps", "fs", "as") and len(there):  # which hold no other years, where they are asked
        low, high = (np.datetime64(end).astype(values.dtype) for end in ("0001-01-01T00:00:00", "9999-12-31T23:59:59"))
        if not (low <= there.min() and there.max() <= high):
            raise InvalidInputError(f"{name}: dates and times that are keys are of the years 1 to 9999", column=name)
    if unit in MICROSECONDS:
        numbers = values.astype(np.int64) * MICROSECONDS[unit]
    else:
        numbers = values.astype("M8[D]" if days else "M8[us]").astype(np.int64)
    if whole and unit == "ns" and (finer := (numbers * 1000 != values.astype(np.int64)) & ~np.isnat(values)).any():
        row = int(finer.argmax())
        raise InvalidInputError(
            f"{name}: timestamps that are keys have whole microseconds, found {values[row]!s} in row {row:,}; round them "
            f"first",
            column=name,
            row=row,
        )
    return "date" if days else "timestamp", (numbers if missing is None else np.where(missing, 0, numbers), missing)


def _integers(kind: str, raw: Any, to: Any) -> Read:
    missing = arrow_values(raw.is_null()) if raw.null_count else None
    values = raw.cast(to)
    return kind, (arrow_values(values.fill_null(0) if raw.null_count else values).astype(np.int64), missing)


def _from_numpy(raw: Any, name: str, whole: bool) -> Read | None:
    if isinstance(raw, (list, tuple)):
        first = first_of(raw)
        if isinstance(first, np.datetime64):
            return _from_numpy(_datetimes(raw, name), name, whole)
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
        return _times(raw, gone if gone.any() else None, name, whole)
    return _from_objects(raw, name) if raw.dtype == object else None


def _datetimes(raw: Any, name: str) -> Array:
    """Of a list of numpy's dates and times the array."""
    values = np.array([*raw, None], object)[:-1]
    gone = missing(values, len(values))
    if strange := {type(v).__name__ for v in values[~gone]} - {"datetime64"}:
        raise wrong_kind(name, " and ".join(["datetime64", *sorted(strange)]))
    return np.array([np.datetime64("NaT") if m else v for v, m in zip(values, gone, strict=True)])


def _from_objects(values: Array, name: str) -> Read | None:
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
