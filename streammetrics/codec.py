"""The one bytes format, for states, metrics, collections and slices. Standard library and numpy only; no pickle.

::

    "SMET" | u16 version | u16 flags | u32 header length | header | bodies | SHA-256 digest | u32 CRC32 of all before

Integers are little-endian. The header is canonical JSON (sorted keys, no spaces, ASCII): what the object is, its
settings, and name, shape and merge rule of every array. A body is `u8 encoding | u64 length | data` for each array of
int64 in turn: encoding 0 is raw, 1 is byte-shuffled and deflated, 2 is the gaps between non-zero values and those values,
both as LEB128, deflated. The digest is SHA-256 of the header and the raw arrays: it does not depend on the deflate at
hand, so equality, ledgers and golden files compare digests. Reading trusts nothing: sizes are bounded before anything is
allocated, values are checked after decoding, and whatever is wrong raises StateFormatError.
"""

from __future__ import annotations

import json
import math
import os
import struct
import tempfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from .arrays import Array, digest_of
from .errors import StateFormatError
from .settings import canonical_json
from .state import State, check_arrays

__all__ = ["decoders", "digest", "encode", "from_bytes", "load", "save"]

MAGIC, VERSION = b"SMET", 1
PREFIX = struct.Struct("<4sHHI")
LENGTH = struct.Struct("<BQ")
TAIL = 32 + 4
MAX_HEADER = 1 << 22
MAX_BYTES = 1 << 30
RAW, SHUFFLED, GAPS = 0, 1, 2
LEVEL = 1  # of deflate: level 6 is twice as slow for 7 % less


decoders: dict[str, Callable[[dict[str, Any], Callable[[dict[str, Any]], State]], Any]] = {}
"""How each kind of header becomes an object again; `read_state` turns a state's header into the state."""


def encode(thing: Any) -> bytes:
    """Write a state, metric, collection or slices as bytes."""
    header, arrays = _parts(thing)
    head = canonical_json(header).encode()
    if len(head) > MAX_HEADER:
        raise ValueError(f"the header would take {len(head):,} bytes; the format allows {MAX_HEADER:,}")
    parts = [PREFIX.pack(MAGIC, VERSION, 0, len(head)), head, *(_encode_array(a) for a in arrays)]
    parts.append(bytes.fromhex(digest_of(header, arrays)))
    body = b"".join(parts)
    return body + struct.pack("<I", zlib.crc32(body))


def digest(thing: Any) -> str:
    """SHA-256 of what `encode` writes, before compression: the identity of a state on every machine."""
    return digest_of(*_parts(thing))


def _parts(thing: Any) -> tuple[dict[str, Any], list[Array]]:
    if isinstance(thing, State):
        return {"kind": "state", "state": thing.header()}, list(thing.arrays.values())
    arrays = [a for s in thing.states() for a in s.arrays.values()]
    return thing.header(), arrays + (list(thing.extra_arrays()) if hasattr(thing, "extra_arrays") else [])


def _encode_array(array: Array) -> bytes:
    flat = np.ascontiguousarray(array, "<i8").reshape(-1)
    if np.count_nonzero(flat) < 0.05 * flat.size:
        encoding, plain = GAPS, _gaps(flat)
    else:
        encoding, plain = SHUFFLED, flat.view(np.uint8).reshape(-1, 8).T.tobytes()
    packed = zlib.compress(plain, LEVEL)
    if len(packed) >= flat.nbytes:
        encoding, packed = RAW, flat.tobytes()
    return LENGTH.pack(encoding, len(packed)) + packed


def _gaps(flat: Array) -> bytes:
    """Count of non-zero values, gaps between their places, and the values folded to be non-negative; as LEB128."""
    places = np.flatnonzero(flat)
    values = flat[places]
    folded = (values.astype(np.uint64) << np.uint64(1)) ^ (values >> 63).astype(np.uint64)
    gaps = np.diff(places, prepend=-1).astype(np.uint64) - np.uint64(1)
    return _leb128(np.concatenate([[np.uint64(len(places))], gaps, folded]).astype(np.uint64))


def _leb128(numbers: Array) -> bytes:
    """Seven bits a byte, the lowest first, the high bit set on all but the last byte of a number."""
    out = np.zeros((len(numbers), 10), np.uint8)
    used = np.zeros((len(numbers), 10), bool)
    rest = numbers.copy()
    for i in range(10):
        used[:, i] = True if i == 0 else rest != 0
        out[:, i] = (rest & np.uint64(0x7F)).astype(np.uint8)
        rest >>= np.uint64(7)
        out[:, i] |= ((rest != 0).astype(np.uint8)) << 7
    return out[used].tobytes()


# -- reading -----------------------------------------------------------------------------------------------------------


def from_bytes(data: bytes | bytearray | memoryview, *, max_bytes: int = MAX_BYTES) -> Any:
    """Read a state, metric, collection or slices that `to_bytes` wrote.

    Parameters
    ----------
    data : bytes
        The bytes; they need not be trusted.
    max_bytes : int
        The most memory that decoding may take.

    Returns
    -------
    State, Metric, MetricCollection or Sliced
        What was written. A metric or state of a package that is not imported still merges and re-encodes.

    Raises
    ------
    StateFormatError
        The bytes are damaged, truncated, newer than this release, inconsistent, or something else.
    """
    if not isinstance(data, (bytes, bytearray, memoryview)):
        raise TypeError(f"from_bytes() takes bytes, not a {type(data).__name__}")
    try:
        return _decode(memoryview(data).cast("B"), max_bytes)
    except StateFormatError:
        raise
    except Exception as error:
        raise StateFormatError(f"the bytes are inconsistent: {type(error).__name__}: {str(error)[:200]}") from error


def _decode(data: memoryview, max_bytes: int) -> Any:
    if len(data) < PREFIX.size + TAIL:
        raise StateFormatError(f"{len(data)} bytes are too few for a state; it is truncated, or something else")
    magic, version, flags, length = PREFIX.unpack_from(data)
    if magic != MAGIC:
        raise StateFormatError("these bytes are not a streammetrics state: they do not begin with SMET")
    if version > VERSION or flags:
        raise StateFormatError(
            f"written by a newer release (format {version}, flags {flags}); this one reads up to {VERSION}"
        )
    if version < 1 or length > MAX_HEADER or PREFIX.size + length + TAIL > len(data):
        raise StateFormatError("the header is damaged or truncated")
    if zlib.crc32(data[:-4]) != struct.unpack("<I", data[-4:])[0]:
        raise StateFormatError("the checksum is wrong: the bytes are damaged or truncated")
    text = bytes(data[PREFIX.size : PREFIX.size + length])
    header = json.loads(text)
    if not isinstance(header, dict) or canonical_json(header).encode() != text:
        raise StateFormatError("the header is not canonical JSON")
    reader = _Bodies(data[PREFIX.size + length : -TAIL], max_bytes)
    thing = decoders[header["kind"]](header, reader.state)
    if hasattr(thing, "take_extra"):
        thing.take_extra(header, reader.array)
    reader.finish()
    again, arrays = _parts(thing)
    if canonical_json(again).encode() != text:
        raise StateFormatError("the header is not as it would be written")
    if bytes.fromhex(digest_of(again, arrays)) != bytes(data[-TAIL:-4]):
        raise StateFormatError("the digest is wrong: the content is not what was written")
    return thing


class _Bodies:
    """Hands out the arrays one by one, within the limit."""

    def __init__(self, data: memoryview, limit: int) -> None:
        self._data, self._at, self._left = data, 0, limit

    def array(self, shape: Any) -> Array:
        if not isinstance(shape, (list, tuple)) or not all(type(n) is int and 0 <= n < 1 << 40 for n in shape):
            raise StateFormatError("an array has an impossible shape")
        size = math.prod(shape)
        self._left -= 8 * size
        if self._left < 0:
            raise StateFormatError("the content is larger than max_bytes allows")
        encoding, length = LENGTH.unpack_from(self._data, self._at)
        self._at += LENGTH.size
        packed = self._data[self._at : self._at + length]
        if len(packed) != length:
            raise StateFormatError("an array is truncated")
        self._at += length
        return _decode_array(encoding, packed, size).reshape(shape)

    def state(self, header: dict[str, Any]) -> State:
        state = _empty_state(header)
        names = [a["name"] for a in header["arrays"]]
        rules = state.rules()
        if names != [n for n in rules if n in names] or any(
            n not in names and not r.optional for n, r in rules.items()
        ):
            raise StateFormatError(f"the arrays of a {type(state).__name__} are not those it declares")
        for a in header["arrays"]:
            expected, given = (
                state._empty(rules[a["name"]]).shape if rules[a["name"]].grows else _fixed(state, a),
                a["shape"],
            )
            if len(given) != len(expected) or any(
                g != e for g, e in zip(given[rules[a["name"]].grows :], expected[rules[a["name"]].grows :], strict=True)
            ):
                raise StateFormatError(f"{a['name']} has shape {given}; the settings make it {list(expected)}")
        state._take({a["name"]: self.array(a["shape"]) for a in header["arrays"]})
        check_arrays(state)
        if state.header() != header:
            raise StateFormatError(f"the header of a {type(state).__name__} is not as it would be written")
        return state

    def finish(self) -> None:
        if self._at != len(self._data):
            raise StateFormatError("there are bytes after the last array")


def _fixed(state: State, array: dict[str, Any]) -> tuple[int, ...]:
    rule = state.rules()[array["name"]]
    return ((state.slices,) if state.slices is not None else ()) + state.shape(rule)


def _decode_array(encoding: int, packed: memoryview, size: int) -> Array:
    if encoding == RAW:
        if len(packed) != 8 * size:
            raise StateFormatError("a raw array has the wrong length")
        return np.frombuffer(packed, "<i8").astype(np.int64)
    if encoding == SHUFFLED:
        plain = _inflate(packed, 8 * size)
        if len(plain) != 8 * size:
            raise StateFormatError("a shuffled array has the wrong length")
        return (
            np.ascontiguousarray(np.frombuffer(plain, np.uint8).reshape(8, size).T)
            .view("<i8")
            .reshape(-1)
            .astype(np.int64)
        )
    if encoding == GAPS:
        return _ungap(_inflate(packed, 20 * size + 10), size)
    raise StateFormatError(f"an array has the unknown encoding {encoding}")


def _inflate(packed: memoryview, limit: int) -> bytes:
    inflater = zlib.decompressobj()
    plain = inflater.decompress(packed, limit + 1)
    if len(plain) > limit or not inflater.eof or inflater.unused_data:
        raise StateFormatError("an array does not inflate to its declared size")
    return plain


def _ungap(plain: bytes, size: int) -> Array:
    numbers = _unleb128(plain)
    count = int(numbers[0]) if numbers.size else -1
    if numbers.size != 1 + 2 * count or count > size:
        raise StateFormatError("a sparse array is inconsistent")
    gaps, folded = numbers[1 : 1 + count], numbers[1 + count :]
    if count and (gaps.max() >= size or float(gaps.sum(dtype=np.float64)) + count > size):
        raise StateFormatError("a sparse array reaches past its end")
    out = np.zeros(size, np.int64)
    places = np.cumsum(gaps.astype(np.int64) + 1) - 1
    out[places] = (folded >> np.uint64(1)).astype(np.int64) ^ -(folded & np.uint64(1)).astype(np.int64)
    if (out[places] == 0).any():
        raise StateFormatError("a sparse array lists a zero")
    return out


def _unleb128(plain: bytes) -> Array:
    raw = np.frombuffer(plain, np.uint8)
    if not raw.size or raw[-1] & 0x80:
        raise StateFormatError("a number is cut off")
    ends = np.flatnonzero(raw < 0x80)
    starts = np.concatenate([[0], ends[:-1] + 1])
    lengths = ends - starts + 1
    if lengths.max() > 10 or (raw[ends][lengths == 10] > 1).any() or (raw[ends][lengths > 1] == 0).any():
        raise StateFormatError("a number is out of range")
    out = np.zeros(len(ends), np.uint64)
    for i in range(int(lengths.max())):
        has = lengths > i
        out[has] |= (raw[starts[has] + i].astype(np.uint64) & np.uint64(0x7F)) << np.uint64(7 * i)
    return out


def _empty_state(header: dict[str, Any]) -> State:
    from .opaque import make_state

    state = make_state(header)
    slices = header["slices"]
    if slices is not None and (type(slices) is not int or not 0 <= slices < 1 << 32):
        raise StateFormatError("the number of slices is impossible")
    state.__dict__["_slices"] = slices
    return state


decoders["state"] = lambda header, read: read(header["state"])


# -- files -------------------------------------------------------------------------------------------------------------


def save(thing: Any, path: str | os.PathLike[str]) -> Path:
    """Write a state, metric, collection or slices to a file: whole, or not at all.

    Parameters
    ----------
    thing : object
        What to write.
    path : path
        The file; one that exists is replaced when the new one is complete on disk.
    """
    target = Path(path)
    data: bytes = thing.to_bytes()
    handle, temporary = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o666 & ~_umask())
        os.replace(temporary, target)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    return target


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def load(path: str | os.PathLike[str], *, max_bytes: int = MAX_BYTES) -> Any:
    """Read what `save` wrote.

    Raises
    ------
    StateFormatError
        The file is not a state; the message names it.
    """
    try:
        return from_bytes(Path(path).read_bytes(), max_bytes=max_bytes)
    except StateFormatError as error:
        raise StateFormatError(f"{os.fspath(path)}: {error}") from error
