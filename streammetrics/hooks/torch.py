"""PyTorch: tensors carried from a GPU without waiting for it, and metrics in a checkpoint."""

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

__all__ = ["Deferred", "Tensors", "TensorsUnderWay", "load_state_dict", "state_dict"]

Metrics = MetricLike | Deferred[Any]

INTEGERS = {torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64}
PLAIN = {*INTEGERS, torch.float16, torch.float32, torch.float64}


class TensorsUnderWay:
    """Tensors on their way from one device, joined there, into pinned memory; on the CPU they are joined, and here.

    The copy is queued behind what the device has still to do, on its current stream. Devices other than CUDA's (ROCm's
    go by that name) have no such copy: from there `start` waits.
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

    def ready(self) -> bool:
        """Whether they are here."""
        return self._arrived is None or self._arrived.query()

    def array(self) -> Any:
        """All rows, on the CPU, as numpy where it has their dtype: steps are cut from that quickly."""
        return self._here.numpy() if self._here.dtype in PLAIN else self._here


class Tensors:
    """How `Deferred` keeps and carries tensors."""

    def keep(self, column: torch.Tensor) -> tuple[torch.Tensor, int | None]:
        """The tensor without its graph, and its version; of an inference tensor, which has none, a copy."""
        if column.is_inference():
            return column.clone(), None
        return column.detach() if column.requires_grad else column, column._version

    def snapshot(self, column: torch.Tensor) -> torch.Tensor:
        """A copy on its device."""
        return column.detach().clone()

    def changed(self, column: torch.Tensor, mark: int | None) -> str:
        """Whether it was written to since."""
        return "was changed in place" if mark is not None and column._version != mark else ""

    def alike(self, column: torch.Tensor) -> Hashable:
        """Device, dtype and shape of a row; None for what is no column, which `update` says better."""
        if column.layout is not torch.strided or column.is_nested or not column.ndim:
            return None
        return column.device, column.dtype, column.shape[1:]

    def start(self, columns: Sequence[torch.Tensor]) -> TensorsUnderWay:
        """Join them where they are, and send them."""
        return TensorsUnderWay(columns)


CARRIERS["torch"] = Tensors()


def state_dict(metrics: Metrics | Mapping[str, Metrics]) -> dict[str, torch.Tensor]:
    """Return what metrics have seen as tensors, for a checkpoint.

    Parameters
    ----------
    metrics : Metric, MetricCollection, Sliced, Bundle or Deferred, or dict of these
        What is saved; a dict names it. Steps that are deferred are counted first.

    Returns
    -------
    dict of str to uint8 tensor
        By name, the bytes of the library's one format: `torch.load(..., weights_only=True)` reads them, and so does
        `streammetrics.from_bytes`, without torch.

    Raises
    ------
    InvalidInputError
        A deferred step was bad.

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
    return {n: torch.frombuffer(bytearray(m.to_bytes()), dtype=torch.uint8) for n, m in _named(metrics).items()}


def load_state_dict(metrics: Any, saved: Mapping[str, torch.Tensor] | Sequence[Mapping[str, torch.Tensor]]) -> Any:
    """Go on from what `state_dict` returned; what was seen before is forgotten.

    Parameters
    ----------
    metrics : Metric, MetricCollection, Sliced, Bundle or Deferred, or dict of these
        What goes on, of the same settings.
    saved : dict of str to uint8 tensor, or list of these
        What this process saved. Or what all ranks of a run saved, to go on with any number of ranks: each rank passes the
        whole list, and takes its share, so that all ranks together have each row once. Where `torch.distributed` is
        initialized its rank and world size are taken, else all of it is this process's.

    Returns
    -------
    what was given
        With what was saved.

    Raises
    ------
    IncompatibleStateError
        Names or settings differ; the message says how.
    StateFormatError
        A tensor is no saved state.

    Notes
    -----
    Whatever is raised, all metrics are as they were.
    """
    named = _named(metrics)
    shares = [saved] if isinstance(saved, Mapping) else _share(list(saved))
    found = {name: _merged(name, thing, shares) for name, thing in named.items()}
    for one in [saved] if isinstance(saved, Mapping) else saved:
        if strange := one.keys() - named.keys():
            raise IncompatibleStateError(
                f"there are saved metrics called {', '.join(sorted(strange))}; here are {', '.join(named)}"
            )
    for name, thing in named.items():
        counted = thing.reset().metrics if isinstance(thing, Deferred) else thing.reset()
        accumulator_of(counted).hold(states_of(found[name]))
    return metrics


def _named(metrics: Any) -> dict[str, Any]:
    """Metrics by name."""
    if isinstance(metrics, Mapping) and not isinstance(metrics, MetricLike):
        return dict(metrics)
    counted = metrics.metrics if isinstance(metrics, Deferred) else metrics
    # Saved checkpoints call everything else, such as a bundle, "metrics".
    name = counted.name if isinstance(counted, (Metric, MetricContainer)) else "metrics"
    return {name: metrics}


def _share(saved: list[Any]) -> list[Any]:
    """Those of all ranks' states that this rank goes on from."""
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return saved[torch.distributed.get_rank() :: torch.distributed.get_world_size()]
    return saved


def _merged(name: str, thing: Any, shares: Sequence[Mapping[str, torch.Tensor]]) -> MetricLike:
    """What some ranks have seen of one thing, together."""
    made: MetricLike = empty_copy(thing.metrics if isinstance(thing, Deferred) else thing)
    for share in shares:
        if name not in share:
            raise IncompatibleStateError(f"nothing is saved of {name!r}; there are {', '.join(share) or 'none'}")
        tensor = share[name]
        if not isinstance(tensor, torch.Tensor) or tensor.dtype != torch.uint8 or tensor.ndim != 1:
            raise StateFormatError(f"{name}: expected a uint8 tensor of one dimension, as state_dict() returns it")
        try:
            made.merge(from_bytes(tensor.numpy(force=True).tobytes()))
        except (IncompatibleStateError, StateFormatError) as error:
            raise type(error)(f"{name}: {error}") from error
    return made
