"""The metrics, with one folder for each family.

Each metric is a class that declares its settings. Its docstring gives the formula, and its method `of(state)` computes the
value from the accumulated state.
"""

import types as _types
import typing as _typing

from ..collect.metric import Metric as _Metric
from .curves import *
from .decisions import *
from .groups import *
from .probabilities import *
from .ranking import *
from .regression import *
from .values import *

# Only metrics and functions are exported here. Result types are in `streammetrics.results`.
if not _typing.TYPE_CHECKING:
    __all__ = [
        name
        for name, thing in globals().items()
        if not name.startswith("_")
        and (isinstance(thing, _types.FunctionType) or (isinstance(thing, type) and issubclass(thing, _Metric)))
    ]
