"""Save metrics in Lightning checkpoints, and resume from them with any number of processes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import lightning

from .torchmetrics import TorchMetric

__all__ = ["MetricCheckpoint"]

KEY = "streammetrics"
"""The key of the checkpoint entry that contains the states of the metrics, keyed by name."""


class MetricCheckpoint(lightning.Callback):
    """A callback that saves each `TorchMetric` of a LightningModule in every checkpoint of the trainer.

    A checkpoint in the middle of an epoch contains the merged metrics of all ranks. After ``fit(ckpt_path=)``, rank 0
    continues from them, and the other ranks start empty, so that each row is counted once. The number of processes may
    have changed. At the end of an epoch, metrics are not saved, because the next epoch starts empty. Validation metrics
    are not saved either, because Lightning repeats the validation. The callback calls ``persistent(False)`` on each
    metric, so that the module's own state dict leaves it out.

    Examples
    --------
    >>> import lightning
    >>> from streammetrics.hooks.lightning import MetricCheckpoint
    >>> trainer = lightning.Trainer(accelerator="cpu", logger=False, callbacks=[MetricCheckpoint()])
    """

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}
        self._validated: set[str] = set()

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Leave the metrics out of the module's state dict, where they would cover the rows of one rank only."""
        for _, metric in _find_metrics(pl_module):
            metric.persistent(False)

    def on_validation_start(self, trainer: Any, pl_module: Any) -> None:
        """Record the number of updates of each metric, to find out which metrics the validation updates."""
        self._counts = {name: metric.update_count for name, metric in _find_metrics(pl_module)}

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        """Record which metrics were updated during validation."""
        self._validated |= {
            name for name, metric in _find_metrics(pl_module) if metric.update_count != self._counts.get(name)
        }

    def on_save_checkpoint(self, trainer: Any, pl_module: Any, checkpoint: dict[str, Any]) -> None:
        """Save the merged metrics of all ranks, unless the epoch is over. Lightning calls this method on every rank."""
        if trainer.is_last_batch:
            return
        checkpoint[KEY] = {}
        for name, metric in _find_metrics(pl_module):
            if name not in self._validated:
                with metric.sync_context(dist_sync_fn=metric.dist_sync_fn):
                    checkpoint[KEY][name] = {key: state.cpu() for key, state in metric.metric_state.items()}

    def on_load_checkpoint(self, trainer: Any, pl_module: Any, checkpoint: dict[str, Any]) -> None:
        """Load the saved metrics on rank 0, and reset the metrics of the other ranks.

        Raises
        ------
        IncompatibleStateError
            A metric and the saved metric have different settings.
        """
        saved = checkpoint.get(KEY, {})
        for name, metric in _find_metrics(pl_module):
            metric.reset()
            if trainer.is_global_zero and name in saved:
                metric.merge_state(saved[name])


def _find_metrics(module: Any) -> Iterator[tuple[str, TorchMetric]]:
    """Yield (name, metric) for each metric of this library in a module."""
    return ((name, part) for name, part in module.named_modules() if isinstance(part, TorchMetric))
