"""Metrics of all processes of jax.distributed as one.

Bytes travel as uint8: without 64-bit mode JAX makes int32 of int64, and says nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any, TypeVar

import jax
import numpy as np
from jax.experimental import multihost_utils
from numpy.typing import NDArray

from ..collect.metric_like import MetricLike
from ..errors import SyncError, SyncTimeoutError
from .deadline import TIMEOUT, Deadline
from .exchange import add_up

__all__ = ["sync"]

H = TypeVar("H", bound=MetricLike)


def sync(metrics: H, timeout: float | timedelta = TIMEOUT) -> H:
    """Add up what all processes of jax.distributed have seen.

    Every process calls it, as often as the others, and gets the same.

    Parameters
    ----------
    metrics : Metric, MetricCollection, Sliced or Bundle
        What this process has counted; it stays as it is, so that counting may go on.
    timeout : float or timedelta
        Seconds that it may take.

    Returns
    -------
    object of the same kind
        What all processes have seen: of equal digest on all of them, and to one pass over all rows.

    Raises
    ------
    IncompatibleStateError
        Processes count different things: all raise, and name the difference and their numbers.
    SyncTimeoutError
        A process did not answer in time: it is stuck, gone, or has not called this.
    SyncError
        A process died, or its metrics could not be read, such as after a bad batch; or an earlier call ran out of time.

    Notes
    -----
    JAX runs what it was given in order, and cannot take it back: after a timeout its collectives wait for the process that
    did not answer, as those of the training do, and later calls raise. Restart all processes then. Cost: two collectives
    and a merge; each new length of frames is compiled once, so lengths are rounded up to powers of two.

    Examples
    --------
    >>> import streammetrics as sm
    >>> from streammetrics.hooks import jax_distributed
    >>> jax_distributed.sync(sm.CTR().update([0, 1]), timeout=60).compute()
    0.5
    """
    deadline = Deadline(timeout)
    if jax.process_count() == 1:
        return metrics.copy()
    if _given_up:
        raise SyncError(
            f"an earlier sync was given up, and JAX still waits for it: restart all processes ({_given_up[0]})"
        )
    return add_up(metrics, _Jax(deadline))


_given_up: list[str] = []


class _Jax:
    """The processes of jax.distributed as a transport."""

    sums = False

    def __init__(self, deadline: Deadline) -> None:
        self.deadline, self.rank, self.size = deadline, jax.process_index(), jax.process_count()

    def gather_uneven(self, data: bytes, lengths: Sequence[int]) -> list[memoryview]:
        mine = np.zeros(1 << max(max(lengths) - 1, 0).bit_length(), np.uint8)
        mine[: len(data)] = np.frombuffer(data, np.uint8)
        rows = np.asarray(self._all(mine))
        return [np.ascontiguousarray(r)[:n].data for r, n in zip(rows, lengths, strict=True)]

    def sum(self, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        raise TypeError("JAX gathers bytes: it is not asked for sums")

    def _all(self, mine: NDArray[np.uint8]) -> Any:
        try:
            return self.deadline.call(lambda: multihost_utils.process_allgather(mine), "adding up")
        except SyncTimeoutError as error:
            _given_up.append(str(error))
            raise
        except RuntimeError as error:
            raise SyncError("adding up failed: a process is gone; all metrics are as they were") from error
