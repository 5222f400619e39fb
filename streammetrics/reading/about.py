"""The `About` record, in which a metric class describes itself, its value and its intervals."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Self

__all__ = ["About", "about_of", "best_of", "inherit", "sharded_refusal_of"]

CONSTANT = {"tag", "formula", "cost", "bound", "best", "example", "rank_based", "positional_columns"}
"""The fields of `About` that cannot depend on the settings of a metric. They are the same for all instances of a metric
class, so they are known without an instance."""


@dataclass(frozen=True, kw_only=True, eq=False)
class About:
    """What a metric class declares about itself, its value and its intervals.

    A subclass of `Metric` declares only the fields that differ from those of its base classes, for example
    `about = About(best="high")`. It inherits all other fields. Use `About.per_instance` for a field that depends on the
    settings of the metric.

    Parameters
    ----------
    tag : str
        The name of the class in `METRICS` and in saved states. Declare it as a class keyword: `tag="auc"`.
    formula : str
        The formula of the value.
    cost : str
        The memory use of the state, and the time that an update takes per row.
    bound : str
        A description of how exact the value is and what its certified bounds are.
    best : {"high", "low"}, float or None
        Whether high or low values are better. A float is the best value; other values are compared by their ratio to
        it. None means that neither direction is better.
    example : mapping
        Values for the settings that have no default. They are used by code that creates a metric of every class, such
        as tests and the list of metrics.
    extensive : bool
        Whether the value changes if every row is repeated. Counts, sums and unbiased estimates are extensive.
    weights_are_counts : bool
        Whether a row of weight k counts as k rows, and a row of weight 0 as no row.
    rank_based : bool or None
        Whether only the order of the scores matters. If so, the scores are not corrected for the negative sampling that a
        `Task` declares, because the correction would not change their order. None if it is unknown.
    value_range : pair
        The smallest and the largest possible value; None for no limit. Certified bounds stay within this range.
    nominal_range : pair, optional
        The range with which the width of the certified bounds is compared. The bounds are reported as too wide if their
        width is a large share of the length of this range. By default, it is `value_range`. A skill score, for example,
        lies between 0 and 1 for useful models, but can be any negative number.
    interval_scale : str
        The scale on which the sampling distribution of the value is roughly symmetric (see `SCALES`). All intervals are
        computed on this scale.
    interval_methods : tuple of str
        The names of the methods that `interval` offers. The first is the default.
    no_interval_reason : str
        Why the metric has no interval of any kind, and what to use instead. Empty if the metric has an interval.
    no_sharded_interval_reason : str
        Why `Sharded` gives no interval for this metric, and what to use instead. Empty if `Sharded` gives an interval.
    quantile : float, optional
        If the value is a quantile: the share of the total weight that lies below it, such as 0.5 for a median.
    pair_statistic : callable, optional
        For a metric that depends only on the pairs of a positive and a negative row: a function that returns the
        numerator and the denominator of the value. Its parameters are the number of negatives, the number of positives,
        and twice the number of pairs in which the positive has the higher score (ties count one half).
    positional_columns : tuple of str, optional
        The columns, such as "y_true", to which the positional arguments of `update` correspond. By default they are the
        first two required columns.
    read_cells : callable, optional
        A function that takes the metric and a state with many cells (such as slices). It returns one reading with
        arrays over all cells, or None if the cells must be processed one by one. Use `read_side_by_side` for metrics
        whose `read` works with arrays.
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
    """The fields that the metric class itself declares, excluding those that it inherits."""

    def __new__(cls, **fields: Any) -> Self:
        """Record which fields were passed, because only these override the fields of the base classes."""
        for name, value in fields.items():
            if type(value) is PerInstance and name in CONSTANT:
                raise TypeError(
                    f"About: {name} is the same for all metrics of a class and cannot depend on settings; pass a value "
                    f"instead of About.per_instance(...)"
                )
        about = super().__new__(cls)
        about.__dict__["own_fields"] = fields
        return about

    @staticmethod
    def per_instance(function: Callable[[Any], Any]) -> Any:
        """Declare that a field, such as `extensive` or `value_range`, depends on the settings of the metric.

        Parameters
        ----------
        function : callable
            A function that takes the metric and returns the value of the field.

        Examples
        --------
        >>> from streammetrics.extend import About
        >>> about = About(extensive=About.per_instance(lambda metric: metric.ddof > 0))
        """
        return PerInstance(function)


class PerInstance(NamedTuple):
    """A placeholder for a field of `About` that depends on the settings of the metric; see `About.per_instance`.

    Parameters
    ----------
    function : callable
        A function that takes the metric and returns the value of the field.
    """

    function: Callable[[Any], Any]


def about_of(metric: Any) -> About:
    """Return the `About` of a metric, with the fields that depend on its settings filled in."""
    known: About | None = metric.__dict__.get("_about")
    if known is None:
        record: About = metric.about
        computed = {n: f.function(metric) for n, f in record.__dict__.items() if type(f) is PerInstance}
        known = metric.__dict__["_about"] = _replace_fields(record, computed) if computed else record
    return known


def best_of(thing: Any) -> str | float | None:
    """Return whether "high" or "low" values of a metric are better, or the best value as a float.

    Return None if neither direction is better, or if `thing` is not a metric.
    """
    record: About | None = getattr(thing, "about", None)
    return None if record is None else record.best


def sharded_refusal_of(metric: Any) -> str:
    """Return why `Sharded` computes no interval for a metric, and what to use instead; "" if there is an interval."""
    record = about_of(metric)
    return record.no_interval_reason or record.no_sharded_interval_reason


def inherit(cls: Any, tag: str) -> About:
    """Return the complete `About` of a metric class: its own fields, and the fields that it inherits.

    If several base classes declare a field, the first one in the method resolution order takes precedence.
    A nonempty `tag` replaces the tag that the class declares or inherits.
    """
    own = vars(cls).get("about")
    own_fields = {**({} if own is None else own.own_fields), **({"tag": tag} if tag else {})}
    fields: dict[str, Any] = {}
    for base in reversed(cls.__mro__[1:]):
        if "about" in vars(base):
            fields |= base.about.own_fields
    return _replace_fields(About(), {**fields, **own_fields, "own_fields": own_fields})


def _replace_fields(record: About, fields: Mapping[str, Any]) -> About:
    """Return a copy of `record` with new values for the fields that `fields` (a dict) contains."""
    copy = object.__new__(About)
    copy.__dict__.update(record.__dict__)
    copy.__dict__.update(fields)
    return copy
