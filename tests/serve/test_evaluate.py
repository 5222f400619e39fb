"""Evaluations: the figures are those of scorecards, sample ratios and plain counting; whatever is missing has a reason."""

import math
import re

import numpy as np
import pytest
from experiments import DAY, START, Entry, counted, empty, entries, experiment, log, rows_where, windows

import streammetrics as sm
from streammetrics.serve.evaluation.evaluate import build_looks, compute_coverage, evaluate, thin_looks
from streammetrics.serve.evaluation.evaluation import Evaluation, ShownLook
from streammetrics.serve.evaluation.late_changes import DefinitionHistory, LateChange, build_definition_history
from streammetrics.serve.evaluation.merge_parts import merge_parts
from streammetrics.serve.evaluation.part_index import PartIndex
from streammetrics.serve.evaluation.treatment_comparison import correct_slice_words
from streammetrics.serve.evaluation.window_series import WindowSeries
from streammetrics.serve.evaluation.windows import ExperimentWindow
from streammetrics.serve.part_keys import HOUR, PartKey, RowCounts, format_hour
from streammetrics.serve.store.records import DefinitionVersion

END = START + 8 * DAY
NOW = (END + 1) * HOUR


def evaluated(table, one=None, total=None, *, now=NOW, folds=(), **more):
    hours, days = (
        {start: ExperimentWindow.from_metrics(one) for start, one in some.items()} for some in folds or ({}, {})
    )
    total = counted(table) if total is None else total
    given = {"version": 1, "now": now, "hours": hours, "days": days, "index": PartIndex().add(entries(table))} | more
    found = evaluate(one or experiment(), total, **given)
    assert Evaluation.from_json(found.to_json()) == found
    return found


@pytest.fixture(scope="module")
def table():
    return log(np.random.default_rng(1), lift=1.2)


@pytest.fixture(scope="module")
def three():
    return log(np.random.default_rng(2), users=3_000, arms=("old", "new", "newer"), lift=1.05)


def rowed(found, **where):
    return [r for r in found if all(getattr(r, k) == v for k, v in where.items())]


@pytest.mark.slow
def test_figures_are_those_of_a_scorecard(three):
    one = experiment(arms={"old": 1, "new": 1, "newer": 1}, users=6_000)
    found = evaluated(three, one)
    users = {arm: float(np.sum(three["exposed"][three["arm"] == arm])) for arm in one.arms}
    planned = 6_000 * 2 / 3
    arms = counted(three).rollup("arm")
    asked = {
        "control": "old",
        "primary": "ctr",
        "guardrails": {"log_loss": 0.1},
        "secondary": ["revenue_per_user", "auc"],
        "better": {"ctr": "high", "revenue_per_user": "high"},
    }
    always = sm.scorecard(arms, **asked, users=users, planned=planned, per_day=1.0, sequential=True)
    once = sm.scorecard(arms, **asked)
    assert len(found.table) == 8
    for row, looked in zip(always.table(), once.table(), strict=True):
        (mine,) = rowed(found.table, treatment=row["treatment"], metric=row["metric"])
        for name in ("control_value", "value", "change", "low", "high", "bound"):
            assert getattr(mine, name) == pytest.approx(row[name], rel=1e-9), name
        assert (mine.once_low, mine.once_high) == pytest.approx((looked["low"], looked["high"]), rel=1e-9)
        assert (mine.word, mine.rows) == (row["word"], row["rows"])
        assert mine.role == {"auc": "model"}.get(row["metric"], row["role"])
    for told in found.verdicts:
        verdict = always.verdicts[told.treatment]
        assert told.decision == verdict.decision
        assert told.sentence.split(";")[0] == verdict.sentence.split(";")[0]


@pytest.mark.slow
def test_arms_are_counted_plainly(table):
    found = evaluated(table)
    for arm in found.arms:
        mine = rows_where(table, table["arm"] == arm.arm)
        assert arm.rows == len(mine["user"])
        assert arm.users == len(np.unique(mine["user"]))
        assert arm.positives == mine["y_true"].sum()
        assert arm.value == mine["y_true"].mean()
        assert arm.share == arm.users / 2_000
    assert found.rows == len(table["user"])
    assert found.users == 2_000
    assert found.per_day == pytest.approx(2_000 / 8)
    assert found.hours == (START, END - 1)
    assert found.digest == counted(table).digest()


@pytest.mark.slow
def test_sample_ratio_is_that_of_users(table):
    found = evaluated(table)
    users = {arm: float(len(np.unique(table["user"][table["arm"] == arm]))) for arm in ("old", "new")}
    known = sm.sample_ratio_mismatch(users, {"old": 1, "new": 1})
    assert found.ratio.e_value == pytest.approx(known.e_value)
    assert (found.ratio.users, found.ratio.alarm) == (users, False)


@pytest.mark.slow
def test_a_mismatch_withholds(table):
    found = evaluated(table, experiment(arms={"old": 80, "new": 20}))
    assert found.ratio.alarm
    assert "split of users between the arms is not as planned" in found.withheld
    assert [t.decision for t in found.verdicts] == ["withheld"]


def test_a_sample_of_users_counts_them(table):
    metrics = sm.MetricCollection(sm.CTR(), {"users": sm.Task(sm.DistinctSample(), value="user")})
    total = counted(table, empty(of=metrics))
    name = next(n for n in total.names if "users" in n)
    one = experiment(counts=name, model=[], secondary=[], guardrails={}, better={"ctr": "high"})
    found = evaluated(table, one, total)
    assert found.users == 2_000
    assert found.ratio.users == {a.arm: a.users for a in found.arms}


@pytest.mark.slow
def test_ship_and_what_decides(table):
    found = evaluated(table, experiment(guardrails={}))
    assert [t.decision for t in found.verdicts] == ["ship"]
    assert found.verdicts[0].sentence.startswith("Ship new: ctr +")
    assert "always" in found.verdicts[0].sentence
    broken = evaluated(table, experiment(guardrails={"log_loss": 0.01}))
    assert [t.decision for t in broken.verdicts] == ["do not"]
    assert rowed(broken.table, metric="log_loss")[0].word == "breached"


@pytest.mark.slow
def test_model_measures_decide_nothing(table):
    one = experiment(guardrails={}, secondary=[], better={"ctr": "high"})
    noise = table | {
        "y_score": np.where(table["arm"] == "new", np.random.default_rng(1).random(40_000), table["y_score"])
    }
    found = evaluated(noise, one)
    assert rowed(found.table, role="model")[0].word == "worse"
    assert [t.decision for t in found.verdicts] == ["ship"]
    assert found.drift[0].word == "moved"


@pytest.mark.slow
def test_too_early_and_no_plan(table):
    found = evaluated(table, experiment(min_days=14))
    assert found.withheld == "only 8.0 days are counted so far, and the definition requires at least 14"
    assert found.verdicts[0].decision == "withheld"
    assert rowed(found.table, metric="ctr")[0].low is not None
    for one in (experiment(users=None), experiment(counts=""), experiment(counts="nobody")):
        found = evaluated(table, one)
        row = rowed(found.table, metric="ctr")[0]
        assert found.verdicts[0].decision == "withheld"
        assert (row.low, row.word) == (None, "")
        assert row.once_low < row.change < row.once_high
    assert "users: there is no metric 'nobody'" in found.notes[0]


@pytest.mark.slow
def test_an_end_without_a_verdict_says_what_would_have_shown():
    same = log(np.random.default_rng(3), users=1_000)
    one = experiment(guardrails={}, end=END, users=100_000)
    running = evaluated(same, one, now=(END - 1) * HOUR)
    assert (running.state, running.verdicts[0].decision) == ("running", "keep running")
    assert running.verdicts[0].sentence == "Keep running new: it is too early to say how ctr differs."
    assert running.verdicts[0].more_days is None
    ended = evaluated(same, one)
    assert (ended.state, ended.verdicts[0].decision) == ("ended", "inconclusive")
    assert "would most likely have been detected" in ended.verdicts[0].sentence
    reached = evaluated(same, experiment(guardrails={}, users=1_000))
    assert (reached.state, reached.verdicts[0].decision) == ("ended", "inconclusive")


@pytest.mark.slow
def test_power(table):
    found = evaluated(table)
    (power,) = found.power
    assert (power.treatment, power.relative) == ("new", 0.01)
    assert power.users > 4_000
    assert power.more_days == math.ceil((power.users - 2_000) / (2_000 / 8))
    assert 0.01 < power.at_end < 0.5
    more = evaluated(table, experiment(users=16_000)).power[0]
    assert more.at_end == pytest.approx(power.at_end / 2, rel=0.05)


@pytest.mark.slow
def test_changed_shares_withhold_unless_there_are_phases(table):
    said = ["planned share of new: changed from 50 % to 20 %"]
    assert "phase" in evaluated(table, history=DefinitionHistory(said)).withheld
    assert evaluated(table, history=DefinitionHistory(["end: changed from none to 2026-06-15T00"])).withheld == ""
    first = np.where(table["user"] % 2 == 0, 1, 2)
    phased = table | {"phase": first}
    total = counted(phased, empty(by=("arm", "phase", "country")))
    found = evaluated(table, experiment(phase="phase", guardrails={}), total, history=DefinitionHistory(said))
    last = rows_where(table, first == 2)
    alone = evaluated(last, experiment(guardrails={}))
    assert found.withheld == ""
    assert found.changes == said
    assert found.verdicts == alone.verdicts
    assert found.table == alone.table
    assert found.users == 1_000
    missing = evaluated(table, experiment(phase="phase"))
    assert "not sliced by 'phase'" in missing.withheld


@pytest.mark.slow
def test_changed_shares_are_judged_by_rows_of_their_phase(table):
    said = ["planned share of new: changed from 50 % to 20 %"]
    phased = table | {"phase": np.where(table["user"] % 2 == 0, 1, 2)}
    total, one = counted(phased, empty(by=("arm", "phase", "country"))), experiment(phase="phase", guardrails={})
    changed = {"history": DefinitionHistory(said, [(START + 2 * DAY) * HOUR])}
    found = evaluated(table, one, total, **changed)
    assert found.withheld == ""
    assert found.ratio is not None
    assert found.per_day == pytest.approx(
        evaluated(table, one, total, history=DefinitionHistory(said)).per_day * 8 / 6, rel=0.02
    )
    soon = evaluated(table, experiment(phase="phase", guardrails={}, min_days=7), total, **changed)
    assert "days are counted so far, and the definition requires at least 7" in soon.withheld
    again = {"history": DefinitionHistory(said, [(START + 2 * DAY) * HOUR, (END - 1) * HOUR])}
    early = evaluated(table, experiment(phase="phase", guardrails={}, arms={"old": 0.8, "new": 0.2}), total, **again)
    assert early.withheld.endswith(
        "the metrics that decide were changed, and the phase after the change has no rows yet"
    )
    assert early.ratio is None
    assert early.verdicts[0].decision == "withheld"


@pytest.mark.slow
def test_late_changes_withhold_until_they_are_accepted(table):
    """A primary metric that is chosen once the results are visible is chosen because of them."""
    one, total = experiment(guardrails={}), counted(table)

    def withheld(needs_new_users, reason, one=one, total=total):
        late = [LateChange(2, "primary: changed from auc to ctr (version 2, by ann, 2027)", needs_new_users, reason)]
        found = evaluated(table, one, total, history=DefinitionHistory([], [START * HOUR] * needs_new_users, late))
        assert found.late_changes == [late[0].text]
        assert (found.withheld == "") == (found.verdicts[0].decision == "ship")
        return found.withheld

    assert "An owner can accept the change: set accepted_changes in the definition to {2 = 'why'}" in withheld(
        False, ""
    )
    assert withheld(False, "it was logged twice") == ""
    assert "names no phase column" in withheld(True, "it was logged twice")
    phased = counted(table | {"phase": np.where(table["user"] < 200, 1, 2)}, empty(by=("arm", "phase", "country")))
    assert withheld(True, "it was logged twice", experiment(guardrails={}, phase="phase"), phased) == ""


@pytest.mark.slow
def test_intervals_stay_tuned_for_the_first_plan(table):
    one = experiment(guardrails={}, users=8_000)
    first = evaluated(table, experiment(guardrails={}, users=4_000)).table
    tuned = evaluated(table, one, history=DefinitionHistory(tuned_users=4_000.0))
    assert [(r.low, r.high) for r in tuned.table] == [(r.low, r.high) for r in first]
    assert [(r.low, r.high) for r in evaluated(table, one).table] != [(r.low, r.high) for r in first]


def test_the_history_of_a_definition():
    changes = [
        {},
        {"users": 5_000.0},  # before the first part
        {"title": "Another"},
        {"users": 9_000.0},
        {"guardrails": {"log_loss": 0.05}},
        {"guardrails": {"log_loss": 0.2}},
        {"primary": "revenue_per_user", "secondary": ["ctr"]},
        {"accepted_changes": {"4": "more traffic", "7": "it was logged twice"}},
    ]
    definitions, given = [], {}
    for one in changes:
        given |= one
        definitions.append(experiment(**given))
    versions = [DefinitionVersion(i + 1, "", "ann", (START + 10 * i) * HOUR) for i in range(len(changes))]
    found = build_definition_history(versions, definitions, (START + 15) * HOUR)
    assert [(c.version, c.needs_new_users, c.reason) for c in found.late] == [
        (4, False, "more traffic"), (5, False, ""), (6, True, ""), (7, True, "it was logged twice"),
    ]  # fmt: skip
    assert found.late[3].text == (
        "primary: changed from ctr to revenue_per_user (version 7, by ann, 18 January 2027 12:00 UTC), "
        "after the first data; accepted: it was logged twice"
    )
    assert found.phases_at == [versions[5].at, versions[6].at]
    assert found.tuned_users == 5_000.0
    assert len(found.changes) == 8


def test_another_good_direction_is_a_late_change():
    definitions = [
        experiment(better={"ctr": "high", "revenue_per_user": "high"}),
        experiment(better={"ctr": "high", "revenue_per_user": "low"}),  # which does not decide
        experiment(better={"ctr": "high", "revenue_per_user": "low", "log_loss": "low"}),  # as it is anyway
        experiment(better={"ctr": "low", "revenue_per_user": "low", "log_loss": "low"}),
    ]
    versions = [DefinitionVersion(i + 1, "", "ann", (START + 10 * i) * HOUR) for i in range(4)]
    (late,) = build_definition_history(versions, definitions, (START + 5) * HOUR).late
    assert (late.version, late.needs_new_users) == (4, True)
    assert late.sentence.startswith("better: changed from ctr high, ")


def test_too_early_to_say():
    """The first hours of an experiment: an interval that is wider than the control is not a reading."""
    table = log(np.random.default_rng(5), users=300, rows=4, days=1)
    found = evaluated(table, experiment(users=1e6, guardrails={"log_loss": 0.1}))
    (ctr,) = rowed(found.table, metric="ctr")
    assert ctr.high - ctr.low > 2.0
    assert ctr.word == "too early"
    assert found.verdicts[0].decision == "keep running"
    assert found.verdicts[0].sentence == "Keep running new: it is too early to say how ctr differs."
    assert found.verdicts[0].more_users is None


@pytest.mark.slow
def test_the_end_is_when_all_rows_are_final():
    table = log(np.random.default_rng(6), lift=1.0)
    hours, days = windows(rows_where(table, table["hour"] >= END - 3 * DAY), 1), windows(table, DAY)
    one = experiment(mature_after=30, guardrails={}, end=END - 4)
    found = [evaluated(table, one, now=(END + h) * HOUR, folds=(hours, days)) for h in (0, 27)]
    assert [look.state for look in found] == ["ended", "ended"]
    assert [look.verdicts[0].decision for look in found] == ["keep running", "inconclusive"]


@pytest.mark.slow
def test_windows_of_other_metrics_are_read_beside(table):
    """One metric may have come later, and a source may name them in another order."""
    one, days = experiment(guardrails={}, secondary=[], better={}), windows(table, DAY)
    other = {
        start: (held, held.ordered(held.names[::-1]), held.only({"ctr", "auc"}))[i % 3]
        for i, (start, held) in enumerate(days.items())
    }
    want, found = (evaluated(table, one, folds=({}, some)).days for some in (days, other))
    assert len(want) > 2 * len(days)
    assert sorted(found) == sorted(want)


@pytest.mark.slow
def test_a_metric_that_is_added_is_counted_since_then(table):
    """It covers the users of the days that have it, and says so."""
    one = experiment(guardrails={}, secondary=["log_loss"], model=[], better={"ctr": "high"})
    since = START + 3 * DAY
    days = {start: held if start >= since else held.only({"ctr", "revenue_per_user"})
            for start, held in windows(table, DAY).items()}  # fmt: skip
    total = merge_parts(days.values())
    found = evaluated(table, one, total, folds=({}, days))
    (row,) = rowed(found.table, metric="log_loss")
    later = rows_where(table, table["hour"] >= since)
    (alone,) = rowed(evaluated(later, one).table, metric="log_loss")
    assert (row.value, row.control_value, row.change) == (alone.value, alone.control_value, alone.change)
    assert row.reason == "counted since 2027-01-19 00:00 UTC, because earlier parts do not have it"
    assert rowed(found.table, metric="ctr")[0].reason == ""
    assert found.verdicts[0].decision == "ship"
    as_primary = evaluated(table, experiment(primary="log_loss", guardrails={}, secondary=[], model=[], better={}),
                           total, folds=({}, days))  # fmt: skip
    assert "cannot be the primary metric" in as_primary.verdicts[0].sentence
    days[END - DAY] = days[END - DAY].only({"ctr", "revenue_per_user"})  # a worker was rolled back
    gone = evaluated(table, one, merge_parts(days.values()), folds=({}, days))
    assert rowed(gone.table, metric="log_loss")[0].reason.startswith("not every part has this metric")


@pytest.mark.slow
def test_slices_hold_for_all_of_them_together():
    table = log(np.random.default_rng(4), users=6_000, lift=1.0)
    odd = table["country"] == "de"
    rng = np.random.default_rng(5)
    table["y_true"] = np.where(odd & (table["arm"] == "new"), rng.random(len(odd)) < 0.3, table["y_true"]).astype(int)
    one = experiment(slices=["country"], users=12_000)
    found = evaluated(table, one)
    assert {tuple(r.slice.items()) for r in found.slices} == {(("country", c),) for c in ("de", "fr", "it")}
    assert [r.slice["country"] for r in rowed(found.slices, metric="ctr", word="better")] == ["de"]
    total = counted(table)
    control, treatment = (total.select(lambda k, a=arm: k[0] == a).rollup("country") for arm in ("old", "new"))
    known = sm.compare(treatment, control, relative=True, sequential=True, users=6_000, planned=12_000, adjust="bh")
    for row in rowed(found.slices, role="primary"):
        other = known[row.slice["country"], "ctr"]
        assert (row.change, row.low, row.high) == pytest.approx(other.relative[2:3] + other.relative[:2])
        mine = (table["country"] == row.slice["country"]).sum()
        assert row.rows == mine
        assert row.share == pytest.approx(mine / len(odd))
    unknown = evaluated(table, experiment(slices=["planet"]))
    assert (unknown.slices, unknown.notes) == (
        [],
        ["slices by planet: the parts are not sliced by 'planet'; add the column to by="],
    )


@pytest.mark.slow
def test_warnings_are_those_of_a_scorecard():
    """Treated users are mostly in "de", where clicks are rare, so the treatment is better in each country alone."""
    table = log(np.random.default_rng(7), users=3_000)
    new = table["arm"] == "new"
    in_fr = table["user"] % 10 < np.where(new, 2, 8)
    table["country"] = np.where(in_fr, "fr", "de")
    clicks = np.random.default_rng(8).random(len(new)) < np.where(in_fr, 0.4, 0.1) + 0.05 * new
    table["y_true"] = clicks.astype(np.int64)
    found = evaluated(table)
    total = counted(table)
    card = sm.scorecard(
        {arm: total.select(lambda k, a=arm: k[0] == a).rollup("country") for arm in ("old", "new")},
        control="old",
        primary="ctr",
        guardrails={"log_loss": 0.1},
        secondary=["revenue_per_user", "auc"],
        better={"ctr": "high", "revenue_per_user": "high"},
        users=3_000,
        planned=4_000,
        sequential=True,
    )
    assert found.warnings == {"new": [note.sentence for note in card.notes["new"]]}
    assert found.warnings["new"][0].startswith(
        "Simpson's paradox in ctr by country: new is lower than old over all rows"
    )
    assert evaluated(table, experiment(users=None)).warnings == {"new": []}


@pytest.mark.slow
def test_words_of_slices_pass_e_bh(table):
    rng = np.random.default_rng(6)
    made = evaluated(table).slices[0]
    e = np.exp(rng.exponential(3.0, 60))
    words = rng.choice(["better", "worse", "breached", "held", "unclear", "too few"], 60).tolist()
    rows = [(made._replace(word=word, role="secondary"), float(1 / x)) for word, x in zip(words, e, strict=True)]
    falling = np.sort(e)[::-1]
    most = max(k for k in range(61) if k == 0 or falling[k - 1] >= 60 / (0.05 * k))
    shown = e >= falling[most - 1]
    assert 5 < most < 55
    neither = {"better": "unclear", "worse": "unclear", "breached": "undecided"}
    known = [w if ok else neither.get(w, w) for w, ok in zip(words, shown, strict=True)]
    assert [row.word for row in correct_slice_words(rows, 0.95)] == known
    model = [(row._replace(role="model"), 1e-9) for row, _ in rows]
    assert [row.word for row in correct_slice_words(rows + model, 0.95)] == known + words
    assert correct_slice_words([(made, math.nan)], 0.95)[0].word == neither.get(made.word, made.word)


@pytest.mark.slow
@pytest.mark.parametrize("by", [("arm",), ("country", "arm"), ("arm", "country", "device")])
def test_slices_of_any_shape(table, by):
    table = table | {"device": table["user"] % 2}
    found = evaluated(table, None, counted(table, empty(by=by)))
    assert found.table == evaluated(table).table
    assert bool(found.slices) == ("country" in by)
    if by != ("arm",):
        assert found.slices == evaluated(table).slices


@pytest.mark.slow
def test_slices_of_slices(table):
    inner = empty(by=("country",))
    nested = counted(table, sm.Sliced(inner, by="arm"))
    found = evaluated(table, None, nested)
    assert found.table == evaluated(table).table
    assert found.slices == evaluated(table).slices


@pytest.mark.slow
def test_windows_are_those_of_their_rows(table):
    last = rows_where(table, table["hour"] >= END - 10)
    found = evaluated(table, folds=(windows(last, 1), windows(table, DAY)))
    assert len(found.days) == 8 * 2 * 4
    assert {p.hour for p in found.series} == set(range(END - 10, END))
    day = START + 3 * DAY
    mine = rows_where(table, (table["hour"] >= day) & (table["hour"] < day + DAY))
    known = sm.compare(*(counted(mine).rollup("arm")[arm] for arm in ("new", "old")), relative=True)["ctr"]
    (control,) = rowed(found.days, hour=day, metric="ctr", arm="old")
    (point,) = rowed(found.days, hour=day, metric="ctr", arm="new")
    assert control.value == mine["y_true"][mine["arm"] == "old"].mean()
    assert control.change is None
    assert (point.low, point.change, point.high) == pytest.approx(
        (known.relative.low, known.relative.estimate, known.relative.high)
    )
    assert point.rows + control.rows == len(mine["user"])


@pytest.mark.slow
def test_windows_that_did_not_change_are_not_read_again(table, monkeypatch):
    folds = windows(table, DAY)
    read = []
    monkeypatch.setattr(
        "streammetrics.serve.evaluation.window_series.compute_points",
        lambda e, p, some: read.extend(some) or {h: [] for h in some},
    )
    series, total = WindowSeries(), counted(table)
    for _ in range(2):
        evaluated(table, total=total, folds=({}, folds), series=series)
    assert read == sorted(folds)
    again = {hour: sm.from_bytes(day.to_bytes()) for hour, day in folds.items()}
    again[START] = again[START].copy().merge(folds[START + DAY])
    evaluated(table, total=total, folds=({}, again), series=series)
    assert read[len(folds) :] == [START]
    evaluated(table, experiment(users=8_000), total, folds=({}, again), series=series)
    assert len(read) == 2 * len(folds) + 1


@pytest.mark.slow
def test_hours_that_are_not_final_decide_nothing(table):
    hours, days = windows(rows_where(table, table["hour"] >= END - 2 * DAY), 1), windows(table, DAY)
    one = experiment(mature_after=30, guardrails={})
    now = (END - 2) * HOUR + 60
    before = END - 32
    series = WindowSeries()
    found = evaluated(table, one, now=now, folds=(hours, days), series=series)
    old = rows_where(table, table["hour"] < before)
    alone = evaluated(old, experiment(guardrails={}), now=now)
    assert found.final_to == before - 1
    assert found.table == alone.table
    assert found.slices == alone.slices
    assert found.verdicts == alone.verdicts
    assert found.rows == len(table["user"])
    assert {p.hour for p in found.series if p.provisional} == {h for h in hours if h >= before}
    later = evaluated(table, one, now=now + 5 * HOUR, folds=(hours, days), series=series)
    grown = evaluated(rows_where(table, table["hour"] < before + 5), experiment(guardrails={}), now=now + 5 * HOUR)
    assert later.table == grown.table
    none = evaluated(table, experiment(mature_after=1e4), now=now, folds=(hours, days))
    assert none.verdicts[0].decision == "withheld"
    assert none.final_to is None


# -- too little data: a reason, never an exception ---------------------------------------------------------------------


def test_nothing_yet():
    for total in (None, empty()):
        found = evaluate(experiment(), total, version=1, now=NOW, hours={}, days={}, index=PartIndex())
        assert (found.state, found.withheld) == ("no data", "no rows have been counted yet")
        assert found.verdicts[0].decision == "withheld"
        assert found.sources[0].state == "silent"
        assert Evaluation.from_json(found.to_json()) == found


def test_a_part_without_rows():
    part = [Entry(PartKey("e", "web", START), START * HOUR)]
    found = evaluate(experiment(), empty(), version=1, now=NOW, hours={}, days={}, index=PartIndex().add(part))
    assert (found.state, found.withheld, found.parts) == ("no data", "no rows have been counted yet", 1)


@pytest.mark.slow
def test_an_arm_is_missing(table):
    for arm in ("old", "new"):
        left = rows_where(table, table["arm"] == arm)
        found = evaluated(left)
        assert found.verdicts[0].decision == "withheld"
        assert len(found.table) == 4
        assert all(row.reason for row in found.table)
        assert any("has no rows" in note for note in found.notes)
        assert found.ratio.alarm


@pytest.mark.slow
def test_one_of_three_is_missing(three):
    one = experiment(arms={"old": 1, "new": 1, "newer": 1, "newest": 0.001}, guardrails={})
    found = evaluated(three, one)
    assert [t.treatment for t in found.verdicts] == ["new", "newer", "newest"]
    assert found.verdicts[2].decision == "withheld"
    assert found.verdicts[0].decision == "keep running"
    full = evaluated(three, experiment(arms={"old": 1, "new": 1, "newer": 1}, guardrails={}))
    (wide,), (narrow,) = (rowed(x.table, treatment="new", metric="ctr") for x in (found, full))
    assert wide.high - wide.low > narrow.high - narrow.low


@pytest.mark.slow
def test_an_unknown_arm_is_told(three):
    found = evaluated(three)
    assert found.notes == [
        f"newer is not an arm of the definition; its {(three['arm'] == 'newer').sum():,} rows are left out"
    ]
    assert found.verdicts[0].treatment == "new"
    assert found.users == (three["exposed"] * (three["arm"] != "newer")).sum()


@pytest.mark.slow
def test_a_metric_without_rows_in_an_arm(table):
    tasks = {
        "": [sm.CTR(), sm.PerUnit("revenue", unit="user")],
        "late": sm.Task([sm.CTR()], y_true="y_true", where="seen"),
    }
    metrics = sm.MetricCollection({"all": tasks[""], "late": tasks["late"]})
    seen = table | {"seen": (table["arm"] == "old").astype(int)}
    total = counted(seen, empty(of=metrics))
    names = {"primary": "all/ctr", "counts": "all/revenue_per_user", "secondary": [], "model": []}
    better = {"all/ctr": "high", "late/ctr": "high"}
    one = experiment(**names, guardrails={"late/ctr": 0.1}, better=better)
    found = evaluated(table, one, total)
    assert found.verdicts[0].decision in ("withheld", "keep running")
    assert "late/ctr" in found.verdicts[0].sentence
    one = experiment(**(names | {"secondary": ["late/ctr"]}), guardrails={}, better=better)
    found = evaluated(table, one, total)
    assert found.verdicts[0].decision == "ship"
    assert rowed(found.table, metric="late/ctr")[0].reason


@pytest.mark.slow
def test_few_rows_and_one_class(table):
    few = rows_where(table, np.arange(40_000) < 100)
    found = evaluated(few)
    assert all(row.word in ("too few", "not shown") and row.reason for row in found.table)
    assert found.verdicts[0].decision == "keep running"
    none = evaluated(table | {"y_true": np.zeros(40_000, int), "revenue": np.zeros(40_000)})
    assert rowed(none.table, metric="auc")[0].value is None
    assert none.verdicts[0].decision in ("keep running", "withheld")


@pytest.mark.slow
def test_metrics_that_are_not_there_or_have_no_direction(table):
    found = evaluated(table, experiment(secondary=["ndcg"], better={"ctr": "high"}))
    assert rowed(found.table, metric="ndcg")[0].reason.startswith(
        "not every part has this metric; a metric that is added"
    )
    assert found.verdicts[0].decision != "withheld"
    found = evaluated(table, experiment(better={}))
    assert "better" in found.verdicts[0].sentence
    assert found.verdicts[0].decision == "withheld"
    assert rowed(found.table, metric="auc")[0].better == "high"


def test_parts_that_cannot_be_compared(table):
    unsliced = sm.Sharded(sm.CTR(), unit="user").update(y_true=table["y_true"], user=table["user"])
    found = evaluated(table, experiment(), unsliced)
    assert "not sliced by 'arm'" in found.withheld
    alone = sm.Sliced(sm.CTR(), by="arm").update(y_true=table["y_true"], arm=table["arm"])
    one = experiment(secondary=[], model=[], guardrails={}, better={"ctr": "high"}, counts="", slices=[])
    found = evaluated(table, one, alone)
    assert found.verdicts[0].decision == "withheld"
    assert "shards" in found.table[0].reason
    assert found.table[0].value is not None


# -- quality -----------------------------------------------------------------------------------------------------------


def test_sources():
    one = experiment(sources={"web": 1.0, "app": 2.0, "tv": 1.0})
    now = START + 10
    ledger = [Entry(PartKey("e", "web", START + i), (START + i + 1.5) * HOUR) for i in range(9)]
    ledger += [Entry(PartKey("e", "app", START + i), (START + i + 4) * HOUR) for i in (0, 1, 3, 4, 5)]
    ledger += [Entry(PartKey("e", "app", START + 1), (START + 7) * HOUR, "conflict")]
    ledger += [Entry(PartKey("e", "other", START + 8), (START + 9.1) * HOUR, "refused")]
    found = evaluate(one, None, version=1, now=now * HOUR, hours={}, days={}, index=PartIndex().add(ledger))
    app, other, tv, web = found.sources
    assert (web.state, web.counted_to, web.behind, web.late, web.missing) == ("fresh", START + 8, 0.0, 0, [])
    assert (app.state, app.parts, app.late, app.conflicts) == ("late", 5, 5, 1)
    assert app.missing == [format_hour(START + i) for i in (2, 6, 7)]
    assert app.behind == HOUR
    assert (tv.state, tv.counted_to, len(tv.missing), tv.behind) == ("silent", None, 9, 8 * HOUR)
    assert (other.parts, other.counted_to, other.rows, other.dropped) == (0, None, 0, {})
    assert (app.rows, app.dropped) == (500, {"y_true": 10})
    ended = experiment(end=START + 9)
    after = evaluate(
        ended, None, version=1, now=(now + 100) * HOUR, hours={}, days={}, index=PartIndex().add(ledger[:9])
    )
    assert after.sources[0].state == "fresh"


def test_only_listed_sources_are_expected():
    ledger = [Entry(PartKey("e", "web", START + i), (START + i + 1.5) * HOUR) for i in range(90)]
    ledger += [Entry(PartKey("e", "laptop", START + 3), (START + 4) * HOUR)]
    now = (START + 90.5) * HOUR

    def states(**definition):
        found = evaluate(experiment(**definition), None, version=1, now=now, hours={}, days={},
                         index=PartIndex().add(ledger))  # fmt: skip
        return {s.source: (s.state, s.behind, s.missing) for s in found.sources}

    quiet = 0.0, []
    assert states() == {"web": ("fresh", *quiet), "laptop": ("unlisted", *quiet)}
    assert states(sources={}) == {"web": ("unlisted", *quiet), "laptop": ("unlisted", *quiet)}
    listed = {"web": 1.0, "laptop": 1.0}
    assert states(sources=listed)["laptop"][0] == "silent"
    assert states(sources=listed, closed={"laptop": START})["laptop"] == ("closed", *quiet)
    assert states(sources=listed, closed={"laptop": START + 6})["laptop"][0] == "silent"  # two parts are due


def every(hours, source="web", rows=100):
    return [Entry(PartKey("e", source, h), (h + 1.5) * HOUR, row_counts=RowCounts(rows)) for h in hours]


ALL_HOURS = range(START, END)


@pytest.mark.parametrize(
    ("ledger", "definition", "reason"),
    [
        (every(ALL_HOURS), {}, ""),
        (every([START, END - 1]), {}, "only 0.0 days are counted so far.*web lacks 190 hours.*an owner can close"),
        (every([h for h in ALL_HOURS if h % 24 > 1]), {}, ""),
        (every([h for h in ALL_HOURS if h % 24 > 2]), {}, "only 0.0 days.*web lacks 24 hours"),
        (every(ALL_HOURS, rows=0), {}, ""),
        (every(ALL_HOURS), {"sources": {"web": 1.0, "tv": 1.0}}, "only 0.0 days.*; tv lacks 192 hours, and"),
        (every(ALL_HOURS), {"sources": {"web": 1.0, "tv": 1.0}, "closed": {"tv": "2027-01-16T00"}}, ""),
        (
            every(ALL_HOURS),
            {"sources": {"web": 1.0, "tv": 1.0}, "closed": {"tv": END - DAY}},
            "only 1.0 days.*tv lacks",
        ),
        (every(ALL_HOURS), {"sources": {}}, ""),
        (every(ALL_HOURS, "a")[::2] + every(ALL_HOURS, "b")[1::2], {"sources": {}}, ""),
        (every([START, END - 1]), {"sources": {}}, "only 0.0 days are counted so far.*190 hours have no part"),
    ],
)
def test_days_are_those_with_parts(ledger, definition, reason):
    """Two parts a week apart are not a week of data, nor is a week without one of the sources."""
    one = experiment(min_days=7.0, **definition)
    found = compute_coverage(one, PartIndex().add(ledger), START, END)
    said = f"only {found.days:.1f} days are counted so far{found.gaps}" if found.days < 7.0 else ""
    assert re.fullmatch(f"{reason}.*" if reason else "", said), said


@pytest.mark.slow
def test_days_without_parts_withhold(table):
    found = evaluated(table, experiment(min_days=7.0), index=PartIndex().add(every([START, END - 1])))
    assert [t.decision for t in found.verdicts] == ["withheld"]
    assert "only 0.0 days are counted so far, and the definition requires at least 7; web lacks" in found.withheld
    assert evaluated(table, experiment(min_days=7.0)).withheld == ""


def test_dropped_rows_are_told(table):
    wrong = table | {"y_true": np.where(np.arange(40_000) % 100 == 0, np.nan, table["y_true"])}
    lenient = sm.Sliced(sm.Sharded(sm.CTR(), unit="user", on_invalid="drop"), by="arm", on_invalid="drop")
    total = lenient.update(y_true=wrong["y_true"], user=wrong["user"], arm=wrong["arm"])
    one = experiment(secondary=[], model=[], guardrails={}, better={"ctr": "high"}, counts="", slices=[])
    assert sum(evaluated(table, one, total).dropped.values()) == 400


@pytest.mark.slow
def test_looks_are_logged_and_thinned(table):
    found = evaluated(table)
    (look,) = build_looks(found)
    row = rowed(found.table, role="primary")[0]
    users = {arm: len(set(table["user"][table["arm"] == arm])) for arm in ("new", "old")}
    shares = {arm: count / sum(users.values()) for arm, count in users.items()}
    assert look == ShownLook(NOW, "new", found.verdicts[0].decision, row.change, row.low, row.high, 2_000.0, shares)
    many = [look._replace(at=float(i)) for i in range(1_000)]
    assert [x.at for x in thin_looks(many)[-2:]] == [994.0, 999.0]
    assert len(thin_looks(many)) <= 240
    assert evaluated(table, looks=[look]).looks == [look]
