"""Metrics of this library as torchmetrics metrics, for example in Lightning or in a torchmetrics MetricCollection."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any

import torch
import torchmetrics
from torchmetrics.utilities.distributed import gather_all_tensors
from torchmetrics.utilities.exceptions import TorchMetricsUserError

from ..collect.accumulator import accumulator_of, definition_of
from ..collect.metric_like import MetricLike, answer_of, columns_of, empty_copy, states_of
from ..collect.serialization import from_bytes
from ..compose.bundle import Bundle
from ..errors import IncompatibleStateError, InvalidInputError, StateFormatError, StreamMetricsError
from ..reading.about import best_of
from .compilation import compile_kernels
from .deferred import Deferred
from .exchange import merge_saved
from .scorer import read_scores

__all__ = ["TorchMetric"]

NAME = "streammetrics_"


class TorchMetric(torchmetrics.Metric):
    """A torchmetrics metric that computes metrics of this library.

    The values do not depend on how rows are split across ranks: they agree bit for bit.

    Parameters
    ----------
    metric : Metric, MetricCollection, or Deferred of these
        The metric to update in place. For a collection, `compute` returns a dict. With `Deferred`, `update` does not
        wait for the GPU; `forward` waits, because it returns the value of the batch.
    **settings
        The settings of `torchmetrics.Metric`: `process_group`, `dist_sync_on_step`, `sync_on_compute`, ...

    Notes
    -----
    The argument order is that of torchmetrics: predictions, then labels. Values are float64 tensors on the metric's
    device.

    Creating the object compiles the kernels of the metrics (see `streammetrics.hooks.compilation`), so that no rank has
    to wait while another one compiles.

    In `compute`, ranks exchange their states once, as byte tensors, with the gather function of torchmetrics. With
    nccl, the metric must be on the rank's device; Lightning puts it there.

    As in torchmetrics, `state_dict` contains the state only after ``persistent(True)``. The state is one uint8 tensor,
    and its name contains a digest of the settings. A Lightning checkpoint contains the state of rank 0 only, even after
    the end of an epoch, and every rank loads it. Rows would then be counted twice or be lost, so a metric that
    Lightning loads from a checkpoint stays empty and issues a warning. To continue in the middle of an epoch, use
    `streammetrics.hooks.lightning.MetricCheckpoint`.

    In a list of metrics, torchmetrics takes the name of a metric from its class. The class of this object is therefore
    a subclass that is named after the metric, such as "auc". ("." becomes "_", because torch allows no dots in names.)

    After the first batch, a torchmetrics MetricCollection shares one state among metrics with equal states. It never
    does so for this metric, whose state never equals another state. To share one pass over the rows, pass a
    MetricCollection of this library to one TorchMetric.

    Examples
    --------
    >>> import streammetrics as sm
    >>> import torch
    >>> from streammetrics.hooks.torchmetrics import TorchMetric
    >>> auc = TorchMetric(sm.AUC())
    >>> auc.update(torch.tensor([0.1, 0.4, 0.35, 0.8]), torch.tensor([0, 0, 1, 1]))
    >>> auc.compute()
    tensor(0.7500, dtype=torch.float64)
    """

    is_differentiable = False
    full_state_update = False

    def __init__(self, metric: MetricLike | Deferred[Any], **settings: Any) -> None:
        super().__init__(**settings)
        inner = metric.metrics if isinstance(metric, Deferred) else metric
        if not isinstance(inner, MetricLike) or isinstance(inner, Bundle):
            hint = "; write AUC(), not AUC" if isinstance(metric, type) else ""
            raise TypeError(f"expected a metric, a MetricCollection or Deferred, found {metric!r}{hint}")
        compile_kernels(inner)
        self._target = metric
        self._key = NAME + empty_copy(inner).digest()[:16]
        # A torchmetrics collection lets metrics with equal states share one state (a compute group). The state here is
        # NaN, which is not equal to itself, so the collection never shares it.
        self.add_state(self._key, torch.tensor(float("nan")), dist_reduce_fx=None)
        self._total: MetricLike | None = None
        # Count the updates here as well, because collections with compute groups overwrite `_update_count`, the base
        # class's own count. `compute` raises an error if the two counts differ.
        self._update_calls = 0
        names = [] if definition_of(inner).is_single else read_scores(empty_copy(inner))
        self._values: Any = torch.nn.ModuleList(TorchMetricValue(self, name) for name in names)
        if type(self) is TorchMetric:
            self.__class__ = _build_named_class(inner.name.replace(".", "_"))

    def items(self) -> Iterable[tuple[str, torchmetrics.Metric]]:
        """Return the name of each value, and a metric that computes it, for ``self.log_dict(metric)`` in Lightning."""
        return [(value.key, value) for value in self._values] or [(self._inner.name, self)]

    @property
    def metric(self) -> Any:
        """The metric of this library with all rows of this rank, after waiting for deferred steps."""
        return self._target.flush() if isinstance(self._target, Deferred) else self._target

    @property
    def _current(self) -> Any:
        """The wrapped metric with the rows of this rank; while this object is synced, with the rows of all ranks."""
        return self.metric if self._total is None else self._total

    @property
    def _inner(self) -> Any:
        """The wrapped metric of this library. Deferred steps are not awaited, so their rows may be missing."""
        return self._target.metrics if isinstance(self._target, Deferred) else self._target

    @property
    def higher_is_better(self) -> bool | None:
        """Whether higher values are better, or None if the metric does not define this; used by `MetricTracker`."""
        return {"high": True, "low": False}.get(str(best_of(self._inner)))

    def update(self, preds: Any = None, target: Any = None, **columns: Any) -> None:
        """Update the metric with a batch. Columns may also be passed by their names in streammetrics: `y_true`, `y_score`.

        Parameters
        ----------
        preds : tensor of shape (n,)
            The scores or predictions; for a metric that reads only one column, that column.
        target : tensor of shape (n,)
            The labels.
        **columns : tensors of shape (n,)
            The other columns, passed by name: `sample_weight`, `group`, ...

        Raises
        ------
        InvalidInputError
            A value is invalid; the metric has not changed.
        """
        # Bypass the `__setattr__` of torch modules, which takes 3 us, a considerable part of a small update.
        self.__dict__["_update_calls"] += 1
        self._count(self._target, preds, target, columns)

    def _count(self, target_metric: Any, preds: Any, target: Any, columns: dict[str, Any]) -> None:
        roles = definition_of(self._inner).positional_columns()
        if len(roles) == 1:
            # This metric reads only one positional column. Select it, because a torchmetrics collection passes
            # predictions and labels to every metric.
            only = target if roles[0] == "y_true" and target is not None else preds
            target_metric.update(None if roles[0] in columns else only, **columns)
        elif target is None and not columns:
            target_metric.update(preds)
        else:
            target_metric.update(target, preds, **columns)

    def _filter_kwargs(self, **kwargs: Any) -> dict[str, Any]:
        """Select the arguments that this metric reads; a torchmetrics collection passes all of them to every metric."""
        read = {"preds", "target", *columns_of(self._inner)}
        return {name: column for name, column in kwargs.items() if name in read}

    def forward(self, preds: Any = None, target: Any = None, **columns: Any) -> Any:
        """Update the metric with a batch, and return the value of this batch alone.

        An undefined value is returned as NaN, without a warning. With `dist_sync_on_step`, the value covers the current
        batches of all ranks.
        """
        if self._is_synced:
            raise TorchMetricsUserError("this metric is synced with all ranks; call unsync() before forward()")
        batch = empty_copy(self._inner)
        self._count(batch, preds, target, columns)
        self.update(preds, target, **columns)
        if self.dist_sync_on_step and self._is_distributed():
            batch = self._merge_ranks(lambda: batch.to_bytes(), self.dist_sync_fn, self.process_group)
        values = self._forward_cache = self._to_tensors(answer_of(batch).value)
        for value in self._values:
            value._forward_cache = values[value.key]
        return values

    def compute(self) -> Any:
        """Return the value over all batches of all ranks; if it is undefined, warn and return NaN."""
        if self._update_calls != self._update_count:
            raise TorchMetricsUserError(
                f"this metric was updated {self._update_calls} times, but its collection counts {self._update_count} "
                f"updates, because compute_groups= groups this metric with another; leave this metric out of the groups"
            )
        return self._to_tensors(self._current.compute())

    def _to_tensors(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {str(name): self._to_tensors(one) for name, one in value.items()}
        if isinstance(value, tuple):
            return tuple(self._to_tensors(one) for one in value)
        # Use float32 on MPS devices, which do not support float64.
        kind = torch.float32 if self.device.type == "mps" else torch.float64
        return torch.as_tensor(value, dtype=kind, device=self.device)

    # -- ranks --------------------------------------------------------------------------------------------------------

    def _is_distributed(self) -> bool:
        available = self.distributed_available_fn
        return bool(available() if callable(available) else available)

    def _sync_dist(self, dist_sync_fn: Callable[..., Any] | None = None, process_group: Any = None) -> None:
        self._total = self._merge_ranks(
            lambda: self.metric.to_bytes(), dist_sync_fn, process_group or self.process_group
        )

    def _merge_ranks(self, saved: Callable[[], bytes], gather: Callable[..., Any] | None, group: Any) -> Any:
        """Return the merged metrics of all ranks.

        If a deferred step has failed on a rank, the rank sends no bytes, so that all ranks raise an error and none
        waits forever.

        Parameters
        ----------
        saved : callable
            Returns the state of this rank as bytes.
        gather : callable or None
            Gathers a tensor from all ranks of a group; by default the function of torchmetrics.
        group : ProcessGroup or None
            The ranks to merge.
        """
        data, own_error = b"", None
        try:
            data = saved()
        except (
            StreamMetricsError
        ) as error:  # The error is raised only after the exchange, so that no rank waits forever.
            own_error = error
        parts = [
            t.numpy(force=True).tobytes()
            for t in (gather or gather_all_tensors)(_to_byte_tensor(data, self.device), group)
        ]
        if own_error is not None:
            raise own_error
        if silent := [rank for rank, part in enumerate(parts) if not part]:
            raise InvalidInputError(f"a step of rank {silent[0]} failed; see the error that this rank raised")
        return merge_saved(parts)

    def unsync(self, should_unsync: bool = True) -> None:
        """Undo a sync, so that the metric again covers only the rows of this rank."""
        super().unsync(should_unsync)
        if should_unsync:
            self._total = None

    # -- saving -------------------------------------------------------------------------------------------------------

    @property
    def metric_state(self) -> dict[str, Any]:
        """The state of this rank (of all ranks while synced) as a dict with one uint8 tensor, for `merge_state`."""
        return {self._key: _to_byte_tensor(self._current.to_bytes(), self.device)}

    def state_dict(self, destination: Any = None, prefix: str = "", keep_vars: bool = False) -> Any:
        """Return a dict that contains the state as one uint8 tensor if `persistent(True)` was called before.

        Without that call, the state is left out. The state contains the rows of this rank or, while this metric is
        synced (in `sync_context`), the rows of all ranks.
        """
        state = super().state_dict(destination=destination, prefix=prefix, keep_vars=keep_vars)
        if prefix + self._key in state:
            state[prefix + self._key] = _to_byte_tensor(self._current.to_bytes(), torch.device("cpu"))
        return state

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *others: Any) -> None:
        """Load a saved state.

        Raises
        ------
        IncompatibleStateError
            The state has different settings; the message lists the differences.
        StateFormatError
            The tensor is not a saved state.
        """
        saved = {name: state_dict.pop(name) for name in list(state_dict) if name.startswith(prefix + NAME)}
        if saved and _is_lightning_loading():
            warnings.warn(
                f"the saved rows of {self!r} were not restored, because a checkpoint of Lightning contains the rows of "
                "rank 0 only; to save the rows of all ranks, pass streammetrics.hooks.lightning.MetricCheckpoint() to "
                "Trainer(callbacks=[...])",
                UserWarning,
                stacklevel=2,
            )
            saved = {}
        for name, tensor in saved.items():
            self._load_saved(name, tensor)
        super()._load_from_state_dict(state_dict, prefix, *others)

    def _load_saved(self, name: str, saved: Any) -> None:
        if not isinstance(saved, torch.Tensor) or saved.dtype != torch.uint8:
            raise StateFormatError(f"{name}: expected a uint8 tensor, as state_dict() returns it")
        loaded = from_bytes(saved.numpy(force=True).tobytes())
        counted = accumulator_of(self._inner)
        counted.check_compatible(accumulator_of(loaded))
        self.reset()
        counted.set_states(states_of(loaded))
        # Count the loaded state as one update. Otherwise torchmetrics would warn in `compute` that the metric is empty.
        self._update_calls = self._update_count = 1

    def _reduce_states(self, state_dict: dict[str, Any]) -> None:
        """Raise an error: only the torchmetrics wrapper `Running` calls this, and it does not work with this metric."""
        raise TorchMetricsUserError(
            "torchmetrics.wrappers.Running does not support this metric; use TorchMetric(sm.Recent(metric, steps=window))"
        )

    def merge_state(self, incoming_state: Any) -> None:
        """Merge another metric into this one.

        Parameters
        ----------
        incoming_state : TorchMetric or dict
            The other metric, or its `metric_state`.

        Raises
        ------
        IncompatibleStateError
            The other metric has different settings.
        """
        if isinstance(incoming_state, TorchMetric):
            theirs = incoming_state.metric
        elif isinstance(incoming_state, dict) and self._key in incoming_state:
            theirs = from_bytes(incoming_state[self._key].numpy(force=True).tobytes())
        else:
            raise IncompatibleStateError(
                f"expected the state of a metric like {self._inner!r}, found {incoming_state!r}"
            )
        self.metric.merge(theirs)
        self._computed = None
        self._update_calls = self._update_count = self._update_calls + 1

    def reset(self) -> None:
        """Reset the metric."""
        super().reset()
        self._target.reset()
        self._total, self._update_calls = None, 0

    def __repr__(self) -> str:
        return f"TorchMetric({self._target!r})"


class TorchMetricValue(torchmetrics.Metric):
    """A single value of a `TorchMetric` with several values, as a metric that Lightning can log.

    Parameters
    ----------
    whole : TorchMetric
        The metric with all values. Only this metric is updated and synced.
    key : str
        The name of the value in the result of `whole`.
    """

    is_differentiable = False
    full_state_update = False

    def __init__(self, whole: TorchMetric, key: str) -> None:
        super().__init__(sync_on_compute=False, compute_with_cache=False)
        # Hide `whole` from torch in a tuple. Otherwise it would be a submodule of its own submodule, and torch would
        # recurse into the two forever.
        self._whole, self.key = (whole,), key

    @property
    def update_called(self) -> bool:
        """Whether the `TorchMetric` with all values was updated."""
        return bool(self._whole[0].update_called)

    def update(self, *columns: Any, **named_columns: Any) -> None:
        """Raise an error, because only the `TorchMetric` with all values can be updated."""
        raise TorchMetricsUserError("update the TorchMetric that contains this value")

    def compute(self) -> Any:
        """Return this value over all batches of all ranks."""
        return self._whole[0].compute()[self.key]

    def reset(self) -> None:
        """Reset the `TorchMetric` with all values."""
        super().reset()
        self._whole[0].reset()


@cache
def _build_named_class(name: str) -> Any:
    """Return a TorchMetric subclass with this name. Pickle cannot import the class, so `__reduce__` rebuilds it."""

    def reduce(self: TorchMetric) -> Any:
        return _rebuild_metric, (name,), self.__getstate__()

    attributes = {"__module__": __name__, "__doc__": TorchMetric.__doc__, "__reduce__": reduce}
    return type(name, (TorchMetric,), attributes)


def _rebuild_metric(name: str) -> Any:
    kind = _build_named_class(name)
    return kind.__new__(kind)


def _is_lightning_loading() -> bool:
    """Return whether a Lightning trainer, rather than the user, has called the module's `load_state_dict`."""
    frame: Any = sys._getframe()
    packages = ("torch", "torchmetrics", "streammetrics")
    while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] in packages:
        frame = frame.f_back
    caller = "" if frame is None else frame.f_globals.get("__name__", "")
    return caller.startswith(("lightning.pytorch.", "pytorch_lightning."))


def _to_byte_tensor(data: bytes, device: Any) -> torch.Tensor:
    """Return bytes as a uint8 tensor on a device; an empty byte string becomes an empty tensor."""
    tensor = torch.frombuffer(bytearray(data), dtype=torch.uint8) if data else torch.zeros(0, dtype=torch.uint8)
    return tensor.to(device)
