"""Keys of slices: their kinds, how they are held, as JSON, their order, and their fixed hash, which is for ever.

Which keys a limit keeps depends on the hash.
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
    "EPOCH", "KINDS", "SHARDS", "atom_text", "decode_key", "encode_key", "fits", "fixed_hash", "hash_of", "plain", "raw",
    "scattered", "shown", "sort_key",
]  # fmt: skip

KINDS = {
    "integer": False, "string": True, "bytes": True, "bool": False, "date": False, "timestamp": False, "decimal": True,
}  # fmt: skip
"""Kinds of keys, and whether they are held as texts. Keys of different kinds refuse to merge."""

SHARDS = {kind: f"shard of {kind}" for kind in (*KINDS, "several")}
"""The kind of the numbers of shards, by that of the units that fell into them; units of several columns are of one."""

EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


def raw(key: Any) -> tuple[str, Any] | None:
    """The kind of a key as users write it, and how it is held; None if it can be none."""
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
        aware = key if key.tzinfo is not None else key.replace(tzinfo=datetime.UTC)
        return "timestamp", (aware - EPOCH) // datetime.timedelta(microseconds=1)
    if isinstance(key, datetime.date):
        return "date", (key - EPOCH.date()).days
    if isinstance(key, Decimal):
        return ("decimal", _decimal(key).encode()) if key.is_finite() else None
    return None


def _decimal(key: Decimal) -> str:
    """The one text of a decimal: no exponent, no zeros that say nothing. `normalize` would round to 28 digits."""
    text = format(key, "f")
    text = text.rstrip("0").rstrip(".") if "." in text else text
    return text if key else "0"


DIGITS = re.compile(r"-?\d+(\.\d+)?", re.ASCII)


def _decimal_of(text: str) -> Decimal:
    """A decimal of its digits: with an exponent, ten letters would be gigabytes of them."""
    if not DIGITS.fullmatch(text):
        raise ValueError("a decimal is not as it would be written")
    return Decimal(text)


RANGES = {
    "bool": (0, 1),
    "date": (datetime.date.min.toordinal() - EPOCH.toordinal(), datetime.date.max.toordinal() - EPOCH.toordinal()),
    "timestamp": (-62_135_596_800_000_000, 253_402_300_799_999_999),
    "integer": (-(1 << 63), (1 << 64) - 1),
}  # fmt: skip
"""Numbers that are keys: dates and times of the years 1 to 9999."""


def fits(kind: str, values: Any) -> bool:
    """Whether values, as they are held, are all keys of a kind."""
    if not KINDS.get(kind):
        low, high = RANGES.get(kind, RANGES["integer"])
        return bool(low <= int(values.min()) and int(values.max()) <= high) if len(values) else True
    if kind == "bytes":
        return True
    try:
        texts = [v.decode() for v in values]
        return kind == "string" or all(raw(_decimal_of(t)) == ("decimal", t.encode()) for t in texts)
    except (UnicodeDecodeError, ArithmeticError, ValueError):  # hostile bytes: no text, or no number
        return False


def plain(kind: str, value: Any) -> Any:
    """A value as users write it."""
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
    """Write a key as JSON holds it."""
    return [_encode(atom) for atom in key]


def _encode(atom: Any) -> Any:
    atom = atom.item() if isinstance(atom, np.generic) else atom
    if atom is None or isinstance(atom, (bool, str)):
        return atom
    if isinstance(atom, int):
        return int(atom)
    if isinstance(atom, (bytes, bytearray)):
        return {"bytes": bytes(atom).hex()}
    held = raw(atom)
    if held is None:
        raise TypeError(f"{atom!r} is no key")
    kind, value = held
    return {kind: value.decode() if isinstance(value, bytes) else value}


def _day(value: Any) -> datetime.date:
    made: datetime.date = plain("date", value)
    return made


DECODERS: dict[str, Callable[[Any], Any]] = {
    "bytes": bytes.fromhex,
    "date": _day,
    "timestamp": lambda v: EPOCH + datetime.timedelta(microseconds=int(v)),
    "decimal": _decimal_of,
}


def decode_key(value: Any) -> tuple[Any, ...]:
    """Read what `encode_key` wrote."""
    key = []
    for atom in value:
        if isinstance(atom, dict):
            ((kind, said),) = atom.items()
            key.append(DECODERS[kind](said))
        elif atom is None or type(atom) in (bool, int, str):
            key.append(atom)
        else:
            raise ValueError("a key is of no known kind")
    if encode_key(tuple(key)) != list(value):
        raise ValueError("a key is not as it would be written")
    return tuple(key)


def shown(atom: Any) -> str:
    """One column of a key as a person reads it: times as ISO 8601 has them, null as such, and each in its own way."""
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


def visible(text: str) -> str:
    r"""A text on one line, and no orders to a terminal: what cannot be printed as Python writes it, such as \n."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def atom_text(atom: Any) -> str:
    """The text of one column of a key, of which that of the key is made."""
    return canonical_json(_encode(atom))


def hash_of(text: str) -> int:
    """64 bits of the text of a key."""
    return int.from_bytes(hashlib.blake2b(b"streammetrics slice" + text.encode(), digest_size=8).digest(), "little")


def fixed_hash(key: tuple[Any, ...]) -> int:
    """64 bits of a key, the same everywhere and for ever."""
    return hash_of(canonical_json(encode_key(key)))


def sort_key(key: tuple[Any, ...]) -> tuple[Any, ...]:
    """Order keys: null first, then numbers, booleans and times among themselves, then text by its bytes."""
    return tuple(_rank(atom) for atom in key)


def _rank(atom: Any) -> tuple[int, Any]:
    if atom is None:
        return 0, 0
    held = raw(atom)
    if held is None:
        raise TypeError(f"{atom!r} is no key")
    return (2, held[1]) if isinstance(held[1], bytes) else (1, held[1])


FIRST, SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)


def scattered(words: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The finaliser of SplitMix64, which takes each word to another one; for ever."""
    words = (words ^ (words >> np.uint64(30))) * FIRST
    words = (words ^ (words >> np.uint64(27))) * SECOND
    return words ^ (words >> np.uint64(31))
