"""The types of the columns in a log.

The user may specify the type of a column. Otherwise, the type is inferred from how the column is used and from the
first rows of all files.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from streammetrics.io.sources import LogError

__all__ = [
    "KEY_TEXT",
    "ColumnUses",
    "TypeGuess",
    "cast_column",
    "find_comparison_type",
    "format_conversion_error",
    "parse_type",
    "resolve_type",
    "suggest_text_type",
]

KEY_TEXT = pa.dictionary(pa.int32(), pa.string())
"""The type of a column of text whose values are keys of slices or groups. It stores each distinct string only once."""

_TYPES_BY_NAME = {
    "string": pa.string(),
    "int": pa.int64(),
    "float": pa.float64(),
    "bool": pa.bool_(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us"),
}
_NAMES_OF_TYPES = {kind: name for name, kind in _TYPES_BY_NAME.items()}
_MISSING = re.compile(r"|#?n/?a|#n/a n/a|<na>|none|null|nil|nan|missing|undefined|unknown|-+|\?|\.", re.IGNORECASE)
"""Common spellings of a missing value. If one cannot be converted, the error message may suggest reading it as null."""

_ZONE = r":\d\d(?:\.\d+)?\s*(?:Z|[+-]\d\d(?::?\d\d)?)$"

_COMPACT = (r"^(\d{4})(\d\d)(\d\d)$", r"\1-\2-\3")
"""A pattern for dates without hyphens, which are common in partition names, and a replacement that adds hyphens."""

TypeGuess = tuple[pa.DataType, str]
"""The type inferred from the first rows of one file, and the path of that file."""


class ColumnUses(NamedTuple):
    """The purposes for which a pass over a log reads its columns.

    In text files, and in folder names such as `day=2024-05-01`, the use of a column decides its type.

    Parameters
    ----------
    keys : collection of str
        Columns by which rows are sliced or grouped. A column that is only a key is read as text, exactly as spelled.
    values : collection of str
        Columns that metrics read. If such a column is also a key, numbers and booleans keep their type.
    integers : collection of str
        Columns whose integers must not be rounded to float64, such as time steps. They are read as int64 if all values
        fit.
    exact_integers : collection of str
        Columns that a filter compares exactly with a large integer. They are read as text if they contain integers
        outside the 64-bit range.
    numbers : collection of str
        Columns among `values` that must be numeric, such as scores and weights.
    times : collection of str
        Columns that define windows. Text is parsed as dates and times.
    """

    keys: Collection[str] = ()
    values: Collection[str] = ()
    integers: Collection[str] = ()
    exact_integers: Collection[str] = ()
    numbers: Collection[str] = ()
    times: Collection[str] = ()

    def is_only_key(self, name: str) -> bool:
        """Return whether a column is a key and nothing else, so that its spelling must be kept."""
        return name in self.keys and name not in self.values


def parse_type(name: str, kind: str | pa.DataType) -> pa.DataType:
    """Return the Arrow type that `kind` names: string, int, float, bool, date, timestamp, or an Arrow alias.

    An Arrow type is returned unchanged. `name` is the name of the column, for the error message.

    Raises
    ------
    LogError
        `kind` is not the name of a type.
    """
    if not isinstance(kind, str):
        return kind
    try:
        return _TYPES_BY_NAME[kind] if kind in _TYPES_BY_NAME else pa.type_for_alias(kind)
    except ValueError:
        names = ", ".join(_TYPES_BY_NAME)
        raise LogError(
            f"types={{{name!r}: {kind!r}}}: expected {names} or an Arrow type such as 'uint64', found {kind!r}"
        ) from None


def resolve_type(name: str, guesses: Sequence[TypeGuess], typed: bool, uses: ColumnUses) -> pa.DataType:
    """Return the type that a column has in all text files of a log.

    Inferring the type of each file separately would make the result depend on how rows are split into files. A column
    that is only a key is read as text: this keeps its spelling, and any value in a later row can be read as text.
    Numbers in other columns are read as float64 (see `ColumnUses` for exceptions), because a column of scores may start
    with a thousand integers such as 0.

    Parameters
    ----------
    name : str
        The column.
    guesses : sequence of TypeGuess
        The type inferred for each file.
    typed : bool
        Whether the format distinguishes numbers from text, as JSON does.
    uses : ColumnUses
        The purposes for which the pass reads columns.

    Raises
    ------
    LogError
        Files have conflicting types.
    """
    if uses.is_only_key(name) and not typed:
        return KEY_TEXT
    kinds: dict[pa.DataType, str] = {}
    for guess, file in guesses:
        # If a column contains only nulls in a file, this file says nothing about the type of the column.
        if not pa.types.is_null(guess):
            kinds.setdefault(_choose_type(guess, name, uses, typed), file)
    if typed and name in uses.exact_integers and pa.float64() in kinds:
        raise LogError(
            f"{kinds[pa.float64()]}: column {name!r}: expected integers of at most 64 bits, found numbers that are "
            f"read as float64, which rounds large integers; write the integers as JSON strings to compare them exactly"
        )
    if not kinds:
        return KEY_TEXT if name in uses.keys else pa.float64()
    if len(kinds) == 1:
        return next(iter(kinds))
    if kinds.keys() <= {pa.int64(), pa.float64(), pa.string()} and name in uses.integers:
        return pa.string() if pa.string() in kinds else pa.float64()
    if all(pa.types.is_timestamp(kind) for kind in kinds) and len({kind.tz for kind in kinds}) == 1:
        return max(kinds, key=lambda kind: str(kind.unit) == "ns")
    (one, file), (other, other_file) = list(kinds.items())[:2]
    raise LogError(
        f"column {name!r}: expected one type in all files, found {_value_type(one)} in {file} and {_value_type(other)} "
        f"in {other_file}; {suggest_text_type(name)}"
    )


def find_comparison_type(name: str, guesses: Sequence[TypeGuess], typed: bool, uses: ColumnUses) -> pa.DataType | None:
    """Return the type, such as float64, that a filter (`where`) uses to compare a column that is read as text.

    Return None if the column is not read as text, if its values are compared as text, or if files have different types.
    The parameters are the same as for `resolve_type`.
    """
    kinds = {_choose_type(guess, name, ColumnUses(), False) for guess, _ in guesses if not pa.types.is_null(guess)}
    if resolve_type(name, guesses, typed, uses) not in (KEY_TEXT, pa.string()) or len(kinds) != 1:
        return None
    kind = next(iter(kinds))
    return None if kind == pa.string() else kind


def _choose_type(guess: pa.DataType, name: str, uses: ColumnUses, typed: bool) -> pa.DataType:
    """Return the type to use for a column, given the type inferred from the first rows of a file.

    `typed` says whether the format distinguishes numbers from text. If it does, numbers cannot be read as text.
    """
    real = pa.types.is_floating(guess)
    if name in uses.keys and not pa.types.is_boolean(guess) and not real:
        return pa.int64() if pa.types.is_integer(guess) else KEY_TEXT
    if pa.types.is_integer(guess) and name in uses.integers:
        return pa.int64()
    if real and name in uses.exact_integers and not typed:
        return pa.string()
    if real or pa.types.is_integer(guess) or (pa.types.is_string(guess) and name in uses.numbers and not typed):
        return pa.float64()
    if pa.types.is_timestamp(guess) and guess.unit != "ns":
        # Allow for fractions of a second: later rows may contain them, even if the first rows do not.
        return pa.timestamp("us", guess.tz)
    return guess


def _value_type(kind: pa.DataType) -> pa.DataType:
    return kind.value_type if pa.types.is_dictionary(kind) else kind


# -- Conversion ------------------------------------------------------------------------------------------------------


def cast_column(column: pa.Array, kind: pa.DataType, name: str, position: tuple[str, int], hint: str) -> pa.Array:
    """Convert a column to another type.

    Parameters
    ----------
    column : pyarrow.Array
        The values, dictionary-encoded or not.
    kind : pyarrow.DataType
        The new type.
    name : str
        The name of the column.
    position : tuple of str and int
        The file, and the row number of the first value within the file.
    hint : str
        The end of the error message, which says how to read values that cannot be converted.

    Raises
    ------
    LogError
        A value cannot be converted; the message gives its row.
    """
    decoded = column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column
    if decoded.type == kind:
        return decoded
    try:
        return _cast(decoded, kind)
    # If the cast fails, Arrow's error does not name the row, so search for the first row that cannot be cast.
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        row = _find_first_failure(decoded, kind)
    file, first_row = position
    what = _describe_mismatch(name, decoded[row].as_py(), kind)
    raise LogError(f"{file}: row {first_row + row:,}: {what}; {hint}")


def _cast(values: pa.Array, kind: pa.DataType) -> pa.Array:
    """Cast values to a type.

    A time without a time zone is treated as UTC. If a time is cast to a date, the result is its date in UTC.
    """
    if "string" not in str(values.type) or not (pa.types.is_timestamp(kind) or pa.types.is_date(kind)):
        return values.cast(kind)
    if pa.types.is_date(kind):
        return _cast(values, pa.timestamp("us")).cast(kind)
    if kind.tz is not None:
        return _cast(values, pa.timestamp(kind.unit)).cast(kind)
    # Arrow casts strings to times only if either all or none of them have a time zone. Cast the two groups separately.
    values = pc.replace_substring_regex(values, *_COMPACT)
    zoned = pc.match_substring_regex(values, _ZONE)
    utc = pc.if_else(zoned, values, None).cast(pa.timestamp(kind.unit, "UTC")).cast(kind)
    return pc.coalesce(utc, pc.if_else(zoned, None, values).cast(kind))


def _find_first_failure(values: pa.Array, kind: pa.DataType) -> int:
    """Return the index of the first value that cannot be cast to a type. The caller ensures that there is one."""
    low, high = 0, len(values)
    while high - low > 1:
        middle = (low + high) // 2
        try:
            _cast(values.slice(low, middle - low), kind)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            # The cast of the lower half fails, so this half contains the first value that cannot be converted.
            high = middle
        else:
            low = middle
    return low


def format_conversion_error(
    name: str, value: object, kind: pa.DataType | str, user_typed: bool = False, numeric: bool = False
) -> str:
    """Return the error message for a value that cannot be converted.

    Parameters
    ----------
    name : str
        The column.
    value : object
        The value.
    kind : pyarrow.DataType or str
        The type that was expected.
    user_typed : bool
        Whether the user specified the type.
    numeric : bool
        Whether metrics need numbers in this column, so that reading it as text would only lead to another error.
    """
    text, what = str(value)[:40], _describe_mismatch(name, value, kind)
    if numeric and not _MISSING.fullmatch(text.strip()):
        null = f", or {_suggest_null(text)}" if text == str(value) else ""
        return f"{what}; correct the value{null}"
    if user_typed and not numeric:
        return f"{what}; {suggest_text_type(name)}"
    if isinstance(kind, pa.DataType) and pa.types.is_date(kind) and ":" in text:
        return f"{what}; pass types={{{name!r}: 'timestamp'}} to read dates and times"
    if _MISSING.fullmatch(text.strip()):
        return f"{what}; {_suggest_null(text)}"
    return f"{what}; {suggest_text_type(name)}"


def suggest_text_type(name: str) -> str:
    """Return the last part of an error message, which tells the user how to read a column as text."""
    return f"pass types={{{name!r}: 'string'}} to read the column as text"


def _suggest_null(text: str) -> str:
    return f"pass nulls=[*DEFAULT_NULLS, {text!r}] to read this text as a missing value"


def _describe_mismatch(name: str, value: object, kind: pa.DataType | str) -> str:
    spelled = _NAMES_OF_TYPES.get(kind, str(kind)) if isinstance(kind, pa.DataType) else kind
    return f"column {name!r}: expected {spelled}, found {str(value)[:40]!r}"
