"""What users look for, a folder per family: each class is settings, a docstring with the formula, and `of(state)`."""

from .curves import *
from .decisions import *
from .groups import *
from .probabilities import *
from .ranking import *
from .regression import *
from .values import *
