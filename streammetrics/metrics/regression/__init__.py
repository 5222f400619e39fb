"""Predicted numbers: errors, deviances, how well they fit."""

from .deviance import *
from .errors import *
from .fit import *
from .quantiles import *
from .ranks import *
from .relative import *
