"""Metrics of all ranks of torch.distributed as one.

Bytes travel over a gloo group of this module's own, made from the store of the group that is asked for. The training's
group carries nothing: a timeout closes a gloo group for ever, and a stuck nccl collective ends the process.
"""

from __future__ import annotations

import os
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from torch.distributed.distributed_c10d import AllgatherOptions, AllreduceOptions, BroadcastOptions

from ..collect.metric_like import MetricLike
from ..errors import SyncError
from .deadline import TIMEOUT, Deadline
from .exchange import add_up, spelled

__all__ = ["sync"]

H = TypeVar("H", bound=MetricLike)

GRACE = 1.0  # seconds to note that a group is closed
MARGIN = 0.2  # seconds before the end in which the absent are named
LONGEST_PAUSE = 0.05  # seconds between two looks at who is there
PADDING = 1 << 16  # bytes for each rank that are sent for nothing rather than one message after the other


def sync(metrics: H, group: Any = None, timeout: float | timedelta = TIMEOUT) -> H:
    """Add up what all ranks have seen.

    Every rank of the group calls it, as often as the others, and gets the same. What was counted is on the CPU, so nothing
    is on the device: it works beside any backend.

    Parameters
    ----------
    metrics : Metric, MetricCollection, Sliced or Bundle
        What this rank has counted; it stays as it is, so that counting may go on.
    group : ProcessGroup, optional
        The ranks that take part; all, if it is not given.
    timeout : float or timedelta
        Seconds that it may take; the same on all ranks.

    Returns
    -------
    object of the same kind
        What all ranks have seen: of equal digest on all of them, and to one pass over all rows. A copy, where there is one
        process, or torch.distributed is not initialized.

    Raises
    ------
    IncompatibleStateError
        Ranks count different things: all raise, and name the difference and the ranks.
    SyncTimeoutError
        A rank did not answer in time: it is stuck, gone, or has not called this.
    SyncError
        A rank died, or its metrics could not be read, such as after a bad batch: all others raise, and name it. Or a
        launcher has started several processes, and torch.distributed is not initialized.
    ValueError
        This rank is not in the group.

    Notes
    -----
    The first call makes a gloo group, some 10 ms. After an error the next call makes a new one, and works if all ranks
    call it; the group of the training is as it was. Cost: two messages and a merge; histograms with many entries are
    added as counters on the way (all-reduce), everything else is gathered.

    Examples
    --------
    >>> import streammetrics as sm
    >>> from streammetrics.hooks import torch_distributed
    >>> metrics = sm.MetricCollection(sm.AUC(), sm.LogLoss()).update([0, 1], [0.2, 0.7])
    >>> torch_distributed.sync(metrics, timeout=60).compute()["auc"]
    1.0
    """
    deadline = Deadline(timeout)
    if not (dist.is_available() and dist.is_initialized()):
        _check_alone()
        return metrics.copy()
    rank, size = dist.get_rank(group), dist.get_world_size(group)
    if rank < 0:
        raise ValueError("this rank is not in the group: only its members call sync")
    if size == 1:
        return metrics.copy()
    whole = dist.group.WORLD if group is None else group
    made = _joined(whole, rank, size, deadline)
    transport = _Gloo(made.gloo, rank, size, deadline)
    try:
        return add_up(metrics, transport)
    finally:
        if transport.broken:  # errors that all ranks agree on leave the group as it is
            _leave(whole, made.number)


def _check_alone() -> None:
    """Raise where a launcher has started several processes, of which this would be taken for the only one."""
    size = os.environ.get("WORLD_SIZE", "1")
    if size.isdigit() and int(size) > 1:
        raise SyncError(
            f"torchrun has started {size} processes (WORLD_SIZE), but torch.distributed is not initialized in this one: "
            f"call torch.distributed.init_process_group() first"
        )


# -- the own group -----------------------------------------------------------------------------------------------------


class _Made(NamedTuple):
    """A gloo group, and how many were closed before."""

    gloo: Any
    number: int


_groups: weakref.WeakKeyDictionary[Any, _Made] = weakref.WeakKeyDictionary()


def _store(group: Any) -> Any:
    """Where the members of a group find each other."""
    return dist.PrefixStore("streammetrics", dist.distributed_c10d._get_process_group_store(group))


def _joined(group: Any, rank: int, size: int, deadline: Deadline) -> _Made:
    """Return the own group beside a group of the training: the one that no rank has closed."""
    store = _store(group)
    with _naming(deadline, "asking the store of the group"):
        number = deadline.call(lambda: store.add("closed", 0), "asking the store of the group")
    known = _groups.get(group)
    if known is not None and known.number == number:
        return known
    try:
        with _naming(deadline, "meeting the other ranks"):
            gloo = deadline.call(lambda: _met(store, number, rank, size, deadline), "meeting the other ranks")
    except SyncError:
        _leave(group, number)
        raise
    made = _groups[group] = _Made(gloo, number)
    return made


def _met(store: Any, number: int, rank: int, size: int, deadline: Deadline) -> Any:
    """Wait until all ranks are there, looking now and then: a store that waits lets nobody else ask it."""
    names, keys, pause = dist.PrefixStore(str(number), store), [f"here {r}" for r in range(size)], 0.001
    names.set(keys[rank], "")
    while not names.check(keys):
        if deadline.left < min(MARGIN, deadline.seconds / 10):
            absent = [r for r in range(size) if not names.check([keys[r]])]
            raise deadline.error(f"waiting for {spelled(absent)}" if absent else "meeting the other ranks")
        time.sleep(pause)
        pause = min(2 * pause, LONGEST_PAUSE)
    return dist.ProcessGroupGloo(names, rank, size, timedelta(seconds=deadline.left))


def _leave(group: Any, number: int) -> None:
    """Forget a group that an error has closed, and let all ranks know; where the store is gone, too, none needs to."""
    _groups.pop(group, None)
    store = _store(group)

    def note() -> None:
        if store.add(f"{number}/closed", 1) == 1:
            store.add("closed", 1)

    with suppress(RuntimeError):
        Deadline(GRACE).call(note, "leaving the group")


@contextmanager
def _naming(deadline: Deadline, doing: str) -> Iterator[None]:
    """Let errors of torch say what they mean here."""
    try:
        yield
    except SyncError:
        raise
    except RuntimeError as error:
        if deadline.left < 0.01 * deadline.seconds:
            raise deadline.error(doing) from error
        raise SyncError(f"{doing} failed: a rank is gone, or gave up; all metrics are as they were") from error


# -- what carries bytes ------------------------------------------------------------------------------------------------


class _Gloo:
    """A gloo group as a transport."""

    sums = True

    def __init__(self, gloo: Any, rank: int, size: int, deadline: Deadline) -> None:
        self.gloo, self.rank, self.size, self.deadline = gloo, rank, size, deadline
        self.broken = False

    def gather_uneven(self, data: bytes, lengths: Sequence[int]) -> list[memoryview]:
        widest, total = max(lengths), sum(lengths)
        if widest * self.size <= 2 * total + PADDING * self.size:
            return self._padded(data, lengths)
        return [self._sent(data, root, length) for root, length in enumerate(lengths)]

    def sum(self, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        tensor, options = torch.from_numpy(numbers.copy()), AllreduceOptions()
        self._wait(options, lambda: self.gloo.allreduce([tensor], options))
        summed: NDArray[np.int64] = tensor.numpy()
        return summed

    def _padded(self, data: bytes, lengths: Sequence[int]) -> list[memoryview]:
        widest = max(lengths)
        mine = torch.zeros(widest, dtype=torch.uint8)
        mine.numpy()[: len(data)] = np.frombuffer(data, np.uint8)
        parts, options = [torch.empty_like(mine) for _ in lengths], AllgatherOptions()
        if widest:
            self._wait(options, lambda: self.gloo.allgather([parts], [mine], options))
        return [memoryview(p.numpy())[:n] for p, n in zip(parts, lengths, strict=True)]

    def _sent(self, data: bytes, root: int, length: int) -> memoryview:
        """The bytes of one rank."""
        tensor, options = torch.empty(length, dtype=torch.uint8), BroadcastOptions()
        if root == self.rank:
            tensor.numpy()[:] = np.frombuffer(data, np.uint8)
        options.rootRank, options.rootTensor = root, 0
        if length:
            self._wait(options, lambda: self.gloo.broadcast([tensor], options))
        return memoryview(tensor.numpy())

    def _wait(self, options: Any, start: Callable[[], Any]) -> None:
        left, self.broken = self.deadline.left, True
        if not left:
            raise self.deadline.error("adding up")
        options.timeout = timedelta(seconds=left)
        with _naming(self.deadline, "adding up"):
            start().wait(options.timeout)
        self.broken = False
