"""Which rows of a log count: simple comparisons of columns, such as `country=br` or `price>0`."""

from __future__ import annotations

import datetime
import math
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streammetrics.io.readers import decoded
from streammetrics.io.sources import LogError

__all__ = ["Condition", "Filter", "as_numbers", "read_where"]

_SIGNS = {"=": pc.equal, "!=": pc.not_equal, ">": pc.greater, ">=": pc.greater_equal, "<": pc.less, "<=": pc.less_equal}
_JOINED = re.compile(r"[=<>].*?\s+((?:and|or|AND|OR|&&?|\|\|?)\s+\S+?\s*(?:!=|[=<>]).*)", re.DOTALL)
_COMPARED = re.compile(r"\s*(.+?)\s*(!=|<>|>=|<=|==|=|>|<)\s*(.*?)\s*", re.DOTALL)
_SPELLED = {"==": "=", "<>": "!="}
_INTEGER = re.compile(r"[+-]?\d+")
_LARGEST = (1 << 63) - 1
_FLAGS = {"true": True, "false": False, "1": True, "0": False}


@dataclass(frozen=True)
class Condition:
    """A comparison of a column with a value; without a sign a column of 0 and 1.

    Parameters
    ----------
    column, sign, value : str
        As they are written.
    """

    column: str
    sign: str = ""
    value: str = ""

    def __str__(self) -> str:
        return f"{self.column}{self.sign}{self.value}"

    def holds(self, values: pa.Array) -> pa.Array:
        """Whether it holds, for every value of the column; it does not where there is null."""
        if self.value == "null" and self.sign in ("=", "!="):
            return values.is_null() if self.sign == "=" else values.is_valid()
        if pa.types.is_null(values.type):
            return pa.array(np.zeros(len(values), bool))
        value = self.read_as(values.type)
        if isinstance(value, float) and pa.types.is_integer(values.type):
            values = values.cast(pa.float64(), safe=False)
        return _SIGNS[self.sign](values, _scalar(value, values.type)).fill_null(False)

    def read_as(self, kind: pa.DataType) -> Any:
        """What is written, as a column of a type holds it; LogError where it holds no such thing."""
        text = self.value
        try:
            if pa.types.is_boolean(kind):
                return _FLAGS[text.lower()]
            if pa.types.is_integer(kind) and _INTEGER.fullmatch(text):
                return _whole(int(text), kind)
            if pa.types.is_integer(kind) or pa.types.is_floating(kind):
                return float(text)
            if pa.types.is_decimal(kind):
                return pa.scalar(text).cast(kind).as_py()
            if pa.types.is_date(kind):
                return datetime.date.fromisoformat(text)
            if pa.types.is_timestamp(kind):
                said = datetime.datetime.fromisoformat(text)
                zone = said.tzinfo or datetime.UTC
                return (
                    said.replace(tzinfo=zone)
                    if kind.tz
                    else said.replace(tzinfo=zone).astimezone(datetime.UTC).replace(tzinfo=None)
                )
        except (ValueError, KeyError, pa.ArrowInvalid):
            raise LogError(f"where {self}: {self.column!r} holds {kind}, and {text!r} is none") from None
        unquoted = text[1:-1] if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"" else text
        if "string" in str(kind):
            return unquoted
        if "binary" in str(kind):
            return unquoted.encode()
        raise LogError(f"where {self}: a column of {kind} is not compared")


@dataclass(frozen=True)
class Filter:
    """Conditions that all hold, as a column of 0 and 1 that is made of others.

    Parameters
    ----------
    conditions : tuple of Condition
        All of them.
    kinds : tuple of (str, pyarrow.DataType)
        The columns that are read as text, as they are keys, too, and what they are compared as.
    """

    conditions: tuple[Condition, ...]
    kinds: tuple[tuple[str, pa.DataType], ...] = ()

    @property
    def name(self) -> str:
        """The name of the column that is made."""
        return " and ".join(map(str, self.conditions))

    @property
    def columns(self) -> list[str]:
        """The columns that are compared."""
        return list(dict.fromkeys(c.column for c in self.conditions))

    def flags(self, batch: pa.RecordBatch) -> pa.Array:
        """The column: 0 or 1, or whatever else a bare column holds, for the checks to find."""
        flags, columns = pa.array(np.ones(batch.num_rows, bool)), self._compared(batch)
        for condition in self.conditions:
            if condition.sign:
                flags = pc.and_(flags, condition.holds(columns[condition.column]))
        flags = flags.cast(pa.float64())
        for condition in self.conditions:
            if not condition.sign:
                bare = as_numbers(columns[condition.column], condition.column)
                flags = pc.if_else(pc.equal(flags, 0), flags, bare)
        return flags

    def _compared(self, batch: pa.RecordBatch) -> dict[str, pa.Array]:
        """Its columns as what they are compared as."""
        columns = {name: decoded(batch.column(name)) for name in self.columns}
        for name, kind in ((n, k) for n, k in self.kinds if columns[n].type != k):
            try:
                columns[name] = pc.utf8_trim_whitespace(columns[name]).cast(kind)
            except pa.ArrowException as error:
                said = re.search(r"'.*'", str(error))
                raise LogError(
                    f"where {self.name}: {name!r} holds {said[0] if said else 'a text'}, which is not {kind}"
                ) from None
        return columns

    def check(self, schema: pa.Schema) -> None:
        """Raise LogError where a value makes no sense for its column."""
        known = dict(self.kinds)
        kinds = [(n, known.get(n, schema.field(n).type)) for n in self.columns if n in schema.names]
        if len(kinds) == len(self.columns):
            self.flags(pa.RecordBatch.from_arrays([pa.array([], k) for _, k in kinds], names=[n for n, _ in kinds]))


def read_where(texts: Sequence[str], names: Collection[str]) -> Filter | None:
    """Read `click`, `country=br`, `price>0`; None where nothing is asked.

    Parameters
    ----------
    texts : sequence of str
        Conditions that all hold.
    names : collection of str
        The columns there are: one that is called like a comparison is a column.
    """
    conditions = []
    for text in texts:
        if text not in names and (joined := _JOINED.search(text)):
            raise LogError(f"{text!r}: one comparison at a time; give {joined[1]} as a condition of its own")
        found = None if text in names else _COMPARED.fullmatch(text)
        if found is not None and found[3][:1] in (*"=<>!",):
            raise LogError(f"{text!r}: which comparison is meant? There are {', '.join(_SIGNS)}; a text may be quoted")
        conditions.append(
            Condition(text.strip())
            if found is None
            else Condition(found[1], _SPELLED.get(found[2], found[2]), found[3])
        )
    return Filter(tuple(dict.fromkeys(conditions))) if conditions else None


def as_numbers(bare: pa.Array, name: str) -> pa.Array:
    """A column that is given bare, as numbers."""
    try:
        return (bare.cast(pa.uint8()) if pa.types.is_boolean(bare.type) else bare).cast(pa.float64(), safe=False)
    except pa.ArrowException:
        raise LogError(
            f"where {name}: a column of {bare.type} is neither 0 nor 1; compare it, such as {name}=..."
        ) from None


def _scalar(value: Any, kind: pa.DataType) -> pa.Scalar:
    """A value to compare a column with: a number is one of any type, all else is as the column holds it."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return pa.scalar(value, kind)
    return pa.scalar(value, pa.uint64()) if isinstance(value, int) and value > _LARGEST else pa.scalar(value)


def _whole(value: int, kind: pa.DataType) -> int | float:
    """An integer as a column can be compared with it: beyond all that there are it is infinite."""
    if -_LARGEST - 1 <= value <= (2 * _LARGEST + 1 if kind == pa.uint64() else _LARGEST):
        return value
    return math.copysign(math.inf, value)
