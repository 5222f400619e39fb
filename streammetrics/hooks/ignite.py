"""Metrics for PyTorch Ignite: an engine updates its attached `IgniteMetric` objects in each iteration."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any

import ignite.distributed as idist
import torch
from ignite import metrics as ignite_metrics

from ..collect.accumulator import accumulator_of
from ..collect.collection import MetricCollection
from ..collect.metric_like import MetricLike
from ..collect.serialization import from_bytes
from .exchange import merge_saved
from .scorer import Scorer, read_scores

__all__ = ["IgniteMetric"]


class IgniteMetric(ignite_metrics.Metric):
    """An Ignite metric that computes metrics of this library.

    Parameters
    ----------
    metrics : Metric or MetricCollection
        The metrics to update in place. They are reset when an epoch starts. A collection puts all its values into
        `engine.state.metrics`, and needs only one pass over the rows.
    output_transform : callable, optional
        Converts the output of an engine to `(y_pred, y)`, `(y_pred, y, sample_weight)`, or a mapping with `y_pred`, `y`
        and the other columns that the metrics read.
    link : {"identity", "probability", "logit", "log"}
        The scale of `y_pred`. The default, "identity", passes `y_pred` to the metrics unchanged.

    Raises
    ------
    ValueError
        The link does not fit the metrics.

    Notes
    -----
    In distributed runs, `compute` merges the states of all processes, so every process gets the values over all rows.
    The `metrics` of each process still count only the rows of that process.

    Examples
    --------
    >>> import torch, streammetrics as sm
    >>> from ignite.engine import Engine
    >>> from streammetrics.hooks.ignite import IgniteMetric
    >>> evaluator = Engine(lambda engine, batch: (torch.tensor(batch[0]), torch.tensor(batch[1])))
    >>> IgniteMetric(sm.AUC(), link="logit").attach(evaluator, "auc")
    >>> evaluator.run([([-1.0, 2.0], [0, 1]), ([0.5, 0.1], [0, 1])]).metrics
    {'auc': 0.75}
    """

    def __init__(
        self,
        metrics: MetricLike,
        output_transform: Callable[[Any], Any] = lambda output: output,
        *,
        link: str = "identity",
    ) -> None:
        self._scorer = Scorer(metrics, link, None)
        if not self._scorer.names:
            raise ValueError(f"{metrics!r} has no value that is a single number; for several classes, set average=")
        self._scorer.compile_kernels()
        self.metrics = metrics
        super().__init__(output_transform)

    def reset(self) -> None:
        """Reset the metrics; Ignite calls this when an epoch starts."""
        self.metrics.reset()

    @torch.no_grad()
    def iteration_completed(self, engine: Any) -> None:
        """Update the metrics with the output of an iteration; Ignite calls this when the iteration ends."""
        self.update(self._output_transform(engine.state.output))

    def update(self, output: Any) -> None:
        """Update the metrics with a batch, in any form that `output_transform` may return."""
        if isinstance(output, Mapping):
            columns = dict(output)
            missing = [name for name in ("y_pred", "y") if name not in columns]
            if missing:
                raise ValueError(
                    f"expected y_pred and y in the output, found {', '.join(map(str, columns))}; "
                    "name the values with output_transform="
                )
            self._scorer.update(columns.pop("y"), columns.pop("y_pred"), **columns)
            return
        if not isinstance(output, (tuple, list)) or len(output) not in (2, 3):
            raise ValueError(
                "expected the output (y_pred, y), (y_pred, y, sample_weight) or a mapping, "
                f"found {f'{len(output)} values' if isinstance(output, (tuple, list)) else type(output).__name__}; "
                "convert the output with output_transform="
            )
        self._scorer.update(output[1], output[0], *output[2:])

    def compute(self) -> float | dict[str, float]:
        """Return the value over the rows of all processes; for a collection, a dict from names to values.

        Raises
        ------
        IncompatibleStateError
            Processes have different metrics or settings; the message lists the differences and the ranks.
        """
        values = read_scores(self._total())
        return values if isinstance(self.metrics, MetricCollection) else values[self.metrics.name]

    def state_dict(self) -> OrderedDict[str, torch.Tensor]:
        """Return the merged state of all processes for a checkpoint; every process must call this method."""
        return OrderedDict(counted=torch.frombuffer(bytearray(self._total().to_bytes()), dtype=torch.uint8))

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Load a checkpoint saved by any number of processes.

        Rank 0 loads the merged state, and all other ranks start empty, so that each row is counted once.

        Raises
        ------
        StateFormatError
            The checkpoint is not a saved state.
        IncompatibleStateError
            The checkpoint contains different metrics or settings.
        """
        saved = from_bytes(state_dict["counted"].cpu().numpy().tobytes())
        accumulator_of(self.metrics).check_compatible(accumulator_of(saved))
        self.metrics.reset()
        if idist.get_rank() == 0:
            self.metrics.merge(saved)

    def _total(self) -> MetricLike:
        if idist.get_world_size() == 1:
            return self.metrics
        total: MetricLike = merge_saved(idist.all_gather(self.metrics.to_bytes()))
        return total
