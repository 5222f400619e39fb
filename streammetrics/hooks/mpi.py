"""Metrics of all ranks of an MPI communicator as one.

Nothing blocks: every operation is started, and asked for until the timeout. They run on a copy of the communicator, so
that what was given up cannot meet messages of the application.
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
from .exchange import add_up

__all__ = ["sync"]

H = TypeVar("H", bound=MetricLike)

LONGEST_PAUSE = 0.002  # seconds between two looks
MOST_COUNT = 2**31 - 1  # bytes of one message


def sync(metrics: H, comm: Any = None, timeout: float | timedelta = TIMEOUT) -> H:
    """Add up what all ranks have seen.

    Every rank of the communicator calls it, as often as the others, and gets the same.

    Parameters
    ----------
    metrics : Metric, MetricCollection, Sliced or Bundle
        What this rank has counted; it stays as it is, so that counting may go on.
    comm : mpi4py.MPI.Intracomm, optional
        The ranks that take part; those of COMM_WORLD, if it is not given.
    timeout : float or timedelta
        Seconds that it may take; the same on all ranks.

    Returns
    -------
    object of the same kind
        What all ranks have seen: of equal digest on all of them, and to one pass over all rows.

    Raises
    ------
    IncompatibleStateError
        Ranks count different things: all raise, and name the difference and the ranks.
    SyncTimeoutError
        A rank did not answer in time: it is stuck, or has not called this.
    SyncError
        The metrics of a rank could not be read, such as after a bad batch: all others raise, and name it; or MPI failed.

    Notes
    -----
    MPI itself ends the job when a rank is killed. What a stuck rank has not answered stays open: the next call makes a new
    copy of the communicator, and works if all ranks call it; a rank that never answers keeps MPI_Finalize from returning,
    so end the job with ``comm.Abort()``, or run it by ``python -m mpi4py``, which does that after an error.

    Examples
    --------
    >>> import streammetrics as sm
    >>> from streammetrics.hooks import mpi
    >>> mpi.sync(sm.CTR().update([0, 1]), timeout=60).compute()  # doctest: +SKIP
    0.5
    """
    deadline = Deadline(timeout)
    whole = MPI.COMM_WORLD if comm is None else comm
    if whole.Get_size() == 1:
        return metrics.copy()
    transport = _Mpi(_own(whole, deadline), deadline)
    try:
        return add_up(metrics, transport)
    finally:
        if transport.broken:  # errors that all ranks agree on leave the copy as it is
            whole.Delete_attr(_OURS)


_OURS = MPI.Comm.Create_keyval()  # under which a communicator keeps its copy
_open: list[tuple[Any, ...]] = []  # what was given up, and the memory that MPI may still write to


def _own(comm: Any, deadline: Deadline) -> Any:
    """The copy of a communicator, made at the first call."""
    own = comm.Get_attr(_OURS)
    if own is None:
        own, request = comm.Idup()
        _finish(request, deadline, (own,), "copying the communicator")
        comm.Set_attr(_OURS, own)
    return own


def _finish(request: Any, deadline: Deadline, held: tuple[Any, ...], doing: str) -> None:
    """Ask for what was started until it is done.

    Raises
    ------
    SyncTimeoutError
        It is not done in time; what it writes to is held, as it may be yet.
    """
    pause = 1e-5
    while not request.Test():
        if not deadline.left:
            _open.append((request, *held))
            raise deadline.error(doing)
        time.sleep(pause)
        pause = min(2 * pause, LONGEST_PAUSE)


class _Mpi:
    """A communicator as a transport."""

    sums = True

    def __init__(self, comm: Any, deadline: Deadline) -> None:
        self.comm, self.deadline, self.broken = comm, deadline, False
        self.rank, self.size = comm.Get_rank(), comm.Get_size()

    def gather_uneven(self, data: bytes, lengths: Sequence[int]) -> list[memoryview]:
        mine, out = np.frombuffer(data, np.uint8), np.empty(sum(lengths), np.uint8)
        parts = np.split(out, np.cumsum(lengths)[:-1])
        if len(out) <= MOST_COUNT:
            self._done(lambda: self.comm.Iallgatherv(mine, [out, lengths]), mine, out)
        else:
            parts[self.rank][:] = mine
            for root, part in enumerate(parts):
                self._send(part, root)
        return [p.data for p in parts]

    def _send(self, part: NDArray[np.uint8], root: int) -> None:
        """Send the bytes of one rank to all others."""
        for piece in np.split(part, range(MOST_COUNT, len(part), MOST_COUNT)):
            self._done(lambda piece=piece: self.comm.Ibcast(piece, root), piece)  # type: ignore[misc]

    def sum(self, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        mine, out = np.ascontiguousarray(numbers), np.empty_like(numbers)
        self._done(lambda: self.comm.Iallreduce(mine, out, op=MPI.SUM), mine, out)
        return out

    def _done(self, start: Callable[[], Any], *held: Any) -> None:
        self.broken = True
        try:
            _finish(start(), self.deadline, held, "adding up")
        except MPI.Exception as error:
            raise SyncError(f"adding up failed: {error}; all metrics are as they were") from error
        self.broken = False
