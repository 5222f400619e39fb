"""What counting needs of kernels: loaded at the first row, so that merging and reading need no numba."""

from ..kernels._cache import writable_folder as writable_folder
from ..kernels._jit import KERNELS as KERNELS
from ..kernels._jit import BusyError as BusyError
from ..kernels._jit import compilations as compilations
from ..kernels._jit import impatient as impatient
from .counter import Counter as Counter
from .counter_registry import counter_of as counter_of
from .fused_call import Place as Place
from .fused_call import bound as bound
from .fused_call import calls_of as calls_of
from .fused_call import commit_of as commit_of
from .fused_call import find as find
from .index import Index as Index
