"""States and metrics of another package: the good ones keep every law, each broken one is caught by the law it breaks."""

from __future__ import annotations

import re
from pathlib import Path

import click_odds
import numpy as np
import plugin
import pytest
from click_odds import ClickOdds

import streammetrics as sm
from streammetrics.extend import Column, Kind, Need
from streammetrics.laws import LAWS

sm.extend.METRICS.pop("example.click_odds")  # other tests go through the registry


@pytest.mark.slow
@pytest.mark.parametrize("metric", plugin.GOOD, ids=repr)
def test_good_metrics_keep_every_law(metric):
    with plugin.imported():
        sm.extend.check_metric(metric, examples=4)


@pytest.mark.slow
@pytest.mark.parametrize("state", plugin.STATES, ids=repr)
def test_good_states_keep_every_law(state):
    with plugin.imported():
        sm.extend.check_state(state, seed=1, examples=3)
    assert not [tag for tag in sm.extend.METRICS if "plugin" in tag]


@pytest.mark.parametrize(("metric", "law"), plugin.BROKEN.items(), ids=[m.__name__ for m in plugin.BROKEN])
def test_broken_metrics_are_caught(metric, law):
    assert law in {law.__name__ for law in LAWS}
    with plugin.imported(metric, getattr(metric, "state_class", metric)), pytest.raises(sm.extend.LawError) as caught:
        sm.extend.check_metric(metric)
    assert caught.value.law == law
    assert isinstance(caught.value, AssertionError)
    assert isinstance(caught.value, sm.StreamMetricsError)


@pytest.mark.parametrize("law", ["splits", "row_by_row", "slices"])
def test_broken_states_are_caught(law):
    state = {"splits": plugin.Last, "row_by_row": plugin.Batches, "slices": plugin.Unsliced}[law]()
    with plugin.imported(type(state)), pytest.raises(sm.extend.LawError):
        sm.extend.check_state(state)


def test_the_guide_names_methods_of_states():
    page = (Path(sm.__file__).parent / "guide" / "contributing.md").read_text()
    section = page.partition("### Choose a state")[2].partition("A metric of")[0]
    states = dict(re.findall(r"^\| `(\w+)\(.*\|(.*)\|$", section, flags=re.M))
    assert len(states) == 12
    for name, cell in states.items():
        for method in re.findall(r"`(\w+)", cell):
            assert hasattr(getattr(sm.extend, name), method), f"{name}.{method}"


def test_a_term_that_the_state_lacks_and_the_repr_of_a_wrong_formula():
    class Wrong(sm.extend.Metric[sm.extend.ScoreSums, float], tag="test.wrong"):
        """A metric that reads a term which its state lacks."""

        def make_state(self):
            return sm.extend.ScoreSums(terms=("score",))

        def of(self, state):
            return float(state.total("brier"))

    metric = Wrong().update([0, 1], [0.25, 0.5])
    message = "ScoreSums keeps no sums of 'brier'; its terms are score; add the term to terms= in make_state()"
    assert repr(metric) == f"Wrong(no value: ValueError: {message}, 2 rows)"
    with pytest.raises(ValueError, match="ScoreSums keeps no sums of 'brier'; its terms are score"):
        metric.compute()
    sm.extend.METRICS.pop("test.wrong")


def test_the_message_says_what_was_expected_and_what_came():
    with plugin.imported(plugin.Bold), pytest.raises(sm.extend.LawError) as caught:
        sm.extend.check_metric(plugin.Bold)
    message = str(caught.value)
    assert message.startswith("Bold() breaks the law 'within_bounds' (The value lies within its certified bounds")
    assert "expected a value within [" in message
    assert "; found " in message
    assert "\nThe 45 rows: {'y_true': array([" in message


@pytest.mark.cpu_limit(3)  # it goes through all laws
def test_a_metric_by_hand_takes_30_lines(monkeypatch):
    monkeypatch.setitem(sm.extend.METRICS, "example.click_odds", ClickOdds)
    y, p = [0, 1, 1], [0.25, 0.5, 0.75]
    odds = ClickOdds(prior=1).update(y, p)
    assert odds.compute() == (sum(p) + 0.5) / (sum(1 - x for x in p) + 0.5)  # the oracle
    assert odds.bounds() == (odds.compute(),) * 2
    assert sm.Sliced(ClickOdds(), by="k").update(y, p, k=["a", "b", "a"]).compute() == {"a": 1.0, "b": 1.0}
    assert sm.from_bytes(odds.to_bytes()) == odds
    sm.extend.check_metric(ClickOdds(prior=1), examples=2)
    assert len(Path(click_odds.__file__).read_text().splitlines()) <= 30


@pytest.mark.slow
def test_an_object_is_checked_at_its_settings_and_left_alone():
    metric = sm.AUC(bits=8).update([0, 1], [0.1, 0.9])
    before = metric.to_bytes()
    sm.extend.check_metric(metric, examples=1)
    assert metric.to_bytes() == before


class Duration(Kind):
    """A kind of column that the package does not know: positive numbers."""

    expected = "a duration above 0"

    def convert(self, values, name):
        return Column(np.ascontiguousarray(values, np.float64), values.dtype.name)

    def bad(self, column):
        return ~((column.values > 0) & np.isfinite(column.values))


DURATION = Duration()


class Longest(sm.extend.State, tag="plugin.longest"):
    rows = sm.extend.Flat()
    longest = sm.extend.Flat(form="high")

    def needs(self):
        return (Need("duration", DURATION),)

    def absorb(self, into, at, duration):
        np.add.at(into["rows"], at, 1)
        np.maximum.at(into["longest"], at, (duration.values * 1000).astype(np.int64))


class MaxDuration(sm.extend.Metric[Longest, float], tag="plugin.max_duration"):
    def make_state(self):
        return Longest()

    def of(self, state):
        return int(state.longest) / 1000


sm.extend.METRICS.pop("plugin.max_duration")
sm.extend.State.by_tag.pop("plugin.longest")


class TestRowsOfOnesOwn:
    @pytest.fixture(autouse=True)
    def imported(self):
        sm.extend.METRICS["plugin.max_duration"] = MaxDuration
        sm.extend.State.by_tag["plugin.longest"] = Longest
        yield
        del sm.extend.METRICS["plugin.max_duration"], sm.extend.State.by_tag["plugin.longest"]

    def test_columns_of_an_unknown_kind_ask_for_data(self):
        with pytest.raises(
            TypeError, match="no rows can be generated for 'duration', a column of class Duration; pass data="
        ):
            sm.extend.check_metric(MaxDuration)

    @pytest.mark.slow
    def test_a_function_makes_rows(self):
        sm.extend.check_metric(MaxDuration, data=lambda rng, n: {"duration": rng.exponential(1.0, n) + 0.01})

    @pytest.mark.slow
    def test_a_mapping_is_sampled(self):
        sm.extend.check_metric(MaxDuration(), data={"duration": [0.5, 1.5, 2.25]}, examples=2)

    def test_the_first_columns_are_positional(self):
        assert MaxDuration().update([0.25, 2.0]).update(duration=[1.0]).update({"duration": [3.5]}).compute() == 3.5
        with pytest.raises(TypeError, match="MaxDuration reads duration; pass these columns by name, or pass a table"):
            MaxDuration().update([1.0], [2.0])
        with pytest.raises(TypeError, match="unknown column 'time'; the columns are duration"):
            MaxDuration().update(time=[1.0])
        with pytest.raises(sm.InvalidInputError, match=r"duration: expected a duration above 0, found -1\.0 in row 1"):
            MaxDuration().update([1.0, -1.0])


class TestDeclaration:
    def test_a_tag_is_taken_once(self):
        with pytest.raises(TypeError, match="the metric tag 'auc' already belongs to AUC"):

            class Another(sm.extend.Metric, tag="auc"):
                pass

        with pytest.raises(TypeError, match="the state tag 'scores' already belongs to ScoreHistogram"):

            class Other(sm.extend.State, tag="scores"):
                pass

    def test_a_plain_field_is_a_setting(self):
        class Scaled(plugin.Odds):
            factor: float = 2.0

        assert Scaled(factor=3).settings["factor"] == 3.0
        with pytest.raises(TypeError, match="Scaled: factor must be float, not 'x'"):
            Scaled(factor="x")

    def test_read_outs_are_a_set(self):
        assert sm.extend.DecisionCounts(thresholds=(0.9, 0.1, 0.9)) == sm.extend.DecisionCounts(thresholds=(0.1, 0.9))

    def test_what_is_not_declared_is_said(self):
        class Bare(sm.extend.Metric):
            pass

        class Empty(sm.extend.State):
            pass

        with pytest.raises(NotImplementedError, match=r"Bare does not implement make_state\(\)"):
            Bare().update([1])
        with pytest.raises(NotImplementedError, match="Empty does not define needs"):
            Empty().needs()
