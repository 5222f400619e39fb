"""Probability metrics: these metrics measure losses, skill and calibration of predicted probabilities."""

from .bucket_error import *
from .calibration import *
from .entropies import *
from .goodness import *
from .losses import *
from .models import *
from .recalibration import *
from .row_losses import *
from .skill import *
from .vectors import *
