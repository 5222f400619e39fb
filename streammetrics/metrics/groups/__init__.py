"""Metrics by user or group, computed within each group and averaged over groups."""

from .auc import *
from .losses import *
from .precision import *
