"""Bytes that no rows make are refused, and whatever is read takes no more memory than it may, and answers soon."""

from __future__ import annotations

import functools
import struct
import time
import tracemalloc
import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from draws import VARIANTS
from fuzz_frames import HOLDERS, opened, sealed, without_kernels, written

import streammetrics as sm
from streammetrics.collect.accumulator import definition_of
from streammetrics.collect.metric_like import empty_copy, states_of
from streammetrics.format import frame
from streammetrics.format.frame import Frame
from streammetrics.format.section_header import get_layout
from streammetrics.state.axes import Vocabulary
from streammetrics.state.consistency import UNIT_CHUNK

MIB = 1 << 20
N = 150_000


def peak_of(action: Callable[[], Any]) -> tuple[Any, int]:
    """What an action returns, and the most memory that it took."""
    tracemalloc.start()
    try:
        return action(), tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def large_rows() -> dict[str, Any]:
    """Return columns of a log of some size."""
    rng = np.random.default_rng(0)
    rows = {"y_true": rng.random(N) < 0.1, "y_score": rng.random(N), "sample_weight": rng.random(N) + 0.5}
    return rows | {"k": rng.integers(0, 20_000, N)}


def label_rows() -> tuple[Any, Any]:
    """Return labels and scores of 500 classes."""
    rng = np.random.default_rng(1)
    return rng.random((200, 500)) < 0.5, rng.random((200, 500))


def of_few_columns(metric: Any, rows: dict[str, Any], *names: str, **more: Any) -> Any:
    """Return a metric that has counted some columns of a log."""
    return metric.update({name: rows[name] for name in names} | more)


SLOWEST = ("moments of outputs", "slices by text")
LARGE: dict[str, Callable[[dict[str, Any]], Any]] = {
    "exact": lambda r: of_few_columns(sm.AUC(exact=True), r, "y_true", "y_score"),
    "exact, weighted": lambda r: of_few_columns(
        sm.AUC(exact=True, scale="real"), r, "y_true", "y_score", "sample_weight"
    ),
    "buckets, weighted": lambda r: of_few_columns(sm.AUC(bits=20), r, "y_true", "y_score", "sample_weight"),
    "slices of buckets": lambda r: of_few_columns(
        sm.Sliced(sm.AUC(bits=12), by="k"), r, "y_true", "y_score", k=r["k"] % 500
    ),
    "slices of sums": lambda r: of_few_columns(sm.Sliced(sm.LogLoss(), by="k"), r, "y_true", "y_score", "k"),
    "slices of exact sums": lambda r: sm.Sliced(sm.MAE(), by="k").update(
        {"y_true": r["y_score"], "y_pred": r["y_score"][::-1], "k": r["k"] % 5000}
    ),
    "slices by text": lambda r: of_few_columns(sm.Sliced(sm.CTR(), by="k"), r, "y_true", k=r["k"].astype("U")),
    "rows of groups": lambda r: of_few_columns(sm.GroupAUC(), r, "y_true", "y_score", group=r["k"]),
    "sums of groups": lambda r: of_few_columns(sm.GroupLogLoss(), r, "y_true", "y_score", group=r["k"]),
    "bins, few of them filled": lambda r: sm.BucketError(n_bins=1 << 20).update(r["y_true"], np.round(r["y_score"], 3)),
    "classes, few of them met": lambda _: sm.ConfusionMatrix(num_classes=1500, threshold=None).update(
        np.arange(9), y_pred=np.arange(9)
    ),
    "found classes": lambda r: sm.ConfusionMatrix(labels="discover").update(r["k"] % 300, r["k"] % 301),
    "registers": lambda r: sm.DistinctCount(precision=18).update(value=r["k"]),
    "labels": lambda _: sm.F1(num_labels=30_000).update(np.zeros((2, 30_000), "u1"), np.zeros((2, 30_000), "f4")),
    "buckets of labels": lambda _: sm.AUC(num_labels=500, bits=12).update(*label_rows()),
    "moments of outputs": lambda _: sm.R2(num_outputs=3000).update(np.ones((2, 3000)), np.ones((2, 3000))),
}
"""States of some size, of every part there is."""


@pytest.fixture(scope="module")
def saved() -> Callable[[str], bytes]:
    """Return a function that writes a large state; each is made once, by the first test that reads it."""
    rows = large_rows()
    return functools.cache(lambda name: LARGE[name](rows).to_bytes())


LARGE_NAMES = [pytest.param(name, marks=[pytest.mark.slow] * (name in SLOWEST)) for name in LARGE]


@pytest.mark.parametrize("name", LARGE_NAMES)
def test_reading_takes_twice_the_state(name: str, saved: Callable[[str], bytes]) -> None:
    data = saved(name)
    plain = sum(size for size, _, _ in Frame(data).table)
    thing, peak = peak_of(lambda: sm.from_bytes(data))
    size = sum(s.nbytes + 320 * sum(len(w) for w in s.cells.vocabularies) for s in states_of(thing))
    assert peak < 2 * size + plain + MIB, peak / size


@pytest.mark.parametrize("name", LARGE_NAMES)
def test_max_bytes_is_what_reading_takes_at_most(name: str, saved: Callable[[str], bytes]) -> None:
    data, most, read = saved(name), 1 << 16, False
    while not read:

        def tried(limit: int = most) -> bool:
            try:
                return bool(sm.from_bytes(data, max_bytes=limit))
            except sm.StateFormatError as error:
                if "max_bytes" in str(error):
                    return False
                raise

        read, peak = peak_of(tried)
        assert peak < most + MIB
        most *= 2


@pytest.mark.parametrize("name", HOLDERS)
def test_leads_that_say_more_than_there_is(name: str) -> None:
    data = written(HOLDERS[name]())
    tree, plains = opened(data)
    for which, plain in enumerate(plains):
        names = get_layout(Frame(data).kind.sections[which]).header_names
        for k in range(len(names)):
            for value in (1 << 16, (1 << 32) - 1):
                raw = bytearray(plain) + bytes(1 << 12)
                struct.pack_into("<I", raw, 4 * k, value)
                made = sealed(tree, [bytes(raw) if j == which else p for j, p in enumerate(plains)], data)

                def tried(made: bytes = made) -> None:
                    with pytest.raises(sm.StateFormatError):
                        sm.from_bytes(made, max_bytes=MIB)

                assert peak_of(tried)[1] < 2 * MIB, names[k]


def test_sections_take_no_more_than_max_bytes_together() -> None:
    part = sm.BucketError(n_bins=1 << 16).update([0, 1], [0.1, 0.2])
    whole = sm.Bundle({str(i): part.copy() for i in range(40)}).to_bytes()
    assert sm.from_bytes(part.to_bytes(), max_bytes=4 * MIB) == part
    with pytest.raises(sm.StateFormatError, match="max_bytes"):
        sm.from_bytes(whole, max_bytes=8 * MIB)


def test_a_header_counts_against_max_bytes() -> None:
    metric = sm.ConfusionMatrix(labels=tuple(f"class {i}" for i in range(3000)), threshold=None)
    with pytest.raises(sm.StateFormatError, match="max_bytes"):
        sm.from_bytes(metric.to_bytes(), max_bytes=MIB)


@pytest.mark.slow
@pytest.mark.parametrize(
    "metric",
    [
        sm.AUC(num_labels=1 << 16, bits=24),
        sm.F1(num_labels=1 << 16),
        sm.BucketError(n_bins=1_000_000),
        sm.MAE(num_outputs=1 << 13),
        sm.ErrorQuantile(num_outputs=1 << 13, bits=14),
        sm.GroupAUC(sealed=1 << 20),
    ],
    ids=repr,
)
def test_settings_of_a_few_bytes_are_answered_soon(metric: Any) -> None:
    data = metric.to_bytes()
    assert len(data) < 12_000

    def answered() -> None:
        thing = sm.from_bytes(data)
        for answer in (thing.compute, thing.bounds, thing.explain, thing.interval, thing.to_bytes):
            answer()
        metric.copy().merge(thing)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", sm.UndefinedMetricWarning)
        begin = time.process_time()
        answered()
        assert time.process_time() - begin < 20
        assert peak_of(lambda: sm.from_bytes(data).compute())[1] < 256 * MIB


@pytest.mark.parametrize("metric", VARIANTS, ids=repr)
def test_what_saw_nothing_comes_back(metric: Any) -> None:
    assert sm.from_bytes(empty_copy(metric).to_bytes()) == empty_copy(metric)


def test_what_an_empty_cell_would_take_counts() -> None:
    data = sm.ConfusionMatrix(num_classes=1 << 15, threshold=None).to_bytes()
    with pytest.raises(sm.StateFormatError, match="max_bytes"):
        sm.from_bytes(data)


# -- content ---------------------------------------------------------------------------------------------------------

ROWS: dict[str, Any] = {"y_true": [0, 1, 1, 0], "y_score": [0.2, 0.9, 0.4, 0.6], "sample_weight": [1, 2, 0.5, 1]}
PLAIN = {k: ROWS[k] for k in ("y_true", "y_score")}
USERS = PLAIN | {"group": [1, 1, 2, 2]}


def with_flat(metric: Any, name: str, at: tuple[Any, ...], value: Any) -> bytes:
    """A metric with a number of a part replaced, written as honest ones are."""
    state = metric.state
    array = state.read_cells(state.parts()[name]).copy()
    array[at] = value
    flats = {**state.cells.flats, name: array}
    flats = {n: flats[n] for n in state.parts() if n in flats}
    return frame.write_frame([state.with_cells(replace(state.cells, flats=flats))], definition_of(metric).header())


def with_entry(metric: Any, name: str, **changed: Any) -> bytes:
    """A metric with an entry of a tally replaced."""
    state = metric.state
    tallies = {**state.cells.tallies, name: replace(state.cells.tallies[name], **changed)}
    return frame.write_frame([state.with_cells(replace(state.cells, tallies=tallies))], definition_of(metric).header())


def below_zero(metric: Any) -> bytes:
    """A metric of which an exact sum is a little less than 0."""
    limbs = metric.state.sums.shape[-1]
    return with_flat(metric, "sums", (0, 0, slice(20, None)), np.append(np.full(limbs - 21, (1 << 32) - 1), -1))


WRONG: dict[str, Callable[[], bytes]] = {
    "a negative weight of decisions": lambda: with_flat(
        sm.Precision().update(ROWS), "excess", (0, 0, 1, 1, 0), -(9 << 20)
    ),
    "a weight that rows do not have": lambda: with_flat(sm.CTR().update(ROWS), "excess", (0, 1, 0), 1 << 60),
    "a negative weight of classes": lambda: with_flat(
        sm.Accuracy(num_classes=2, threshold=None).update(y_true=[0, 1], y_pred=[0, 1], sample_weight=[1, 2]),
        "excess", (0, 1, 1, 0), -(9 << 20),
    ),
    "a negative weight of numbers": lambda: with_flat(
        sm.MAE().update([1, 2], [2, 1], sample_weight=[0.5, 1]), "excess", (0, 34), (1 << 32) - 16
    ),
    "more treated positives than positives": lambda: with_entry(
        sm.AUUC(bits=8, limit=0).update([1, 0], [2.0, 2.0], treatment=[1, 0]),
        "rows",
        counts=np.array([2, 1, 2, 1, 1, 2], np.uint32),
    ),
    "a negative weight of a bucket": lambda: with_entry(
        sm.AUC(bits=8).update(ROWS), "rows", excess=np.array([[-(9 << 20), 0]] + 3 * [[0, 1]])
    ),
    "more predicted than there are rows": lambda: with_flat(
        sm.PredictedCTR().update(PLAIN), "sums", (0, 0, 1, 0), 9 << 20
    ),
    "more soft positives than there are rows": lambda: with_flat(
        sm.CTR(soft_labels=True).update([0.5, 0.25]), "sums", (0, 0, 0), 3 << 20
    ),
    "soft labels that lose more than they can": lambda: with_flat(
        sm.LogLoss(soft_labels=True).update(PLAIN), "sums", (0, 0, 0), 9 << 30
    ),
    "a calibration error beyond 1": lambda: with_flat(
        sm.ExpectedCalibrationError(n_bins=2).update(PLAIN), "scores", (0, 1, 0), 9 << 20
    ),
    "labels that do not count the same rows": lambda: with_flat(
        sm.CTR(num_labels=2).update([[0, 1], [1, 1]]), "rows", (0, 1, 0), 7
    ),
    "thresholds that have not": lambda: frame.write_frame(
        [_unlike(states_of(sm.MetricCollection(sm.F1(), sm.F1(threshold=0.3)).update(PLAIN))[0])], {"kind": "state"}
    ),
    "a variance below 0": lambda: with_flat(sm.Variance().update(value=[1.0, 3.0]), "sums", (0, 0, 0, 34), 900),
    "a correlation beyond 1": lambda: with_flat(
        sm.PearsonCorrelation().update([1.0, 3.0, 4.0], [2.0, 1.0, 3.0]), "sums", (0, 2, 0, 34), 40
    ),
    "a gain beyond the ideal one": lambda: with_flat(
        sm.NDCG().update(y_true=[1, 0], y_score=[2, 1], query=[1, 1]), "sums", (0, 0, 0), 3 << 20
    ),
    "more hits than relevant documents": lambda: with_flat(
        sm.HitRate(1, average="pooled").update(y_true=[1, 0], y_score=[2, 1], query=[1, 1]), "large", (0, 0, 34), 9
    ),
    "a loss of rows beyond 1": lambda: with_flat(
        sm.LabelRankingLoss(num_labels=2).update([[1, 0]], [[0.1, 0.9]]), "sums", (0, 0, 34), 5
    ),
    "groups that win more pairs than there are": lambda: with_flat(
        sm.seal(sm.GroupAUC().update(USERS)), "sums", (0, 0, 34), 99
    ),
    "sorted groups that do": lambda: with_flat(
        sm.GroupAUC(grouped="sorted").update(PLAIN | {"group": [1, 2, 2, 3]}), "sums", (0, 0, 34), 99
    ),
    "a level of a sample that is none": lambda: with_flat(
        sm.GroupAUC(sample=True, sample_rows=9).update(USERS), "level", (0,), 65
    ),
    "keys that rows do not have": lambda: with_flat(sm.DistinctCount().update(value=[1, 2, 3]), "rows", (0,), 1),
    "a level that its keys are beyond": lambda: with_flat(sm.DistinctSample().update(value=[1, 2, 3]), "level", (0,), 9),
    "sampled keys of more rows than there are": lambda: with_flat(
        sm.DistinctSample().update(value=[1, 2, 3]), "rows", (0,), 2
    ),
    "a score of ensembles below 0": lambda: below_zero(sm.CRPSEnsemble(members=2).update([1.0], [[0.0, 2.0]])),
    "a fair score of ensembles below 0": lambda: below_zero(
        sm.CRPSEnsemble(members=3, estimator="fair").update([1.0], [[0.0, 1.0, 2.0]])
    ),
    "targets larger than any": lambda: with_flat(
        sm.D2Tweedie(power=1.0).update([1.0, 2.0], [1.5, 1.5]), "sums", (0, 1, 40), 9
    ),
    "more exposures than rows": lambda: with_flat(
        sm.PerUnit().update(unit=[1], exposed=[1]), "sums", (0, 1, UNIT_CHUNK), 2
    ),
    "more rows than can be counted": lambda: with_flat(sm.CTR().update([0, 1]), "rows", (0, slice(None)), (1 << 61) + 1),
}  # fmt: skip


def _unlike(state: Any) -> Any:
    counts = state.cells.flats["counts"].copy()
    counts[0, 0, 0] += [3, 0]
    return state.with_cells(replace(state.cells, flats={**state.cells.flats, "counts": counts}))


def sharded(which: int, column: int, words: Vocabulary) -> bytes:
    """A metric by slice and shard, written with other words in a column of the keys of one of its states."""
    rows = PLAIN | {"u": [3, 1, 2, 7], "v": ["a", "a", "b", "b"]}
    thing = sm.Sliced(sm.Sharded(sm.CTR(), unit="u", shards=8), by="v").update(rows)
    states = list(states_of(thing))
    held = states[which].cells
    changed = tuple(words if i == column else w for i, w in enumerate(held.vocabularies))
    states[which] = states[which].with_cells(replace(held, vocabularies=changed))
    return frame.write_frame(states, definition_of(thing).header())


@pytest.mark.parametrize(
    ("which", "column", "words", "said"),
    [
        (0, 0, ("string", [b"a", b"c"]), "the rows of the shards do not add up"),
        (1, 0, ("integer", [1, 2]), "the rows of the shards do not add up"),
        (1, 1, ("integer", [0, 1, 2, 8]), "u has a key that is not a shard"),
        (1, 1, ("integer", [-1, 0, 1, 2]), "u has a key that is not a shard"),
        (1, 1, ("timestamp", [0, 1, 2, 3]), "u has a key that is not a shard"),
    ],
)
def test_shards_of_other_slices_or_of_no_units(which: int, column: int, words: Any, said: str) -> None:
    with pytest.raises(sm.StateFormatError, match=said):
        sm.from_bytes(sharded(which, column, Vocabulary.from_values(*words)))


@pytest.mark.parametrize("what", list(WRONG))
def test_what_no_rows_make(what: str) -> None:
    with pytest.raises(sm.StateFormatError):
        sm.from_bytes(WRONG[what]())


def test_a_group_of_very_many_rows() -> None:
    """Entries are not made rows again where these are many more; pairs beyond int64 are counted."""
    honest = sm.GroupAUC().update(USERS)
    held = sm.GroupAUC().update(y_true=[0, 1, 0, 1], y_score=[0.1, 0.2, 0.3, 0.4], group=[1, 1, 1, 1])
    counts = np.array([1 << 40, 1 << 41, 1 << 40, 1 << 39], np.int64)
    many = sm.from_bytes(with_entry(held, "scores", counts=counts))
    wins = (2 << 40) * (1 << 39) + (1 << 40) * (1 << 41)
    for how in (without_kernels, None):
        if how is None:
            value, (merged, peak) = many.compute(), peak_of(lambda: honest.copy().merge(many).compute())
            assert peak < MIB
            assert 0 <= merged <= 1
        else:
            with how():
                value = sm.from_bytes(many.to_bytes()).compute()
        assert value == wins / ((2 << 40) * ((1 << 41) + (1 << 39)))


@pytest.mark.parametrize("prior", ["beta22", "hand2014"])
def test_classes_of_which_one_has_nearly_all_rows(prior: str) -> None:
    """Their share rounds to 1, and what is left of it to 0: what the other has is divided by, too."""
    for large in (0, 1):
        held = sm.HMeasure(bits=8, prior=prior).update([0, 1], [0.2, 0.7])
        counts = np.where(np.arange(2) == large, 1 << 61, 3).astype(np.int64)
        low, high = (many := sm.from_bytes(with_entry(held, "rows", counts=counts))).bounds()
        assert 0 <= low <= many.compute() <= high <= 1
        assert many.compute() > 0.99


def test_a_partition_is_read_without_kernels() -> None:
    ids = np.arange(9)
    mine = sm.group_partition(ids, 2) == 0
    part = sm.GroupAUC(partition=(0, 2)).update(ids[mine] % 2 == 0, ids[mine] / 9, group=ids[mine])
    data = part.to_bytes()
    with without_kernels():
        assert sm.from_bytes(data).to_bytes() == data


def test_bounds_of_curves_hold_their_ends() -> None:
    """Where weights were rounded a threshold of infinity and a rate of 0 are still certain."""
    curve = sm.ROCCurve().update([0, 1, 0, 1], [0.1, 0.4, 0.2, 0.9], sample_weight=[0.1, 1 / 3, 2.0**-30 / 3, 1])
    for low, value, high in zip(curve.bounds()[0], curve.compute(), curve.bounds()[1], strict=True):
        assert ((low <= value) & (value <= high)).all()
        assert (low >= 0).all()
