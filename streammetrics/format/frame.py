"""Frames: states as bytes. Standard library and numpy only; no pickle.

::

    "SMET" | u16 version | u16 flags | u32 header length | u32 packed length | header | table | bodies | u32 CRC-32

The header is canonical JSON, deflated with a preset dictionary: "about", what the object is, and "sections", what each
state is of (`schema`). A row of the table is u64 plain length | u64 packed length | SHA-256 of the schema's text, a zero
byte and the plain section: the digest of the state, the same alone and in any collection. A body is its section, deflated,
and after the end of that what was left as it is. Reading is lazy, and of many frames at once: N of one kind cost one pass.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Any
from weakref import WeakValueDictionary

from ..errors import IncompatibleStateError, StateFormatError
from ..numerics.canonical import canonical_json
from ..state.retention import settled
from ..state.state import State
from .schema import Schema, read_schema, schema_of
from .section import pack, packed
from .section_header import weight
from .unpack import MAX_BYTES, Sections, unpack

__all__ = [
    "MAGIC",
    "MAX_BYTES",
    "VERSION",
    "Frame",
    "FrameKind",
    "digest",
    "head_of",
    "merge_frames",
    "merge_groups",
    "read_together",
    "write",
]

MAGIC, VERSION = b"SMET", 2
PREFIX, ROW, CHECK = struct.Struct("<4sHHII"), struct.Struct("<QQ32s"), struct.Struct("<I")
MAX_HEADER = 1 << 22
KEPT = 1 << 14  # headers up to here are kept parsed, for frames of the same kind that come later
HEADER_ROOM = 64  # times as many bytes a header takes when it is read, at most
SMALL = 1 << 16  # bytes of a section that are inflated without a look at how it begins
BATCH, PORTION = 1 << 23, 1 << 24
"""Bytes of sections that are read together, and of memory that those of one state take in one pass."""
PAGES = 1 << 16  # from here on there is nothing to look for but frequencies
WORDS = (
    b'"about":{"axes":"behind":{"kind":"class","names":["y_true","y_pred"]},"kind":"group","names":["group"]'
    b'"counted":["exact","rows"],"dropped":["expired","group","sample_weight","where","y_pred","y_score","y_true"]'
    b'"folds":["exact","rows","off_grid"],"kind":"collection","metric":"metrics":{"auc":"log_loss":"normalized_entropy":'
    b'"calibration":"ctr":"most":65536,"keep":24,"kind":"epoch","names":["time"],"size":3600"kind":"shard","limit":1000,'
    b'"names":["slice"],"pinned":[]"settings":{"bits":12,"labels":[0,1],"scale":"probability","terms":["score","log_loss",'
    b'"squared"],"thresholds":[0.5]},"tag":"moments","tag":"sums","weight_excess","fixed",[],{"optional":1}],'
    b'["clipped","count",[],["sums","fixed",[2,["score","log_loss"]]],["squares","square",["total","exact",["signed",[2]],'
    b'{"about":{"tag":"auc"},"sections":[{"counted":["exact","rows"],"folds":["exact","rows","off_grid"],"most":65536,'
    b'"parts":[["exact","tally","9214364837600034818"],["rows","tally",131074],["off_grid","flag",[]]],"tag":"scores"}]}'
)
"""What headers are made of: deflate finds it here. Part of the format."""


def digest(state: State) -> str:
    """SHA-256 of what a state is of and of its content: its identity on every machine, alone and in any collection."""
    return schema_of(state).digest(pack(state)).hex()


def write(states: Sequence[State], about: Any = None) -> bytes:
    """Write some states, and what is to be said about them, as one frame.

    Parameters
    ----------
    states : sequence of State
        The states.
    about : anything that JSON holds
        What the object is.
    """
    schemas = [schema_of(s) for s in states]
    text = canonical_json({"about": about, "sections": [s.head for s in schemas]}).encode()
    if len(text) > MAX_HEADER:
        raise ValueError(f"the header would take {len(text):,} bytes; the format allows {MAX_HEADER:,}")
    head, table, bodies = _deflate(text, WORDS), [], []
    for state, schema in zip(states, schemas, strict=True):
        plain, noise = packed(state, schema)
        end = len(plain) - noise
        bodies.append(_deflate(memoryview(plain)[:end]) + plain[end:])
        table.append(ROW.pack(len(plain), len(bodies[-1]), schema.digest(plain)))
    frame = b"".join([PREFIX.pack(MAGIC, VERSION, 0, len(text), len(head)), head, *table, *bodies])
    return frame + CHECK.pack(zlib.crc32(frame))


def _deflate(plain: bytes | memoryview, words: bytes = b"") -> bytes:
    """Entries have no repetitions to look for: beyond some pages coding them by frequency is smaller, and much quicker."""
    strategy, level = (zlib.Z_HUFFMAN_ONLY, 1) if len(plain) > PAGES else (zlib.Z_DEFAULT_STRATEGY, 6)
    packer = zlib.compressobj(level, zlib.DEFLATED, -15, 9, strategy, *([words] if words else []))
    return packer.compress(plain) + packer.flush()


# -- reading ---------------------------------------------------------------------------------------------------------


class FrameKind:
    """What a header says: frames of one kind have the same."""

    def __init__(self, text: bytes) -> None:
        head = json.loads(text)
        if not isinstance(head, dict) or head.keys() != {"about", "sections"} or canonical_json(head).encode() != text:
            raise StateFormatError("the header is not canonical JSON")
        self.about = canonical_json(head["about"])
        self.sections: list[Schema] = [read_schema(s) for s in head["sections"]]


def _inflated(unpacker: Any, data: bytes | memoryview, size: int) -> bytes:
    """The first bytes of a deflated section."""
    try:
        plain: bytes = unpacker.decompress(data, size)
    except zlib.error as error:
        raise StateFormatError(f"a section is damaged: {error}") from error
    return plain


def _kind(head: bytes, size: int) -> FrameKind:
    unpacker = zlib.decompressobj(-15, WORDS)
    text = unpacker.decompress(head, size + 1)
    if len(text) != size or not unpacker.eof or unpacker.unused_data:
        raise StateFormatError("the header does not inflate to its declared size")
    return FrameKind(text)


@lru_cache(64)
def _kept_kind(head: bytes, size: int, known: int) -> FrameKind:
    return _kind(head, size)


def _shared_kind(head: bytes, size: int, known: int) -> FrameKind:
    """The kind of a large header: one for all frames that are there, and none when they are gone."""
    found = _large.get((head, size, known))
    if found is None:
        found = _large[head, size, known] = _kind(head, size)
    return found


_large: WeakValueDictionary[tuple[bytes, int, int], FrameKind] = WeakValueDictionary()


def head_of(data: bytes) -> bytes:
    """The beginning of what may be a frame, with its header: frames of one kind begin alike."""
    if len(data) < PREFIX.size:
        return b""
    *_, packed_length = PREFIX.unpack_from(data)
    return data[: PREFIX.size + min(packed_length, MAX_HEADER)]


class Frame:
    """A frame that is read as it is needed: checksums when it is opened, a section when it is asked for.

    Parameters
    ----------
    data : bytes
        The frame; it need not be trusted.
    max_bytes : int
        The most memory that its content may take.

    Raises
    ------
    StateFormatError
        The bytes are damaged, truncated, newer than this release, inconsistent, or something else.
    """

    __slots__ = ("_kind", "bodies", "data", "head", "limit", "size", "table")

    def __init__(self, data: bytes | bytearray | memoryview, max_bytes: int = MAX_BYTES) -> None:
        if not isinstance(data, (bytes, bytearray, memoryview)):
            raise TypeError(f"from_bytes() takes bytes, not a {type(data).__name__}")
        self.data = memoryview(data).cast("B") if not isinstance(data, bytes) else memoryview(data)
        self.limit = max_bytes
        self._kind: FrameKind | None = None
        length, packed_length = self._prefix()
        if HEADER_ROOM * length > max_bytes:
            raise StateFormatError(f"the header takes {HEADER_ROOM * length:,} bytes, more than max_bytes allows")
        at = PREFIX.size + packed_length
        self.head, self.size = bytes(self.data[PREFIX.size : at]), length
        sections = len(self.kind.sections)
        if at + sections * ROW.size + CHECK.size > len(self.data):
            raise StateFormatError("the table is truncated")
        self.table = [ROW.unpack_from(self.data, at + i * ROW.size) for i in range(sections)]
        at += sections * ROW.size
        self.bodies: list[tuple[int, int]] = []
        for _, packed_bytes, _ in self.table:
            self.bodies.append((at, at + packed_bytes))
            at += packed_bytes
        if at != len(self.data) - CHECK.size:
            raise StateFormatError("the bodies do not fill the frame")
        if sum(plain for plain, _, _ in self.table) > max_bytes:
            raise StateFormatError("the content is larger than max_bytes allows")

    def _prefix(self) -> tuple[int, int]:
        data = self.data
        if len(data) < PREFIX.size + CHECK.size:
            raise StateFormatError(f"{len(data)} bytes are too few for a state; it is truncated, or something else")
        magic, version, flags, length, packed_length = PREFIX.unpack_from(data)
        if magic != MAGIC:
            raise StateFormatError("these bytes are not a streammetrics state: they do not begin with SMET")
        if version > VERSION or flags:
            raise StateFormatError(
                f"written by a newer release (format {version}, flags {flags}); this one reads up to {VERSION}"
            )
        if version < VERSION:
            raise StateFormatError(f"format {version} was never released; this release reads format {VERSION}")
        if max(length, packed_length) > MAX_HEADER or PREFIX.size + packed_length + CHECK.size > len(data):
            raise StateFormatError("the header is damaged or truncated")
        if zlib.crc32(data[: -CHECK.size]) != CHECK.unpack_from(data, len(data) - CHECK.size)[0]:
            raise StateFormatError("the checksum is wrong: the bytes are damaged or truncated")
        return length, packed_length

    @property
    def kind(self) -> FrameKind:
        """What the header says."""
        if self._kind is None:
            try:
                # anew when another class has been imported, which may be the one that this is of
                kept = _kept_kind if self.size <= KEPT else _shared_kind
                self._kind = kept(self.head, self.size, registered())
            except (StateFormatError, MemoryError):
                raise
            except Exception as error:  # of bytes that nobody vouches for: whatever they break is said as that
                raise StateFormatError(f"the header is inconsistent: {_said(error)}") from error
        return self._kind

    @property
    def about(self) -> Any:
        """What the object is."""
        return json.loads(self.kind.about)

    def __len__(self) -> int:
        return len(self.table)

    def digest(self, i: int) -> str:
        """The digest of a state, as the frame says it; checked when the state is read."""
        said: bytes = self.table[i][2]
        return said.hex()

    def plain(self, i: int, limit: int | None = None) -> bytes:
        """A section, inflated and checked against its digest; what it would become is bounded first."""
        size, _, said = self.table[i]
        begin, end = self.bodies[i]
        if size > SMALL:
            lead = _inflated(zlib.decompressobj(-15), self.data[begin:end], SMALL)
            _bound(size + weight(self.kind.sections[i], lead), self.limit if limit is None else limit)
        unpacker = zlib.decompressobj(-15)
        plain = _inflated(unpacker, self.data[begin:end], size + 1)
        if unpacker.unused_data:
            plain += unpacker.unused_data
        if len(plain) != size or not unpacker.eof:
            raise StateFormatError("a section does not inflate to its declared size")
        if self.kind.sections[i].digest(plain) != said:
            raise StateFormatError("the digest is wrong: the content is not what was written")
        return plain

    def state(self, i: int = 0, limit: int | None = None) -> State:
        """One of the states."""
        limit = self.limit if limit is None else limit
        return unpack(self.kind.sections[i], [self.plain(i, limit)], limit)[0]

    def plains(self) -> tuple[list[bytes], int]:
        """All sections, inflated, and what reading them takes with them; what stays is no more than the limit."""
        plains: list[bytes] = []
        need = 0
        for i, schema in enumerate(self.kind.sections):
            room = self.limit - need // 2  # reading takes twice what stays
            plains.append(self.plain(i, room))
            more = len(plains[-1]) + weight(schema, plains[-1])
            _bound(more, room)
            need += more
        return plains, need

    def states(self) -> list[State]:
        """All states, which take no more than the limit together."""
        made, room = [], self.limit
        for i in range(len(self.table)):
            made.append(self.state(i, room))
            room -= made[-1].nbytes
        return made


def _bound(need: int, limit: int) -> None:
    if need > limit:
        raise StateFormatError(f"reading the content takes {need:,} bytes, more than max_bytes allows")


def registered() -> int:
    """A number that changes when a class is registered, or taken away."""
    return hash(tuple(map(id, State.by_tag.values())))


def _said(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error)[:200]}"


# -- many ------------------------------------------------------------------------------------------------------------


def read_together(frames: Iterable[Frame]) -> Iterator[list[Sections]]:
    """Read frames of one header in their order, as many in one pass as take a bounded room.

    Yields
    ------
    list of Sections
        Of each state those of some frames.

    Raises
    ------
    StateFormatError, IncompatibleStateError
        One of them is damaged, or they are of different things; which, shows when each is read alone.
    """
    some: list[Frame] = []
    plains: list[list[bytes]] = []
    size = 0
    for frame in frames:
        found, need = frame.plains()
        if some and size + need > 8 * BATCH:
            yield _sections(some, plains, size)
            some, plains, size = [], [], 0
        some.append(frame)
        plains.append(found)
        size += need
    if some:
        yield _sections(some, plains, size)


def _sections(frames: Sequence[Frame], plains: Sequence[Sequence[bytes]], size: int) -> list[Sections]:
    room = 2 * size  # where one of them has weights, there is room for those of all
    columns = zip(frames[0].kind.sections, zip(*plains, strict=True), strict=True)
    return [unpack(schema, column, room) for schema, column in columns]


def merge_frames(frames: Iterable[bytes | Frame], max_bytes: int = MAX_BYTES) -> tuple[Any, list[State]]:
    """Merge frames without making an object of each: inflate, check, decode together, and fold once a batch.

    Parameters
    ----------
    frames : iterable of bytes or Frame
        Frames that say the same about themselves, with the same statistics in the same order.
    max_bytes : int
        The most memory that the content of one may take.

    Returns
    -------
    about : object
        What they say.
    states : list of State
        One of each section.

    Raises
    ------
    StateFormatError
        One of them is damaged.
    IncompatibleStateError
        They are of different things.
    """
    about, merged = merge_groups(((0, frame) for frame in frames), max_bytes)
    return about, merged.get(0, [])


def merge_groups(
    frames: Iterable[tuple[int, bytes | Frame]], max_bytes: int = MAX_BYTES
) -> tuple[Any, dict[int, list[State]]]:
    """Merge frames by group, each given behind its own; otherwise as `merge_frames`, all of them read together.

    Returns
    -------
    about : object
        What they say.
    states : dict of lists of State
        By group, in ascending order: one of each section.
    """
    about: str | None = None
    total: dict[int, list[State]] = {}
    for into, batch in _batches((g, f if isinstance(f, Frame) else Frame(f, max_bytes)) for g, f in frames):
        for one in batch:
            about = one.kind.about if about is None else about
            if one.kind.about != about or len(one) != len(batch[0]):
                raise IncompatibleStateError("frames of different objects cannot be merged as they are")
        new = [_merged(batch, i, into, max_bytes) for i in range(len(batch[0]))]
        for group in dict.fromkeys(into):
            states, held = [section[group] for section in new], total.get(group)
            if held is not None and len(held) != len(states):
                raise IncompatibleStateError("frames of different objects cannot be merged as they are")
            total[group] = states if held is None else [a.merge(b) for a, b in zip(held, states, strict=True)]
    return None if about is None else json.loads(about), {group: total[group] for group in sorted(total)}


def _merged(batch: Sequence[Frame], i: int, into: Sequence[int], max_bytes: int) -> dict[int, State]:
    """Section i of all frames of a batch, merged by group."""
    made: dict[int, list[State]] = {}
    for where, sections in _portions(batch, i, [max_bytes] * len(batch)):
        for group, state in sections.grouped([into[n] for n in where]).items():
            made.setdefault(group, []).append(state)
    return {group: settled(first) if not others else first.merge(*others) for group, (first, *others) in made.items()}


def _portions(frames: Sequence[Frame], i: int, room: Sequence[int]) -> Iterator[tuple[list[int], Sections]]:
    """Section i of frames, those of one schema together, as many at once as take a bounded room; and which they are."""
    kinds: dict[str, tuple[Schema, list[int]]] = {}
    for n, frame in enumerate(frames):
        schema = frame.kind.sections[i]
        kinds.setdefault(schema.text, (schema, []))[1].append(n)
    for schema, where in kinds.values():
        some: list[int] = []
        plains: list[bytes] = []
        size = 0
        for n in where:
            plain = frames[n].plain(i, room[n])
            need = weight(schema, plain)  # what is mostly zeros is far smaller in a frame
            if some and size + need > PORTION:
                yield some, unpack(schema, plains, max(room[some[0]], 8 * BATCH))
                some, plains, size = [], [], 0
            some.append(n)
            plains.append(plain)
            size += need
        yield some, unpack(schema, plains, max(room[some[0]], 8 * BATCH) if len(some) > 1 else room[some[0]])


def _batches(frames: Iterable[tuple[int, Frame]]) -> Iterator[tuple[list[int], list[Frame]]]:
    """Frames that are read together, and the group of each."""
    into: list[int] = []
    batch: list[Frame] = []
    size = 0
    for group, frame in frames:
        into.append(group)
        batch.append(frame)
        size += sum(plain for plain, _, _ in frame.table)
        if size > BATCH:
            yield into, batch
            into, batch, size = [], [], 0
    if batch:
        yield into, batch
