"""While rows come: cells, counters, the commit. The only importer of kernels, which it hands to columns and statistics."""

from ..kernels._cache import writable_folder as writable_folder
from ..kernels._jit import KERNELS as KERNELS
from ..kernels._jit import BusyError as BusyError
from ..kernels._jit import compilations as compilations
from ..kernels._jit import impatient as impatient
from .commit import Place as Place
from .commit import bound as bound
from .commit import calls_of as calls_of
from .commit import commit_of as commit_of
from .commit import find as find
from .counter import Counter as Counter
from .index import Index as Index
from .kinds import counter_of as counter_of
