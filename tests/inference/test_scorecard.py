"""Scorecards: the verdict is that of its comparisons, every figure that of `compare`."""

import math

import numpy as np
import pytest
from sides import Side, ratio, some

import streammetrics as sm
from streammetrics.collect.accumulator import definition_of
from streammetrics.errors import InvalidInputError
from streammetrics.inference.calibration import CalibrationContrasts
from streammetrics.inference.differences import compute_differences
from streammetrics.inference.pairs import pair_samples, select_cells
from streammetrics.inference.verdict import MetricEffect, Progress, interpret_effect

AUC, LOSS, CALIBRATION = sm.AUC(), sm.LogLoss(), sm.Calibration()


def arms(seed=1, rates=(0.10, 0.12, 0.10), loss=(0.3, 0.3, 0.3), cells=1, keys=None):
    rng = np.random.default_rng(seed)
    return {
        name: Side(
            some(rng, "auc", AUC, rate, cells, keys=keys),
            some(rng, "log_loss", LOSS, other, cells, keys=keys),
            some(rng, "calibration", CALIBRATION, 0.9, cells, keys=keys),
        )
        for name, rate, other in zip(("old", "new", "newer"), rates, loss, strict=False)
    }


def test_one_verdict_for_each_treatment():
    sides = arms(loss=(0.3, 0.3, 0.4))
    roles = {"control": "old", "primary": "auc", "guardrails": {"log_loss": 0.1, "calibration": 0.05}}
    found = sm.scorecard(sides, **roles, final=True)
    assert list(found.verdicts) == ["new", "newer"]
    assert found.verdicts["new"].decision == "ship"
    assert found.verdicts["newer"].decision == "do not"
    assert "log_loss is breached" in found.verdicts["newer"].sentence
    assert found.exit_code == 3
    assert repr(found).startswith("Ship new: auc +")
    assert "<strong>Ship new" in found._repr_html_()
    once = sm.scorecard(sides, **roles)
    assert [v.decision for v in once.verdicts.values()] == ["one look", "one look"]
    assert list(once.table()) == list(found.table())
    assert once.exit_code == 3
    *told, hint = once.sentences
    assert told == [v.sentence for v in once.verdicts.values()]
    assert told[0].startswith("auc of new is better, +")
    assert told[1].startswith("auc of newer is unclear, ")
    assert ", and the guardrail log_loss is breached, +" in told[1]
    assert hint.startswith("For a decision, state how you look: planned (")
    assert repr(once).splitlines()[2] == hint
    assert hint in once._repr_html_()
    kept = sm.scorecard({k: sides[k] for k in ("old", "new")}, control="old", primary="auc")
    assert kept.exit_code == 0


@pytest.mark.parametrize("relative", [False, True])
def test_figures_are_those_of_compare(relative):
    sides = arms()
    found = sm.scorecard(
        sides, control="old", primary="auc", guardrails={"log_loss": 0.1}, secondary=["calibration"], relative=relative
    )
    rows = list(found.table())
    assert [(r["treatment"], r["metric"], r["role"]) for r in rows] == [
        (t, m, role)
        for t in ("new", "newer")
        for m, role in (("auc", "primary"), ("log_loss", "guardrail"), ("calibration", "secondary"))
    ]
    for row in rows:
        one = sm.compare(sides[row["treatment"]], sides["old"], confidence=0.975, relative=relative)[row["metric"]]
        known = one.relative if relative else one.difference
        assert (row["change"], row["low"], row["high"]) == (known.estimate, known.low, known.high)
        assert (row["value"], row["control_value"], row["p_value"]) == (one.a, one.b, one.p_value)


@pytest.mark.parametrize("sequential", [False, True])
def test_words_of_cells_are_those_of_the_verdict(sequential):
    rng = np.random.default_rng(2)
    keys, names = [(i,) for i in range(40)], {"auc": AUC, "log_loss": LOSS, "calibration": CALIBRATION}
    sides = {}
    for arm in ("old", "new"):
        n, rates = rng.poisson(400, (16, 40)), rng.uniform(0.08, 0.14, 40)
        tops = [rng.binomial(n, rates * scale) for scale in (1, 2, 7)]
        sides[arm] = Side(
            *(ratio(*both, top, n, keys=keys) for both, top in zip(names.items(), tops, strict=True)), by=("key",)
        )
    lone = {arm: Side(*(select_cells(s, np.array([0])) for s in side.given)) for arm, side in sides.items()}
    asked = {"primary": "auc", "guardrails": {"log_loss": 0.1, "calibration": 0.1}}
    users = 5_000 if sequential else 8_000
    made = sm.scorecard(lone, control="old", **asked, sequential=sequential, users=users, planned=8_000)
    words = {(r["metric"], (r["key"],)): r["word"] for r in made._slice_table(sides, None)}
    for pair in pair_samples(sides["new"].given, sides["old"].given)[0]:
        changes = compute_differences(pair)
        many = changes.contrasts or [changes.relative]
        for key, one in zip(keys, zip(*(m.split_cells() for m in many), strict=True), strict=True):
            change, better = (
                (CalibrationContrasts(*one), "one") if changes.contrasts else (one[0], pair.metric.about.best)
            )
            margin = asked["guardrails"].get(pair.name)
            compared = MetricEffect(pair.name, change, better, margin)
            progress = Progress(users, 8_000, None, sequential)
            assert words[pair.name, key] == interpret_effect(compared, progress, guardrails=2 if margin else None).word
    assert set(words.values()) >= {"better", "worse", "unclear", "held", "breached", "undecided"}
    lost = [r for r in made._slice_table(sides, "holm") if r["p_value"] <= 0.05 < r["adjusted"]]
    assert {words[r["metric"], (r["key"],)] for r in lost} >= {"better", "worse"}
    assert not {r["word"] for r in lost} & {"better", "worse", "breached"}


def log(rows=60_000, seed=3):
    rng = np.random.default_rng(seed)
    user = rng.integers(0, 3000, rows)
    arm = np.where(user % 2, "new", "old")
    return {
        "user": user,
        "variant": arm,
        "country": rng.choice(["DE", "US", "FR"], rows, p=[0.6, 0.398, 0.002]),
        "y_true": rng.random(rows) < np.where(user % 2, 0.13, 0.10),
        "value": np.exp(rng.normal(3, 0.5, rows)),
    }


BETTER = {"ctr": "high", "quantile@0.95": "low"}


@pytest.mark.slow
def test_of_slices():
    rows = log()
    metrics = [sm.CTR(), sm.Quantile(q=0.95)]
    one = sm.Sliced(sm.Sharded(metrics, unit="user"), by="variant").update(
        **{k: v for k, v in rows.items() if k != "country"}
    )
    nested = sm.Sliced(sm.Sliced(sm.Sharded(metrics, unit="user"), by="country"), by="variant").update(**rows)
    asked = {"control": "old", "primary": "ctr", "guardrails": {"quantile@0.95": 0.05}, "better": BETTER}
    found = sm.scorecard(nested, **asked)
    assert repr(found) == repr(sm.scorecard(one, **asked))
    assert found.verdicts["new"].decision == "one look"
    table = found.slices()
    assert table.by == ("country",)
    assert [(r["country"], r["metric"]) for r in table] == [(c, m) for c in ("DE", "FR", "US") for m in BETTER]
    assert {r["word"] for r in table if r["country"] == "FR"} == {"too few", "not shown"}
    assert next(iter(table))["word"] == "better"
    adjusted = list(found.slices(adjust="holm"))
    assert adjusted[0]["adjusted"] > adjusted[0]["p_value"]
    for row in adjusted:
        assert row["word"] not in ("better", "worse", "breached") or row["adjusted"] <= 0.05
    wide = sm.scorecard(nested, **(asked | {"guardrails": {"quantile@0.95": 0.5}})).slices(adjust="holm")
    assert [r["word"] for r in wide if r["role"] == "guardrail"] == ["held", "not shown", "held"]
    with_gap = {"old": nested["old"], "new": nested["new"].select(["DE"])}
    assert "only the second side" in [r["reason"] for r in sm.scorecard(with_gap, **asked).slices()][-1]


def test_users_and_time():
    sides = {k: v for k, v in arms(rates=(0.10, 0.103)).items() if k != "newer"}
    asked: dict = {"control": "old", "primary": "auc"}
    early = sm.scorecard(sides, **asked, users=1_000, planned=4_000, per_day=500)
    assert early.verdicts["new"].sentence.startswith("Keep running new: 1,000 of 4,000 users")
    assert early.verdicts["new"].more_days == 6
    ended = sm.scorecard(sides, **asked, users={"old": 2_000, "new": 2_000}, planned=4_000)
    assert ended.verdicts["new"].decision == "inconclusive"
    assert (
        sm.scorecard(sides, **asked, final=True).verdicts["new"].sentence.startswith("Inconclusive for new at the end")
    )
    always = sm.scorecard(sides, **asked, users=1_000, planned=4_000, sequential=True)
    assert "95 % always" in always.verdicts["new"].sentence
    assert always.verdicts["new"].sentence.startswith("Keep running new: ")
    over = sm.scorecard(sides, **asked, users=1_000, planned=4_000, sequential=True, final=True)
    assert over.verdicts["new"].sentence.startswith("Inconclusive for new at the end: ")
    assert list(over.table()) == list(always.table())
    # Without a plan, the interval is that of the constant, whatever the data are.
    untuned, tuned = (
        list(sm.scorecard(sides, **asked, users=1_000, planned=planned, sequential=True).table())
        for planned in (None, 10_000)
    )
    assert untuned == tuned
    assert untuned[0]["high"] - untuned[0]["low"] > 1.2 * (
        always.table().to_dict()["high"][0] - always.table().to_dict()["low"][0]
    )
    bad = {"old": 2_000, "new": 1_000}
    withheld = sm.scorecard(sides, **asked, users=bad, sample_ratio={"old": 1, "new": 1})
    assert withheld.verdicts["new"].decision == "withheld"
    known = sm.scorecard(sides, **asked, sample_ratio=withheld.ratio)
    assert known.verdicts["new"].sentence == withheld.verdicts["new"].sentence


def test_wrong_input_raises():
    sides = arms()
    ask = {"control": "old", "primary": "auc"}
    for change, message in (
        ({"control": "none"}, "found control='none' and the arms old, new"),
        ({"primary": "none"}, "no metric 'none'; the metrics are auc"),
        ({"guardrails": {"log_loss": -1.0}}, "margin"),
        ({"guardrails": {"log_loss": 2}}, "log_loss: a margin of 2 is 200% of the control; pass a fraction, such as"),
        ({"guardrails": ["log_loss"]}, "metrics with their margins"),
        ({"guardrails": {"auc": 0.1}}, "auc is primary and guardrail"),
        ({"secondary": ["log_loss", "log_loss"]}, "log_loss is secondary and secondary"),
        ({"better": {"auc": "up"}}, '"high" or "low" for auc, not \'up\''),
        ({"better": {"auk": "high"}}, "'auk', which is not in the scorecard; its metrics are auc"),
        ({"sequential": True}, "need users=, the number of users so far"),
        ({"planned": 1_000}, "need users=, the number of users so far"),
        ({"planned": 1_000, "users": 500, "final": True}, "planned= and final=True contradict each other"),
        ({"users": {"old": 1}}, "no arm 'new'"),
        ({"sample_ratio": {"old": 1, "new": 1}}, "by arm"),
        ({"confidence": 95}, "confidence"),
    ):
        with pytest.raises(InvalidInputError, match=message):
            sm.scorecard(sides, **(ask | change))
    without = sides | {"new": Side(*sides["new"].given[1:])}
    with pytest.raises(InvalidInputError, match="'auc' in both arms"):
        sm.scorecard(without, **ask)
    with pytest.raises(InvalidInputError, match="found control='old' and the arms old"):
        sm.scorecard({"old": sides["old"]}, **ask)


@pytest.mark.slow
def test_power_of_what_was_counted():
    rows = log()
    rate = sm.Sharded([sm.CTR(), sm.Quantile(q=0.5)], unit="user").update(
        y_true=rows["y_true"], value=rows["value"], user=rows["user"]
    )
    plan = sm.power(rate, "ctr", users=3_000, relative=0.05)
    assert plan.sentence == (
        f"An experiment with {plan.users:,.0f} users in both arms together detects a difference of +5 % with a power "
        "of 80 %"
    )
    back = sm.power(rate, "ctr", users=3_000, planned=plan.users)
    assert back.relative == pytest.approx(0.05, rel=1e-3)
    assert sm.power(rate, "ctr", users=3_000, relative=0.05, sequential=True).users > 1.5 * plan.users
    assert sm.power(rate, "quantile@0.5", users=3_000).users > 0
    alone = sm.CTR().update(rows["y_true"])
    p = rows["y_true"].mean()
    exact = 4 * (1 - p) / p * ((1.959964 + 0.841621) / math.log(1.05)) ** 2
    assert sm.power(alone, relative=0.05).users == pytest.approx(exact, rel=1e-3)  # rows as units
    for wrong, message in (
        (lambda: sm.power(rate, users=3_000), "one of ctr, quantile@0.5"),
        (lambda: sm.power(rate, "ctr"), "values of user"),
        (
            lambda: sm.power(alone, relative=99.0),
            r"relative=99\.0 is too large: a difference of \+9,?900 % would take ctr",
        ),
        (
            lambda: sm.power(alone, planned=3),
            r"3 users are too few: .* would take ctr from 0\.\d+ to .* maximum is 1; pass planned= with",
        ),
        (lambda: sm.power(sm.Sliced(sm.CTR(), by="k").update(y_true=[0, 1], k=[1, 2])), "2 slices"),
    ):
        with pytest.raises(InvalidInputError, match=message):
            wrong()


def test_what_is_not_decided_breaks_nothing():
    """A guardrail is not breached before the end of one look, nor where arms are not comparable."""
    sides = arms(loss=(0.3, 0.9, 0.3))
    ask = {"control": "old", "primary": "auc", "guardrails": {"log_loss": 0.1}}
    two = {k: sides[k] for k in ("old", "new")}
    assert sm.scorecard(two, **ask).exit_code == 3
    early = sm.scorecard(two, **ask, users=1_000, planned=10_000)
    assert early.exit_code == 0
    assert {r["word"] for r in early.table()} == {"too early"}
    assert sm.scorecard(two, **ask, users=10_000, planned=10_000).exit_code == 3
    users = {"old": 10_000, "new": 13_000}
    uneven = sm.scorecard(two, **ask, users=users, sample_ratio={"old": 0.5, "new": 0.5})
    assert (uneven.verdicts["new"].decision, uneven.exit_code) == ("withheld", 0)


def test_slices_of_calibrations_are_adjusted_by_what_is_said_of_them():
    """That calibrations differ is beyond doubt in all slices, which is better in none: what is said is adjusted."""
    rng = np.random.default_rng(2)
    keys = [(i,) for i in range(80)]
    both = {}
    for name, rate in (("old", 1.02), ("new", 1 / 1.02)):
        top, bottom = (rng.poisson(20_000 * r, (16, len(keys))) for r in (rate, 1.0))
        both[name] = Side(ratio("calibration", CALIBRATION, top, bottom, keys=keys))
    samples = {k: definition_of(s).samples(()) for k, s in both.items()}
    whole = {k: Side(some(rng, "calibration", CALIBRATION)) for k in both}
    card = sm.scorecard(whole, control="old", primary="calibration")
    changes = card.compute_changes(samples)
    alone, together = (list(card.build_table(("k",), changes, adjust)) for adjust in (None, "holm"))
    assert all(r["p_value"] < 1e-3 for r in alone)
    assert any(r["word"] != "unclear" for r in alone)
    assert all(r["word"] == "unclear" for r in together)
