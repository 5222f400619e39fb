"""Row filters for logs: comparisons of columns with values, such as `country=br` or `price>0`."""

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

from streammetrics.io.readers import decode_dictionary
from streammetrics.io.sources import LogError

__all__ = ["Condition", "Filter", "convert_flags", "parse_filter"]

_SIGNS = {"=": pc.equal, "!=": pc.not_equal, ">": pc.greater, ">=": pc.greater_equal, "<": pc.less, "<=": pc.less_equal}
_COMBINED = re.compile(r"[=<>].*?\s+((?:and|or|AND|OR|&&?|\|\|?)\s+\S+?\s*(?:!=|[=<>]).*)", re.DOTALL)
_COMPARISON = re.compile(r"\s*(.+?)\s*(!=|<>|>=|<=|==|=|>|<)\s*(.*?)\s*", re.DOTALL)
_SIGN_ALIASES = {"==": "=", "<>": "!="}
_INTEGER = re.compile(r"[+-]?\d+")
_WHOLE = r"^[+-]?\d{1,38}$"
_FIRST_INEXACT = 1 << 53
_SIGNS_BETWEEN = {">": ">", ">=": ">", "<": "<=", "<=": "<="}
_EXACT = Context(prec=MAX_PREC, Emax=MAX_EMAX, Emin=MIN_EMIN)
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_PER_MICROSECOND = {"s": Decimal("1e-6"), "ms": Decimal("1e-3"), "us": Decimal(1), "ns": Decimal(1000)}
_BOOLEANS = {"true": True, "false": False, "1": True, "0": False}


@dataclass(frozen=True)
class Condition:
    """A condition on rows: a comparison such as `price>0`, or a column of 0s and 1s such as `click`.

    Parameters
    ----------
    column : str
        The column, such as "price".
    sign : str
        The comparison operator, such as ">"; empty for a column of 0s and 1s.
    value : str
        The value to compare with, as the user wrote it, such as "0"; empty for a column of 0s and 1s.
    """

    column: str
    sign: str = ""
    value: str = ""

    def __str__(self) -> str:
        return f"{self.column}{self.sign}{self.value}"

    @property
    def is_large(self) -> bool:
        """Whether the value is a number so large (2**53 or more) that float64 cannot represent all integers near it."""
        number = _parse_decimal(self.value) if self.sign else None
        return number is not None and number.is_finite() and abs(number) >= _FIRST_INEXACT

    @property
    def is_exact(self) -> bool:
        """Whether the value is an integer so large that integers must be compared with it exactly."""
        return self.is_large and _INTEGER.fullmatch(self.value) is not None

    def holds(self, values: pa.Array) -> pa.Array:
        """Return, for each value of a column, whether the condition holds.

        A null does not satisfy any condition other than `column=null`.
        """
        kind = values.type
        if self.value == "null" and self.sign in ("=", "!="):
            return values.is_null() if self.sign == "=" else values.is_valid()
        if pa.types.is_null(kind):
            return _all_false(values)
        if pa.types.is_integer(kind) or pa.types.is_decimal(kind) or pa.types.is_timestamp(kind):
            return self._holds_for_integers(values, self._parse(self._parse_multiple, kind))
        value = self._parse(self._parse_scalar, kind)
        return _SIGNS[self.sign](values, value).fill_null(False)

    def parse_value(self, kind: pa.DataType) -> Any:
        """Convert the value to a Python object of the column's type, or raise LogError if that is impossible."""
        if not pa.types.is_integer(kind):
            return self._parse(self._parse_scalar, kind).as_py()
        number = self._parse(self._parse_multiple, kind)
        return int(number) if number.is_finite() and number == number.to_integral_value() else float(number)

    def holds_for_texts(self, texts: pa.Array) -> pa.Array:
        """Return, for each number in a column that is read as text, whether the condition holds.

        Integers are compared exactly, and other numbers as float64.
        """
        are_integers = pc.match_substring_regex(texts, _WHOLE)
        integers = pc.if_else(are_integers, texts, None).cast(pa.decimal128(38, 0))
        others = pc.if_else(are_integers, None, texts).cast(pa.float64())
        return pc.or_(self.holds(integers), self.holds(others))

    def _holds_for_integers(self, values: pa.Array, number: Decimal) -> pa.Array:
        """Return whether the condition holds for each value of a column of integers, decimals or times.

        Such values are multiples of a unit: 1 for integers, 0.01 for decimals with two decimal places, or the
        resolution of times. `number` is the value to compare with, in that unit. If it is not an integer, the function
        compares with the next lower integer and adapts the operator: x >= 2.5 is the same as x > 2, and x < 2.5 is the
        same as x <= 2.
        """
        kind, (least, most) = values.type, _value_range(values.type)
        below = number if number.is_nan() else number.to_integral_value(ROUND_FLOOR)
        if number.is_nan() or (below != number and self.sign in ("=", "!=")):
            return values.is_valid() if self.sign == "!=" else _all_false(values)
        if not least <= below <= most:
            all_of_them = {"!=", ">", ">="} if below < least else {"!=", "<", "<="}
            return values.is_valid() if self.sign in all_of_them else _all_false(values)
        sign = self.sign if below == number else _SIGNS_BETWEEN[self.sign]
        if pa.types.is_decimal(kind):
            edge = pa.scalar(below.scaleb(-kind.scale, _EXACT), kind)
        elif pa.types.is_timestamp(kind):
            values, edge = values.cast(pa.int64()), pa.scalar(int(below))
        else:
            edge = pa.scalar(int(below), kind)
        return _SIGNS[sign](values, edge).fill_null(False)

    def _parse(self, parse: Callable[[pa.DataType], Any], kind: pa.DataType) -> Any:
        """Return `parse(kind)`, the value to compare with a column of type `kind`. Convert parse errors to LogError."""
        try:
            return parse(kind)
        except LogError:
            raise
        except (ValueError, KeyError, ArithmeticError):
            raise LogError(
                f"where {self}: expected a value of type {kind}, as in column {self.column!r}; correct the value, or "
                f"{suggest_text_comparison(self.column)}"
            ) from None

    def _parse_multiple(self, kind: pa.DataType) -> Decimal:
        """Return the value as a multiple of the unit of an integer, decimal or timestamp type.

        The unit is 1 for integers, 10**-scale for decimals, and the resolution for timestamps.
        """
        if pa.types.is_timestamp(kind):
            return _EXACT.multiply(_parse_microseconds(self.value), _PER_MICROSECOND[kind.unit])
        number = Decimal(self.value)
        return number.scaleb(kind.scale, _EXACT) if pa.types.is_decimal(kind) else number

    def _parse_scalar(self, kind: pa.DataType) -> pa.Scalar:
        """Return the value as an Arrow scalar of type `kind`; for float types of any width, the scalar is a float64."""
        text = self.value
        if pa.types.is_boolean(kind):
            return pa.scalar(_BOOLEANS[text.lower()])
        if pa.types.is_floating(kind):
            return pa.scalar(float(text))
        if pa.types.is_date(kind):
            return pa.scalar(datetime.date.fromisoformat(text), kind)
        unquoted = text[1:-1] if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"" else text
        if "string" in str(kind):
            return pa.scalar(unquoted, kind)
        if "binary" in str(kind):
            return pa.scalar(unquoted.encode(), kind)
        raise LogError(
            f"where {self}: expected a column of numbers, strings, booleans, dates or times, found type {kind}; "
            f"use another column"
        )


@dataclass(frozen=True)
class Filter:
    """A computed column of 0s and 1s that indicates the rows in which all conditions hold.

    Parameters
    ----------
    conditions : tuple of Condition
        The conditions.
    kinds : tuple of (str, pyarrow.DataType)
        Columns that are read as text, each with the type in which its values are compared. They are read as text
        because they also slice or group rows, or because large integers have to be compared exactly.
    """

    conditions: tuple[Condition, ...]
    kinds: tuple[tuple[str, pa.DataType], ...] = ()

    @property
    def name(self) -> str:
        """The name of the computed column, such as "country=br and price>0"."""
        return " and ".join(map(str, self.conditions))

    @property
    def columns(self) -> list[str]:
        """The columns that the conditions read."""
        return list(dict.fromkeys(c.column for c in self.conditions))

    def compute_flags(self, batch: pa.RecordBatch) -> pa.Array:
        """Return the computed column: 1 for rows that meet all conditions, 0 for other rows.

        If a condition is a column such as `click`, its values are kept even if they are neither 0 nor 1. Metrics can
        then report them as invalid.
        """
        flags = pa.array(np.ones(batch.num_rows, bool))
        columns = {name: decode_dictionary(batch.column(name)) for name in self.columns}
        for condition in self.conditions:
            if condition.sign:
                flags = pc.and_(flags, self._evaluate(condition, columns[condition.column]))
        flags = flags.cast(pa.float64())
        for condition in self.conditions:
            if not condition.sign:
                bare = convert_flags(columns[condition.column], condition.column)
                flags = pc.if_else(pc.equal(flags, 0), flags, bare)
        return flags

    def _evaluate(self, condition: Condition, column: pa.Array) -> pa.Array:
        """Return, for each row, whether a condition holds.

        If the column is read as text although it has another type (see `kinds`), its values are converted first.
        """
        kind = dict(self.kinds).get(condition.column, column.type)
        if column.type == kind:
            return condition.holds(column)
        texts = pc.utf8_trim_whitespace(column)
        try:
            return condition.holds_for_texts(texts) if condition.is_large else condition.holds(texts.cast(kind))
        except pa.ArrowException as error:
            quoted = re.search(r"'.*'", str(error))
            raise LogError(
                f"where {self.name}: column {condition.column!r}: expected values of type {kind}, found "
                f"{quoted[0] if quoted else 'other text'}; {suggest_text_comparison(condition.column)}"
            ) from None

    def check(self, schema: pa.Schema) -> None:
        """Raise LogError if the value of a condition cannot be compared with the column of that condition."""
        types = dict(self.kinds)
        kinds = [(n, types.get(n, schema.field(n).type)) for n in self.columns if n in schema.names]
        if len(kinds) == len(self.columns):
            self.compute_flags(
                pa.RecordBatch.from_arrays([pa.array([], k) for _, k in kinds], names=[n for n, _ in kinds])
            )


def parse_filter(texts: Sequence[str], names: Collection[str]) -> Filter | None:
    """Parse conditions such as `click`, `country=br` or `price>0`; return None if there are none.

    Parameters
    ----------
    texts : sequence of str
        Conditions that must all hold.
    names : collection of str
        The columns of the log. A string that is a column name is not parsed as a comparison.
    """
    conditions = []
    for text in texts:
        if text not in names and (joined := _COMBINED.search(text)):
            raise LogError(
                f"{text!r}: expected one comparison, found a second, {joined[1]!r}; pass each comparison as a separate "
                f"condition. A row must meet all conditions"
            )
        match = None if text in names else _COMPARISON.fullmatch(text)
        if match is not None and match[3][:1] in (*"=<>!",):
            raise LogError(
                f"{text!r}: expected one of the operators {', '.join(_SIGNS)}, found {match[2]}{match[3][:1]}; correct "
                f"the operator, or put the value in quotation marks"
            )
        conditions.append(
            Condition(text.strip())
            if match is None
            else Condition(match[1], _SIGN_ALIASES.get(match[2], match[2]), match[3])
        )
    return Filter(tuple(dict.fromkeys(conditions))) if conditions else None


def convert_flags(bare: pa.Array, name: str) -> pa.Array:
    """Convert a column that is itself a condition, such as `click`, to float64; raise LogError if it is not numeric."""
    try:
        return (bare.cast(pa.uint8()) if pa.types.is_boolean(bare.type) else bare).cast(pa.float64(), safe=False)
    except pa.ArrowException:
        raise LogError(
            f"where {name}: expected a column of 0s and 1s, found type {bare.type}; compare the column with a value: "
            f"{name}=VALUE"
        ) from None


def suggest_text_comparison(column: str) -> str:
    """Return the last part of an error message, which tells the user how to compare a column as text."""
    return f"pass types={{{column!r}: 'string'}} to compare the column as text"


def _parse_decimal(text: str) -> Decimal | None:
    """Parse a string as a number; return None if it is not a number."""
    try:
        return Decimal(text)
    except ArithmeticError:
        # The conversion fails for a string that is not a number.
        return None


def _all_false(values: pa.Array) -> pa.Array:
    return pa.array(np.zeros(len(values), bool))


def _value_range(kind: pa.DataType) -> tuple[int, int]:
    """Return the smallest and largest values of an integer, decimal or time type, as multiples of its unit."""
    if pa.types.is_decimal(kind):
        return 1 - 10**kind.precision, 10**kind.precision - 1
    bits = kind.bit_width
    return (0, 2**bits - 1) if str(kind).startswith("uint") else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


def _parse_microseconds(text: str) -> Decimal:
    """Parse a time as microseconds since 1970. A time without a time zone is in UTC."""
    # Python's `datetime` keeps only six decimal places of a second. Remove further digits, and add them after parsing.
    extra_digits = re.search(r"(?<=[.,]\d{6})\d+", text)
    moment = datetime.datetime.fromisoformat(text.replace(extra_digits[0], "", 1) if extra_digits else text)
    elapsed = (moment if moment.tzinfo else moment.replace(tzinfo=datetime.UTC)) - _EPOCH
    micros = elapsed // datetime.timedelta(microseconds=1)
    return _EXACT.add(Decimal(micros), Decimal(f"0.{extra_digits[0]}" if extra_digits else 0))
