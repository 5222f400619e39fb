"""Read key columns of every kind: not only integers and strings, but also booleans, dates, timestamps and decimals."""

from __future__ import annotations

import datetime
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import InvalidInputError
from ..numerics.slice_keys import RANGES
from ..numerics.slice_keys import to_stored_key as parse_key
from .convert import arrow_values, find_first_value, find_missing, format_value, squeeze_column
from .keys import key_column, kind_error, normalize_all_null, read_column

__all__ = ["read_slice_column", "read_slice_keys"]

Array = NDArray[Any]
KindAndContent = tuple[str, Any]

UNITS: dict[str, tuple[str, int | Fraction]] = {
    "Y": ("M", 12), "M": ("M", 1), "W": ("D", 7), "D": ("D", 1), "h": ("us", 3_600_000_000), "m": ("us", 60_000_000),
    "s": ("us", 1_000_000), "ms": ("us", 1000), "us": ("us", 1), "ns": ("us", Fraction(1, 1000)),
    "ps": ("us", Fraction(1, 10**6)), "fs": ("us", Fraction(1, 10**9)), "as": ("us", Fraction(1, 10**12)),
}  # fmt: skip
"""For each unit of numpy times, the unit to convert to (months, days or microseconds) and the factor.

numpy itself could do the conversion, but it takes ten times as long and does not detect overflow.
"""

ENDS = {"M": (-1969 * 12, 8030 * 12 - 1), "D": RANGES["date"], "us": RANGES["timestamp"]}
"""The first and last value of the years 1 to 9999, counted from 1970, in months, days and microseconds."""

DAY = 86_400_000
"""The number of milliseconds in a day."""

OBJECTS: tuple[tuple[str, type | tuple[type, ...]], ...] = (
    ("bool", (bool, np.bool_)),
    ("timestamp", datetime.datetime),
    ("date", datetime.date),
    ("decimal", Decimal),
)


def read_slice_keys(raw: Any, name: str, *, exact: bool = True) -> KindAndContent:
    """Return the kind and content of a key column, as `read_keys` does, but for every kind of key.

    Dates become days since 1970, and timestamps microseconds since 1970. Timestamps without a time zone are
    interpreted as UTC. Decimals become strings. With `exact`, a timestamp with nanoseconds or a value outside the range
    of keys (such as a date in the year 10000) raises InvalidInputError. Without `exact`, timestamps are rounded down to
    microseconds, and a value outside the range of keys may change to another value outside the range.
    """
    return read_slice_column(key_column(raw, name), name, exact=exact)


def read_slice_column(column: Any, name: str, *, exact: bool = True) -> KindAndContent:
    """Return the same as `read_slice_keys`, but for a column that `key_column` has already converted."""
    keys = (_from_numpy if isinstance(column, (list, tuple, np.ndarray)) else _from_arrow)(column, name, exact)
    return read_column(column, name, exact) if keys is None else normalize_all_null(keys)


def _from_arrow(raw: Any, name: str, exact: bool) -> KindAndContent | None:
    import pyarrow as pa

    kind = raw.type
    if pa.types.is_dictionary(kind) and not _is_plain(kind.value_type):
        raw, kind = raw.cast(kind.value_type), kind.value_type
    if pa.types.is_boolean(kind):
        return _convert_integers("bool", raw, pa.uint8())
    if pa.types.is_date32(kind):
        (values, missing) = _convert_integers("date", raw, pa.int32())[1]
        return _convert_times(values.view("M8[D]"), missing, name, exact)
    if pa.types.is_date64(kind):
        (values, missing) = _convert_integers("date", raw, pa.int64())[1]
        _check_none(values % DAY != 0, "expected dates without a time of day", values.view("M8[ms]"), name)
        return _convert_times((values // DAY).view("M8[D]"), missing, name, exact)
    if pa.types.is_timestamp(kind):
        (values, missing) = _convert_integers("timestamp", raw, pa.int64())[1]
        return _convert_times(values.view(f"M8[{kind.unit}]"), missing, name, exact)
    if pa.types.is_decimal(kind):
        if raw.null_count == len(raw):
            return "", len(raw)
        return _from_objects(np.array([*raw.to_pylist(), None], object)[:-1], name, exact)
    return None


def _is_plain(kind: Any) -> bool:
    """Return whether `read_column` can read a dictionary-encoded Arrow column whose values have this type."""
    import pyarrow as pa

    return bool(pa.types.is_integer(kind) or "string" in str(kind) or "binary" in str(kind))


def _convert_times(values: Array, missing: Any, name: str, exact: bool) -> KindAndContent:
    """Return the kind ("date" or "timestamp") of numpy dates or times, and their days or microseconds since 1970.

    For `exact`, see `read_slice_keys`.
    """
    # A column that contains only NaT may have no unit, so it is handled before the unit is read.
    if not len(values) or (missing is not None and missing.all()):
        return "", len(values)
    unit, count = np.datetime_data(values.dtype)
    if unit not in UNITS:
        raise kind_error(name, f"{values.dtype.name} without a unit")
    base, per_unit = UNITS[unit]
    # `up / down` is the length of one unit of the column in months, days or microseconds. The bounds `low` and `high`
    # are computed with Python's integers, which cannot overflow. For values between these bounds, the int64
    # multiplication below cannot overflow either.
    up, down = Fraction(per_unit * count).as_integer_ratio()
    counts = values.view(np.int64) if missing is None else np.where(missing, 0, values.view(np.int64))
    low, high = -(-ENDS[base][0] * down // up), ((ENDS[base][1] + 1) * down - 1) // up
    if not (low <= int(counts.min()) and int(counts.max()) <= high):
        if exact:
            _check_none((counts < low) | (counts > high), YEARS, values, name)
        counts = np.clip(counts, max(low - 1, SMALLEST), min(high + 1, LARGEST))
    whole = counts if down == 1 else counts // down
    numbers = whole * up
    if down > 1 and (exact or up > 1):
        rest = counts - whole * down
        if exact:
            _check_none(rest != 0, WHOLE, values, name, ROUND)
        else:
            numbers += rest * up // down
    if base == "M":
        numbers = numbers.view("M8[M]").astype("M8[D]").view(np.int64)
    return "timestamp" if base == "us" else "date", (numbers, missing)


YEARS = "expected dates and timestamps in the years 1 to 9999"
WHOLE, ROUND = "expected timestamps in whole microseconds", "; round the timestamps to microseconds"
SMALLEST, LARGEST = int(np.iinfo(np.int64).min), int(np.iinfo(np.int64).max)


def _check_none(wrong: NDArray[np.bool_], rule: str, values: Array, name: str, cure: str = "") -> None:
    """Raise InvalidInputError if the mask `wrong` is true for any row.

    The message contains `rule`, the first wrong row, the number of wrong rows and the remedy `cure`.
    """
    if not wrong.any():
        return
    row, n = int(wrong.argmax()), int(wrong.sum())
    more = f" ({n:,} of {len(wrong):,} rows in this batch are invalid)" if n > 1 else ""
    raise InvalidInputError(
        f"{name}: {rule}, found {format_value(values[row])} in row {row:,}{more}{cure}", column=name, row=row, count=n
    )


def _convert_integers(kind: str, raw: Any, to: Any) -> KindAndContent:
    missing = arrow_values(raw.is_null()) if raw.null_count else None
    values = raw.cast(to)
    return kind, (arrow_values(values.fill_null(0) if raw.null_count else values).astype(np.int64), missing)


def _from_numpy(raw: Any, name: str, exact: bool) -> KindAndContent | None:
    if isinstance(raw, (list, tuple)):
        first = find_first_value(raw)
        if isinstance(first, np.datetime64):
            return _from_numpy(_join_datetimes(raw, name), name, exact)
        if not isinstance(first, (bool, np.bool_, datetime.date, Decimal)):
            return None
        raw = np.array([*raw, None], object)[:-1]
    raw = squeeze_column(raw)
    if raw.ndim != 1:
        return None
    if raw.dtype.kind == "b":
        return "bool", (raw.astype(np.int64), None)
    if raw.dtype.kind == "M":
        null = np.isnat(raw)
        return _convert_times(raw, null if null.any() else None, name, exact)
    return _from_objects(raw, name, exact) if raw.dtype == object else None


def _join_datetimes(raw: Any, name: str) -> Array:
    """Return a list of numpy dates and times as an array."""
    values = np.array([*raw, None], object)[:-1]
    null = find_missing(values, len(values))
    if strange := {type(v).__name__ for v in values[~null]} - {"datetime64"}:
        raise kind_error(name, " and ".join(["datetime64", *sorted(strange)]))
    # numpy deprecates arrays that mix NaT without a unit and times with a unit, so give NaT the unit of the other
    # values.
    nat = np.array("NaT", values[~null][0].dtype if not null.all() else "M8[s]")[()]
    return np.array([nat if m else v for v, m in zip(values, null, strict=True)])


def _from_objects(values: Array, name: str, exact: bool) -> KindAndContent | None:
    """Return the kind and content (see `read_keys`) of objects that share a kind in `OBJECTS`; None otherwise."""
    if not isinstance(find_first_value(values), (bool, np.bool_, datetime.date, Decimal)):
        return None
    null = find_missing(values, len(values))
    present = values[~null]
    kind = next((k for k, types in OBJECTS if len(present) and all(isinstance(v, types) for v in present)), None)
    if kind is None:
        return None
    words = [_encode_object(v, name) for v in present]
    # In Python, a `datetime` is also a `date`. So the search for `kind` above mistakes a mixture of dates and
    # timestamps for dates. This check detects the mixture.
    if {k for k, _ in words} != {kind}:
        return None
    if kind == "timestamp" and exact:
        finer = np.zeros(len(values), bool)
        # A pandas timestamp may include nanoseconds, which a key in microseconds cannot represent.
        finer[~null] = [getattr(v, "nanosecond", 0) != 0 for v in present]
        _check_none(finer, WHOLE, values, name, ROUND)
    mask = null if null.any() else None
    if kind != "decimal":
        out = np.zeros(len(values), np.int64)
        out[~null] = [w for _, w in words]
        return kind, (out, mask)
    distinct = sorted({w for _, w in words})
    number = {w: i for i, w in enumerate(distinct)}
    index = np.zeros(len(values), np.int64)
    index[~null] = [number[w] for _, w in words]
    ends = np.cumsum([0, *map(len, distinct)], dtype=np.int64)
    return kind, ((np.frombuffer(b"".join(distinct), np.uint8), ends), index, mask)


def _encode_object(value: Any, name: str) -> tuple[str, Any]:
    parsed = parse_key(value)
    if parsed is None:
        raise kind_error(name, f"{value!r}, which is infinite")
    return parsed
