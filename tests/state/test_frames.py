"""Frames: bytes come back, N at once as one by one, without the class, and no bytes make anything but sound states."""

from __future__ import annotations

import contextlib
import os
import random
import struct
import weakref
import zlib
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from state.cases import AXES, states
from state.synthetic import KINDS, STATISTICS, Extremes, Scores, Sums, Totals, absent, made, with_dropped

import streammetrics as sm
from streammetrics.errors import IncompatibleStateError, StateFormatError, StreamMetricsError
from streammetrics.format import frame as module
from streammetrics.format import section
from streammetrics.format.frame import (
    CHECK,
    PREFIX,
    ROW,
    WORDS,
    Frame,
    compute_digest,
    merge_frames,
    merge_groups,
    read_frames,
    write_frame,
)
from streammetrics.format.schema import build_schema
from streammetrics.format.section import Section, pack_state
from streammetrics.format.unpack import unpack_sections
from streammetrics.numerics.canonical import canonical_json
from streammetrics.numerics.exact import CHUNKS
from streammetrics.state.axes import Axis
from streammetrics.state.fold import fold
from streammetrics.state.tally import Entries
from streammetrics.state.unknown_state import OpaqueState

MUTANTS = int(os.environ.get("STREAMMETRICS_MUTANTS", "3000"))
LAW = settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
TAGS = tuple({s.tag for s in STATISTICS})


@pytest.mark.slow
@LAW
@given(states(2))
def test_bytes_come_back(parts):
    data = write_frame(parts, {"kind": "test", "names": [1, None]})
    frame = Frame(data)
    assert frame.about == {"kind": "test", "names": [1, None]}
    assert len(frame) == 2
    for i, (one, again) in enumerate(zip(parts, frame.read_states(), strict=True)):
        assert again == one
        assert pack_state(again) == pack_state(one)
        assert frame.digest(i) == compute_digest(one) == compute_digest(again)
        for name, array in one.cells.flats.items():
            assert again.cells.flats[name].dtype == array.dtype
        for name, entries in one.cells.tallies.items():
            assert again.cells.tallies[name].codes.dtype == entries.codes.dtype
            assert again.cells.tallies[name].counts.dtype == entries.counts.dtype
    assert write_frame(frame.read_states(), frame.about) == data


@pytest.mark.slow
@LAW
@given(states(4))
def test_many_at_once_are_as_one_by_one(parts):
    schema = build_schema(parts[0])
    alike = [p for p in parts if build_schema(p).text == schema.text]
    sections = [Section(pack_state(p)) for p in alike]
    read = unpack_sections(schema, sections)
    assert list(read) == alike
    assert [compute_digest(r) for r in read] == [compute_digest(a) for a in alike]
    assert unpack_sections(schema, sections).merge_by_group([0] * len(alike))[0] == fold(alike)
    assert read.sum_by_section(read.joined.row_counts).tolist() == [int(a.row_counts.sum()) for a in alike]
    assert read.with_section_axis().rollup(*alike[0].axes) == fold(alike)
    ((again,),) = read_frames([Frame(write_frame([a], "x")) for a in alike])
    assert list(again) == alike
    frames = [write_frame([p], "x") for p in parts]
    about, grouped = merge_groups(zip([3, 0, 3, 0], frames, strict=True))
    assert about == "x"
    for (state,), some in zip(grouped.values(), (parts[1::2], parts[::2]), strict=True):
        assert state == some[0].merge(*some[1:])
        assert compute_digest(state) == compute_digest(some[0].merge(*some[1:]))
    _, (whole,) = merge_frames(frames)
    assert whole == parts[0].merge(*parts[1:])
    assert compute_digest(whole) == compute_digest(parts[0].merge(*parts[1:]))


@pytest.mark.slow
@LAW
@given(states(2))
def test_digests_are_equal_exactly_if_the_content_is(parts):
    a, b = parts
    assert (compute_digest(a) == compute_digest(b)) == (a == b)
    assert (pack_state(a) == pack_state(b) and build_schema(a).text == build_schema(b).text) == (a == b)


@pytest.mark.slow
@LAW
@given(states(3, statistics=[s for s in STATISTICS if s.exact_rows_limit is None]))
def test_states_of_an_absent_package(parts):
    frames = [write_frame([p]) for p in parts]
    whole, rolled = write_frame([parts[0].merge(*parts[1:])]), write_frame([parts[0].without_axes])
    less = (
        None if isinstance(parts[0], (Extremes, Totals)) else write_frame([parts[0].merge(parts[1]).subtract(parts[1])])
    )
    with absent(*TAGS):
        read = [Frame(f).read_state() for f in frames]
        assert all(isinstance(r, OpaqueState) for r in read)
        assert [write_frame([r]) for r in read] == frames
        assert write_frame([read[0].merge(*read[1:])]) == whole
        assert write_frame(merge_frames(frames)[1]) == whole
        assert write_frame([read[0].without_axes]) == rolled
        if less is not None:
            assert write_frame([read[0].merge(read[1]).subtract(read[1])]) == less


def test_only_the_class_makes_buckets():
    axes = AXES[1]
    parts = [made(Scores(limit=30), axes, i, 40, weights=False, kinds=("integer",)) for i in range(3)]
    frames = [write_frame([p]) for p in parts]
    with absent(*TAGS):
        read = [Frame(f).read_state() for f in frames]
        assert [write_frame([r]) for r in read] == frames
        with pytest.raises(
            IncompatibleStateError,
            match="only the package that defines the state can put the rows into buckets; import the",
        ):
            _ = read[0].without_axes


@pytest.mark.slow
@LAW
@given(states(2, limited=True, statistics=[Sums(), Extremes()]))
def test_an_absent_package_does_not_keep_from_limits(parts):
    frames, whole = [write_frame([p]) for p in parts], write_frame([parts[0].merge(parts[1])])
    with absent(*TAGS):
        assert write_frame([Frame(frames[0]).read_state().merge(Frame(frames[1]).read_state())]) == whole


def test_opaque_states_differ_in_words():
    frames = [write_frame([made(Sums(factor=f), (), 1, 3, weights=False, kinds=())]) for f in (1.0, 2.0)]
    with absent(*TAGS):
        a, b = (Frame(f).read_state() for f in frames)
        with pytest.raises(IncompatibleStateError, match="factor is its default here and"):
            a.merge(b)
        with pytest.raises(StreamMetricsError, match="import the package"):
            a.steps({})


def test_what_it_says():
    data = write_frame([made(Sums(), AXES[1], 1, 9, weights=True, kinds=("string",))])
    for change, words in (
        (lambda d: d[:10], "too few"),
        (lambda d: b"PAR1" + d[4:], "do not begin with SMET"),
        (lambda d: d[:4] + b"\x03" + d[5:], "newer release"),
        (lambda d: d[:6] + b"\x02" + d[7:], "newer release"),
        (lambda d: d[:60] + b"#" + d[61:], "checksum"),
        (lambda d: d[:-20], "checksum|truncated"),
    ):
        with pytest.raises(StateFormatError, match=words):
            Frame(change(data)).read_states()
    with pytest.raises(TypeError, match="takes bytes"):
        Frame("SMET")


@pytest.mark.parametrize("statistic", STATISTICS, ids=lambda s: s.tag)
def test_every_truncation_and_every_byte_of_the_head(statistic):
    data = write_frame([made(statistic, AXES[1], 1, 9, weights=True, kinds=("string",))])
    for size in range(len(data)):
        with pytest.raises(StateFormatError):
            Frame(data[:size]).read_states()
    for at in range(PREFIX.size):
        for value in range(0, 256, 5):
            if data[at] != value:
                raw = bytearray(data[:-4])
                raw[at] = value
                with pytest.raises(StateFormatError):
                    Frame(bytes(raw) + CHECK.pack(zlib.crc32(raw))).read_states()


def test_a_bomb_does_not_go_off():
    axes = AXES[1]
    state = made(Sums(), axes, 1, 9, weights=False, kinds=("integer",))
    schema, plain = build_schema(state), bytearray(pack_state(state))
    for at in range(0, 60, 4):
        for value in (1 << 20, 1 << 31, (1 << 32) - 1):
            bad = plain[:]
            struct.pack_into("<I", bad, at, value)
            with pytest.raises(StateFormatError):
                unpack_sections(schema, [Section(bytes(bad))], 1 << 20)
    with pytest.raises(StateFormatError, match="max_bytes"):
        Frame(write_frame([state]), 1 << 10)


def test_mostly_zeros_are_small():
    state = made(Sums(), AXES[1], 1, 3, weights=False, kinds=("integer",))
    flats = {k: v.copy() for k, v in state.cells.flats.items()}
    flats["many_exact"][:] = 0
    flats["many_exact"][0, 3, 40] = 7
    bare = state.with_cells(replace(state.cells, flats=flats))
    assert len(pack_state(bare)) < len(pack_state(state))
    assert flats["many_exact"].nbytes > 30_000
    assert len(pack_state(bare)) < 6_000
    assert Frame(write_frame([bare])).read_state() == bare


def test_an_unknown_part_is_of_a_newer_release():
    data = write_frame([made(Sums(), (), 1, 3, weights=False, kinds=())])
    frame = Frame(data)
    head = {"about": None, "sections": [dict(frame.kind.sections[0].head)]}
    head["sections"][0]["parts"] = [*head["sections"][0]["parts"], ["later", "count", [], {"optional": 1}]]
    text = canonical_json(head).encode()
    packed = module._deflate(text, WORDS)
    rest = data[PREFIX.size + len(frame.head) : -4]
    raw = PREFIX.pack(b"SMET", 2, 0, len(text), len(packed)) + packed + rest
    with pytest.raises(StateFormatError, match="this release does not know later; upgrade"):
        Frame(raw + CHECK.pack(zlib.crc32(raw)))


# -- mutants -----------------------------------------------------------------------------------------------------------


def seeds():
    out = []
    for k, statistic in enumerate(STATISTICS):
        for axes in AXES[:3]:
            for seed in range(3):
                rng = np.random.default_rng(seed)
                kinds = tuple(rng.choice([*KINDS], 4))
                one = made(statistic, axes, 100 * k + seed, int(rng.integers(1, 14)), weights=seed != 1, kinds=kinds)
                out.append(with_dropped(one, rng) if seed == 0 else one)
    return [(build_schema(s), pack_state(s)) for s in out]


def mutant(plain: bytes, rng: random.Random) -> bytes:
    made = bytearray(plain)
    for _ in range(rng.randint(1, 3)):
        at = rng.randrange(len(made) if rng.random() < 0.6 else min(len(made), 60))
        made[at] = rng.choice([0, 1, 255, made[at] ^ (1 << rng.randrange(8)), (made[at] + 1) % 256])
    if rng.random() < 0.1:
        at = rng.randrange(len(made))
        made[at:at] = bytes([rng.randrange(256)])
    return bytes(made)


@pytest.mark.slow
def test_mutants_of_sections_whose_digest_is_repaired():
    rng, originals = random.Random(0), seeds()
    accepted = 0
    for i in range(MUTANTS):
        schema, plain = rng.choice(originals)
        bad, other = mutant(plain, rng), mutant(plain, rng)
        many = ([plain, bad, plain], [bad], [bad, other])[i % 3]
        try:
            found = list(unpack_sections(schema, [*map(Section, many)], 1 << 24))
        except StateFormatError:
            continue
        except IncompatibleStateError:
            assert i % 3 != 1
            continue
        except BaseException as error:
            raise AssertionError(f"{error!r} escaped: {schema.text} {bad.hex()}") from error
        accepted += bad != plain
        assert [pack_state(one) for one in found] == many, (schema.text, [one.hex() for one in many])
        assert {build_schema(one).text for one in found} == {schema.text}
    assert 0 < accepted < 0.5 * MUTANTS


def test_sections_lend_each_other_no_words(monkeypatch):
    """One has a word too many and the other one too few: each is refused alone, and so are they together."""
    state = made(Totals(), (), 1, 1, weights=False, kinds=())
    total = np.zeros((1, 2, CHUNKS), np.int64)
    total[..., 30:34] = 7
    state = state.with_cells(replace(state.cells, flats={**state.cells.flats, "total": total}))
    real, honest = section.pack_superaccumulators, pack_state(state)

    def packed(at, by):
        def lent(numbers):
            places, lengths, words = real(numbers)
            lengths = lengths.astype(np.int64)
            lengths[at] += by
            return places, lengths, words

        monkeypatch.setattr(section, "pack_superaccumulators", lent)
        lending = pack_state(state)
        monkeypatch.undo()
        return lending

    more, fewer, schema = packed(-1, 1), packed(0, -1), build_schema(state)
    assert pack_state(unpack_sections(schema, [Section(honest)])[0]) == honest
    for many in ([more], [fewer], [more, fewer], [more, honest, fewer]):
        with pytest.raises(StateFormatError, match="the lengths of the sums do not add up"):
            unpack_sections(schema, [*map(Section, many)])


def test_a_large_header_is_held_once_and_as_long_as_it_is_used():
    part = sm.Sliced(sm.CTR(), by="k", limit=1, values=[f"{i:064}" for i in range(1000)]).update([1], k=["a"])
    data = part.to_bytes()
    frames = [Frame(data), Frame(data)]
    assert frames[0].size > module.MAX_CACHED_HEADER
    assert frames[0].kind is frames[1].kind
    kept = weakref.ref(frames[0].kind)
    frames.clear()
    assert kept() is None


@pytest.mark.slow
@pytest.mark.parametrize("statistic", [s for s in STATISTICS if not isinstance(s, Sums)], ids=repr)
def test_every_byte_of_a_small_section(statistic):
    for seed in (1, 2, 3, 4):
        rng = np.random.default_rng(seed)
        one = made(statistic, AXES[seed % 2], seed, 4, weights=seed > 2, kinds=("string",))
        one = with_dropped(one, rng) if seed == 1 else one
        schema, plain = build_schema(one), pack_state(one)
        for at in range(min(len(plain), 400)):
            for value in {0, plain[at] ^ 1, plain[at] ^ 0x80, (plain[at] + 2) % 256} - {plain[at]}:
                bad = plain[:at] + bytes([value]) + plain[at + 1 :]
                with contextlib.suppress(StateFormatError):
                    assert pack_state(unpack_sections(schema, [Section(bad)], 1 << 24)[0]) == bad, (
                        schema.text,
                        at,
                        bad.hex(),
                    )


@pytest.mark.slow
def test_mutants_of_headers_whose_checksum_is_repaired():
    rng = random.Random(1)
    frames = [write_frame([s]) for k, s in enumerate(_some()) if k % 4 == 0]
    for i in range(MUTANTS // 5):
        data = rng.choice(frames)
        frame = Frame(data)
        said = {"about": frame.about, "sections": [s.head for s in frame.kind.sections]}
        text = bytearray(canonical_json(said), "ascii")
        at = rng.randrange(len(text))
        text[at] = rng.choice(b'0129-"[]{},:aetz ')
        packed = module._deflate(bytes(text), WORDS)
        rest = bytearray(data[PREFIX.size + len(frame.head) : -4])
        with contextlib.ExitStack() as stack:
            if i % 2:
                stack.enter_context(absent(*TAGS))
            with contextlib.suppress(Exception):
                head = module._parse_kind(packed, len(text))
                rest[ROW.size - 32 : ROW.size] = head.sections[0].digest(*frame.read_section(0))
            raw = PREFIX.pack(b"SMET", 2, 0, len(text), len(packed)) + packed + bytes(rest)
            raw += CHECK.pack(zlib.crc32(raw))
            try:
                (found,) = Frame(raw, 1 << 24).read_states()
            except StateFormatError:
                continue
            assert write_frame([found], Frame(raw).about) == raw


def _some():
    for k, statistic in enumerate(STATISTICS):
        for axes in (*AXES, (Axis(("k",), limit=9, pinned=((1,),)),)):
            yield made(statistic, axes, k, 6, weights=True, kinds=("integer", "string", "bytes", "date"))


@pytest.mark.slow
def test_wide_places_are_sorted_and_unique():
    codes = np.array([8, 9, 1 << 63], np.uint64)  # one key with both labels, and another
    entries = Entries(65, codes, np.ones(3, np.uint32), None, np.zeros(3, np.uint32))
    empty = Scores(limit=None)
    cells = replace(
        empty.cells,
        keys=np.zeros((1, 0), np.int64),
        flats={"off_grid": np.zeros(1, np.uint8)},
        tallies={"exact": entries, "rows": empty.cells.tallies["rows"]},
    )
    one = empty.with_cells(cells)
    schema, plain = build_schema(one), pack_state(one)
    assert unpack_sections(schema, [Section(plain)])[0] == one
    refused = set()
    for at in range(len(plain)):
        for value in range(256):
            bad = plain[:at] + bytes([value]) + plain[at + 1 :]
            for many in ([bad], [plain, bad]):
                try:
                    assert pack_state(unpack_sections(schema, [*map(Section, many)])[-1]) == bad
                except StateFormatError as error:
                    refused.add(str(error))
    assert "the state is corrupt: places of exact are not sorted and unique" in refused
