"""By user or group: metrics that are computed within each group and then averaged over groups."""

from .auc import *
from .losses import *
from .precision import *
