"""The world behind the demo log: users, items, two models, and what would come of an impression."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from streammetrics.numerics.keys import scattered

__all__ = ["SCHEMA", "VARIANTS", "Floats", "Impressions", "World"]

Floats = npt.NDArray[np.float64]
Codes = npt.NDArray[np.int64]
Hashes = npt.NDArray[np.uint64]

_PILOT_ROWS = 1 << 17
_IMPRESSIONS_PER_USER = 20
_HOUR_MS = 3_600_000
_ITEMS = 5_000

_COUNTRIES = ["US", "IN", "BR", "DE", "GB", "JP", "FR", "MX", "ID", "NA", None, "IS"]  # a null, and Namibia
_COUNTRY_SHARES = [0.31, 0.2, 0.12, 0.09, 0.08, 0.06, 0.05, 0.04, 0.03, 0.009, 0.01, 0.001]
_COUNTRY_EFFECTS = np.array([0.2, -0.3, 0.0, 0.1, 0.15, -0.1, 0.05, 0.1, -0.2, -0.1, -0.6, 0.3])
_DEVICES = ["android", "ios", "desktop", "tablet"]
_DEVICE_SHARES = [0.52, 0.27, 0.17, 0.04]
_DEVICE_EFFECTS = np.array([0.0, 0.15, -0.35, 0.1])
VARIANTS = ["A", "B"]

_LIFT = 0.06  # of the logit, by variant B
_NOISE = {"pctr_a": 0.8, "pctr_b": 0.35}  # what a model does not know of the logit: b ranks better
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
class Context:
    """Impressions before anybody clicks; logit is the truth about whether they will."""

    user: Hashes
    variant: Codes
    country: Codes
    device: Codes
    item: Codes
    hour: Floats
    logit: Floats


@dataclass(frozen=True)
class Impressions:
    """Impressions, what the models say of them, the truth, and what came of them."""

    context: Context
    opinions: Mapping[str, Floats]  # logits of the scores
    scores: Mapping[str, npt.NDArray[np.float32]]
    ctr: Floats
    cvr: Floats
    click: npt.NDArray[np.bool_]
    convert: npt.NDArray[np.bool_]
    weight: Floats

    def table(self, midnight: np.datetime64) -> pa.Table:
        """Show what a log would show of them."""
        seen = self.context
        columns = {
            "ts": midnight.astype("datetime64[ms]") + np.floor(seen.hour * _HOUR_MS).astype("timedelta64[ms]"),
            "user_id": seen.user.astype(np.int64),
            "item_id": seen.item.astype(np.int32),
            "variant": _words(seen.variant, VARIANTS),
            "country": _words(seen.country, _COUNTRIES),
            "device": _words(seen.device, _DEVICES),
            **self.scores,
            "click": self.click.astype(np.int8),
            "convert": self.convert.astype(np.int8),
            "weight": self.weight.astype(np.float32),
        }
        return pa.table([pa.array(columns[field.name], field.type) for field in SCHEMA], schema=SCHEMA)


@dataclass(frozen=True)
class World:
    """Who there is and how they behave; drawn once from the seed."""

    seed: int
    users: int
    user_effects: Floats  # looked up by hash, so that users take no memory
    item_effects: Floats
    item_values: Floats  # for conversions
    base: float
    spread: float  # of the true logit
    shifts: Mapping[str, float]

    @classmethod
    def make(cls, rows: int, seed: int, ctr: float) -> World:
        """Draw the effects, then set the levels on a pilot sample so that CTR and calibration come out as asked."""
        rng = np.random.default_rng([seed, 0])
        users = max(rows // _IMPRESSIONS_PER_USER, 100)
        effects = rng.normal(0, 0.6, 1 << 16), rng.normal(0, 0.7, _ITEMS), rng.normal(0, 0.5, _ITEMS)
        draft = cls(seed, users, *effects, base=0.0, spread=0.0, shifts={})
        context = draft.context(rng, _PILOT_ROWS, (0.0, 24.0))
        base = _level(context.logit, ctr)
        spread = float(np.sqrt(np.mean(context.logit**2)))  # around the base rate, which is 0 in the draft
        shifts = {
            name: _level(_opinion(rng, context.logit + base, spread, noise, base), ctr * _OVERPREDICTS[name])
            for name, noise in _NOISE.items()
        }
        return cls(seed, users, *effects, base=base, spread=spread, shifts=shifts)

    def context(self, rng: np.random.Generator, rows: int, hours: tuple[float, float]) -> Context:
        """Draw who saw what, when and where."""
        # The square makes user r appear in proportion to 1 / sqrt(r).
        rank = (self.users * rng.random(rows) ** 2).astype(np.uint64)
        user = scattered(rank + np.uint64(self.seed & 0xFFFF_FFFF) * np.uint64(1 << 32)) >> np.uint64(1)
        traits = scattered(user)
        variant = (scattered(traits) & np.uint64(1)).astype(np.int64)
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
        return Context(user, variant, country, device, item, hour, logit)

    def impressions(self, rng: np.random.Generator, rows: int, hours: tuple[float, float]) -> Impressions:
        """Draw impressions and what came of them."""
        seen = self.context(rng, rows, hours)
        opinions = {
            name: _opinion(rng, seen.logit, self.spread, noise, self.base) + self.shifts[name]
            for name, noise in _NOISE.items()
        }
        cvr_logit = np.log(_CVR / (1 - _CVR)) + self.item_values[seen.item] + 0.5 * _COUNTRY_EFFECTS[seen.country]
        scores = {name: _sigmoid(opinion).astype(np.float32) for name, opinion in opinions.items()}
        scores["pcvr"] = _sigmoid(cvr_logit + rng.normal(0, 0.2, rows)).astype(np.float32)
        ctr, cvr = _sigmoid(seen.logit), _sigmoid(cvr_logit)
        click = rng.random(rows) < ctr
        convert = click & (rng.random(rows) < cvr)
        weight = np.maximum(np.round(100 * rng.lognormal(-0.5, 1.0, rows)), 1) / 100
        return Impressions(seen, opinions, scores, ctr, cvr, click, convert, weight)


def _opinion(rng: np.random.Generator, logit: Floats, spread: float, noise: float, base: float) -> Floats:
    """Guess the logit as a model does that sees it through noise: shrunk towards the base rate."""
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


def _pick(shares: list[float], uniform: Floats) -> Codes:
    codes: Codes = np.searchsorted(np.cumsum(shares)[:-1], uniform, side="right")
    return codes


def _words(codes: Codes, words: list[str] | list[str | None]) -> pa.Array:
    return pa.DictionaryArray.from_arrays(codes.astype(np.int32), pa.array(words, pa.string())).cast(pa.string())
