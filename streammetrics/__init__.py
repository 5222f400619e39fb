"""Streaming metric accumulators: constant memory, mergeable, the same bits however the log is split."""

from .arrays import Array, added, highest, keyed, lowest, rows
from .bundle import Bundle
from .codec import from_bytes, load, save
from .collection import MetricCollection
from .columns import Column, Need, flag, label, score, weight
from .compose import Sliced
from .errors import *
from .laws import LawError, check_metric, check_state
from .merging import merge
from .metric import METRICS, Interval, Metric
from .metrics import *
from .settings import setting, union
from .state import State
from .states.labels import DecisionCounts
from .states.scores import ScoreHistogram
from .states.sums import ScoreSums
from .table import Table
from .task import Task

__version__ = "0.1.0.dev0"
