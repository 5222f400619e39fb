"""Within groups, such as users, averaged over groups."""

from .auc import *
from .losses import *
from .precision import *
