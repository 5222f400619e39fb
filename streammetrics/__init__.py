"""Streaming metric accumulators: constant memory, mergeable, the same bits however the log is split."""

from .arrays import Array as Array
from .arrays import added as added
from .arrays import highest as highest
from .arrays import keyed as keyed
from .arrays import lowest as lowest
from .arrays import rows as rows
from .bundle import Bundle as Bundle
from .codec import from_bytes as from_bytes
from .codec import load as load
from .codec import save as save
from .collection import MetricCollection as MetricCollection
from .columns import Column as Column
from .columns import Need as Need
from .columns import flag as flag
from .columns import grade as grade
from .columns import label as label
from .columns import matrix as matrix
from .columns import score as score
from .columns import weight as weight
from .compose import Sliced as Sliced
from .errors import *
from .ids import group as group
from .ids import query as query
from .laws import LawError as LawError
from .laws import check_metric as check_metric
from .laws import check_state as check_state
from .lists import ranked_lists as ranked_lists
from .merging import merge as merge
from .metric import METRICS as METRICS
from .metric import Interval as Interval
from .metric import Metric as Metric
from .metrics import *
from .numbers import number as number
from .settings import setting as setting
from .settings import union as union
from .state import State as State
from .states.calibration import ScoreBins as ScoreBins
from .states.classes import ClassCounts as ClassCounts
from .states.distinct import DistinctKeys as DistinctKeys
from .states.extremes import Extremes as Extremes
from .states.labels import DecisionCounts as DecisionCounts
from .states.moments import Moments as Moments
from .states.quantiles import ValueHistogram as ValueHistogram
from .states.ranking import RankingSums as RankingSums
from .states.regression import RegressionSums as RegressionSums
from .states.scores import ScoreHistogram as ScoreHistogram
from .states.sums import ScoreSums as ScoreSums
from .table import Table as Table
from .task import Task as Task

__version__ = "0.1.0.dev0"
