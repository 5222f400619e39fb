"""Which rows of a log count: simple comparisons of columns, such as `country=br` or `price>0`."""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from decimal import MAX_EMAX, MAX_PREC, MIN_EMIN, ROUND_FLOOR, Context, Decimal
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
_WHOLE = r"^[+-]?\d{1,38}$"
_APART = 1 << 53
_BETWEEN = {">": ">", ">=": ">", "<": "<=", "<=": "<="}
_EXACT = Context(prec=MAX_PREC, Emax=MAX_EMAX, Emin=MIN_EMIN)
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_PER_MICROSECOND = {"s": Decimal("1e-6"), "ms": Decimal("1e-3"), "us": Decimal(1), "ns": Decimal(1000)}
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

    @property
    def large(self) -> bool:
        """Whether it compares with a number from which on float64 does not tell integers apart."""
        number = _decimal(self.value) if self.sign else None
        return number is not None and number.is_finite() and abs(number) >= _APART

    @property
    def exact(self) -> bool:
        """Whether that number is an integer, so that integers are meant."""
        return self.large and _INTEGER.fullmatch(self.value) is not None

    def holds(self, values: pa.Array) -> pa.Array:
        """Whether it holds, for every value of the column; it does not where there is null."""
        kind = values.type
        if self.value == "null" and self.sign in ("=", "!="):
            return values.is_null() if self.sign == "=" else values.is_valid()
        if pa.types.is_null(kind):
            return _none(values)
        if pa.types.is_integer(kind) or pa.types.is_decimal(kind) or pa.types.is_timestamp(kind):
            return self._holds_of_whole(values, self._read(self._multiple, kind))
        value = self._read(self._value, kind)
        return _SIGNS[self.sign](values, value).fill_null(False)

    def read_as(self, kind: pa.DataType) -> Any:
        """What is written, as a column of a type holds it; LogError where it holds no such thing."""
        if not pa.types.is_integer(kind):
            return self._read(self._value, kind).as_py()
        number = self._read(self._multiple, kind)
        return int(number) if number.is_finite() and number == number.to_integral_value() else float(number)

    def holds_of_texts(self, texts: pa.Array) -> pa.Array:
        """Whether it holds of numbers as they are written: integers exactly, all others as float64."""
        whole = pc.match_substring_regex(texts, _WHOLE)
        integers = pc.if_else(whole, texts, None).cast(pa.decimal128(38, 0))
        others = pc.if_else(whole, None, texts).cast(pa.float64())
        return pc.or_(self.holds(integers), self.holds(others))

    def _holds_of_whole(self, values: pa.Array, number: Decimal) -> pa.Array:
        """Whether it holds of values that are whole multiples of a unit, given in that unit what they are compared with.

        Between two multiples what is above it is above the lower one.
        """
        kind, (least, most) = values.type, _range(values.type)
        below = number if number.is_nan() else number.to_integral_value(ROUND_FLOOR)
        if number.is_nan() or (below != number and self.sign in ("=", "!=")):
            return values.is_valid() if self.sign == "!=" else _none(values)
        if not least <= below <= most:
            all_of_them = {"!=", ">", ">="} if below < least else {"!=", "<", "<="}
            return values.is_valid() if self.sign in all_of_them else _none(values)
        sign = self.sign if below == number else _BETWEEN[self.sign]
        if pa.types.is_decimal(kind):
            edge = pa.scalar(below.scaleb(-kind.scale, _EXACT), kind)
        elif pa.types.is_timestamp(kind):
            values, edge = values.cast(pa.int64()), pa.scalar(int(below))
        else:
            edge = pa.scalar(int(below), kind)
        return _SIGNS[sign](values, edge).fill_null(False)

    def _read(self, how: Callable[[pa.DataType], Any], kind: pa.DataType) -> Any:
        """What is written, as a column of a type is compared with it; LogError where it holds no such thing."""
        try:
            return how(kind)
        except LogError:
            raise
        except (ValueError, KeyError, ArithmeticError):
            raise LogError(
                f"where {self}: expected a value of type {kind}, as in column {self.column!r}; "
                f"{compare_texts(self.column)}"
            ) from None

    def _multiple(self, kind: pa.DataType) -> Decimal:
        """As a multiple of what the values of a column are whole multiples of."""
        if pa.types.is_timestamp(kind):
            return _EXACT.multiply(_microseconds(self.value), _PER_MICROSECOND[kind.unit])
        number = Decimal(self.value)
        return number.scaleb(kind.scale, _EXACT) if pa.types.is_decimal(kind) else number

    def _value(self, kind: pa.DataType) -> pa.Scalar:
        """As a value that a column could hold, and a float of any size."""
        text = self.value
        if pa.types.is_boolean(kind):
            return pa.scalar(_FLAGS[text.lower()])
        if pa.types.is_floating(kind):
            return pa.scalar(float(text))
        if pa.types.is_date(kind):
            return pa.scalar(datetime.date.fromisoformat(text), kind)
        unquoted = text[1:-1] if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"" else text
        if "string" in str(kind):
            return pa.scalar(unquoted, kind)
        if "binary" in str(kind):
            return pa.scalar(unquoted.encode(), kind)
        raise LogError(f"where {self}: a column of {kind} is not compared")


@dataclass(frozen=True)
class Filter:
    """Conditions that all hold, as a column of 0 and 1 that is made of others.

    Parameters
    ----------
    conditions : tuple of Condition
        All of them.
    kinds : tuple of (str, pyarrow.DataType)
        The columns that are read as text, as they are keys, too, or compared exactly, and what they hold.
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
        flags = pa.array(np.ones(batch.num_rows, bool))
        columns = {name: decoded(batch.column(name)) for name in self.columns}
        for condition in self.conditions:
            if condition.sign:
                flags = pc.and_(flags, self._holds(condition, columns[condition.column]))
        flags = flags.cast(pa.float64())
        for condition in self.conditions:
            if not condition.sign:
                bare = as_numbers(columns[condition.column], condition.column)
                flags = pc.if_else(pc.equal(flags, 0), flags, bare)
        return flags

    def _holds(self, condition: Condition, column: pa.Array) -> pa.Array:
        """Whether a condition holds, of a column that may be read as text though it holds something else."""
        kind = dict(self.kinds).get(condition.column, column.type)
        if column.type == kind:
            return condition.holds(column)
        texts = pc.utf8_trim_whitespace(column)
        try:
            return condition.holds_of_texts(texts) if condition.large else condition.holds(texts.cast(kind))
        except pa.ArrowException as error:
            said = re.search(r"'.*'", str(error))
            raise LogError(
                f"where {self.name}: {condition.column!r} holds {said[0] if said else 'a text'}, which is not {kind}; "
                f"{compare_texts(condition.column)}"
            ) from None

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


def compare_texts(column: str) -> str:
    """Say how a column is compared as text."""
    return f"types={{{column!r}: 'string'}} compares texts"


def _decimal(text: str) -> Decimal | None:
    """The number that is written, if it is one."""
    try:
        return Decimal(text)
    except ArithmeticError:  # a text
        return None


def _none(values: pa.Array) -> pa.Array:
    return pa.array(np.zeros(len(values), bool))


def _range(kind: pa.DataType) -> tuple[int, int]:
    """The least and the most that a type holds, in its unit."""
    if pa.types.is_decimal(kind):
        return 1 - 10**kind.precision, 10**kind.precision - 1
    bits = kind.bit_width
    return (0, 2**bits - 1) if str(kind).startswith("uint") else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


def _microseconds(text: str) -> Decimal:
    """A time that is written, since 1970; without a zone it is UTC. Python's times have no more than six decimals."""
    more = re.search(r"(?<=[.,]\d{6})\d+", text)
    said = datetime.datetime.fromisoformat(text.replace(more[0], "", 1) if more else text)
    whole = (said if said.tzinfo else said.replace(tzinfo=datetime.UTC)) - _EPOCH
    micros = whole // datetime.timedelta(microseconds=1)
    return _EXACT.add(Decimal(micros), Decimal(f"0.{more[0]}" if more else 0))
