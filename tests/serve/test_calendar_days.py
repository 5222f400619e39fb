"""Days of a time zone: whole hours, 23 or 25 of them where clocks change, in coverage, folds, charts and files."""

from __future__ import annotations

import datetime
import itertools
import json
from dataclasses import replace

import numpy as np
import posted
import pytest
from experiments import Entry, experiment, log, windows
from serve.evaluations import points, running
from serve.fakes import NOW

from streammetrics.errors import InvalidInputError
from streammetrics.serve.api.results import build_results
from streammetrics.serve.calendar_days import add_days, count_days, find_day, find_next_day, to_datetime
from streammetrics.serve.evaluation.deadlines import find_deadline
from streammetrics.serve.evaluation.definitions import Definitions
from streammetrics.serve.evaluation.evaluate import compute_coverage
from streammetrics.serve.evaluation.experiment import Experiment
from streammetrics.serve.evaluation.merge_parts import merge_parts
from streammetrics.serve.evaluation.part_index import PartIndex
from streammetrics.serve.evaluation.totals import Totals
from streammetrics.serve.evaluation.window_series import WindowSeries
from streammetrics.serve.evaluation.windows import ExperimentWindow
from streammetrics.serve.page.downloads import render_csv
from streammetrics.serve.page.history import ExperimentHistory, ShownAnnotation
from streammetrics.serve.page.page_data import build_page
from streammetrics.serve.page.view import View
from streammetrics.serve.part_keys import HOUR, PartKey, parse_hour
from streammetrics.serve.store import Store
from streammetrics.serve.store.parts import MergedDay

BERLIN = "Europe/Berlin"
SPRING = parse_hour("2026-03-28T23")
"""The first hour of 29 March 2026 in Berlin, a day of 23 hours."""
AUTUMN = parse_hour("2026-10-24T22")
"""The first hour of 25 October 2026 in Berlin, a day of 25 hours."""


@pytest.mark.parametrize(
    ("zone", "lengths"),
    [
        ("UTC", {24}),
        (BERLIN, {23, 24, 25}),
        ("America/New_York", {23, 24, 25}),
        ("Asia/Kolkata", {24}),
        ("Australia/Lord_Howe", {23, 24, 25}),  # clocks change by half an hour
        ("America/Havana", {23, 24, 25}),  # at midnight
    ],
)
def test_days_divide_the_hours(zone: str, lengths: set[int]) -> None:
    # A past year, because the law and so the time zone database still change for later ones.
    day, found = find_day(parse_hour("2024-01-01T12"), zone), set()
    dates = []
    for _ in range(366):
        end = find_next_day(day, zone)
        assert {find_day(hour, zone) for hour in range(day, end)} == {day}
        assert {find_next_day(hour, zone) for hour in range(day, end)} == {end}
        dates.append(to_datetime(day, zone).date())
        found.add(end - day)
        day = end
    assert found <= lengths
    assert found == lengths or zone == "Australia/Lord_Howe"
    assert [b - a for a, b in itertools.pairwise(dates)] == [datetime.timedelta(days=1)] * 365


def test_the_days_of_berlin() -> None:
    assert [find_next_day(day, BERLIN) - day for day in (SPRING, SPRING + 23, AUTUMN, AUTUMN - 24)] == [23, 24, 25, 24]
    assert add_days(SPRING, 1, BERLIN) == SPRING + 23
    assert add_days(SPRING - 10, 1, BERLIN) == SPRING - 10 + 23  # from 14:00 to 14:00
    assert count_days(SPRING, SPRING + 23, BERLIN) == count_days(AUTUMN, AUTUMN + 25, BERLIN) == 1.0
    assert count_days(SPRING, SPRING + 23 + 36, BERLIN) == 2.5
    assert count_days(SPRING, SPRING + 36.5, "UTC") == 36.5 / 24


@pytest.mark.parametrize("name", ["Europe/Nowhere", "Europe", "../UTC", "", "CEST+2"])
def test_unknown_time_zones(name: str) -> None:
    with pytest.raises(InvalidInputError, match="timezone: expected the IANA name of a time zone, such as Europe/Berl"):
        experiment(timezone=name)
    with pytest.raises(InvalidInputError, match="timezone: expected a string, found 2"):
        experiment(timezone=2)


def test_dates_of_a_file_are_days_of_its_time_zone() -> None:
    text = (
        'control = "a"\nprimary = "ctr"\nstart = 2026-03-29\nend = 2026-03-31\ntimezone = "{}"\narms = {{a = 1, b = 1}}'
    )
    one = Experiment.from_toml(text.format(BERLIN), id="e")
    assert (one.start, one.end) == (SPRING, SPRING + 23 + 24)
    assert Experiment.from_dict(json.loads(json.dumps(one.to_dict()))) == one
    assert Experiment.from_toml(text.format("UTC"), id="e").start == parse_hour("2026-03-29T00")
    with_time = text.replace("2026-03-29", "2026-03-29T00:00:00")
    assert Experiment.from_toml(with_time.format(BERLIN), id="e").start == parse_hour("2026-03-29T00")


def covered(hours: list[int], zone: str, first: int, end: int) -> float:
    index = PartIndex().add([Entry(PartKey("e", "web", hour), (hour + 1) * HOUR) for hour in hours])
    return compute_coverage(experiment(start=first, timezone=zone), index, first, end).days


def test_coverage_counts_days_of_the_time_zone() -> None:
    week = [*range(SPRING, SPRING + 7 * 24 - 1)]
    assert covered(week, BERLIN, SPRING, SPRING + 167) == 7.0
    assert covered(week, "UTC", SPRING, SPRING + 167) == 6 + 23 / 24
    # Two of 23 hours are fewer than 10 %, and three are more.
    assert covered(week[2:], BERLIN, SPRING, SPRING + 167) == 7.0
    assert covered(week[3:], BERLIN, SPRING, SPRING + 167) == 6.0
    # Hours 22 and 23 of a UTC day lie in two days of Berlin.
    without = [hour for hour in week if hour not in range(SPRING + 22, SPRING + 26)]
    assert covered(without, BERLIN, SPRING, SPRING + 167) == 6.0
    assert covered([*range(AUTUMN, AUTUMN + 25)], BERLIN, AUTUMN, AUTUMN + 25) == 1.0


def test_another_day_begins_at_midnight_of_the_time_zone() -> None:
    one = experiment(start=SPRING, timezone=BERLIN, sources={})
    found = replace(running(), hours=(SPRING, SPRING), sources=[], at=(SPRING + 1) * HOUR, day=1 / 24)
    assert find_deadline(one, found) == (SPRING + 23) * HOUR + 1.0


@pytest.mark.slow
def test_days_are_merged_when_they_end_in_their_time_zone(store: Store) -> None:
    """A part of the last hour of a UTC day belongs to the next day of Berlin."""
    hours = [SPRING - 1, SPRING, SPRING + 22, SPRING + 23]
    store.put([posted.part(PartKey("e", "eu", hour), seed) for seed, hour in enumerate(hours)])
    totals = Totals(store)
    totals.set_time_zone("e", BERLIN)
    whole = totals.digest("e")
    wanted = {SPRING - 24: [0], SPRING: [1, 2], SPRING + 23: [3]}
    digests = {day: posted.counted(seeds).digest() for day, seeds in wanted.items()}
    assert {day: window.load().digest() for day, window in totals.windows("e")[1].items()} == digests
    assert totals.compact("e", now=(SPRING + 23) * HOUR - 1, correct_within_days=0) == 1
    assert totals.compact("e", now=(SPRING + 23) * HOUR, correct_within_days=0) == 2
    anew = Totals(store)
    anew.set_time_zone("e", BERLIN)
    for some in (totals, anew):
        by_hour, by_day = some.windows("e")
        assert ([*by_hour], some.digest("e")) == ([SPRING + 23], whole)
        assert {day: window.load().digest() for day, window in by_day.items()} == digests


def test_the_time_zone_stays_after_days_are_merged(store: Store) -> None:
    definitions, given = Definitions(store, lambda: NOW), {"id": "e", "start": posted.FIRST}
    definitions.define(experiment(**given), "ann")
    store.put([posted.plain(PartKey("e", "eu", posted.FIRST), 1)])
    assert definitions.define(experiment(**given, timezone=BERLIN), "ann") == (
        2, [f"timezone: changed from UTC to {BERLIN}"]
    )  # fmt: skip
    day = find_day(posted.FIRST, BERLIN)
    assert store.replace_parts("e", 0, MergedDay(day, day + 24, None, [1], "digest", b"merged"))
    with pytest.raises(InvalidInputError, match="timezone: cannot be changed from Europe/Berlin any more"):
        definitions.define(experiment(**given), "ann")
    assert definitions.define(experiment(**given, timezone=BERLIN, users=5_000.0), "ann")[0] == 3


@pytest.mark.slow
def test_final_hours_are_whole_days_and_the_hours_after_them() -> None:
    table = log(np.random.default_rng(1), users=400, days=3)
    first = int(table["hour"].min())
    by_hour = {h: ExperimentWindow.from_metrics(one) for h, one in windows(table, 1).items()}
    zone = "Asia/Tokyo"  # midnight is at 15:00 UTC
    groups: dict[int, list[int]] = {}
    for hour in by_hour:
        groups.setdefault(find_day(hour, zone), []).append(hour)
    days = {
        day: ExperimentWindow.from_metrics(merge_parts(by_hour[h].load() for h in hours))
        for day, hours in groups.items()
    }
    for before in (first + 10, first + 15, first + 16, first + 50):
        wanted = merge_parts(by_hour[h].load() for h in by_hour if h < before)
        assert WindowSeries().merge_final(by_hour, days, before, zone).digest() == wanted.digest()


def test_charts_and_files_have_the_dates_of_the_time_zone() -> None:
    days = [
        one._replace(hour=SPRING + [0, 23, 47, 71][(one.hour - points(24, 4)[0].hour) // 24]) for one in points(24, 4)
    ]
    found = replace(running(), timezone=BERLIN, days=days, hours=(SPRING, SPRING + 94))
    remark = ShownAnnotation(SPRING + 23 + 12, "Mon", "eve", "release")
    definition = {"arms": {"control": 1, "treatment": 1}, "start": "2026-03-28T23", "end": "2026-04-11T22",
                  "timezone": BERLIN}  # fmt: skip
    page = build_page(found, ExperimentHistory(definition, annotations=[remark]), View(timezone=BERLIN))
    (chart,) = [one for one in page.charts if one.title == "Each day separately"]
    assert [text for _, text in chart.x.ticks] == ["Sun 29", "Mon 30", "Tue 31", "Wed 1"]
    assert chart.xlabel == f"March 2026, {BERLIN}"
    assert chart.layers[0].x[0] == 1.0  # noon of the second day
    assert page.day == "day 7 of 14"
    assert ("timezone", BERLIN) in page.history.list_settings()
    lines = render_csv(found, "days").splitlines()
    assert lines[0].split(",")[0::9] == ["hour", "day"]
    assert {tuple(line.split(",")[0::9]) for line in lines[1:]} == {
        ("2026-03-28T23", "2026-03-29"), ("2026-03-29T22", "2026-03-30"), ("2026-03-30T22", "2026-03-31"),
        ("2026-03-31T22", "2026-04-01"),
    }  # fmt: skip
    assert build_results(found, experiment(timezone=BERLIN), [], [])["timezone"] == BERLIN


def test_a_range_of_dates_is_that_of_the_time_zone() -> None:
    view = View.from_query({"from": "2026-03-29", "to": "2026-03-29"}, BERLIN)
    assert (view.since, view.until) == (SPRING, SPRING + 22)
    assert view.days == ("2026-03-29", "2026-03-29")
    assert View.from_query(dict(pair.split("=") for pair in view.to_query().split("&")), BERLIN) == view
    assert View.from_query({"from": "never", "to": "9999-12-31"}, BERLIN)._replace(until=None) == View(timezone=BERLIN)
