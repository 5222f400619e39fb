"""What users look for, a folder per family: each class is settings, a docstring with the formula, and `of(state)`."""

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

if not _typing.TYPE_CHECKING:  # metrics and functions; the types of their results are in streammetrics.results
    __all__ = [
        name
        for name, thing in globals().items()
        if not name.startswith("_")
        and (isinstance(thing, _types.FunctionType) or (isinstance(thing, type) and issubclass(thing, _Metric)))
    ]
