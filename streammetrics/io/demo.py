"""A log to try things on: a week of impressions with two models, two variants, and the truth about all of them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from streammetrics.io.sources import LogError, PathLike

__all__ = ["DemoTruth", "write_demo_log"]

Floats = npt.NDArray[np.float64]
Hashes = npt.NDArray[np.uint64]

_CHUNK_ROWS = 1 << 17  # also the row groups of the files
_PILOT_ROWS = 1 << 17
_FIRST_DAY = np.datetime64("2025-06-02")
_DAY_MS = 86_400_000
_IMPRESSIONS_PER_USER = 20
_ITEMS = 5_000

_COUNTRIES = ["US", "IN", "BR", "DE", "GB", "JP", "FR", "MX", "ID", "NA", None, "IS"]  # a null, and Namibia
_COUNTRY_SHARES = [0.31, 0.2, 0.12, 0.09, 0.08, 0.06, 0.05, 0.04, 0.03, 0.009, 0.01, 0.001]
_COUNTRY_EFFECTS = np.array([0.2, -0.3, 0.0, 0.1, 0.15, -0.1, 0.05, 0.1, -0.2, -0.1, -0.6, 0.3])
_DEVICES = ["android", "ios", "desktop", "tablet"]
_DEVICE_SHARES = [0.52, 0.27, 0.17, 0.04]
_DEVICE_EFFECTS = np.array([0.0, 0.15, -0.35, 0.1])
_VARIANTS = ["A", "B"]

_LIFT = 0.06  # of the logit, by variant B
_NOISE = {"pctr_a": 0.8, "pctr_b": 0.35}  # what a model does not know of the logit: b ranks better
_OVERPREDICTS = {"pctr_a": 1.15, "pctr_b": 1.0}
_CVR = 0.08

_SCHEMA = pa.schema(
    [
        ("ts", pa.timestamp("ms", "UTC")),
        ("user_id", pa.int64()),
        ("item_id", pa.int32()),
        ("variant", pa.string()),
        ("country", pa.string()),
        ("device", pa.string()),
        ("pctr_a", pa.float32()),
        ("pctr_b", pa.float32()),
        ("pcvr", pa.float32()),
        ("click", pa.int8()),
        ("convert", pa.int8()),
        ("weight", pa.float32()),
    ]
)


@dataclass(frozen=True)
class DemoTruth:
    """What is true of a demo log: expectations over clicks, given its impressions.

    Attributes
    ----------
    rows : int
        Rows written.
    impressions : int
        Impressions of the full log; more than `rows` where negatives were sampled.
    ctr : mapping of str to float
        Expected click-through rate of each variant.
    calibration : mapping of str to float
        Expected sum of the predictions over expected sum of the labels, for `pctr_a`, `pctr_b` and (of clicks)
        `pcvr`. With `negative_rate`, that of the corrected scores.
    auc : mapping of str to float
        Expected AUC of `pctr_a`, `pctr_b`, and of the true probabilities ("perfect"), right to about 1e-5.
    negative_rate : float
        Share of the negatives that was kept.
    """

    rows: int
    impressions: int
    ctr: Mapping[str, float]
    calibration: Mapping[str, float]
    auc: Mapping[str, float]
    negative_rate: float

    @property
    def lift(self) -> float:
        """Relative difference of the expected click-through rates, B over A."""
        return self.ctr["B"] / self.ctr["A"] - 1


def write_demo_log(
    folder: PathLike,
    rows: int = 1_000_000,
    seed: int = 7,
    *,
    ctr: float = 0.02,
    negative_rate: float = 1.0,
    days: int = 7,
    progress: Callable[[int], object] | None = None,
) -> DemoTruth:
    """Write a log of impressions as Parquet files `folder/day=.../part-0.parquet`.

    Users are heavy-tailed and belong to variant A or B by a hash; B's policy gets a few percent more clicks. Both
    models score every impression: `pctr_b` ranks better and is calibrated, `pctr_a` over-predicts by 1.15. Users click
    (`click`) and some who click convert (`convert`, predicted by `pcvr`); `weight` looks like revenue.

    Parameters
    ----------
    folder : path
        A folder that is empty or not there yet.
    rows : int
        Impressions of the full log. Memory does not depend on it.
    seed : int
        The same seed gives the same rows on the same machine and numpy.
    ctr : float
        Expected click-through rate.
    negative_rate : float
        Keep every click, but each other impression only with this probability, and give `pctr_a` and `pctr_b` on the
        scale that models trained on such a log have: odds 1 / negative_rate times as high. The rows are those of the
        log with the same seed and a rate of 1; `corrects="both"` undoes both.
    days : int
        Number of files.
    progress : callable, optional
        Called with the number of impressions made since its last call.

    Returns
    -------
    DemoTruth
        What a perfect estimate of the metrics would be.

    Raises
    ------
    LogError
        The folder holds files already, or a number is out of range.
    """
    _check(rows, days, ctr, negative_rate)
    root = Path(folder)
    if root.is_dir() and any(root.iterdir()):
        raise LogError(f"{root}: is not empty; the demo log needs a folder of its own")
    world = _World.make(rows, seed, ctr)
    tally = _Tally(world)
    written = chunk = 0
    for day in range(days):
        left = rows * (day + 1) // days - rows * day // days
        path = root / f"day={_FIRST_DAY + day}" / "part-0.parquet"
        with _parquet_writer(path) as writer:
            for hours, size in _chunks(left):
                table = world.table(np.random.default_rng([seed, chunk]), size, day, hours, tally)
                kept = _sample(table, np.random.default_rng([seed, chunk, 1]), negative_rate)
                writer.write_table(kept)
                written, chunk = written + kept.num_rows, chunk + 1
                if progress is not None:
                    progress(size)
    return tally.truth(written, negative_rate)


def _check(rows: int, days: int, ctr: float, negative_rate: float) -> None:
    if rows < 1 or days < 1:
        raise LogError(f"rows and days must be positive, not {rows} and {days}")
    if not 0 < ctr <= 0.5:
        raise LogError(f"ctr must be in (0, 0.5], not {ctr}")
    if not 0 < negative_rate <= 1:
        raise LogError(f"negative_rate must be in (0, 1], not {negative_rate}")


def _chunks(rows: int) -> Iterator[tuple[tuple[float, float], int]]:
    """Split a day into ranges of hours with a number of rows each."""
    for start in range(0, rows, _CHUNK_ROWS):
        size = min(_CHUNK_ROWS, rows - start)
        yield (24 * start / rows, 24 * (start + size) / rows), size


@contextmanager
def _parquet_writer(path: Path) -> Iterator[pq.ParquetWriter]:
    """Write under a hidden name until the file is whole, so that an interrupt leaves nothing that looks like a log."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.partial")
    try:
        with pq.ParquetWriter(partial, _SCHEMA, compression="zstd") as writer:
            yield writer
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)


def _sample(table: pa.Table, rng: np.random.Generator, negative_rate: float) -> pa.Table:
    """Drop negatives; scores move to where training on what is left would have put them."""
    if negative_rate == 1:
        return table
    kept = (table["click"].to_numpy() == 1) | (rng.random(table.num_rows) < negative_rate)
    table = table.filter(pa.array(kept))
    for name in ("pctr_a", "pctr_b"):
        score = table[name].to_numpy().astype(np.float64)
        score /= score + (1 - score) * negative_rate
        table = table.set_column(table.schema.get_field_index(name), name, pa.array(score.astype(np.float32)))
    return table


@dataclass(frozen=True)
class _World:
    """Who there is and how they behave; drawn once from the seed."""

    seed: int
    users: int
    user_effects: Floats  # looked up by hash, so that users take no memory
    item_effects: Floats
    item_values: Floats  # for conversions
    base: float
    shifts: Mapping[str, float]

    @classmethod
    def make(cls, rows: int, seed: int, ctr: float) -> _World:
        """Draw the effects, then set the levels on a pilot sample so that CTR and calibration come out as asked."""
        rng = np.random.default_rng([seed])
        users = max(rows // _IMPRESSIONS_PER_USER, 100)
        effects = rng.normal(0, 0.6, 1 << 16), rng.normal(0, 0.7, _ITEMS), rng.normal(0, 0.5, _ITEMS)
        draft = cls(seed, users, *effects, base=0.0, shifts={})
        context = draft.context(rng, _PILOT_ROWS, (0.0, 24.0))
        base = _level(context.logit, ctr)
        spread = float(context.logit.std())
        shifts = {
            name: _level(_opinion(rng, context.logit + base, spread, noise, base), ctr * _OVERPREDICTS[name])
            for name, noise in _NOISE.items()
        }
        return cls(seed, users, *effects, base=base, shifts=shifts)

    def context(self, rng: np.random.Generator, rows: int, hours: tuple[float, float]) -> _Context:
        """Draw who saw what, when and where."""
        # The square makes user r appear in proportion to 1 / sqrt(r).
        rank = (self.users * rng.random(rows) ** 2).astype(np.uint64)
        user = _hash(rank + np.uint64(self.seed & 0xFFFF_FFFF) * np.uint64(1 << 32)) >> np.uint64(1)
        traits = _hash(user)
        variant = (_hash(traits) & np.uint64(1)).astype(np.int64)
        country = _pick(_COUNTRY_SHARES, (traits >> np.uint64(11)).astype(np.float64) / 2.0**53)
        item = (_ITEMS * rng.random(rows) ** 3).astype(np.int64)
        device = _pick(_DEVICE_SHARES, rng.random(rows))
        hour = np.sort(rng.uniform(*hours, rows))
        logit = (
            self.base
            + self.user_effects[traits & np.uint64(0xFFFF)]
            + self.item_effects[item]
            + _COUNTRY_EFFECTS[country]
            + _DEVICE_EFFECTS[device]
            + 0.2 * np.cos((hour - 20) * (np.pi / 12))  # most clicks in the evening
            + _LIFT * variant
        )
        return _Context(user, variant, country, device, item, hour, logit)

    def table(
        self, rng: np.random.Generator, rows: int, day: int, hours: tuple[float, float], tally: _Tally
    ) -> pa.Table:
        """Draw impressions, what the models say of them, and what came of them."""
        seen = self.context(rng, rows, hours)
        spread = float(np.sqrt(np.mean((seen.logit - self.base) ** 2)))
        opinions = {
            name: _opinion(rng, seen.logit, spread, noise, self.base) + self.shifts[name]
            for name, noise in _NOISE.items()
        }
        cvr_logit = np.log(_CVR / (1 - _CVR)) + self.item_values[seen.item] + 0.5 * _COUNTRY_EFFECTS[seen.country]
        scores = {name: _sigmoid(opinion).astype(np.float32) for name, opinion in opinions.items()}
        scores["pcvr"] = _sigmoid(cvr_logit + rng.normal(0, 0.2, rows)).astype(np.float32)
        ctr, cvr = _sigmoid(seen.logit), _sigmoid(cvr_logit)
        click = rng.random(rows) < ctr
        convert = click & (rng.random(rows) < cvr)
        weight = np.maximum(np.round(100 * rng.lognormal(-0.5, 1.0, rows)), 1) / 100
        tally.add(seen, opinions, scores, ctr, cvr)
        midnight = (_FIRST_DAY + day).astype("datetime64[ms]")
        columns = {
            "ts": midnight + np.floor(seen.hour * (_DAY_MS / 24)).astype("timedelta64[ms]"),
            "user_id": seen.user.astype(np.int64),
            "item_id": seen.item.astype(np.int32),
            "variant": _words(seen.variant, _VARIANTS),
            "country": _words(seen.country, _COUNTRIES),
            "device": _words(seen.device, _DEVICES),
            **scores,
            "click": click.astype(np.int8),
            "convert": convert.astype(np.int8),
            "weight": weight.astype(np.float32),
        }
        return pa.table([pa.array(columns[field.name], field.type) for field in _SCHEMA], schema=_SCHEMA)


@dataclass(frozen=True)
class _Context:
    """Impressions before anybody clicks; logit is the truth about whether they will."""

    user: Hashes
    variant: npt.NDArray[np.int64]
    country: npt.NDArray[np.int64]
    device: npt.NDArray[np.int64]
    item: npt.NDArray[np.int64]
    hour: Floats
    logit: Floats


class _Tally:
    """Sums from which the truth follows: every impression counts as `ctr` of a click, so that no luck is left."""

    def __init__(self, world: _World) -> None:
        self._impressions = np.zeros(2)
        self._clicks = np.zeros(2)
        self._predicted = dict.fromkeys(("pctr_a", "pctr_b", "pcvr"), 0.0)
        self._conversions = 0.0
        self._ranked = {name: np.zeros((2, _Tally.BUCKETS)) for name in ("pctr_a", "pctr_b", "perfect")}
        self._base = world.base

    BUCKETS = 1 << 14
    WIDTH = 12 / BUCKETS  # six standard deviations or more either side of the base rate

    def add(
        self,
        seen: _Context,
        opinions: Mapping[str, Floats],
        scores: Mapping[str, npt.NDArray[np.float32]],
        ctr: Floats,
        cvr: Floats,
    ) -> None:
        self._impressions += np.bincount(seen.variant, minlength=2)
        self._clicks += np.bincount(seen.variant, weights=ctr, minlength=2)
        for name in ("pctr_a", "pctr_b"):
            self._predicted[name] += float(scores[name].sum(dtype=np.float64))
        self._predicted["pcvr"] += float(np.sum(ctr * scores["pcvr"]))
        self._conversions += float(np.sum(ctr * cvr))
        for name, logit in {**opinions, "perfect": seen.logit}.items():
            bucket = np.clip((logit - self._base) / self.WIDTH + self.BUCKETS / 2, 0, self.BUCKETS - 1).astype(np.int64)
            self._ranked[name][0] += np.bincount(bucket, weights=1 - ctr, minlength=self.BUCKETS)
            self._ranked[name][1] += np.bincount(bucket, weights=ctr, minlength=self.BUCKETS)

    def truth(self, rows: int, negative_rate: float) -> DemoTruth:
        clicks = float(self._clicks.sum())
        expected = {"pctr_a": clicks, "pctr_b": clicks, "pcvr": self._conversions}
        with np.errstate(invalid="ignore"):  # a handful of rows may all be of one variant
            ctr = self._clicks / self._impressions
        return DemoTruth(
            rows=rows,
            impressions=int(self._impressions.sum()),
            ctr=dict(zip(_VARIANTS, ctr.tolist(), strict=True)),
            calibration={name: self._predicted[name] / expected[name] for name in expected},
            auc={name: _auc(*ranked) for name, ranked in self._ranked.items()},
            negative_rate=negative_rate,
        )


def _auc(negatives: Floats, positives: Floats) -> float:
    below = np.cumsum(negatives) - negatives / 2
    return float(np.sum(positives * below) / (positives.sum() * negatives.sum()))


def _opinion(rng: np.random.Generator, logit: Floats, spread: float, noise: float, base: float) -> Floats:
    """What a model that sees the logit through noise believes it is: shrunk towards the base rate."""
    heard = logit - base + rng.normal(0, noise, len(logit))
    return base + heard * (spread**2 / (spread**2 + noise**2))


def _level(logit: Floats, mean: float) -> float:
    """Find the shift that gives logits a mean probability."""
    low, high = -30.0, 30.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if _sigmoid(logit + middle).mean() < mean else (low, middle)
    return (low + high) / 2


def _sigmoid(logit: Floats) -> Floats:
    return 1 / (1 + np.exp(-logit))


def _hash(x: Hashes) -> Hashes:
    """Finaliser of splitmix64: bits that look independent of those of x."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def _pick(shares: list[float], uniform: Floats) -> npt.NDArray[np.int64]:
    edges = np.cumsum(shares)[:-1]
    return np.searchsorted(edges, uniform, side="right")


def _words(codes: npt.NDArray[np.int64], words: list[str] | list[str | None]) -> pa.Array:
    return pa.DictionaryArray.from_arrays(codes.astype(np.int32), pa.array(words, pa.string())).cast(pa.string())
