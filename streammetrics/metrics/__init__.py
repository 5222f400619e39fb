"""The metrics, a folder for each family.

Each class declares settings, a docstring with the formula, and `of(state)`, which computes the value.
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

# These are metrics and functions; the types of their results are in streammetrics.results.
if not _typing.TYPE_CHECKING:
    __all__ = [
        name
        for name, thing in globals().items()
        if not name.startswith("_")
        and (isinstance(thing, _types.FunctionType) or (isinstance(thing, type) and issubclass(thing, _Metric)))
    ]
