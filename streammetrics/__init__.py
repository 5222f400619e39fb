"""Streaming metric accumulators: constant memory, mergeable, the same bits however the log is split."""

__version__ = "0.1.0.dev0"

import typing as _typing

from .collect.about import About as About
from .collect.collection import MetricCollection as MetricCollection
from .collect.interval import Interval as Interval
from .collect.metric import METRICS as METRICS
from .collect.metric import Metric as Metric
from .collect.saved import from_bytes as from_bytes
from .collect.saved import load as load
from .collect.saved import merge as merge
from .collect.saved import save as save
from .collect.table import Table as Table
from .collect.task import Task as Task
from .columns.columns import Column as Column
from .columns.columns import Need as Need
from .columns.columns import flag as flag
from .columns.columns import grade as grade
from .columns.columns import label as label
from .columns.columns import matrix as matrix
from .columns.columns import score as score
from .columns.columns import weight as weight
from .columns.ids import group as group
from .columns.ids import query as query
from .columns.lists import ranked_lists as ranked_lists
from .columns.numbers import number as number
from .compose.aa import FalseAlarms as FalseAlarms
from .compose.aa import aa as aa
from .compose.bundle import Bundle as Bundle
from .compose.checkpoint import Checkpoint as Checkpoint
from .compose.decayed import Decayed as Decayed
from .compose.delta import Delta as Delta
from .compose.ledger import Ledger as Ledger
from .compose.recent import Recent as Recent
from .compose.sharded import Sharded as Sharded
from .compose.sliced import Sliced as Sliced
from .compose.windowed import Windowed as Windowed
from .errors import *
from .guide.suggest import MissingNameError as _MissingNameError
from .inference.compare import compare as compare
from .inference.drift import Drift as Drift
from .inference.drift import Stability as Stability
from .inference.drift import drift as drift
from .inference.drift import population_stability_index as population_stability_index
from .inference.power import power as power
from .inference.sample_ratio import SampleRatio as SampleRatio
from .inference.sample_ratio import sample_ratio_mismatch as sample_ratio_mismatch
from .inference.scorecard import scorecard as scorecard
from .laws import LawError as LawError
from .laws import check_metric as check_metric
from .laws import check_state as check_state
from .metrics import *
from .metrics import curves as curves
from .metrics import decisions as decisions
from .metrics import groups as groups
from .metrics import probabilities as probabilities
from .metrics import ranking as ranking
from .metrics import regression as regression
from .metrics import values as values
from .metrics.families import shown as _shown
from .numerics.settings import setting as setting
from .numerics.settings import union as union
from .reports.page.write import report as report
from .reports.plots import plot as plot
from .serve.push import push as push
from .state.axes import Axis as Axis
from .state.declare import Flat as Flat
from .state.declare import Tally as Tally
from .state.state import State as State
from .statistics.bins import ScoreBins as ScoreBins
from .statistics.classes import ClassCounts as ClassCounts
from .statistics.distinct import DistinctKeys as DistinctKeys
from .statistics.extremes import Extremes as Extremes
from .statistics.joint import JointHistogram as JointHistogram
from .statistics.labels import DecisionCounts as DecisionCounts
from .statistics.moments import Moments as Moments
from .statistics.ranking import RankingSums as RankingSums
from .statistics.regression import RegressionSums as RegressionSums
from .statistics.row_terms import RowTerms as RowTerms
from .statistics.scores import ScoreHistogram as ScoreHistogram
from .statistics.soft_sums import SoftSums as SoftSums
from .statistics.step import Like as Like
from .statistics.step import Step as Step
from .statistics.sums import ScoreSums as ScoreSums
from .statistics.values import ValueHistogram as ValueHistogram


def __dir__() -> list[str]:
    return _shown(globals())


if not _typing.TYPE_CHECKING:  # a type checker reads the imports, and a module with __getattr__ has every name for it
    __all__ = [name for name in __dir__() if not name.startswith("_")]

    def __getattr__(name: str) -> object:
        raise _MissingNameError(name, __all__)
