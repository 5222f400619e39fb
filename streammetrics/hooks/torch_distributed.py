"""Merge the metrics of all ranks of torch.distributed.

Bytes are sent over a private gloo group. Its ranks find each other through the key-value store of the training process
group. The training process group itself is not used, because an error in it would harm the training run: a timeout
closes a gloo group for good, and an nccl operation that hangs ends the process.
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
from .deferred import Deferred
from .exchange import format_ranks, merge_ranks, read_metrics

__all__ = ["sync"]

H = TypeVar("H", bound=MetricLike)

# The time limit in seconds for telling other ranks, through the key-value store, that a private group is closed.
CLOSE_SECONDS = 1.0
# Waiting for other ranks ends this many seconds before the time limit (or a tenth of the limit, if that is less), to
# leave time to find out which ranks are missing.
REPORT_SECONDS = 0.2
# The longest pause in seconds between two polls of the key-value store.
MAX_PAUSE = 0.05
# A single all-gather sends the data of all ranks, padded to the same length. If the padding would exceed the total size
# of the data plus this many bytes per rank, each rank broadcasts its data instead.
MAX_PADDING = 1 << 16


def sync(metrics: H | Deferred[H], group: Any = None, timeout: float | timedelta = TIMEOUT) -> H:
    """Merge the metrics of all ranks of a group.

    Every rank must call this function the same number of times. All ranks get the same result. Metric states are in host
    memory, so the function works with any backend of the training process group, such as nccl.

    Parameters
    ----------
    metrics : Metric, MetricCollection, Sliced, Bundle or Deferred
        The metrics of this rank. They do not change, so counting can continue.
    group : ProcessGroup, optional
        The group of ranks; by default all ranks.
    timeout : float or timedelta
        The time limit, in seconds; the same on all ranks. A rank may compile kernels for its first batch with weights,
        so allow a few seconds for this. Hooks such as `Deferred` compile kernels earlier, as does
        `streammetrics.hooks.compilation.compile_kernels`.

    Returns
    -------
    object of the type of `metrics`; for Deferred, of the type of the metrics inside it
        The merged metrics. Their digest is the same on all ranks, and the same as after one pass over all rows. With one
        process, or if torch.distributed is not initialized, the result is a copy of this rank's metrics.

    Raises
    ------
    IncompatibleStateError
        Ranks have different metrics or settings. All ranks raise this error, and its message lists the differences and
        the ranks.
    SyncTimeoutError
        A rank did not answer in time: it is stuck, gone, or has not called this function.
    SyncError
        A rank died, or its metrics could not be read, for example after a batch with invalid values. All other ranks
        raise this error, and its message names the rank that failed. It is also raised if a launcher has started
        several processes, but torch.distributed is not initialized.
    ValueError
        This rank is not in the group.

    Notes
    -----
    The first call creates a gloo group, in about 10 ms. After an error, the next call creates a new one, and works if
    all ranks call it; the training process group does not change. In a call, each rank sends two messages and merges
    the states. Histograms with many entries are summed as counters by an all-reduce; all other states are gathered.

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
        _check_launcher()
        return read_metrics(metrics).copy()
    rank, size = dist.get_rank(group), dist.get_world_size(group)
    if rank < 0:
        raise ValueError("this rank is not in the process group; call sync only on ranks of the group")
    if size == 1:
        return read_metrics(metrics).copy()
    full_group = dist.group.WORLD if group is None else group
    sync_group = _join_group(full_group, rank, size, deadline)
    transport = _GlooTransport(sync_group.gloo, rank, size, deadline)
    try:
        return merge_ranks(metrics, transport)
    finally:
        # An operation that did not finish makes the gloo group unusable. Close the group, so that the next call creates
        # a new one.
        if transport.broken:
            _close_group(full_group, sync_group.number)


def _check_launcher() -> None:
    """Raise SyncError if a launcher such as torchrun has started several processes.

    Without torch.distributed, `sync` would silently return the metrics of this process alone.
    """
    size = os.environ.get("WORLD_SIZE", "1")
    if size.isdigit() and int(size) > 1:
        raise SyncError(
            f"torchrun has started {size} processes (WORLD_SIZE), but torch.distributed is not initialized in this "
            f"process; call torch.distributed.init_process_group() first"
        )


# -- the private group -------------------------------------------------------------------------------------------------


class _SyncGroup(NamedTuple):
    """A private gloo group; `number` is the number of private groups of the same ranks that were closed before it."""

    gloo: Any
    number: int


_groups: weakref.WeakKeyDictionary[Any, _SyncGroup] = weakref.WeakKeyDictionary()


def _find_store(group: Any) -> Any:
    """Return the key-value store that the ranks of a group share."""
    return dist.PrefixStore("streammetrics", dist.distributed_c10d._get_process_group_store(group))


def _join_group(group: Any, rank: int, size: int, deadline: Deadline) -> _SyncGroup:
    """Return the private gloo group that belongs to a process group of the training run.

    A new private group is created on the first call, and after a rank has closed the previous one. The store counts the
    closed groups, so all ranks agree on the number of the current group.

    Parameters
    ----------
    group : ProcessGroup
        The process group of the training run.
    rank, size : int
        The rank of this process in the group, and the number of ranks.
    deadline : Deadline
        The time limit.
    """
    store = _find_store(group)
    with _translate_errors(deadline, "reading the store of the process group"):
        number = deadline.call(lambda: store.add("closed", 0), "reading the store of the process group")
    known = _groups.get(group)
    if known is not None and known.number == number:
        return known
    try:
        with _translate_errors(deadline, "connecting to the other ranks"):
            gloo = deadline.call(
                lambda: _wait_for_ranks(store, number, rank, size, deadline), "connecting to the other ranks"
            )
    except SyncError:
        _close_group(group, number)
        raise
    sync_group = _groups[group] = _SyncGroup(gloo, number)
    return sync_group


def _wait_for_ranks(store: Any, number: int, rank: int, size: int, deadline: Deadline) -> Any:
    """Wait until all ranks have registered in the store, and return a new gloo group of these ranks.

    The function polls the store, because a blocking wait would lock it for other threads. `number` is the number of
    private groups that were closed before. The keys in the store begin with this number, so that each group has its own
    keys.
    """
    names, keys, pause = dist.PrefixStore(str(number), store), [f"here {r}" for r in range(size)], 0.001
    names.set(keys[rank], "")
    while not names.check(keys):
        if deadline.remaining < min(REPORT_SECONDS, deadline.seconds / 10):
            absent = [r for r in range(size) if not names.check([keys[r]])]
            raise deadline.build_error(
                f"waiting for {format_ranks(absent)}" if absent else "connecting to the other ranks"
            )
        time.sleep(pause)
        pause = min(2 * pause, MAX_PAUSE)
    return dist.ProcessGroupGloo(names, rank, size, timedelta(seconds=deadline.remaining))


def _close_group(group: Any, number: int) -> None:
    """Drop the private group with this number, and record in the store that it is closed.

    The record makes other ranks drop the group, too. If the store cannot be reached within a second, the record is
    skipped.
    """
    _groups.pop(group, None)
    store = _find_store(group)

    def note() -> None:
        if store.add(f"{number}/closed", 1) == 1:
            store.add("closed", 1)

    with suppress(RuntimeError):
        Deadline(CLOSE_SECONDS).call(note, "leaving the group")


@contextmanager
def _translate_errors(deadline: Deadline, doing: str) -> Iterator[None]:
    """Convert torch errors to SyncError, or to SyncTimeoutError after the deadline; `doing` names the operation."""
    try:
        yield
    except SyncError:
        raise
    except RuntimeError as error:
        if deadline.remaining < 0.01 * deadline.seconds:
            raise deadline.build_error(doing) from error
        raise SyncError(f"{doing} failed: a rank has ended or given up; the metrics are unchanged") from error


# -- the transport -----------------------------------------------------------------------------------------------------


class _GlooTransport:
    """A `Transport` that sends bytes between the ranks of a gloo group."""

    sums = True

    def __init__(self, gloo: Any, rank: int, size: int, deadline: Deadline) -> None:
        self.gloo, self.rank, self.size, self.deadline = gloo, rank, size, deadline
        self.broken = False

    def gather_uneven(self, data: bytes, lengths: Sequence[int]) -> list[memoryview]:
        widest, total = max(lengths), sum(lengths)
        if widest * self.size <= 2 * total + MAX_PADDING * self.size:
            return self._gather_padded(data, lengths)
        return [self._broadcast(data, root, length) for root, length in enumerate(lengths)]

    def sum(self, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        tensor, options = torch.from_numpy(numbers.copy()), AllreduceOptions()
        self._wait(options, lambda: self.gloo.allreduce([tensor], options))
        summed: NDArray[np.int64] = tensor.numpy()
        return summed

    def _gather_padded(self, data: bytes, lengths: Sequence[int]) -> list[memoryview]:
        widest = max(lengths)
        mine = torch.zeros(widest, dtype=torch.uint8)
        mine.numpy()[: len(data)] = np.frombuffer(data, np.uint8)
        parts, options = [torch.empty_like(mine) for _ in lengths], AllgatherOptions()
        if widest:
            self._wait(options, lambda: self.gloo.allgather([parts], [mine], options))
        return [memoryview(p.numpy())[:n] for p, n in zip(parts, lengths, strict=True)]

    def _broadcast(self, data: bytes, root: int, length: int) -> memoryview:
        """Send the bytes `data` from the rank `root` to all ranks, and return them; `length` is the number of bytes."""
        tensor, options = torch.empty(length, dtype=torch.uint8), BroadcastOptions()
        if root == self.rank:
            tensor.numpy()[:] = np.frombuffer(data, np.uint8)
        options.rootRank, options.rootTensor = root, 0
        if length:
            self._wait(options, lambda: self.gloo.broadcast([tensor], options))
        return memoryview(tensor.numpy())

    def _wait(self, options: Any, start: Callable[[], Any]) -> None:
        left, self.broken = self.deadline.remaining, True
        if not left:
            raise self.deadline.build_error("exchanging data with the other ranks")
        options.timeout = timedelta(seconds=left)
        with _translate_errors(self.deadline, "exchanging data with the other ranks"):
            start().wait(options.timeout)
        self.broken = False
