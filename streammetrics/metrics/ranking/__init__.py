"""Rankings: a value per query."""

from .gains import *
from .relevance import *
