"""Predicted numbers: errors, deviances, how well they fit."""

from .deviance import *
from .errors import *
from .explained import *
from .fit import *
from .forecasts import *
from .losses import *
from .normed import *
from .quantiles import *
from .ranks import *
from .relative import *
