"""Metrics by user or group: these metrics are computed within each group and averaged over groups."""

from .auc import *
from .losses import *
from .precision import *
