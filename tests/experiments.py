"""Experiments drawn at random: logs, the parts that sources post of them, and the ledger of these."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

import streammetrics as sm
from streammetrics.collect.metric_like import columns_of
from streammetrics.serve.evaluation.experiment import Experiment
from streammetrics.serve.part_keys import HOUR, PartKey, RowCounts

START = 500_016  # midnight
DAY = 24


class Entry(NamedTuple):
    """A part as a ledger has it."""

    key: PartKey
    received_at: float
    state: str = "current"
    row_counts: RowCounts = RowCounts(100, '{"y_true": 2}')


def experiment(**other):
    given = {
        "id": "e",
        "arms": {"old": 0.5, "new": 0.5},
        "control": "old",
        "primary": "ctr",
        "better": {"ctr": "high"},
        "counts": "revenue_per_user",
        "users": 4_000.0,
        "slices": ["country"],
        "model": ["auc"],
        "secondary": ["revenue_per_user"],
        "guardrails": {"log_loss": 0.1},
        "start": START,
        "min_days": 0.0,
        "sources": {"web": 1.0},
    }
    given["better"] = {"ctr": "high", "revenue_per_user": "high"}
    return Experiment.from_dict(given | other)


def metrics():
    return sm.MetricCollection(sm.CTR(), sm.AUC(bits=10), sm.LogLoss(), sm.PerUnit("revenue", unit="user"))


def empty(by=("arm", "country"), of=None):
    return sm.Sliced(sm.Sharded(metrics() if of is None else of, unit="user", shards=16, shard_bits=8), by=list(by))


def log(rng, users=2_000, rows=20, arms=("old", "new"), lift=1.0, days=8, shares=None):
    """Rows of users, who are exposed in their first one."""
    n = users * rows
    user = np.repeat(np.arange(users), rows)
    arm = rng.choice(np.array(arms), users, p=shares)[user]
    hour = START + (user * days * DAY) // users + rng.integers(0, 2, n)
    exposed = np.zeros(n, np.int64)
    exposed[::rows] = 1
    score = np.round(rng.random(n) * 0.2 + 0.05, 3)
    click = rng.random(n) < score * np.where(arm == "old", 1.0, lift)
    return {
        "user": user,
        "arm": arm,
        "country": np.array(["de", "fr", "it"])[user % 3],
        "hour": np.minimum(hour, START + days * DAY - 1),
        "exposed": exposed,
        "y_score": score,
        "y_true": click.astype(np.int64),
        "revenue": click * 2.0,
    }


def rows_where(table, mask):
    return {name: column[mask] for name, column in table.items()}


def counted(table, like=None):
    holder = empty() if like is None else like
    used = {name: column for name, column in table.items() if name in columns_of(holder)}
    return holder.update(**used) if len(table["user"]) else holder


def windows(table, width, like=None):
    """What was counted in every window of so many hours, by its first."""
    begins = table["hour"] - (table["hour"] - START) % width
    make = empty if like is None else like
    return {int(h): counted(rows_where(table, begins == h), make()) for h in np.unique(begins)}


def entries(table, source="web", delay=0.5):
    hours = np.unique(table["hour"]).tolist()
    return [Entry(PartKey("e", source, h), (h + 1 + delay) * HOUR) for h in hours]
