"""Decisions: of two classes at a threshold, of several classes, of several labels."""

from .agreement import *
from .multilabel import *
from .ratios import *
from .top import *
