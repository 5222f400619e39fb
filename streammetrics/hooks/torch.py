"""PyTorch support: asynchronous copies of GPU tensors for `Deferred`, and functions to save metrics in checkpoints."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import torch
import torch.distributed

from ..collect.accumulator import accumulator_of
from ..collect.metric import Metric
from ..collect.metric_container import MetricContainer
from ..collect.metric_like import MetricLike, empty_copy, states_of
from ..collect.serialization import from_bytes
from ..errors import IncompatibleStateError, StateFormatError
from .deferred import CARRIERS, Deferred

__all__ = ["Deferred", "TensorCarrier", "TensorTransfer", "load_state_dict", "state_dict"]

Metrics = MetricLike | Deferred[Any]

INTEGER_DTYPES = {torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64}
NUMPY_DTYPES = {*INTEGER_DTYPES, torch.float16, torch.float32, torch.float64}


class TensorTransfer:
    """An asynchronous copy of tensors into pinned host memory.

    The constructor concatenates the tensors on their device, and queues the copy on the current stream, after all earlier
    operations. Only CUDA and ROCm devices copy asynchronously. For other devices the constructor waits for the copy.
    """

    def __init__(self, tensors: Sequence[torch.Tensor]) -> None:
        with torch.no_grad():
            self._there = torch.cat(list(tensors))
            self._arrived: Any = None
            if self._there.is_cuda:
                self._here = torch.empty(self._there.shape, dtype=self._there.dtype, pin_memory=True)
                self._here.copy_(self._there, non_blocking=True)
                self._arrived = torch.cuda.Event()
                self._arrived.record(torch.cuda.current_stream(self._there.device))
            else:
                self._here = self._there.cpu()

    def is_ready(self) -> bool:
        """Return whether the copy is finished."""
        return self._arrived is None or self._arrived.query()

    def to_array(self) -> Any:
        """Return the rows of all tensors, as a numpy array if numpy supports the dtype, otherwise as a CPU tensor.

        A numpy array is faster to slice.
        """
        return self._here.numpy() if self._here.dtype in NUMPY_DTYPES else self._here


class TensorCarrier:
    """The `Carrier` that keeps and copies torch tensors for `Deferred`."""

    def keep(self, column: torch.Tensor) -> tuple[torch.Tensor, int | None]:
        """Return the detached tensor and its version counter, which torch increments with each in-place change.

        An inference tensor has no version counter, so this method returns a copy and None.
        """
        if column.is_inference():
            return column.clone(), None
        return column.detach() if column.requires_grad else column, column._version

    def snapshot(self, column: torch.Tensor) -> torch.Tensor:
        """Return a copy on the same device."""
        return column.detach().clone()

    def describe_change(self, column: torch.Tensor, mark: int | None) -> str:
        """Return a description if the tensor was changed in place; otherwise an empty string."""
        return "was changed in place" if mark is not None and column._version != mark else ""

    def find_batch_key(self, column: torch.Tensor) -> Hashable:
        """Return the device, dtype and row shape as a key. Tensors with equal keys are copied together.

        Sparse, nested and scalar tensors have the key None: they are not copied, because the metrics' `update` method
        rejects them.
        """
        if column.layout is not torch.strided or column.is_nested or not column.ndim:
            return None
        return column.device, column.dtype, column.shape[1:]

    def start_transfer(self, columns: Sequence[torch.Tensor]) -> TensorTransfer:
        """Start copying the tensors to host memory."""
        return TensorTransfer(columns)


CARRIERS["torch"] = TensorCarrier()


def state_dict(metrics: Metrics | Mapping[str, Metrics]) -> dict[str, torch.Tensor]:
    """Return the states of metrics as tensors, for a checkpoint.

    Parameters
    ----------
    metrics : Metric, MetricCollection, Sliced, Bundle, Lifetime or Deferred, or dict of these
        The metrics, or a dict from names to metrics. Batches that wait in a `Deferred` are counted first.

    Returns
    -------
    dict of str to uint8 tensor
        The bytes of each state, keyed by name. `torch.load(..., weights_only=True)` reads the tensors, and
        `streammetrics.from_bytes` decodes their bytes without torch.

    Raises
    ------
    InvalidInputError
        A batch that was passed to a `Deferred` had invalid values.

    Examples
    --------
    >>> import streammetrics as sm
    >>> from streammetrics.hooks.torch import load_state_dict, state_dict
    >>> saved = state_dict(sm.CTR().update([0, 1, 1, 1]))
    >>> saved["ctr"].dtype
    torch.uint8
    >>> load_state_dict(sm.CTR(), saved).compute()
    0.75
    """
    return {n: torch.frombuffer(bytearray(m.to_bytes()), dtype=torch.uint8) for n, m in _name_metrics(metrics).items()}


def load_state_dict(metrics: Any, saved: Mapping[str, torch.Tensor] | Sequence[Mapping[str, torch.Tensor]]) -> Any:
    """Replace the states of metrics with the states that `state_dict` returned.

    Parameters
    ----------
    metrics : Metric, MetricCollection, Sliced, Bundle, Lifetime or Deferred, or dict of these
        The metrics that receive the states. Their settings must equal those of the saved metrics.
    saved : dict of str to uint8 tensor, or list of these
        The saved states of this process, or a list with the saved states of every rank. With a list, training can
        continue with a different number of ranks: each rank passes the whole list and loads its share, so that each row
        is loaded once. Rank and world size come from `torch.distributed`. If it is not initialized, this process loads
        all states.

    Returns
    -------
    object of the same type
        The argument `metrics`, with the loaded states.

    Raises
    ------
    IncompatibleStateError
        Names or settings differ; the message lists the differences.
    StateFormatError
        A tensor is not a saved state.

    Notes
    -----
    If the function raises an error, no metric has changed.
    """
    named = _name_metrics(metrics)
    shares = [saved] if isinstance(saved, Mapping) else _select_shares(list(saved))
    states = {name: _merge_shares(name, thing, shares) for name, thing in named.items()}
    for one in [saved] if isinstance(saved, Mapping) else saved:
        if strange := one.keys() - named.keys():
            raise IncompatibleStateError(
                f"found saved metrics called {', '.join(sorted(strange))}, expected only {', '.join(named)}; "
                "pass metrics with the names that were saved"
            )
    for name, thing in named.items():
        counted = thing.reset().metrics if isinstance(thing, Deferred) else thing.reset()
        accumulator_of(counted).set_states(states_of(states[name]))
    return metrics


def _name_metrics(metrics: Any) -> dict[str, Any]:
    """Return a dict from names to metrics; if the argument is already such a dict, return a copy."""
    if isinstance(metrics, Mapping) and not isinstance(metrics, MetricLike):
        return dict(metrics)
    counted = metrics.metrics if isinstance(metrics, Deferred) else metrics
    # Only metrics and containers of metrics have a name. Other objects, such as a Bundle, get the name "metrics".
    name = counted.name if isinstance(counted, (Metric, MetricContainer)) else "metrics"
    return {name: metrics}


def _select_shares(saved: list[Any]) -> list[Any]:
    """Return this rank's share, ``saved[rank::world_size]``, or all of `saved` if torch.distributed is not set up."""
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return saved[torch.distributed.get_rank() :: torch.distributed.get_world_size()]
    return saved


def _merge_shares(name: str, metrics: Any, shares: Sequence[Mapping[str, torch.Tensor]]) -> MetricLike:
    """Return a new metric with the merged states that several ranks have saved under the name `name`.

    `metrics` defines the expected settings, and `shares` contains the saved states of each rank.
    """
    total: MetricLike = empty_copy(metrics.metrics if isinstance(metrics, Deferred) else metrics)
    for share in shares:
        if name not in share:
            raise IncompatibleStateError(
                f"expected a saved state of {name!r}, found states of {', '.join(share) or 'no metric'}; "
                "pass metrics with the names that were saved"
            )
        tensor = share[name]
        if not isinstance(tensor, torch.Tensor) or tensor.dtype != torch.uint8 or tensor.ndim != 1:
            raise StateFormatError(f"{name}: expected a uint8 tensor of one dimension, as state_dict() returns it")
        try:
            total.merge(from_bytes(tensor.numpy(force=True).tobytes()))
        except (IncompatibleStateError, StateFormatError) as error:
            raise type(error)(f"{name}: {error}") from error
    return total
