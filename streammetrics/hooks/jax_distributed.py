"""Merge the metrics of all processes of jax.distributed.

Data is sent as uint8 arrays, because JAX silently converts int64 to int32 unless its 64-bit mode is on.
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
from .deferred import Deferred
from .exchange import merge_ranks, read_metrics

__all__ = ["sync"]

H = TypeVar("H", bound=MetricLike)


def sync(metrics: H | Deferred[H], timeout: float | timedelta = TIMEOUT) -> H:
    """Merge the metrics of all processes of jax.distributed.

    Every process must call this function the same number of times. All processes get the same result.

    Parameters
    ----------
    metrics : Metric, MetricCollection, Sliced, Bundle or Deferred
        The metrics of this process. They do not change, so counting can continue.
    timeout : float or timedelta
        The time limit, in seconds. A process may compile kernels for its first batch with weights, so allow a few
        seconds for this. Hooks such as `Deferred` compile kernels earlier, as does
        `streammetrics.hooks.compilation.compile_kernels`.

    Returns
    -------
    object of the type of `metrics`; for Deferred, of the type of the metrics inside it
        The merged metrics. Their digest is the same in all processes, and the same as after one pass over all rows.

    Raises
    ------
    IncompatibleStateError
        Processes have different metrics or settings. All of them raise this error, and its message lists the
        differences.
    SyncTimeoutError
        A process did not answer in time: it is stuck, gone, or has not called this function.
    SyncError
        A process died, or its metrics could not be read, for example after a batch with invalid values; or an earlier call
        timed out.

    Notes
    -----
    JAX runs collective operations in order and cannot cancel them. After a timeout, the operations of this function and
    of the training run keep waiting for the process that did not answer, and later calls raise an error. In this case,
    restart all processes. A call consists of two collective operations and a merge. JAX compiles a collective operation
    for each data length, so the length is rounded up to a power of two.

    Examples
    --------
    >>> import streammetrics as sm
    >>> from streammetrics.hooks import jax_distributed
    >>> jax_distributed.sync(sm.CTR().update([0, 1]), timeout=60).compute()
    0.5
    """
    deadline = Deadline(timeout)
    if jax.process_count() == 1:
        return read_metrics(metrics).copy()
    if _abandoned:
        raise SyncError(
            f"an earlier sync timed out, and JAX still waits for data of this sync; restart all processes "
            f"({_abandoned[0]})"
        )
    return merge_ranks(metrics, _JaxTransport(deadline))


_abandoned: list[str] = []


class _JaxTransport:
    """A `Transport` that sends bytes between the processes of jax.distributed."""

    sums = False

    def __init__(self, deadline: Deadline) -> None:
        self.deadline, self.rank, self.size = deadline, jax.process_index(), jax.process_count()

    def gather_uneven(self, data: bytes, lengths: Sequence[int]) -> list[memoryview]:
        mine = np.zeros(1 << max(max(lengths) - 1, 0).bit_length(), np.uint8)
        mine[: len(data)] = np.frombuffer(data, np.uint8)
        rows = np.asarray(self._gather_all(mine))
        return [np.ascontiguousarray(r)[:n].data for r, n in zip(rows, lengths, strict=True)]

    def sum(self, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        raise TypeError("JAX cannot sum the counters of all ranks; gather the counters instead")

    def _gather_all(self, mine: NDArray[np.uint8]) -> Any:
        try:
            return self.deadline.call(
                lambda: multihost_utils.process_allgather(mine), "exchanging data with the other ranks"
            )
        except SyncTimeoutError as error:
            _abandoned.append(str(error))
            raise
        except RuntimeError as error:
            raise SyncError(
                "exchanging data with the other ranks failed: a process has ended; the metrics are unchanged"
            ) from error
