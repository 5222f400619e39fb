"""Metrics of a column: these metrics summarize numbers or keys, for example by totals, quantiles or distinct counts."""

from .correlation import *
from .distinct import *
from .frequency import *
from .histogram import *
from .keys import *
from .means import *
from .quantiles import *
from .shape import *
from .totals import *
