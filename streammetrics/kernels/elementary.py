"""The elementary functions, compiled as steps of a kernel.

They are those of `streammetrics.numerics.elementary`, so kernels and results have the same bits; `inline` compiles the
functions that they call, too.
"""

from __future__ import annotations

import numpy as np

from ..numerics import elementary
from ._jit import inline, stand_in

stand_in(elementary.real, lambda x: np.float64(x))
stand_in(elementary.bits_of, lambda x: np.float64(x).view(np.int64))

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
