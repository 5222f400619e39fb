"""torchmetrics: ours as a metric of theirs, for Lightning's `self.log`, their collections and their wrappers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torchmetrics
from torchmetrics.utilities.distributed import gather_all_tensors
from torchmetrics.utilities.exceptions import TorchMetricsUserError

from ..collect.accumulator import accumulator_of, definition_of
from ..collect.metric_like import MetricLike, answer_of, columns_of, empty_copy, states_of
from ..collect.serialization import from_bytes, merge
from ..compose.bundle import Bundle
from ..errors import IncompatibleStateError, InvalidInputError, StateFormatError, StreamMetricsError
from ..reading.about import best_of
from .deferred import Deferred

__all__ = ["TorchMetric"]

NAME = "streammetrics_"


class TorchMetric(torchmetrics.Metric):
    """A metric of torchmetrics that counts with ours: constant memory, the same bits however rows are split over ranks.

    Parameters
    ----------
    metric : Metric, MetricCollection, or Deferred of these
        What counts; it is the object itself. Of a collection `compute` returns a dict. With `Deferred` an `update` does
        not wait for the GPU (`forward` does: it returns the value of the batch).
    **settings
        Those of `torchmetrics.Metric`: `process_group`, `dist_sync_on_step`, `sync_on_compute`, ...

    Notes
    -----
    Arguments are in the order of torchmetrics: predictions, then labels. Values are float64 tensors on its device.

    Ranks send one another what they have counted in `compute`, once, as a tensor of bytes by torchmetrics' own gather:
    over nccl the metric has to be on the device of the rank, where Lightning puts it.

    As in torchmetrics `state_dict` leaves the rows out, unless ``persistent(True)`` asks for them: then they are one uint8
    tensor whose name holds a digest of the settings. It holds the rows of this rank, and who loads it has them: every rank
    of a Lightning run loads the checkpoint of rank 0, and would count that rank's epoch again.

    A MetricCollection of torchmetrics lets metrics share what looks equal after the first batch; this one never looks
    equal to another. To share one pass, give it a MetricCollection of ours.

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
            raise TypeError(f"expected a metric, a MetricCollection or Deferred, got {metric!r}{hint}")
        self._target = metric
        self._key = NAME + empty_copy(inner).digest()[:16]
        # NaN equals nothing, itself included: compute groups take no two of these for one
        self.add_state(self._key, torch.tensor(float("nan")), dist_reduce_fx=None)
        self._total: MetricLike | None = None
        self._fed = 0  # how often; `_update_count` is overwritten by collections that share

    @property
    def metric(self) -> Any:
        """What counts, with every row of this rank."""
        return self._target.flush() if isinstance(self._target, Deferred) else self._target

    @property
    def _inner(self) -> Any:
        """What counts, without the steps that are deferred."""
        return self._target.metrics if isinstance(self._target, Deferred) else self._target

    @property
    def higher_is_better(self) -> bool | None:
        """Whether higher values are better, for their MetricTracker; None if that depends."""
        return {"high": True, "low": False}.get(str(best_of(self._inner)))

    def update(self, preds: Any, target: Any = None, **columns: Any) -> None:
        """Count a batch.

        Parameters
        ----------
        preds : tensor of shape (n,)
            Scores or predictions; of a metric that reads one column alone, that column.
        target : tensor of shape (n,)
            Labels.
        **columns : tensors of shape (n,)
            Others by name: `sample_weight`, `group`, ...

        Raises
        ------
        InvalidInputError
            A value is bad; nothing was counted.
        """
        self._fed += 1
        self._count(self._target, preds, target, columns)

    def _count(self, into: Any, preds: Any, target: Any, columns: dict[str, Any]) -> None:
        roles = definition_of(self._inner).positional_columns()
        if target is None:
            into.update(preds, **columns)
        elif len(roles) == 1:  # among others, in a collection: of both it reads one
            into.update(target if roles[0] == "y_true" else preds, **columns)
        else:
            into.update(target, preds, **columns)

    def _filter_kwargs(self, **kwargs: Any) -> dict[str, Any]:
        """Of what a collection is given, the columns that this one reads."""
        read = {"preds", "target", *columns_of(self._inner)}
        return {name: column for name, column in kwargs.items() if name in read}

    def forward(self, preds: Any, target: Any = None, **columns: Any) -> Any:
        """Count a batch, and return the value of this batch alone; NaN where undefined, without a warning.

        With `dist_sync_on_step` it is that of the batches of all ranks.
        """
        if self._is_synced:
            raise TorchMetricsUserError("this metric holds what all ranks have seen; call unsync() before forward()")
        batch = empty_copy(self._inner)
        self._count(batch, preds, target, columns)
        self.update(preds, target, **columns)
        if self.dist_sync_on_step and self._distributed():
            batch = self._gathered(lambda: batch.to_bytes(), self.dist_sync_fn, self.process_group)
        self._forward_cache = self._tensors(answer_of(batch).value)
        return self._forward_cache

    def compute(self) -> Any:
        """Return the value of all batches, of all ranks; NaN, with one warning, where it is undefined."""
        if self._fed != self._update_count:
            raise TorchMetricsUserError(
                f"this metric saw {self._fed} batches, and a collection says that it saw {self._update_count}: its "
                f"compute_groups= name it beside another, and it was not given what that one was; leave it out of them"
            )
        metric: Any = self.metric if self._total is None else self._total
        return self._tensors(metric.compute())

    def _tensors(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {str(name): self._tensors(one) for name, one in value.items()}
        if isinstance(value, tuple):
            return tuple(self._tensors(one) for one in value)
        kind = torch.float32 if self.device.type == "mps" else torch.float64  # which has no wider
        return torch.as_tensor(value, dtype=kind, device=self.device)

    # -- ranks --------------------------------------------------------------------------------------------------------

    def _distributed(self) -> bool:
        asked = self.distributed_available_fn
        return bool(asked() if callable(asked) else asked)

    def _sync_dist(self, dist_sync_fn: Callable[..., Any] | None = None, process_group: Any = None) -> None:
        self._total = self._gathered(lambda: self.metric.to_bytes(), dist_sync_fn, process_group or self.process_group)

    def _gathered(self, saved: Callable[[], bytes], how: Callable[..., Any] | None, group: Any) -> Any:
        """What all ranks have seen; where one has a bad deferred step to report, all raise, and none waits for ever."""
        data, bad = b"", None
        try:
            data = saved()
        except StreamMetricsError as error:  # raised once all ranks have been told
            bad = error
        found = [t.numpy(force=True).tobytes() for t in (how or gather_all_tensors)(_tensor(data, self.device), group)]
        if bad is not None:
            raise bad
        if silent := [rank for rank, part in enumerate(found) if not part]:
            raise InvalidInputError(f"a step of rank {silent[0]} was bad; that rank says which")
        return merge(found)

    def unsync(self, should_unsync: bool = True) -> None:
        """Go back to what this rank has seen."""
        super().unsync(should_unsync)
        if should_unsync:
            self._total = None

    # -- what is saved ------------------------------------------------------------------------------------------------

    @property
    def metric_state(self) -> dict[str, Any]:
        """What was counted, as `state_dict` has it."""
        return {self._key: _tensor(self.metric.to_bytes(), self.device)}

    def state_dict(self, destination: Any = None, prefix: str = "", keep_vars: bool = False) -> Any:
        """What was counted on this rank as one uint8 tensor, after ``persistent(True)``."""
        made = super().state_dict(destination=destination, prefix=prefix, keep_vars=keep_vars)
        if prefix + self._key in made:
            made[prefix + self._key] = _tensor(self.metric.to_bytes(), torch.device("cpu"))
        return made

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *others: Any) -> None:
        """Go on from what was saved.

        Raises
        ------
        IncompatibleStateError
            It was saved by a metric of other settings; the message says which.
        StateFormatError
            It is no saved state.
        """
        for name in [n for n in state_dict if n.startswith(prefix + NAME)]:
            self._take(name, state_dict.pop(name))
        super()._load_from_state_dict(state_dict, prefix, *others)

    def _take(self, name: str, saved: Any) -> None:
        if not isinstance(saved, torch.Tensor) or saved.dtype != torch.uint8:
            raise StateFormatError(f"{name}: expected a uint8 tensor, as state_dict() returns it")
        loaded = from_bytes(saved.numpy(force=True).tobytes())
        counted = accumulator_of(self._inner)
        counted.check_fits(accumulator_of(loaded))
        self.reset()
        counted.hold(states_of(loaded))
        self._fed = self._update_count = 1  # it has something to compute from

    def merge_state(self, incoming_state: Any) -> None:
        """Add what another metric has seen, or its `metric_state`.

        Raises
        ------
        IncompatibleStateError
            It has other settings.
        """
        if isinstance(incoming_state, TorchMetric):
            theirs = incoming_state.metric
        elif isinstance(incoming_state, dict) and self._key in incoming_state:
            theirs = from_bytes(incoming_state[self._key].numpy(force=True).tobytes())
        else:
            raise IncompatibleStateError(f"this is not what a metric like {self._inner!r} has seen: {incoming_state!r}")
        self.metric.merge(theirs)
        self._computed = None
        self._fed = self._update_count = self._fed + 1

    def reset(self) -> None:
        """Forget every row."""
        super().reset()
        self._target.reset()
        self._total, self._fed = None, 0

    def __repr__(self) -> str:
        return f"TorchMetric({self._target!r})"


def _tensor(data: bytes, device: Any) -> torch.Tensor:
    """Bytes as a tensor; there may be none."""
    made = torch.frombuffer(bytearray(data), dtype=torch.uint8) if data else torch.zeros(0, dtype=torch.uint8)
    return made.to(device)
