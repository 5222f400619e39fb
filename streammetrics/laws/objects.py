"""Laws of everything that counts rows: metrics, collections and slices alike."""

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
from .case import Case, Law, by_name, expect, quiet, refuses, same, shown
from .specimens import Columns, spoil

THREADS = (1, 2, 4, 16)


def splits(case: Case) -> None:
    """Any split of the rows into batches, owners and merge trees gives the same bytes."""
    whole = case.fed()
    for k in (2, 5):
        owners = [case.make() for _ in range(3)]
        for rows in case.parts(k):
            owners[case.rng.integers(3)].update(case.take(rows))
        while len(owners) > 1:
            i, j = case.rng.permutation(len(owners))[:2]
            owners[i].merge(owners[j])
            del owners[j]
        same(whole, owners[0], f"{k} batches, merged, to give the state of one batch")


def row_by_row(case: Case) -> None:
    """Batches of one row, or of one block, give the same bytes as one batch."""
    thing, blocks = case.make(), case.blocks
    for i in range(int(blocks[-1]) + 1 if case.n and blocks[-1] < 20 else min(case.n, 20)):
        thing.update(case.take(blocks == i))
    same(case.fed(case.take(blocks < 20)), thing, "batches of one row to give the state of one batch")


def repeats(case: Case) -> None:
    """The same rows 257 times give the bytes of as many merges: no counter runs over, not even in many places at once."""
    if case.metric is not None and case.metric.make_state().together is not None:
        return  # blocks must not return
    one = case.fed()
    merged, thing = one.copy(), case.make()
    for _ in range(8):
        merged.merge(merged.copy())
    for _ in range(257):
        by_name(thing, case.columns)
    same(merged.merge(one), thing, "rows that come 257 times to give what 257 merges give")


def order(case: Case) -> None:
    """Any order of the rows gives the same bytes."""
    same(case.fed(), case.fed(case.take(case.shuffled())), "permuted rows to give the same state")


def threads(case: Case) -> None:
    """Threads that update one object, or an object each, give the same bytes."""
    whole = case.fed()
    for k in THREADS:
        batches = [case.take(rows) for rows in case.parts(k)]
        shared, own = case.make(), [case.make() for _ in batches]
        together([partial(shared.update, b) for b in batches])
        same(whole, shared, f"{k} threads that update one object to give the state of one")
        together([partial(o.update, b) for o, b in zip(own, batches, strict=True)])
        same(whole, merge(own), f"{k} threads that update an object each, merged, to give the state of one")


def together(actions: Sequence[Callable[[], Any]]) -> None:
    """Run actions in threads that begin at once; raise what one of them raised."""
    gate, failed = threading.Barrier(len(actions)), list[BaseException]()

    def run(action: Callable[[], Any]) -> None:
        gate.wait()
        try:
            action()
        except BaseException as error:  # noqa: BLE001 - raised below, in the thread of the caller
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
    a, b = (case.fed(case.take(rows)) for rows in case.parts(2))
    same(a.copy().merge(b), b.copy().merge(a), "a + b to be b + a")


def merge_associates(case: Case) -> None:
    """(a + b) + c gives the same bytes as a + (b + c)."""
    a, b, c = (case.fed(case.take(rows)) for rows in case.parts(3))
    same(a.copy().merge(b).merge(c), a.copy().merge(b.copy().merge(c)), "(a + b) + c to be a + (b + c)")


def empty_is_identity(case: Case) -> None:
    """Merging with an empty one changes nothing, on either side; nor does an empty batch."""
    a = case.fed()
    same(a, a.copy().merge(case.make()), "a + empty to be a")
    same(a, case.make().merge(a), "empty + a to be a")
    same(case.make(), case.fed(case.take([])), "an empty batch to change nothing")


def merge_leaves_other(case: Case) -> None:
    """What is merged stays as it was, also when the result goes on counting."""
    a, b = (case.fed(case.take(rows)) for rows in case.parts(2))
    before = b.to_bytes()
    a.merge(b)
    expect(b.to_bytes() == before, "`other` to be as it was after a merge", "other bytes")
    a.update(case.again()).merge(case.fed())
    expect(b.to_bytes() == before, "`other` to share nothing with what it was merged into", "other bytes")


def merge_with_itself(case: Case) -> None:
    """Merging an object with itself raises, and changes nothing."""
    a = case.fed()
    before = a.digest()
    refuses(IncompatibleStateError, partial(a.merge, a), "a.merge(a)")
    expect(a.digest() == before, "a refused merge to change nothing", "another digest")


def reset_is_fresh(case: Case) -> None:
    """After a reset it is as if it had been made now, and counts like it."""
    a = case.fed().reset()
    same(case.make(), a, "a reset to leave nothing")
    same(case.fed(), a.update(case.columns), "rows to count as usual after a reset")


def copy_is_independent(case: Case) -> None:
    """A copy and its origin do not see each other's rows."""
    a = case.fed()
    before, b = a.to_bytes(), a.copy()
    b.update(case.again()).merge(case.fed())
    expect(a.to_bytes() == before, "rows of a copy not to reach its origin", "other bytes")
    b = a.copy()
    a.update(case.again()).reset()
    expect(b.to_bytes() == before, "rows of the origin not to reach a copy", "other bytes")


def bytes_round_trip(case: Case) -> None:
    """from_bytes(to_bytes()), pickle, copy and deepcopy give an equal object, which goes on counting."""
    a = case.fed()
    after = case.fed().update(case.again())
    for name, b in _twins(a):
        same(a, b, f"{name} to give an equal object")
        expect(a == b and b == a, f"{name} to give an object that is == its origin", "False")
        same(after, b.update(case.again()), f"what {name} gives to go on counting")


def _twins(a: Any) -> Iterator[tuple[str, Any]]:
    yield "from_bytes", from_bytes(a.to_bytes())
    yield "pickle", pickle.loads(pickle.dumps(a))
    yield "copy", copy.copy(a)
    yield "deepcopy", copy.deepcopy(a)


def reading_changes_nothing(case: Case) -> None:
    """compute(), bounds(), explain(), interval(), table() and repr() leave every byte as it is."""
    a = case.fed()
    before = a.to_bytes()
    for name in ("compute", "bounds", "explain", "interval", "table", "plan", "__repr__", "__len__"):
        if hasattr(a, name):
            first, second = quiet(getattr(a, name)), quiet(getattr(a, name))
            expect(repr(first) == repr(second), f"{name}() to return the same again: {shown(first)}", shown(second))
            expect(a.to_bytes() == before, f"{name}() to change nothing", "other bytes")


def failed_update_changes_nothing(case: Case) -> None:
    """A batch that is refused leaves the state as it was, and the next one counts as usual."""
    for prior in (case.make(), case.fed()):
        before = prior.digest()
        for what, columns in _bad_batches(case):
            for update in (partial(prior.update, columns), partial(by_name, prior, columns)):
                refuses(InvalidInputError, update, what)
                expect(prior.digest() == before, f"{what} to leave the state as it was", "another digest")
        clean = from_bytes(prior.to_bytes()).update(case.again())
        same(clean, prior.update(case.again()), "the batch after a refused one to count as usual")


def _bad_batches(case: Case) -> Iterator[tuple[str, Columns]]:
    for name, column in case.columns.items():
        if not case.n:
            continue
        if len(case.columns) > 1:
            yield f"a column {name!r} that is too short", case.columns | {name: column[:-1]}
        yield f"a column {name!r} of a dimension more", case.columns | {name: np.stack([column] * 7, -1)}
        if name in case.bad and getattr(case.make(), "on_invalid", "raise") == "raise":
            at = int(case.rng.integers(case.n))
            spoiled = spoil(column, at, case.bad[name])
            yield f"{name} = {case.bad[name]} in row {at}", case.columns | {name: spoiled}
    must = [n.role for n in case.needs if not n.optional]
    for name in must:
        yield f"no column {name!r}", {k: v for k, v in case.columns.items() if k != name} or {"unused": np.zeros(1)}


def failed_merge_changes_nothing(case: Case) -> None:
    """A merge with something else raises and leaves both as they were."""
    a = case.fed()
    before = a.to_bytes()
    for other in (object(), states_of(a)[0], _another(a)):
        theirs = pickle.dumps(other)
        refuses(IncompatibleStateError, partial(a.merge, other), f"merging {shown(other)}")
        expect(a.to_bytes() == before, "a refused merge to change nothing", "other bytes")
        expect(pickle.dumps(other) == theirs, "a refused merge to leave `other` as it was", "other bytes")


def _another(thing: Any) -> Any:
    for cls in METRICS.values():
        if not isinstance(thing, cls):
            return cls(**cls.about.example)
    return object()


def absent_class(case: Case) -> None:
    """Where the package of a state is not imported its bytes load, copy and are written alike, and merge or ask for it."""
    parts = [case.fed(case.take(rows)) for rows in case.parts(2)]
    whole, (a, b) = merge([p.to_bytes() for p in parts]), (p.to_bytes() for p in parts)
    merged, folds = whole.to_bytes(), _outgrows(whole, parts)
    with _nothing_registered():
        one, two = from_bytes(a), from_bytes(b)
        expect(one.copy().to_bytes() == a, "an unknown class to be copied and written as it was read", "other bytes")
        expect(from_bytes(merged).to_bytes() == merged, "what was merged to be written as it was read", "other bytes")
        if folds:  # only a class knows its buckets
            refuses(IncompatibleStateError, partial(one.merge, two), "rows that go to buckets of an unknown class")
            expect(one.to_bytes() == a, "a refused merge to change nothing", "other bytes")
        else:
            expect(one.merge(two).to_bytes() == merged, "unknown classes to merge like known ones", "other bytes")
        expect(two.to_bytes() == b, "`other` to stay as it was", "other bytes")


def _outgrows(whole: Any, parts: list[Any]) -> bool:
    """Whether rows go to buckets, or only a class knows that they do not."""
    asking: list[Any] = [s for s in states_of(whole) if s.folds is not None and not s.folds_by_rows]
    large = any((s.by_cell(s.folds[0]) > s.most).any() for s in asking)
    return large or _bucketed(whole) > sum(map(_bucketed, parts))


def _bucketed(thing: Any) -> int:
    """How many rows are in buckets, of cells that had too many to keep them exactly."""
    folding = [(s.cells.tallies, s.folds[1]) for s in states_of(thing) if s.folds is not None]
    return sum(int(tallies[rows].counts.sum()) for tallies, rows in folding)


@contextmanager
def _nothing_registered() -> Iterator[None]:
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
"""What metrics, collections and slices all keep."""
