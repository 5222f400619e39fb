"""What users look for, a folder per family: each class is settings, a docstring with the formula, and `of(state)`."""

import types as _types
import typing as _typing

from .curves import *
from .decisions import *
from .groups import *
from .probabilities import *
from .ranking import *
from .regression import *
from .values import *

if not _typing.TYPE_CHECKING:  # what metrics are made of is in modules, and these are no names of the face
    __all__ = [
        n for n, thing in globals().items() if not n.startswith("_") and not isinstance(thing, _types.ModuleType)
    ]
