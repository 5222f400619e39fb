"""Functions that generate rows for the laws: columns that a state reads, in every dtype and format that users pass."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ..batch.classes import Classes, DiscoveredClasses, Distribution
from ..batch.columns import Column, Kind
from ..batch.ids import Ids
from ..batch.kinds import Label, LabelWeight, Matrix, Need, Score, Weight
from ..batch.numbers import Number
from ..state.state import State

__all__ = [
    "KEYS",
    "STYLES",
    "Columns",
    "Data",
    "bad_value",
    "formats",
    "make_consistent",
    "on_grid",
    "sample",
    "sample_keys",
    "spoil",
    "tables",
]

Array = NDArray[Any]
Columns = dict[str, Array]
# Write this type as a string, so that it is not evaluated on import.
Data: TypeAlias = "Mapping[str, Any] | Callable[[np.random.Generator, int], Mapping[str, Any]] | None"

STYLES = ("plain", "ties", "saturated", "one class", "few", "empty", "far")
"""The styles of generated rows, for example "ties" with few distinct scores and "saturated" with extreme scores.

In the style "far", numbers have a large offset and a small spread, and 90 % of the probabilities are equal.
"""

KEYS = ("integer", "wide", "string", "bytes")
"""The kinds of slice keys; the "wide" keys include integers of 2**63 or more."""

_NULLABLE = {"bool": "boolean", "uint8": "UInt8", "int64": "Int64", "float32": "Float32", "float64": "Float64"}
TINY = 5e-324
PROBABILITIES = (0.0, 1.0, 0.5, TINY, 2.0**-40, 2.0**-33, 1e-7, 1 - 2.0**-24, 1 - 2.0**-53, 0.5 - 2.0**-54, 0.3, 0.9)
REALS = (0.0, -0.0, TINY, -TINY, 1.0, -1.0, 40.0, -40.0, 700.0, -700.0, 1e30, -1e30)
WEIGHTS = (1.0, 1.0, 1.0, 0.0, 2.0, 0.5, 3.0, 0.1, 2.0**-36, 1e6)


def sample(needs: Sequence[Need], rng: np.random.Generator, n: int, style: str, *, weighted: bool) -> Columns:
    """Generate `n` rows of the columns that a state reads, in one of the `STYLES`.

    Optional columns with `either` or `derived` (see `Need`) are always generated. Other optional columns, such as
    weights, are generated only if `weighted` is true.
    """
    wanted = [need for need in needs if weighted or not need.optional or need.either or need.derived]
    return {need.role: _values(need, rng, n, style) for need in wanted}


def make_consistent(state: State, columns: Columns) -> Columns:
    """Make generated columns consistent with one another.

    For example, a column that the state declares as constant in each block (query) gets the first value of each block.
    """
    if state.block_column is None or state.block_column not in columns:
        return columns
    keys = columns[state.block_column]
    first = np.maximum.accumulate(np.where(np.r_[True, keys[1:] != keys[:-1]][: len(keys)], np.arange(len(keys)), 0))
    once = {n.role: columns[n.role][first] for n in state.needs() if n.once and n.role in columns}
    return state.make_consistent(columns | once)


def _values(need: Need, rng: np.random.Generator, n: int, style: str) -> Array:
    kind = need.kind
    if isinstance(kind, (Classes, DiscoveredClasses)):
        known = names(kind)
        return known[rng.integers(0, 1 if style == "one class" else len(known), n)]
    if isinstance(kind, Distribution):
        return _distributions(kind.width, rng, n, style)
    if isinstance(kind, Matrix):
        cell = Need(need.role, kind.kind)
        cells = [_values(cell, rng, n, style) for _ in range(kind.width)]
        return np.column_stack(cells).astype(cells[0].dtype)
    if isinstance(kind, Ids):
        values = rng.integers(-3, 4, n)
        none = [v for v in kind.missing_values if isinstance(v, int)]
        # The column may treat some integers as missing values. Replace these with 4, which no other row contains.
        values[np.isin(values, none)] = 4
        return np.sort(values) if need.role == "query" else values
    if isinstance(kind, Label):
        rate = float(rng.integers(2)) if style == "one class" else 0.4
        return (rng.random(n) < rate).astype(np.uint8)
    if isinstance(kind, Score):
        values, dtype = _scores(kind, rng, n, style), rng.choice(["f4", "f8"])
        return clip_to_kind(kind, values.astype("f8" if style == "far" else dtype))
    if isinstance(kind, LabelWeight) and style == "ties":
        return rng.choice(WEIGHTS, (n, kind.width))
    if isinstance(kind, Weight):
        return rng.choice(WEIGHTS, n)
    raise TypeError(
        f"no rows can be generated for {need.role!r}, a column of class {type(kind).__name__}; pass data= with the "
        f"columns by name, or with a function of (rng, n) that returns them"
    )


def names(kind: Classes | DiscoveredClasses) -> Array:
    """Return the classes that a column may contain, or three examples if the state discovers classes in the rows."""
    known: Any = ("b", "a", "é") if isinstance(kind, DiscoveredClasses) else kind.names
    there = np.arange(known) if isinstance(known, int) else np.array(known)
    return there[[name != kind.ignore for name in there.tolist()]]


def _distributions(width: int, rng: np.random.Generator, n: int, style: str) -> Array:
    """Return `n` rows of `width` probabilities that add up to 1, in one of the `STYLES`."""
    rows: Array
    if style == "saturated":
        rows = np.eye(width)[rng.integers(0, width, n)]
    else:
        rows = rng.integers(0, 3, (n, width)) + 0.25 if style == "ties" else rng.exponential(1.0, (n, width))
        rows = rows / rows.sum(axis=1, keepdims=True)
    return rows.astype(rng.choice(["f4", "f8"]))


def _scores(kind: Score, rng: np.random.Generator, n: int, style: str) -> Array:
    narrow = kind.scale == "probability"
    if kind.scale in ("grade", "count"):
        grades = rng.choice([0, 0, 1, 2, 4], n)
        return grades * 0.75 if kind.scale == "grade" and style == "ties" else grades
    if style == "saturated":
        extremes = np.array(PROBABILITIES if narrow else REALS)
        return rng.choice(extremes[np.abs(extremes) < 1e38], n)
    if style == "far":
        heavy = rng.random(n) < 0.9
        return np.where(heavy, 0.1, rng.random(n)) if narrow else 1e6 + rng.normal(0, 1, n)
    if style == "ties":
        return rng.choice([0.125, 0.25, 0.5, 0.75] if narrow else [-2.0, 0.0, 0.5, 3.0], n)
    return rng.beta(1, 3, n) if narrow else rng.normal(0, 3, n)


def clip_to_kind(kind: Kind, values: Array) -> Array:
    """Replace each number that `kind` forbids with its absolute value, or with 1 if that is forbidden too."""
    if isinstance(kind, Number):
        for other in (np.abs(values), np.ones_like(values)):
            values = np.where(kind.bad(Column(values, values.dtype.name)), other, values)
    return values


def on_grid(kind: Kind, rng: np.random.Generator, n: int) -> Array:
    """Return values that are exact in every floating-point dtype and differ from common thresholds, such as 0.5."""
    if isinstance(kind, Distribution):
        return (rng.multinomial(256 - kind.width, np.full(kind.width, 1 / kind.width), n) + 1) / 256
    if isinstance(kind, Matrix):
        return np.column_stack([on_grid(kind.kind, rng, n) for _ in range(kind.width)])
    if getattr(kind, "scale", "") in ("grade", "count"):
        return rng.integers(0, 4, n).astype(np.float64)
    odd = 2 * rng.integers(0, 256, n) + 1
    return odd / 512 if getattr(kind, "scale", "") == "probability" else clip_to_kind(kind, (odd - 256) / 32)


def bad_value(kind: Kind) -> Any:
    """Return a value that is invalid for this kind in any dtype, or None if no such value is known (as for IDs)."""
    if isinstance(kind, Matrix):
        return bad_value(kind.kind)
    if isinstance(kind, Classes):
        known: Any = (0,) if isinstance(kind.names, int) else kind.names
        return min(known) - 1 if isinstance(known[0], int) else "?"
    if isinstance(kind, Label):
        return 2
    if isinstance(kind, Score):
        return {"probability": 1.5, "grade": -1, "count": -1}.get(kind.scale, np.inf)
    return -1.0 if isinstance(kind, Weight) else None


def spoil(column: Array, at: Any, value: Any) -> Array:
    """Return a copy of a column with `value` in the rows `at`.

    Booleans are converted to integers first, so that the copy can contain the invalid label 2.
    """
    out = column.astype(np.uint8) if column.dtype == bool else column.copy()
    out[at] = value
    return out


def sample_keys(rng: np.random.Generator, n: int, kind: str, *, several: int = 5, nulls: bool = True) -> Array:
    """Generate an object array of `n` slice keys; `kind` is one of `KEYS`.

    There are at most `several` distinct keys and, if `nulls` is true, also the key None.
    """
    names: dict[str, list[Any]] = {
        "integer": [0, -1, 7, 2**40, -(2**63)],
        "wide": [2**63, 2**64 - 1, 5, 2**63 + 5, 0],
        "string": ["", "a", "b", "é", "longer than eight bytes"],
        "bytes": [b"", b"a", b"\xff", b"\x00", b"longer than eight bytes"],
    }
    chosen = names[kind][:several] + ([None] if nulls else [])
    keys = np.empty(n, object)
    keys[:] = [chosen[i] for i in rng.integers(0, len(chosen), n)]
    return keys


# -- the same values in other formats ---------------------------------------------------------------------------------


def formats(values: Array) -> Iterator[tuple[str, Any]]:
    """Yield the values in each format, such as a list or a pandas series, as pairs (format name, column).

    Formats of libraries that are not installed are left out.
    """
    yield "list", values.tolist()
    yield "tuple", tuple(values.tolist())
    yield "strided array", np.repeat(values, 2, axis=0)[::2]
    yield "reversed array", values[::-1].copy()[::-1]
    yield "byte-swapped array", values.astype(values.dtype.newbyteorder())
    frozen = values.copy()
    frozen.flags.writeable = False
    yield "read-only array", frozen
    if pandas := _library("pandas"):
        yield "pandas series", pandas.Series(_rows_as_list(values), index=np.arange(len(values))[::-1])
    if pandas and values.ndim == 2:
        yield "pandas data frame", pandas.DataFrame(values)
    elif pandas and values.dtype.name in _NULLABLE:
        yield "nullable pandas series", pandas.Series(values).astype(_NULLABLE[values.dtype.name])
    if polars := _library("polars"):
        yield "polars series", polars.Series(values)
    if arrow := _library("pyarrow"):
        array, half = arrow.array(_rows_as_list(values)), len(values) // 2
        yield "Arrow array", array
        yield "Arrow chunked array", arrow.chunked_array([array[:half], array[half:]])
    if (torch := _library("torch")) and values.dtype.kind != "U":
        yield "torch tensor", torch.from_numpy(values.copy())


def tables(columns: Columns) -> Iterator[tuple[str, Any]]:
    """Yield (name, table) for every kind of table whose library is installed. Each table also has an unused column."""
    wide = {"unused": np.full(len(next(iter(columns.values()))), "x"), **columns}
    yield "dict", wide
    # Without rows, a list of events has no columns, so it is left out.
    if several := events(wide):
        yield "list of events", several
    wide = {name: _rows_as_list(column) for name, column in wide.items()}
    if pandas := _library("pandas"):
        yield "pandas data frame", pandas.DataFrame(wide)
    if polars := _library("polars"):
        yield "polars data frame", polars.DataFrame({n: columns.get(n, column) for n, column in wide.items()})
    if arrow := _library("pyarrow"):
        table = arrow.table(wide)
        yield "Arrow table", table
        yield "sliced Arrow table", arrow.concat_tables([table.slice(0, 1), table.slice(1)])
        yield "Arrow record batch", arrow.RecordBatch.from_pydict(wide)


def events(columns: Columns) -> list[dict[str, Any]]:
    """Return the rows as a list of dicts, each of which maps column names to values."""
    n = len(next(iter(columns.values())))
    return [{name: column[i] for name, column in columns.items()} for i in range(n)]


def _rows_as_list(values: Array) -> Any:
    """Return a matrix as a list of its rows, because a table stores it in one column; return other arrays unchanged."""
    return list(values) if values.ndim == 2 else values


def _library(name: str) -> Any:
    try:
        return importlib.import_module(name)
    # The library is optional. If it is not installed, the laws do not use its formats.
    except ImportError:
        return None
