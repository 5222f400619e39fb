"""Notes about a comparison: what covariates do to the intervals, and slices that contradict all rows together."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import streammetrics as sm
from streammetrics.errors import InvalidInputError
from streammetrics.inference.caveats import describe_caveats
from streammetrics.inference.compare import compare_all
from streammetrics.inference.interpretation import ComparisonSettings

USERS = 2_000


def build_arms(shares: dict[str, float], effect: float, seed: int = 1) -> Any:
    """Return click rates by arm and country. Each arm has its own share of users in "de", where users click more."""
    rng = np.random.default_rng(seed)
    arms = sm.Sliced(sm.Sliced(sm.Sharded(sm.CTR(), unit="user"), by="country"), by="arm")
    for i, (arm, share) in enumerate(shares.items()):
        user = rng.integers(0, USERS, 20_000)
        in_de = user < share * USERS
        rate = np.where(in_de, 0.4, 0.1) + (effect if arm == "new" else 0.0)
        country = np.where(in_de, "de", "us")
        click = rng.random(20_000) < rate
        arms.update(y_true=click, user=user + i * USERS, country=country, arm=np.full(20_000, arm))
    return arms


def test_slices_that_contradict_all_rows() -> None:
    rows = build_arms({"new": 0.3, "old": 0.7}, 0.05)
    card = sm.scorecard(rows, control="old", primary="ctr", better={"ctr": "high"})
    (note,) = card.notes["new"]
    assert note.is_warning
    assert note.sentence.startswith("Simpson's paradox in ctr by country: new is lower than old over all rows, -0.0")
    assert "but higher in 2 of 2 slices and on average over the slices, +0.0" in note.sentence
    assert note.sentence in repr(card)
    mirrored = sm.scorecard(rows, control="new", primary="ctr", better={"ctr": "high"}).notes["old"]
    assert "old is higher than new" in mirrored[0].sentence


@pytest.mark.parametrize(
    ("shares", "effect"),
    [
        # The shares are equal, so that the slices agree with all rows.
        ({"new": 0.5, "old": 0.5}, 0.05),
        # The shares differ, but the slices show no difference in the other direction.
        ({"new": 0.3, "old": 0.7}, 0.0),
        # The slices agree with all rows, although the shares differ.
        ({"new": 0.7, "old": 0.3}, 0.05),
    ],
)
def test_no_warning_without_a_contradiction(shares: dict[str, float], effect: float) -> None:
    card = sm.scorecard(build_arms(shares, effect), control="old", primary="ctr", better={"ctr": "high"})
    assert card.notes == {"new": []}


def test_covariates_of_a_scorecard() -> None:
    rng = np.random.default_rng(4)
    taste = rng.normal(size=USERS)
    user = rng.integers(0, USERS, 30_000)

    def count(effect: float) -> Any:
        p = 1.0 / (1.0 + np.exp(2.0 - 1.5 * taste[user] - effect * (user % 2)))
        click = rng.random(len(user)) < p
        arm = np.where(user % 2, "new", "old")
        country = np.array(["br", "de", "us"])[user % 3]
        inner = sm.Sliced(sm.Sharded(sm.CTR(), unit="user"), by="country")
        return sm.Sliced(inner, by="arm").update(y_true=click, user=user, arm=arm, country=country)

    before, after = count(0.0), count(0.2)
    roles: dict[str, Any] = {"control": "old", "primary": "ctr", "better": {"ctr": "high"}}
    plain, card = sm.scorecard(after, **roles), sm.scorecard(after, **roles, covariates=before)
    found = sm.compare(
        after["new"].total, after["old"].total, relative=True, covariates=(before["new"].total, before["old"].total)
    )
    row, old = card.table().records[0], plain.table().records[0]
    assert (row["low"], row["change"], row["high"]) == (
        found.relative.low,
        found.relative.estimate,
        found.relative.high,
    )
    width = (row["high"] - row["low"]) / (old["high"] - old["low"])
    assert width < 0.8
    narrower = 1.0 - np.sqrt(1.0 - found.reduction)
    assert [n.sentence for n in card.notes["new"]] == [
        f"With covariates, the interval of ctr is {100 * narrower:.0f} % narrower."
    ]
    # Slices are adjusted by covariates with the same slices only.
    assert card.slices().records[0]["low"] != plain.slices().records[0]["low"]
    totals = {arm: before[arm].total for arm in before}
    assert sm.scorecard(after, **roles, covariates=[totals]).table().records[0]["low"] == row["low"]
    assert repr(sm.scorecard(after, **roles, covariates=[totals]).slices()) == repr(plain.slices())
    with pytest.raises(InvalidInputError, match="covariates= has no arm 'new'"):
        sm.scorecard(after, **roles, covariates={"old": before["old"]})


def test_covariates_that_differ_between_the_arms() -> None:
    after, before = build_arms({"new": 0.5, "old": 0.5}, 0.0), build_arms({"new": 0.5, "old": 0.5}, 0.05, seed=2)
    with pytest.raises(InvalidInputError, match=r"covariate ctr differs between the sides \(p .*not randomised"):
        sm.compare(after["new"].total, after["old"].total, covariates=(before["new"].total, before["old"].total))
    with pytest.raises(InvalidInputError, match="covariate ctr differs"):
        sm.scorecard(after, control="old", primary="ctr", better={"ctr": "high"}, covariates=before)


def test_slices_of_independent_rows() -> None:
    sides = [sm.Sliced(sm.CTR(), by="country") for _ in range(2)]
    for side, share, more in zip(sides, (0.3, 0.7), (5, 0), strict=True):
        in_de = np.arange(20_000) < share * 20_000
        click = np.arange(20_000) % 100 < np.where(in_de, 40, 10) + more
        side.update(y_true=click, country=np.where(in_de, "de", "us"))
    settings = ComparisonSettings()
    whole = compare_all(sides[0].total, sides[1].total, settings, independent=True).readings
    parts = compare_all(*sides, settings, independent=True).readings
    differences = [[r.differences for r in some] for some in (whole, parts)]
    (note,) = describe_caveats(differences[0], differences[1], ("country",), ("new", "old"), settings)
    assert "new is lower than old over all rows" in note.sentence
    assert describe_caveats(differences[0], [], (), ("new", "old"), settings) == []
