"""A merge of ranking states is refused if a log was cut inside a query."""

from __future__ import annotations

import pickle
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import streammetrics as sm
from streammetrics.collect.metric_like import states_of, without_block_ends
from streammetrics.format.frame import Frame
from streammetrics.hooks.lifetime import Lifetime
from streammetrics.serve.evaluation.merge_parts import merge_parts
from streammetrics.state.block_ends import MAX_ENDS, BlockEnds

LOG = {
    "y_true": [0, 2, 1, 1, 0, 0, 3, 1, 0, 1],
    "y_score": [0.9, 0.8, 0.1, 0.7, 0.6, 0.4, 0.3, 0.8, 0.2, 0.5],
    "query": [1, 1, 1, 2, 2, 3, 3, 3, 4, 4],
}
LOG_OF = {q: {n: np.asarray(c)[np.array(LOG["query"]) == q] for n, c in LOG.items()} for q in (1, 2, 3, 4)}
INSIDE, BETWEEN = 4, 5  # cuts inside query 2, and between queries 2 and 3


def count(start: int, stop: int, make: Callable[[], Any] = sm.NDCG, log: dict[str, Any] = LOG) -> Any:
    return make().update({name: np.asarray(column)[start:stop] for name, column in log.items()})


MERGES = {
    "a.merge(b)": lambda a, b: a.merge(b),
    "b.merge(a)": lambda a, b: b.merge(a),
    "objects": lambda a, b: sm.merge([a, b]),
    "copies": lambda a, b: sm.merge([a.copy(), b.copy()]),
    "bytes": lambda a, b: sm.merge([b.to_bytes(), a.to_bytes()]),
    "bytes into an object": lambda a, b: sm.merge([a, b.to_bytes()]),
    "pickles": lambda a, b: sm.merge(pickle.loads(pickle.dumps([a, b]))),
    "an empty object first": lambda a, b: sm.NDCG().merge(a).merge(b),
}


@pytest.mark.parametrize("merge", MERGES.values(), ids=MERGES)
def test_a_cut_inside_a_query_is_refused_and_changes_nothing(merge: Callable[[Any, Any], Any]) -> None:
    a, b = count(0, INSIDE), count(INSIDE, 10)
    before = a.to_bytes(), b.to_bytes()
    with pytest.raises(
        sm.IncompatibleStateError, match=r"^query: query 2 is the last of one part .* cut the log between"
    ):
        merge(a, b)
    assert (a.to_bytes(), b.to_bytes()) == before
    whole = count(0, 10)
    merged = merge(count(0, BETWEEN), count(BETWEEN, 10))
    assert merged == whole
    assert merged.digest() == whole.digest()
    assert merged.compute() == whole.compute()


def test_batches_and_resumed_objects_are_one_part() -> None:
    parts = [count(0, 3), count(5, 8)]
    loaded = sm.from_bytes(parts[0].to_bytes())
    for part in (parts[0].update(LOG_OF[2]), loaded.update(LOG_OF[2])):
        part.compute()
        assert part.to_bytes() == count(0, 5).to_bytes()
        with pytest.raises(sm.IncompatibleStateError, match="query 2"):
            part.merge(count(INSIDE, 10))


def test_a_query_in_three_parts_is_refused() -> None:
    parts = [count(0, 6), count(6, 7), count(7, 10)]
    for order in ([0, 1, 2], [0, 2, 1], [1, 0, 2], [2, 1, 0]):
        with pytest.raises(sm.IncompatibleStateError, match="query 3"):
            sm.merge([parts[i] for i in order])


def test_the_error_names_the_column_and_the_file(tmp_path: Any) -> None:
    def make() -> Any:
        return sm.MetricCollection(sm.Task([sm.NDCG(), sm.Sum()], query=("day", "session"), value="y_true"))

    log = LOG | {"session": np.array(LOG["query"]).astype(str), "day": [1] * 10}
    paths = [sm.save(count(a, b, make, log), tmp_path / f"{a}.smet") for a, b in ((0, INSIDE), (INSIDE, 10))]
    with pytest.raises(
        sm.IncompatibleStateError, match=rf"^{tmp_path}/4.smet: \('day', 'session'\): a query is the last"
    ):
        sm.merge(paths)
    # Queries of two days are different queries, even if they have the same ID.
    parts = [count(0, INSIDE, make, log), count(INSIDE, 10, make, log | {"day": [2] * 10})]
    assert sm.merge(parts)["sum"].compute() == 9


WRAPPERS: dict[str, Callable[[], Any]] = {
    "collection": lambda: sm.MetricCollection(sm.NDCG(), sm.MeanReciprocalRank()),
    "sliced": lambda: sm.Sliced(sm.NDCG(), by="kind"),
    "windowed": lambda: sm.Windowed(sm.NDCG(), width=10, time="step"),
    "sharded": lambda: sm.Sharded(sm.NDCG(), unit="kind"),
    "listed items": lambda: sm.MetricCollection(sm.ranking.ExposureEntropy(k=1)),
    "bundle": lambda: sm.Bundle({"a": sm.NDCG()}),
}


@pytest.mark.parametrize("name", WRAPPERS)
def test_wrappers(name: str) -> None:
    log = LOG | {"kind": [1] * 5 + [2] * 5, "step": [3] * 10, "item": [*range(10)]}
    if name == "bundle":
        halves = [sm.Bundle({"a": count(0, INSIDE)}), sm.Bundle({"a": count(INSIDE, 10)})]
    else:
        halves = [count(0, INSIDE, WRAPPERS[name], log), count(INSIDE, 10, WRAPPERS[name], log)]
    for merge in (lambda a, b: a.copy().merge(b), lambda a, b: sm.merge([a.to_bytes(), b.to_bytes()])):
        with pytest.raises(sm.IncompatibleStateError, match="query 2 is the last of one part"):
            merge(*halves)


def test_a_selected_metric_keeps_its_queries() -> None:
    def make() -> Any:
        return sm.MetricCollection({"ndcg": sm.NDCG(), "mrr": sm.MeanReciprocalRank()})

    with pytest.raises(sm.IncompatibleStateError, match="query 2"):
        count(0, INSIDE, make)["mrr"].merge(count(INSIDE, 10, make)["mrr"])


def test_content_does_not_depend_on_the_ends() -> None:
    order = np.array([8, 9, 0, 1, 2, 5, 6, 7, 3, 4])
    whole, shuffled = count(0, 10), sm.NDCG().update({name: np.asarray(c)[order] for name, c in LOG.items()})
    assert whole == shuffled
    assert whole.digest() == shuffled.digest()
    assert whole.to_bytes() != shuffled.to_bytes()
    assert without_block_ends(whole).to_bytes() == without_block_ends(shuffled).to_bytes()
    assert sm.nbytes(whole) == sm.nbytes(shuffled)


def test_merged_parts_are_saved_without_ends() -> None:
    a, b, c = count(0, 3), count(3, 5), count(5, 10)
    both = sm.merge([a, b])
    assert both.to_bytes() == sm.merge([b, a]).to_bytes() == without_block_ends(both).to_bytes()
    assert sm.from_bytes(both.to_bytes()).merge(c) == count(0, 10)
    # In memory, the ends of all parts are compared with the next part.
    with pytest.raises(sm.IncompatibleStateError, match="query 2"):
        both.merge(count(4, 10))
    assert sm.merge([sm.NDCG(), a]).to_bytes() == a.to_bytes()


def test_reset_and_subtract_forget_the_ends() -> None:
    a = count(0, INSIDE)
    assert count(INSIDE, 10).merge(a.copy().reset()) == count(INSIDE, 10)
    assert a.reset().merge(count(INSIDE, 10)) == count(INSIDE, 10)
    corrected = count(0, 5).subtract(count(3, 5)).merge(count(3, 5))
    assert corrected == count(0, 5)


def test_queries_of_a_shuffled_log_are_not_detected() -> None:
    log = {name: np.asarray(column)[[0, 3, 1, 4]] for name, column in LOG.items()}
    merged = count(0, 2, log=log).merge(count(2, 4, log=log))
    assert merged.explain()["queries"] == 4


def test_lists_and_metrics_without_queries_have_no_ends() -> None:
    lists = sm.NDCG().update([[1, 0], [0, 1]], [[0.5, 0.2], [0.3, 0.4]])
    assert lists.copy().merge(lists.copy()).explain()["queries"] == 4
    for metric in (lists, sm.AUC().update([0, 1], [0.1, 0.9]), sm.NDCG()):
        assert Frame(metric.to_bytes()).ends is None
        assert states_of(metric)[0].block_ends is None


def test_a_lifetime_counts_the_same_queries_in_every_epoch() -> None:
    metric = Lifetime(sm.NDCG(), window=2, panes=2)
    for _ in range(6):
        metric.update(LOG_OF[1])
        metric.update(LOG_OF[2])
    assert metric.lifetime.explain()["queries"] == 12


def test_a_dashboard_accepts_parts_that_share_a_query() -> None:
    parts = [count(0, INSIDE).to_bytes(), count(INSIDE, 10).to_bytes()]
    assert merge_parts(parts).explain()["queries"] == 5


def test_many_parts_take_bounded_memory() -> None:
    parts = [BlockEnds.of_part([i], [i + 1]) for i in range(0, 5 * MAX_ENDS, 2)]
    joined = BlockEnds.join(parts, "query")
    assert joined is not None
    assert len(joined.firsts) == len(joined.lasts) == MAX_ENDS
    total: BlockEnds | None = None
    for part in parts:
        total = BlockEnds.join([total, part], "query")
    assert total is not None
    assert len(total.lasts) <= 2 * MAX_ENDS
    # A total of many parts finds a cut in about as many of them as it has in its sample.
    found = 0
    for part in parts:
        try:
            BlockEnds.join([joined, BlockEnds.of_part(*part.lasts, [-1])], "query")
        except sm.IncompatibleStateError:
            found += 1
    assert found == MAX_ENDS
    # Totals of several parts are not compared with one another.
    assert BlockEnds.join([joined, BlockEnds(joined.lasts, joined.firsts)], "query") is not None


def test_damaged_ends_are_refused() -> None:
    data = count(0, 10).to_bytes()
    ends = Frame(data).ends
    assert ends == [BlockEnds.of_part([1], [4])]
    for damaged in (b"", b"\0", b"\3" + bytes(48), b"\1" + bytes(15), b"\2" + bytes(33), bytes(2)):
        with pytest.raises(sm.StateFormatError, match="corrupt"):
            sm.from_bytes(replace_ends(data, damaged))
    assert Frame(replace_ends(data, b"\2" + bytes(32))).ends == [BlockEnds.of_part([0, 0], [0, 0])]
    flags = bytearray(data)
    flags[6] = 0
    with pytest.raises(sm.StateFormatError, match="corrupt"):
        sm.from_bytes(with_checksum(flags))
    flags[6] = 3
    with pytest.raises(sm.StateFormatError, match="newer release"):
        sm.from_bytes(with_checksum(flags))


def replace_ends(data: bytes, ends: bytes) -> bytes:
    return with_checksum(data[: -4 - 17] + ends + bytes(4))


def with_checksum(data: bytes | bytearray) -> bytes:
    return bytes(data[:-4]) + zlib.crc32(data[:-4]).to_bytes(4, "little")
