"""Scores over all thresholds: areas, curves, best thresholds."""

from .areas import *
from .points import *
from .thresholds import *
from .top_rows import *
