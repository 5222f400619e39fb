"""JAX: asynchronous copies of arrays from a device, for `Deferred`."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .deferred import CARRIERS, Deferred

__all__ = ["ArrayCarrier", "ArrayTransfer", "Deferred"]


class ArrayTransfer:
    """A running copy of arrays, one by one: JAX would compile a concatenation for every number of steps."""

    def __init__(self, arrays: Sequence[jax.Array]) -> None:
        self._arrays = arrays
        for array in arrays:
            array.copy_to_host_async()

    def is_ready(self) -> bool:
        """Return whether all arrays have arrived, or were deleted."""
        return all(a.is_deleted() or a.is_ready() for a in self._arrays)

    def to_array(self) -> Any:
        """Return the rows of all arrays as a numpy array."""
        return np.concatenate([np.asarray(a) for a in self._arrays])


class ArrayCarrier:
    """The `Carrier` of JAX arrays. Arrays are immutable, but are deleted when they are donated to a jitted function."""

    def keep(self, column: jax.Array) -> tuple[jax.Array, None]:
        """Return the array itself."""
        return column, None

    def snapshot(self, column: jax.Array) -> jax.Array:
        """Return a copy on the same device."""
        return jnp.copy(column)

    def describe_change(self, column: jax.Array, mark: None) -> str:
        """Return a description if the array was deleted; otherwise an empty string."""
        return "was deleted (donated to a jitted function?)" if column.is_deleted() else ""

    def find_batch_key(self, column: jax.Array) -> Hashable:
        """Return the dtype and row shape, by which arrays are copied together; None for a scalar."""
        return (column.dtype, column.shape[1:]) if column.ndim else None

    def start_transfer(self, columns: Sequence[jax.Array]) -> ArrayTransfer:
        """Start the copy of arrays."""
        return ArrayTransfer(columns)


CARRIERS["jaxlib"] = ArrayCarrier()
