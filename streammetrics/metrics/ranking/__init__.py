"""Rankings: a value per query."""

from .at_k import *
from .exposure import *
from .gains import *
from .ideals import *
from .judged import *
from .places import *
from .popularity import *
from .precisions import *
from .relevance import *
from .subtopics import *
