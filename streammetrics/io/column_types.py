"""The type of each column: named by the user, or settled by what the column is read for and by all files of a log."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from streammetrics.io.sources import LogError

__all__ = [
    "KEY_TEXT",
    "Guess",
    "Uses",
    "cast_column",
    "compared_type",
    "conversion_error",
    "data_type",
    "keep_spelling",
    "settled_type",
]

KEY_TEXT = pa.dictionary(pa.int32(), pa.string())
"""The type of keys that are text."""

_NAMED = {
    "string": pa.string(),
    "int": pa.int64(),
    "float": pa.float64(),
    "bool": pa.bool_(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us"),
}
_SPELLED = {kind: name for name, kind in _NAMED.items()}
_MISSING = re.compile(r"|#?n/?a|#n/a n/a|<na>|none|null|nil|nan|missing|undefined|unknown|-+|\?|\.", re.IGNORECASE)
"""How programs spell a missing value, apart from the spellings that are read as null by default."""

_ZONE = r":\d\d(?:\.\d+)?\s*(?:Z|[+-]\d\d(?::?\d\d)?)$"

_COMPACT = (r"^(\d{4})(\d\d)(\d\d)$", r"\1-\2-\3")
"""Dates without hyphens, as partitions often have."""

Guess = tuple[pa.DataType, str]
"""What a column of one file seems to hold, and the file."""


class Uses(NamedTuple):
    """What columns are read for, which decides what those of text files and partitions are read as.

    Parameters
    ----------
    keys : collection of str
        They slice or group: text as it is spelled.
    values : collection of str
        Metrics read them: as keys, too, they keep numbers, and true and false.
    whole : collection of str
        Integers that no float64 may stand for: where all of them are, they are read as such.
    exact : collection of str
        Those among them that are read as text where they are longer than 64 bits.
    numbers : collection of str
        Those among the values that must be numbers, such as scores and weights.
    times : collection of str
        Windows are made of them: text is read as dates and times.
    """

    keys: Collection[str] = ()
    values: Collection[str] = ()
    whole: Collection[str] = ()
    exact: Collection[str] = ()
    numbers: Collection[str] = ()
    times: Collection[str] = ()

    def spells(self, name: str) -> bool:
        """Whether a column is nothing but a key, so that its spelling counts."""
        return name in self.keys and name not in self.values


def data_type(name: str, kind: str | pa.DataType) -> pa.DataType:
    """Return the type that a user names: string, int, float, bool, date, timestamp, or an alias of Arrow.

    Raises
    ------
    LogError
        There is no such type.
    """
    if not isinstance(kind, str):
        return kind
    try:
        return _NAMED[kind] if kind in _NAMED else pa.type_for_alias(kind)
    except ValueError:
        known = ", ".join(_NAMED)
        raise LogError(
            f"types={{{name!r}: {kind!r}}}: expected {known} or an Arrow type such as 'uint64', found {kind!r}"
        ) from None


def settled_type(name: str, guesses: Sequence[Guess], typed: bool, uses: Uses) -> pa.DataType:
    """Return the one type that a column has in all text files of a log.

    Types guessed file by file would make the result depend on how the rows were split into files. What is only a key is
    text, so that its spelling counts and no later row can be of another type; other numbers are read as float64, as a
    column of scores may well start with a thousand zeros.

    Parameters
    ----------
    name : str
        The column.
    guesses : sequence of Guess
        What each file seems to hold.
    typed : bool
        Whether the format says what is a number and what is a text, as JSON does.
    uses : Uses
        What columns are read for.

    Raises
    ------
    LogError
        Files disagree.
    """
    if uses.spells(name) and not typed:
        return KEY_TEXT
    kinds: dict[pa.DataType, str] = {}
    for guess, file in guesses:
        if not pa.types.is_null(guess):  # nothing but nulls fits any type
            kinds.setdefault(_type_of(guess, name, uses, typed), file)
    if typed and name in uses.exact and pa.float64() in kinds:
        raise LogError(
            f"{kinds[pa.float64()]}: column {name!r}: numbers of JSON that 64 bits do not hold are read as float64, which "
            f"does not tell them apart; write them as texts to compare them"
        )
    if not kinds:
        return KEY_TEXT if name in uses.keys else pa.float64()
    if len(kinds) == 1:
        return next(iter(kinds))
    if kinds.keys() <= {pa.int64(), pa.float64(), pa.string()} and name in uses.whole:
        return pa.string() if pa.string() in kinds else pa.float64()
    if all(pa.types.is_timestamp(kind) for kind in kinds) and len({kind.tz for kind in kinds}) == 1:
        return max(kinds, key=lambda kind: str(kind.unit) == "ns")
    (one, file), (other, other_file) = list(kinds.items())[:2]
    raise LogError(
        f"column {name!r} is {_plain(one)} in {file}, but {_plain(other)} in {other_file}; "
        f"name its type with types={{{name!r}: 'string'}}"
    )


def compared_type(name: str, guesses: Sequence[Guess], typed: bool, uses: Uses) -> pa.DataType | None:
    """Return what a column that is read as text is compared as; None if it holds text, or files disagree."""
    kinds = {_type_of(guess, name, Uses(), False) for guess, _ in guesses if not pa.types.is_null(guess)}
    if settled_type(name, guesses, typed, uses) not in (KEY_TEXT, pa.string()) or len(kinds) != 1:
        return None
    kind = next(iter(kinds))
    return None if kind == pa.string() else kind


def _type_of(guess: pa.DataType, name: str, uses: Uses, typed: bool) -> pa.DataType:
    """What a guess is read as; JSON is typed: it says what is a text, and its numbers cannot be read as such."""
    real = pa.types.is_floating(guess)
    if name in uses.keys and not pa.types.is_boolean(guess) and not real:
        return pa.int64() if pa.types.is_integer(guess) else KEY_TEXT
    if pa.types.is_integer(guess) and name in uses.whole:
        return pa.int64()
    if real and name in uses.exact and not typed:
        return pa.string()
    if real or pa.types.is_integer(guess) or (pa.types.is_string(guess) and name in uses.numbers and not typed):
        return pa.float64()
    if pa.types.is_timestamp(guess) and guess.unit != "ns":
        return pa.timestamp("us", guess.tz)  # later rows may have fractions of a second
    return guess


def _plain(kind: pa.DataType) -> pa.DataType:
    return kind.value_type if pa.types.is_dictionary(kind) else kind


# -- conversion ------------------------------------------------------------------------------------------------------


def cast_column(column: pa.Array, kind: pa.DataType, name: str, where: tuple[str, int], cure: str) -> pa.Array:
    """Return a column as another type.

    Parameters
    ----------
    column : pyarrow.Array
        The values, dictionary-encoded or not.
    kind : pyarrow.DataType
        The type.
    name : str
        The column.
    where : tuple of str and int
        The file, and the row of it that the first value belongs to.
    cure : str
        What helps where a value is none of this type.

    Raises
    ------
    LogError
        A value is none of this type; the message names its row.
    """
    plain = column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column
    if plain.type == kind:
        return plain
    try:
        return _cast(plain, kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):  # which does not say where
        row = _first_failure(plain, kind)
    file, first_row = where
    what = _expected(name, plain[row].as_py(), kind)
    raise LogError(f"{file}: row {first_row + row:,}: {what}; {cure}")


def _cast(values: pa.Array, kind: pa.DataType) -> pa.Array:
    """Cast; texts of times without a zone are in UTC, and times become dates in UTC."""
    if "string" not in str(values.type) or not (pa.types.is_timestamp(kind) or pa.types.is_date(kind)):
        return values.cast(kind)
    if pa.types.is_date(kind):
        return _cast(values, pa.timestamp("us")).cast(kind)
    if kind.tz is not None:
        return _cast(values, pa.timestamp(kind.unit)).cast(kind)
    values = pc.replace_substring_regex(values, *_COMPACT)
    zoned = pc.match_substring_regex(values, _ZONE)
    utc = pc.if_else(zoned, values, None).cast(pa.timestamp(kind.unit, "UTC")).cast(kind)
    return pc.coalesce(utc, pc.if_else(zoned, None, values).cast(kind))


def _first_failure(values: pa.Array, kind: pa.DataType) -> int:
    """Return the first value that does not convert, by bisection."""
    low, high = 0, len(values)
    while high - low > 1:
        middle = (low + high) // 2
        try:
            _cast(values.slice(low, middle - low), kind)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):  # it is in this half
            high = middle
        else:
            low = middle
    return low


def conversion_error(
    name: str, value: object, kind: pa.DataType | str, asked: bool = False, number: bool = False
) -> str:
    """Return the message for a value that does not convert.

    Parameters
    ----------
    name : str
        The column.
    value : object
        The value.
    kind : pyarrow.DataType or str
        The type that was expected.
    asked : bool
        Whether the user named the type.
    number : bool
        Whether metrics need numbers in this column, so that reading it as text leads to another error.
    """
    text, what = str(value)[:40], _expected(name, value, kind)
    if number and not _MISSING.fullmatch(text.strip()):
        null = f", or read it as a missing value with nulls=[*DEFAULT_NULLS, {text!r}]" if text == str(value) else ""
        return f"{what}; correct the value{null}"
    if asked and not number:
        return f"{what}; {keep_spelling(name)}"
    if isinstance(kind, pa.DataType) and pa.types.is_date(kind) and ":" in text:
        return f"{what}; types={{{name!r}: 'timestamp'}} reads dates and times"
    if _MISSING.fullmatch(text.strip()):
        return f"{what}; nulls=[*DEFAULT_NULLS, {text!r}] reads it as a missing value"
    return f"{what}; types={{{name!r}: 'string'}} reads the column as text"


def keep_spelling(name: str) -> str:
    """Say how a column is read as text, whatever it holds."""
    return f"types={{{name!r}: 'string'}} keeps the spelling"


def _expected(name: str, value: object, kind: pa.DataType | str) -> str:
    spelled = _SPELLED.get(kind, str(kind)) if isinstance(kind, pa.DataType) else kind
    return f"column {name!r}: expected {spelled}, found {str(value)[:40]!r}"
