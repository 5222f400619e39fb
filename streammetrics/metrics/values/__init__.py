"""One column of numbers or keys: totals, extremes, quantiles, distinct counts."""

from .distinct import *
from .keys import *
from .quantiles import *
from .shape import *
from .totals import *
