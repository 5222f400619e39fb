"""Keys of slices of every kind: besides integers and text booleans, dates, timestamps and decimals."""

from __future__ import annotations

import datetime
from decimal import Decimal
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..numerics.keys import raw as held
from .convert import arrow_values, missing
from .keys import read_keys

__all__ = ["read_slice_keys"]

Array = NDArray[Any]
Read = tuple[str, Any]

NO_TIME = np.iinfo(np.int64).min  # what numpy holds where there is no time
OBJECTS: tuple[tuple[str, type | tuple[type, ...]], ...] = (
    ("bool", (bool, np.bool_)),
    ("timestamp", datetime.datetime),
    ("date", datetime.date),
    ("decimal", Decimal),
)


def read_slice_keys(raw: Any, name: str) -> Read:
    """Return the kind of keys, and integers or (texts, index), with a mask of missing rows; "" and n if all are null.

    Dates are days, timestamps microseconds since 1970, in UTC unless they say otherwise; decimals are text.
    """
    library = type(raw).__module__.partition(".")[0]
    if library == "polars":
        raw, library = raw.to_arrow(), "pyarrow"
    if library == "pandas" and isinstance(getattr(raw, "dtype", None), np.dtype):
        raw = raw.to_numpy()
    elif library == "pandas":
        import pyarrow

        raw, library = pyarrow.array(raw, from_pandas=True), "pyarrow"
    found = _from_arrow(raw) if library == "pyarrow" else _from_numpy(raw)
    return read_keys(raw, name) if found is None else found


def _from_arrow(raw: Any) -> Read | None:
    import pyarrow as pa

    kind = raw.type
    if pa.types.is_boolean(kind):
        return _integers("bool", raw, pa.uint8())
    if pa.types.is_date(kind):
        return _integers("date", raw.cast(pa.date32()), pa.int32())
    if pa.types.is_timestamp(kind):
        return _integers("timestamp", raw.cast(pa.timestamp("us", kind.tz)), pa.int64())
    if pa.types.is_decimal(kind):
        return _from_objects(np.array([*raw.to_pylist(), None], object)[:-1])
    return None


def _integers(kind: str, raw: Any, to: Any) -> Read:
    missing = arrow_values(raw.is_null()) if raw.null_count else None
    values = raw.cast(to)
    return kind, (arrow_values(values.fill_null(0) if raw.null_count else values).astype(np.int64), missing)


def _from_numpy(raw: Any) -> Read | None:
    if isinstance(raw, (list, tuple)):
        first = next((v for v in raw if v is not None), None)
        if not isinstance(first, (bool, np.bool_, datetime.date, Decimal, np.datetime64)):
            return None
        raw = np.array([*raw, None], object)[:-1]
    if not isinstance(raw, np.ndarray) or raw.ndim != 1 or isinstance(raw, np.ma.MaskedArray):
        return None
    if raw.dtype.kind == "b":
        return "bool", (raw.astype(np.int64), None)
    if raw.dtype.kind == "M":
        days = np.datetime_data(raw.dtype)[0] in ("Y", "M", "W", "D")
        values = raw.astype("M8[D]" if days else "M8[us]").astype(np.int64)
        missing = values == NO_TIME
        return "date" if days else "timestamp", (np.where(missing, 0, values), missing if missing.any() else None)
    return _from_objects(raw) if raw.dtype == object else None


def _from_objects(values: Array) -> Read | None:
    """Read objects of one of the kinds above; None if they are none, or of several."""
    gone = missing(values, len(values))
    there = values[~gone]
    kind = next((k for k, types in OBJECTS if len(there) and all(isinstance(v, types) for v in there)), None)
    if kind is None:
        return None
    words = [_word(v) for v in there]
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


def _word(value: Any) -> tuple[str, Any]:
    found = held(value)
    assert found is not None
    return found
