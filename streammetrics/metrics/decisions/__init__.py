"""Decisions: of two classes at a threshold, of several classes, of several labels; and of two labelings."""

from .agreement import *
from .cells import *
from .combined import *
from .geometric import *
from .kappa import *
from .multilabel import *
from .rates import *
from .ratios import *
from .top import *
