"""Values as loggers take them: floats under names."""

from __future__ import annotations

from ..collect.holder import Holder

__all__ = ["values"]


def values(metrics: Holder) -> dict[str, float]:
    """Return every value that is a number, by name; NaN where it is undefined.

    Parameters
    ----------
    metrics : Metric or MetricCollection
        What has counted.

    Returns
    -------
    dict of str to float
        Arrays and curves are left out.

    Examples
    --------
    >>> import streammetrics as sm
    >>> values(sm.MetricCollection(sm.CTR(), sm.ROCCurve()).update([0, 1], [0.2, 0.7]))
    {'ctr': 0.5}
    """
    found = metrics.value(metrics.states)
    named = found if isinstance(found, dict) else {metrics.name: found}  # type: ignore[attr-defined]
    return {name: value for name, value in named.items() if isinstance(value, float)}
