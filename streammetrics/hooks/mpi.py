"""Merge the metrics of all ranks of an MPI communicator.

All operations are non-blocking, and are polled until they finish or the time limit is reached. They use a private copy
of the communicator, so that an abandoned operation cannot receive the application's messages.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, TypeVar

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from ..collect.metric_like import MetricLike
from ..errors import SyncError
from .deadline import TIMEOUT, Deadline
from .deferred import Deferred
from .exchange import merge_ranks, read_metrics

__all__ = ["sync"]

H = TypeVar("H", bound=MetricLike)

# The longest pause in seconds between two polls of an operation.
MAX_PAUSE = 0.002
# The maximum size of a message in bytes.
MAX_MESSAGE = 2**31 - 1


def sync(metrics: H | Deferred[H], comm: Any = None, timeout: float | timedelta = TIMEOUT) -> H:
    """Merge the metrics of all ranks of a communicator.

    Every rank must call this function the same number of times. All ranks get the same result.

    Parameters
    ----------
    metrics : Metric, MetricCollection, Sliced, Bundle or Deferred
        The metrics of this rank. They do not change, so counting can continue.
    comm : mpi4py.MPI.Intracomm, optional
        The communicator; by default COMM_WORLD.
    timeout : float or timedelta
        The time limit, in seconds; the same on all ranks. A rank may compile kernels for its first batch with weights,
        so allow a few seconds for this. Hooks such as `Deferred` compile kernels earlier, as does
        `streammetrics.hooks.compilation.compile_kernels`.

    Returns
    -------
    object of the type of `metrics`; for Deferred, of the type of the metrics inside it
        The merged metrics. Their digest is the same on all ranks, and the same as after one pass over all rows.

    Raises
    ------
    IncompatibleStateError
        Ranks have different metrics or settings. All ranks raise this error, and its message lists the differences and
        the ranks.
    SyncTimeoutError
        A rank did not answer in time: it is stuck, or has not called this function.
    SyncError
        MPI failed; or the metrics of a rank could not be read, for example after a batch with invalid values. In the
        latter case, all other ranks raise this error, and its message names the rank that failed.

    Notes
    -----
    MPI ends the job when a rank is killed. After a timeout, the next call uses a new copy of the communicator, and
    works if all ranks call it. A rank that never answers keeps MPI_Finalize from returning: end the job with
    ``comm.Abort()``, or run it with ``python -m mpi4py``, which aborts it after an error.

    Examples
    --------
    >>> import streammetrics as sm
    >>> from streammetrics.hooks import mpi
    >>> mpi.sync(sm.CTR().update([0, 1]), timeout=60).compute()  # doctest: +SKIP
    0.5
    """
    deadline = Deadline(timeout)
    full_comm = MPI.COMM_WORLD if comm is None else comm
    if full_comm.Get_size() == 1:
        return read_metrics(metrics).copy()
    transport = _MpiTransport(_find_private_comm(full_comm, deadline), deadline)
    try:
        return merge_ranks(metrics, transport)
    finally:
        # If an operation did not finish, the private copy of the communicator may still receive its messages. Delete
        # the copy, so that the next call creates a new one.
        if transport.broken:
            full_comm.Delete_attr(_COMM_KEY)


# The key under which a communicator stores its private copy, as an MPI attribute.
_COMM_KEY = MPI.Comm.Create_keyval()
# Unfinished operations and their buffers. The buffers must not be freed, because MPI may still write to them.
_abandoned: list[tuple[Any, ...]] = []


def _find_private_comm(comm: Any, deadline: Deadline) -> Any:
    """Return the private copy of a communicator; the first call creates and stores it."""
    own = comm.Get_attr(_COMM_KEY)
    if own is None:
        own, request = comm.Idup()
        _wait_for(request, deadline, (own,), "copying the communicator")
        comm.Set_attr(_COMM_KEY, own)
    return own


def _wait_for(request: Any, deadline: Deadline, buffers: tuple[Any, ...], doing: str) -> None:
    """Poll an MPI operation until it is finished.

    Parameters
    ----------
    request : MPI.Request
        The operation.
    deadline : Deadline
        The time limit.
    buffers : tuple
        The objects that the operation reads from or writes to.
    doing : str
        What the operation does, for the error message.

    Raises
    ------
    SyncTimeoutError
        The operation did not finish in time. Its buffers are kept alive, because MPI may still write to them.
    """
    pause = 1e-5
    while not request.Test():
        if not deadline.remaining:
            _abandoned.append((request, *buffers))
            raise deadline.build_error(doing)
        time.sleep(pause)
        pause = min(2 * pause, MAX_PAUSE)


class _MpiTransport:
    """A `Transport` that sends bytes between the ranks of a communicator."""

    sums = True

    def __init__(self, comm: Any, deadline: Deadline) -> None:
        self.comm, self.deadline, self.broken = comm, deadline, False
        self.rank, self.size = comm.Get_rank(), comm.Get_size()

    def gather_uneven(self, data: bytes, lengths: Sequence[int]) -> list[memoryview]:
        mine, out = np.frombuffer(data, np.uint8), np.empty(sum(lengths), np.uint8)
        parts = np.split(out, np.cumsum(lengths)[:-1])
        if len(out) <= MAX_MESSAGE:
            self._run(lambda: self.comm.Iallgatherv(mine, [out, lengths]), mine, out)
        else:
            parts[self.rank][:] = mine
            for root, part in enumerate(parts):
                self._broadcast(part, root)
        return [p.data for p in parts]

    def _broadcast(self, part: NDArray[np.uint8], root: int) -> None:
        """Send the bytes `part` from the rank `root` to all other ranks, which receive them in their own `part`."""
        for piece in np.split(part, range(MAX_MESSAGE, len(part), MAX_MESSAGE)):
            self._run(lambda piece=piece: self.comm.Ibcast(piece, root), piece)  # type: ignore[misc]

    def sum(self, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        mine, out = np.ascontiguousarray(numbers), np.empty_like(numbers)
        self._run(lambda: self.comm.Iallreduce(mine, out, op=MPI.SUM), mine, out)
        return out

    def _run(self, start: Callable[[], Any], *buffers: Any) -> None:
        self.broken = True
        try:
            _wait_for(start(), self.deadline, buffers, "exchanging data with the other ranks")
        except MPI.Exception as error:
            raise SyncError(
                f"exchanging data with the other ranks failed: {error}; the metrics are unchanged"
            ) from error
        self.broken = False
