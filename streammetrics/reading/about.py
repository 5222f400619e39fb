"""About: what a metric declares about itself, its value and its intervals."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Self

__all__ = ["About", "about_of", "best_of", "inherit", "sharded_refusal_of"]

CONSTANT = {"tag", "formula", "cost", "bound", "best", "example", "rank_based", "positional_columns"}
"""The fields that are equal for all metrics of a class, so they are known without an instance."""


@dataclass(frozen=True, kw_only=True, eq=False)
class About:
    """What a metric declares about itself, its value and its intervals.

    A subclass of `Metric` declares the fields that differ from those of its bases: `about = About(best="high")`. It
    inherits all other fields. `About.per_instance` declares a field that depends on the settings of the metric.

    Parameters
    ----------
    tag : str
        The name under which `METRICS` and saved bytes find the class. Declare it as a class keyword: `tag="auc"`.
    formula : str
        The formula of the value.
    cost : str
        The memory of the state, and the time of a row.
    bound : str
        How exact the value is.
    best : {"high", "low"}, float or None
        Whether high or low values are better; or the best value, where values are compared by their ratio to it; None if
        no values are better.
    example : mapping
        Values for the settings that have no default. The laws, the catalogue and the tests use them.
    extensive : bool
        Whether the value changes if every row occurs twice. Counts, sums and unbiased estimates are extensive.
    weights_are_counts : bool
        Whether a row of weight k counts as k rows, and a row of weight 0 as none.
    rank_based : bool or None
        Whether only the order of the scores matters. If so, the metric reads the scores without the correction for
        negative sampling of a `Task`. None if it is unknown.
    value_range : pair
        The smallest and the largest value that is possible; None for no limit. Certified bounds stay in this range.
    nominal_range : pair, optional
        The range whose length decides whether certified bounds are wide, if it is not `value_range`. A skill score, for
        example, lies between 0 and 1 for useful models, but can be any negative number.
    interval_scale : str
        The scale on which the sampling distribution of the value is roughly symmetric (see `SCALES`). All intervals are
        computed on this scale.
    interval_methods : tuple of str
        The methods of `interval`. The first is the default.
    no_interval_reason : str
        Why the metric has no interval of any kind, and what to use. Empty if it has one.
    no_sharded_interval_reason : str
        Why `Sharded` gives no interval of this metric, and what to use. Empty if it gives one.
    quantile : float, optional
        The share of the weight below the value, if the value is a quantile.
    pair_statistic : callable, optional
        For a metric that depends only on the pairs of a positive and a negative row: a function that returns the
        numerator and the denominator of the value. Its parameters are the negatives, the positives, and twice the number
        of pairs in which the positive has the higher score (ties count half).
    positional_columns : tuple of str, optional
        The roles of the first columns that `update` takes by position. By default they are the first two required ones.
    read_cells : callable, optional
        A function of the metric and a state of many cells. It returns the reading of all cells as arrays, or None if
        each cell has to be read alone. Use `read_side_by_side` for metrics whose `read` works with arrays.
    """

    tag: str = ""
    formula: str = ""
    cost: str = ""
    bound: str = "exact: rounded once"
    best: str | float | None = None
    example: Mapping[str, Any] = field(default_factory=dict)
    extensive: bool = False
    weights_are_counts: bool = True
    rank_based: bool | None = False
    value_range: tuple[Any, Any] = (None, None)
    nominal_range: tuple[float, float] | None = None
    interval_scale: str = "natural"
    interval_methods: tuple[str, ...] = ("delta",)
    no_interval_reason: str = ""
    no_sharded_interval_reason: str = ""
    quantile: float | None = None
    pair_statistic: Callable[[Any, Any, Any], tuple[Any, Any]] | None = None
    positional_columns: tuple[str, ...] | None = None
    read_cells: Callable[[Any, Any], Any] | None = None
    own_fields: Mapping[str, Any] = field(init=False, repr=False)
    """The fields that the class itself declares, without those that it inherits."""

    def __new__(cls, **fields: Any) -> Self:
        """Remember which fields were passed: only these override the fields of the base classes."""
        for name, value in fields.items():
            if type(value) is PerInstance and name in CONSTANT:
                raise TypeError(f"About: {name} is equal for all metrics of a class; it cannot depend on settings")
        about = super().__new__(cls)
        about.__dict__["own_fields"] = fields
        return about

    @staticmethod
    def per_instance(function: Callable[[Any], Any]) -> Any:
        """Declare a field whose value depends on the settings, such as `extensive` or `value_range`.

        Parameters
        ----------
        function : callable
            Takes the metric, and returns the value of the field.

        Examples
        --------
        >>> from streammetrics.extend import About
        >>> about = About(extensive=About.per_instance(lambda metric: metric.ddof > 0))
        """
        return PerInstance(function)


class PerInstance(NamedTuple):
    """A field of `About` that depends on the settings of the metric.

    Parameters
    ----------
    function : callable
        Takes the metric, and returns the value of the field.
    """

    function: Callable[[Any], Any]


def about_of(metric: Any) -> About:
    """Return what a metric declares, with the fields that depend on its settings computed."""
    known: About | None = metric.__dict__.get("_about")
    if known is None:
        record: About = metric.about
        computed = {n: f.function(metric) for n, f in record.__dict__.items() if type(f) is PerInstance}
        known = metric.__dict__["_about"] = _replace_fields(record, computed) if computed else record
    return known


def best_of(thing: Any) -> str | float | None:
    """Return "high" or "low", whichever is better, or the best value; None without one, or if `thing` is not a metric."""
    record: About | None = getattr(thing, "about", None)
    return None if record is None else record.best


def sharded_refusal_of(metric: Any) -> str:
    """Return why `Sharded` computes no interval for a metric, and what to use instead; empty if it computes one."""
    record = about_of(metric)
    return record.no_interval_reason or record.no_sharded_interval_reason


def inherit(cls: Any, tag: str) -> About:
    """Return the `About` of a class: its own fields, and those of its base classes in the order of attribute lookup."""
    own = vars(cls).get("about")
    own_fields = {**({} if own is None else own.own_fields), **({"tag": tag} if tag else {})}
    fields: dict[str, Any] = {}
    for base in reversed(cls.__mro__[1:]):
        if "about" in vars(base):
            fields |= base.about.own_fields
    return _replace_fields(About(), {**fields, **own_fields, "own_fields": own_fields})


def _replace_fields(record: About, fields: Mapping[str, Any]) -> About:
    """Return a copy of a record with these fields replaced."""
    copy = object.__new__(About)
    copy.__dict__.update(record.__dict__)
    copy.__dict__.update(fields)
    return copy
