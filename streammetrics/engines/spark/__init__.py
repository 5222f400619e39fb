"""Spark: metrics of a data frame, states in columns of a warehouse, and streams; classic sessions and Spark Connect.

Workers need this package; states cross as bytes of its own format, and nothing needs RDDs.
"""

from .run import Evaluated as Evaluated
from .run import evaluate as evaluate
from .sql import aggregate as aggregate
from .sql import merge_states as merge_states
from .sql import register as register
from .sql import state_value as state_value
from .stream import Sink as Sink

__all__ = ["Evaluated", "Sink", "aggregate", "evaluate", "merge_states", "register", "state_value"]
