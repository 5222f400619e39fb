"""Ranking metrics: these metrics evaluate the ranked list of each query or user, and average over the lists."""

from .at_k import *
from .exposure import *
from .gains import *
from .judged_documents import *
from .ndcg_variants import *
from .popularity import *
from .precisions import *
from .rank_positions import *
from .relevance import *
from .subtopics import *
