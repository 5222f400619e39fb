"""Compile the kernels of metrics before the first batch, so that no batch during a training run waits for them."""

from __future__ import annotations

from contextlib import suppress
from itertools import cycle, product
from typing import Any

import numpy as np

from ..batch.ids import Ids
from ..batch.kinds import Label
from ..collect.accumulator import accumulator_of, definition_of
from ..collect.metric_like import MetricLike, answer_of, empty_copy
from ..collect.serialization import merge
from ..errors import StreamMetricsError
from ..laws.specimens import Columns, make_consistent, sample
from ..state.state import State

__all__ = ["compile_kernels"]

# The sizes, in rows, of the artificial batches. Updating metrics with these batches compiles the kernels. A histogram
# keeps up to 65,536 rows exactly. The largest batch exceeds this limit, so the batch after it compiles the kernels for
# larger histograms.
BATCHES = (2, 4_096, 70_000, 2)
SMALL_BATCHES = (2, 4_096)
GROUP_ROWS = 8
"""The number of rows of each group or query in the artificial batches."""

# The row numbers of a batch begin at this factor times the number of rows in earlier batches, so that the group keys of
# different batches lie far apart.
GAP = 7
LABEL_DTYPES = ("float32", "int64", "bool", "uint8")
"""The dtypes of labels that training loops pass."""

_compiled: set[tuple[str, str]] = set()


def compile_kernels(metrics: MetricLike, dtype: Any = np.float32) -> None:
    """Compile the kernels that metrics use to count small and large batches, with and without weights.

    Hooks call this function when they are created. Call it before a loop that updates metrics without a hook. The first
    call on a machine may take several seconds per metric. Compiled kernels are cached on disk, and later calls load
    them.

    Parameters
    ----------
    metrics : Metric, MetricCollection or Sliced
        The metrics. They do not change.
    dtype : {"float32", "float64"}
        The dtype of scores and predictions.

    Notes
    -----
    Kernels for keys other than integers, and some small kernels that are used only for slices with many rows, are
    compiled when they are first needed. `streammetrics warmup` compiles all kernels of all metrics.

    Examples
    --------
    >>> import streammetrics as sm
    >>> from streammetrics.hooks.compilation import compile_kernels
    >>> compile_kernels(sm.CTR())
    """
    key, states = (empty_copy(metrics).digest(), str(np.dtype(dtype))), [r.state for r in definition_of(metrics).reads]
    # Skip metrics whose kernels are already compiled, and metrics with `spill_dir`, which would write the artificial
    # rows to disk.
    if key in _compiled or any(getattr(state, "spill_dir", None) for state in states):
        return
    # Only histograms, and states that keep the rows of groups, have separate kernels for many rows.
    has_large = any(hasattr(state, "bits") or hasattr(state, "spill_dir") for state in states)
    all_batches = BATCHES if has_large else SMALL_BATCHES
    _compiled.add(key)
    # Cover three cases: batches without weights, batches with weights, and batches with weights that follow batches
    # without weights.
    for batches, weights in ((all_batches, (False,)), (all_batches, (True,)), (SMALL_BATCHES, (False, True))):
        copy, start = empty_copy(metrics), 0
        cases = product(batches, weights, (False, True))
        for (rows, weighted, is_table), labels in zip(cases, cycle(LABEL_DTYPES), strict=False):
            if is_table and rows not in SMALL_BATCHES:
                continue
            # A user-defined metric may reject the artificial batches. Ignore the error: the first real batch then
            # compiles the kernels of this metric.
            with suppress(StreamMetricsError, TypeError, ValueError):
                columns = _build_columns(copy, start, rows, (dtype, labels), weighted=weighted)
                # Update the accumulator rather than the metric, because a user-defined class may override `update`.
                accumulator_of(copy).update(*((columns, None, {}) if is_table else (None, None, columns)))
            start += GAP * rows
        with suppress(StreamMetricsError):
            _ = answer_of(copy).value, answer_of(merge([copy.to_bytes(), copy])).value


def _build_columns(metrics: MetricLike, start: int, rows: int, dtypes: Any, *, weighted: bool) -> Columns:
    """Return the columns of an artificial batch with which the metrics can be updated.

    Parameters
    ----------
    metrics : MetricLike
        The metrics, whose state does not matter.
    start, rows : int
        The number of the first row (from which the group keys are computed), and the number of rows.
    dtypes : (dtype, dtype)
        The dtype of scores and predictions, and the dtype of labels.
    weighted : bool
        Whether the rows have weights.
    """
    rng, definition = np.random.default_rng(start), definition_of(metrics)
    groups = (start + np.arange(rows)) // GROUP_ROWS
    columns: Columns = {}
    for state, binding, *_ in definition.reads:
        for role, values in _build_role_columns(state, groups, rng, dtypes, weighted=weighted).items():
            names = binding.column(role)
            columns |= {
                name: values for name in (names if isinstance(names, tuple) else (names,)) if name not in columns
            }
        if binding.where is not None:
            columns[binding.where] = np.arange(rows) % 2
        for axis in state.axes:
            keys = groups.astype("datetime64[s]") if axis.kind == "epoch" else groups % 3
            columns |= {name: keys for name in axis.names if name not in columns}
    return {name: values for name, values in columns.items() if name in definition.columns}


def _build_role_columns(state: State, groups: Any, rng: np.random.Generator, dtypes: Any, *, weighted: bool) -> Columns:
    """Return the columns of a batch, keyed by role such as "y_true"; `groups` gives the group or query of each row."""
    needs = state.needs()
    columns = sample(needs, rng, len(groups), "plain", weighted=weighted)
    columns |= {need.role: groups for need in needs if isinstance(need.kind, Ids) and need.role in columns}
    labels = [need.role for need in needs if isinstance(need.kind, Label) and need.role in columns]
    floats = {name: values for name, values in columns.items() if values.dtype.kind == "f" and name != "sample_weight"}
    columns |= {name: values.astype(dtypes[0]) for name, values in floats.items()}
    return make_consistent(state, columns | {name: columns[name].astype(dtypes[1]) for name in labels})
