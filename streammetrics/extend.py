"""The API for authors of metrics, states and wrappers.

`check_metric` and `check_state` run the property tests that every metric and state must pass; for example, merging in any
order must give the same result.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .batch.columns import Column, Kind
from .batch.ids import group, query
from .batch.kinds import Need, flag, grade, label, matrix, score, weight
from .batch.numbers import number
from .collect.accumulator import accumulate, definition_of
from .collect.definition import Definition
from .collect.metric import METRICS, Metric
from .collect.metric_like import MetricLike, answer_of, columns_of, empty_copy, states_of, with_states
from .compose.axis_wrapper import AxisDefinition, AxisWrapper
from .numerics.exact import Limits
from .numerics.settings import setting, union
from .reading.about import About, about_of
from .reading.answers import Answer
from .reading.interval import Estimate
from .reading.reading import OwnNumber, OwnReading, Quotient, Reading
from .state.axes import Axis
from .state.declare import Flat, Tally
from .state.state import State
from .statistics.bins import ScoreBins
from .statistics.classes import ClassCounts
from .statistics.decision_counts import DecisionCounts
from .statistics.distinct import DistinctKeys
from .statistics.extremes import Extremes
from .statistics.joint import JointHistogram
from .statistics.moments import Moments
from .statistics.ranking import RankingSums
from .statistics.regression import RegressionSums
from .statistics.row_terms import RowTerms
from .statistics.scores import ScoreHistogram
from .statistics.soft_sums import SoftSums
from .statistics.step import Like, Step
from .statistics.sums import ScoreSums
from .statistics.values import ValueHistogram

if TYPE_CHECKING:
    from .laws import LawError, check_metric, check_state

__all__ = [
    "METRICS",
    "About",
    "Answer",
    "Axis",
    "AxisDefinition",
    "AxisWrapper",
    "ClassCounts",
    "Column",
    "DecisionCounts",
    "Definition",
    "DistinctKeys",
    "Estimate",
    "Extremes",
    "Flat",
    "JointHistogram",
    "Kind",
    "LawError",
    "Like",
    "Limits",
    "Metric",
    "MetricLike",
    "Moments",
    "Need",
    "OwnNumber",
    "OwnReading",
    "Quotient",
    "RankingSums",
    "Reading",
    "RegressionSums",
    "RowTerms",
    "ScoreBins",
    "ScoreHistogram",
    "ScoreSums",
    "SoftSums",
    "State",
    "Step",
    "Tally",
    "ValueHistogram",
    "about_of",
    "accumulate",
    "answer_of",
    "check_metric",
    "check_state",
    "columns_of",
    "definition_of",
    "empty_copy",
    "flag",
    "grade",
    "group",
    "label",
    "matrix",
    "number",
    "query",
    "score",
    "setting",
    "states_of",
    "union",
    "weight",
    "with_states",
]


def __getattr__(name: str) -> Any:
    # Import the property tests (module `laws`) only when they are used. Only authors of metrics need them, and
    # importing them would take a tenth of the import time of the package.
    if name in ("LawError", "check_metric", "check_state"):
        return getattr(import_module("streammetrics.laws"), name)
    raise AttributeError(f"module 'streammetrics.extend' has no attribute {name!r}", name=name)


def __dir__() -> list[str]:
    return [*globals(), *__all__]
