"""JAX support for `Deferred`: asynchronous copies of arrays from a device to host memory."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .deferred import CARRIERS, Deferred

__all__ = ["ArrayCarrier", "ArrayTransfer", "Deferred"]


class ArrayTransfer:
    """An asynchronous copy of arrays to host memory.

    Each array is copied separately, because concatenation would make JAX compile a new program for each number of arrays.
    """

    def __init__(self, arrays: Sequence[jax.Array]) -> None:
        self._arrays = arrays
        for array in arrays:
            array.copy_to_host_async()

    def is_ready(self) -> bool:
        """Return whether each array has arrived in host memory or was deleted (a deleted array will never arrive)."""
        return all(a.is_deleted() or a.is_ready() for a in self._arrays)

    def to_array(self) -> Any:
        """Return the rows of all arrays, concatenated into one numpy array."""
        return np.concatenate([np.asarray(a) for a in self._arrays])


class ArrayCarrier:
    """The `Carrier` that copies JAX arrays for `Deferred`.

    JAX arrays are immutable. However, JAX deletes an array that the caller donates to a jitted function;
    `describe_change` reports such a deletion.
    """

    def keep(self, column: jax.Array) -> tuple[jax.Array, None]:
        """Return the array itself and None, because an immutable array needs no marker to detect changes."""
        return column, None

    def snapshot(self, column: jax.Array) -> jax.Array:
        """Return a copy on the same device."""
        return jnp.copy(column)

    def describe_change(self, column: jax.Array, mark: None) -> str:
        """Return a description if the array was deleted; otherwise an empty string."""
        return "was deleted (donated to a jitted function?)" if column.is_deleted() else ""

    def find_batch_key(self, column: jax.Array) -> Hashable:
        """Return the dtype and row shape (arrays are copied together if both are equal), or None for a scalar."""
        return (column.dtype, column.shape[1:]) if column.ndim else None

    def start_transfer(self, columns: Sequence[jax.Array]) -> ArrayTransfer:
        """Start copying the arrays to host memory."""
        return ArrayTransfer(columns)


CARRIERS["jaxlib"] = ArrayCarrier()
