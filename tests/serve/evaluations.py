"""Experiments as pages show them, made by hand: each state that a reader can meet."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from streammetrics.inference.sample_ratio import sample_ratio_mismatch
from streammetrics.serve.evaluation.evaluation import (
    ArmRow,
    Evaluation,
    MetricRow,
    PowerEstimate,
    RatioCheck,
    ScoreDrift,
    ShownLook,
    SourceStatus,
    TreatmentVerdict,
    WindowPoint,
)
from streammetrics.serve.part_keys import HOUR, PartKey, format_hour, parse_hour
from streammetrics.serve.store.journal import Annotation, Decision

START = parse_hour("2026-06-01T00")
EVIL = '<script>alert(1)</script>"><img src=x onerror=alert(2)>'
HIGH, LOW, ONE = "high", "low", "one"
WEIRD = (EVIL, "=cmd|' /C calc'!A0", "متجر التجزئة", "商店", "naïve café", "x" * 120, "a b\u202ec", "")
AGREED = {"id": "feed", "title": "Feed ranker v7", "arms": {"control": 0.5, "treatment": 0.5}, "control": "control",
          "primary": "ctr", "unit": "user", "start": START, "end": START + 14 * 24, "users": 300_000.0,
          "guardrails": {"latency": 0.05, "conversions": 0.05, "impressions_per_user": 0.02}, "secondary": ["hides"],
          "model": ["auc", "normalized_entropy"], "slices": ["device", "country"], "min_days": 7.0,
          "sources": {"impressions": 1.0, "conversions": 3.0}, "webhooks": ["https://hooks.example/secret"]}  # fmt: skip


def row(metric: str, role: str, change: float, half: float, **more: Any) -> MetricRow:
    """A row whose interval is symmetric."""
    given: dict[str, Any] = {
        "treatment": "treatment", "better": HIGH, "margin": None, "control_value": 0.01945, "bound": 0.0, "word": "",
        "reason": "", "rows": 6_000_000, "slice": {}, "share": None,
    } | more  # fmt: skip
    value = given.pop("value", given["control_value"] * (1 + change))
    ends = {
        "low": change - half,
        "high": change + half,
        "once_low": change - half / 1.6,
        "once_high": change + half / 1.6,
    }
    if math.isnan(half):
        ends = dict.fromkeys(ends)
    return MetricRow(metric=metric, role=role, value=value, change=change, **ends, **given)


def table(treatment: str = "treatment", lift: float = 0.057) -> list[MetricRow]:
    """A scorecard."""
    t = {"treatment": treatment}
    return [
        row("ctr", "primary", lift, 0.019, word="better" if lift > 0.019 else "unclear", **t),
        row("latency", "guardrail", 0.016, 0.008, better=LOW, margin=0.05, control_value=182.0, word="held", **t),
        row(
            "conversions",
            "guardrail",
            -0.027,
            0.0555,
            tag="ctr",
            margin=0.05,
            control_value=0.0985,
            word="undecided",
            **t,
        ),
        row("impressions_per_user", "guardrail", -0.004, 0.0095, margin=0.02, control_value=20.04, word="held", **t),
        row("hides", "secondary", 0.033, 0.041, better=LOW, control_value=1.84, word="unclear", **t),
        row("auc", "model", 0.004, math.nan, control_value=0.7357, bound=2.1e-5, **t),
        row("normalized_entropy", "model", -0.011, math.nan, better=LOW, control_value=0.8312, **t),
    ]


def slices(treatment: str = "treatment", metric: str = "ctr", n: int = 7) -> list[MetricRow]:
    """Slices by two columns; the last ones are too few."""
    names = ("US", "IN", "BR", "DE", "GB", "JP", "FR", "MX", "ID", "no country", "NA", "IS")
    countries = [*names, *(f"country {i}" for i in range(len(names), n))][:n]
    rng = np.random.default_rng(1)
    made = []
    for column, keys in (("device", ("android", "ios", "desktop", "tablet")), ("country", countries)):
        parts = np.sort(rng.dirichlet(np.ones(len(keys)) * 1.2))[::-1]
        for key, part in zip(keys, parts, strict=True):
            half = 0.02 / math.sqrt(max(float(part), 1e-3))
            change = 0.057 + 0.3 * half * float(rng.normal())
            few = part < 0.004
            word = "too few" if few else "better" if change - half > 0 else "unclear"
            made.append(
                row(metric, "primary", change, math.nan if few else half, slice={column: key}, share=float(part),
                    word=word, rows=int(6e6 * part), treatment=treatment,
                    reason="12 positives, 50 are needed" if few else "")
            )  # fmt: skip
    return made


def looks(treatment: str = "treatment", n: int = 168, lift: float = 0.057, share: float = 0.5016) -> list[ShownLook]:
    """What was shown hour by hour: an interval that narrows."""
    rng = np.random.default_rng(3)
    walk = np.cumsum(rng.normal(0, 1, n))
    made = []
    for i in range(n):
        half = 0.25 / math.sqrt(i + 1)
        change = lift + 0.02 * float(walk[i]) / (i + 1)
        users = 300_000.0 * (1 - math.exp(-(i + 1) / 40))
        mine = share + 0.02 * float(rng.normal()) / (i + 1)
        shares = {"control": 1 - mine, treatment: mine}
        at = (START + i + 1) * float(HOUR)
        made.append(ShownLook(at, treatment, "keep running", change, change - half, change + half, users, shares))
    return made


def points(step: int, n: int, arms: tuple[str, ...] = ("control", "treatment")) -> list[WindowPoint]:
    """The primary metric and a guardrail in every window."""
    rng = np.random.default_rng(4)
    made = []
    for i in range(n):
        for metric, level in (("ctr", 0.0195), ("latency", 182.0)):
            for k, arm in enumerate(arms):
                value = level * (1 + 0.057 * (k > 0) + 0.02 * math.sin(i / 3) + 0.01 * float(rng.normal()))
                half = 0.033 * math.sqrt(24 / step)
                change = 0.057 + half * float(rng.normal()) / 3
                ends = (change, change - half, change + half) if k else (None, None, None)
                made.append(WindowPoint(START + i * step, metric, arm, value, 857_143, *ends, provisional=i == n - 1))
    return made


def running() -> Evaluation:
    """An experiment on day 7 of 14, of which one guardrail is open."""
    users = {"control": 149_520.0, "treatment": 150_477.0}
    ratio = sample_ratio_mismatch(users)
    said = ("Keep running treatment: ctr is better, but conversions is undecided, -2.7 % (95 % always -8.2 % to +2.9 %); "
            "about 3 days and 33,000 users to go.")  # fmt: skip
    return Evaluation(
        "feed", "Feed ranker v7", 1, (START + 168) * 3600.0 + 720, "running", "b80c11f463d2" * 5 + "9a07", 336, 6_000_000,
        (START, START + 167), 7.0, "",
        [TreatmentVerdict("treatment", "keep running", said, 33_000.0, 3.0)], table(), slices(),
        [ArmRow("control", 0.5, users["control"], 0.4984, 2_996_601, 58_276, 0.01945),
         ArmRow("treatment", 0.5, users["treatment"], 0.5016, 3_003_399, 61_759, 0.02056)],
        RatioCheck(ratio.e_value, False, ratio.sentence, users, ratio.planned), points(1, 168), points(24, 7),
        [SourceStatus("impressions", START + 167, 720.0, 168, 2, [], 0, 6_000_000, {}, "fresh"),
         SourceStatus("conversions", START + 165, 7920.0, 166, 0, [format_hour(START + 40), format_hour(START + 41)], 1,
                      11_600, {"bad price": 24}, "late")],
        [ScoreDrift("ctr", "treatment", 0.031, "alike")], 299_997.0, 400_000.0, 11_000.0, START + 143,
        notes=["2 hours of conversions came late."], power=[PowerEstimate("treatment", 0.01, 1_250_000.0, 86.4, 0.0173)],
    )  # fmt: skip


def ship() -> Evaluation:
    """All guardrails are held."""
    said = "Ship treatment: ctr +5.7 % (95 % always +3.8 % to +7.6 %), and all 3 guardrails are held."
    rows = [r._replace(word="held") if r.role == "guardrail" else r for r in table()]
    rows[2] = rows[2]._replace(low=-0.031, high=0.042, change=0.006, value=0.0991)
    return replace(
        running(), verdicts=[TreatmentVerdict("treatment", "ship", said)], table=rows, sources=running().sources[:1]
    )


def breached() -> Evaluation:
    """A guardrail is breached."""
    said = (
        "Do not ship treatment: latency is breached, +9.1 % (95 % always +7.2 % to +11.0 %); "
        "it may rise by at most 5 %."
    )
    rows = table()
    rows[1] = rows[1]._replace(change=0.091, low=0.072, high=0.11, word="breached", value=198.562)
    return replace(running(), verdicts=[TreatmentVerdict("treatment", "do not", said)], table=rows)


def mismatch() -> Evaluation:
    """Some users of an arm are missing."""
    users = {"control": 149_520.0, "treatment": 146_201.0}
    found = sample_ratio_mismatch(users)
    one = running()
    arms = [a._replace(users=users[a.arm], share=found.shares[a.arm]) for a in one.arms]
    said = "No verdict: the arms are not comparable."
    return replace(
        one, ratio=RatioCheck(found.e_value, True, found.sentence, users, found.planned), arms=arms,
        withheld="the arms differ",
        verdicts=[TreatmentVerdict("treatment", "withheld", said)],
        table=[r._replace(word="withheld") for r in one.table],
    )  # fmt: skip


def stale() -> Evaluation:
    """A source sends nothing any more."""
    one = running()
    silent = one.sources[0]._replace(state="silent", behind=20_400.0, counted_to=START + 161)
    return replace(one, hours=(START, START + 161), sources=[silent, one.sources[1]])


def early() -> Evaluation:
    """The second day of seven that were agreed."""
    rows = [r._replace(low=None, high=None, once_low=None, once_high=None, word="", reason="") for r in table()]
    return replace(
        running(), day=1.2, withheld="no verdict before 7 days: 1.2 so far, 1,940 of 10,000 users", verdicts=[],
        table=rows, slices=[], users=1940.0, planned=10_000.0, per_day=1600.0, days=points(24, 2), series=points(1, 28),
        hours=(START, START + 28), parts=28, rows=38_900,
    )  # fmt: skip


def first_hour() -> Evaluation:
    """The first look, whose intervals say nothing yet."""
    said = "Keep running treatment: it is too early to say how ctr differs."
    rows = [r._replace(low=-1.0, high=2.8e26, word="too early", reason="it is too early to say") for r in table()]
    parts = [r._replace(low=-0.9, high=1e9, word="too early") for r in slices()]
    days = [p._replace(low=p.low and -1.0, high=p.high and 4e12) for p in points(24, 1)]
    return replace(running(), verdicts=[TreatmentVerdict("treatment", "keep running", said)], table=rows, slices=parts,
                   days=days, series=[], hours=(START, START), day=1 / 24, power=[])  # fmt: skip


def empty() -> Evaluation:
    """Defined, and nothing came."""
    return Evaluation("feed", "Feed ranker v7", 1, START * 3600.0, "no data")


def three() -> Evaluation:
    """Three treatments."""
    names = ("ranker b", "ranker c", "ranker d")
    one, lifts = running(), (0.057, 0.004, -0.031)
    users = {"control": 75_010.0, "ranker b": 74_930.0, "ranker c": 75_120.0, "ranker d": 74_900.0}
    found = sample_ratio_mismatch(users)
    first = "Ship ranker b: ctr +5.7 % (98.33 % always +3.8 % to +7.6 %), and all 3 guardrails are held."
    told = [
        TreatmentVerdict("ranker b", "ship", first),
        TreatmentVerdict(
            "ranker c",
            "keep running",
            "Keep running ranker c: ctr is unclear, +0.4 % (98.33 % always -1.5 % to +2.3 %).",
        ),
        TreatmentVerdict(
            "ranker d", "do not", "Do not ship ranker d: ctr is worse, -3.1 % (98.33 % always -5.0 % to -1.2 %)."
        ),
    ]
    rows = [r for name, lift in zip(names, lifts, strict=True) for r in table(name, lift)]
    rows = [r._replace(word="worse") if r.role == "primary" and (r.high or 0) < 0 else r for r in rows]
    arms = [ArmRow(a, 0.25, n, found.shares[a], 1_500_000, 29_000, 0.0195) for a, n in users.items()]
    return replace(
        one, verdicts=told, table=rows, slices=[s for name in names for s in slices(name)], arms=arms,
        ratio=RatioCheck(found.e_value, False, found.sentence, users, found.planned), days=points(24, 7, tuple(users)),
        series=points(1, 168, tuple(users)), drift=[],
    )  # fmt: skip


def forty() -> Evaluation:
    """Forty slices, of every metric."""
    metrics = ("ctr", "latency", "conversions", "impressions_per_user", "hides")
    return replace(running(), slices=[s for m in metrics for s in slices(metric=m, n=36)])


def weird() -> Evaluation:
    """Names that no one should have given."""
    one = running()
    arm = f"b {EVIL}"
    users = {"=control": 5000.0, arm: 5020.0}
    found = sample_ratio_mismatch(users)
    rows = [r._replace(treatment=arm, metric=f"{r.metric}{EVIL if r.role == 'secondary' else ''}") for r in one.table]
    parts = [s._replace(treatment=arm, slice={f"shop{EVIL}": name}) for s, name in zip(one.slices, WEIRD, strict=False)]
    said = f"Ship {arm}: ctr +5.7 % (95 % always +3.8 % to +7.6 %), and all 3 guardrails are held."
    return replace(
        one, title=f"Ranker {EVIL} متجر", table=rows, slices=parts, verdicts=[TreatmentVerdict(arm, "ship", said)],
        arms=[ArmRow(a, 0.5, n, found.shares[a], 1000, 20, 0.02) for a, n in users.items()],
        ratio=RatioCheck(found.e_value, False, found.sentence, users, found.planned), days=points(24, 7, tuple(users)),
        series=points(1, 48, tuple(users)), drift=[ScoreDrift(EVIL, arm, None, EVIL)],
        sources=[s._replace(dropped={EVIL: 3}) for s in one.sources],
    )  # fmt: skip


ALL: dict[str, Callable[[], Evaluation]] = {
    f.__name__: f for f in (running, ship, breached, mismatch, stale, early, first_hour, empty, three, forty, weird)
}


# -- fakes --------------------------------------------------------------------------------------------------------------


class Definition(NamedTuple):
    """As the store has it."""

    version: int
    text: str
    by: str
    at: float


class Entry(NamedTuple):
    """As the ledger has it."""

    number: int
    key: PartKey
    digest: str
    received_at: float
    state: str


def agreed_of(one: Evaluation) -> dict[str, Any]:
    """The definition of an evaluation."""
    return AGREED | {"title": one.title, "arms": {a.arm: a.planned for a in one.arms} or AGREED["arms"]}


@dataclass
class FakeStore:
    """What pages ask a store."""

    evaluations: dict[str, Evaluation]
    decided: list[tuple[str, int, str, str, str]] = field(default_factory=list)
    versions: int = 2

    def definitions(self) -> dict[str, Definition]:
        return {name: self.history(name)[-1] for name in self.evaluations}

    def history(self, name: str) -> list[Definition]:
        agreed = agreed_of(self.evaluations[name])
        return [Definition(i + 1, json.dumps(agreed | {"users": 300_000.0 + i * 1e5}), EVIL if name == "weird" else "ann",
                           (START - 48 + i) * 3600.0) for i in range(self.versions)]  # fmt: skip

    def looks(self, name: str) -> list[tuple[float, str]]:
        one = self.evaluations[name]
        if one.state == "no data" or not one.verdicts:
            return []
        share = 0.4944 if one.ratio and one.ratio.alarm else 1.0032 / len(one.arms)
        return [
            (look.at, json.dumps([look._asdict()])) for t in one.verdicts for look in looks(t.treatment, share=share)
        ]

    def conflicts(self, name: str) -> list[Entry]:
        taken = {n for e, n, *_ in self.decided if e == name}
        if name in ("empty", "ship"):
            return []
        return [e for e in [Entry(7, PartKey(name, "conversions", START + 30, 0), "90be44aa" * 8, 1.7802e9, "conflict")]
                if e.number not in taken]  # fmt: skip

    def late_parts(self, name: str) -> list[Entry]:
        key = PartKey(name, "conversions", START + 3, 0)
        return [Entry(8, key, "17be44aa" * 8, 1.7802e9, "late")] if name == "stale" else []

    def decide(self, *decision: Any) -> None:
        self.decided.append(decision)

    def decisions(self, name: str) -> list[Decision]:
        return [Decision(1, 1.7803e9, "eve", "treatment", EVIL, 2, "Ship treatment.")] if name == "weird" else []

    def last_decisions(self) -> dict[str, Decision]:
        return {name: found[-1] for name in self.evaluations if (found := self.decisions(name))}

    def annotations(self, name: str) -> list[Annotation]:
        return [Annotation(1, 1.7803e9, "eve", START + 30, EVIL)] if name in ("weird", "running") else []
