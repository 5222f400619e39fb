"""Frames: files or messages that contain any number of states. A state is the content of a metric, such as its sums.

Reading and writing frames needs only the standard library and numpy, not pickle.

::

    "SMET" | u16 version | u16 flags | u32 header length | u32 packed length | header | table | bodies | ends | u32 CRC-32

The header is canonical JSON, compressed with deflate and a preset dictionary. Its member "about" describes the object
to which the states belong, such as a metric or a collection. Its member "sections" contains the schema of each state
(see `schema`).

The table has one row for each state: u64 uncompressed length | u64 compressed length | digest. The digest is the SHA-256
of the text of the schema, a zero byte and the uncompressed section. A state thus has the same digest in every frame.

There is one body for each state: its compressed section, followed by its noise (the bytes that are stored uncompressed,
because compression would not shorten them; see `section`).

The ends are the first and the last query of each state (see `ends`). They are present if bit 0 of the flags is set.

A state is decoded only when it is read. Many frames with equal headers are decoded in one pass.
"""

from __future__ import annotations

import io
import json
import struct
import zlib
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Any
from weakref import WeakValueDictionary

from ..errors import IncompatibleStateError, StateFormatError
from ..numerics.canonical import canonical_json
from ..state.retention import apply_retention
from ..state.state import State
from .ends import pack_ends, unpack_ends
from .schema import Schema, build_schema, parse_schema
from .section import PackedSection, Section
from .section_header import estimate_section_memory
from .unpack import MAX_BYTES, Sections, unpack_sections

__all__ = [
    "MAGIC",
    "MAX_BYTES",
    "VERSION",
    "Frame",
    "FrameKind",
    "compute_digest",
    "merge_frames",
    "merge_groups",
    "read_frames",
    "read_head",
    "write_frame",
]

MAGIC, VERSION = b"SMET", 2
PREFIX, ROW, CHECK = struct.Struct("<4sHHII"), struct.Struct("<QQ32s"), struct.Struct("<I")
HAS_ENDS = 1
"""The flag of a frame that contains the first and the last query of its states."""
MAX_HEADER = 1 << 22
MAX_CACHED_HEADER = 1 << 14
"""Parsed headers up to this size in bytes are cached, because many frames have equal headers."""
HEADER_ROOM = 64
"""A parsed header takes at most this many times the memory of its text."""
SMALL = 1 << 16
"""A section larger than this is first decompressed up to this size, to check how much memory reading it would take."""
BATCH, PORTION = 1 << 23, 1 << 25
"""When frames are merged, a batch is closed when its sections exceed BATCH bytes. Decoding a batch takes about PORTION
bytes of memory at a time."""
MAX_MATCHING = 1 << 16
"""Sections with more bytes than this are compressed by Huffman coding alone, without a search for repetitions."""
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
"""The preset dictionary of common header fragments for deflate; part of the format."""


def compute_digest(state: State) -> str:
    """Return the SHA-256 of the schema and the content of a state, in hexadecimal digits.

    Equal states have equal digests on every machine, whether they belong to a single metric or to a collection.
    """
    schema = build_schema(state)
    sha = schema.begin_digest()
    for block in PackedSection(state, schema).take_blocks():
        sha.update(block)
    digest: str = sha.hexdigest()
    return digest


def write_frame(states: Sequence[State], about: Any = None) -> bytes:
    """Encode states as one frame, with a description of the object to which they belong.

    Parameters
    ----------
    states : sequence of State
        The states, in the order in which they are read back.
    about : JSON value
        The description of the object, such as a metric or a collection.
    """
    schemas = [build_schema(s) for s in states]
    text = canonical_json({"about": about, "sections": [s.head for s in schemas]}).encode()
    if len(text) > MAX_HEADER:
        raise ValueError(
            f"the header of the state would take {len(text):,} bytes, but the format allows {MAX_HEADER:,}; "
            "put fewer metrics into one object"
        )
    head = _deflate(text, WORDS)
    # Write into one buffer. Joining the parts of a large frame at the end would take twice the memory of the frame.
    file = io.BytesIO()
    ends = pack_ends(states)
    file.write(PREFIX.pack(MAGIC, VERSION, HAS_ENDS if ends else 0, len(text), len(head)) + head)
    rows = file.tell()
    file.write(bytes(ROW.size * len(schemas)))
    table = [_write_section(file, state, schema) for state, schema in zip(states, schemas, strict=True)]
    file.seek(rows)
    file.write(b"".join(table))
    file.seek(0, io.SEEK_END)
    file.write(ends)
    file.write(CHECK.pack(zlib.crc32(file.getbuffer())))
    return file.getvalue()


def _write_section(file: io.BytesIO, state: State, schema: Schema) -> bytes:
    """Append the body of a state to `file`, and return the row of this state for the table of the frame."""
    section, sha, begin = PackedSection(state, schema), schema.begin_digest(), file.tell()
    packer = _begin_deflate(section.size - section.noise_size)
    for block in section.take_compressible_blocks():
        sha.update(block)
        file.write(packer.compress(block))
    file.write(packer.flush())
    for block in section.take_noise_blocks():
        sha.update(block)
        file.write(block)
    return ROW.pack(section.size, file.tell() - begin, sha.digest())


def _deflate(text: bytes, dictionary: bytes) -> bytes:
    packer = _begin_deflate(len(text), dictionary)
    packed: bytes = packer.compress(text) + packer.flush()
    return packed


def _begin_deflate(size: int, dictionary: bytes = b"") -> Any:
    """Return a compressor for `size` bytes: deflate, or Huffman coding alone if `size` exceeds MAX_MATCHING.

    Large sections consist mostly of counts by score bucket, which contain no repeated sequences. For these, Huffman
    coding alone gives a smaller result and is much faster.
    """
    strategy, level = (zlib.Z_HUFFMAN_ONLY, 1) if size > MAX_MATCHING else (zlib.Z_DEFAULT_STRATEGY, 6)
    return zlib.compressobj(level, zlib.DEFLATED, -15, 9, strategy, *([dictionary] if dictionary else []))


# -- reading ---------------------------------------------------------------------------------------------------------


class FrameKind:
    """The parsed header of a frame; frames with equal headers share one object, so each header is parsed only once."""

    def __init__(self, text: bytes) -> None:
        head = json.loads(text)
        if not isinstance(head, dict) or head.keys() != {"about", "sections"} or canonical_json(head).encode() != text:
            raise StateFormatError("the state is corrupt: the header is not canonical JSON")
        self.about = canonical_json(head["about"])
        self.sections: list[Schema] = [parse_schema(s) for s in head["sections"]]


def _inflate(unpacker: Any, data: bytes | memoryview, size: int) -> bytes:
    """Decompress a section to at most `size` bytes with `unpacker`, a zlib decompressor."""
    try:
        plain: bytes = unpacker.decompress(data, size)
    except zlib.error as error:
        raise StateFormatError(f"the state is corrupt: a section cannot be decompressed: {error}") from error
    return plain


def _parse_kind(head: bytes, size: int) -> FrameKind:
    unpacker = zlib.decompressobj(-15, WORDS)
    text = unpacker.decompress(head, size + 1)
    if len(text) != size or not unpacker.eof or unpacker.unused_data:
        raise StateFormatError("the state is corrupt: the header does not have its declared size")
    return FrameKind(text)


@lru_cache(64)
def _cached_kind(head: bytes, size: int, registry: int) -> FrameKind:
    return _parse_kind(head, size)


def _shared_kind(head: bytes, size: int, registry: int) -> FrameKind:
    """Return the parsed form of a large header, from a cache that does not keep it alive.

    Frames with equal headers share the object, which is freed with the last of these frames. The arguments are the
    compressed header, its uncompressed size, and the number from `hash_registry`.
    """
    kind = _large_kinds.get((head, size, registry))
    if kind is None:
        kind = _large_kinds[head, size, registry] = _parse_kind(head, size)
    return kind


_large_kinds: WeakValueDictionary[tuple[bytes, int, int], FrameKind] = WeakValueDictionary()


def read_head(data: bytes) -> bytes:
    """Return the bytes of a frame up to the end of its header, without checking them.

    If these bytes are equal for several frames, their headers are equal, so `read_frames` can decode them together.
    """
    if len(data) < PREFIX.size:
        return b""
    *_, packed_length = PREFIX.unpack_from(data)
    return data[: PREFIX.size + min(packed_length, MAX_HEADER)]


class Frame:
    """A frame whose states are decoded when they are read.

    The checksum of the frame is verified immediately, and the digest of each section when the section is read.

    Parameters
    ----------
    data : bytes
        The bytes of the frame, which may be untrusted.
    max_bytes : int
        The maximum memory that the states may take, in bytes.

    Raises
    ------
    StateFormatError
        If the bytes are not a frame, or are damaged, truncated, inconsistent, or written by a newer release.
    """

    __slots__ = ("_kind", "bodies", "data", "ends", "head", "limit", "size", "table")

    def __init__(self, data: bytes | bytearray | memoryview, max_bytes: int = MAX_BYTES) -> None:
        if not isinstance(data, (bytes, bytearray, memoryview)):
            raise TypeError(f"from_bytes() takes bytes, found an object of class {type(data).__name__}")
        self.data = memoryview(data).cast("B") if not isinstance(data, bytes) else memoryview(data)
        self.limit = max_bytes
        self._kind: FrameKind | None = None
        flags, length, packed_length = self._prefix()
        if HEADER_ROOM * length > max_bytes:
            raise StateFormatError(
                f"reading the header takes {HEADER_ROOM * length:,} bytes, more than max_bytes allows; "
                "raise this limit if you trust the source"
            )
        at = PREFIX.size + packed_length
        self.head, self.size = bytes(self.data[PREFIX.size : at]), length
        sections = len(self.kind.sections)
        if at + sections * ROW.size + CHECK.size > len(self.data):
            raise StateFormatError("the state is corrupt: the table of sections is truncated")
        self.table = [ROW.unpack_from(self.data, at + i * ROW.size) for i in range(sections)]
        at += sections * ROW.size
        self.bodies: list[tuple[int, int]] = []
        for _, packed_bytes, _ in self.table:
            self.bodies.append((at, at + packed_bytes))
            at += packed_bytes
        end = len(self.data) - CHECK.size
        if at > end or (at < end and not flags & HAS_ENDS):
            raise StateFormatError("the state is corrupt: the lengths of its sections do not add up")
        # The first and the last query of each state, or None if the frame does not contain them.
        self.ends = unpack_ends(self.data[at:end], sections) if flags & HAS_ENDS else None
        if sum(plain for plain, _, _ in self.table) > max_bytes:
            raise StateFormatError(
                "the content of the state is larger than max_bytes allows; raise this limit if you trust the source"
            )

    def _prefix(self) -> tuple[int, int, int]:
        data = self.data
        if len(data) < PREFIX.size + CHECK.size:
            raise StateFormatError(
                f"{len(data)} bytes are too few for a state: the bytes are truncated, or are not a state"
            )
        magic, version, flags, length, packed_length = PREFIX.unpack_from(data)
        if magic != MAGIC:
            raise StateFormatError("these bytes are not a streammetrics state: they do not begin with SMET")
        if version > VERSION or flags & ~HAS_ENDS:
            raise StateFormatError(
                f"the state was written by a newer release (format {version}, flags {flags}), but this release reads "
                f"formats up to {VERSION}; upgrade streammetrics"
            )
        if version < VERSION:
            raise StateFormatError(
                f"the state is corrupt: format {version} was never released; this release reads format {VERSION}"
            )
        if max(length, packed_length) > MAX_HEADER or PREFIX.size + packed_length + CHECK.size > len(data):
            raise StateFormatError("the state is corrupt: the header is damaged or truncated")
        if zlib.crc32(data[: -CHECK.size]) != CHECK.unpack_from(data, len(data) - CHECK.size)[0]:
            raise StateFormatError("the state is corrupt: the checksum is wrong, so the bytes are damaged or truncated")
        return flags, length, packed_length

    @property
    def kind(self) -> FrameKind:
        """The parsed header."""
        if self._kind is None:
            try:
                # The parsed header depends on which classes of states have been imported. If another class is imported
                # later, the number from `hash_registry` changes, so that the cache is not used and the header is parsed
                # again.
                parse = _cached_kind if self.size <= MAX_CACHED_HEADER else _shared_kind
                self._kind = parse(self.head, self.size, hash_registry())
            except (StateFormatError, MemoryError):
                raise
            # Untrusted bytes may cause any exception. Report each of them as StateFormatError.
            except Exception as error:
                raise StateFormatError(
                    f"the state is corrupt: the header is inconsistent: {_format_error(error)}"
                ) from error
        return self._kind

    @property
    def about(self) -> Any:
        """The description of the object to which the states belong, such as a metric or a collection."""
        return json.loads(self.kind.about)

    def __len__(self) -> int:
        return len(self.table)

    def digest(self, i: int) -> str:
        """Return the digest of state `i` as stored in the frame; it is not verified until the state is read."""
        digest: bytes = self.table[i][2]
        return digest.hex()

    def read_section(self, i: int, limit: int | None = None) -> Section:
        """Decompress section `i` and verify its digest.

        If the section is large, first check that decoding it takes at most `limit` bytes of memory. By default, `limit`
        is the limit of the frame.
        """
        size, _, digest = self.table[i]
        begin, end = self.bodies[i]
        if size > SMALL:
            start = _inflate(zlib.decompressobj(-15), self.data[begin : min(end, begin + SMALL)], SMALL)
            _check_memory(
                size + estimate_section_memory(self.kind.sections[i], start), self.limit if limit is None else limit
            )
        unpacker = zlib.decompressobj(-15)
        plain = _inflate(unpacker, self.data[begin:end], size + 1)
        # The bytes after the end of the compressed data belong to the section, too, but are not compressed ("noise").
        noise = self.data[end - len(unpacker.unused_data) : end]
        if len(plain) + len(noise) != size or not unpacker.eof:
            raise StateFormatError("the state is corrupt: a section does not have its declared size")
        if self.kind.sections[i].digest(plain, noise) != digest:
            raise StateFormatError("the state is corrupt: the digest is wrong: the content differs from what was saved")
        return Section(plain, noise)

    def read_state(self, i: int = 0, limit: int | None = None) -> State:
        """Decode and return state `i`, using at most `limit` bytes of memory (by default, the limit of the frame)."""
        limit = self.limit if limit is None else limit
        return unpack_sections(self.kind.sections[i], [self.read_section(i, limit)], limit)[0]

    def read_sections(self) -> tuple[list[Section], int]:
        """Decompress all sections.

        Returns
        -------
        sections : list of Section
            The uncompressed sections.
        need : int
            An upper bound on the memory in bytes that decoding takes, including the sections themselves.

        Raises
        ------
        StateFormatError
            If a section is damaged, or decoding would take more memory than the limit of the frame.
        """
        sections: list[Section] = []
        need = 0
        for i, schema in enumerate(self.kind.sections):
            # `need` is the sum of the estimates for decoding the earlier sections. An estimate is at least twice the
            # memory of the decoded section, so once these sections are decoded, they occupy at most half of `need`.
            room = self.limit - need // 2
            sections.append(section := self.read_section(i, room))
            more = section.size + estimate_section_memory(schema, section.plain)
            _check_memory(more, room)
            need += more
        return sections, need

    def read_states(self) -> list[State]:
        """Decode all states; raise StateFormatError if they take more memory in total than the limit of the frame."""
        states, room = list[State](), self.limit
        for i in range(len(self.table)):
            room -= states[-1].nbytes if states else 0
            states.append(self.read_state(i, room))
        return states if self.ends is None else [s.with_block_ends(e) for s, e in zip(states, self.ends, strict=True)]


def _check_memory(need: int, limit: int) -> None:
    if need > limit:
        raise StateFormatError(
            f"reading the state takes {need:,} bytes, more than max_bytes allows; "
            "raise this limit if you trust the source"
        )


def hash_registry() -> int:
    """Return a number that changes whenever a subclass of State is registered or removed."""
    return hash(tuple(State.by_tag.values()))


def _format_error(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error)[:200]}"


# -- many frames -----------------------------------------------------------------------------------------------------


def read_frames(frames: Iterable[Frame]) -> Iterator[list[Sections]]:
    """Decode frames with equal headers, in order; use more than one pass if needed to limit memory use.

    Yields
    ------
    list of Sections
        The result of one pass. Item i contains the states decoded from section i of each frame in this pass.

    Raises
    ------
    StateFormatError, IncompatibleStateError
        If a frame is damaged, or the keys of two frames have different types, such as integers and strings. The error
        does not name the frame; to find it, read each frame separately.
    """
    some: list[Frame] = []
    decompressed: list[list[Section]] = []
    size = 0
    for frame in frames:
        sections, need = frame.read_sections()
        if some and size + need > 8 * BATCH:
            yield _unpack_frames(some, decompressed, size)
            some, decompressed, size = [], [], 0
        some.append(frame)
        decompressed.append(sections)
        size += need
    if some:
        yield _unpack_frames(some, decompressed, size)


def _unpack_frames(frames: Sequence[Frame], sections: Sequence[Sequence[Section]], size: int) -> list[Sections]:
    # `size` is the sum of the memory estimates for the individual frames. Decoding frames together may take more,
    # because all of them get arrays for weights if any of them has weights.
    room = 2 * size
    columns = zip(frames[0].kind.sections, zip(*sections, strict=True), strict=True)
    return [unpack_sections(schema, column, room) for schema, column in columns]


def merge_frames(frames: Iterable[bytes | Frame], max_bytes: int = MAX_BYTES) -> tuple[Any, list[State]]:
    """Merge frames in batches, which is faster than creating and merging an object for each frame.

    Parameters
    ----------
    frames : iterable of bytes or Frame
        Frames with equal descriptions ("about"), and with states of the same classes and settings in the same order.
    max_bytes : int
        The maximum memory that the states of a single frame may take, in bytes.

    Returns
    -------
    about : object
        The description that all frames share; None if there are no frames.
    states : list of State
        The merged states. Item i is merged from the states at position i of all frames.

    Raises
    ------
    StateFormatError
        If a frame is damaged.
    IncompatibleStateError
        If the frames have different descriptions, numbers of states, or settings.
    """
    about, merged = merge_groups(((0, frame) for frame in frames), max_bytes)
    return about, merged.get(0, [])


def merge_groups(
    frames: Iterable[tuple[int, bytes | Frame]], max_bytes: int = MAX_BYTES
) -> tuple[Any, dict[int, list[State]]]:
    """Merge the frames of each group separately.

    `frames` yields pairs of a group number and a frame. The other parameter and the errors are as in `merge_frames`.

    Returns
    -------
    about : object
        The description that all frames share; None if there are no frames.
    states : dict of int to list of State
        The merged states of each group. The groups are in ascending order.
    """
    about: str | None = None
    total: dict[int, list[State]] = {}
    for into, batch in _batch_frames((g, f if isinstance(f, Frame) else Frame(f, max_bytes)) for g, f in frames):
        for one in batch:
            about = one.kind.about if about is None else about
            if one.kind.about != about or len(one) != len(batch[0]):
                raise IncompatibleStateError("the states have different metrics or settings and cannot be merged")
        new = [_merge_portions(batch, i, into, max_bytes) for i in range(len(batch[0]))]
        for group in dict.fromkeys(into):
            earlier = total.get(group)
            if earlier is not None and len(earlier) != len(new):
                raise IncompatibleStateError("the states have different metrics or settings and cannot be merged")
            # Add the states of all portions to the total in a single call. In cells (such as slices) for which the
            # total already has buckets, exact rows (rows stored outside buckets) then need not be sorted.
            parts = [section[group] for section in new]
            total[group] = [_merge_states([*([earlier[i]] if earlier else []), *some]) for i, some in enumerate(parts)]
    return None if about is None else json.loads(about), {group: total[group] for group in sorted(total)}


def _merge_portions(batch: Sequence[Frame], i: int, into: Sequence[int], max_bytes: int) -> dict[int, list[State]]:
    """Decode section `i` of all frames of a batch in portions, and return the merged states of each group.

    `into` contains the group of each frame. For each group, the result contains a list with one merged state for each
    portion that contains frames of the group.
    """
    parts: dict[int, list[State]] = {}
    for where, sections in _unpack_portions(batch, i, [max_bytes] * len(batch)):
        for group, state in sections.merge_by_group([into[n] for n in where]).items():
            parts.setdefault(group, []).append(state)
    return parts


def _merge_states(states: Sequence[State]) -> State:
    first, *others = states
    return first.merge(*others) if others else apply_retention(first)


def _unpack_portions(frames: Sequence[Frame], i: int, room: Sequence[int]) -> Iterator[tuple[list[int], Sections]]:
    """Decode section `i` of several frames in portions, to limit memory use.

    For each portion, yield the indices of its frames and the states of these frames. All frames in a portion have equal
    schemas. `room` contains the memory limit of each frame in bytes.
    """
    kinds: dict[str, tuple[Schema, list[int]]] = {}
    for n, frame in enumerate(frames):
        schema = frame.kind.sections[i]
        kinds.setdefault(schema.text, (schema, []))[1].append(n)
    for schema, where in kinds.values():
        some: list[int] = []
        sections: list[Section] = []
        size = 0
        for n in where:
            section = frames[n].read_section(i, room[n])
            # Limit the memory of the decoded states rather than the size of the sections, because a section of a few
            # bytes may encode a large state that is mostly zeros.
            need = estimate_section_memory(schema, section.plain)
            if some and size + need > PORTION:
                yield some, unpack_sections(schema, sections, max(room[some[0]], 8 * BATCH))
                some, sections, size = [], [], 0
            some.append(n)
            sections.append(section)
            size += need
        yield some, unpack_sections(schema, sections, max(room[some[0]], 8 * BATCH) if len(some) > 1 else room[some[0]])


def _batch_frames(frames: Iterable[tuple[int, Frame]]) -> Iterator[tuple[list[int], list[Frame]]]:
    """Collect frames in batches of about BATCH bytes; for each batch, yield the group numbers and the frames."""
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
