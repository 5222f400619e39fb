"""Tallies of sections."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..state import levels
from ..state.declare import LIMIT, Tally
from ..state.pair_levels import are_pairs, at_needed_levels
from ..state.state import State
from ..state.tally import WIDEST, Entries, code_type, count_type
from ..state.unknown_state import OpaqueState
from .read_flat import limbs
from .section import LIMB, need, noise
from .section_header import Lead
from .varint import BLOCK, running, unzigzag

__all__ = ["read_folds", "read_levels", "read_tally"]

Ints = NDArray[np.int64]
Array = NDArray[Any]


def read_tally(lead: Lead, tally: Tally) -> Entries:
    """The entries of all sections; sorted and unique in every cell."""
    name, entries = tally.name, lead.said[f"entries {tally.name}"]
    runs = lead.cells * lead.layout.runs[name]
    each = lead.next(runs).astype(np.int64)
    n = int(entries.sum())
    _, shift, wide = lead.layout.places[name]
    if not n:
        need(not each.any() and not lead.said[f"excess {name}"].any(), f"entries of {name} do not fit")
        numbers = [lead.said[f"{what} {name}"] for what in ("zeros", "width") if f"{what} {name}" in lead.said]
        need(not any(said.any() for said in numbers), "the lead")
        return Entries.none(shift, wide=wide)
    need(each.min() >= 0 and each.max() <= n, f"entries of {name} do not fit")
    need(lead.fits(each, runs, entries), f"entries of {name} do not fit")
    if tally.level is not None:
        made = _leveled(lead, tally, each)
    else:
        made = _wide(lead, tally, each, n) if wide else _narrow(lead, tally, each)
    rows = float(made.counts.sum(dtype=np.float64))
    need(rows < LIMIT and int(made.counts.max(initial=0)) < LIMIT, f"{name} has too many rows")
    excess = lead.said[f"excess {name}"]
    return _excess(lead, tally, made, excess) if excess.any() else made


def _narrow(lead: Lead, tally: Tally, each: Ints) -> Entries:
    places, shift, _ = lead.layout.places[tally.name]
    entries = lead.said[f"entries {tally.name}"]
    gaps = lead.next(entries)
    need(int(gaps.max()) < places, f"{tally.name} holds a place that is not there")
    held = np.flatnonzero(each)
    starts = (np.cumsum(each) - each)[held]
    wide = code_type(len(each) << shift)
    large = int(each.max()) * int(gaps.max()) >= 1 << 63  # a sum could wrap around; of floats it is only not exact
    reach = np.add.reduceat(gaps.astype(np.float64) if large else gaps, starts, dtype=np.float64 if large else np.int64)
    need(int((reach + each[held]).max()) <= places, f"{tally.name} holds a place that is not there")
    codes: Array = gaps.astype(wide, copy=gaps.dtype == np.uint8)  # a piece of the section, or made just now
    del gaps
    codes += wide(1)
    np.cumsum(codes, out=codes)  # modulo 2**32 or 2**64, which the next step makes good
    before = np.append(wide(0), codes[starts[1:] - 1])
    first = (held.astype(wide) << wide(shift)) - before - wide(1)
    codes += first[0] if len(held) == 1 else np.repeat(first, each[held])
    return Entries(shift, codes, _counts(lead.next(entries)))


def _leveled(lead: Lead, tally: Tally, each: Ints) -> Entries:
    """Buckets of numbers: each label in the high word, the bucket in the low one."""
    places, shift, _ = lead.layout.places[tally.name]
    runs, entries = lead.layout.runs[tally.name], lead.said[f"entries {tally.name}"]
    if runs > 1:
        need(not each.reshape(-1, runs)[:, places // WIDEST :].any(), f"{tally.name} holds a label that is not there")
    gaps = lead.next(entries).astype(np.uint64)
    held = each > 0
    starts = (np.cumsum(each) - each)[held]
    steps = gaps + np.uint64(1)
    steps[starts] -= np.uint64(1)
    buckets = running(steps, each)
    ascends = np.append(True, buckets[1:] > buckets[:-1])
    ascends[starts] = True
    need(bool(ascends.all()), f"{tally.name} holds a bucket that is not there")
    zeros = lead.said[f"zeros {tally.name}"]
    need(not zeros[entries == 0].any() and _no_zeros(buckets, entries, zeros), "buckets end in more zeros")
    buckets <<= np.repeat(zeros, entries).astype(np.uint64)
    top = max(shift - 64, 0)
    need(len(each) << min(top, 1) < 1 << 32, "there are more cells than codes")
    high = np.repeat(np.arange(len(each), dtype=np.uint32), each) << np.uint32(min(top, 1))
    return Entries(shift, buckets, _counts(lead.next(entries)), None, high)


def _counts(less: Array) -> Array:
    need(int(less.max(initial=0)) < LIMIT - 1, "a place has too many rows")
    counts: Array = less.astype(count_type(int(less.max(initial=0)) + 1))
    counts += counts.dtype.type(1)
    return counts


def _wide(lead: Lead, tally: Tally, each: Ints, n: int) -> Entries:
    name = tally.name
    places, shift, _ = lead.layout.places[name]
    if (runs := lead.layout.runs[name]) > 1:
        need(not each.reshape(-1, runs)[:, places // WIDEST :].any(), f"{name} holds a label that is not there")
        places = WIDEST
    entries = lead.said[f"entries {name}"]
    zeros, width = lead.said[f"zeros {name}"], lead.said[f"width {name}"]
    said = lead.next(entries)
    last = (said & said.dtype.type(1)).astype(np.uint8)
    counts = _counts(said >> said.dtype.type(1))
    del said
    keys = _gaps(lead, entries, width, zeros)
    wrong = (keys[1:] == 0) & (last[1:] <= last[:-1])
    running(keys, each, out=keys)
    wrong |= keys[1:] < keys[:-1]
    if len(each) > 1:
        begins = (np.cumsum(each) - each)[each > 0]
        wrong[begins[1:] - 1] = False
    need(not wrong.any(), f"places of {name} are not sorted and unique")
    end = (places - 1) >> 1
    if lead.many == 1:
        shifts: Any = np.uint64(zeros[0])
        union, room = int(np.bitwise_or.reduce(keys)), int(keys.max()) <= end >> int(shifts)
        bare: Any = union & 1 or (not union and not zeros[0])
    else:
        need(not (zeros[entries == 0].any() or width[entries == 0].any()), "the lead is out of range")
        shifts = np.repeat(zeros, entries).astype(np.uint64)
        room = not (keys > (np.uint64(end) >> shifts)).any()
        bare = _no_zeros(keys, entries, zeros)
    need(room, f"{name} holds a place that is not there")
    need(bare, f"places of {name} end in more zeros")
    keys <<= shifts
    if places % 2:
        need(not ((keys == end) & (last == 1)).any(), f"{name} holds a place that is not there")
    top = min(max(shift - 64, 0), 1)
    need(len(each) << top < 1 << 32, "there are more cells than codes")
    high = np.repeat(np.arange(len(each), dtype=np.uint32), each) << np.uint32(top)
    for i in range(0, n if top else 0, BLOCK):
        high[i : i + BLOCK] |= (keys[i : i + BLOCK] >> np.uint64(63)).astype(np.uint32)
    keys <<= np.uint64(1)
    keys |= last
    return Entries(shift, keys, counts, None, high)


def _no_zeros(keys: Array, entries: Ints, zeros: Ints) -> bool:
    """Whether the zeros that places end in were all left out, in every section."""
    held = entries > 0
    union = np.bitwise_or.reduceat(keys, (np.cumsum(entries) - entries)[held])
    return bool((((union & np.uint64(1)) == 1) | ((union == 0) & (zeros[held] == 0))).all())


def _gaps(lead: Lead, entries: Ints, width: Ints, zeros: Ints) -> Array:
    """Gaps of so many bytes in every section, plane by plane."""
    low = noise(width, zeros)
    rest, last = lead.rest.cut((width - low) * entries), lead.last.cut(low * entries)
    out = np.zeros((int(entries.sum()), 8), np.uint8)
    begin = a = b = 0
    wider = False
    for n, w, k in zip(entries.tolist(), width.tolist(), low.tolist(), strict=True):  # 2 us; masks over all cost more
        if n and w:
            some = out[begin : begin + n]
            if k:
                some[:, :k] = last[b : b + n * k].reshape(k, n).T
            top = rest[a : a + n * (w - k)].reshape(w - k, n)
            some[:, k:w] = top.T
            wider |= not top[-1].any()
            a, b = a + n * (w - k), b + n * k
        begin += n
    need(not wider, "a gap is wider than it need be")
    return out.view("<u8").ravel().astype(np.uint64, copy=False)


def _excess(lead: Lead, tally: Tally, made: Entries, there: Ints) -> Entries:
    entries = lead.said[f"entries {tally.name}"]
    counts = entries * there
    excess = np.zeros((len(made), 2), np.int64)
    held: Any = range(len(made)) if there.all() else np.flatnonzero(np.repeat(there > 0, entries))
    high, low = lead.next(counts), lead.rest.cut(LIMB * counts)
    for i in range(0, len(held), BLOCK):  # what is worked in stays small
        some: Any = held[i : i + BLOCK]
        at = slice(some.start, some.stop) if isinstance(some, range) else some
        excess[at, 0], excess[at, 1] = unzigzag(high[i : i + BLOCK]), limbs(low[LIMB * i : LIMB * (i + BLOCK)])
    marks = np.concatenate([[0], np.cumsum(entries)])
    said = np.logical_or.reduceat(np.append(excess.any(axis=1), False), marks[:-1]) & (entries > 0)
    need(not (there.astype(bool) & ~said).any(), f"{tally.name} has an excess that is all zero, and should be absent")
    for i in range(0, len(made), BLOCK):
        rows, top = made.counts[i : i + BLOCK].astype(np.int64), excess[i : i + BLOCK, 0]
        good = (top >= -(np.minimum(rows, 1 << 41) << 20)) & (top * 2.0**-20 <= rows * float(1 << 31))
        need(good.all(), f"{tally.name} has a weight out of range")
    return Entries(made.shift, made.codes, made.counts, excess, made.high)


def read_folds(made: State) -> None:
    """Raise unless every cell is exact or in buckets, as its rows ask for."""
    if made.folds is None:
        return
    exact, rows, flag = made.folds
    fine, coarse = made.by_cell(exact) > 0, made.by_cell(rows) > 0
    need(not (fine & coarse).any(), "a cell is exact, and in buckets")
    if made.most is None:
        need(not coarse.any(), "a cell that keeps all rows exactly is in buckets")
    else:
        many = made.by_cell(exact) > made.most
        if many.any() and not made.folds_by_rows:  # only a class knows its buckets
            many &= not isinstance(made, OpaqueState) and made.outgrown(made.cells.tallies[exact], many)
        need(not many.any(), "a cell holds more exact rows than it may")
    if flag in made.cells.flats:
        need(not made.cells.flats[flag][~coarse].any(), "a cell lost something that is exact")


def read_levels(made: State) -> None:
    """Raise unless buckets are ones of their level, and no higher level is needed."""
    for name, part in made.parts().items():
        if isinstance(part, Tally) and part.level is not None:
            entries, level, bits = made.cells.tallies[name], made.flat(part.level), getattr(made, part.bits)
            need(_are_buckets(part, entries, level, bits), f"{name} holds a bucket that is not there")
            need(at_needed_levels(part, entries, level, bits)[0] is entries, f"{name} has too many buckets")


def _are_buckets(part: Tally, entries: Entries, level: Array, bits: int) -> bool:
    if not part.pairs:
        each = level.reshape(-1)[levels.groups_of(entries, level[:1].size or 1)]
        return levels.are_buckets(entries.codes, each, bits)
    return are_pairs(entries, level, bits)
