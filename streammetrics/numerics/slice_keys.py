"""Slice keys, such as ("DE", 3): conversion to their stored form and to JSON, sorting and hashing.

A key is a tuple with one value (an atom) per column. If the number of slices is limited, the hashes of the keys decide
which slices are kept, so the hash of a key must be the same in every release.
"""

from __future__ import annotations

import datetime
import hashlib
import re
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .canonical import canonical_json

__all__ = [
    "EPOCH",
    "KINDS",
    "SHARDS",
    "are_stored_keys",
    "decode_key",
    "encode_atom_text",
    "encode_key",
    "format_atom",
    "from_stored_key",
    "hash_key",
    "hash_text",
    "mix_bits",
    "sort_key",
    "to_stored_key",
]  # fmt: skip

KINDS = {
    "integer": False, "string": True, "bytes": True, "bool": False, "date": False, "timestamp": False, "decimal": True,
}  # fmt: skip
"""The kinds of keys, and whether keys of each kind are stored as bytes. Keys of different kinds cannot be merged."""

SHARDS = {kind: f"shard of {kind}" for kind in (*KINDS, "several")}
"""The kind of the shard numbers, by the kind of the unit column from which they are computed.

Units identified by several columns have the kind "several". Shards of units of different kinds cannot be merged.
"""

EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


def to_stored_key(key: Any) -> tuple[str, Any] | None:
    """Return the kind and the stored form of a value in one key column, such as ("string", b"DE") for "DE".

    The result is None for a value that cannot be part of a key, such as a float.
    """
    key = key.item() if isinstance(key, np.generic) else key
    if isinstance(key, bool):
        return "bool", int(key)
    if isinstance(key, int):
        return "integer", key
    if isinstance(key, str):
        return "string", key.encode()
    if isinstance(key, (bytes, bytearray)):
        return "bytes", bytes(key)
    if isinstance(key, datetime.datetime):
        # Times without a time zone are treated as UTC.
        aware = key if key.tzinfo is not None else key.replace(tzinfo=datetime.UTC)
        return "timestamp", (aware - EPOCH) // datetime.timedelta(microseconds=1)
    if isinstance(key, datetime.date):
        return "date", (key - EPOCH.date()).days
    if isinstance(key, Decimal):
        return ("decimal", _format_decimal(key).encode()) if key.is_finite() else None
    return None


def _format_decimal(key: Decimal) -> str:
    """Return the canonical text of a decimal, which has no exponent and no trailing zeros: "0.5" for 0.50."""
    # Do not use `Decimal.normalize`, because it rounds to 28 digits.
    text = format(key, "f")
    text = text.rstrip("0").rstrip(".") if "." in text else text
    return text if key else "0"


DIGITS = re.compile(r"-?\d+(\.\d+)?", re.ASCII)


def _parse_decimal(text: str) -> Decimal:
    """Parse the text of a decimal, such as "0.5".

    Exponents are rejected, because a short string such as "1e999999" could expand to a very large number of digits.
    """
    if not DIGITS.fullmatch(text):
        raise ValueError("a decimal key is not in canonical form")
    return Decimal(text)


RANGES = {
    "bool": (0, 1),
    "date": (datetime.date.min.toordinal() - EPOCH.toordinal(), datetime.date.max.toordinal() - EPOCH.toordinal()),
    "timestamp": (-62_135_596_800_000_000, 253_402_300_799_999_999),
    "integer": (-(1 << 63), (1 << 64) - 1),
}  # fmt: skip
"""The smallest and largest stored numbers of each kind; for dates and timestamps, they are in the years 1 and 9999."""


def are_stored_keys(kind: str, values: Any) -> bool:
    """Return whether all values are valid stored keys of the given kind, such as "string"."""
    if not KINDS.get(kind):
        low, high = RANGES.get(kind, RANGES["integer"])
        return bool(low <= int(values.min()) and int(values.max()) <= high) if len(values) else True
    if kind == "bytes":
        return True
    try:
        texts = [v.decode() for v in values]
        return kind == "string" or all(to_stored_key(_parse_decimal(t)) == ("decimal", t.encode()) for t in texts)
    except (UnicodeDecodeError, ArithmeticError, ValueError):
        # A value is not valid UTF-8, or is not a decimal number in canonical form.
        return False


def from_stored_key(kind: str, value: Any) -> Any:
    """Convert a stored value of the given kind back to a plain Python value; the inverse of `to_stored_key`."""
    if kind == "string":
        return value.decode()
    if kind == "bytes":
        return value
    if kind == "decimal":
        return Decimal(value.decode())
    number = int(value)
    if kind == "bool":
        return bool(number)
    if kind == "date":
        return EPOCH.date() + datetime.timedelta(days=number)
    if kind == "timestamp":
        return EPOCH + datetime.timedelta(microseconds=number)
    return number


def encode_key(key: tuple[Any, ...]) -> list[Any]:
    """Return a key in its JSON form: a list with one value for each column, such as ["DE", {"date": 20000}]."""
    return [_encode(atom) for atom in key]


def _encode(atom: Any) -> Any:
    atom = atom.item() if isinstance(atom, np.generic) else atom
    if atom is None or isinstance(atom, (bool, str)):
        return atom
    if isinstance(atom, int):
        return int(atom)
    if isinstance(atom, (bytes, bytearray)):
        return {"bytes": bytes(atom).hex()}
    stored = to_stored_key(atom)
    if stored is None:
        raise TypeError(
            f"{atom!r} cannot be a key; use None, a boolean, an integer, a string, bytes, a date, a time or a decimal"
        )
    kind, value = stored
    return {kind: value.decode() if isinstance(value, bytes) else value}


def _decode_date(value: Any) -> datetime.date:
    date: datetime.date = from_stored_key("date", value)
    return date


DECODERS: dict[str, Callable[[Any], Any]] = {
    "bytes": bytes.fromhex,
    "date": _decode_date,
    "timestamp": lambda v: EPOCH + datetime.timedelta(microseconds=int(v)),
    "decimal": _parse_decimal,
}


def decode_key(value: Any) -> tuple[Any, ...]:
    """Convert the JSON form that `encode_key` returns back to a key."""
    key = []
    for atom in value:
        if isinstance(atom, dict):
            ((kind, text),) = atom.items()
            key.append(DECODERS[kind](text))
        elif atom is None or type(atom) in (bool, int, str):
            key.append(atom)
        else:
            raise ValueError("a key is of an unknown kind")
    # Each key must have only one JSON form. Otherwise equal keys in different forms would become different slices.
    if encode_key(tuple(key)) != list(value):
        raise ValueError("a key is not in canonical form")
    return tuple(key)


def format_atom(atom: Any) -> str:
    """Format one value of a key for display, with times in ISO 8601 and a missing value as "null"."""
    if atom is None:
        return "null"
    if isinstance(atom, (bytes, bytearray)):
        try:
            atom = bytes(atom).decode()
        except UnicodeDecodeError:
            # The bytes are not valid UTF-8.
            return f"0x{bytes(atom).hex()}"
    if isinstance(atom, datetime.date):
        return atom.isoformat()
    return '"null"' if atom == "null" else str(atom)


def escape_unprintable(text: str) -> str:
    r"""Escape unprintable characters, such as line breaks, as in Python string literals; the text stays on one line."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def encode_atom_text(atom: Any) -> str:
    """Return the JSON text of one value of a key, as it appears in the JSON text of the whole key."""
    return canonical_json(_encode(atom))


def hash_text(text: str) -> int:
    """Return a 64-bit hash of the JSON text of a key."""
    return int.from_bytes(hashlib.blake2b(b"streammetrics slice" + text.encode(), digest_size=8).digest(), "little")


def hash_key(key: tuple[Any, ...]) -> int:
    """Return a 64-bit hash of a key, which is the same in every release."""
    return hash_text(canonical_json(encode_key(key)))


def sort_key(key: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the sort key of a slice key, for ``sorted(keys, key=sort_key)``.

    In each column, null comes first, then integers, booleans, dates and times by value, and then strings, bytes and
    decimals by the bytes of their stored form.
    """
    return tuple(_sort_atom(atom) for atom in key)


def _sort_atom(atom: Any) -> tuple[int, Any]:
    if atom is None:
        return 0, 0
    stored = to_stored_key(atom)
    if stored is None:
        raise TypeError(
            f"{atom!r} cannot be a key; use None, a boolean, an integer, a string, bytes, a date, a time or a decimal"
        )
    return (2, stored[1]) if isinstance(stored[1], bytes) else (1, stored[1])


FIRST, SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)


def mix_bits(words: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Hash each 64-bit word with the finalizer of SplitMix64. Different words have different hashes."""
    words = (words ^ (words >> np.uint64(30))) * FIRST
    words = (words ^ (words >> np.uint64(27))) * SECOND
    return words ^ (words >> np.uint64(31))
