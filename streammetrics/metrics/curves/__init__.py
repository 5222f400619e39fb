"""Metrics over all thresholds: these metrics measure how well scores separate positives from negatives."""

from .areas import *
from .equal_error import *
from .h_measure import *
from .log_area import *
from .points import *
from .thresholded_auc import *
from .thresholds import *
from .top_rows import *
from .uplift import *
