"""The functions and classes for counting that need numba.

This module is imported when the first row is counted. Programs that only merge and read states never import numba.
"""

from ..kernels._cache import writable_folder as writable_folder
from ..kernels._jit import KERNELS as KERNELS
from ..kernels._jit import BusyError as BusyError
from ..kernels._jit import count_compilations as count_compilations
from ..kernels._jit import raise_if_busy as raise_if_busy
from .counter import Counter as Counter
from .counter_registry import make_counter as make_counter
from .fused_call import ColumnArgument as ColumnArgument
from .fused_call import build_commit as build_commit
from .fused_call import build_deferred_calls as build_deferred_calls
from .fused_call import specialize_kernel as specialize_kernel
from .index import Index as Index
from .known_cells import KnownCells as KnownCells
