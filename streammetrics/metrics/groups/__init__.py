"""By user or group: within each, averaged over all."""

from .auc import *
from .losses import *
from .precision import *
