"""What users look for, one file per task: each class is settings, a docstring with the formula, and `of(state)`."""

from .labels import *
from .losses import *
from .scores import *
