"""Spark: metrics of data frames and streams, and states in SQL columns; for classic sessions and Spark Connect.

Workers need this package. States are sent as its bytes, and RDDs are not used.
"""

from .run import Evaluated as Evaluated
from .run import evaluate as evaluate
from .sql import aggregate as aggregate
from .sql import merge_states as merge_states
from .sql import register as register
from .sql import state_value as state_value
from .stream import Sink as Sink

__all__ = ["Evaluated", "Sink", "aggregate", "evaluate", "merge_states", "register", "state_value"]
