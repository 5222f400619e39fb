"""Write a simulated log (a week of impressions, two models and two variants), and compute the true metric values."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from streammetrics.collect.files import atomic_write
from streammetrics.io.simulation import SCHEMA, VARIANTS, Floats, Impressions, SimulatedWorld
from streammetrics.io.sources import LogError, PathLike

__all__ = ["DemoTruth", "write_demo_log", "write_parquet"]

# The number of rows simulated at a time, which is also the row group size of the files.
_CHUNK_ROWS = 1 << 17
_FIRST_DAY = np.datetime64("2025-06-02")
# Streams of random numbers: stream _EVENTS draws impressions, and stream _SAMPLING decides which of them are kept.
# Stream 0 draws the parameters of the simulation.
_EVENTS, _SAMPLING = 1, 2


@dataclass(frozen=True)
class DemoTruth:
    """The true values of the metrics of a demo log: expected values over random clicks, given the impressions.

    Attributes
    ----------
    rows : int
        Number of rows written.
    impressions : int
        Number of impressions in the full log. It exceeds `rows` if negatives were sampled.
    ctr : mapping of str to float
        Expected click-through rate of each variant.
    calibration : mapping of str to float
        The expected sum of the predictions, divided by the expected sum of the labels, for `pctr_a`, `pctr_b` and
        `pcvr`. For `pcvr`, only clicks are summed. The values are those of the full log, which a metric matches if it
        corrects for the sampling of negatives.
    auc : mapping of str to float
        Expected AUC of `pctr_a`, of `pctr_b`, and of the true probabilities ("perfect"), with an error of about 1e-5.
    negative_rate : float
        Share of the negatives that were kept.
    """

    rows: int
    impressions: int
    ctr: Mapping[str, float]
    calibration: Mapping[str, float]
    auc: Mapping[str, float]
    negative_rate: float

    @property
    def lift(self) -> float:
        """Relative difference between the expected click-through rates of the variants: B / A - 1."""
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

    A few users have many impressions. A hash of the user ID assigns each user to variant A or B, and variant B gets a few
    percent more clicks. Two models score every impression: `pctr_b` ranks better and is calibrated, and `pctr_a`
    over-predicts by a factor of 1.15. Some impressions have a click (`click`), and some clicks have a conversion
    (`convert`), which `pcvr` predicts. `weight` resembles revenue.

    Parameters
    ----------
    folder : path
        A folder that is empty or does not exist yet.
    rows : int
        Number of impressions in the full log. Memory use does not depend on it.
    seed : int
        The same seed gives the same rows on the same machine with the same version of numpy.
    ctr : float
        Expected click-through rate.
    negative_rate : float
        The probability that an impression without a click is kept. All clicks are kept. The rows are a subset of those
        in the log with the same seed and a rate of 1.
    sampled_scale : bool
        Whether to scale scores as if the models had been trained on negatives sampled at `negative_rate`. If so, the
        odds of `pctr_a` and `pctr_b` are multiplied by 1 / negative_rate; correct this with `corrects="both"` (see
        `Task`). Otherwise, scores are unchanged; use `corrects="rows"`.
    days : int
        Number of files.
    progress : callable, optional
        Called with the number of impressions simulated since its last call.

    Returns
    -------
    DemoTruth
        The true values of the metrics.

    Raises
    ------
    LogError
        The folder already contains files, or a number is out of range.
    """
    _check_arguments(rows, seed, days, ctr, negative_rate)
    root = Path(folder)
    if root.is_dir() and any(root.iterdir()):
        raise LogError(f"{root}: the folder is not empty; choose a new or empty folder for the demo log")
    world = SimulatedWorld.make(rows, seed, ctr)
    tally = _TruthTally(world)
    written_rows = chunk = 0

    def tables(day: int) -> Iterator[pa.Table]:
        nonlocal written_rows, chunk
        for hours, size in _split_day(rows * (day + 1) // days - rows * day // days):
            impressions = world.impressions(np.random.default_rng([seed, _EVENTS, chunk]), size, hours)
            tally.add(impressions)
            # Sampling has its own random stream, so that a sampled log has the same impressions as the full log.
            sampling = np.random.default_rng([seed, _SAMPLING, chunk])
            sampled = _sample_negatives(impressions.table(_date_of_day(day)), sampling, negative_rate, sampled_scale)
            yield sampled
            written_rows, chunk = written_rows + sampled.num_rows, chunk + 1
            if progress is not None:
                progress(size)

    for day in range(days):
        write_parquet(root / f"day={_date_of_day(day)}" / "part-0.parquet", SCHEMA, tables(day))
    return tally.truth(written_rows, negative_rate)


def _check_arguments(rows: int, seed: int, days: int, ctr: float, negative_rate: float) -> None:
    if rows < 1 or days < 1:
        raise LogError(f"rows and days must be positive, not {rows} and {days}")
    if seed < 0:
        raise LogError(f"seed must be 0 or more, not {seed}")
    if not 0 < ctr <= 0.5:
        raise LogError(f"ctr must be greater than 0 and at most 0.5, not {ctr}")
    if not 0 < negative_rate <= 1:
        raise LogError(f"negative_rate must be greater than 0 and at most 1, not {negative_rate}")


def _split_day(rows: int) -> Iterator[tuple[tuple[float, float], int]]:
    """Split a day into chunks; yield the range of hours and the number of rows for each chunk."""
    for start in range(0, rows, _CHUNK_ROWS):
        size = min(_CHUNK_ROWS, rows - start)
        yield (24 * start / rows, 24 * (start + size) / rows), size


def write_parquet(path: Path, schema: pa.Schema, tables: Iterable[pa.Table]) -> None:
    """Write tables to a Parquet file atomically, so that an interrupt leaves no partial file."""

    def put(file: BinaryIO) -> None:
        with pq.ParquetWriter(file, schema, compression="zstd") as writer:
            for table in tables:
                writer.write_table(table)

    path.parent.mkdir(parents=True, exist_ok=True)
    atomic_write(path, put)


def _date_of_day(number: int) -> np.datetime64:
    return _FIRST_DAY + np.timedelta64(number, "D")


def _sample_negatives(table: pa.Table, rng: np.random.Generator, negative_rate: float, sampled_scale: bool) -> pa.Table:
    """Sample the impressions without a click, so that each of them is kept with probability `negative_rate`.

    With `sampled_scale`, scale the scores as if the models had been trained on the sample.
    """
    if negative_rate == 1:
        return table
    keep = (table["click"].to_numpy() == 1) | (rng.random(table.num_rows) < negative_rate)
    table = table.filter(pa.array(keep))
    for name in ("pctr_a", "pctr_b") if sampled_scale else ():
        score = table[name].to_numpy().astype(np.float64)
        score /= score + (1 - score) * negative_rate
        table = table.set_column(table.schema.get_field_index(name), name, pa.array(score.astype(np.float32)))
    return table


class _TruthTally:
    """The sums that the true values are computed from.

    Each impression counts as its expected number of clicks (`ctr`, such as 0.02) rather than a random 0 or 1.
    """

    # The buckets of logits cover at least five standard deviations on either side of the logit of the base rate.
    BUCKETS = 1 << 14
    WIDTH = 12 / BUCKETS

    def __init__(self, world: SimulatedWorld) -> None:
        self._impressions = np.zeros(2)
        self._clicks = np.zeros(2)
        self._predicted = dict.fromkeys(("pctr_a", "pctr_b", "pcvr"), 0.0)
        self._conversions = 0.0
        self._histograms = {name: np.zeros((2, _TruthTally.BUCKETS)) for name in ("pctr_a", "pctr_b", "perfect")}
        self._base = world.base_logit

    def add(self, impressions: Impressions) -> None:
        variant, ctr = impressions.context.variant, impressions.ctr
        self._impressions += np.bincount(variant, minlength=2)
        self._clicks += np.bincount(variant, weights=ctr, minlength=2)
        for name in ("pctr_a", "pctr_b"):
            self._predicted[name] += float(impressions.scores[name].sum(dtype=np.float64))
        self._predicted["pcvr"] += float(np.sum(ctr * impressions.scores["pcvr"]))
        self._conversions += float(np.sum(ctr * impressions.cvr))
        for name, logit in {**impressions.score_logits, "perfect": impressions.context.logit}.items():
            bucket = np.clip((logit - self._base) / self.WIDTH + self.BUCKETS / 2, 0, self.BUCKETS - 1).astype(np.int64)
            self._histograms[name][0] += np.bincount(bucket, weights=1 - ctr, minlength=self.BUCKETS)
            self._histograms[name][1] += np.bincount(bucket, weights=ctr, minlength=self.BUCKETS)

    def truth(self, rows: int, negative_rate: float) -> DemoTruth:
        clicks = float(self._clicks.sum())
        expected = {"pctr_a": clicks, "pctr_b": clicks, "pcvr": self._conversions}
        # In a tiny log, one variant may have no rows. Its click-through rate is then NaN.
        with np.errstate(invalid="ignore"):
            ctr = self._clicks / self._impressions
        return DemoTruth(
            rows=rows,
            impressions=int(self._impressions.sum()),
            ctr=dict(zip(VARIANTS, ctr.tolist(), strict=True)),
            calibration={name: self._predicted[name] / expected[name] for name in expected},
            auc={name: _compute_auc(*ranked) for name, ranked in self._histograms.items()},
            negative_rate=negative_rate,
        )


def _compute_auc(negatives: Floats, positives: Floats) -> float:
    below = np.cumsum(negatives) - negatives / 2
    return float(np.sum(positives * below) / (positives.sum() * negatives.sum()))
