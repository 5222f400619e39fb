"""Keys of slices: their kinds, stored form, JSON form, order, and hash, which is the same in every release.

The hash decides which keys a limit on the number of slices keeps.
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
"""Kinds of keys, and whether they are stored as bytes. Keys of different kinds cannot be merged."""

SHARDS = {kind: f"shard of {kind}" for kind in (*KINDS, "several")}
"""The kind of shard numbers, by the kind of their units; "several" for units of several columns."""

EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


def to_stored_key(key: Any) -> tuple[str, Any] | None:
    """Return the kind and the stored form of a key that a user passes, or None for a value that cannot be a key."""
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
        # Times without a zone count as UTC.
        aware = key if key.tzinfo is not None else key.replace(tzinfo=datetime.UTC)
        return "timestamp", (aware - EPOCH) // datetime.timedelta(microseconds=1)
    if isinstance(key, datetime.date):
        return "date", (key - EPOCH.date()).days
    if isinstance(key, Decimal):
        return ("decimal", _format_decimal(key).encode()) if key.is_finite() else None
    return None


def _format_decimal(key: Decimal) -> str:
    """Return the canonical text of a decimal: no exponent and no trailing zeros."""
    text = format(key, "f")  # `normalize` would round to 28 digits
    text = text.rstrip("0").rstrip(".") if "." in text else text
    return text if key else "0"


DIGITS = re.compile(r"-?\d+(\.\d+)?", re.ASCII)


def _parse_decimal(text: str) -> Decimal:
    """Return a decimal from its digits.

    Exponents are refused: a text of ten characters could stand for gigabytes of digits.
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
"""The ranges of stored keys; dates and timestamps have the years 1 to 9999."""


def are_stored_keys(kind: str, values: Any) -> bool:
    """Whether all values are valid stored forms of keys of this kind."""
    if not KINDS.get(kind):
        low, high = RANGES.get(kind, RANGES["integer"])
        return bool(low <= int(values.min()) and int(values.max()) <= high) if len(values) else True
    if kind == "bytes":
        return True
    try:
        texts = [v.decode() for v in values]
        return kind == "string" or all(to_stored_key(_parse_decimal(t)) == ("decimal", t.encode()) for t in texts)
    except (UnicodeDecodeError, ArithmeticError, ValueError):  # corrupt bytes, which are not UTF-8 or not a number
        return False


def from_stored_key(kind: str, value: Any) -> Any:
    """Return a stored key as a plain Python value."""
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
    """Return a key in its JSON form."""
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
        raise TypeError(f"{atom!r} cannot be a key")
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
    """Return a key from the JSON form that `encode_key` writes."""
    key = []
    for atom in value:
        if isinstance(atom, dict):
            ((kind, text),) = atom.items()
            key.append(DECODERS[kind](text))
        elif atom is None or type(atom) in (bool, int, str):
            key.append(atom)
        else:
            raise ValueError("a key has an unknown kind")
    # Each key has one JSON form: equal keys in two forms would be two slices.
    if encode_key(tuple(key)) != list(value):
        raise ValueError("a key is not in canonical form")
    return tuple(key)


def format_atom(atom: Any) -> str:
    """Format one column of a key: times in ISO 8601, null as `null`, and distinct texts for distinct values."""
    if atom is None:
        return "null"
    if isinstance(atom, (bytes, bytearray)):
        try:
            atom = bytes(atom).decode()
        except UnicodeDecodeError:  # no text
            return f"0x{bytes(atom).hex()}"
    if isinstance(atom, datetime.date):
        return atom.isoformat()
    return '"null"' if atom == "null" else str(atom)


def escape_unprintable(text: str) -> str:
    r"""Escape unprintable characters and control codes as in Python, such as \n, so that the text stays on one line."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def encode_atom_text(atom: Any) -> str:
    """Return the JSON text of one column of a key, as it appears in the JSON text of the whole key."""
    return canonical_json(_encode(atom))


def hash_text(text: str) -> int:
    """Return a 64-bit hash of the JSON text of a key."""
    return int.from_bytes(hashlib.blake2b(b"streammetrics slice" + text.encode(), digest_size=8).digest(), "little")


def hash_key(key: tuple[Any, ...]) -> int:
    """Return a 64-bit hash of a key, which is the same in every release."""
    return hash_text(canonical_json(encode_key(key)))


def sort_key(key: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return a key for sorting: null first, then numbers, booleans and times by value, then texts by UTF-8 bytes."""
    return tuple(_sort_atom(atom) for atom in key)


def _sort_atom(atom: Any) -> tuple[int, Any]:
    if atom is None:
        return 0, 0
    stored = to_stored_key(atom)
    if stored is None:
        raise TypeError(f"{atom!r} cannot be a key")
    return (2, stored[1]) if isinstance(stored[1], bytes) else (1, stored[1])


FIRST, SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)


def mix_bits(words: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Hash each 64-bit word with the finaliser of SplitMix64, a bijection."""
    words = (words ^ (words >> np.uint64(30))) * FIRST
    words = (words ^ (words >> np.uint64(27))) * SECOND
    return words ^ (words >> np.uint64(31))
