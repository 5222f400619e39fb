"""Compiled versions of the elementary functions, for use in kernels.

They are compiled from `streammetrics.numerics.elementary`, so kernels and Python give the same results bit for bit.
"""

from __future__ import annotations

import numpy as np

from ..numerics import elementary
from ._jit import inline, replace_function

replace_function(elementary.real, lambda x: np.float64(x))
replace_function(elementary.bits_of, lambda x: np.float64(x).view(np.int64))

exp = inline(elementary.exp)
log = inline(elementary.log)
log1p = inline(elementary.log1p)
log_parts = inline(elementary.log_parts)
minus_log = inline(elementary.minus_log)
near_deviance = inline(elementary.near_deviance)
power = inline(elementary.power)
product_error = inline(elementary._product_error)
sigmoid = inline(elementary.sigmoid)
softplus = inline(elementary.softplus)
x_minus_log1p = inline(elementary.x_minus_log1p)
