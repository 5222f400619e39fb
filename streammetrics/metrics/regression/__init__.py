"""Regression metrics: these metrics measure the errors of predicted numbers, quantiles and intervals."""

from .d2_scores import *
from .deviance import *
from .errors import *
from .fit import *
from .forecasts import *
from .losses import *
from .normalized_errors import *
from .quantiles import *
from .ranks import *
from .relative import *
