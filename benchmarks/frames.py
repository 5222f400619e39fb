"""States as bytes: size, writing, reading one and merging thousands, on statistics made up like those of scores and sums.

Of other libraries numpy alone is loaded, as where states are merged.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from benchmarks.report import Sheet
from benchmarks.timing import MIB, fastest, forget_peak, peak, resident
from streammetrics.format.frame import Frame, merge_frames, write_frame
from streammetrics.numerics.settings import setting
from streammetrics.state.axes import Axis, Vocabulary
from streammetrics.state.cells import Cells
from streammetrics.state.declare import Flat, Tally
from streammetrics.state.state import State
from streammetrics.state.tally import Entries, sort_entries

U4, U8, I8 = np.uint32, np.uint64, np.int64
ONE = int(np.array(1.0).view(U8))
ROWS, CELLS = 10_000_000, 10_000
MANY, DISTINCT = 10_000, 400
READ = {0.15: 0.21}  # by what is asked for: what AMD Zen 3 keeps; Zen 4 keeps 0.15


class Quiet(State):
    """Needs no columns."""

    def needs(self) -> tuple[Any, ...]:
        return ()


class Scores(Quiet, tag="benchmarks.scores"):
    """Probabilities: exact to `limit` rows, then in buckets."""

    bits: int = setting(16)

    exact = Tally("exact_places")
    rows = Tally("places")
    off_grid = Flat(form="flag")
    row_parts = ("exact", "rows")
    folding = ("exact", "rows", "off_grid")

    @property
    def exact_places(self) -> int:
        return 2 * (ONE + 1)

    @property
    def places(self) -> int:
        return 2 * ((1 << self.bits) + 1)

    @property
    def exact_rows_limit(self) -> int | None:
        return 1 << 16 if self.bits >= 16 else 0

    def bucket_entries(self, exact: Entries) -> tuple[Entries, Any]:
        word, label, cells = (exact.codes >> U8(1)).view(I8), exact.codes & U8(1), exact.cells
        x, shift = word.view(np.float64), 29 - self.bits
        low = np.minimum(x, 1 - x).view(I8)
        b = (low >> (29 + shift)) - ((896 + 94 << 23) >> shift)
        lost = (low & ((1 << (29 + shift)) - 1) != 0) | ((b <= 0) & (low != 0))
        np.maximum(b, 0, out=b)
        b = np.where(x > 0.5, (1 << self.bits) - b, b)
        bits = (self.places - 1).bit_length()
        code = (cells.astype(U8) << U8(bits)) | (b.astype(U8) << U8(1)) | label
        return sort_entries(Entries(bits, code, exact.counts, exact.excess)), np.unique(cells[lost])


class Histogram(Quiet, tag="benchmarks.histogram"):
    """A tally alone."""

    places = 2 << 12
    rows = Tally("places")
    off_grid = Flat(form="flag")


class Sums(Quiet, tag="benchmarks.sums"):
    """As of log-loss."""

    rows = Flat(2)
    clipped = Flat()
    sums = Flat(2, 2, form="fixed")
    squares = Flat(2, form="square")


class Decisions(Quiet, tag="benchmarks.decisions"):
    """A confusion matrix."""

    rows = Flat(1, 2, 2)


class Bins(Quiet, tag="benchmarks.bins"):
    """As of calibration error."""

    rows = Flat(15, 2)
    sums = Flat(15, form="fixed")


class Exact(Quiet, tag="benchmarks.exact"):
    """As of regression."""

    rows = Flat()
    sums = Flat(3, form="exact")


def main() -> None:
    """Print the sizes and times of frames."""
    assert "numba" not in sys.modules, "what merges states needs numpy alone"
    small_frames()
    many_frames()
    many_cells()
    text_keys()


def clicks(n: int, seed: int, dtype: type) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    score = (1 / (1 + np.exp(-rng.normal(-3, 1.2, n)))).astype(dtype)
    return (rng.random(n) < score).astype(U8), score


def scores_of(statistic: Scores, labels: Any, scores: Any) -> Scores:
    n = len(scores)
    code = scores.astype(np.float64).view(U8) << U8(1) | labels
    wide = sort_entries(Entries(63, code, np.ones(n, U4), None, np.zeros(n, U4)))
    rows = Entries.empty((statistic.places - 1).bit_length())
    flats, tallies = {"off_grid": np.zeros(1, np.uint8)}, {"exact": wide, "rows": rows}
    none = np.zeros((1, 0), I8)
    state = statistic.with_cells(Cells((), none, (), None, None, flats, tallies)).move_cells(none)
    assert state.approximate_rows == n, "the state must have every row; otherwise these benchmarks measure nothing"
    return state


def sums_of(statistic: State, n: int) -> State:
    rng, flats = np.random.default_rng(n), {}
    for name, part in statistic.parts().items():
        if part.optional:
            continue
        array = part.empty(statistic, 1)
        if part.form == "exact":
            array[..., 33:36] = rng.integers(1, 1 << 32, (1, 3, 3))
        elif part.limbs:
            array[..., 0], array[..., 1] = rng.integers(0, n << 15, array.shape[:-1]), rng.integers(0, 1 << 40)
        else:
            array[...] = rng.integers(1, n + 2, array.shape)
        flats[name] = array
    return statistic.with_cells(Cells((), np.zeros((1, 0), I8), (), None, None, flats, {}))


def small_frames() -> None:
    """Frames of a hundred and of ten thousand rows: bytes, and the time to read them."""
    sheet = Sheet()
    cases = ((100, np.float32, 16, 450, 0.15), (100, np.float64, 16, 800, 0.15), (100, np.float32, 12, 250, 0.15),
             (10_000, np.float32, 16, 25_000, 0.5), (10_000, np.float64, 16, 70_000, 0.5))  # fmt: skip
    for n, dtype, bits, most, limit in cases:
        state = scores_of(Scores(bits=bits), *clicks(n, 1, dtype))
        data = write_frame([state], {"tag": "auc"})
        assert Frame(data).read_state() == state
        name = f"{n:,} rows of {np.dtype(dtype).name}, {bits} bits"
        sheet.line(f"size, {name}", len(data), most, "bytes")
        sheet.short(f"reading, {name}", lambda data=data: Frame(data).read_state(), READ.get(limit, limit), limit)
    sheet.show("One frame of scores")


def many_frames() -> None:
    """Thousands of frames of five states each, merged into one."""
    sheet = Sheet()
    for bits, limit in ((12, 1.5), (16, 4.0)):
        rng, held = np.random.default_rng(0), []
        for i in range(DISTINCT):
            n = int(np.exp(rng.uniform(np.log(100), np.log(10_000))))
            scores = scores_of(Scores(bits=bits), *clicks(n, i, np.float32 if i % 2 else np.float64))
            others = [sums_of(s, n) for s in (Sums(), Decisions(), Bins(), Exact())]
            held.append(write_frame([scores, *others], {"kind": "collection"}))
        frames = held * (MANY // DISTINCT)
        name = f"{bits} bits, {np.mean([len(h) for h in held]):,.0f} bytes each"
        sheet.line(name, fastest(lambda frames=frames: merge_frames(frames), rounds=2), limit, "s")
    sheet.show(f"Merging {MANY:,} frames of 5 states, of 100 to 10,000 rows")


def histogram(rows: int, seed: int) -> Histogram:
    rng = np.random.default_rng(seed)
    bucket = np.clip(rng.normal(2048, 130, rows), 0, 4095).astype(I8)
    code = (rng.integers(0, CELLS, rows) << 13) | (bucket << 1) | (rng.random(rows) < 0.05)
    entries = sort_entries(Entries(13, code.astype(U4), np.ones(rows, U4)))
    keys, words = np.arange(CELLS)[:, None], (Vocabulary("integer", np.arange(CELLS)),)
    flats = {"off_grid": np.ones(CELLS, np.uint8)}
    return Histogram().with_cells(Cells((Axis(("slice",)),), keys, words, None, None, flats, {"rows": entries}))


def many_cells() -> None:
    """A histogram of many cells: seconds, and the most memory beside what is made."""
    sheet = Sheet()
    a, b = histogram(ROWS, 1), histogram(ROWS // 2, 2)
    data = write_frame([a])
    for name, call, size in (
        ("to_bytes", lambda: write_frame([a]), a.nbytes),
        ("from_bytes", lambda: Frame(data).read_state(), a.nbytes),
        ("merge", lambda: a.merge(b), a.merge(b).nbytes),
    ):
        before = resident()  # first, since what calls have freed may stay with the allocator
        forget_peak()
        made = call()
        room = (peak() - before) / size
        del made
        sheet.line(name, fastest(call, rounds=3), 0.3, "s")
        sheet.line(f"peak of {name} / result", room, 2.5)
    entries = len(a.cells.tallies["rows"])
    sizes = f"{a.nbytes / MIB:.0f} MiB, {len(data) / MIB:.1f} of bytes"
    sheet.show(f"{CELLS:,} cells, {ROWS:,} rows, {entries:,} entries: {sizes}")


def text_keys() -> None:
    """Keys that two states know in part, beside making the vocabularies anew."""
    sheet = Sheet()
    texts = [[b"key %d" % (i * 7919 % 1_000_003 + k) for i in range(40_000)] for k in (0, 20_000)]
    made = [_decisions(Decisions(), t) for t in texts]
    build = fastest(lambda: [Vocabulary.from_values("string", t) for t in texts], rounds=3)
    merge = fastest(lambda: made[0].merge(made[1]), rounds=3)
    sheet.line("merging 2 x 40,000 text keys / building them", merge / build, 2)
    sheet.show("Keys")


def _decisions(statistic: Decisions, texts: list[bytes]) -> Decisions:
    words = Vocabulary.from_values("string", texts)
    n = len(words)
    flats = {"rows": np.ones((n, 1, 2, 2), I8)}
    return statistic.with_cells(Cells((Axis(("k",)),), np.arange(n)[:, None], (words,), None, None, flats, {}))
