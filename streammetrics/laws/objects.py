"""Laws for every kind of object that counts rows: metrics, collections, slices, shards and windows.

The bytes of an object are those that its method `to_bytes` returns.
"""

from __future__ import annotations

import copy
import pickle
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np

from ..collect.metric import METRICS
from ..collect.metric_like import states_of
from ..collect.serialization import from_bytes, merge
from ..errors import IncompatibleStateError, InvalidInputError
from ..state.state import State
from .case import Case, Law, expect, expect_error, expect_same_bytes, shorten, update_by_name, without_warnings
from .specimens import Columns, spoil

THREADS = (1, 2, 4, 16)


def splits(case: Case) -> None:
    """The bytes do not depend on how rows are split into batches and objects, or on the order of merges."""
    whole = case.build()
    for k in (2, 5):
        owners = [case.make() for _ in range(3)]
        for rows in case.parts(k):
            owners[case.rng.integers(3)].update(case.take(rows))
        while len(owners) > 1:
            i, j = case.rng.permutation(len(owners))[:2]
            owners[i].merge(owners[j])
            del owners[j]
        expect_same_bytes(whole, owners[0], f"{k} batches, merged, to give the state of one batch")


def row_by_row(case: Case) -> None:
    """Batches of one row (or of one block of rows, such as a query) give the same bytes as one batch."""
    thing, blocks = case.make(), case.blocks
    for i in range(int(blocks[-1]) + 1 if case.n and blocks[-1] < 20 else min(case.n, 20)):
        thing.update(case.take(blocks == i))
    expect_same_bytes(case.build(case.take(blocks < 20)), thing, "batches of one row to give the state of one batch")


def repeats(case: Case) -> None:
    """Counting the same rows 257 times, too often for an 8-bit counter, gives the same bytes as merging 257 objects."""
    if case.metric is not None and case.metric.make_state().block_column is not None:
        # The law does not apply to metrics whose rows form blocks (such as queries): a block must not be counted twice.
        return
    one = case.build()
    merged, thing = one.copy(), case.make()
    for _ in range(8):
        merged.merge(merged.copy())
    for _ in range(257):
        update_by_name(thing, case.columns)
    expect_same_bytes(merged.merge(one), thing, "counting rows 257 times to equal 257 merges")


def order(case: Case) -> None:
    """The order of the rows does not affect the bytes."""
    expect_same_bytes(case.build(), case.build(case.take(case.shuffle_rows())), "permuted rows to give the same state")


def threads(case: Case) -> None:
    """Threads that update one shared object, or one object each, give the same bytes as a single thread."""
    whole = case.build()
    for k in THREADS:
        batches = [case.take(rows) for rows in case.parts(k)]
        shared, own = case.make(), [case.make() for _ in batches]
        run_in_threads([partial(shared.update, b) for b in batches])
        expect_same_bytes(whole, shared, f"{k} threads that update one object to give the state of one thread")
        run_in_threads([partial(o.update, b) for o, b in zip(own, batches, strict=True)])
        expect_same_bytes(whole, merge(own), f"the merged objects of {k} threads to equal the object of one thread")


def run_in_threads(actions: Sequence[Callable[[], Any]]) -> None:
    """Run each action in its own thread, all at the same time, and then raise the first error, if any."""
    gate, failed = threading.Barrier(len(actions)), list[BaseException]()

    def run(action: Callable[[], Any]) -> None:
        gate.wait()
        try:
            action()
        except BaseException as error:  # noqa: BLE001
            # The error must not be lost with its thread, so the calling thread raises it below.
            failed.append(error)

    started = [threading.Thread(target=run, args=(action,)) for action in actions]
    for thread in started:
        thread.start()
    for thread in started:
        thread.join()
    if failed:
        raise failed[0]


def merge_commutes(case: Case) -> None:
    """Merging a into b gives the same bytes as merging b into a."""
    a, b = (case.build(case.take(rows)) for rows in case.parts(2))
    expect_same_bytes(a.copy().merge(b), b.copy().merge(a), "a + b to be b + a")


def merge_associates(case: Case) -> None:
    """(a + b) + c gives the same bytes as a + (b + c)."""
    a, b, c = (case.build(case.take(rows)) for rows in case.parts(3))
    expect_same_bytes(a.copy().merge(b).merge(c), a.copy().merge(b.copy().merge(c)), "(a + b) + c to be a + (b + c)")


def empty_is_identity(case: Case) -> None:
    """Merging with an empty object, on either side, changes nothing, and an empty batch changes nothing."""
    a = case.build()
    expect_same_bytes(a, a.copy().merge(case.make()), "a + empty to be a")
    expect_same_bytes(a, case.make().merge(a), "empty + a to be a")
    expect_same_bytes(case.make(), case.build(case.take([])), "an empty batch to change nothing")


def merge_leaves_other(case: Case) -> None:
    """`merge` does not change its argument, even if the result later counts more rows."""
    a, b = (case.build(case.take(rows)) for rows in case.parts(2))
    before = b.to_bytes()
    a.merge(b)
    expect(b.to_bytes() == before, "`other` to be as it was after a merge", "other bytes")
    a.update(case.next_columns()).merge(case.build(case.next_columns(2)))
    expect(b.to_bytes() == before, "`other` to share no memory with the merged object", "other bytes")


def merge_with_itself(case: Case) -> None:
    """Merging an object with itself raises an error, and changes nothing."""
    a = case.build()
    before = a.digest()
    expect_error(IncompatibleStateError, partial(a.merge, a), "a.merge(a)")
    expect(a.digest() == before, "a refused merge to change nothing", "another digest")


def reset_is_fresh(case: Case) -> None:
    """After `reset`, an object equals a new one, and counts rows like a new one."""
    a = case.build().reset()
    expect_same_bytes(case.make(), a, "an empty object after a reset")
    expect_same_bytes(case.build(), a.update(case.columns), "rows to count as usual after a reset")


def copy_is_independent(case: Case) -> None:
    """Updating a copy does not change the original, and updating the original does not change the copy."""
    a = case.build()
    before, b = a.to_bytes(), a.copy()
    b.update(case.next_columns()).merge(case.build(case.next_columns(2)))
    expect(a.to_bytes() == before, "an update of a copy not to change the original", "other bytes")
    b = a.copy()
    a.update(case.next_columns()).reset()
    expect(b.to_bytes() == before, "an update of the original not to change a copy", "other bytes")


def bytes_round_trip(case: Case) -> None:
    """from_bytes(to_bytes()), pickle, copy and deepcopy give an equal object, which counts further rows as usual."""
    a = case.build()
    after = case.build().update(case.next_columns())
    for name, b in _copies(a):
        expect_same_bytes(a, b, f"{name} to give an equal object")
        expect(a == b and b == a, f"{name} to give an object that is == the original", "False")
        expect_same_bytes(after, b.update(case.next_columns()), f"the object from {name} to continue to count")


def _copies(a: Any) -> Iterator[tuple[str, Any]]:
    yield "from_bytes", from_bytes(a.to_bytes())
    yield "pickle", pickle.loads(pickle.dumps(a))
    yield "copy", copy.copy(a)
    yield "deepcopy", copy.deepcopy(a)


def reading_changes_nothing(case: Case) -> None:
    """compute(), bounds(), explain(), interval(), table() and repr() do not change the bytes of the object."""
    a = case.build()
    before = a.to_bytes()
    for name in ("compute", "bounds", "explain", "interval", "table", "plan", "__repr__", "__len__"):
        if hasattr(a, name):
            first, second = without_warnings(getattr(a, name)), without_warnings(getattr(a, name))
            expect(repr(first) == repr(second), f"{name}() to return the same again: {shorten(first)}", shorten(second))
            expect(a.to_bytes() == before, f"{name}() to change nothing", "other bytes")


def failed_update_changes_nothing(case: Case) -> None:
    """A batch that raises an error does not change the state, and the next batch is counted as usual."""
    for prior in (case.make(), case.build()):
        before = prior.digest()
        for what, columns in _bad_batches(case):
            for update in (partial(prior.update, columns), partial(update_by_name, prior, columns)):
                expect_error(InvalidInputError, update, what)
                expect(prior.digest() == before, f"{what} to leave the state as it was", "another digest")
        clean = from_bytes(prior.to_bytes()).update(case.next_columns())
        expect_same_bytes(clean, prior.update(case.next_columns()), "the batch after a refused one to count as usual")


def _bad_batches(case: Case) -> Iterator[tuple[str, Columns]]:
    for name, column in case.columns.items():
        if not case.n:
            continue
        if len(case.columns) > 1:
            yield f"a column {name!r} that is too short", case.columns | {name: column[:-1]}
        yield f"a column {name!r} with an extra dimension", case.columns | {name: np.stack([column] * 7, -1)}
        if name in case.bad and getattr(case.make(), "on_invalid", "raise") == "raise":
            at = int(case.rng.integers(case.n))
            spoiled = spoil(column, at, case.bad[name])
            yield f"{name} = {case.bad[name]} in row {at}", case.columns | {name: spoiled}
    must = [n.role for n in case.needs if not n.optional]
    for name in must:
        yield f"no column {name!r}", {k: v for k, v in case.columns.items() if k != name} or {"unused": np.zeros(1)}


def failed_merge_changes_nothing(case: Case) -> None:
    """A merge with an incompatible object raises an error and changes neither object."""
    a = case.build()
    before = a.to_bytes()
    for other in (object(), states_of(a)[0], _other_metric(a)):
        theirs = pickle.dumps(other)
        expect_error(IncompatibleStateError, partial(a.merge, other), f"merging {shorten(other)}")
        expect(a.to_bytes() == before, "a refused merge to change nothing", "other bytes")
        expect(pickle.dumps(other) == theirs, "a refused merge to leave `other` as it was", "other bytes")


def _other_metric(thing: Any) -> Any:
    for cls in METRICS.values():
        if not isinstance(thing, cls):
            return cls(**cls.about.example)
    return object()


def absent_class(case: Case) -> None:
    """States of unknown classes can be loaded, copied, saved and merged, unless merging requires histogram buckets."""
    parts = [case.build(case.take(rows)) for rows in case.parts(2)]
    whole, (a, b) = merge([p.to_bytes() for p in parts]), (p.to_bytes() for p in parts)
    merged, folds = whole.to_bytes(), _may_outgrow_limit(whole, parts)
    with _empty_registries():
        one, two = from_bytes(a), from_bytes(b)
        expect(one.copy().to_bytes() == a, "a state of an unknown class to be saved as it was loaded", "other bytes")
        expect(
            from_bytes(merged).to_bytes() == merged,
            "a merged state of an unknown class to be saved as it was loaded",
            "other bytes",
        )
        # If the merge would have to move exact rows to histogram buckets, it must raise an error, because only the
        # state's class can move them.
        if folds:
            expect_error(
                IncompatibleStateError, partial(one.merge, two), "a merge that needs buckets of an unknown class"
            )
            expect(one.to_bytes() == a, "a refused merge to change nothing", "other bytes")
        else:
            expect(one.merge(two).to_bytes() == merged, "states of unknown classes to merge like others", "other bytes")
        expect(two.to_bytes() == b, "`other` to stay as it was", "other bytes")


def _may_outgrow_limit(whole: Any, parts: list[Any]) -> bool:
    """Return whether merging the parts into `whole` could move some of their exact rows to histogram buckets.

    A state stores the rows of a cell exactly until their number exceeds a limit. States whose `folds_by_rows` is False
    compare a number other than the row count with the limit, and only their class can compute this number. For such
    states, return True if any cell has more rows than the limit.
    """
    asking: list[Any] = [s for s in states_of(whole) if s.folding is not None and not s.folds_by_rows]
    large = any((s.rows_by_cell(s.folding[0]) > s.exact_rows_limit).any() for s in asking)
    return large or _count_bucketed_rows(whole) > sum(map(_count_bucketed_rows, parts))


def _count_bucketed_rows(thing: Any) -> int:
    """Return the number of rows in histogram buckets, that is, of rows that are no longer kept exactly."""
    folding = [(s.cells.tallies, s.folding[1]) for s in states_of(thing) if s.folding is not None]
    return sum(int(tallies[rows].counts.sum()) for tallies, rows in folding)


@contextmanager
def _empty_registries() -> Iterator[None]:
    states, metrics = dict(State.by_tag), dict(METRICS)
    State.by_tag.clear()
    METRICS.clear()
    try:
        yield
    finally:
        State.by_tag.update(states)
        METRICS.update(metrics)


OBJECT_LAWS: list[Law] = [
    splits,
    row_by_row,
    order,
    threads,
    merge_commutes,
    merge_associates,
    repeats,
    empty_is_identity,
    merge_leaves_other,
    merge_with_itself,
    reset_is_fresh,
    copy_is_independent,
    bytes_round_trip,
    reading_changes_nothing,
    failed_update_changes_nothing,
    failed_merge_changes_nothing,
    absent_class,
]
"""The laws of this module, in the order in which `check_metric` runs them."""
