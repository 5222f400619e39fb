"""Streaming metric accumulators: constant memory, mergeable, the same bits however the log is split."""

from .columns import Column, Need, flag, label, score, weight
from .errors import *
from .metric import METRICS, Interval, Metric
from .metrics import *
from .settings import setting, union
from .state import Array, State, added, highest, keyed, lowest, rows
from .states.labels import DecisionCounts
from .states.scores import ScoreHistogram
from .states.sums import ScoreSums

__version__ = "0.1.0.dev0"
