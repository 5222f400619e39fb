"""Simulate the demo log: users, items, the scores of two models, and the outcomes of impressions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from streammetrics.numerics.slice_keys import mix_bits

__all__ = ["SCHEMA", "VARIANTS", "Floats", "Impressions", "SimulatedWorld"]

Floats = npt.NDArray[np.float64]
Codes = npt.NDArray[np.int64]
Hashes = npt.NDArray[np.uint64]

_PILOT_ROWS = 1 << 17
_IMPRESSIONS_PER_USER = 20
_HOUR_MS = 3_600_000
_ITEMS = 5_000

# The countries include a null and "NA" (Namibia), to test that they are not confused.
_COUNTRIES = ["US", "IN", "BR", "DE", "GB", "JP", "FR", "MX", "ID", "NA", None, "IS"]
_COUNTRY_SHARES = [0.31, 0.2, 0.12, 0.09, 0.08, 0.06, 0.05, 0.04, 0.03, 0.009, 0.01, 0.001]
_COUNTRY_EFFECTS = np.array([0.2, -0.3, 0.0, 0.1, 0.15, -0.1, 0.05, 0.1, -0.2, -0.1, -0.6, 0.3])
_DEVICES = ["android", "ios", "desktop", "tablet"]
_DEVICE_SHARES = [0.52, 0.27, 0.17, 0.04]
_DEVICE_EFFECTS = np.array([0.0, 0.15, -0.35, 0.1])
VARIANTS = ["A", "B"]

# Effect of variant B on the logit of the click probability.
_LIFT = 0.06
# Standard deviation of the noise in the logits that a model sees. Model b has less noise, so it ranks better.
_NOISE = {"pctr_a": 0.8, "pctr_b": 0.35}
_OVERPREDICTS = {"pctr_a": 1.15, "pctr_b": 1.0}
_CVR = 0.08

SCHEMA = pa.schema(
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
class ImpressionContext:
    """The properties of simulated impressions, before models score them and users click.

    `logit` contains the true logit of the click probability, which is not written to the log.
    """

    user: Hashes
    variant: Codes
    country: Codes
    device: Codes
    item: Codes
    hour: Floats
    logit: Floats


@dataclass(frozen=True)
class Impressions:
    """Simulated impressions with model scores, true probabilities and outcomes.

    `ctr` contains the true probability of a click, and `cvr` that of a conversion after a click.
    """

    context: ImpressionContext
    score_logits: Mapping[str, Floats]
    scores: Mapping[str, npt.NDArray[np.float32]]
    ctr: Floats
    cvr: Floats
    click: npt.NDArray[np.bool_]
    convert: npt.NDArray[np.bool_]
    weight: Floats

    def table(self, midnight: np.datetime64) -> pa.Table:
        """Return the impressions as rows of a log, with times on the day that starts at `midnight`."""
        context = self.context
        columns = {
            "ts": midnight.astype("datetime64[ms]") + np.floor(context.hour * _HOUR_MS).astype("timedelta64[ms]"),
            "user_id": context.user.astype(np.int64),
            "item_id": context.item.astype(np.int32),
            "variant": _decode_categories(context.variant, VARIANTS),
            "country": _decode_categories(context.country, _COUNTRIES),
            "device": _decode_categories(context.device, _DEVICES),
            **self.scores,
            "click": self.click.astype(np.int8),
            "convert": self.convert.astype(np.int8),
            "weight": self.weight.astype(np.float32),
        }
        return pa.table([pa.array(columns[field.name], field.type) for field in SCHEMA], schema=SCHEMA)


@dataclass(frozen=True)
class SimulatedWorld:
    """The parameters of the simulation, such as the effects of users and items on clicks, drawn once from a seed."""

    seed: int
    users: int
    # The effects of users on clicks, in a table of fixed size indexed by a hash of the user ID.
    user_effects: Floats
    item_effects: Floats
    # The effects of items on conversions.
    item_values: Floats
    base_logit: float
    # The standard deviation of the true logits, estimated from a pilot sample.
    logit_spread: float
    shifts: Mapping[str, float]

    @classmethod
    def make(cls, rows: int, seed: int, ctr: float) -> SimulatedWorld:
        """Draw the effects, then use a pilot sample to choose the base logit and the shifts of the models.

        The base logit is chosen so that the click-through rate is `ctr`. The shift of a model is added to its logits
        and determines its calibration.
        """
        rng = np.random.default_rng([seed, 0])
        users = max(rows // _IMPRESSIONS_PER_USER, 100)
        effects = rng.normal(0, 0.6, 1 << 16), rng.normal(0, 0.7, _ITEMS), rng.normal(0, 0.5, _ITEMS)
        draft = cls(seed, users, *effects, base_logit=0.0, logit_spread=0.0, shifts={})
        context = draft.context(rng, _PILOT_ROWS, (0.0, 24.0))
        base = _find_shift(context.logit, ctr)
        # The logits of the pilot sample have a mean of about 0, so their root mean square is the standard deviation.
        spread = float(np.sqrt(np.mean(context.logit**2)))
        shifts = {
            name: _find_shift(
                _simulate_score_logit(rng, context.logit + base, spread, noise, base), ctr * _OVERPREDICTS[name]
            )
            for name, noise in _NOISE.items()
        }
        return cls(seed, users, *effects, base_logit=base, logit_spread=spread, shifts=shifts)

    def context(self, rng: np.random.Generator, rows: int, hours: tuple[float, float]) -> ImpressionContext:
        """Draw the users, items, devices and times of `rows` impressions between two hours of a day."""
        # A few users have many impressions: because the random number is squared, the frequency of user r is
        # proportional to `1/sqrt(r)`.
        rank = (self.users * rng.random(rows) ** 2).astype(np.uint64)
        user = mix_bits(rank + np.uint64(self.seed & 0xFFFF_FFFF) * np.uint64(1 << 32)) >> np.uint64(1)
        traits = mix_bits(user)
        variant = (mix_bits(traits) & np.uint64(1)).astype(np.int64)
        country = _sample_categories(_COUNTRY_SHARES, (traits >> np.uint64(11)).astype(np.float64) / 2.0**53)
        item = (_ITEMS * rng.random(rows) ** 3).astype(np.int64)
        device = _sample_categories(_DEVICE_SHARES, rng.random(rows))
        hour = np.sort(rng.uniform(*hours, rows))
        logit = (
            self.base_logit
            + self.user_effects[traits & np.uint64(0xFFFF)]
            + self.item_effects[item]
            + _COUNTRY_EFFECTS[country]
            + _DEVICE_EFFECTS[device]
            # The click probability is highest in the evening.
            + 0.2 * np.cos((hour - 20) * (np.pi / 12))
            + _LIFT * variant
        )
        return ImpressionContext(user, variant, country, device, item, hour, logit)

    def impressions(self, rng: np.random.Generator, rows: int, hours: tuple[float, float]) -> Impressions:
        """Draw `rows` impressions between two hours of a day, together with their model scores and outcomes."""
        context = self.context(rng, rows, hours)
        opinions = {
            name: _simulate_score_logit(rng, context.logit, self.logit_spread, noise, self.base_logit)
            + self.shifts[name]
            for name, noise in _NOISE.items()
        }
        cvr_logit = np.log(_CVR / (1 - _CVR)) + self.item_values[context.item] + 0.5 * _COUNTRY_EFFECTS[context.country]
        scores = {name: _sigmoid(opinion).astype(np.float32) for name, opinion in opinions.items()}
        scores["pcvr"] = _sigmoid(cvr_logit + rng.normal(0, 0.2, rows)).astype(np.float32)
        ctr, cvr = _sigmoid(context.logit), _sigmoid(cvr_logit)
        click = rng.random(rows) < ctr
        convert = click & (rng.random(rows) < cvr)
        weight = np.maximum(np.round(100 * rng.lognormal(-0.5, 1.0, rows)), 1) / 100
        return Impressions(context, opinions, scores, ctr, cvr, click, convert, weight)


def _simulate_score_logit(rng: np.random.Generator, logit: Floats, spread: float, noise: float, base: float) -> Floats:
    """Return the logits that a model predicts.

    The model sees the true logits with added noise. It predicts the posterior mean of the true logit, which lies
    between the noisy logit and the base logit (`base`). `spread` and `noise` are the standard deviations of the true
    logits and of the noise.
    """
    noisy_logit = logit - base + rng.normal(0, noise, len(logit))
    return base + noisy_logit * (spread**2 / (spread**2 + noise**2))


def _find_shift(logit: Floats, mean: float) -> float:
    """Find, by bisection, the number to add to all logits so that the mean probability is `mean`."""
    low, high = -30.0, 30.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if _sigmoid(logit + middle).mean() < mean else (low, middle)
    return (low + high) / 2


def _sigmoid(logit: Floats) -> Floats:
    return 1 / (1 + np.exp(-logit))


def _sample_categories(shares: list[float], uniform: Floats) -> Codes:
    codes: Codes = np.searchsorted(np.cumsum(shares)[:-1], uniform, side="right")
    return codes


def _decode_categories(codes: Codes, words: list[str] | list[str | None]) -> pa.Array:
    return pa.DictionaryArray.from_arrays(codes.astype(np.int32), pa.array(words, pa.string())).cast(pa.string())
