"""One column of numbers or keys: totals, extremes, quantiles, distinct counts."""

from .distinct import *
from .quantiles import *
from .totals import *
