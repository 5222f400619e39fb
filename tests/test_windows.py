"""Windows of event time: where rows go, what is kept, what is refused, and what the newest of them hold together."""

from __future__ import annotations

import datetime
import itertools
from collections import defaultdict
from dataclasses import replace

import draws
import numpy as np
import pandas
import polars
import pyarrow
import pytest
from hypothesis import given
from hypothesis import strategies as st

import streammetrics as sm
from streammetrics.batch import times
from streammetrics.collect.accumulator import definition_of
from streammetrics.collect.metric_like import answer_of, columns_of, empty_copy, states_of
from streammetrics.format.frame import write_frame
from streammetrics.numerics.durations import format_duration, to_microseconds
from streammetrics.state.axes import Vocabulary

UTC = datetime.UTC
TIMES = np.array(["1969-12-31T23:59:59", "2024-05-01T09:15", "2024-05-01T09:59:59", "2024-05-01T10:00"], "M8[s]")
LABELS = np.array([1, 0, 1, 1])
WANTED = {
    datetime.datetime(1969, 12, 31, 23, tzinfo=UTC): 1.0,
    datetime.datetime(2024, 5, 1, 9, tzinfo=UTC): 0.5,
    datetime.datetime(2024, 5, 1, 10, tzinfo=UTC): 1.0,
}


def hourly(**settings):
    return sm.Windowed(sm.CTR(), width="1h", time="ts", **settings)


def forms():
    naive = pandas.Series(TIMES.astype("M8[ns]") + np.timedelta64(7, "ns"))
    vienna = naive.dt.tz_localize("UTC").dt.tz_convert("Europe/Vienna")
    objects = [t.astype("M8[us]").item().replace(tzinfo=UTC) for t in TIMES]
    local = [t.astimezone(datetime.timezone(datetime.timedelta(hours=-7))) for t in objects]
    arrow = pyarrow.array(vienna)
    return {
        **{unit: TIMES.astype(f"M8[{unit}]") for unit in ("s", "ms", "us", "ns")},
        "pandas": naive, "pandas with a zone": vienna, "pandas of Arrow": vienna.astype("timestamp[ns, UTC][pyarrow]"),
        "arrow": arrow, "chunks": pyarrow.chunked_array([arrow[:1], arrow[1:]]),
        "seconds": pyarrow.array(TIMES), "dictionary": arrow.dictionary_encode(),
        "polars": polars.Series(arrow), "list": local, "objects": np.array(local, object),
        "list of datetime64": list(TIMES),
    }  # fmt: skip


@pytest.mark.parametrize("form", forms())
def test_timestamps_of_every_kind_are_instants(form):
    made = hourly().update(y_true=LABELS, ts=forms()[form])
    assert made.compute() == WANTED
    assert made.digest() == hourly().update(y_true=LABELS, ts=TIMES).digest()


def test_dates_and_days():
    days = [
        datetime.date(1969, 12, 31),
        datetime.date(2024, 5, 1),
        datetime.date(2024, 5, 1),
        datetime.date(2024, 5, 2),
    ]
    made = sm.Windowed(sm.CTR(), width="1d").update(y_true=LABELS, time=days)
    starts = [datetime.datetime(*day, tzinfo=UTC) for day in ((1969, 12, 31), (2024, 5, 1), (2024, 5, 2))]
    assert made.compute() == dict(zip(starts, (1.0, 0.5, 1.0), strict=True))
    assert made[days[1]].compute() == made[np.datetime64(days[1])].compute() == 0.5
    assert days[1] in made
    assert made == sm.Windowed(sm.CTR(), width=datetime.timedelta(days=1)).update(
        y_true=LABELS, time=np.array(days, "M8[D]")
    )


@pytest.mark.slow
@draws.short(40)
@given(
    st.lists(st.tuples(st.integers(-(1 << 63), (1 << 63) - 1) | st.integers(-50, 50), st.booleans())), st.integers(1, 9)
)
def test_integers_lie_in_windows_as_python_divides(rows, width):
    rows = [(t, y) for t, y in rows if t // width * width >= -(1 << 63)]
    found = defaultdict(list)
    for t, y in rows:
        found[t // width * width].append(y)
    made = sm.Windowed(sm.CTR(), width=width)
    made.update(y_true=np.array([y for _, y in rows], bool), time=np.array([t for t, _ in rows], np.int64))
    assert made.compute() == {start: sum(ys) / len(ys) for start, ys in sorted(found.items())}
    assert sm.from_bytes(made.to_bytes()) == made


@pytest.mark.parametrize("step", [17, np.int64(17), np.array(17)])
def test_one_time_may_stand_for_a_batch(step):
    made = sm.Windowed([sm.AUC(), sm.LogLoss()], width=10, time="step")
    made.update([0, 1, 1], [0.1, 0.4, 0.3], step=step).update([0, 1], [0.5, 0.7], step=3)
    assert made.keys == [0, 10]
    assert made[10].digest() == sm.MetricCollection(sm.AUC(), sm.LogLoss()).update([0, 1, 1], [0.1, 0.4, 0.3]).digest()
    one = hourly().update(y_true=[0, 1], ts=datetime.datetime(2024, 5, 1, 9, 30))
    assert one == hourly().update(y_true=[0, 1], ts=np.datetime64("2024-05-01T09:40"))
    with pytest.raises(sm.InvalidInputError, match="found values of kind string"):
        hourly().update(y_true=[0, 1], ts=np.array("now"))
    for time, found in (
        ("2024-05-01T09:30", "of kind string"),
        (1714555800.5, "floats; .*; for seconds since 1970, convert them first"),
    ):
        with pytest.raises(sm.InvalidInputError, match=found):
            hourly().update({"y_true": 1, "ts": time})


@pytest.mark.parametrize(
    ("column", "message"),
    [
        ([1, 2, 3, 4], "expected timestamps or dates for windows of this width, found values of kind integer"),
        (
            ["a", "b", "c", "d"],
            r"found values of kind string; convert .* first, such as pandas.to_datetime\(df\['ts'\]\)",
        ),
        ([1.0, 2.0, 3.0, 4.0], "found floats"),
        (np.zeros(4), "found floats"),
        (TIMES[:3], "ts has 3 rows, but y_true has 4"),
        ([None, *TIMES[1:3].tolist(), None], r"found a null in row 0 \(2 of 4 rows"),
        (np.array(["NaT", "2024-05-01", "2024", "2024"], "M8[s]"), "found no time in row 0; "),
    ],
)
def test_bad_times_are_refused_and_nothing_is_counted(column, message):
    made = hourly().update(y_true=LABELS, ts=TIMES)
    before = made.digest()
    with pytest.raises(sm.InvalidInputError, match=message) as caught:
        made.update(y_true=LABELS, ts=column)
    assert caught.value.column == "ts"
    assert made.digest() == before
    with pytest.raises(
        sm.InvalidInputError, match="expected integers for windows of this width, found values of kind t"
    ):
        sm.Windowed(sm.CTR(), width=5, time="ts").update(y_true=LABELS, ts=TIMES)
    with pytest.raises(sm.InvalidInputError, match=r"below 2\*\*63"):
        sm.Windowed(sm.CTR(), width=5).update(y_true=[0], time=np.array([1 << 63], np.uint64))
    with pytest.raises(
        sm.InvalidInputError, match=r"starts at -2\*\*63 or later\), found -9223372036854775808 in row 1"
    ):
        sm.Windowed(sm.CTR(), width=5).update(y_true=[0, 1], time=np.array([7, -(1 << 63)]))
    with pytest.raises(sm.InvalidInputError, match=r"years 1 to 9999, found 0001-01-01"):
        sm.Windowed(sm.CTR(), width="7d").update(y_true=[0], time=[datetime.date.min])


def test_rows_without_a_time_are_left_out_and_counted():
    column = np.array(["NaT", "2024-05-01T09:15", "NaT", "2024-05-01T10:00"], "M8[s]")
    made = hourly(on_invalid="drop", keep=1).update(y_true=LABELS, ts=column)
    assert made.compute() == {datetime.datetime(2024, 5, 1, 10, tzinfo=UTC): 1.0}
    assert made.lifetime().explain()["dropped"] == {"time": 2}
    assert made.late == 1
    assert None not in made
    halves = [hourly(on_invalid="drop", keep=1).update(y_true=LABELS[i::2], ts=column[i::2]) for i in (0, 1)]
    assert sm.merge(halves).digest() == made.digest() == sm.from_bytes(made.to_bytes()).digest()


def test_rows_that_a_task_leaves_out_need_no_time():
    task = sm.Task([sm.CTR()], where="click")
    columns = {"y_true": LABELS, "click": [1, 0, 1, 0], "ts": np.array([TIMES[1], "NaT", TIMES[3], "2999"], "M8[s]")}
    made = sm.Windowed(task, width="1h", time="ts", max_time=datetime.datetime(2025, 1, 1)).update(columns)
    assert [v["ctr"] for v in made.compute().values()] == [1.0, 1.0]
    assert made.lifetime().explain()["ctr"]["dropped"] == {"where": 2}


# -- the future ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ahead", ["5m", datetime.timedelta(minutes=5), np.timedelta64(5, "m")])
def test_times_in_the_future_are_refused(ahead, monkeypatch):
    monkeypatch.setattr(times, "clock", lambda: to_microseconds("1d", ""))
    made = hourly(max_time=ahead)
    first = np.array(["1970-01-02T00:04:59", "1970-01-02T00:05"], "M8[s]")
    made.update(y_true=[0, 1], ts=first)
    before = made.digest()
    late = np.array(["1970-01-01", "1970-01-02T00:05:01", "1971"], "M8[s]")
    with pytest.raises(
        sm.InvalidInputError, match=r"max_time, found 1970-01-02T00:05:01.* in row 1, later than"
    ) as caught:
        made.update(y_true=[0, 1, 1], ts=late)
    assert (caught.value.column, caught.value.row, caught.value.count) == ("ts", 1, 2)
    assert made.digest() == before
    drops = hourly(max_time="5m", on_invalid="drop", keep=1).update(y_true=[0, 1, 1], ts=late)
    assert drops.compute() == {datetime.datetime(1970, 1, 1, tzinfo=UTC): 0.0}, "the future expires nothing"
    assert drops.lifetime().explain()["dropped"] == {"time": 2}
    assert hourly(max_time="5m").digest() == hourly().digest(), "no part of what it is"
    nested = sm.Sliced(hourly(max_time=datetime.datetime(1970, 1, 1, 5)), by="c")
    with pytest.raises(sm.InvalidInputError, match="row 1"):
        nested.update(y_true=[0, 1, 1], ts=late, c=["a"] * 3)
    steps = sm.Windowed(sm.CTR(), width=5, max_time=7)
    with pytest.raises(sm.InvalidInputError, match="found 8 in row 1, later than 7"):
        steps.copy().update(y_true=[0, 1], time=[7, 8])


def test_one_pass_has_one_latest_time_for_windows():
    two = {"a": hourly(max_time="5m"), "b": hourly()}
    with pytest.raises(
        ValueError, match="all windows over the column 'ts' in a collection must have the same max_time"
    ):
        sm.MetricCollection(two)
    sm.MetricCollection({"a": hourly(max_time="5m"), "b": sm.Windowed(sm.CTR(), width="1d", time="ts")})


# -- what is kept ----------------------------------------------------------------------------------------------------


def rows(seed, n=60):
    rng = np.random.default_rng(seed)
    return {
        "y_true": rng.integers(0, 2, n),
        "y_score": rng.random(n).round(3),
        "sample_weight": rng.choice([0.5, 1.0, 2.0], n),
        "step": rng.choice([*range(30), 200, -7], n),
        "c": rng.choice(["a", "b", "d", "e"], n),
        "group": rng.integers(0, 9, n),
    }


def windows(inner, **settings):
    return sm.Windowed(inner, width=4, time="step", **{"keep": 3, **settings})


NESTS = {
    "windows": lambda: windows([sm.AUC(bits=8), sm.LogLoss()]),
    "slices of windows": lambda: sm.Sliced(windows([sm.AUC(bits=8, limit=10), sm.CTR()]), by="c", limit=2),
    "windows of slices": lambda: windows(sm.Sliced([sm.AUC(bits=8), sm.CTR()], by="c", limit=2)),
    "of groups": lambda: windows(sm.GroupAUC()),
    "hours in days": lambda: sm.Windowed(windows(sm.LogLoss(), keep=2), width=12, time="step", keep=2),
    "in a collection": lambda: sm.MetricCollection({"w": windows(sm.AUC(bits=8)), "all": sm.AUC(bits=8)}),
}


@pytest.mark.slow
@pytest.mark.parametrize("nest", NESTS)
def test_any_order_of_rows_and_merges_gives_one_digest(nest):
    @draws.short(10)
    @given(st.integers(0, 1 << 30), st.lists(st.integers(0, 3), min_size=60, max_size=60), st.permutations(range(60)))
    def hold(seed, owners, order):
        make, log = NESTS[nest], rows(seed)

        def fed(index):
            made = make()
            return made.update({n: c[index] for n, c in log.items() if n in columns_of(made)})

        whole = fed(slice(None))
        order = np.array(order)
        assert fed(order).digest() == whole.digest()
        parts = [fed(order[np.array(owners) == i]) for i in range(4)]
        left = parts[3].copy().merge(parts[1]).merge(parts[0].copy().merge(parts[2]))
        assert left.digest() == sm.merge([p.to_bytes() for p in parts]).digest() == whole.digest()
        one = make()
        for i in order:
            one.update({n: c[[i]] for n, c in log.items() if n in columns_of(one)})
        assert one.digest() == whole.digest()

    hold()


def test_what_is_beyond_keep_is_added_up_whatever_came_first():
    log = rows(1)
    made = windows(sm.Sliced(sm.LogLoss(), by="c", limit=2)).update(log)
    alone = sm.Sliced(sm.LogLoss(), by="c", limit=2).update({n: c for n, c in log.items() if n != "step"})
    assert made.lifetime().digest() == alone.digest()
    assert made.late == int((log["step"] // 4 * 4 < 200 - 8).sum()) > 0
    assert [r["step"] for r in made.table(confidence=None)][-1] == "(expired)"
    assert {r["step"] for r in made.table(expired=False, confidence=None)} == {200}


def test_the_newest_windows_are_read_as_one():
    log = rows(2)
    log["step"] = np.arange(60)
    made = windows([sm.AUC(bits=8), sm.CTR()], keep=None).update(log)
    for count, until in itertools.product((1, 3, 20), (None, 31, 28)):
        end = 60 if until is None else 32
        inside = (log["step"] < end) & (log["step"] >= end - 4 * count)
        alone = sm.MetricCollection(sm.AUC(bits=8), sm.CTR()).update(
            {n: log[n][inside] for n in columns_of(made.inner) if n in log}
        )
        assert made.last(count, until).digest() == alone.digest()
    kept = windows(sm.CTR()).update(log)
    assert kept.last(3).compute() == made.last(3)["ctr"].compute()
    assert kept.last(1, until=50).compute() == made.last(1, until=50)["ctr"].compute()
    for asked in ((4, None), (1, 47), (3, 55)):
        with pytest.raises(ValueError, match="keep=3: windows before 48 have already been summed"):
            kept.last(*asked)
    with pytest.raises(ValueError, match="a whole number of at least 1, not 0"):
        kept.last(0)
    with pytest.raises(ValueError, match="until= must be a time of the same type as the column step"):
        kept.last(1, until="x")
    assert windows(sm.CTR()).last(2).state.row_counts.sum() == 0


def test_young_windows_are_provisional():
    made = sm.Windowed(sm.CTR(), width="1d", time="ts", mature_after="2d")
    days = np.arange("2024-05-01", "2024-05-06", dtype="M8[D]")
    made.update(y_true=[0, 1, 1, 0, 1], ts=days)

    def young(**asked):
        return [str(r["ts"].date()) for r in made.table(**asked) if r["reason"] == "provisional: younger than 2d"]

    assert young() == ["2024-05-04", "2024-05-05"]
    assert young(now=datetime.datetime(2024, 5, 6, 23)) == ["2024-05-04", "2024-05-05"]
    assert young(now=datetime.datetime(2024, 5, 7)) == young(now=datetime.datetime(2024, 5, 7, 23)) == ["2024-05-05"]
    assert young(now=datetime.date(2024, 5, 8)) == []
    assert [r.get("provisional") for r in answer_of(made).records()] == [None, None, None, True, True]
    empty = sm.Sliced(sm.Windowed(sm.AUC(), width="1d", time="ts", mature_after="1w"), by="c")
    empty.update(y_true=[1], y_score=[0.5], ts=days[:1], c=["a"])
    assert [r["reason"] for r in empty.table()] == ["one class: no negatives; provisional: younger than 1w"]
    assert (
        made.digest() == sm.Windowed(sm.CTR(), width="24h", time="ts").update(y_true=[0, 1, 1, 0, 1], ts=days).digest()
    )


# -- what it is ------------------------------------------------------------------------------------------------------


def test_settings_are_checked():
    for wrong in ({"width": 0}, {"width": "1y"}, {"width": "h"}, {"width": 1.5}, {"width": True}, {"width": "0s"}):
        with pytest.raises(ValueError, match=r"width= (takes a|must be a)"):
            sm.Windowed(sm.CTR(), **wrong)
    for wrong, message in (
        ({"keep": 0}, "keep= must be a positive whole number of windows"),
        ({"max_time": "soon"}, "max_time= takes a duration"),
        ({"max_time": 5}, "max_time= must be a timestamp"),
        ({"mature_after": 5}, "mature_after= takes a duration"),
    ):
        with pytest.raises(ValueError, match=message):
            hourly(**wrong)
    with pytest.raises(TypeError, match="the name of a column"):
        sm.Windowed(sm.CTR(), width=1, time=("a", "b"))
    with pytest.raises(TypeError, match=r"Windowed: expected a metric, .* found an object of class Bundle"):
        sm.Windowed(sm.Bundle({"a": sm.CTR()}), width=1)


def test_others_do_not_merge_and_say_why():
    for other, message in (
        (sm.Windowed(sm.CTR(), width="2h", time="ts"), "width is '1h' here and '2h' there"),
        (hourly(keep=2), "keep is None here and 2 there"),
        (sm.Windowed(sm.CTR(), width="1h"), "time is 'ts' here and 'time' there"),
        (sm.Windowed(sm.AUC(), width="1h", time="ts"), "the other metric is AUC"),
        (
            sm.Windowed(sm.Sliced(sm.CTR(), by="c"), width="1h", time="ts"),
            "the inner object is CTR here and Sliced there",
        ),
        (sm.Sliced(sm.CTR(), by="ts"), "cannot merge Sliced into Windowed"),
    ):
        with pytest.raises(sm.IncompatibleStateError, match=message):
            hourly().merge(other)


def test_what_is_dense_is_refused_when_it_is_made():
    with pytest.raises(sm.MemoryLimitError, match=r"would take 7,272,000,000 bytes .* memory_limit of 4,294,967,296"):
        sm.Windowed(sm.ConfusionMatrix(num_classes=3000), width="1h", keep=100)
    with pytest.raises(sm.MemoryLimitError, match="use fewer windows"):
        sm.Sliced(sm.Windowed(sm.ConfusionMatrix(num_classes=300), width="1h", keep=100), by="c", memory_limit=1 << 20)
    sm.Windowed(sm.AUC(), width="1h", keep=100_000)


def test_nothing_is_an_answer_too():
    made = windows([sm.AUC(), sm.CTR()])
    for nothing in ([], np.zeros(0), np.zeros(0, np.int64), np.zeros(0, "M8[s]"), pandas.Series([], dtype=object)):
        made.update(y_true=[], y_score=[], step=nothing)
    assert made.digest() == empty_copy(made).digest()
    assert (made.compute(), made.keys, made.late, len(made.table())) == ({}, [], 0, 0)
    assert made.last(2).digest() == made.lifetime().digest() == sm.MetricCollection(sm.AUC(), sm.CTR()).digest()


def test_it_is_named_shown_coarsened_sealed_and_flat():
    made = hourly(keep=5).update(y_true=LABELS, ts=TIMES)
    assert made.name == "ctr per 1h"
    assert windows(sm.CTR()).name == "ctr per 4 step"
    assert repr(made).startswith("Windowed(ctr; ts by 1h, keep=5): 2 windows")
    assert definition_of(made).levels == ("ts",)
    assert list(sm.flat(made)) == ["2024-05-01_09_00_00_00_00/ctr", "2024-05-01_10_00_00_00_00/ctr"]
    with pytest.raises(KeyError, match="there is no window 7; this object has 2 keys: "):
        made[7]
    assert made.interval()[made.keys[0]].low < 0.5 < made.interval()[made.keys[0]].high
    log = rows(3)
    for thing in (windows(sm.AUC(bits=9)), windows(sm.Sliced([sm.AUC(bits=9), sm.CTR()], by="c"))):
        thing.update({n: c for n, c in log.items() if n in columns_of(thing)})
        fewer = sm.coarsen(thing, 8)
        assert fewer.lifetime().digest() == sm.coarsen(thing.lifetime(), 8).digest()
    groups = windows(sm.GroupAUC())
    groups.update({n: c for n, c in log.items() if n != "c"})
    assert repr(sm.seal(groups).compute()) == repr(groups.compute())


def test_hostile_starts_are_refused():
    made = windows(sm.CTR()).update(y_true=LABELS, step=[1, 5, 9, 100])
    state = states_of(made)[0]
    for kind, values in (("integer", [1, 104]), ("timestamp", [96, 100]), ("integer", [96, 1 << 63])):
        held = np.array(values, object if max(values) >= 1 << 63 else np.int64)
        cells = replace(state.cells, vocabularies=(Vocabulary(kind, held),))
        if len(state.cells.vocabularies[0]) != 2:
            cells = replace(cells, keys=np.array([[0], [1]]))
        with pytest.raises(sm.StateFormatError):
            sm.from_bytes(write_frame([state.with_cells(cells)], definition_of(made).header()))


@pytest.mark.parametrize(
    ("text", "length", "shown"),
    [
        ("1h", 3_600_000_000, "1h"),
        ("90m", 5_400_000_000, "90m"),
        ("1w", 604_800_000_000, "7d"),
        ("1500ms", 1_500_000, "1500ms"),
    ],
)
def test_durations(text, length, shown):
    assert to_microseconds(text, "") == length
    assert format_duration(length) == shown
    assert to_microseconds(shown, "") == length


def test_times_may_be_texts_as_tables_print_them():
    hours = np.array(["2024-05-01T09:15", "2024-05-01T10:05", "2024-05-02T00:00"], "datetime64[s]")
    hourly = sm.Windowed(sm.CTR(), width="1h", time="ts", mature_after="1h").update(y_true=[0, 1, 1], ts=hours)
    printed = hourly.table().to_dict()["ts"]
    assert [hourly[str(start)].state for start in printed] == [hourly[start].state for start in hourly.keys]
    assert hourly["2024-05-02"].compute() == 1.0
    assert hourly.last(2, until="2024-05-01 10:59").compute() == hourly.last(2, until=hours[1]).compute() == 0.5
    assert "provisional" not in str(hourly.table(now="2024-05-02T02:00:00Z"))
    for wrong in ("2024-5-1", "2024-13-01", "1h", "2024-05-01T25:00", ""):
        with pytest.raises(KeyError, match="no window"):
            hourly[wrong]
        with pytest.raises(ValueError, match="until= must be a time of the same type as the column ts"):
            hourly.last(1, until=wrong)
    steps = sm.Windowed(sm.CTR(), width=10, time="step").update([0, 1], step=3)
    with pytest.raises(ValueError, match="until= must be a time of the same type as the column step"):
        steps.last(1, until="2024-05-01")
