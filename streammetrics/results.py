"""The types of results: what `compute`, `interval`, `table`, `compare` and other functions return."""

from .compose.aa import FalseAlarms
from .inference.comparison import Comparison, Comparisons
from .inference.drift import Drift, Stability
from .inference.sample_ratio import SampleRatio
from .inference.scorecard import Scorecard
from .inference.winsorization import CappedOutcome
from .metrics.curves.points import DETPoints, GainPoints, PerClass, PRPoints, ROCPoints
from .metrics.curves.uplift import UpliftPoints
from .metrics.probabilities.calibration import Reliability
from .metrics.ranking.precisions import PrecisionsAndRecalls
from .reading.interval import Interval
from .reading.table import Table

__all__ = [
    "CappedOutcome",
    "Comparison",
    "Comparisons",
    "DETPoints",
    "Drift",
    "FalseAlarms",
    "GainPoints",
    "Interval",
    "PRPoints",
    "PerClass",
    "PrecisionsAndRecalls",
    "ROCPoints",
    "Reliability",
    "SampleRatio",
    "Scorecard",
    "Stability",
    "Table",
    "UpliftPoints",
]
