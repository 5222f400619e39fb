"""Predicted numbers: errors, deviances, how well they fit."""

from .deviance import *
from .errors import *
from .explained_deviance import *
from .fit import *
from .quantiles import *
from .relative import *
