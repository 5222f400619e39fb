"""Count exposures separately from outcomes, so that a user with rows from many workers or hours counts only once."""

from __future__ import annotations

from typing import Any

from ..collect.accumulator import accumulator_of, definition_of
from ..collect.metric_like import empty_copy, states_of, with_states
from ..errors import InvalidInputError
from ..statistics.unit_sums import UnitSums

__all__ = ["count_exposures"]


def count_exposures(metrics: Any, exposures: Any) -> Any:
    """Return new metrics whose `PerUnit` metrics count the rows of `exposures`; all other metrics are empty.

    One job posts these exposures to a dashboard as a separate source, and all other workers post only outcomes. Each
    user then counts once, even with rows from several workers or hours.

    Parameters
    ----------
    metrics : Sliced or MetricCollection
        The metrics of the experiment, with the same settings as in the other workers. They must include a `PerUnit`
        metric. They do not change, and any rows that they have already counted are ignored.
    exposures : table
        One row for each user: the first exposure. The table contains the unit and slice columns and a column of ones
        (`exposed`), but not the outcome columns.

    Returns
    -------
    metrics of the same kind
        The metrics to merge with those of the other workers.

    Raises
    ------
    InvalidInputError
        There is no `PerUnit` metric.

    Examples
    --------
    >>> import streammetrics as sm
    >>> def make():
    ...     clicks = sm.Task(sm.CTR(), y_true="click")
    ...     return sm.Sliced(sm.MetricCollection(clicks, sm.PerUnit("click", unit="user")), by="arm")
    >>> first = {"user": [1, 2, 3], "arm": ["a", "a", "b"], "exposed": [1, 1, 1]}
    >>> outcomes = make().update({"user": [1, 1, 3], "arm": ["a", "a", "b"], "click": [1, 0, 1]})
    >>> outcomes.merge(sm.count_exposures(make(), first)).compute()["a"]
    {'ctr': 0.5, 'click_per_user': 0.5}
    """
    definition, empty = definition_of(metrics), empty_copy(metrics)
    places = {i for i, read in enumerate(definition.reads) if isinstance(read.state, UnitSums)}
    if len(places) == len(definition.reads):
        return empty.update(exposures)
    names = [
        name for name in getattr(metrics, "names", ()) if places.issuperset(_find_places(definition, name) or [-1])
    ]
    if not names:
        raise InvalidInputError("the metrics count no exposures; add sm.PerUnit(outcome, unit=...) for an outcome")
    states = list(states_of(empty))
    for name in names:
        counted = accumulator_of(empty.only([name]).update(exposures))
        for place, state in zip(_find_places(definition, name), counted.states, strict=True):
            states[place] = state
    return with_states(empty, states)


def _find_places(definition: Any, name: str) -> list[int]:
    """Return the indices of the states that the metric called `name` reads."""
    found = definition.find_entry(name)
    return [] if found is None else list(found[1])
