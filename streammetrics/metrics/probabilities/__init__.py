"""Probabilities: losses, rates and calibration."""

from .calibration import *
from .losses import *
