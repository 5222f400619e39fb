"""Spark: compute metrics of data frames and streams, and use states in SQL columns.

All functions work with classic sessions and with Spark Connect, because they do not use RDDs. This package must be
installed on the workers.
"""

from .run import Evaluated as Evaluated
from .run import evaluate as evaluate
from .sql import aggregate as aggregate
from .sql import merge_states as merge_states
from .sql import register as register
from .sql import state_value as state_value
from .stream import Sink as Sink

__all__ = ["Evaluated", "Sink", "aggregate", "evaluate", "merge_states", "register", "state_value"]
