"""A log to try things on: a week of impressions with two models, two variants, and the truth about all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from streammetrics.collect.files import atomic_write
from streammetrics.io.simulation import SCHEMA, VARIANTS, Floats, Impressions, World
from streammetrics.io.sources import LogError, PathLike

__all__ = ["DemoTruth", "write_demo_log", "write_parquet"]

_CHUNK_ROWS = 1 << 17  # also the row groups of the files
_FIRST_DAY = np.datetime64("2025-06-02")
_EVENTS, _SAMPLING = 1, 2  # random streams; 0 is the world itself


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
    sampled_scale: bool = True,
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
        Keep every click, but each other impression only with this probability. The rows are among those of the log
        with the same seed and a rate of 1.
    sampled_scale : bool
        Whether the models were trained on such a sample too: the odds of `pctr_a` and `pctr_b` are then
        1 / negative_rate times as high (undone by `corrects="both"`). Otherwise scores stay (`corrects="rows"`).
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
    _check(rows, seed, days, ctr, negative_rate)
    root = Path(folder)
    if root.is_dir() and any(root.iterdir()):
        raise LogError(f"{root}: is not empty; the demo log needs a folder of its own")
    world = World.make(rows, seed, ctr)
    tally = _Tally(world)
    written = chunk = 0

    def tables(day: int) -> Iterator[pa.Table]:
        nonlocal written, chunk
        for hours, size in _chunks(rows * (day + 1) // days - rows * day // days):
            made = world.impressions(np.random.default_rng([seed, _EVENTS, chunk]), size, hours)
            tally.add(made)
            # Sampling has its own random numbers, so that twins agree on everything else.
            sampling = np.random.default_rng([seed, _SAMPLING, chunk])
            kept = _sample(made.table(_day(day)), sampling, negative_rate, sampled_scale)
            yield kept
            written, chunk = written + kept.num_rows, chunk + 1
            if progress is not None:
                progress(size)

    for day in range(days):
        write_parquet(root / f"day={_day(day)}" / "part-0.parquet", SCHEMA, tables(day))
    return tally.truth(written, negative_rate)


def _check(rows: int, seed: int, days: int, ctr: float, negative_rate: float) -> None:
    if rows < 1 or days < 1:
        raise LogError(f"rows and days must be positive, not {rows} and {days}")
    if seed < 0:
        raise LogError(f"seed must be 0 or more, not {seed}")
    if not 0 < ctr <= 0.5:
        raise LogError(f"ctr must be in (0, 0.5], not {ctr}")
    if not 0 < negative_rate <= 1:
        raise LogError(f"negative_rate must be in (0, 1], not {negative_rate}")


def _chunks(rows: int) -> Iterator[tuple[tuple[float, float], int]]:
    """Split a day into ranges of hours with a number of rows each."""
    for start in range(0, rows, _CHUNK_ROWS):
        size = min(_CHUNK_ROWS, rows - start)
        yield (24 * start / rows, 24 * (start + size) / rows), size


def write_parquet(path: Path, schema: pa.Schema, tables: Iterable[pa.Table]) -> None:
    """Write a file whole or not at all, so that an interrupt leaves nothing that looks like a log."""

    def put(file: BinaryIO) -> None:
        with pq.ParquetWriter(file, schema, compression="zstd") as writer:
            for table in tables:
                writer.write_table(table)

    path.parent.mkdir(parents=True, exist_ok=True)
    atomic_write(path, put)


def _day(number: int) -> np.datetime64:
    return _FIRST_DAY + np.timedelta64(number, "D")


def _sample(table: pa.Table, rng: np.random.Generator, negative_rate: float, sampled_scale: bool) -> pa.Table:
    """Drop negatives; scores may move to where training on what is left would have put them."""
    if negative_rate == 1:
        return table
    kept = (table["click"].to_numpy() == 1) | (rng.random(table.num_rows) < negative_rate)
    table = table.filter(pa.array(kept))
    for name in ("pctr_a", "pctr_b") if sampled_scale else ():
        score = table[name].to_numpy().astype(np.float64)
        score /= score + (1 - score) * negative_rate
        table = table.set_column(table.schema.get_field_index(name), name, pa.array(score.astype(np.float32)))
    return table


class _Tally:
    """Sums from which the truth follows: every impression counts as `ctr` of a click, so that no luck is left."""

    BUCKETS = 1 << 14
    WIDTH = 12 / BUCKETS  # at least five standard deviations either side of the base rate

    def __init__(self, world: World) -> None:
        self._impressions = np.zeros(2)
        self._clicks = np.zeros(2)
        self._predicted = dict.fromkeys(("pctr_a", "pctr_b", "pcvr"), 0.0)
        self._conversions = 0.0
        self._ranked = {name: np.zeros((2, _Tally.BUCKETS)) for name in ("pctr_a", "pctr_b", "perfect")}
        self._base = world.base

    def add(self, made: Impressions) -> None:
        variant, ctr = made.context.variant, made.ctr
        self._impressions += np.bincount(variant, minlength=2)
        self._clicks += np.bincount(variant, weights=ctr, minlength=2)
        for name in ("pctr_a", "pctr_b"):
            self._predicted[name] += float(made.scores[name].sum(dtype=np.float64))
        self._predicted["pcvr"] += float(np.sum(ctr * made.scores["pcvr"]))
        self._conversions += float(np.sum(ctr * made.cvr))
        for name, logit in {**made.opinions, "perfect": made.context.logit}.items():
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
            ctr=dict(zip(VARIANTS, ctr.tolist(), strict=True)),
            calibration={name: self._predicted[name] / expected[name] for name in expected},
            auc={name: _auc(*ranked) for name, ranked in self._ranked.items()},
            negative_rate=negative_rate,
        )


def _auc(negatives: Floats, positives: Floats) -> float:
    below = np.cumsum(negatives) - negatives / 2
    return float(np.sum(positives * below) / (positives.sum() * negatives.sum()))
