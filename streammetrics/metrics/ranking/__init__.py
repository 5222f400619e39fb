"""Rankings: a value per query."""

from .at_k import *
from .exposure import *
from .gains import *
from .judged import *
from .ndcg_variants import *
from .popularity import *
from .precisions import *
from .rank_positions import *
from .relevance import *
from .subtopics import *
